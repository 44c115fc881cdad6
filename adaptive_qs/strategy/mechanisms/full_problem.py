"""Mechanisms on the table over all attributes in use: identity, and the full problem solved.

Splitting a workload by residual spaces costs a few percent where one attribute, or a small domain,
is all there is; there the full problem can be solved as it is (OPT_0 of McKenna et al.).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.certified import limits
from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.certified.lowrank import solve_rows
from adaptive_qs.strategy.certified.symmetry import symmetric_blocks
from adaptive_qs.strategy.matrix import IdentityFactor, Strategy
from adaptive_qs.strategy.mechanisms.whole_bound import (
    any_mechanism_bound,
    full_gram,
    used_attributes,
)
from adaptive_qs.strategy.mechanisms.whole_domain import WholeDomainMechanism
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.query_workload import QueryWorkload

Array = NDArray[np.float64]


def may_be_solved(workload: QueryWorkload, settings: SolverSettings) -> bool:
    """Whether the full problem may be within memory and time, as far as sizes tell."""
    cells = workload.domain.size(used_attributes(workload))
    if cells > limits.DENSE_CELLS or not limits.dense_fits(cells, settings):
        return False
    return _has_few_queries(workload, cells) or (
        workload.num_sets * cells**2 <= limits.TRIED_WORK // limits.GATHERED_COST
    )


def identity(decomposition: Decomposition, settings: SolverSettings) -> WholeDomainMechanism:
    """Noise on every cell of the table over all attributes in use."""
    workload = decomposition.workload
    clique = used_attributes(workload)
    strategy = Strategy(tuple(IdentityFactor(n) for n in workload.domain.shape(clique)))
    bound = any_mechanism_bound(decomposition, settings)
    return WholeDomainMechanism(workload, clique, strategy, bound, Status.RESTRICTED)


def solve_full(workload: QueryWorkload, settings: SolverSettings) -> WholeDomainMechanism:
    """The certified optimum on the cells of all attributes in use, among all matrix mechanisms.

    Args:
        workload: one that :func:`may_be_solved`.
        settings: gap and iterations.

    Raises:
        ResourceExceeded: its eigenproblems are too large to be solved beside the split one.
    """
    clique = used_attributes(workload)
    shape = workload.domain.shape(clique)
    if _has_few_queries(workload, math.prod(shape)):
        rows = _weighted_rows(workload, clique)
        solution = solve_rows(rows, np.ones(len(rows)), shape, settings)
    else:
        gram = full_gram(workload, clique)
        blocks = symmetric_blocks(lambda x: gram @ x, shape)
        if limits.eigen_work(blocks) > limits.TRIED_WORK:
            raise ResourceExceeded(
                f"the table has {len(gram):,} cells: that is too many to be solved as a whole"
            )
        solution = solve_dense(gram, shape, settings)
    return WholeDomainMechanism(
        workload, clique, solution.strategy, solution.lower_bound, solution.status
    )


def _has_few_queries(workload: QueryWorkload, cells: int) -> bool:
    count = workload.num_queries
    return 2 * count <= cells and count**2 * cells <= limits.TRIED_WORK


def _weighted_rows(workload: QueryWorkload, clique: Clique) -> Array:
    """All queries on the cells over ``clique`` times the roots of their weights, shape (m, N)."""
    shape = workload.domain.shape(clique)
    codes = np.indices(shape).reshape(len(shape), -1)
    rows = []
    for part in workload.parts:
        for index, weight in enumerate(part.weights):
            matrix: Array = np.full((1, 1), math.sqrt(weight))
            for queries in part.queries(index):
                matrix = np.kron(matrix, queries.matrix()).astype(np.float64, copy=False)
            axes = [clique.index(i) for i in part.cliques[index].tolist()]
            inner = np.ravel_multi_index(codes[axes], [shape[axis] for axis in axes])
            rows.append(matrix[:, inner])
    return np.concatenate(rows)
