"""What every family of linear counting queries knows: its answers, its Gram matrix, its parts.

A family covers one attribute (prefix, range, ...) or several at once (affine, ...). Queries on
the attributes of a clique are a Kronecker product of families of one attribute each, or one joint
family. A family is a small frozen value: equal queries compare equal and hash equal, so that equal
problems are solved once. Nothing below materialises the query matrix unless it is asked to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@runtime_checkable
class Queries(Protocol):
    """Linear counting queries Q (m, N) over the N = Πshape cells of some attributes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes n_i of the attributes covered, in order."""

    @property
    def num_queries(self) -> int:
        """Number of queries m (exact, never overflows)."""

    @property
    def integral(self) -> bool:
        """Whether every coefficient is an integer."""

    def matrix(self) -> Array:
        """Q, shape (m, N), rows in the order of :meth:`answer`. For tests and small families."""

    def gram(self) -> Array:
        """QᵀQ, shape (N, N), from a closed form where there is one."""

    def sums(self) -> Array:
        """Q1, shape (m,): the number of cells, with their coefficients, in each query."""

    def column_norms(self) -> Array:
        """Σ_q Q[q, cell]², shape (N,): the diagonal of the Gram matrix."""

    def answer(self, table: Array) -> Array:
        """Q applied to a table over the attributes.

        Args:
            table: shape (*shape, ...); trailing axes are independent tables.

        Returns:
            Shape (m, ...), of the table's dtype where that is an integer and Q is integral.
        """

    def squares(self, covariance: Array) -> Array:
        """Variance of every query's answer: diag(Q C Qᵀ).

        Args:
            covariance: C, shape (N, N, ...): of the cells of a table, symmetric in its first two
                axes; trailing axes are independent covariances.

        Returns:
            Shape (m, ...).
        """

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """A sentence such as "age <= 39" for each query, in the order of :meth:`answer`.

        Args:
            names: one per attribute covered.
            values: for each attribute, one public label per cell.
        """


class AxisQueries(Queries, Protocol):
    """Queries over a single attribute: shape is (n,)."""

    @property
    def size(self) -> int:
        """Number of cells n of the attribute."""


class CenteredQueries(Protocol):
    """The part of some queries that lies in a residual space: He et al., equation 3.

    Along each kept axis the mean is removed, along each dropped axis the mean is taken. Hashable;
    equal parts compare equal.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the kept axes."""

    def gram(self) -> Array:
        """Shape (N, N), N = Πshape: symmetric, and every row sums to zero along every axis."""

    def rows(self) -> Array | None:
        """The queries themselves, shape (m, N), where m < N; None where the Gram is smaller."""

    def __hash__(self) -> int:
        """Equal for equal parts."""
