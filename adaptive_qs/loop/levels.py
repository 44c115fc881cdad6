"""At which levels marginals are offered to the loop: public sizes and released values decide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cells import AXES
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.exact import can_fit
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.levels import nested_groupings
from adaptive_qs.loop.estimates import Sizes
from adaptive_qs.residual import ReferenceModel

# A coarse marginal has fewer cells and so less noise for the same budget, and says less. Where the
# budget suffices for codes, levels only divide it among more choices. So they are offered where an
# even division among all marginals over codes would leave each of them off by a good part.

LEAST_ERROR = 0.1
"""Mean L1 error expected over codes, as a part of the rows, from which on levels are offered."""
MOST_CANDIDATES = 50_000
"""Levels are left out, the finest first, where there would be more candidates."""
MOST_SPREAD = 2**20
"""Most cells over codes of a marginal that is offered at coarser levels as well."""


def with_levels(
    domain: Domain, model: ReferenceModel, candidates: Sequence[Clique], error: float
) -> Domain:
    """The domain with the levels at which marginals of it are offered; none where they do not pay.

    Args:
        domain: the attributes.
        model: what was released of single columns.
        candidates: marginals on offer over codes.
        error: :func:`mean_error` of them.
    """
    several = [clique for clique in candidates if len(clique) > 1]
    plain = max(map(len, several), default=0) > AXES
    if error < LEAST_ERROR or plain or can_fit(domain, several, SynthesisSettings().exact_cells):
        return domain
    groupings = [
        grouping
        for i, attribute in enumerate(domain.attributes)
        for grouping in nested_groupings(
            i, model.reference[i], attribute.ordered, attribute.declared
        )
    ]
    while groupings:
        found = replace(domain, groupings=tuple(groupings))
        if len(at_levels(found, candidates)) <= MOST_CANDIDATES:
            return found
        most = max(grouping.number for grouping in groupings)
        groupings = [grouping for grouping in groupings if grouping.number < most]
    return domain


def mean_error(
    shares: Sequence[NDArray[np.float64]], total: float, candidates: Sequence[Clique], rho: float
) -> float:
    """Mean L1 error (share of the rows) of marginals of several columns if each got as much.

    Where it is large the budget suffices for groups of codes or for some of them only, where it is
    small for all of them. Without any it is 0.

    Args:
        shares: of the codes of each column, all of which are taken to be independent.
        total: number of rows.
        candidates: marginals over codes.
        rho: for all those of several columns together.
    """
    several = [clique for clique in candidates if len(clique) > 1]
    total = max(total, 1.0)
    std = np.array([math.sqrt(len(several) / (2 * rho))])
    columns = {q.tobytes(): Sizes.of(q) for q in shares}
    kinds = [[*columns].index(q.tobytes()) for q in shares]
    errors = 0.0
    for kind, number in Counter(tuple(sorted(kinds[i] for i in c)) for c in several).items():
        sizes = reduce(Sizes.times, ([*columns.values()][k] for k in kind))
        errors += number * float(sizes.errors(total, std)[0])
    return errors / total / max(len(several), 1)


def at_levels(domain: Domain, cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """Cliques of codes, and those of them at coarser levels that are offered."""

    def levels(clique: Clique) -> Sequence[Clique]:
        spread = len(clique) > 1 and domain.size(clique) <= MOST_SPREAD
        return tuple(domain.at_levels(clique)) if spread else (clique,)

    return tuple(chain.from_iterable(map(levels, cliques)))


def closure_at_levels(domain: Domain, closure: Sequence[Clique]) -> tuple[Clique, ...]:
    """Every residual of cliques that are closed under subsets, by size."""
    return tuple(chain.from_iterable(domain.at_levels(c) if len(c) > 1 else (c,) for c in closure))
