"""What a table should match: non-negative marginals with the noise they carry."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, subsets
from adaptive_qs.residual.model import ReferenceModel
from adaptive_qs.residual.variance import variance_weight

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A marginal to match.

    Attributes:
        clique: γ.
        counts: non-negative, sums to the number of rows; shaped like the marginal (rows).
        noise_std: standard deviation of the noise in one cell (rows).
    """

    clique: Clique
    counts: Array
    noise_std: float

    def scaled(self, factor: float) -> Target:
        """The same target for a table with ``factor`` times as many rows."""
        return Target(self.clique, self.counts * factor, self.noise_std * factor)


def make_target(model: ReferenceModel, clique: Clique) -> Target:
    """The model's marginal projected onto non-negative tables with the model's total.

    The Euclidean projection (rather than clipping) removes the mass that clipping at zero would
    add. The noise is that of the measured residuals; an unmeasured one adds none.
    """
    total = max(model.total, 1.0)
    domain = model.domain
    precisions = {residual: model.precision(residual) for residual in subsets(clique)}
    variance = math.fsum(
        variance_weight(domain, residual, clique) / precision
        for residual, precision in precisions.items()
        if precision > 0
    )
    counts = project_to_simplex(model.marginal(clique), total)
    return Target(clique, counts, math.sqrt(variance))


def maximal_cliques(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """The cliques that lie in no other, largest first."""
    covered: set[Clique] = set()
    kept: list[Clique] = []
    for clique in sorted(set(cliques), key=lambda c: (-len(c), c)):
        if clique not in covered:
            kept.append(clique)
            covered.update(subsets(clique))
    return tuple(kept)


def project_to_simplex(array: Array, total: float) -> Array:
    """The nearest array, in Euclidean distance, that is non-negative and sums to ``total``.

    Sort-and-threshold (Held, Wolfe and Crowder 1974).
    """
    largest = array.max()
    flat = np.sort(array, axis=None)[::-1] - largest  # keeps the digits of the differences
    excess = np.cumsum(flat) - total
    rank = np.arange(1, flat.size + 1)
    last = np.flatnonzero(flat * rank > excess)[-1]
    return np.maximum(array - largest - excess[last] / (last + 1), 0.0)
