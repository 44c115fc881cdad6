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
def _expected_errors(count, mass, stds, errors):  # type: ignore[no-untyped-def]
    """Errors for ascending noise levels of an estimate with so many cells of each mean size.

    The first two arrays are used as scratch memory.
    """
    kinds, total = 0, 0.0
    number, size = count, mass
    for k in range(count.size):
        total += mass[k]
        if count[k] > 0.0:
            number[kinds], size[kinds] = count[k], mass[k] / count[k]
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
        errors[level] = error


def _with_small_as_one(number: Array, share: Array, total: float) -> tuple[Array, Array]:
    """Cells of each mean size and their rows; the last are those of up to 2**SMALLEST rows."""
    mass, last = share * total, number.size
    kind = np.where(mass >= number * 2.0**SMALLEST, np.arange(last), last)
    numbers: Array = np.bincount(kind, number, last + 1).astype(np.float64)
    rows: Array = np.bincount(kind, mass, last + 1).astype(np.float64)
    return numbers, rows


@njit(cache=True, nogil=True)
def _add_products(number, mass, others, other_mass, numbers, masses):  # type: ignore[no-untyped-def]
    """Add the convolution of two lists of numbers of cells, and of their masses."""
    for i in range(number.size):
        if number[i] != 0.0:
            for j in range(others.size):
                numbers[i + j] += number[i] * others[j]
                masses[i + j] += mass[i] * other_mass[j]


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
        number, mass = np.zeros((2, self.number.size + other.number.size - 1))
        _add_products(self.number, self.mass, other.number, other.mass, number, mass)
        return Sizes(number, mass)

    def errors(self, total: float, stds: Array) -> Array:
        """Expected L1 errors (rows) of an estimate of so many rows, by ascending noise (rows)."""
        errors = np.empty(stds.size)
        count, mass = _with_small_as_one(self.number, self.mass, total)
        _expected_errors(count, mass, stds, errors)
        return errors


LEAST_OCTAVE = 40
"""Shares below 2**-LEAST_OCTAVE are one size."""


@njit(cache=True, nogil=True)
def _add_sizes(cells, count, mass):  # type: ignore[no-untyped-def]
    least = 2 * (1023 + SMALLEST) - 1
    last = count.size - 1
    bits = cells.view(np.int64)
    for j in range(cells.size):
        kind = min(max((bits[j] >> 51) - least, 0), last)  # exponent, and the digit after it
        count[kind] += 1.0
        mass[kind] += cells[j]


