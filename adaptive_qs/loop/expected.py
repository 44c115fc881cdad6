"""How far from the truth a measurement would leave the estimate of each candidate.

An estimate serves after projection onto the simplex: tables with no negative cell and the model's
number of rows. That takes away most of the noise of a marginal with many small cells, so both the
score of a candidate and the error expected of measuring it are those of the projection. All of it
is post-processing of released values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import (
    BATCH_CELLS,
    BATCH_CLIQUES,
    MOST_FORMED,
    Array,
    Integers,
    batches,
    form_cells,
)
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.generate.targets import project_to_simplex
from adaptive_qs.machine import njit, over_items
from adaptive_qs.residual import ReferenceModel

# The expected error is derived in docs/proofs.md, section 1. Cells of about one size are together.

SMALLEST = -8
"""Cells of up to 2**SMALLEST rows count as one size; larger ones by half octaves (mantissas from 1
to 1.5, and from 1.5 to 2)."""
FINEST = -4
"""The least noise for which errors are tabulated is 2**FINEST rows; below it they grow with it."""
_SURE = -8.0
"""Position of the threshold relative to a cell, in standard deviations, below which the cell stays
above it."""
_ROOT, _SCALE = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


@njit(cache=True, nogil=True)
def _expected_errors(counts, masses, stds, errors):  # type: ignore[no-untyped-def]
    """Compute the errors of each estimate for ascending noise levels, by the sizes of its cells.

    The first two arrays, shape (estimates, sizes), are used as scratch memory.
    """
    for row in range(counts.shape[0]):
        number, size = counts[row], masses[row]
        kinds, total = 0, 0.0
        for k in range(number.size):
            total += size[k]
            if number[k] > 0.0:
                number[kinds], size[kinds] = number[k], size[k] / number[k]
                kinds += 1
        t = 0.0
        for level in range(stds.size):
            s = stds[level]
            for _ in range(100):  # Newton: convex and falling in t, and t grows with s
                excess, slope = -total / s, 0.0
                for k in range(kinds):
                    c = t - size[k] / s
                    if c < _SURE:
                        excess -= number[k] * c
                        slope += number[k]
                        continue
                    above = 0.5 * math.erfc(c * _ROOT)
                    excess += number[k] * (_SCALE * math.exp(-0.5 * c * c) - c * above)
                    slope += number[k] * above
                step = excess / slope if slope > 0.0 else 0.0
                t += step
                if abs(step) < 1e-3:  # the next one would be of its square
                    break
            below, density = 1 - 0.5 * math.erfc(t * _ROOT), _SCALE * math.exp(-0.5 * t * t)
            error = 0.0
            for k in range(kinds):
                c = t - size[k] / s
                under = mode = 0.0
                if c >= _SURE:
                    under, mode = 1 - 0.5 * math.erfc(c * _ROOT), _SCALE * math.exp(-0.5 * c * c)
                kept = t * (2 * below - under - 1) + 2 * density - mode
                error += number[k] * (size[k] * under + s * kept)
            errors[row, level] = error


def _with_small_as_one(number: Array, share: Array, total: float) -> tuple[Array, Array]:
    """Return cells and rows by mean size; the last are cells of up to 2**SMALLEST rows."""
    mass, last = share * total, number.size
    kind = np.where(mass >= number * 2.0**SMALLEST, np.arange(last), last)
    numbers: Array = np.bincount(kind, number, last + 1).astype(np.float64)
    rows: Array = np.bincount(kind, mass, last + 1).astype(np.float64)
    return numbers, rows


class ErrorCurves:
    """Expected L1 errors of many estimates after a measurement, as functions of its noise.

    Args:
        number: of estimates.
        total: about how many rows each has.
        finest: the least noise that is tabulated is ``2**finest`` rows.

    Attributes:
        stds: standard deviations of the noise (rows) that are tabulated, ascending.
    """

    def __init__(self, number: int, total: float, finest: int = FINEST) -> None:
        octaves = max(math.ceil(math.log2(max(total, 1e-300))) - finest, 0) + 2
        self._finest = finest
        self.stds: Array = np.exp2(np.arange(finest, finest + octaves, dtype=np.float64))
        self._logs = np.zeros((number, octaves), dtype=np.float32)

    def take(self, rows: Integers, errors: Array) -> None:
        """Tabulate errors of these estimates, shape (len(rows), len(stds))."""
        self._logs[rows] = np.log2(np.maximum(errors, 1e-300))

    def at(self, std: Array, rows: Integers) -> Array:
        """Return the expected L1 error (rows) of estimates measured with this noise.

        Args:
            std: standard deviation of the noise in one cell (rows), shape (..., len(rows)).
            rows: which estimates.

        Returns:
            Shaped like ``std``. At no noise it is 0; beyond the number of rows it is constant; NaN
            stays NaN.
        """
        last = self.stds.size - 1
        with np.errstate(divide="ignore"):
            octave = np.minimum(np.log2(std) - self._finest, float(last))
        low = np.fmax(np.fmin(octave, last - 1.0), 0.0).astype(np.int64)
        before, after = self._logs[rows, low], self._logs[rows, low + 1]
        part = octave - low
        return np.exp2(np.where(part < 0, before + part, before + part * (after - before)))


@dataclass(frozen=True)
class CellSizeHistogram:
    """How the cells of an estimate differ in size, in shares of its rows.

    Attributes:
        number: cells of about each size, in half octaves downwards from 1 to ``2**-LEAST_OCTAVE``;
            the last is of all smaller ones.
        mass: the shares of those cells together.
    """

    number: Array
    mass: Array

    @classmethod
    def of(cls, cells: Array) -> CellSizeHistogram:
        """Return the sizes of non-negative cells of any shape, not all zero."""
        share = cells.reshape(-1) / cells.sum()
        with np.errstate(divide="ignore"):
            fall = np.minimum(-2.0 * np.log2(share), 2.0 * LEAST_OCTAVE + 1).astype(np.int64)
        kinds = 2 * LEAST_OCTAVE + 2
        number = np.bincount(fall, minlength=kinds).astype(np.float64)
        return cls(number, np.bincount(fall, share, kinds).astype(np.float64))

    def times(self, other: CellSizeHistogram) -> CellSizeHistogram:
        """Return the sizes of the product of two estimates over different attributes."""
        number, mass = np.convolve(self.number, other.number), np.convolve(self.mass, other.mass)
        return CellSizeHistogram(number, mass)

    def errors(self, total: float, stds: Array) -> Array:
        """Return expected L1 errors (rows) of an estimate of ``rows`` rows, by ascending noise."""
        errors = np.empty((1, stds.size))
        count, mass = _with_small_as_one(self.number, self.mass, total)
        _expected_errors(count[None], mass[None], stds, errors)
        return errors[0]


LEAST_OCTAVE = 40
"""Shares below 2**-LEAST_OCTAVE are one size."""


@njit(cache=True, nogil=True)
def _project(cells, bits, ends, total, thresholds, counts, masses):  # type: ignore[no-untyped-def]
    """Project estimates that lie one after the other, and find the sizes of their cells, in place.

    τ ≥ 0 is such that Σ (cell − τ)⁺ = total, or 0 where the positive cells have less.

    Cells above τ come to stand in front of their estimate, less τ. ``bits`` is their memory as
    integers, ``ends`` where estimates end, ``total`` the rows of each, ``thresholds`` τ; ``counts``
    are cells of about each size, shape (estimates, sizes), and ``masses`` their rows.
    """
    least = 2 * (1023 + SMALLEST) - 1
    begin = 0
    for row in range(ends.size):
        own, digits = cells[begin : ends[row]], bits[begin : ends[row]]
        tau, number = 0.0, own.size
        for _ in range(100):  # Newton on a convex, piecewise linear function, from the left
            excess, above = -total, 0
            for j in range(number):  # a cell that τ has passed stays below; no branch to mispredict
                cell = own[j]
                excess += max(cell - tau, 0.0)
                own[above] = cell
                above += cell > tau
            number = above
            if number == 0 or excess <= 1e-9 * total:
                break
            tau += excess / number
        count, mass = counts[row], masses[row]
        for kind in range(count.size):
            count[kind] = mass[kind] = 0.0
        count[0] = own.size - number
        for j in range(number):
            own[j] = max(own[j] - tau, 0.0)
            kind = (digits[j] >> 51) - least  # exponent, and the digit after it
            kind = min(max(kind, 0), count.size - 1)
            count[kind] += 1.0
            mass[kind] += own[j]
        thresholds[row] = tau
        begin = ends[row]


ALL_FORMED = 2**28
"""If all candidates have no more cells together, each is projected cell by cell."""
MOST_OF_PAIR = 2**20
"""Most cells of a pair that is otherwise; of other candidates that were not measured themselves, it
is ``MOST_FORMED``."""


class ProjectedEstimates:
    """The projected estimates of all candidates, kept current.

    Of many candidates, the large ones that were not measured themselves keep the threshold 0, and
    the sizes of their cells are those of the product of the largest measured marginal inside and of
    the other columns.

    Args:
        domain: the attributes.
        candidates: the cliques on offer, none empty.
        workers: threads; nothing depends on it.

    Attributes:
        model: what was measured, at the last :meth:`refresh`.
        thresholds: τ of each candidate (rows): max(cell − τ, 0) is its projected estimate.
        curves: the error expected of measuring each.
    """

    model: ReferenceModel
    curves: ErrorCurves

    def __init__(self, domain: Domain, candidates: Sequence[Clique], workers: int = 1) -> None:
        self._domain = domain
        self._candidates = candidates
        self._workers = workers
        self._sizes: dict[Clique, CellSizeHistogram] = {}
        self._cells = [*map(domain.size, candidates)]
        self._all_formed = sum(self._cells) <= ALL_FORMED
        self.thresholds = np.zeros(len(candidates))

    def refresh(self, model: ReferenceModel, stale: NDArray[np.bool_]) -> None:
        """Recompute the candidates whose estimates changed, shape (candidates,)."""
        if not hasattr(self, "curves"):
            self.curves = ErrorCurves(len(self._candidates), model.total)
        self.model = model
        rows = np.flatnonzero(stale)
        cliques = [self._candidates[row] for row in rows.tolist()]
        errors = np.empty((rows.size, self.curves.stds.size))
        total = max(model.total, 1.0)
        small = [k for k, clique in enumerate(cliques) if self._is_formed(clique)]
        formed = [cliques[k] for k in small]

        def project(run: slice) -> None:
            at = small[run]
            self.thresholds[rows[at]], errors[at] = _projected(
                model, formed[run], total, self.curves.stds
            )

        sizes = [self._cells[rows[k]] for k in small]
        runs = list(batches(sizes, BATCH_CELLS, BATCH_CLIQUES))
        over_items(min(self._workers, max(len(runs), 1)), project, runs)
        for clique in cliques:
            self._sizes.pop(clique, None)
        for k in sorted(set(range(len(cliques))) - set(small)):
            self.thresholds[rows[k]] = 0.0
            errors[k] = self._product_sizes(cliques[k]).errors(total, self.curves.stds)
        self.curves.take(rows, errors)

    def _is_formed(self, clique: Clique) -> bool:
        cells = self._domain.size(clique)
        most = MOST_OF_PAIR if len(clique) <= 2 else MOST_FORMED
        return self._all_formed or cells <= most or self.model.precision(clique) > 0

    def _product_sizes(self, clique: Clique) -> CellSizeHistogram:
        """Return the sizes of cells if only one marginal inside, and columns, were known."""
        domain, model = self._domain, self.model
        inside = (tau for tau in subsets(clique) if model.holds(tau) and self._is_formed(tau))
        known = max(inside, key=domain.size, default=())
        parts = [known] if known else []
        parts += [(i,) for i in clique if i not in known]
        sizes, *others = map(self._find_sizes, parts)
        for other in others:
            sizes = sizes.times(other)
        return sizes

    def _find_sizes(self, clique: Clique) -> CellSizeHistogram:
        if clique not in self._sizes:
            cells = project_to_simplex(self.model.marginal(clique), max(self.model.total, 1.0))
            self._sizes[clique] = CellSizeHistogram.of(cells)
        return self._sizes[clique]


def _projected(
    model: ReferenceModel, cliques: Sequence[Clique], total: float, stds: Array
) -> tuple[Array, Array]:
    cells, ends = form_cells(model, cliques)
    kinds = 2 * (math.ceil(math.log2(total)) + 1 - SMALLEST) + 2
    thresholds, errors = np.empty(len(cliques)), np.empty((len(cliques), stds.size))
    counts, masses = np.empty((2, len(cliques), kinds))
    _project(cells, cells.view(np.int64), ends, total, thresholds, counts, masses)
    _expected_errors(counts, masses, stds, errors)
    return thresholds, errors


LEAST_ERROR = 0.1
"""Mean L1 error expected over codes, as a part of the rows, from which on levels are offered."""
DEPENDENCE = 0.15
"""Assumed L1 distance of a combination of two columns from what is known of each, as a share of the
rows; of more columns, its powers."""


def mean_error(
    shares: Sequence[NDArray[np.float64]], total: float, candidates: Sequence[Clique], rho: float
) -> float:
    """Return the mean L1 error (share of the rows) of marginals if each got as much budget.

    Where it is large the budget suffices for groups of codes or for some of them only, where it is
    small for all of them. Without any it is 0. Columns, with these shares of codes, are taken to be
    independent; candidates are over codes, and ``rho`` is for all of several columns together.
    """
    several = [clique for clique in candidates if len(clique) > 1]
    total = max(total, 1.0)
    std = np.array([math.sqrt(len(several) / (2 * rho))])
    columns = {q.tobytes(): CellSizeHistogram.of(q) for q in shares}
    kinds = [[*columns].index(q.tobytes()) for q in shares]
    errors = 0.0
    for kind, number in Counter(tuple(sorted(kinds[i] for i in c)) for c in several).items():
        sizes = reduce(CellSizeHistogram.times, ([*columns.values()][k] for k in kind))
        errors += number * float(sizes.errors(total, std)[0])
    return errors / total / max(len(several), 1)


SURE = 3.0
"""Standard deviations by which an eigenvalue exceeds the largest that noise alone makes."""
ERROR_OF_STD = 0.8
"""L1 error (share of the rows) of a pair by the noise of the covariance of its halves: π/2 to that
of normal scores, (2/π)√(2/π) from there."""


def rho_to_fill(
    covariances: Array, variance: float, measured: float, total: float, left: float
) -> float:
    """Return ρ of a second measurement of halves; 0 where filling pairs by a copula does not pay.

    c is the covariance that all pairs of d columns have in common: the largest eigenvalue λ without
    noise, √(λ² − 4dv) (Gavish and Donoho 2017), over d − 1. With the part s of the budget, a filled
    pair is off by √(e² + a²/s), e = ``DEPENDENCE``, others by e/2√(1 − s); about least is the sum
    where s / (1 − s) = 2a/e. Independence is off by c or more. If that is less, nothing is gained;
    if measuring all pairs would leave less than c, the loop does so.

    Args:
        covariances: of the signs of halves, zero where not measured, shape (d, d).
        variance: v, of their noise.
        measured: L1 error (share of the rows) that measuring all pairs over groups would leave.
        total: number of rows.
        left: ρ for this and all later measurements.
    """
    size, pairs = len(covariances), np.count_nonzero(covariances) / 2
    value, std = float(np.abs(np.linalg.eigvalsh(covariances)).max()), math.sqrt(variance)
    common = math.sqrt(max(value**2 - 4 * size * variance, 0.0)) / (size - 1)
    sure = value > std * (2 * math.sqrt(size) + SURE * size ** (-1 / 6))
    a = ERROR_OF_STD * math.sqrt(pairs / (2 * left)) / total
    part = a / (a + DEPENDENCE / 2)
    filled = math.hypot(DEPENDENCE, a / math.sqrt(part))
    return part * left if sure and filled < common < measured else 0.0
