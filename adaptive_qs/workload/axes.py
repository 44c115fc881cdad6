"""Counting queries over the ordered cells of one attribute, over two, and drawn at random."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from adaptive_qs.domain import anywhere, around, from_to, up_to
from adaptive_qs.workload.matrices import Array, AxisQueries, Queries

# Queries on one attribute whose cells are in order, codes 0 .. n-1, are known by n alone: Gram
# matrix and sums have closed forms, answers are differences of cumulative sums, and the variances
# of answers differences of cumulative sums of the covariance, O(1) for each query.


@dataclass(frozen=True)
class OrderedQueries(Queries):
    """Queries on one attribute whose ``size`` cells are in order; ValueError for less than one."""

    size: int = field()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"an attribute has {self.size} cells: at least one is needed")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def num_queries(self) -> int:
        return self.size

    def arc_lengths(self) -> NDArray[np.int64]:
        """Return every length from 1 to n."""
        return np.arange(1, self.size + 1)


class Marginal(OrderedQueries):
    """x = c for every c: the n cells themselves."""

    def arc_lengths(self) -> NDArray[np.int64]:
        return np.ones(1, dtype=np.int64)

    def gram(self) -> Array:
        return np.eye(self.size)

    def column_norms(self) -> Array:
        return np.ones(self.size)

    def answer(self, table: Array) -> Array:
        return table

    def squares(self, covariance: Array) -> Array:
        return _diagonal(covariance).copy()

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        return (f"{names[0]} = {value}" for value in values[0])


class Prefix(OrderedQueries):
    """x ≤ c for c = 0 .. n-1; the last one is the total."""

    def gram(self) -> Array:
        """Return n − max(i, j)."""
        down = np.arange(self.size, 0, -1, dtype=np.float64)
        return np.minimum.outer(down, down)

    def column_norms(self) -> Array:
        return np.arange(self.size, 0, -1, dtype=np.float64)

    def answer(self, table: Array) -> Array:
        return _cumulate(table)[1:]

    def squares(self, covariance: Array) -> Array:
        row = _diagonal(np.cumsum(covariance, axis=1))  # Σ_{j ≤ c} C[c, j]
        return np.cumsum(2 * row - _diagonal(covariance), axis=0)

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        return (up_to(names[0], value) for value in values[0])


class Range(OrderedQueries):
    """a ≤ x ≤ b for all a ≤ b, by a and then by b."""

    @property
    def num_queries(self) -> int:
        return self.size * (self.size + 1) // 2

    def gram(self) -> Array:
        """Return (min(i, j) + 1)(n − max(i, j))."""
        up = np.arange(1.0, self.size + 1)
        gram = np.empty((self.size, self.size))
        for i, row in enumerate(gram):  # by rows: one array of this size is all it takes
            np.multiply(up[:i], self.size - i, out=row[:i])
            np.multiply(up[: self.size - i][::-1], i + 1, out=row[i:])
        return gram

    def squared_sums(self) -> float:
        """Return ‖Q1‖² = Σ (n−L+1) L² = n(n+1)²(n+2)/12."""
        n = self.size
        return float(n * (n + 1) ** 2 * (n + 2) // 12)

    def column_norms(self) -> Array:
        i = np.arange(self.size, dtype=np.float64)
        return (i + 1) * (self.size - i)

    def answer(self, table: Array) -> Array:
        """Return differences of cumulative sums, shape (n, ...) -> (m, ...)."""
        p = _cumulate(table)
        answers = np.empty((self.num_queries, *p.shape[1:]), p.dtype)
        for a in range(self.size):
            np.subtract(p[a + 1 :], p[a], out=answers[self._first(a) : self._first(a + 1)])
        return answers

    def _first(self, a: int) -> int:
        return a * self.size - a * (a - 1) // 2

    def squares(self, covariance: Array) -> Array:
        """Return S[b+1, b+1] + S[a, a] − 2 S[a, b+1], S the cumulative sums of C on both axes."""
        s = _cumulate_twice(covariance)
        d = _diagonal(s)
        variances = np.empty((self.num_queries, *s.shape[2:]))
        for a in range(self.size):
            variances[self._first(a) : self._first(a + 1)] = d[a + 1 :] + d[a] - 2 * s[a, a + 1 :]
        return variances

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        return (from_to(names[0], a, b) for a, b in combinations_with_replacement(values[0], 2))


class Circular(OrderedQueries):
    """Arcs of a circle of cells: every start, of every length 1 .. n; length n counts n times."""

    @property
    def num_queries(self) -> int:
        return self.size**2

    def circulant(self) -> Array:
        """Return the first row of the Gram matrix: T(n−d) + T(d) with T(k) = k(k+1)/2, shape (n,).

        Of the arcs of length L, L−d join two cells at distance d one way round and L−(n−d) the
        other, where these are positive.
        """
        d = np.arange(self.size, dtype=np.float64)
        e = self.size - d
        return (e * (e + 1) + d * (d + 1)) / 2

    def gram(self) -> Array:
        row = self.circulant()  # symmetric: row[d] = row[n − d]
        windows = sliding_window_view(np.concatenate([row, row[:-1]]), self.size)
        gram = np.empty((self.size, self.size))
        gram[0] = row
        gram[1:] = windows[:0:-1]
        return gram

    def squared_sums(self) -> float:
        """Return ‖Q1‖² = n Σ L² = n²(n+1)(2n+1)/6."""
        n = self.size
        return float(n * n * (n + 1) * (2 * n + 1) // 6)

    def column_norms(self) -> Array:
        return np.full(self.size, self.size * (self.size + 1) / 2)

    def answer(self, table: Array) -> Array:
        """Return differences of cumulative sums twice round the circle."""
        n, p = self.size, _cumulate(table)
        twice = np.concatenate([p, p[1:] + p[-1]])
        answers = np.empty((n, n, *p.shape[1:]), p.dtype)
        for start in range(n):
            np.subtract(twice[start + 1 : start + n + 1], p[start], out=answers[start])
        return answers.reshape(n * n, *p.shape[1:])

    def squares(self, covariance: Array) -> Array:
        """Return variances from cumulative sums of C; an arc past the end is all less a range."""
        n, s = self.size, _cumulate_twice(covariance)
        d, whole = _diagonal(s), s[n]
        variances = np.empty((n, n, *s.shape[2:]))
        for a in range(n):
            variances[a, : n - a] = d[a + 1 :] + d[a] - 2 * s[a, a + 1 :]
            gap = d[a] + d[1 : a + 1] - 2 * s[a, 1 : a + 1]
            variances[a, n - a :] = d[n] + gap - 2 * (whole[a] - whole[1 : a + 1])
        return variances.reshape(n * n, *s.shape[2:])

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Yield labels such as "hour in [3, 9]" or "hour from 22 to 3, around the end"."""
        name, cells, n = names[0], values[0], self.size
        for start in range(n):
            for stop in range(start, n - (start == 0)):
                yield from_to(name, cells[start], cells[stop])
            for stop in range(start - 1):
                yield around(name, cells[start], cells[stop])
            yield anywhere(name)