@njit(cache=True, nogil=True)
def _threshold(cells, total):  # type: ignore[no-untyped-def]
    """τ ≥ 0 such that Σ (cell − τ)⁺ = total, or 0 where the positive cells have less; and how many
    cells are above it, which come to stand in front, less τ."""
    tau, number = 0.0, cells.size
    for _ in range(100):  # Newton on a convex, piecewise linear function, from the left
        excess, above = -total, 0
        for j in range(number):  # a cell that τ has passed stays below; no branch to mispredict
            cell = cells[j]
            excess += max(cell - tau, 0.0)
            cells[above] = cell
            above += cell > tau
        number = above
        if number == 0 or excess <= 1e-9 * total:
            break
        tau += excess / number
    for j in range(number):
        cells[j] = max(cells[j] - tau, 0.0)
    return tau, number


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
        q: the reference distributions one after the other.
        begin: where each begins.
        components: c_τ of the measured residuals one after the other.
        starts: (cliques, 2**AXES) where the component of each subset begins; -1 if not measured.
    """

    axes: Integers
    sizes: Integers
    q: Array
    begin: Integers
    components: Array
    starts: Integers

    @classmethod
    def of(cls, model: ReferenceModel, cliques: Sequence[Clique]) -> Parts:
        """The parts of cliques of one to three attributes."""
        positions = model.domain.positions
        sizes, reference, begin = model.flat_shares
        axes = np.full((len(cliques), AXES), positions)
        starts = np.full((len(cliques), 2**AXES), -1)
        components: list[Array] = []
        place: dict[Clique, int] = {}
        end = 0
        for row, clique in enumerate(cliques):
            axes[row, AXES - len(clique) :] = clique
            for slot, residual in zip(_SLOTS[len(clique)], subsets(clique)):
                start = place.get(residual)
                if start is None:
                    found = model.component(residual)
                    start = place[residual] = -1 if found is None else end
                    if found is not None:
                        components.append(found.reshape(-1))
                        end += found.size
                starts[row, slot] = start
        flat = np.concatenate(components) if components else np.empty(0)
        return cls(axes, sizes, reference, begin, flat, starts)


_SLOTS = {
    degree: [sum(1 << (AXES - degree + i) for i in axes) for axes in subsets(tuple(range(degree)))]
    for degree in range(1, AXES + 1)
}
"""By number of attributes: the place of each subset among those of three, by which ones it has."""


@njit(cache=True, nogil=True)
def form_estimates(parts, row, x, first, end, estimates):  # type: ignore[no-untyped-def]
    """The cells of a clique with code x of its first attribute and first .. end of its second."""
    axes, sizes, q, begin, components, starts = parts
    i, j, k = axes[row, 0], axes[row, 1], axes[row, 2]
    n_j, n_k = sizes[j], sizes[k]
    q_x = q[begin[i] + x]
    q_k = q[begin[k] : begin[k] + n_k]
    at = starts[row]
    single = components[at[4] : at[4] + n_k] if at[4] >= 0 else q_k  # for 0 of it
    alone = components[at[0]] * q_x if at[0] >= 0 else 0.0
    if at[1] >= 0:
        alone += components[at[1] + x]
    for y in range(first, end):
        q_y = q[begin[j] + y]
        within = components[at[2] + y] * q_x if at[2] >= 0 else 0.0
        if at[3] >= 0:
            within += components[at[3] + x * n_j + y]
        a, b = alone * q_y + within, q_x * q_y if at[4] >= 0 else 0.0
        cells = estimates[(y - first) * n_k : (y - first + 1) * n_k]
        for z in range(n_k):
            cells[z] = a * q_k[z] + b * single[z]
        if at[5] >= 0 or at[6] >= 0 or at[7] >= 0:
            _add_rest(cells, components, at, x, y, (x * n_j + y) * n_k, q_x, q_y)


@njit(cache=True, nogil=True)
def form_listed(parts, row, cells, estimates):  # type: ignore[no-untyped-def]
    """The cells of a clique at these positions in the flattened marginal.

    They may be in any order; ascending ones take least time.
    """
    axes, sizes, q, begin, components, starts = parts
    i, j, k = axes[row, 0], axes[row, 1], axes[row, 2]
    n_j, n_k = sizes[j], sizes[k]
    q_k = q[begin[k] : begin[k] + n_k]
    at = starts[row]
    single = components[at[4] : at[4] + n_k] if at[4] >= 0 else q_k  # for 0 of it
    x = y = place = 0
    a = b = q_x = q_y = 0.0
    end = 0  # of the cells with the last cell's first two codes, which begin at `place`
    for cell in range(cells.size):
        z = cells[cell] - place
        if not 0 <= z < end - place:
            both = cells[cell] // n_k
            place, end = both * n_k, (both + 1) * n_k
            x, y, z = both // n_j, both % n_j, cells[cell] - place
            q_x, q_y = q[begin[i] + x], q[begin[j] + y]
            a = components[at[0]] * q_x * q_y if at[0] >= 0 else 0.0
            a += components[at[1] + x] * q_y if at[1] >= 0 else 0.0
            a += components[at[2] + y] * q_x if at[2] >= 0 else 0.0
            a += components[at[3] + both] if at[3] >= 0 else 0.0
            b = q_x * q_y if at[4] >= 0 else 0.0
        estimate = a * q_k[z] + b * single[z]
        estimate += components[at[5] + x * n_k + z] * q_y if at[5] >= 0 else 0.0
        estimate += components[at[6] + y * n_k + z] * q_x if at[6] >= 0 else 0.0
        estimates[cell] = estimate + (components[at[7] + cells[cell]] if at[7] >= 0 else 0.0)


@njit(cache=True, nogil=True)
def _add_rest(cells, components, at, x, y, place, q_x, q_y):  # type: ignore[no-untyped-def]
    n_k = cells.size
    for z in range(n_k):
        rest = components[at[6] + y * n_k + z] * q_x if at[6] >= 0 else 0.0
        if at[7] >= 0:
            rest += components[at[7] + place + z]
        if at[5] >= 0:
            rest = components[at[5] + x * n_k + z] * q_y + rest
        cells[z] += rest


@njit(cache=True, nogil=True)
def _project(parts, total, stds, thresholds, errors):  # type: ignore[no-untyped-def]
    """Threshold of each clique's projection, and its expected errors."""
    kinds = 2 * (math.ceil(math.log2(total)) + 1 - SMALLEST) + 2
    for row in range(parts.axes.shape[0]):
        i, j, k = parts.axes[row, 0], parts.axes[row, 1], parts.axes[row, 2]
        n_i, n_j, n_k = parts.sizes[i], parts.sizes[j], parts.sizes[k]
        within = n_j * n_k
        cells = np.empty(n_i * within)
        for x in range(n_i):
            form_estimates(parts, row, x, np.int64(0), n_j, cells[x * within : (x + 1) * within])
        thresholds[row] = _summarise(cells, total, kinds, stds, errors[row])


@njit(cache=True, nogil=True)
def _summarise(cells, total, kinds, stds, errors):  # type: ignore[no-untyped-def]
    threshold, number = _threshold(cells, total)
    count, mass = np.empty(kinds), np.empty(kinds)
    for kind in range(kinds):
        count[kind] = mass[kind] = 0.0
    count[0] = cells.size - number
    _add_sizes(cells[:number], count, mass)
    _expected_errors(count, mass, stds, errors)
    return threshold


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
    thresholds, errors = np.empty(len(cliques)), np.empty((len(cliques), stds.size))
    short = [row for row, clique in enumerate(cliques) if len(clique) <= AXES]
    if short:
        tau, expected = np.empty(len(short)), np.empty((len(short), stds.size))
        _project(Parts.of(model, [cliques[row] for row in short]), total, stds, tau, expected)
        thresholds[short], errors[short] = tau, expected
    kinds = 2 * (math.ceil(math.log2(total)) + 1 - SMALLEST) + 2
    for row, clique in enumerate(cliques):
        if len(clique) > AXES:
            cells = np.ascontiguousarray(model.marginal(clique)).reshape(-1)
            thresholds[row] = _summarise(cells, total, kinds, stds, errors[row])
    return thresholds, errors
