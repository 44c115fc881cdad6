"""Queries on several attributes: products of families of one attribute, or one joint family.

The queries of a product are ordered row-major: those of the last attribute vary fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.queries import Queries

Array = NDArray[np.float64]


def count_queries(queries: Sequence[Queries]) -> int:
    """Number of queries of a product (exact)."""
    return math.prod(factor.num_queries for factor in queries)


def answer_product(queries: Sequence[Queries], table: Array) -> Array:
    """Answers to a product of queries.

    Args:
        queries: factors that together cover the table's axes, in order.
        table: one axis per attribute.

    Returns:
        Shape (m_1, ..., m_k), one axis per factor.
    """
    for factor in queries:
        degree = len(factor.shape)
        if degree != 1 and degree != table.ndim:
            raise ValueError("a joint family covers all axes of a table")
        table = np.moveaxis(factor.answer(table), 0, -1)
    return table


def squares_product(queries: Sequence[Queries | None], covariance: Array) -> Array:
    """Variances of the answers to a product of queries: diag((⊗Q) C (⊗Q)ᵀ).

    Args:
        queries: one family of one attribute for each axis; None sums the axis out.
        covariance: shape (n_1, ..., n_k, n_1, ..., n_k), symmetric.

    Returns:
        One axis for each family that is not None.
    """
    k = len(queries)
    pairs = covariance.transpose([axis for i in range(k) for axis in (i, i + k)])
    for factor in queries:
        if factor is None:
            pairs = pairs.sum(axis=(0, 1))
        else:
            if k > 1:  # of slices that are not symmetric only the symmetric part counts
                pairs = (pairs + pairs.swapaxes(0, 1)) / 2
            pairs = np.moveaxis(factor.squares(pairs), 0, -1)
    return pairs
