"""Mechanisms on the table over all attributes in use: identity, and the full problem solved.

Splitting a workload by residual spaces costs a few percent where one attribute, or a small domain,
is all there is; there the full problem can be solved as it is (OPT_0 of McKenna et al.).
"""

from __future__ import annotations

from adaptive_qs.strategy.certified.dense import solve_dense
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

FULL_CELLS = 512
"""Largest domain of several attributes for which the full problem is tried."""
FULL_AXIS = 1_024
"""Largest single attribute for which the full problem is tried."""


def is_small(workload: QueryWorkload) -> bool:
    """Whether the full problem is worth solving beside the split one."""
    clique = used_attributes(workload)
    return workload.domain.size(clique) <= (FULL_AXIS if len(clique) == 1 else FULL_CELLS)


def identity(decomposition: Decomposition, settings: SolverSettings) -> WholeDomainMechanism:
    """Noise on every cell of the table over all attributes in use."""
    workload = decomposition.workload
    clique = used_attributes(workload)
    strategy = Strategy(tuple(IdentityFactor(n) for n in workload.domain.shape(clique)))
    bound = any_mechanism_bound(decomposition, settings)
    return WholeDomainMechanism(workload, clique, strategy, bound, Status.RESTRICTED)


def solve_full(workload: QueryWorkload, settings: SolverSettings) -> WholeDomainMechanism:
    """The certified optimum on the cells of all attributes in use, among all matrix mechanisms."""
    clique = used_attributes(workload)
    shape = workload.domain.shape(clique)
    solution = solve_dense(full_gram(workload, clique), shape, settings)
    return WholeDomainMechanism(
        workload, clique, solution.strategy, solution.lower_bound, solution.status
    )