def _delegated(name: str) -> Any:
    """Return a property with the value of the queries over the first cells."""
    return property(attrgetter(f"queries.{name}"))


@dataclass(frozen=True)
class FirstCells(OrderedQueries):
    """Queries about the first of n cells; none of them counts the others."""

    queries: AxisQueries  # over the first cells
    is_partial = True
    is_binary, integral, num_queries = map(_delegated, ("is_binary", "integral", "num_queries"))
    arc_lengths, sums, squared_sums = map(_delegated, ("arc_lengths", "sums", "squared_sums"))

    def gram(self) -> Array:
        return np.pad(self.queries.gram(), (0, self.size - self.queries.size))

    def column_norms(self) -> Array:
        return np.pad(self.queries.column_norms(), (0, self.size - self.queries.size))

    def answer(self, table: Array) -> Array:
        return self.queries.answer(table[: self.queries.size])

    def squares(self, covariance: Array) -> Array:
        first = slice(self.queries.size)
        return self.queries.squares(covariance[first, first])

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Yield labels of the first cells; their whole is a range, not "anywhere"."""
        cells = values[0][: self.queries.size]
        whole = {anywhere(names[0]): from_to(names[0], cells[0], cells[-1])}
        return (whole.get(label, label) for label in self.queries.labels(names, (cells,)))


def _cumulate(table: Array) -> Array:
    """Return sums of the first 0 .. n entries along the first axis; integers keep their type."""
    array: NDArray[Any] = np.asarray(table)
    dtype = array.dtype if np.issubdtype(array.dtype, np.integer) else np.dtype(np.float64)
    sums = np.zeros((len(array) + 1, *array.shape[1:]), dtype)
    np.cumsum(array, axis=0, dtype=dtype, out=sums[1:])
    return sums


def _cumulate_twice(covariance: Array) -> Array:
    """Return S[a, b] = Σ_{i < a, j < b} C[i, j], shape (n+1, n+1, ...)."""
    return np.swapaxes(_cumulate(np.swapaxes(_cumulate(covariance), 0, 1)), 0, 1)


def _diagonal(array: Array) -> Array:
    """Return the diagonal as a view, shape (n, n, ...) -> (n, ...)."""
    return np.moveaxis(np.diagonal(array, axis1=0, axis2=1), -1, 0)


Levels = NDArray[np.int64]


@dataclass(frozen=True)
class LevelQueries(Queries):
    """Level ≤ c for every level c, over n_1 × n_2 cells that have one each; no level is empty."""

    first: int  # cells of the first attribute, n_1 ≥ 1, or ValueError
    second: int  # n_2

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"attributes have {self.shape} cells: at least one is needed")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.first, self.second)

    def levels(self) -> Levels:
        """Return the level of each cell, shape (n_1, n_2)."""
        raise NotImplementedError

    @property
    def coefficients(self) -> NDArray[np.int8]:
        """Whether the level of each cell is within that of each query, shape (m, n_1 n_2)."""
        return (self.levels().ravel() <= np.arange(self.num_queries)[:, None]).astype(np.int8)

    def gram(self) -> Array:
        """Return m − max(level, level'), shape (n_1 n_2, n_1 n_2)."""
        level = self.levels().ravel()
        return Prefix(self.num_queries).gram()[np.ix_(level, level)]

    def column_norms(self) -> Array:
        return (self.num_queries - self.levels().ravel()).astype(np.float64)

    def answer(self, table: Array) -> Array:
        array: NDArray[Any] = np.asarray(table)
        flat = array.reshape(self.first * self.second, *array.shape[2:])
        return Prefix(self.num_queries).answer(self._gather(flat))

    def squares(self, covariance: Array) -> Array:
        """Return the variance of each answer from the covariance of the levels."""
        across = np.swapaxes(self._gather(covariance), 0, 1)
        return Prefix(self.num_queries).squares(np.swapaxes(self._gather(across), 0, 1))

    def _gather(self, cells: Array) -> Array:
        """Sum of the cells of each level, shape (n_1 n_2, ...) -> (m, ...)."""
        order, starts = self._runs
        return np.add.reduceat(cells[order], starts, axis=0, dtype=cells.dtype)

    @cached_property
    def _runs(self) -> tuple[Levels, Levels]:
        """Cells by level, and where each level begins."""
        level = self.levels().ravel()
        order = np.argsort(level, kind="stable")
        return order, np.searchsorted(level[order], np.arange(self.num_queries))


class Affine(LevelQueries):
    """A + B ≤ c for c = 0 .. n_1 + n_2 − 2, in codes."""

    @property
    def num_queries(self) -> int:
        return self.first + self.second - 1

    def levels(self) -> Levels:
        return np.add.outer(np.arange(self.first), np.arange(self.second))

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        return (f"{names[0]} + {names[1]} <= {c} (codes)" for c in range(self.num_queries))


class AbsDiff(LevelQueries):
    """|A − B| ≤ c for c = 0 .. max(n_1, n_2) − 1, in codes."""

    @property
    def num_queries(self) -> int:
        return max(self.shape)

    def levels(self) -> Levels:
        return np.abs(np.subtract.outer(np.arange(self.first), np.arange(self.second)))

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        return (f"|{names[0]} - {names[1]}| <= {c} (codes)" for c in range(self.num_queries))
