"""Mechanisms by name, and the choice among them."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from adaptive_qs.arguments import check_choice
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import StepProgress, linear_algebra
from adaptive_qs.strategy import MECHANISMS, residual_mechanism
from adaptive_qs.strategy.bounds import solve_fourier, solve_residual_planner
from adaptive_qs.strategy.hdmm import solve_product
from adaptive_qs.strategy.mechanism import (
    Mechanism,
    TableMechanism,
    any_mechanism_bound,
    may_be_solved,
    solve_full,
    used_attributes,
)
from adaptive_qs.strategy.optimal import LARGE_AXIS, SolveCache, solve
from adaptive_qs.strategy.solution import IdentityFactor, SolverSettings, Status, Strategy
from adaptive_qs.workload.residuals import Decomposition, decompose_workload
from adaptive_qs.workload.workload import QueryWorkload

# A split pays for measuring residual spaces apart. On a table over all attributes in use that is
# small enough to be measured, a product strategy for all of them can be several percent better. It
# is tried only where it is quick to find.


def may_be_product(workload: QueryWorkload, settings: SolverSettings) -> bool:
    """Return whether a product is worth a try: few sets, no joint queries, a table that fits."""
    most_sets = 256  # most attribute sets for which a product strategy is tried
    if workload.num_sets > most_sets or any(part.joint is not None for part in workload.parts):
        return False
    clique = used_attributes(workload)
    most_cells = 10_000_000  # most cells of the table that a product strategy measures
    cell_bytes = 64  # memory in bytes per cell of that table, from counting to the estimate
    most = min(most_cells, settings.max_bytes // cell_bytes)
    largest = max(workload.domain.shape(clique))
    return largest <= LARGE_AXIS and workload.domain.size(clique) <= most


@dataclass(frozen=True, eq=False)
class MechanismChoice:
    """A mechanism and how it was found."""

    name: str  # the mechanism, one of ``MECHANISMS`` other than "auto"
    mechanism: Mechanism
    subworkloads: int  # residual spaces, or 1 for a mechanism that does not split the workload
    distinct_solves: int  # optimisation problems that were solved


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """Arguments of :func:`choose_mechanism`."""

    workload: QueryWorkload
    settings: SolverSettings
    jobs: int
    progress: StepProgress | None

    @cached_property
    def decomposition(self) -> Decomposition:
        """The residual spaces that the workload reaches, and the problem in each."""
        return decompose_workload(self.workload, self.settings.max_bytes * self.jobs)


def choose_mechanism(
    workload: QueryWorkload,
    name: str = "auto",
    settings: SolverSettings | None = None,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> MechanismChoice:
    """Plan a workload with the mechanism ``name``, one of ``MECHANISMS``, on ``jobs`` threads.

    ``progress`` is called with how many problems of how many are solved.

    Raises:
        InputError: there is no such mechanism, or it cannot answer such queries.
        ResourceExceeded: a subworkload is too large for the mechanism's solver, or the table of
            the whole domain for any number.
    """
    check_choice("mechanism", name, MECHANISMS)
    request = PlanRequest(workload, settings or SolverSettings(), jobs, progress)
    with np.errstate(over="ignore"):
        choice = MECHANISMS[name](request)
        if not math.isfinite(choice.mechanism.total_error):
            raise ResourceExceeded(
                f"the error of mechanism {choice.name} on all cells of the attributes is "
                "beyond any number: use the mechanism auto"
            )
    return choice


def plan_auto(request: PlanRequest) -> MechanismChoice:
    """Plan QuerySmasher; if anything could be better, also try a strategy for the whole table."""
    d, settings, workload = request.decomposition, request.settings, request.workload
    best = _smashed("querysmasher", request, residual_mechanism.affordable_solver(settings))
    split, problems = best.mechanism, best.distinct_solves
    whole = may_be_solved(workload, settings)
    product = may_be_product(workload, settings)
    if not whole and not product:
        return best
    bound = any_mechanism_bound(d)
    # Most codes of an attribute for a search, with one solve for each attribute and sweep
    searched_axis = 256
    if product and split.total_error > bound * (1 + settings.gap):
        with suppress(ResourceExceeded), linear_algebra().limit(limits=1):  # many small solves
            found = solve_product(workload, bound, settings, searched_axis)
            problems += 1
            best, bound = _better(best, found, problems), max(bound, found.lower_bound)
    if whole and best.mechanism.total_error > bound * (1 + settings.gap):
        with suppress(ResourceExceeded):
            full = solve_full(workload, settings)
            best, bound = _better(best, full, problems + 1), max(bound, full.lower_bound)
    return replace(best, mechanism=_bounded(best.mechanism, bound, settings.gap))


def _bounded(mechanism: Mechanism, bound: float, gap: float) -> Mechanism:
    """Return the mechanism with a bound for all matrix mechanisms if that is better.

    A bound of the mechanism's own kind holds for no other, so it stays with the mechanism.
    """
    if isinstance(mechanism, residual_mechanism.ResidualMechanism):
        return replace(mechanism, any_bound=bound)
    assert isinstance(mechanism, TableMechanism)
    if bound <= mechanism.lower_bound:
        return mechanism
    reached = mechanism.total_error <= bound * (1 + gap)
    status = Status.OPTIMAL if reached else mechanism.status
    return replace(mechanism, lower_bound=bound, status=status)


def _better(best: MechanismChoice, found: TableMechanism, problems: int) -> MechanismChoice:
    if found.total_error < best.mechanism.total_error and _is_sound(found):
        return MechanismChoice("hdmm", found, 1, problems)
    return best


def _is_sound(found: TableMechanism) -> bool:
    """Return whether all answers are unbiased and have the stated variances.

    An ill-conditioned strategy may lose queries, or its covariance may not be its own. Variances of
    cells do not matter: a cell without a query can have none.
    """
    largest, _ = found.largest_variance()
    figures = np.array([largest, found.total_error])
    finite = all(factor.is_finite for factor in found.strategy.factors)
    if not (np.isfinite(figures).all() and finite):
        return False
    biases = [found.compute_bias(part, index) for part, index, _ in found.workload.sets()]
    # Largest part of a query that rounding in the solvers may lose; the integers that are measured
    # restore it
    most_bias = 1e-6
    return bool((figures > 0).all() and np.max(biases) <= most_bias)


def plan_querysmasher(request: PlanRequest) -> MechanismChoice:
    """Plan QuerySmasher: the optimum of every residual space (He et al.)."""
    cache = SolveCache()
    return _smashed("querysmasher", request, lambda s: solve(s, request.settings, cache))


def plan_residualplanner(request: PlanRequest) -> MechanismChoice:
    """Plan ResidualPlanner: the same contrasts for all queries, optimal for marginals."""
    return _smashed("residualplanner", request, solve_residual_planner)


def plan_fourier(request: PlanRequest) -> MechanismChoice:
    """Plan Weighted Fourier Factorizations: noise on Fourier coefficients (He et al.)."""
    return _smashed("wff", request, solve_fourier)


def plan_hdmm(request: PlanRequest) -> MechanismChoice:
    """Plan HDMM: a product of strategies or weighted marginals (McKenna et al.).

    Measuring weighted marginals is measuring residuals with shares, of which ResidualPlanner has
    the best. If they meet the bound, as for marginals, nothing else is tried.
    Queries that are no products are refused (WorkloadError).
    """
    d, gap = request.decomposition, request.settings.gap
    bound = any_mechanism_bound(d)
    found: Mechanism = replace(residual_mechanism.smash(d, solve_residual_planner), any_bound=bound)
    if found.total_error > bound * (1 + gap):
        product = solve_product(request.workload, bound, request.settings)
        found = min(found, product, key=lambda mechanism: mechanism.total_error)
        found = _bounded(found, max(bound, product.lower_bound), gap)
    return MechanismChoice("hdmm", found, found.num_measurements, found.num_measurements)


def plan_identity(request: PlanRequest) -> MechanismChoice:
    """Plan noise on every cell of the table over all attributes in use."""
    workload, clique = request.workload, used_attributes(request.workload)
    strategy = Strategy(tuple(map(IdentityFactor, workload.domain.shape(clique))))
    found = TableMechanism(workload, clique, strategy, any_mechanism_bound(request.decomposition))
    return MechanismChoice("identity", found, 1, 0)


def _smashed(name: str, request: PlanRequest, solver: residual_mechanism.Solver) -> MechanismChoice:
    d = request.decomposition
    found = residual_mechanism.smash(d, solver, request.jobs, request.progress)
    return MechanismChoice(name, found, len(d.residuals), len(d.subworkloads))
