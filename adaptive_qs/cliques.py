"""Many cliques together: their closure, positions in a list, tables of rows and of estimates."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import njit
from adaptive_qs.residual import ReferenceModel

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_SUBSETS = 2**21
"""Largest number of distinct sub-marginals of a workload."""


def downward_closure(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """Return the distinct subsets of all cliques, ordered by size and then by attribute.

    ResourceExceeded is raised if they are more than ``MOST_SUBSETS``.
    """
    given: dict[int, list[Clique]] = {}
    for clique in cliques:
        given.setdefault(len(clique), []).append(clique)
    if not given:
        return ()
    closure: list[Clique] = []
    above = np.empty((0, max(given) + 1), dtype=np.int64)
    for degree in range(max(given), 0, -1):
        listed = given.get(degree, [])
        found = np.array(listed, dtype=np.int64).reshape(len(listed), degree)
        for axis in range(degree + 1):
            found = distinct(np.concatenate([found, np.delete(above, axis, axis=1)]))
            if len(closure) + len(found) > MOST_SUBSETS:
                raise ResourceExceeded(
                    f"the requested marginals contain more than {MOST_SUBSETS:,} smaller ones: "
                    "request marginals of fewer columns"
                )
        above = found
        closure[:0] = map(tuple, above.tolist())
    return ((), *closure)


def maximal_cliques(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """Return the cliques that are inside no other one, largest first."""
    covered: set[Clique] = set()
    kept: list[Clique] = []
    for clique in sorted(set(cliques), key=lambda c: (-len(c), c)):
        if clique not in covered:
            kept.append(clique)
            covered.update(subsets(clique))
    return tuple(kept)


def outermost_cliques(domain: Domain, cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """Return the cliques that are below no other one of more attributes, largest first.

    Of the same attributes all levels are kept: a coarse marginal can be known better than a fine
    one. Without levels these are :func:`maximal_cliques`.
    """
    over: dict[Clique, list[Clique]] = {}
    for clique in set(cliques):
        over.setdefault(domain.columns(clique), []).append(clique)
    kept = []
    for columns, alike in over.items():
        wider = [c for c in over if len(c) > len(columns) and set(c).issuperset(columns)]
        outer = [other for c in wider for other in over[c]]
        kept += [c for c in alike if not any(domain.is_below(c, other) for other in outer)]
    return tuple(sorted(kept, key=lambda c: (-len(c), domain.columns(c), c)))


def distinct(cliques: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct cliques of an array, shape (cliques, degree), in order."""
    base, most = int(cliques.max(initial=0)) + 1, 1
    keys = np.zeros(len(cliques), dtype=np.int64)
    for column in cliques.T:
        if most * base > 2**62:  # the ranks of what was read take the place of the digits
            keys = np.unique(keys, return_inverse=True)[1].ravel()
            most = len(cliques)
        keys, most = keys * base + column, most * base
    return cliques[np.unique(keys, return_index=True)[1]]


def batches(sizes: Sequence[int], most_cells: int, most: int | None = None) -> Iterator[slice]:
    """Split cliques into runs of at most ``most`` cliques, and yield the slice of each run.

    A run has at most ``most_cells`` cells, unless a single clique has more.
    """
    first = cells = 0
    for end, size in enumerate(sizes):
        if end > first and (cells + size > most_cells or end - first == most):
            yield slice(first, end)
            first, cells = end, 0
        cells += size
    if first < len(sizes):
        yield slice(first, len(sizes))


