"""The part of queries that lies in one residual space: He et al., equation 3.

Queries Q over some axes split into one part for each subset of the axes: along each axis kept the
mean is removed (Π = I − 11ᵀ/n), along each axis dropped it is taken. Parts of a product are
products of the parts of its factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.axis_queries import Circular
from adaptive_qs.workload.queries import AxisQueries, CenteredQueries, Queries

Array = NDArray[np.float64]


@runtime_checkable
class KnowsSquaredSums(Protocol):
    """Queries with a shorter way to ‖Q1‖² than their sums."""

    def squared_sums(self) -> float:
        """‖Q1‖²."""


@runtime_checkable
class KnowsMeans(Protocol):
    """Queries with a shorter way to their means along some axes than their matrix."""

    def means(self, kept: tuple[int, ...]) -> Array:
        """The mean of each query over the axes not kept, shape (m, *kept sizes)."""


def squared_mean(queries: Queries) -> float:
    """‖Q1‖²/N²: the Gram of what is left of queries when no axis is kept.

    For queries on one attribute this is the factor of a dropped axis; for joint queries the Gram
    of their part in the total.
    """
    squares = (
        queries.squared_sums()
        if isinstance(queries, KnowsSquaredSums)
        else float((queries.sums() ** 2).sum())
    )
    return squares / math.prod(queries.shape) ** 2


@dataclass(frozen=True)
class CenteredAxis:
    """QΠ: what queries on one attribute ask beside the total."""

    queries: AxisQueries

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return self.queries.shape

    def gram(self) -> Array:
        """ΠQᵀQΠ, shape (n, n), from the closed form of QᵀQ."""
        gram = self.queries.gram()
        gram = gram - gram.mean(axis=0)  # the queries may keep theirs
        gram -= gram.mean(axis=1, keepdims=True)
        gram += gram.T
        gram /= 2
        return gram

    def circulant(self) -> Array | None:
        """First row of the Gram where it is a circulant matrix, shape (n,); None otherwise."""
        if not isinstance(self.queries, Circular):
            return None
        row = self.queries.circulant()
        return row - row.mean()

    def rows(self) -> Array | None:
        """QΠ itself, shape (m, n), where m < n."""
        if self.queries.num_queries >= self.queries.size:
            return None
        matrix = self.queries.matrix()
        return matrix - matrix.mean(axis=1, keepdims=True)


@dataclass(frozen=True)
class CenteredJoint:
    """A part of queries that ask about several attributes at once.

    Args:
        queries: over all their axes.
        kept: ascending axes, at least one.

    Raises:
        ValueError: the axes kept are not such.
    """

    queries: Queries
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        axes = range(len(self.queries.shape))
        if not self.kept or self.kept != tuple(a for a in axes if a in self.kept):
            raise ValueError(f"kept axes {self.kept} of {len(axes)}: give some, ascending")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the kept axes."""
        return tuple(self.queries.shape[axis] for axis in self.kept)

    def gram(self) -> Array:
        """Shape (N, N)."""
        cells = math.prod(self.shape)
        if len(self.kept) < len(self.queries.shape) or self.queries.num_queries < cells:
            rows = self._rows()
            return rows.T @ rows
        gram = self.queries.gram().reshape(*self.shape, *self.shape)
        gram = _center(gram, range(gram.ndim)).reshape(cells, cells)
        return (gram + gram.T) / 2

    def rows(self) -> Array | None:
        """The queries themselves, shape (m, N), where m < N."""
        return self._rows() if self.queries.num_queries < math.prod(self.shape) else None

    def _rows(self) -> Array:
        means = _means(self.queries, self.kept)
        return _center(means, range(1, means.ndim)).reshape(len(means), -1)


def centered_part(queries: Queries, kept: tuple[int, ...]) -> CenteredQueries:
    """The part of queries on several attributes that keeps some axes (at least one).

    Args:
        queries: over all their axes.
        kept: ascending axes.
    """
    return CenteredJoint(queries, kept)


def _means(queries: Queries, kept: tuple[int, ...]) -> Array:
    if isinstance(queries, KnowsMeans):
        return queries.means(kept)
    dropped = tuple(axis + 1 for axis in range(len(queries.shape)) if axis not in kept)
    return queries.matrix().reshape(-1, *queries.shape).mean(axis=dropped)


def _center(array: Array, axes: range) -> Array:
    for axis in axes:
        array = array - array.mean(axis=axis, keepdims=True)
    return array
