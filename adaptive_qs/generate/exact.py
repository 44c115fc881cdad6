"""The log-linear fit of a domain whose cells all fit into memory: no sampling, no chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from adaptive_qs.cliques import Array, Rows, downward_closure, maximal_cliques
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.zeros import SCALINGS, Zeros
from adaptive_qs.machine import StepProgress
from adaptive_qs.residual import ReferenceModel

# Of all distributions p over the cells, the fit minimises
#
#     κ · KL(p ‖ q) + ½ Σ_τ λ_τ ‖z_τ − n R_τ p‖²
#
# for measured residuals z_τ of precision λ_τ and n rows: the most likely p under the noise, with a
# prior that holds it near q. It has the form p ∝ q · exp(Σ_τ R_τᵀ θ_τ), and θ minimises the smooth,
# convex dual
#
#     log Σ q exp(Σ R_τᵀ θ_τ) − Σ θ_τ·z_τ / n + κ/(2n²) Σ ‖θ_τ‖² / λ_τ.
#
# κ follows from released values, as the weight of a prior does in the evidence approximation
# (MacKay 1992): κ = γ / (2 KL). Here γ, the number of well-determined parameters, is the expected
# misfit of pure noise less the misfit of the fit.
#
# Interactions of a higher order are usually weaker. So residuals of up to two attributes are fitted
# first, near the product q of the one-way marginals; then those of up to three, near the
# distribution so found, with a κ of their own; and so on.

MOST_PARAMETERS = 2**18
"""Largest number of cells of all measured residuals together."""
TOLERANCE = 0.1
"""Distance from the optimum at which a fit stops, in standard deviations of the noise."""
PRIOR_ROUNDS = 4
"""Largest number of times that κ is adjusted."""
STEPS, ROUGH_STEPS = 250, 50
"""Largest number of steps for the last κ, and for each κ before it."""


def can_fit(domain: Domain, measured: Iterable[Clique], most_cells: int) -> bool:
    """Return whether the joint distribution and the measured residuals are small enough."""
    if domain.size(tuple(range(len(domain)))) > most_cells:
        return False
    return sum(map(domain.size, downward_closure(measured))) <= MOST_PARAMETERS


class Joint:
    """The cells of a domain in natural order, and its marginals."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.cells = math.prod(domain.sizes)
        strides = np.append(np.cumprod(domain.sizes[:0:-1])[::-1], 1)
        self.strides = strides.astype(np.int64)

    def marginal(self, array: Array, clique: Clique) -> Array:
        """Sum an array over all cells into the shape of the marginal over a clique."""
        sizes, outside = self._split_axes(clique)
        sums: Any = array
        if len(sizes) - 1 in outside:
            run = sizes.pop()
            sums = np.bincount(np.repeat(np.arange(array.size // run), run), array)
        shape = [1 if k in outside else n for k, n in enumerate(sizes)]
        cells = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), sizes)
        sums = np.bincount(cells.ravel(), sums)
        return sums.reshape(self.domain.shape(clique))

    def add(self, array: Array, table: Array, clique: Clique) -> None:
        """Add a table over a clique to an array over all cells, in place."""
        sizes, outside = self._split_axes(clique)
        cells = array.reshape(sizes)  # a view
        cells += table.reshape([1 if k in outside else n for k, n in enumerate(sizes)])

    def _split_axes(self, clique: Clique) -> tuple[list[int], tuple[int, ...]]:
        """Merge neighbouring attributes into runs that are all inside a clique or all outside.

        Return the number of cells of each run, and the positions of the runs outside.
        """
        runs = [(k in clique, i) for k, i in enumerate(self.domain.sizes)]
        grouped = [
            (held, math.prod(n for _, n in run)) for held, run in groupby(runs, lambda r: r[0])
        ]
        outside = tuple(k for k, (held, _) in enumerate(grouped) if not held)
        return [size for _, size in grouped], outside


def gather_blocks(domain: Domain, cliques: Iterable[Clique], most_cells: int) -> list[Clique]:
    """Group attributes into blocks, so that each clique is inside a block.

    Greedy: a block begins with the largest clique left, and adds the attribute that brings in most
    cliques for its size while its marginal has at most ``most_cells``.
    """
    left = set(cliques)
    blocks = []
    while left:
        block = max(left, key=lambda c: (domain.size(c), c))
        while True:
            wider = [
                tuple(sorted((*block, i)))
                for i in range(len(domain))
                if i not in block and domain.size(block) * domain.sizes[i] <= most_cells
            ]
            inside = _count_inside(left, block)
            gains = [
                (_count_inside(left, wide) - inside) * math.log(domain.size(block) + 1)
                / math.log(domain.size(wide) + 1)
                for wide in wider
            ]  # fmt: skip
            if not gains or max(gains) <= 0:
                break
            block = wider[int(np.argmax(gains))]
        members = set(block)
        left = {c for c in left if not members.issuperset(c)}
        blocks.append(block)
    return blocks


def _count_inside(cliques: Iterable[Clique], block: Clique) -> int:
    members = set(block)
    return sum(members.issuperset(clique) for clique in cliques)


class Residuals:
    """The measured residuals of a joint distribution as one linear map R.

    Residuals of the measured cliques and of single attributes count.

    Attributes:
        values: z, all residuals one after the other (rows).
        precision: λ of each value (1 / rows²).
        degrees: dimension of all residual spaces together.
    """

    def __init__(self, joint: Joint, model: ReferenceModel, measured: Iterable[Clique]) -> None:
        domain = joint.domain
        closure = downward_closure([*measured, *((i,) for i in range(len(domain)))])
        several = (t for t in closure if t and min(domain.shape(t)) > 1)
        measured_ones = (t for t in several if t in model.estimates)
        self._residuals = sorted(measured_ones, key=lambda t: (domain.shape(t), t))
        sizes = [domain.size(t) for t in self._residuals]
        self._start = np.cumsum([0, *sizes])
        estimates = [model.estimates[t] for t in self._residuals]
        self.values = np.concatenate([np.zeros(0), *(e.values.ravel() for e in estimates)])
        self.precision = np.repeat([e.precision for e in estimates], sizes)
        self.degrees = sum(math.prod(n - 1 for n in domain.shape(t)) for t in self._residuals)
        self._joint = joint
        blocks = gather_blocks(domain, maximal_cliques(self._residuals), 2**12)
        left = dict(zip(self._residuals, self._start.tolist()))
        self._maps = [(block, self._incidence(block, left)) for block in blocks]

    def _incidence(self, block: Clique, left: dict[Clique, int]) -> csr_matrix:
        """Return the incidence matrix of a block's cells and the residuals in it, (cells, all).

        Take these residuals out of ``left``, which maps each to where it starts.
        """
        domain = self._joint.domain
        codes = dict(zip(block, np.indices(domain.shape(block)).reshape(len(block), -1)))
        inside = [t for t in left if set(block).issuperset(t)]
        columns = [
            left.pop(t) + np.ravel_multi_index([codes[i] for i in t], domain.shape(t))
            for t in inside
        ]
        cells = domain.size(block)
        entries = np.stack(columns, axis=1).ravel()
        ends = np.arange(cells + 1) * len(columns)
        return csr_matrix(
            (np.ones(entries.size), entries, ends), shape=(cells, int(self._start[-1]))
        )

    def apply(self, array: Array) -> Array:
        """Return R p: the residuals of an array over all cells, one after the other."""
        sums = np.zeros(self.values.size)
        for block, incidence in self._maps:
            sums += incidence.T @ self._joint.marginal(array, block).ravel()
        return self._centered(sums)

    def add_transposed(self, array: Array, coefficients: Array) -> None:
        """Add Rᵀθ for centered coefficients θ to an array over all cells, in place."""
        for block, incidence in self._maps:
            self._joint.add(array, incidence @ coefficients, block)

    def _centered(self, values: Array) -> Array:
        """Subtract the means along every axis from the table of each residual."""
        parts, start = [np.zeros(0)], 0
        for shape, alike in groupby(self._residuals, key=self._joint.domain.shape):
            end = start + len(list(alike)) * math.prod(shape)
            part = values[start:end].reshape(-1, *shape)
            for axis in range(1, part.ndim):
                part = part - part.mean(axis=axis, keepdims=True)
            parts.append(part.ravel())
            start = end
        return np.concatenate(parts)


@dataclass(frozen=True)
class ExactFit:
    """A fitted distribution.

    Attributes:
        probabilities: p, one for each cell in natural order.
        prior_weight: κ of the last order.
        gap: largest deviation from optimality (standard deviations of the noise).
    """

    joint: Joint
    probabilities: Array
    prior_weight: float
    gap: float


def fit_exactly(
    model: ReferenceModel,
    measured: Iterable[Clique],
    singles: Sequence[Array],
    progress: StepProgress | None = None,
    zeros: Zeros = (),
) -> ExactFit:
    """Fit the joint distribution that is most likely given the noise, near that of lower order.

    ``singles`` are the non-negative counts of each attribute, without interactions (rows). Progress
    is reported after each step; there can be fewer than planned.
    """
    domain, total = model.domain, max(model.total, 1.0)
    joint = Joint(domain)
    log_q = np.zeros(joint.cells)
    for i, single in enumerate(singles):
        floored = np.maximum(single, 0.5)
        joint.add(log_q, np.log(floored / floored.sum()), (i,))
    for zero in zeros:
        joint.add(log_q, np.where(zero.allowed, 0.0, -np.inf), zero.clique)
    for _ in range(SCALINGS if zeros else 0):  # iterative proportional fitting
        for i, single in enumerate(singles):
            shares = joint.marginal(np.exp(log_q), (i,))
            desired = np.maximum(single, 0.5) / np.maximum(single, 0.5).sum()
            scale = np.log(np.divide(desired, shares, out=np.ones_like(shares), where=shares > 0))
            joint.add(log_q, scale, (i,))
    closure = downward_closure([*measured, *((i,) for i in range(len(domain)))])
    orders = sorted({len(clique) for clique in closure if len(clique) > 1}) or [1]
    planned = len(orders) * (PRIOR_ROUNDS * ROUGH_STEPS + STEPS)
    steps = count(1)

    def tick() -> None:
        if progress and (done := next(steps)) < planned:
            progress(done, planned)

    for order in orders:
        residuals = Residuals(joint, model, [c for c in closure if len(c) <= order])
        dual = _Dual(residuals, log_q, total)
        theta, kappa = _fit_order(dual, tick)
        log_q = dual.log_probabilities(theta)
    if progress:
        progress(planned, planned)
    return ExactFit(joint, np.exp(log_q), kappa, dual.gap(theta, kappa))


def _fit_order(dual: _Dual, tick: Callable[[], None]) -> tuple[Array, float]:
    theta, kappa = dual.start(), 1.0
    for _ in range(PRIOR_ROUNDS):
        theta = dual.minimise(theta, kappa, 1.0, ROUGH_STEPS, tick)
        before, kappa = kappa, dual.evidence_weight(theta, kappa)
        if abs(kappa - before) <= 0.1 * kappa:
            break
    return dual.minimise(theta, kappa, TOLERANCE, STEPS, tick), kappa


class _Dual:
    """The dual of the fit: its value, its gradient, and its minimum."""

    def __init__(self, residuals: Residuals, log_q: Array, total: float) -> None:
        self._residuals = residuals
        self._log_q = log_q
        self._total = total
        self._measured = residuals.values / total
        self._noise = 1 / (total**2 * residuals.precision)  # variance of a share

    def start(self) -> Array:
        """Return θ of q."""
        return np.zeros(self._measured.size)

    def _normalised(self, theta: Array) -> tuple[Array, float]:
        """Return p and log Σ q exp(Rᵀθ)."""
        p = self._log_q.copy()
        self._residuals.add_transposed(p, theta)
        largest = float(p.max())
        np.exp(p - largest, out=p)
        total = float(p.sum())
        p /= total
        return p, largest + math.log(total)

    def log_probabilities(self, theta: Array) -> Array:
        """Return log p."""
        log_p = self._log_q.copy()
        self._residuals.add_transposed(log_p, theta)
        return log_p - self._normalised(theta)[1]

    def _value(self, theta: Array, kappa: float) -> tuple[float, Array]:
        p, log_sum = self._normalised(theta)
        pull = kappa * self._noise * theta
        value = log_sum - float(theta @ self._measured) + 0.5 * float(theta @ pull)
        return value, self._residuals.apply(p) - self._measured + pull

    def minimise(
        self, theta: Array, kappa: float, tolerance: float, steps: int, tick: Callable[[], None]
    ) -> Array:
        """Return θ near the minimum for κ, after at most ``steps`` steps from a first guess.

        The search ends where the gradient is within ``tolerance`` standard deviations of the noise.
        """
        if not theta.size:
            return theta
        std = np.sqrt(self._noise)

        def objective(at: Array) -> tuple[float, Array]:
            value, gradient = self._value(at, kappa)
            near = np.abs(gradient / std).max() <= tolerance
            return value, np.zeros_like(gradient) if near else gradient  # zero ends the search

        options = {"maxiter": steps, "maxcor": 10, "gtol": 0.0, "ftol": 0.0}
        found = scipy.optimize.minimize(
            objective, theta, jac=True, method="L-BFGS-B", options=options,
            callback=lambda _: tick(),
        )  # fmt: skip
        return np.asarray(found.x)

    def gap(self, theta: Array, kappa: float) -> float:
        """Return the largest entry of the gradient, in standard deviations of the noise."""
        gradient = self._value(theta, kappa)[1]
        return float(np.abs(gradient / np.sqrt(self._noise)).max(initial=0.0))

    def misfit(self, theta: Array, kappa: float) -> float:
        """Return Σ λ ‖z − n R p‖² at the minimum, where z − n R p = κ θ / (n λ)."""
        return kappa**2 * float(self._noise @ np.square(theta))

    def evidence_weight(self, theta: Array, kappa: float) -> float:
        """Return κ = γ / (2 KL(p ‖ q)), between one row and the number of rows."""
        p, log_sum = self._normalised(theta)
        divergence = float(theta @ self._residuals.apply(p)) - log_sum
        determined = max(self._residuals.degrees - self.misfit(theta, kappa), 1.0)
        return float(np.clip(determined / max(2 * divergence, 1e-9), 1.0, self._total))


class ExactChains:
    """Samples of rows of a fitted distribution.

    Each state is a systematic sample: every run of cells in natural order has its share of the rows
    to within one.
    """

    def __init__(self, fit: ExactFit, num_rows: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self._fit = fit
        self.rows = self._draw(num_rows)

    def marginals(self, cliques: Iterable[Clique]) -> list[NDArray[np.float32]]:
        """Return the expected marginals of a state over these cliques."""
        counts = self._fit.probabilities * len(self.rows)
        return [self._fit.joint.marginal(counts, c).astype(np.float32) for c in cliques]

    def within(self, chances: Mapping[int, Array], num_rows: int) -> tuple[ExactChains, float]:
        """Return chains of a random subset of ``num_rows``, and the share of these among all rows.

        ``chances`` has, by attribute, the probability to keep a row with each value: shape (n_i,).
        """
        domain = self._fit.joint.domain
        cells = self._fit.probabilities.reshape(domain.sizes)
        for attribute, chance in chances.items():
            along = [-1 if i == attribute else 1 for i in range(len(domain))]
            cells = cells * chance.reshape(along)
        share = float(cells.sum())
        fit = replace(self._fit, probabilities=cells.ravel() / (share or 1.0))
        return ExactChains(fit, num_rows, self.rng), share

    def keep(self, num_rows: int) -> ExactChains:
        """Return chains of the same distribution with another number of rows."""
        return ExactChains(self._fit, num_rows, self.rng)

    def add_marginals(
        self, means: Sequence[NDArray[np.float32]], cliques: Sequence[Clique]
    ) -> None:
        """Add the expected marginals of a state, in place."""
        for mean, marginal in zip(means, self.marginals(cliques)):
            mean += marginal

    def advance(self, times: int = 1) -> Rows:
        """Return the state and the next ones, one below the other, in a new array."""
        states = np.concatenate([self.rows, *(self._draw(len(self.rows)) for _ in range(times))])
        self.rows = states[-len(self.rows) :]
        return states[: -len(self.rows)]

    def _draw(self, num_rows: int) -> Rows:
        joint, up_to = self._fit.joint, np.cumsum(self._fit.probabilities)
        points = (np.arange(num_rows) + self.rng.random()) * (up_to[-1] / num_rows)
        cells = np.searchsorted(up_to, points, side="right")[:, None]
        return (cells // joint.strides % joint.domain.sizes).astype(np.int32)
