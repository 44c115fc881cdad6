"""Whether pairs of ordered columns are filled by a copula, and ρ for the halves that it needs.

A cheap measurement of the halves of all pairs comes first. Only if it shows that most columns
depend strongly on each other, the halves are measured precisely. All of it follows from released
values.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from adaptive_qs.cliques import Array
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.copula import Halves
from adaptive_qs.loop.candidates import with_halves
from adaptive_qs.loop.estimates import Estimates
from adaptive_qs.loop.expected import DEPENDENCE
from adaptive_qs.residual import ReferenceModel
from adaptive_qs.workload.workload import Workload

LOOK_SHARE = 0.02
"""Largest part of the budget left that the first measurement takes."""
LOOK_STD = 0.25
"""Standard deviation of a correlation of halves that is enough for it."""
SURE = 3.0
"""Standard deviations by which the sum of squared correlations exceeds what noise alone makes."""
STRONG = 0.25
"""Least mean squared correlation of halves. At it, normal scores have correlations of about 0.7 and
an L1 distance from independence of 0.5, more than three times ``DEPENDENCE``."""
ERROR_OF_STD = 0.8
"""L1 error (share of the rows) of a pair by the noise of the correlation of its halves: π/2 to that
of normal scores, (2/π)√(2/π) from there."""


def pairs_of_halves(domain: Domain, workload: Workload) -> list[Clique]:
    """Return the halves of the pairs of ordered columns that the workload combines."""
    medians, wanted = domain.medians, {c for c in workload.closure if len(c) == 2}
    return [(medians[i], medians[j]) for i, j in combinations(medians, 2) if (i, j) in wanted]


def with_pairs_to_look_at(estimates: Estimates, workload: Workload, left: float) -> Estimates:
    """Return the estimates over a domain with halves, if levels are offered and a look pays."""
    reference, domain = estimates.model.reference, estimates.model.domain
    halved = with_halves(domain, reference)
    pairs = pairs_of_halves(halved, workload) if domain.groupings else ()
    worth = look_rho(len(pairs), estimates.total, left) > 0
    return estimates.with_reference(reference, halved) if worth else estimates


def look_rho(pairs: int, total: float, left: float) -> float:
    """Return ρ of the first measurement; 0 where its noise would exceed any correlation.

    The residual of two halves has cost 1/4, so that P pairs at ρ have correlations with the
    standard deviation √(P/2ρ) / rows.

    Args:
        pairs: number of pairs.
        total: number of rows.
        left: ρ for this and all later measurements.
    """
    needed = pairs / (2 * max(total, 1.0) ** 2)  # for a standard deviation of 1
    most = LOOK_SHARE * left
    return min(most, needed / LOOK_STD**2) if 0 < needed <= most else 0.0


def more_rho(pairs: int, total: float, left: float) -> float:
    """Return ρ of the second measurement.

    With the part s of the budget, pairs that are filled are off by a/√s and others by b/√(1 − s),
    at most half of ``DEPENDENCE``. The sum is least where s / (1 − s) = (a/b)^(2/3).
    """
    error = ERROR_OF_STD * math.sqrt(pairs / (2 * left)) / max(total, 1.0)
    ratio = (error / (DEPENDENCE / 2)) ** (2 / 3)
    return left * ratio / (1 + ratio)


def depend_strongly(model: ReferenceModel) -> bool:
    """Return whether the measured halves show columns that depend strongly on each other."""
    halves = Halves(model)
    at = np.triu(halves.measured)
    squares: Array = halves.correlations[at] ** 2
    noise = halves.variances[at]
    excess = float((squares / noise).sum()) - squares.size
    sure = excess > SURE * math.sqrt(2 * squares.size)
    return sure and float((squares - noise).mean()) >= STRONG
