"""The singular value bound: what no strategy can beat, from the spectrum of the workload alone.

Li and Miklau, Theorem 2, used by McKenna et al. as the SVD bound. For every feasible V, that is
diag V ≤ 1 on N cells, tr V ≤ N and the Cauchy-Schwarz inequality gives

    (tr G^½)² ≤ tr(G V⁺) · tr V ≤ N tr(G V⁺).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.objective import gram_trace, is_product
from adaptive_qs.strategy.spectra import known_eigenvalues
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload, Term

Array = NDArray[np.float64]

DENSE_CELLS = 2_000
"""Largest matrix whose eigenvalues are taken for a bound on a sum of terms."""
SINGLE_CELLS = 4_096
"""The same for one factor of one term, which is solved once and kept."""


def svd_bound(subworkload: Subworkload) -> float:
    """A lower bound on tr(G V⁺) over every strategy at privacy cost 1 (rows²).

    One product term: (Π_k tr G_k^½)² / N, exact. A sum of terms on at most ``DENSE_CELLS`` cells:
    the same from the eigenvalues of G. Otherwise the sum of the terms' own bounds. That is valid
    because the optimum is superadditive: for any V, tr((G₁ + G₂) V⁺) = tr(G₁ V⁺) + tr(G₂ V⁺), a V
    feasible for G₁ + G₂ is feasible for both (range(G₁ + G₂) holds the range of either, being
    sums of positive semidefinite matrices), so the minimum of the sum is at least the sum of the
    minima.
    """
    if len(subworkload.terms) > 1 and subworkload.cells <= DENSE_CELLS:
        return root_trace(subworkload.gram()) ** 2 / subworkload.cells
    return float(sum(_term_bound(term, len(subworkload.shape)) for term in subworkload.terms))


def root_trace(gram: Array) -> float:
    """tr G^½ of a positive semidefinite matrix (N, N)."""
    return root_sum(np.asarray(np.linalg.eigvalsh(gram), dtype=np.float64))


def root_sum(eigenvalues: Array) -> float:
    """Σ√σ without the rounding of zeros: an error ε in σ = 0 would count as √ε."""
    noise = eigenvalues.size * np.finfo(np.float64).eps * float(eigenvalues.max(initial=0.0))
    return float(np.sqrt(eigenvalues[eigenvalues > noise]).sum())


def _term_bound(term: Term, axes: int) -> float:
    if is_product(term, axes):
        return term.scale * math.prod(_factor_bound(factor) for factor in term.factors)
    (joint,) = term.factors
    return term.scale * _factor_bound(joint)


@lru_cache(maxsize=4_096)
def _factor_bound(queries: CenteredQueries) -> float:
    """(tr G^½)² / N of one factor.

    Past ``SINGLE_CELLS`` cells and rows, and with no known spectrum, (tr G^½)² ≥ tr G is all that
    is used: valid, and weak.
    """
    cells = math.prod(queries.shape)
    known = known_eigenvalues(queries)
    if known is not None:
        return root_sum(known) ** 2 / cells
    rows = queries.rows()
    if rows is not None and len(rows) <= SINGLE_CELLS:
        return root_trace(rows @ rows.T) ** 2 / cells
    if cells <= SINGLE_CELLS:
        return root_trace(queries.gram()) ** 2 / cells
    return gram_trace(queries) / cells
