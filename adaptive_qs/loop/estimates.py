"""What the loop knows of every candidate without the table: its estimate, projected, and how far
from the truth a measurement would leave it.

An estimate serves after projection onto the simplex: tables with no negative cell and the model's
number of rows. That takes away most of the noise of a marginal with many small cells, so both the
score of a candidate and the error expected of measuring it are those of the projection. All of it
is post-processing of released values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import batches
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.generate.loglinear import over_items, project_to_simplex
from adaptive_qs.machine import njit
from adaptive_qs.residual import ReferenceModel

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# The estimate p of a marginal stands for the truth: with noise of standard deviation s in each cell
# it would be measured as p + sz and become (p + sz − τ)⁺, where τ makes Σ E(p + sz − τ)⁺ = Σ p.
# With t = τ/s and c = t − p/s the expected L1 distance from p is, summed over the cells,
#
#     Σ p Φ(c) + s [t (2Φ(t) − Φ(c) − 1) + 2φ(t) − φ(c)].
#
# (One cell is 0, and off by p, where z < c; elsewhere it is off by s|z − t|.) Cells of about the
# same size are taken together. Proof: docs/proofs.md, section 1.

SMALLEST = -8
"""Cells of up to 2**SMALLEST rows count as one size; larger ones by half octaves (mantissas from 1
to 1.5, and from 1.5 to 2)."""
FINEST = -4
"""The least noise for which errors are tabulated is 2**FINEST rows; below it they grow with it."""
_SURE = -8.0
"""Cells that are so many standard deviations above the threshold stay above it."""
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
    """Cells of each mean size and their rows; the last are those of up to 2**SMALLEST rows."""
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
        """Expected L1 error (rows) of estimates measured with this noise.

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
        low = np.clip(np.nan_to_num(octave), 0.0, last - 1.0).astype(np.int64)
        before, after = self._logs[rows, low], self._logs[rows, low + 1]
        part = octave - low
        return np.exp2(np.where(part < 0, before + part, before + part * (after - before)))


@dataclass(frozen=True)
class Sizes:
    """How the cells of an estimate differ in size, in shares of its rows.

    Attributes:
        number: cells of about each size, in half octaves downwards from 1 to ``2**-LEAST_OCTAVE``;
            the last is of all smaller ones.
        mass: the shares of those cells together.
    """

    number: Array
    mass: Array

    @classmethod
    def of(cls, cells: Array) -> Sizes:
        """Those of non-negative cells of any shape, not all zero."""
        share = cells.reshape(-1) / cells.sum()
        with np.errstate(divide="ignore"):
            fall = np.minimum(-2.0 * np.log2(share), 2.0 * LEAST_OCTAVE + 1).astype(np.int64)
        kinds = 2 * LEAST_OCTAVE + 2
        number = np.bincount(fall, minlength=kinds).astype(np.float64)
        return cls(number, np.bincount(fall, share, kinds).astype(np.float64))

    def times(self, other: Sizes) -> Sizes:
        """The sizes of the product of two estimates over different attributes."""
        number, mass = np.convolve(self.number, other.number), np.convolve(self.mass, other.mass)
        return Sizes(number, mass)

    def errors(self, total: float, stds: Array) -> Array:
        """Expected L1 errors (rows) of an estimate of so many rows, by ascending noise (rows)."""
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

    Args:
        cells: rows in each; those above τ come to stand in front of their estimate, less τ.
        bits: the same memory as integers.
        ends: where each estimate ends.
        total: rows of each.
        thresholds: τ, shape (estimates,).
        counts, masses: cells of about each size and their rows, shape (estimates, sizes).
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


def projected_distance(first: Array, second: Array, total: float) -> float:
    """L1 distance (rows) between two estimates of a marginal, each projected onto the simplex."""
    total = max(total, 1.0)
    difference = project_to_simplex(first, total) - project_to_simplex(second, total)
    return float(np.abs(difference).sum())


# Estimates of many candidates at a time. Up to three attributes they are formed cell by cell from
# what was measured, by the sums of :meth:`ReferenceModel.marginal`; shorter cliques are taken for
# triples that begin with attributes of one code.

BATCH_CELLS, BATCH_CLIQUES = 2**16, 512
"""Most cells, but for one clique, and most cliques that are handled by one call of a kernel."""
AXES = 3
"""Attributes of the cliques that kernels form."""