class CliqueIndex:
    """The positions of cliques in a list, found for many cliques together.

    ``positions`` is the number of positions that may be in a clique. Cliques are listed by how many
    attributes they have. Cliques of more than ``62 / log2(positions)`` attributes come with all
    their subsets, in the order of :func:`downward_closure`.
    """

    def __init__(self, positions: int, listed: Iterable[Clique]) -> None:
        self._base = positions
        self._place: dict[int, NDArray[np.int64]] = {}
        self._keys: dict[int, NDArray[np.int64]] = {}
        start = 0
        for degree, group in groupby(listed, key=len):
            alike = list(group)
            keys = self._key(np.array(alike, dtype=np.int64).reshape(len(alike), degree))
            order = np.argsort(keys, kind="stable")
            self._keys[degree], self._place[degree] = keys[order], start + order
            start += len(alike)

    def positions(self, cliques: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the positions of cliques of the same degree, shape (cliques, degree)."""
        degree = cliques.shape[1]
        ranks = np.searchsorted(self._keys[degree], self._key(cliques.astype(np.int64)))
        return self._place[degree][ranks]

    def of_subsets(self, cliques: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the positions of their subsets, ordered as in :func:`subsets`."""
        axes = subsets(tuple(range(cliques.shape[1])))
        return np.stack([self.positions(cliques[:, list(some)]) for some in axes], axis=1)

    def _key(self, cliques: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an integer for each clique: its positions as digits.

        If these are too many, the rank of the clique without its last attribute comes before it.
        """
        fits = self._base ** cliques.shape[1] < 2**62
        key = np.zeros(len(cliques), dtype=np.int64)
        for axis in range(cliques.shape[1]):
            rank = key if fits else np.searchsorted(self._keys[axis], key)
            key = rank * self._base + cliques[:, axis]
        return key


Rows = NDArray[np.int32]
"""Coded rows, shape (rows, attributes)."""


def count_rows(rows: Rows, domain: Domain, clique: Clique) -> Array:
    """Count rows in the cells of a non-empty clique."""
    out = np.zeros(domain.shape(clique), dtype=np.float64)
    add_counts(out, rows, domain, clique)
    return out


def add_counts(out: Array, rows: Rows, domain: Domain, clique: Clique) -> None:
    """Add the counts of rows to ``out``, a contiguous array shaped like the clique.

    Rows in Fortran order are counted fastest; others are copied.
    """
    _add_counts(
        np.asfortranarray(rows).T, np.array(clique), np.array(domain.shape(clique)), out.reshape(-1)
    )


@njit(cache=True, nogil=True)
def _add_counts(columns, clique, shape, out):  # type: ignore[no-untyped-def]
    cells = np.empty(2**12, np.uint32)
    for begin in range(0, columns.shape[1], cells.size):
        number = min(cells.size, columns.shape[1] - begin)
        codes = columns[clique[0]]
        for r in range(number):
            cells[r] = codes[begin + r]
        for axis in range(1, clique.size):
            codes, size = columns[clique[axis]], np.uint32(shape[axis])
            for r in range(number):
                cells[r] = cells[r] * size + np.uint32(codes[begin + r])
        for r in range(number):
            out[cells[r]] += 1


# Kernels walk the clique tables around an attribute as flat arrays. Attribute i has the entries
# ``start[i] : start[i+1]``. The segment of entry e begins at ``offset[e] + Σ_k row[other[e, k]] ·
# stride[e, k]``, and value v of attribute i lies ``v · own_stride[e]`` further on.


class Adjacency(NamedTuple):
    """The clique tables around each attribute, as flat arrays.

    Attributes:
        start: (attributes + 1,) first entry of each attribute.
        offset: (entries,) where the entry's table begins in the flat buffer.
        other: (entries, m) the clique's other attributes, padded with 0.
        stride: (entries, m) their strides, padded with 0.
        own_stride: (entries,) stride of the attribute itself.
        position: (cliques,) where each table begins; with one copy per axis, the first.
        cells: length of the flat buffer.
    """

    start: Integers
    offset: Integers
    other: Integers
    stride: Integers
    own_stride: Integers
    position: Integers
    cells: int


def build_adjacency(domain: Domain, cliques: Sequence[Clique], copy_per_axis: bool) -> Adjacency:
    """Lay out the tables of cliques one after the other in a flat buffer.

    With ``copy_per_axis`` each table is stored once per attribute, with that attribute's axis last,
    so that a kernel reads all its values from consecutive memory.
    """
    entries: list[list[tuple[int, list[int], list[int], int]]] = [[] for _ in domain.sizes]
    position, cells = [], 0
    width = max((len(c) - 1 for c in cliques), default=0)
    for clique in cliques:
        position.append(cells)
        for axis, attribute in enumerate(clique):
            others = [i for i in clique if i != attribute]
            shape = domain.shape(clique)
            if copy_per_axis:
                shape = domain.shape((*others, attribute))
            strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
            own = strides.pop(-1 if copy_per_axis else axis)
            padding = [0] * (width - len(others))
            entries[attribute].append((cells, others + padding, strides + padding, own))
            cells += prod(shape) if copy_per_axis else 0
        cells += 0 if copy_per_axis else domain.size(clique)
    flat = [entry for per_attribute in entries for entry in per_attribute]
    parts = [*zip(*flat)] if flat else [()] * 4
    offset, other, stride, own_stride, place = (
        np.array(p, dtype=np.int64) for p in (*parts, position)
    )
    padded = len(flat), width
    start = np.cumsum([0, *map(len, entries)])
    other, stride = other.reshape(padded), stride.reshape(padded)
    return Adjacency(start, offset, other, stride, own_stride, place, cells)


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def find_cell(rows, r, e, offset, other, stride):  # type: ignore[no-untyped-def]
    """Return where the values of an entry begin, given the other attributes of a row; unsigned."""
    row, entry = np.uint64(r), np.uint64(e)  # a signed index costs a test whether it is negative
    cell = np.uint64(offset[entry])
    for k in range(other.shape[1]):
        value = rows[row, np.uint64(other[entry, k])]
        cell += np.uint64(value) * np.uint64(stride[entry, k])
    return cell


# The cells of the estimates of many cliques. Up to three attributes they are formed cell by cell
# from what was measured, by the sums of :meth:`ReferenceModel.marginal`; shorter cliques are taken
# for triples that begin with attributes of one code.

MOST_FORMED = 2**16
"""Most cells of a marginal that is formed only for a comparison."""
BATCH_CELLS, BATCH_CLIQUES = 2**16, 512
"""Most cells (unless a single clique has more) and most cliques in one call of a kernel."""
AXES = 3
"""Largest number of attributes of the cliques that kernels form."""


class Parts(NamedTuple):
    """The parts of the estimates of some cliques, in flat arrays.

    Attributes:
        axes: (cliques, AXES) attributes, padded in front with one of a single code.
        sizes: number of codes of every attribute.
        begin: where the reference distribution of each begins.
        starts: (cliques, 2**AXES) where the component of each subset begins.
        steps: (cliques, 2**AXES) 1, or 0 if it was not measured and is one run of zeros.
        values: the reference distributions, zeros, then c_τ of the measured residuals.
    """

    axes: Integers
    sizes: Integers
    begin: Integers
    starts: Integers
    steps: Integers
    values: Array

    @classmethod
    def of(cls, model: ReferenceModel, cliques: Sequence[Clique]) -> Self:
        """Collect the parts of cliques of one to three attributes."""
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
"""For each number of attributes, the slot of each subset among the subsets of three."""


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


def form_cells(model: ReferenceModel, cliques: Sequence[Clique]) -> tuple[Array, Integers]:
    """Return the cells of the estimates of cliques one after the other, and where each ends."""
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
