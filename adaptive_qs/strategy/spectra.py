"""Closed forms of the spectra of a single attribute's queries: of QᵀQ, and centered of ΠQᵀQΠ.

They make sizes of 10,000 and more cost O(n) where a matrix would take n² numbers.

Marginal: Π itself. Circular: a circulant matrix, diagonal in the Fourier basis. Prefix: with the
lower triangular Q, QΠQᵀ is the covariance min(a, b) − ab/n of a discrete Brownian bridge, the
inverse of the second difference with eigenvalues 4 sin²(πk/2n). Range: QᵀQ is n + 1 times the
inverse of the second difference of size n; its odd eigenvectors sum to zero and stay, its even
ones become cos(2πk(j − (n+1)/2)/n), the ones that sum to zero. Of prefix queries QᵀQ is the inverse
of the second difference with one end free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.centered import CenteredAxis
from adaptive_qs.workload.queries import CenteredQueries, Queries

Array = NDArray[np.float64]


def known_eigenvalues(part: CenteredQueries) -> Array | None:
    """Eigenvalues of the centered Gram without the zero of the constant vector, shape (n − 1,).

    None where there is no closed form.
    """
    if not isinstance(part, CenteredAxis):
        return None
    queries = part.queries
    n = part.shape[0]
    if isinstance(queries, Marginal):
        return np.ones(n - 1)
    if isinstance(queries, Circular):
        return _fourier_of_circular(part)[1:]
    if isinstance(queries, Prefix):
        return _inverse_square_sine(np.arange(1, n) / (2 * n)) / 4
    if isinstance(queries, Range):
        odd = np.arange(1, n // 2 + 1) / (n + 1)
        even = np.arange(1, (n + 1) // 2) / n
        return (n + 1) / 4 * _inverse_square_sine(np.concatenate([odd, even]))
    return None


def known_gram_eigenvalues(queries: Queries) -> Array | None:
    """Eigenvalues of the Gram QᵀQ itself, in any order, shape (n,); None without a closed form."""
    if isinstance(queries, Marginal):
        return np.ones(queries.size)
    if isinstance(queries, Circular):
        return np.maximum(np.fft.fft(queries.circulant()).real, 0.0)
    if isinstance(queries, Prefix):
        n = queries.size
        return _inverse_square_sine(np.arange(1, 2 * n, 2) / (4 * n + 2)) / 4
    if isinstance(queries, Range):
        n = queries.size
        return (n + 1) / 4 * _inverse_square_sine(np.arange(1, n + 1) / (2 * n + 2))
    return None


def known_fourier_diagonal(part: CenteredQueries) -> Array | None:
    """(F*GF)_ff in the unitary Fourier basis, shape (n,), zero at f = 0; or None.

    A run of ℓ cells has |Fourier coefficient|² = sin²(πfℓ/n)/sin²(πf/n); prefix has one of every
    length and range n + 1 − ℓ, and the sums over ℓ close.
    """
    if not isinstance(part, CenteredAxis):
        return None
    queries = part.queries
    n = part.shape[0]
    if isinstance(queries, Circular):
        return _fourier_of_circular(part)
    frequency = np.arange(1, n) / n
    if isinstance(queries, Marginal):
        c = np.ones(n - 1)
    elif isinstance(queries, Prefix):
        c = _inverse_square_sine(frequency) / 2
    elif isinstance(queries, Range):
        c = _inverse_square_sine(frequency) * (n + 2) / 4
    else:
        return None
    return np.concatenate([[0.0], c])


def _inverse_square_sine(turns: Array) -> Array:
    """1/sin²(π · turns)."""
    return 1 / np.sin(np.pi * turns) ** 2


def _fourier_of_circular(part: CenteredAxis) -> Array:
    row = part.circulant()
    assert row is not None
    c = np.fft.fft(row).real
    c[0] = 0.0
    return np.maximum(c, 0.0)
