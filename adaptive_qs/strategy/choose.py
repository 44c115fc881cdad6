"""Mechanisms by name, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from adaptive_qs.arguments import check_choice
from adaptive_qs.domain import Clique
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import StepProgress, linear_algebra
from adaptive_qs.strategy import MECHANISMS, table_mechanism
from adaptive_qs.strategy.fixed_basis import (
    solve_fourier,
    solve_residual_planner,
)
from adaptive_qs.strategy.fixed_point import exchangeable, solve_axis
from adaptive_qs.strategy.hdmm import Operators, product_workload
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.strategy.optimal import SolveCache, check_dense, solve
from adaptive_qs.strategy.residual_mechanism import (
    ResidualMechanism,
    Solver,
    affordable_solver,
    smash,
)
from adaptive_qs.strategy.solution import (
    Array,
    IdentityFactor,
    SolverSettings,
    Status,
    Strategy,
)
from adaptive_qs.strategy.table_mechanism import (
    TableMechanism,
    any_mechanism_bound,
    of_products,
    used_attributes,
)
from adaptive_qs.strategy.waves import LARGE_AXIS
from adaptive_qs.workload.residuals import Decomposition, decompose_workload
from adaptive_qs.workload.workload import QueryWorkload

# Product strategies of HDMM that the automatic choice compares with the split by residuals.
#
# A split pays for measuring residual spaces apart. On a table over all attributes in use that is
# small enough to be measured, OPT_⊗ of McKenna et al. can be several percent better, and OPT_+
# where few sets share little. Both are tried only where they are quick to find.

MOST_CELLS = 10_000_000
"""Most cells of the table that a candidate measures."""
CELL_BYTES = 64
"""Memory in bytes per cell of that table, from counting to the estimate."""
MOST_SETS = 256
"""Most attribute sets for which candidates are tried."""
MOST_GROUPED = 40
"""Most attribute sets that are put into groups."""
SEARCHED_AXIS = 256
"""Most codes of an attribute for a search, with one solve for each attribute and sweep."""


def has_candidates(workload: QueryWorkload, settings: SolverSettings) -> bool:
    """Return whether there are products to try: few sets, no joint queries, a table that fits."""
    if workload.num_sets > MOST_SETS or any(part.joint is not None for part in workload.parts):
        return False
    most = min(MOST_CELLS, settings.max_bytes // CELL_BYTES)
    return workload.domain.size(used_attributes(workload)) <= most


def product_candidates(
    workload: QueryWorkload, bound: float, settings: SolverSettings
) -> Iterator[TableMechanism]:
    """Yield OPT_⊗, optimal axis by axis if the workload is one product; else OPT_⊗ and OPT_+.

    No matrix mechanism has a smaller total error than ``bound``.
    """
    clique = used_attributes(workload)
    if max(workload.domain.shape(clique)) > LARGE_AXIS:
        return
    try:
        products = product_workload(workload, settings, clique)
        whole = products.factorised()
        if whole is not None:
            with linear_algebra().limit(limits=1):  # threads gain little at these sizes
                found = _optimal_product(workload, clique, whole, bound, settings)
            yield found
            return
    except ResourceExceeded:
        return
    if max(products.sizes) > SEARCHED_AXIS:
        return
    operators = Operators(settings, np.random.default_rng(0))
    with linear_algebra().limit(limits=1):  # many small solves
        product = operators.product(products, restarts=1)
    yield of_products(workload, clique, product, bound)
    if 1 < len(products) <= MOST_GROUPED:
        with linear_algebra().limit(limits=1):
            union = operators.union(products)
        if len(union.groups) > 1:
            yield of_products(workload, clique, union, bound)


def _optimal_product(
    workload: QueryWorkload,
    clique: Clique,
    grams: tuple[Array, ...],
    bound: float,
    settings: SolverSettings,
) -> TableMechanism:
    """Return the optimum for ⊗G_i, the product of the optima; so is the bound."""
    single = replace(settings, gap=math.expm1(math.log1p(settings.gap) / len(grams)))
    solutions = []
    for gram in grams:
        if exchangeable(gram) is None:
            check_dense(gram.shape[:1], single)
        solutions.append(solve_axis(gram, single))
    objective = math.prod(solution.objective for solution in solutions)
    best = max(bound, math.prod(solution.lower_bound for solution in solutions))
    status = Status.OPTIMAL if objective <= best * (1 + settings.gap) else Status.STOPPED
    factors = tuple(factor for solution in solutions for factor in solution.strategy.factors)
    return TableMechanism.single(workload, clique, Strategy(factors), best, status)


GROUPED_ERROR = 0.9
"""Largest squared error of separately measured groups, relative to that of consistent answers, with
which they are preferred: an RMSE that is 5 % smaller."""
MOST_BIAS = 1e-6
"""Largest part of a query that rounding in the solvers may lose; the integers that are measured
restore it."""


@dataclass(frozen=True, eq=False)
class MechanismChoice:
    """A mechanism and how it was found.

    Attributes:
        name: the mechanism, one of ``MECHANISMS`` other than "auto".
        mechanism: what to measure.
        subworkloads: residual spaces, or 1 for a mechanism that does not split the workload.
        distinct_solves: optimisation problems that were solved.
    """

    name: str
    mechanism: Mechanism
    subworkloads: int
    distinct_solves: int


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


Planner = Callable[[PlanRequest], MechanismChoice]
"""Plans the mechanism of one name; raises as :func:`choose_mechanism` does."""


def choose_mechanism(
    workload: QueryWorkload,
    name: str = "auto",
    settings: SolverSettings | None = None,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> MechanismChoice:
    """Plan a workload with the mechanism of this name.

    Args:
        workload: what is to be answered.
        name: one of ``MECHANISMS``.
        settings: gap, iterations and memory of the solvers.
        jobs: threads that solve.
        progress: called with how many problems of how many are solved.

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
    """Plan QuerySmasher, or a strategy for the whole table if that is better.

    Groups that are measured apart contradict each other within their noise, so they have to be
    considerably better; all other mechanisms estimate one table, and their answers agree.
    Where no mechanism at all could be better nothing else is tried.
    """
    d, settings, workload = request.decomposition, request.settings, request.workload
    best = _smashed("querysmasher", request, affordable_solver(settings))
    split, problems = best.mechanism, best.distinct_solves
    whole = table_mechanism.may_be_solved(workload, settings)
    products = has_candidates(workload, settings)
    if not whole and not products:
        return best
    bound = any_mechanism_bound(d)
    if products and split.total_error > bound * (1 + settings.gap):
        for found in product_candidates(workload, bound, settings):
            problems += found.num_measurements
            best, bound = _better(best, found, problems), max(bound, found.lower_bound)
    if whole and best.mechanism.total_error > bound * (1 + settings.gap):
        with suppress(ResourceExceeded):
            full = table_mechanism.solve_full(workload, settings)
            best, bound = _better(best, full, problems + 1), max(bound, full.lower_bound)
    return replace(best, mechanism=_bounded(best.mechanism, bound, settings.gap))


