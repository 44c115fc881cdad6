"""QuerySmasher: one strategy for each residual space, stitched together (He et al., section 6.4).

Residual τ has a strategy of privacy cost 1 and squared error L_τ. Measured with a share s_τ of the
budget β its error is L_τ/(βs_τ); the total is least for s_τ = √L_τ / Σ√L, namely (Σ√L)²/β. The
same sum over lower bounds of L_τ bounds every mechanism that treats residual spaces separately.
ResidualPlanner, ResidualPlanner+ and Weighted Fourier Factorizations differ only in the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from adaptive_qs.machine import linear_algebra
from adaptive_qs.progress import StepProgress
from adaptive_qs.strategy.mechanisms.residual_mechanism import ResidualMechanism
from adaptive_qs.strategy.solution import Solution
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.subworkload import Subworkload

Solver = Callable[[Subworkload], Solution]


def smash(
    decomposition: Decomposition,
    solver: Solver,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """Solve every class of subworkloads once and divide the budget optimally.

    Args:
        decomposition: the subworkloads.
        solver: for one of them.
        jobs: threads that solve.
        progress: told how many classes are solved, and of how many.

    Raises:
        ResourceExceeded: a subworkload is too large for the solver.
    """
    solutions = solve_all(decomposition.subworkloads, solver, jobs, progress)
    objectives = np.array([solution.objective for solution in solutions])
    shares = np.sqrt(objectives[decomposition.class_of] * decomposition.scales)
    return ResidualMechanism(decomposition, solutions, shares / shares.sum())


def solve_all(
    subworkloads: Sequence[Subworkload],
    solver: Solver,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> tuple[Solution, ...]:
    """The solutions in order; with several threads each linear algebra call keeps to its own."""
    tell = progress or (lambda done, total: None)
    solutions = []
    threads = min(jobs, len(subworkloads))
    limit = None if threads == 1 else 1
    with linear_algebra().limit(limits=limit), ThreadPoolExecutor(threads) as pool:
        for done, solution in enumerate(pool.map(solver, subworkloads), start=1):
            solutions.append(solution)
            tell(done, len(subworkloads))
    return tuple(solutions)
