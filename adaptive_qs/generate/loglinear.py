"""A log-linear model p ∝ Π_i u_i(x_i) Π_γ w_γ(x_γ), and its Gibbs sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Adjacency, Array, Integers, Rows, build_adjacency, find_cell
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.shape import Shapes, spread
from adaptive_qs.machine import njit, over_items

LANES = 8
"""Number of values that are summed together; conditionals are padded to a multiple of it."""


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def uniform(key, row, step):  # type: ignore[no-untyped-def]
    """Return a number in [0, 1), uniform as a function of (key, row, step): their SplitMix64."""
    z = key + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(step + 1) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


# Results do not depend on the number of workers: kernels, which release the interpreter lock, use
# random numbers keyed by row, and tasks write to disjoint memory.


def over_rows(workers: int, num_rows: int, kernel: Callable[[int, int], None]) -> None:
    """Call ``kernel(start, stop)`` on contiguous blocks that cover 0 .. num_rows."""
    bounds = [num_rows * k // workers for k in range(workers + 1)]
    over_items(workers, lambda block: kernel(*block), list(pairwise(bounds)))


# Weights are multiplicative, so that a conditional is a product of short rows of memory. A sweep
# redraws every attribute of every row from its conditional; rows are independent given the weights.

WEIGHT_LIMIT = 1e6
"""Largest weight; 1 / limit is the smallest. Four multiply in single precision without overflow."""
MOST_SWEPT = 1024
"""Largest number of values of an attribute that a sweep redraws."""
CELLS_AT_ONCE = 2**22
"""Number of probabilities of values that are in memory at a time."""


class Factors(NamedTuple):
    """The weights of a model as kernels read them.

    Attributes:
        sizes: (attributes,) n_i.
        singles: weights of single attributes, each padded with zeros to a multiple of ``LANES``.
        single_start: (attributes + 1,) where each begins.
        cumulative: cumulative sums of the weights of each attribute.
        packed: weights of every clique, once per axis with that axis last.
    """

    sizes: Integers
    singles: Array
    single_start: Integers
    cumulative: Array
    packed: NDArray[np.float32]


@dataclass(frozen=True)
class CarriedAttributes:
    """Attributes that others determine, and the attributes that carry them.

    A model has no tables of carried attributes. Their weights are factors of the weights of the
    attributes that carry them, so that both change together in every move. ``values`` has, by
    carried attribute, the one that carries it and the value for each of its codes.
    """

    domain: Domain
    values: Mapping[int, tuple[int, NDArray[np.int64]]]

    def with_carried(self, below: int, root: int, values: NDArray[np.int64]) -> CarriedAttributes:
        """Return a copy in which a root carries one more attribute, and what that one carries."""
        moved = {
            i: (root, codes[values]) if carrier == below else (carrier, codes)
            for i, (carrier, codes) in self.values.items()
        }
        return CarriedAttributes(self.domain, {**moved, below: (root, values)})

    def root(self, attribute: int) -> int:
        """Return the attribute that carries an attribute; itself if none does."""
        return self.values[attribute][0] if attribute in self.values else attribute

    def clique(self, columns: Clique) -> Clique:
        """Return the attributes that carry those of a clique."""
        return tuple(sorted({self.root(i) for i in columns})) if self.values else columns

    def spread(self, array: NDArray[Any], columns: Clique) -> NDArray[Any]:
        """Return an array over columns as one over the attributes that carry them."""
        if not self.values.keys() & set(columns):
            return array
        roots = self.clique(columns)
        index = []
        for i in columns:
            root = self.root(i)
            shape = [1] * len(roots)
            shape[roots.index(root)] = size = self.domain.sizes[root]
            values = self.values[i][1] if i in self.values else np.arange(size)
            index.append(values.reshape(shape))
        return array[tuple(index)]

    def fill(self, rows: Rows) -> None:
        """Write the carried attributes of rows, in place."""
        for i, (root, values) in self.values.items():
            rows[:, i] = values[rows[:, root]]

    def chances(self, chances: Mapping[int, Array]) -> dict[int, Array]:
        """Return chances of values as chances of the values of the attributes that carry them."""
        found: dict[int, Array] = {}
        for i, chance in chances.items():
            root = self.root(i)
            found[root] = self.spread(chance, (i,)) * found.get(root, 1.0)
        return found


class Spans(NamedTuple):
    """Ranges of an attribute's values outside of which zeros leave no weight.

    A span table has one for each combination of the other attributes of a clique with zeros.
    ``start``, of shape (attributes + 1,), is the first span table of each attribute. ``offset``,
    ``other`` and ``stride`` lead from a row to its range (:class:`~adaptive_qs.cliques.Adjacency`).
    ``ends``, of shape (ranges, 2), has the first value of each range and the one after its last.
    """

    start: Integers
    offset: Integers
    other: Integers
    stride: Integers
    ends: NDArray[np.uint16]


def _find_spans(
    domain: Domain,
    joint: Sequence[Clique],
    allowed: Mapping[Clique, NDArray[np.bool_]],
    a: Adjacency,
) -> Spans:
    """Find the spans of tables in which at most half of an attribute's values have weight."""
    found: list[list[tuple[int, int]]] = [[] for _ in domain.sizes]
    ends, place = [np.zeros((0, 2), dtype=np.uint16)], a.start[:-1].copy()
    for columns in joint:
        for axis, i in enumerate(columns):
            entry, size, place[i] = int(place[i]), domain.sizes[i], place[i] + 1
            if columns not in allowed or not 2 * LANES <= size <= MOST_SWEPT:
                continue
            lists = np.moveaxis(allowed[columns], axis, -1).reshape(-1, size)
            last = np.where(lists.any(axis=1), size - lists[:, ::-1].argmax(axis=1), 0)
            own = np.stack([lists.argmax(axis=1), last], axis=1)
            if 2 * (own[:, 1] - own[:, 0]).sum() <= size * np.count_nonzero(last):
                found[i].append((entry, sum(map(len, ends))))
                ends.append(own.astype(np.uint16))
    listed = [each for own in found for each in own]
    entries, offset = np.array(listed, dtype=np.int64).reshape(-1, 2).T
    sizes = np.array([domain.sizes[i] for i, own in enumerate(found) for _ in own], dtype=np.int64)
    start = np.cumsum([0, *map(len, found)])
    steps = a.stride[entries] // sizes[:, None]
    return Spans(start, offset, a.other[entries], steps, np.concatenate(ends))


