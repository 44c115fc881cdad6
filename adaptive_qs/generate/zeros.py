"""Structural zeros: cells that no row may lie in, and rows that lie in none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Adjacency, Array, Integers, Rows, build_adjacency, find_cell
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError
from adaptive_qs.generate.loglinear import LogLinearModel, ModelMoves, over_rows, uniform
from adaptive_qs.generate.targets import Target
from adaptive_qs.machine import njit
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose

Mask = NDArray[np.bool_]

SCALINGS = 20
"""Rounds of iterative proportional fitting."""
MOST_LISTED = 2**12
"""Most values in the lists of a pair of attributes if some are of all values."""
TRIES = 200
"""Largest number of values of a row that are changed until it is in no forbidden cell."""


@dataclass(frozen=True, eq=False)
class Zero:
    """Cells of a marginal that are empty in every table: those not ``allowed``, shaped like it."""

    clique: Clique
    allowed: Mask


Zeros = Sequence[Zero]


def allowed_cells(zeros: Zeros, domain: Domain, clique: Clique) -> Mask | None:
    """Return which cells of a marginal each zero allows; None if they allow all."""
    allowed: Any = None
    for zero in zeros:
        beyond = tuple(k for k, i in enumerate(zero.clique) if i not in clique)
        part = np.asarray(zero.allowed.any(axis=beyond))
        if part.all():
            continue
        shape = [n if i in zero.clique else 1 for i, n in zip(clique, domain.shape(clique))]
        part = part.reshape(shape)
        allowed = part if allowed is None else allowed & part
    return None if allowed is None else np.broadcast_to(allowed, domain.shape(clique))


def clear_forbidden(target: Target, zeros: Zeros, domain: Domain) -> Target:
    """Return a target without counts in forbidden cells, scaled to the same total."""
    allowed = allowed_cells(zeros, domain, target.clique)
    if allowed is None:
        return target
    counts: Any = np.where(allowed, target.counts, 0.0)
    total, left = float(target.counts.sum()), float(counts.sum())
    even = allowed * (total / max(int(allowed.sum()), 1))
    counts = counts * (total / left) if left > 0 else even
    return Target(target.clique, counts, target.noise_std)


def ruled_model(model: ReferenceModel, zeros: Zeros) -> ReferenceModel:
    """Return the model without what was measured in forbidden cells.

    That is noise, or rows that break a rule, which no distribution can follow.
    """
    estimates = dict(model.estimates)
    for clique, measured in model.estimates.items():
        allowed = allowed_cells(zeros, model.domain, clique) if len(clique) > 1 else None
        if allowed is not None:
            counts = np.where(allowed, model.marginal(clique), 0.0)
            residual = decompose(counts, clique, clique)
            estimates[clique] = ResidualEstimate(residual, measured.precision)
    return ReferenceModel(model.domain, model.reference, estimates, model.column_noise)


def independent_target(zero: Zero, singles: Sequence[Array]) -> Target:
    """Return the marginal of attributes that depend on each other by a zero alone.

    Among all tables without mass in forbidden cells it is the nearest to the product of the single
    columns, by iterative proportional fitting (Deming and Stephan 1940). Its noise is infinite, so
    that any measured marginal is preferred.
    """
    codes, margins = np.nonzero(zero.allowed), [singles[i] for i in zero.clique]
    cells = np.ones(len(codes[0]))  # few are allowed
    for _ in range(SCALINGS):
        for own, counts in zip(codes, margins):
            sums = np.bincount(own, cells, len(counts))
            cells *= np.divide(counts, sums, out=np.zeros_like(sums), where=sums > 0)[own]
    table = np.zeros(zero.allowed.shape)
    table[codes] = cells if cells.sum() > 0 else 1.0
    return Target(zero.clique, table * (margins[0].sum() / table.sum()), np.inf)


class Pairs(NamedTuple):
    """Pairs of attributes of a zero whose second one is nearly fixed by the other attributes.

    A total that its parts determine, or the county of a city, cannot change alone.

    Attributes:
        first: (pairs,) the first attribute of each.
        second: (pairs,) the second one.
        other: (pairs, m) the others of the zero, padded with 0.
        stride: (pairs, m) of the lists, one for each cell of all but the second; padded with 0.
        own_stride: (pairs,) of the first attribute.
        base: (pairs,) where the lists begin.
        group: (zeros + 1,) where the pairs of each zero begin.
        start: where each list begins in ``values``; one more than there are lists.
        values: the values of the second attribute that the zero allows.
        most: number of values in the longest list.
    """

    first: Integers
    second: Integers
    other: Integers
    stride: Integers
    own_stride: Integers
    base: Integers
    group: Integers
    start: Integers
    values: Integers
    most: int

    @classmethod
    def from_zeros(cls, zeros: Zeros) -> Pairs:
        """Find pairs whose second attribute has few values next to the others."""
        width = max((len(zero.clique) for zero in zeros), default=0)
        pairs, lengths, values = [], [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        lists, groups = 0, [0]
        for zero in zeros:
            taken: set[Clique] = set()
            for axis, second in enumerate(zero.clique):
                moved = np.moveaxis(zero.allowed, axis, -1)
                listed = moved.reshape(-1, moved.shape[-1])
                numbers = listed.sum(axis=1)
                if moved.ndim < 2 or not _are_few(numbers, listed.shape[1]):
                    continue
                rest = [i for i in zero.clique if i != second]
                strides = np.cumprod([1, *moved.shape[-2:0:-1]])[::-1].tolist()
                for k, first in enumerate(rest):
                    pair = min(first, second), max(first, second)
                    if pair in taken:
                        continue
                    taken.add(pair)
                    padding = [0] * (width - len(rest) + 1)
                    others = rest[:k] + rest[k + 1 :] + padding
                    steps = strides[:k] + strides[k + 1 :] + padding
                    pairs.append((first, second, others, steps, strides[k], lists))
                lists += len(numbers)
                lengths.append(numbers)
                values.append(np.nonzero(listed)[1])
            groups += [len(pairs)] * bool(taken)
        columns = [*zip(*pairs)] if pairs else [()] * 6
        first_of, second_of, other, stride, own, base, group = (
            np.array(column, dtype=np.int64) for column in (*columns, groups)
        )
        shape = len(pairs), width
        every = np.concatenate(lengths)
        return cls(
            first_of, second_of, other.reshape(shape), stride.reshape(shape), own, base, group,
            np.cumsum(every), np.concatenate(values), int(every.max()),
        )  # fmt: skip


def _are_few(numbers: Integers, most: int) -> bool:
    """Return whether lists have at most four values on average.

    Those of all ``most`` values do not count if they are the minority, and not too many. They are
    of codes that the table of a rule does not list.
    """
    if 2 * np.count_nonzero(numbers == most) < numbers.size and numbers.sum() <= MOST_LISTED:
        numbers = numbers[numbers < most]
    return bool(numbers.sum() <= 4 * np.count_nonzero(numbers))


class Guard(NamedTuple):
    """All zeros as compiled kernels walk them.

    Attributes:
        adjacency: where the cells around each attribute lie.
        allowed: whether each cell, one zero after the other, can be occupied.
        pairs: attributes that have to change together.
    """

    adjacency: Adjacency
    allowed: Mask
    pairs: Pairs

    @classmethod
    def from_zeros(cls, zeros: Zeros, domain: Domain) -> Guard:
        """Lay out the zeros of a domain."""
        adjacency = build_adjacency(domain, [z.clique for z in zeros], copy_per_axis=False)
        cells = [np.ravel(zero.allowed) for zero in zeros]
        allowed = np.concatenate([np.zeros(0, dtype=np.bool_), *cells])
        return cls(adjacency, allowed, Pairs.from_zeros(zeros))


def settle(rows: Rows, zeros: Zeros, singles: Sequence[Array], key: int) -> None:
    """Change rows in forbidden cells, in place, until they are in none.

    A random walk: of a violated zero, a random attribute is redrawn from its own distribution among
    the values that the zero allows next to the others. A row that is still in a forbidden cell
    after ``TRIES`` changes becomes a copy of a random row that is not. InputError is raised if no
    row was found that is in no forbidden cell.
    """
    if not zeros:
        return
    allowed = np.concatenate([zero.allowed.ravel() for zero in zeros])
    position = np.cumsum([0, *(zero.allowed.size for zero in zeros)])
    width = max(len(zero.clique) for zero in zeros)
    pads = [width - len(zero.clique) for zero in zeros]
    members = np.array([[*zero.clique, *[-1] * pad] for zero, pad in zip(zeros, pads)])
    steps = (np.cumprod([1, *zero.allowed.shape[:0:-1]])[::-1] for zero in zeros)
    strides = np.array([[*step, *[0] * pad] for step, pad in zip(steps, pads)])
    start = np.cumsum([0, *(single.size for single in singles)])
    weights = np.concatenate([np.maximum(single, 1e-9) for single in singles])
    settled = np.zeros(len(rows), dtype=np.bool_)
    _settle(rows, members, strides, position, allowed, weights, start, settled, np.uint64(key))
    if not settled.any():
        raise InputError("no row was found that meets all rules: remove one")
    rng = np.random.default_rng(key)
    rows[~settled] = rows[rng.choice(np.flatnonzero(settled), int((~settled).sum()))]


@njit(cache=True, nogil=True)
def _settle(rows, members, strides, position, allowed, weights, start, settled, key):  # type: ignore[no-untyped-def]
    count, width = members.shape
    violated = np.empty(count, np.int64)
    for r in range(rows.shape[0]):
        for step in range(TRIES + 1):
            number = 0
            for z in range(count):
                cell = position[z]
                for k in range(width):
                    if members[z, k] >= 0:
                        cell += rows[r, members[z, k]] * strides[z, k]
                if not allowed[cell]:
                    violated[number] = z
                    number += 1
            if number == 0:
                settled[r] = True
                break
            if step == TRIES:
                break
            z = violated[int(uniform(key, r, 3 * step) * number)]
            size = 0
            while size < width and members[z, size] >= 0:
                size += 1
            k = int(uniform(key, r, 3 * step + 1) * size)
            i = members[z, k]
            first = position[z]
            for other in range(size):
                if other != k:
                    first += rows[r, members[z, other]] * strides[z, other]
            total = 0.0
            for v in range(start[i + 1] - start[i]):
                if allowed[first + v * strides[z, k]]:
                    total += weights[start[i] + v]
            if total == 0.0:  # whatever this one is, the others forbid it
                size_of = start[i + 1] - start[i]
                rows[r, i] = int(uniform(key, r, 3 * step + 2) * size_of)
                continue
            left = uniform(key, r, 3 * step + 2) * total
            for v in range(start[i + 1] - start[i]):
                if allowed[first + v * strides[z, k]]:
                    rows[r, i] = v
                    left -= weights[start[i] + v]
                    if left < 0.0:
                        break


class PairMoves(ModelMoves):
    """Redraws of two attributes together, from their joint conditional."""

    def __init__(self, model: LogLinearModel, zeros: Zeros, workers: int) -> None:
        self._model = model
        self._pairs = pairs = Pairs.from_zeros(zeros)
        self._workers = workers
        sizes = np.array(model.domain.sizes)
        work = sizes * np.diff(model.adjacency.start)
        # A redraw costs about three sweeps of the pair, and as much as twenty steps of a sweep for
        # each pair of values in its lists. Half a sweep of all is allowed, and one row in four.
        joined = sizes[pairs.first] * pairs.values.size / max(pairs.start.size - 1, 1)
        costs = 3 * (work[pairs.first] + work[pairs.second]) + 20 * joined
        cost = sum(costs[a:b].mean() for a, b in pairwise(pairs.group))
        self._parts = int(
            np.clip(np.rint(2 * cost / max(np.delete(work, model.wide).sum(), 1)), 1, 4)
        )

    def __call__(self, rows: Rows, key: int, thorough: bool = False) -> None:
        """Redraw a pair of every zero, in place, in a part of the rows, or in all if ``thorough``.

        ``key`` seeds the random numbers.
        """
        pairs, factors, adjacency = self._pairs, self._model.factors, self._model.adjacency
        parts = 1 if thorough else self._parts

        def block(start: int, stop: int) -> None:
            _redraw_pairs(
                rows, start, stop, parts, key % parts, pairs, factors, adjacency, np.uint64(key)
            )

        if pairs.first.size:
            over_rows(self._workers, len(rows), block)


_ROWS_AT_ONCE = 128
"""Number of rows in which a pair is redrawn while its weights are in cache."""
_UNCHECKED = 32
"""Number of weights, each 1e±6, that multiply a probability before it is rescaled."""


@njit(cache=True, nogil=True)
def _around(i, without, adjacency, entries, steps):  # type: ignore[no-untyped-def]
    """List the tables around i: first those without another attribute, then those with it.

    Return the number of the first and of all; ``steps`` gets the strides of the other attribute.
    """
    start, _, other, stride, _, _, _ = adjacency
    number, last = 0, start[i + 1] - start[i]
    shared = last
    for e in range(start[i], start[i + 1]):
        step = 0
        for k in range(other.shape[1]):
            if other[e, k] == without:
                step += stride[e, k]
        if step > 0:
            shared -= 1
            entries[shared], steps[shared] = e, step
        else:
            entries[number] = e
            number += 1
    return number, last


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def weigh(weights, size, rows, r, adjacency, packed, entries, number):  # type: ignore[no-untyped-def]
    """Multiply the weights of values by those of the first ``number`` entries."""
    _, offset, other, stride, _, _, _ = adjacency
    for n in range(number):
        e = entries[n]
        cell = find_cell(rows, r, e, offset, other, stride)
        for v in range(np.uint64(size)):
            weights[v] *= packed[cell + v]
        if n % _UNCHECKED == _UNCHECKED - 1 or n == number - 1:
            largest = 0.0
            for v in range(np.uint64(size)):
                if weights[v] > largest:
                    largest = weights[v]
            if not 1e-50 < largest < 1e50:
                for v in range(size):
                    weights[v] /= largest


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _redraw_pairs(rows, begin, end, parts, phase, pairs, factors, adjacency, key):  # type: ignore[no-untyped-def]
    first, second, other, stride, own_stride, base, group, start, values, most = pairs
    sizes, singles, single_start, _, packed = factors
    offset, joined, beyond = adjacency[1], adjacency[2], adjacency[3]
    a, b = np.empty(sizes.max()), np.empty(sizes.max())
    sums, chosen = np.empty(sizes.max() * most), np.empty((sizes.max() * most, 2), np.int32)
    of_first, of_second = np.empty(offset.size, np.int64), np.empty(offset.size, np.int64)
    steps, cells = np.empty(offset.size, np.uint64), np.empty(offset.size, np.uint64)
    for block in range(begin // _ROWS_AT_ONCE, -(-end // _ROWS_AT_ONCE)):
        if block % parts != phase:
            continue
        for g in range(group.size - 1):
            p = group[g] + int(uniform(key, block, 2 * g) * (group[g + 1] - group[g]))
            i, t = first[p], second[p]
            alone_t, _ = _around(t, i, adjacency, of_second, steps)
            alone_i, every_i = _around(i, t, adjacency, of_first, steps)
            size_i, size_t = np.uint64(sizes[i]), np.uint64(sizes[t])
            start_i, start_t = np.uint64(single_start[i]), np.uint64(single_start[t])
            for r in range(
                max(block * _ROWS_AT_ONCE, begin), min((block + 1) * _ROWS_AT_ONCE, end)
            ):
                for v in range(size_i):
                    a[v] = singles[start_i + v]
                for u in range(size_t):
                    b[u] = singles[start_t + u]
                weigh(a, size_i, rows, r, adjacency, packed, of_first, alone_i)
                weigh(b, size_t, rows, r, adjacency, packed, of_second, alone_t)
                for n in range(alone_i, every_i):
                    e = of_first[n]
                    cells[n] = offset[e]
                    for k in range(joined.shape[1]):
                        if joined[e, k] != t:
                            cells[n] += np.uint64(rows[r, joined[e, k]]) * np.uint64(beyond[e, k])
                listed = base[p]
                for k in range(other.shape[1]):
                    listed += rows[r, other[p, k]] * stride[p, k]
                total, number = 0.0, 0
                for v in range(size_i):
                    for q in range(start[listed], start[listed + 1]):
                        w = np.uint64(values[q])
                        chance = a[v] * b[w]
                        for n in range(alone_i, every_i):
                            chance *= packed[cells[n] + w * steps[n] + v]
                        total += chance
                        sums[number] = total
                        chosen[number, 0], chosen[number, 1] = v, w
                        number += 1
                    listed += own_stride[p]
                if not total > 0.0:
                    continue
                point = uniform(key, r, 2 * g + 1) * total
                low, high = 0, number - 1  # the first sum above the point
                while low < high:
                    middle = (low + high) // 2
                    if sums[middle] > point:
                        high = middle
                    else:
                        low = middle + 1
                if low == 0 or sums[low] > sums[low - 1]:
                    rows[r, i], rows[r, t] = chosen[low, 0], chosen[low, 1]


def build_masks(zeros: Zeros, domain: Domain, cliques: Iterable[Clique]) -> dict[Clique, Mask]:
    """Map each clique with zeros inside it to the cells that these allow."""
    found: dict[Clique, Mask] = {}
    for clique in cliques:
        allowed = allowed_cells(select_inside(zeros, clique), domain, clique)
        if allowed is not None:
            found[clique] = allowed
    return found


def select_inside(zeros: Iterable[Zero], clique: Clique) -> list[Zero]:
    """Return the zeros whose attributes are all in a clique."""
    members = set(clique)
    return [zero for zero in zeros if members.issuperset(zero.clique)]
