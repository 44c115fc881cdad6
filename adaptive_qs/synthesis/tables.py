"""Marginals of coded rows: integer matrices of shape (rows, attributes)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain

Rows = NDArray[np.int32]
"""Coded rows, shape (rows, attributes)."""


def count_rows(rows: Rows, domain: Domain, clique: Clique) -> NDArray[np.float64]:
    """The marginal of rows over a non-empty clique, shaped like it (rows)."""
    out = np.zeros(domain.shape(clique), dtype=np.float64)
    add_counts(out, rows, domain, clique)
    return out


def add_counts(out: NDArray[np.floating], rows: Rows, domain: Domain, clique: Clique) -> None:
    """Add the marginal of rows over a clique to ``out``, a contiguous array shaped like it.

    In 32-bit floats a cell stops counting at 2**24.
    """
    _add_counts(rows, np.array(clique), np.array(domain.shape(clique)), out.reshape(-1))


@njit(cache=True, nogil=True)
def _add_counts(rows, clique, shape, out):  # type: ignore[no-untyped-def]
    for r in range(rows.shape[0]):
        cell = 0
        for axis in range(clique.size):
            cell = cell * shape[axis] + rows[r, clique[axis]]
        out[cell] += 1
