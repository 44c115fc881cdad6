"""What the loop chooses from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain


class ResidualIndex:
    """Finds the cliques that contain residuals."""

    def __init__(self, domain: Domain, cliques: Sequence[Clique]) -> None:
        self._size = len(cliques)
        around: list[list[int]] = [[] for _ in range(domain.positions)]
        for row, clique in enumerate(cliques):
            for position in clique:
                for coarser in domain.chain(position):
                    around[coarser].append(row)
        self._around = [np.array(rows, dtype=np.int64) for rows in around]
        self._coarsest = [domain.chain(i)[-1] for i in range(len(domain))]

    def containing(self, residuals: Iterable[Clique]) -> NDArray[np.bool_]:
        """Return which cliques contain one of the residuals, shape (cliques,)."""
        hit = np.zeros(self._size, dtype=np.bool_)
        for residual in residuals:
            if not residual:
                hit[:] = True
                break
            if len(residual) == 1:  # over codes, and in marginals at every level
                hit[self._around[self._coarsest[residual[0]]]] = True
                continue
            rows, *others = sorted((self._around[i] for i in residual), key=len)
            for other in others:
                rows = np.intersect1d(rows, other, assume_unique=True)
            hit[rows] = True
        return hit
