"""Counting queries that compare the codes of two attributes: A + B ≤ c and |A − B| ≤ c.

Both give each cell a level and ask for the number of rows up to every level, so they are prefix
queries on the levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.axis_queries import Prefix

Array = NDArray[np.float64]
Levels = NDArray[np.int64]


@dataclass(frozen=True)
class LevelQueries:
    """Level ≤ c for every level c, over n_1 × n_2 cells; every level has a cell.

    Args:
        first: cells of the first attribute, n_1 ≥ 1.
        second: cells of the second, n_2 ≥ 1.

    Raises:
        ValueError: a size is not positive.
    """

    first: int
    second: int

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"attributes have {self.shape} cells: at least one is needed")

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_1, n_2)."""
        return (self.first, self.second)

    @property
    def integral(self) -> bool:
        """Every coefficient is 0 or 1."""
        return True

    @property
    def num_queries(self) -> int:
        """Number of levels."""
        raise NotImplementedError

    def levels(self) -> Levels:
        """The level of each cell, shape (n_1, n_2)."""
        raise NotImplementedError

    def matrix(self) -> Array:
        """Q, shape (m, n_1 n_2)."""
        return self.means((0, 1)).reshape(self.num_queries, -1)

    def gram(self) -> Array:
        """m − max(level, level'), shape (n_1 n_2, n_1 n_2)."""
        level = self.levels().ravel()
        return Prefix(self.num_queries).gram()[np.ix_(level, level)]

    def sums(self) -> Array:
        """Number of cells up to each level."""
        cells = np.bincount(self.levels().ravel(), minlength=self.num_queries)
        return np.cumsum(cells).astype(np.float64)

    def squared_sums(self) -> float:
        """‖Q1‖²."""
        return float((self.sums() ** 2).sum())

    def column_norms(self) -> Array:
        """m − level."""
        return (self.num_queries - self.levels().ravel()).astype(np.float64)

    def means(self, kept: tuple[int, ...]) -> Array:
        """The mean of each query over the axes not kept, shape (m, *kept sizes).

        Args:
            kept: ascending axes.
        """
        level = self.levels()
        if kept == (0, 1):
            c = np.arange(self.num_queries)
            return (level <= c[:, None, None]).astype(np.float64)
        if not kept:
            return self.sums() / level.size
        lines = level if kept == (0,) else level.T
        kept_size, dropped_size = lines.shape
        counts = np.zeros((self.num_queries, kept_size))
        np.add.at(counts, (lines, np.arange(kept_size)[:, None]), 1.0)
        return np.cumsum(counts, axis=0) / dropped_size

    def answer(self, table: Array) -> Array:
        """Cumulative sums over the levels, shape (n_1, n_2, ...) -> (m, ...)."""
        array: NDArray[Any] = np.asarray(table)
        flat = array.reshape(self.first * self.second, *array.shape[2:])
        return Prefix(self.num_queries).answer(self._gather(flat))

    def squares(self, covariance: Array) -> Array:
        """Variance of each answer from the covariance of the levels."""
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
        """n_1 + n_2 − 1."""
        return self.first + self.second - 1

    def levels(self) -> Levels:
        """a + b."""
        return np.add.outer(np.arange(self.first), np.arange(self.second))

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Such as "age + hours <= 12 (codes)"."""
        return (f"{names[0]} + {names[1]} <= {c} (codes)" for c in range(self.num_queries))


class AbsDiff(LevelQueries):
    """|A − B| ≤ c for c = 0 .. max(n_1, n_2) − 1, in codes."""

    @property
    def num_queries(self) -> int:
        """max(n_1, n_2)."""
        return max(self.shape)

    def levels(self) -> Levels:
        """|a − b|."""
        return np.abs(np.subtract.outer(np.arange(self.first), np.arange(self.second)))

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Such as "|age - hours| <= 3 (codes)"."""
        return (f"|{names[0]} - {names[1]}| <= {c} (codes)" for c in range(self.num_queries))