class LogLinearModel:
    """A log-linear model p ∝ Π_i u_i(x_i) Π_γ w_γ(x_γ), initially the product of ``singles``.

    Args:
        domain: the attributes.
        cliques: cliques of two or more attributes with a weight table, at any levels.
        singles: one non-negative array per attribute, its distribution without interactions.
        workers: threads that sweep; the result does not depend on it.
        allowed: by clique, the cells that can have weight; over the attributes that carry others.
        given: attributes that sweeps leave as they are: the model is conditional on these.
        carried: attributes that others determine.
        shapes: how weights over groups spread to codes; by default codes of a group share a weight.

    Attributes:
        adjacency: where the weights around each attribute lie in ``factors.packed``.
        wide: attributes of more than ``MOST_SWEPT`` values that interact; sweeps skip these.
    """

    def __init__(
        self,
        domain: Domain,
        cliques: Sequence[Clique],
        singles: Sequence[Array],
        workers: int,
        allowed: Mapping[Clique, NDArray[np.bool_]] | None = None,
        given: Clique = (),
        carried: CarriedAttributes | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        self.domain = domain
        self.shapes = shapes or {}
        self.carried = carried or CarriedAttributes(domain, {})
        self._allowed = allowed or {}
        self._given = given
        self.cliques = tuple(cliques)
        self._workers = workers
        self._weights: dict[Clique, dict[Clique, NDArray[np.float32]]] = {}
        for clique in self.cliques:
            levels = self._weights.setdefault(self.carrier(clique), {})
            levels[clique] = np.ones(domain.shape(clique), dtype=np.float32)
        joint = [columns for columns in self._weights if len(columns) > 1]
        self.adjacency = build_adjacency(domain, joint, copy_per_axis=True)
        self._position = dict(zip(joint, self.adjacency.position.tolist()))
        self._spans = _find_spans(domain, joint, self._allowed, self.adjacency)
        sizes = np.array(domain.sizes)
        self.wide = np.flatnonzero((np.diff(self.adjacency.start) > 0) & (sizes > MOST_SWEPT))
        start = np.cumsum([0, *(-(-size // LANES) * LANES for size in sizes)])
        self.factors = Factors(
            sizes=sizes,
            singles=np.zeros(start[-1]),
            single_start=start,
            cumulative=np.zeros(start[-1]),
            packed=np.zeros(self.adjacency.cells, dtype=np.float32),
        )
        self._singles = [np.maximum(single / single.sum(), 1e-9) for single in singles]
        for i in range(len(domain)):
            if i in self.carried.values:
                self._singles[i] = np.ones(len(singles[i]))
        for columns in [
            *((i,) for i in range(len(domain)) if i not in self.carried.values),
            *joint,
        ]:
            self._write(columns)

    def carrier(self, clique: Clique) -> Clique:
        """Return the attributes that carry those of a clique at any levels."""
        return self.carried.clique(self.domain.columns(clique))

    def scale(self, clique: Clique, ratio: NDArray[np.floating]) -> None:
        """Multiply the weights of a clique or single attribute by ``ratio``, in place."""
        self.scale_all({clique: ratio})

    def scale_all(self, ratios: Mapping[Clique, NDArray[np.floating]]) -> None:
        """Multiply the weights of cliques with one carrier, in place.

        Threads can scale cliques of different carriers at the same time.
        """
        carrier: Clique = ()
        for clique, ratio in ratios.items():
            carrier = self.carrier(clique)
            if len(clique) == 1 and clique == self.domain.columns(clique):
                (i,) = clique
                self._singles[i] = np.clip(self._singles[i] * ratio, 1e-12, 1e12)
                continue
            weights = self._weights[carrier][clique]
            weights *= ratio
            np.clip(weights, 1 / WEIGHT_LIMIT, WEIGHT_LIMIT, out=weights)
        self._write(carrier)

    def _write_single(self, attribute: int, single: Array) -> None:
        factors, start = self.factors, self.factors.single_start
        if (attribute,) in self._allowed:
            single = single * self._allowed[attribute,]
        factors.singles[start[attribute] : start[attribute] + single.size] = single
        span = slice(start[attribute], start[attribute + 1])
        factors.cumulative[span] = np.cumsum(factors.singles[span])

    def _write(self, carrier: Clique) -> None:
        """Copy the weights of codes to ``factors``, once per axis.

        The weight of a code is the product of the weights of its groups at all levels and of the
        codes that it carries.
        """
        if len(carrier) == 1:
            single = self._singles[carrier[0]]
            for i, (root, values) in self.carried.values.items():
                if root == carrier[0]:
                    single = single * self._singles[i][values]
            for weights in self._spread_weights(carrier):
                single = single * weights
            self._write_single(carrier[0], single)
            return
        first, *others = self._spread_weights(carrier)
        for other in others:
            first = first * other
        if others:
            np.clip(first, 1 / WEIGHT_LIMIT, WEIGHT_LIMIT, out=first)
        if carrier in self._allowed:
            first = first * self._allowed[carrier]
        position = self._position[carrier]
        for axis in range(len(carrier)):
            moved = np.moveaxis(first, axis, -1)
            stop = position + first.size
            self.factors.packed[position:stop].reshape(moved.shape)[...] = moved
            position = stop

    def _spread_weights(self, carrier: Clique) -> list[NDArray[np.float32]]:
        held = self._weights.get(carrier, {})
        codes = ((self.domain.columns(k), spread(w, k, self.domain, self.shapes))
                 for k, w in held.items())  # fmt: skip
        return [self.carried.spread(weights, columns) for columns, weights in codes]

    def within(self, chances: Mapping[int, Array]) -> LogLinearModel:
        """Return the model of a random subset of rows; sweeps draw no value of probability zero.

        ``chances`` has, by attribute, the probability to keep a row with each value: shape (n_i,),
        not all zero.
        """
        found, factors = copy(self), self.factors
        found.factors = factors._replace(
            singles=factors.singles.copy(), cumulative=factors.cumulative.copy()
        )
        for attribute, chance in self.carried.chances(chances).items():
            found._write_single(attribute, self._single(attribute) * chance)
        return found

    def conditional(self, rows: Rows, attribute: int) -> Array:
        """Return the distribution of an attribute given the others of each row: (rows, n_i)."""
        chances = np.tile(self._single(attribute), (len(rows), 1))
        start, offset, other, stride, _, _, _ = self.adjacency
        values = np.arange(self.domain.sizes[attribute])
        for entry in range(start[attribute], start[attribute + 1]):
            first = offset[entry] + rows[:, other[entry]].astype(np.int64) @ stride[entry]
            chances *= self.factors.packed[first[:, None] + values]
            chances /= chances.max(axis=1, keepdims=True)
        return chances / chances.sum(axis=1, keepdims=True)

    def given(
        self, rows: Rows, attribute: int, chance: Array, count: int, rng: np.random.Generator
    ) -> tuple[Rows, float]:
        """Draw ``count`` rows in which an attribute has a kept value, and the share of such rows.

        Each row is weighted by the probability that its value is kept. Rows are drawn by these
        weights (systematic resampling), then the attribute is redrawn. The share is the mean
        weight.
        """
        ((attribute, chance),) = self.carried.chances({attribute: chance}).items()
        size = self.domain.sizes[attribute]
        entries = self.adjacency.start[attribute + 1] - self.adjacency.start[attribute] + 1
        most = max(2**28 // int(size * entries), 1_000)  # products of weights and chances
        rows = rows[rng.permutation(len(rows))[:most]]
        block = max(CELLS_AT_ONCE // size, 1)
        blocks = [slice(first, first + block) for first in range(0, len(rows), block)]
        weights = np.concatenate([self.conditional(rows[b], attribute) @ chance for b in blocks])
        up_to = np.cumsum(weights)
        if not up_to[-1] > 0:
            return rows[:0], 0.0
        points = (np.arange(count) + rng.random()) * (up_to[-1] / count)
        chosen = rows[np.minimum(np.searchsorted(up_to, points, side="right"), len(rows) - 1)]
        for first in range(0, count, block):
            part = chosen[first : first + block]
            up_to_value = np.cumsum(self.conditional(part, attribute) * chance, axis=1)
            points = rng.random(len(part)) * up_to_value[:, -1]
            part[:, attribute] = (up_to_value <= points[:, None]).sum(axis=1)
        self.carried.fill(chosen)
        return chosen, float(weights.mean())

    def _single(self, attribute: int) -> Array:
        start = self.factors.single_start[attribute]
        return self.factors.singles[start : start + self.domain.sizes[attribute]]

    def sweep(self, rows: Rows, key: int) -> None:
        """Redraw every attribute of every row, in place, in an order drawn from ``key``.

        Given, wide and carried attributes are not redrawn.
        """
        order = np.random.default_rng(key).permutation(len(self.domain))
        order = order[~np.isin(order, [*self.wide, *self._given, *self.carried.values])]

        def block(start: int, stop: int) -> None:
            _sweep_rows(
                rows, start, stop, order, self.factors, self.adjacency, self._spans, np.uint64(key)
            )

        over_rows(self._workers, len(rows), block)


class ModelMoves:
    """Base class of moves of rows that follow a model."""

    _model: LogLinearModel

    def towards(self, model: LogLinearModel) -> Self:
        """Return a copy for another model of the same attributes."""
        found = copy(self)
        found._model = model
        return found


_ROWS_AT_ONCE = 128
"""Number of rows whose values of one attribute are drawn while its weights are in cache."""


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def invert_at(cumulative, start, size, u):  # type: ignore[no-untyped-def]
    """Return the first value whose cumulative probability, from ``start`` on, is above u."""
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[start + middle] > u:
            high = middle
        else:
            low = middle + 1
    return low


_UNCHECKED = 8
"""Number of products of four weights, each 1e±24, before a probability is rescaled."""


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _sweep_rows(rows, begin, end, order, factors, adjacency, spans, key):  # type: ignore[no-untyped-def]
    sizes, singles, single_start, cumulative, packed = factors
    start, offset, other, stride, _, _, _ = adjacency
    one, lanes = np.uint64(1), np.uint64(LANES)  # unsigned indices: see find_cell
    p = np.empty(single_start[-1])
    sums = np.empty(single_start[-1] // LANES)
    for first in range(begin, end, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, end)
        for step in range(order.size):
            i = order[step]
            base, width = single_start[i], single_start[i + 1] - single_start[i]
            if start[i] == start[i + 1]:  # nothing depends on i: invert its distribution
                span = cumulative[base : base + width]
                for r in range(first, last):
                    u = uniform(key, r, step) * span[width - 1]
                    rows[r, i] = invert_at(cumulative, base, sizes[i], u)
                continue
            single = singles[base : base + width]
            q = p[:width]
            for r in range(first, last):
                low, high = np.uint64(0), np.uint64(sizes[i])
                for n in range(spans.start[i], spans.start[i + 1]):
                    span = find_cell(rows, r, n, spans.offset, spans.other, spans.stride)
                    low = max(low, np.uint64(spans.ends[span, 0]))
                    high = min(high, np.uint64(spans.ends[span, 1]))
                if low >= high:
                    continue
                g, groups = low // lanes, (high + lanes - one) // lanes
                for v in range(lanes * g, lanes * groups):
                    q[v] = single[v]
                for v in range(lanes * g, low):
                    q[v] = 0.0
                for v in range(high, lanes * groups):
                    q[v] = 0.0
                e, unchecked = start[i], 0
                while e + 4 <= start[i + 1]:
                    c0 = find_cell(rows, r, e, offset, other, stride)
                    c1 = find_cell(rows, r, e + 1, offset, other, stride)
                    c2 = find_cell(rows, r, e + 2, offset, other, stride)
                    c3 = find_cell(rows, r, e + 3, offset, other, stride)
                    for w in range(low, high):
                        p[w] *= (packed[c0 + w] * packed[c1 + w]) * (
                            packed[c2 + w] * packed[c3 + w]
                        )
                    e, unchecked = e + 4, unchecked + 1
                    if unchecked == _UNCHECKED:
                        unchecked, largest = 0, 0.0
                        for w in range(low, high):
                            largest = max(largest, p[w])
                        if not 1e-100 < largest < 1e100:
                            for v in range(low, high):
                                q[v] /= largest
                while e < start[i + 1]:
                    cell = find_cell(rows, r, e, offset, other, stride)
                    for w in range(low, high):
                        p[w] *= packed[cell + w]
                    e += 1
                total = 0.0
                for k in range(g, groups):
                    group = q[lanes * k : lanes * k + lanes]
                    part = 0.0
                    for v in range(LANES):
                        part += group[v]
                    sums[k] = part
                    total += part
                left = uniform(key, r, step) * total
                while g < groups - one and left >= sums[g]:
                    left -= sums[g]
                    g += one
                choice = rows[r, i]  # which has weight
                for v in range(lanes * g, min(lanes * g + lanes, high)):
                    if q[v] > 0.0:
                        choice = v
                        left -= q[v]
                        if left < 0.0:
                            break
                rows[r, i] = choice