class Parts(NamedTuple):
    """What the estimates of some cliques are formed from, in flat arrays.

    Attributes:
        axes: (cliques, AXES) attributes, filled up in front with one of a single code.
        sizes: of every attribute.
        begin: where the reference distribution of each begins.
        starts: (cliques, 2**AXES) where the component of each subset begins.
        steps: (cliques, 2**AXES) 1, or 0 where it was not measured: the same zeros stand for all
            of it.
        values: the reference distributions one after the other, zeros, then c_τ of the measured
            residuals.
    """

    axes: Integers
    sizes: Integers
    begin: Integers
    starts: Integers
    steps: Integers
    values: Array

    @classmethod
    def of(cls, model: ReferenceModel, cliques: Sequence[Clique]) -> Parts:
        """The parts of cliques of one to three attributes."""
        positions = model.domain.positions
        sizes, reference, begin = model.flat_shares
        axes = np.full((len(cliques), AXES), positions)
        starts = np.full((len(cliques), 2**AXES), reference.size)
        values: list[Array] = [reference, np.zeros(sizes.max())]
        place: dict[Clique, int] = {}
        end = reference.size + values[1].size
        for row, clique in enumerate(cliques):
            axes[row, AXES - len(clique) :] = clique
            for slot, residual in zip(_SLOTS[len(clique)], subsets(clique)):
                start = place.get(residual)
                if start is None:
                    found = model.component(residual)
                    start = place[residual] = reference.size if found is None else end
                    if found is not None:
                        values.append(found.reshape(-1))
                        end += found.size
                starts[row, slot] = start
        steps = (starts > reference.size).astype(np.int64)
        return cls(axes, sizes, begin, starts, steps, np.concatenate(values))


_SLOTS = {
    degree: [sum(1 << (AXES - degree + i) for i in axes) for axes in subsets(tuple(range(degree)))]
    for degree in range(1, AXES + 1)
}
"""By number of attributes: the place of each subset among those of three, by which ones it has."""


@njit(cache=True, nogil=True)
def form_estimates(parts, cells):  # type: ignore[no-untyped-def]
    """Write the cells of all cliques, one clique after the other."""
    axes, sizes, begin, starts, steps, values = parts
    place = np.uint64(0)
    for row in range(axes.shape[0]):
        at, step = starts[row], steps[row]
        i, j, k = axes[row]
        n_j, n_k = sizes[j], sizes[k]
        third, single = np.uint64(begin[k]), np.uint64(at[4])
        for x in range(sizes[i]):
            q_x = values[begin[i] + x]
            alone = values[at[0]] * q_x + values[at[1] + step[1] * x]
            over_ik = np.uint64(at[5] + step[5] * x * n_k)
            for y in range(n_j):
                q_y, both = values[begin[j] + y], x * n_j + y
                within = values[at[2] + step[2] * y] * q_x + values[at[3] + step[3] * both]
                a, b = alone * q_y + within, q_x * q_y
                over_jk = np.uint64(at[6] + step[6] * y * n_k)
                over_all = np.uint64(at[7] + step[7] * both * n_k)
                for z in range(np.uint64(n_k)):
                    rest = q_x * values[over_jk + z] + values[over_all + z]
                    rest = q_y * values[over_ik + z] + rest
                    cells[place + z] = a * values[third + z] + b * values[single + z] + rest
                place += np.uint64(n_k)


ALL_FORMED = 2**28
"""If all candidates have no more cells together, each is projected cell by cell."""
MOST_FORMED = 2**16
"""Most cells of a candidate that is otherwise; of one that was measured itself, and of pairs, there
may be more."""
MOST_OF_PAIR = 2**20
"""The same of pairs."""


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
        self._sizes: dict[Clique, Sizes] = {}
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

    def _product_sizes(self, clique: Clique) -> Sizes:
        """The sizes of cells if nothing but one marginal inside, and columns, were known."""
        domain, model = self._domain, self.model
        inside = (tau for tau in subsets(clique) if model.holds(tau) and self._is_formed(tau))
        known = max(inside, key=domain.size, default=())
        parts = [known] if known else []
        parts += [(i,) for i in clique if i not in known]
        sizes, *others = map(self._sizes_of, parts)
        for other in others:
            sizes = sizes.times(other)
        return sizes

    def _sizes_of(self, clique: Clique) -> Sizes:
        if clique not in self._sizes:
            cells = project_to_simplex(self.model.marginal(clique), max(self.model.total, 1.0))
            self._sizes[clique] = Sizes.of(cells)
        return self._sizes[clique]


def _projected(
    model: ReferenceModel, cliques: Sequence[Clique], total: float, stds: Array
) -> tuple[Array, Array]:
    """Thresholds of cliques, and their expected errors by ascending noise."""
    cells, ends = formed(model, cliques)
    kinds = 2 * (math.ceil(math.log2(total)) + 1 - SMALLEST) + 2
    thresholds, errors = np.empty(len(cliques)), np.empty((len(cliques), stds.size))
    counts, masses = np.empty((2, len(cliques), kinds))
    _project(cells, cells.view(np.int64), ends, total, thresholds, counts, masses)
    _expected_errors(counts, masses, stds, errors)
    return thresholds, errors


def formed(model: ReferenceModel, cliques: Sequence[Clique]) -> tuple[Array, Integers]:
    """The cells of the estimates of cliques, one after the other, and where each ends."""
    ends = np.cumsum([model.domain.size(clique) for clique in cliques])
    cells = np.empty(ends[-1])
    short = [row for row, clique in enumerate(cliques) if len(clique) <= AXES]
    if len(short) == len(cliques):
        form_estimates(Parts.of(model, cliques), cells)
        return cells, ends
    for row, clique in enumerate(cliques):
        begin = ends[row] - model.domain.size(clique)
        own = cells[begin : ends[row]]
        if len(clique) <= AXES:
            form_estimates(Parts.of(model, [clique]), own)
        else:
            own[:] = model.marginal(clique).reshape(-1)
    return cells, ends
