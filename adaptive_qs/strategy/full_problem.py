"""Mechanisms on the table over all attributes in use: identity, and the full problem solved.

Splitting a workload by residual spaces costs a few percent where one attribute, or a small domain,
is all there is; there the full problem can be solved as it is (OPT_0 of McKenna et al.).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.strategy.bounds import svd_bound
from adaptive_qs.strategy.certified import solve_dense
from adaptive_qs.strategy.matrix import IdentityFactor, Strategy
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.strategy.whole_domain import WholeDomainMechanism
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.query_workload import QueryWorkload

Array = NDArray[np.float64]

FULL_CELLS = 512
"""Largest domain of several attributes for which the full problem is tried."""
FULL_AXIS = 2_048
"""Largest single attribute for which the full problem is tried."""


def any_mechanism_bound(decomposition: Decomposition) -> float:
    """No matrix mechanism of privacy cost 1 has a smaller total error, of whatever kind.

    The singular value bound of the whole workload: its Gram matrix is the orthogonal sum of the
    subworkloads' ones spread over the other axes, so the roots of their bounds add up.
    """
    roots = np.sqrt([svd_bound(subworkload) for subworkload in decomposition.subworkloads])
    return float((roots[decomposition.class_of] * np.sqrt(decomposition.scales)).sum() ** 2)


def used_attributes(workload: QueryWorkload) -> Clique:
    """The attributes that some query depends on."""
    return tuple(sorted({int(i) for part in workload.parts for i in np.unique(part.cliques)}))


def is_small(workload: QueryWorkload) -> bool:
    """Whether the full problem is worth solving beside the split one."""
    clique = used_attributes(workload)
    return workload.domain.size(clique) <= (FULL_AXIS if len(clique) == 1 else FULL_CELLS)


def identity(decomposition: Decomposition) -> WholeDomainMechanism:
    """Noise on every cell of the table over all attributes in use."""
    workload = decomposition.workload
    clique = used_attributes(workload)
    strategy = Strategy(tuple(IdentityFactor(n) for n in workload.domain.shape(clique)))
    bound = any_mechanism_bound(decomposition)
    return WholeDomainMechanism(workload, clique, strategy, bound, Status.RESTRICTED)


def solve_full(workload: QueryWorkload, settings: SolverSettings) -> WholeDomainMechanism:
    """The certified optimum on the cells of all attributes in use, among all matrix mechanisms."""
    clique = used_attributes(workload)
    shape = workload.domain.shape(clique)
    solution = solve_dense(full_gram(workload, clique), shape, settings)
    return WholeDomainMechanism(
        workload, clique, solution.strategy, solution.lower_bound, solution.status
    )


def full_gram(workload: QueryWorkload, clique: Clique) -> Array:
    """Gram matrix of a workload on the cells over ``clique``, shape (N, N)."""
    shape = workload.domain.shape(clique)
    cells = math.prod(shape)
    codes = np.indices(shape).reshape(len(shape), cells)
    total = np.zeros((cells, cells))
    for part in workload.parts:
        for index, weight in enumerate(part.weights):
            gram: Array = np.ones((1, 1))
            for queries in part.queries(index):
                gram = np.kron(gram, queries.gram()).astype(np.float64, copy=False)
            axes = [clique.index(i) for i in part.cliques[index].tolist()]
            inner = np.ravel_multi_index(codes[axes], [shape[axis] for axis in axes])
            total += weight * gram[np.ix_(inner, inner)]
    return total