def _bounded(mechanism: Mechanism, bound: float, gap: float) -> Mechanism:
    """Return the mechanism with a bound for all matrix mechanisms if that is better.

    A bound of the mechanism's own kind holds for no other, so it stays with the mechanism.
    """
    if isinstance(mechanism, ResidualMechanism):
        return replace(mechanism, any_bound=bound)
    assert isinstance(mechanism, TableMechanism)
    if bound <= mechanism.lower_bound:
        return mechanism
    reached = mechanism.total_error <= bound * (1 + gap)
    status = Status.OPTIMAL if reached else mechanism.status
    return replace(mechanism, lower_bound=bound, status=status)


def _better(best: MechanismChoice, found: TableMechanism, problems: int) -> MechanismChoice:
    most = GROUPED_ERROR if found.num_measurements > 1 else 1.0
    if not (found.total_error < most * best.mechanism.total_error and _is_sound(found)):
        return best
    return MechanismChoice("hdmm", found, found.num_measurements, problems)


def _is_sound(found: TableMechanism) -> bool:
    """Return whether all answers are unbiased and have the stated variances.

    An ill-conditioned strategy may lose queries, or its covariance may not be its own. Variances of
    cells do not matter: one that no query asks about may have none.
    """
    factors = [f for m in found.measurements for f in m.strategy.factors]
    largest, _ = found.largest_variance()
    figures = np.array([largest, found.total_error])
    if not (np.isfinite(figures).all() and all(factor.is_finite for factor in factors)):
        return False
    biases = [found.compute_bias(part, index) for part, index, _ in found.workload.sets()]
    return bool((figures > 0).all() and np.max(biases) <= MOST_BIAS)


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
    """Plan HDMM: a product, a union of products or weighted marginals (McKenna et al.)."""
    found = table_mechanism.hdmm(request.decomposition, request.settings)
    return MechanismChoice("hdmm", found, found.num_measurements, found.num_measurements)


def plan_identity(request: PlanRequest) -> MechanismChoice:
    """Plan noise on every cell of the table over all attributes in use."""
    workload, clique = request.workload, used_attributes(request.workload)
    strategy = Strategy(tuple(map(IdentityFactor, workload.domain.shape(clique))))
    bound = any_mechanism_bound(request.decomposition)
    found = TableMechanism.single(workload, clique, strategy, bound)
    return MechanismChoice("identity", found, 1, 0)


def _smashed(name: str, request: PlanRequest, solver: Solver) -> MechanismChoice:
    d = request.decomposition
    found = smash(d, solver, request.jobs, request.progress)
    return MechanismChoice(name, found, len(d.residuals), len(d.subworkloads))
