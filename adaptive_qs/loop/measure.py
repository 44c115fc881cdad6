"""How precisely to measure each residual, and its noisy measurement, in integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_qs.cliques import CliqueIndex
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.events import GaussianEvent, Purpose
from adaptive_qs.privacy.mechanisms import CountsRequest, Mechanisms
from adaptive_qs.residual import decompose, privacy_cost, variance_weights
from adaptive_qs.table.coded import MarginalCounter

# Scaled form of a residual: release Ξv + discrete Gaussian of variance σ²n², divide by n, where v
# is the integer marginal over τ, Ξ = ⊗(n_i I − 11ᵀ) and n = Πn_i. One row moves Ξv by a vector of
# squared length Πn_i(n_i − 1), so ρ = (1/2σ²) Π(n_i − 1)/n_i, the cost of the continuous mechanism
# (Fuentes et al., Proposition 4.3). Where n is too large for 64-bit integers the marginal itself is
# released with variance σ² at ρ = 1/(2σ²) and decomposed afterwards; the choice depends on n alone.
#
# Where the noise is narrower than FINE_NOISE, values, sensitivity and noise are multiplied by a
# power of two besides: the cost stays, and discrete noise comes closer to continuous noise, which
# exact accounting counts it as.
#
# Proof: docs/proofs.md, sections 3 and 6.

MAX_SCALE = 2**20
"""Largest n = Πn_i for which Ξv is formed."""
MAX_FACTOR = 2**22
"""Most that values are multiplied by in all: at 2⁴⁰ rows they still are below 2⁶²."""


def is_scaled(domain: Domain, residual: Clique) -> bool:
    """Whether the residual is released in scaled form; depends on public sizes only."""
    return domain.size(residual) <= MAX_SCALE


def measurement_cost(domain: Domain, residual: Clique) -> float:
    """p_τ: a measurement of noise variance σ² costs ρ = p_τ / (2σ²)."""
    return privacy_cost(domain, residual) if is_scaled(domain, residual) else 1.0


def measure_residual(
    counter: MarginalCounter, mechanisms: Mechanisms, residual: Clique, noise_variance: float
) -> NDArray[np.float64]:
    """One noisy residual; see :func:`measure_residuals`."""
    return measure_residuals(counter, mechanisms, {residual: noise_variance})[residual]


def measure_residuals(
    counter: MarginalCounter, mechanisms: Mechanisms, noise_variances: Mapping[Clique, float]
) -> dict[Clique, NDArray[np.float64]]:
    """Noisy residuals in centered form (rows), each shaped like the marginal over it.

    Args:
        counter: the private counts.
        mechanisms: charges :func:`measurement_cost` / (2 · noise variance) for each, all or none,
            then draws.
        noise_variances: for each residual τ the variance σ² of the equivalent noise on the
            marginal's cells (rows²).

    Returns:
        ζ_τ + N(0, σ² ⊗Π_i) for each τ: zero-sum along every axis.
    """
    domain = counter.domain
    counter.prepare(noise_variances)
    requests = [_request(counter, *measured) for measured in noise_variances.items()]
    outputs = mechanisms.release_together(requests)
    return {
        residual: decompose(noisy / _scale(domain, residual, variance), residual, residual)
        for (residual, variance), noisy in zip(noise_variances.items(), outputs)
    }


def _request(counter: MarginalCounter, residual: Clique, noise_variance: float) -> CountsRequest:
    domain = counter.domain
    values = counter.count(residual)
    scale = _scale(domain, residual, noise_variance)
    squared_sensitivity, finer = Fraction(1), scale
    if is_scaled(domain, residual):
        finer //= domain.size(residual)
        for axis, n in enumerate(domain.shape(residual)):
            values = n * values - values.sum(axis=axis, keepdims=True)
            squared_sensitivity *= n * (n - 1)
    purpose = Purpose.RESIDUAL if residual else Purpose.ROWS
    names = domain.clique_names(residual)
    variance = Fraction(noise_variance) * scale**2
    event = GaussianEvent(purpose, names, squared_sensitivity * finer**2, variance)
    return CountsRequest(event, values * finer)


def _scale(domain: Domain, residual: Clique, noise_variance: float) -> int:
    """What the values released are multiplied by: n in scaled form, and a power of two."""
    scale = domain.size(residual) if is_scaled(domain, residual) else 1
    while noise_variance * scale**2 < FINE_NOISE**2 and 2 * scale <= MAX_FACTOR:
        scale *= 2
    return scale


# Conditional ResidualPlanner: how precisely to measure each residual, given what is known.
# Problem (7)-(8) of Fuentes et al.: minimise Σ v_τ / (x_τ + a_τ) over x ≥ 0 with Σ p_τ x_τ ≤ c,
# where x_τ is the new precision, a_τ the precision already held, v_τ how strongly the variance of τ
# enters the error and p_τ what a unit of precision costs. The optimum is a water-filling,
#
#     x_τ = max(0, √(v_τ / (ν p_τ)) − a_τ),
#
# whose active set is found by one sort: exact in O(m log m), no iterative solver.

Array = NDArray[np.float64]


def allocate_precision(
    weight: ArrayLike, cost: ArrayLike, known: ArrayLike, budget: ArrayLike
) -> Array:
    """New precisions x that minimise Σ weight/(x + known) subject to Σ cost·x ≤ budget.

    Args:
        weight: v, shape (..., m), non-negative.
        cost: p, shape (..., m), positive where weight is positive.
        known: a, shape (..., m), non-negative precisions already held.
        budget: c > 0, shape (...); for zCDP this is 2ρ.

    Returns:
        x, shape (..., m), with Σ cost·x = budget along the last axis (zero where weight is).
        Leading axes are independent problems.
    """
    v, p, a = (np.asarray(array, dtype=np.float64) for array in (weight, cost, known))
    v, p, a = np.broadcast_arrays(v, p, a)
    c = np.asarray(budget, dtype=np.float64)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(v > 0, np.sqrt(v / p), 0.0)  # 1/√ν at which τ holds precision 1
        threshold = np.where(v > 0, a / level, np.inf)  # τ is active once 1/√ν exceeds this
    order = np.argsort(threshold, axis=-1, kind="stable")
    held = np.cumsum(np.take_along_axis(np.where(v > 0, p * a, 0.0), order, axis=-1), axis=-1)
    slope = np.cumsum(np.take_along_axis(p * level, order, axis=-1), axis=-1)
    sorted_threshold = np.take_along_axis(threshold, order, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        water = (c + held) / slope  # 1/√ν if exactly the first k residuals are active
    # The k-th set is right where water still covers its last member; that holds for a prefix.
    active = (water > sorted_threshold) & np.isfinite(sorted_threshold)
    count = np.maximum(active.sum(axis=-1, keepdims=True), 1)
    final = np.take_along_axis(water, count - 1, axis=-1)
    return np.where(v > 0, np.maximum(final * level - a, 0.0), 0.0)


NEGLIGIBLE_SHARE = 1e-3
"""Part of the budget below which a known residual is not measured again; less where a clique has
more than eight residuals, so that some residual always gets more than that."""


class ConditionalPlanner:
    """Plans measurements of many candidate cliques at once.

    Args:
        domain: the attributes.
        closure: every residual a candidate contains, the empty one included.
        candidates: cliques that could be measured.
        cost: p_τ for each residual of ``closure``: ρ of a measurement is p_τ · precision / 2.
    """

    def __init__(
        self,
        domain: Domain,
        closure: Sequence[Clique],
        candidates: Sequence[Clique],
        cost: Sequence[float],
    ) -> None:
        self._row = {clique: row for row, clique in enumerate(candidates)}
        index, sizes = CliqueIndex(len(domain), closure), np.array(domain.sizes)
        self._cost = np.asarray(cost, dtype=np.float64)
        self._groups: dict[int, _Group] = {}
        degrees = np.array([len(c) for c in candidates])
        for degree in np.unique(degrees).tolist():
            rows = np.flatnonzero(degrees == degree)
            listed = [candidates[row] for row in rows.tolist()]
            members = np.array(listed, dtype=np.int64).reshape(len(rows), degree)
            self._groups[degree] = _Group(
                rows, index.of_subsets(members), variance_weights(sizes[members])
            )

    def expected_stds(self, precision: Array, budgets: Array, rows: NDArray[np.int64]) -> Array:
        """Noise in a cell (standard deviation, rows) of candidates after their own best
        measurement.

        Args:
            precision: λ_τ held for each residual of the closure (1 / rows²).
            budgets: Σ p_τ x_τ available, 2ρ; several of them.
            rows: positions of the candidates asked for, ascending.

        Returns:
            Shape (budgets, rows); infinite without a budget for what was never measured.
        """
        expected = np.empty((budgets.size, rows.size))
        for group in self._groups.values():
            at = np.flatnonzero(np.isin(rows, group.rows, assume_unique=True))
            inside = np.searchsorted(group.rows, rows[at])
            residuals, weight = group.residuals[inside], group.weight[inside]
            known, cost = precision[residuals], self._cost[residuals]
            share = np.broadcast_to(budgets[:, None], (budgets.size, at.size))
            new = allocate_precision(weight, cost, known, share)
            with np.errstate(divide="ignore", invalid="ignore"):
                variance = np.where(weight > 0, weight / (known + new), 0.0).sum(axis=-1)
            expected[:, at] = np.sqrt(variance)
        return expected

    def allocate(self, clique: Clique, precision: Array, budget: float) -> dict[Clique, float]:
        """New precision for each residual of a candidate worth measuring (1 / rows²).

        Residuals that would get a negligible part of the budget and are already known are left
        out (Fuentes et al., Appendix D.2) and their share goes to the others.
        """
        group = self._groups[len(clique)]
        at = int(np.searchsorted(group.rows, self._row[clique]))
        residuals, weight = group.residuals[at], group.weight[at]
        known, cost = precision[residuals], self._cost[residuals]
        new = allocate_precision(weight, cost, known, np.float64(budget))
        least = NEGLIGIBLE_SHARE * budget * min(1.0, 8 / new.size)
        kept = (new > 0) & ((cost * new > least) | (known == 0))
        new = np.where(kept, new, 0.0)
        new *= budget / (cost * new).sum()
        return {tau: float(x) for tau, x in zip(subsets(clique), new) if x > 0}


class _Group(NamedTuple):
    """Candidates with equally many attributes: arrays of shape (candidates, 2**degree)."""

    rows: NDArray[np.int64]
    residuals: NDArray[np.int64]
    weight: Array
