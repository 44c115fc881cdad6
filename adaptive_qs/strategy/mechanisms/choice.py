"""Mechanisms by name, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.progress import StepProgress
from adaptive_qs.strategy.mechanisms import full_problem, product_candidates, residual_choice
from adaptive_qs.strategy.mechanisms.direct import DirectMechanism
from adaptive_qs.strategy.mechanisms.grouped import GroupedMechanism
from adaptive_qs.strategy.mechanisms.mechanism import Mechanism
from adaptive_qs.strategy.mechanisms.product_candidates import Candidate
from adaptive_qs.strategy.mechanisms.residual_choice import Bases
from adaptive_qs.strategy.mechanisms.residual_mechanism import ResidualMechanism
from adaptive_qs.strategy.mechanisms.whole_bound import any_mechanism_bound
from adaptive_qs.strategy.mechanisms.whole_domain import WholeDomainMechanism
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.decomposition import Decomposition, decompose_workload
from adaptive_qs.workload.query_workload import QueryWorkload

GROUPED_ERROR = 0.9
"""Squared error of groups measured apart, beside that of consistent answers, from which they are
taken: an RMSE that is 5 % smaller."""

MOST_BIAS = 1e-6
"""Part of a query that rounding in the solvers may lose: what is measured is made whole again when
it becomes integers."""


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
class _Request:
    workload: QueryWorkload
    settings: SolverSettings
    bases: Bases | None
    jobs: int
    progress: StepProgress | None

    @cached_property
    def decomposition(self) -> Decomposition:
        return decompose_workload(self.workload)


def choose_mechanism(
    workload: QueryWorkload,
    name: str = "auto",
    settings: SolverSettings | None = None,
    bases: Bases | None = None,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> MechanismChoice:
    """Plan a workload with the mechanism of this name.

    Args:
        workload: what is to be answered.
        name: one of ``MECHANISMS``.
        settings: gap, iterations and memory of the solvers.
        bases: for residualplanner+ only: strategies of some attributes.
        jobs: threads that solve.
        progress: told how many problems of how many are solved.

    Raises:
        InputError: there is no such mechanism, or it cannot answer such queries.
        ResourceExceeded: a subworkload is too large for the mechanism's solver, or the table of
            the whole domain for any number.
    """
    if not (isinstance(name, str) and name in MECHANISMS):
        raise InputError(f"mechanism is {shown(name)}: give one of {', '.join(MECHANISMS)}")
    if bases and name != "residualplanner+":
        raise InputError(f"bases were given for {name!r}: only residualplanner+ takes them")
    request = _Request(workload, settings or SolverSettings(), bases, jobs, progress)
    with np.errstate(over="ignore"):
        choice = MECHANISMS[name](request)
        if not math.isfinite(choice.mechanism.total_error):
            raise ResourceExceeded(
                f"the error of mechanism {choice.name} on all cells of so many attributes is "
                "beyond any number: use the mechanism auto"
            )
    return choice


def _auto(request: _Request) -> MechanismChoice:
    """QuerySmasher as far as it goes, or a strategy for the whole table where that is better.

    Groups that are measured apart contradict each other within their noise, so they have to be
    considerably better; all other mechanisms estimate one table, and their answers agree.
    Where no mechanism at all could be better nothing else is tried.
    """
    d, settings, workload = request.decomposition, request.settings, request.workload
    split = residual_choice.best_affordable(d, settings, request.jobs, request.progress)
    best, problems = _residual("querysmasher", split), len(d.subworkloads)
    whole = full_problem.may_be_solved(workload, settings)
    products = product_candidates.has_candidates(workload, settings)
    if not whole and not products:
        return best
    bound = any_mechanism_bound(d, settings)
    if products and split.total_error > bound * (1 + settings.gap):
        for found in product_candidates.product_candidates(workload, bound, settings):
            problems += found.num_measurements
            best, bound = _better(best, found, problems), max(bound, found.lower_bound)
    if whole and best.mechanism.total_error > bound * (1 + settings.gap):
        with suppress(ResourceExceeded):
            full = full_problem.solve_full(workload, settings)
            best, bound = _better(best, full, problems + 1), max(bound, full.lower_bound)
    return replace(best, mechanism=_certified(best.mechanism, bound, settings.gap))


def _certified(mechanism: Mechanism, bound: float, gap: float) -> Mechanism:
    """The mechanism with a bound that holds for all matrix mechanisms, where that is better.

    A bound of the mechanism's own kind holds for no other, so it stays with the mechanism.
    """
    if isinstance(mechanism, ResidualMechanism):
        return replace(mechanism, any_bound=bound)
    assert isinstance(mechanism, WholeDomainMechanism | GroupedMechanism)
    if bound <= mechanism.lower_bound:
        return mechanism
    mechanism = replace(mechanism, lower_bound=bound)
    if mechanism.total_error > bound * (1 + gap):
        return mechanism
    if isinstance(mechanism, WholeDomainMechanism):
        return replace(mechanism, status=Status.OPTIMAL)
    groups = tuple(replace(group, status=Status.OPTIMAL) for group in mechanism.groups)
    return replace(mechanism, groups=groups)


def _better(best: MechanismChoice, found: Candidate, problems: int) -> MechanismChoice:
    """The candidate where its error is smaller and can be trusted."""
    most = GROUPED_ERROR if isinstance(found, GroupedMechanism) else 1.0
    if not (found.total_error < most * best.mechanism.total_error and _is_sound(found)):
        return best
    return MechanismChoice("hdmm", found, found.num_measurements, problems)


def _is_sound(found: Candidate) -> bool:
    """Whether all queries are answered without bias, with the variances that are stated.

    An ill-conditioned strategy may lose queries, or its covariance may not be its own. Variances of
    cells do not matter: one that no query asks about may have none.
    """
    groups = found.groups if isinstance(found, GroupedMechanism) else (found,)
    covariances = [f.covariance for group in groups for f in group.strategy.factors]
    largest, _ = found.largest_variance()
    figures = np.array([largest, found.total_error])
    if not all(np.isfinite(array).all() for array in (*covariances, figures)):
        return False
    biases = [
        found.bias_of(number, index)
        for number, part in enumerate(found.workload.parts)
        for index in range(len(part))
    ]
    return bool((figures > 0).all() and np.max(biases) <= MOST_BIAS)


def _querysmasher(request: _Request) -> MechanismChoice:
    found = residual_choice.query_smasher(
        request.decomposition, request.settings, request.jobs, request.progress
    )
    return _residual("querysmasher", found)


def _residualplanner(request: _Request) -> MechanismChoice:
    found = residual_choice.residual_planner(request.decomposition, request.jobs, request.progress)
    return _residual("residualplanner", found)


def _residualplanner_plus(request: _Request) -> MechanismChoice:
    found = residual_choice.residual_planner_plus(
        request.decomposition, request.settings, request.bases, request.jobs, request.progress
    )
    return _residual("residualplanner+", found)


def _wff(request: _Request) -> MechanismChoice:
    found = residual_choice.fourier_factorization(
        request.decomposition, request.jobs, request.progress
    )
    return _residual("wff", found)


def _eigen(request: _Request) -> MechanismChoice:
    found = residual_choice.eigen_design(
        request.decomposition, request.settings, request.jobs, request.progress
    )
    return _residual("eigen", found)


def _hdmm(request: _Request) -> MechanismChoice:
    from adaptive_qs.strategy.mechanisms.hdmm_mechanism import hdmm

    found = hdmm(request.decomposition, request.settings)
    return MechanismChoice("hdmm", found, found.num_measurements, found.num_measurements)


def _identity(request: _Request) -> MechanismChoice:
    return MechanismChoice(
        "identity", full_problem.identity(request.decomposition, request.settings), 1, 0
    )


def _gaussian(request: _Request) -> MechanismChoice:
    bound = any_mechanism_bound(request.decomposition, request.settings)
    return MechanismChoice("gaussian", DirectMechanism(request.workload, bound), 1, 0)


def _residual(name: str, found: ResidualMechanism) -> MechanismChoice:
    d = found.decomposition
    return MechanismChoice(name, found, len(d.residuals), len(d.subworkloads))


MECHANISMS: dict[str, Callable[[_Request], MechanismChoice]] = {
    "auto": _auto,
    "querysmasher": _querysmasher,
    "residualplanner": _residualplanner,
    "residualplanner+": _residualplanner_plus,
    "wff": _wff,
    "hdmm": _hdmm,
    "eigen": _eigen,
    "identity": _identity,
    "gaussian": _gaussian,
}
"""The mechanisms by name."""
