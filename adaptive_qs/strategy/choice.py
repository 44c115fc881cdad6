"""Mechanisms by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adaptive_qs.errors import InputError
from adaptive_qs.progress import StepProgress
from adaptive_qs.strategy.direct import DirectMechanism
from adaptive_qs.strategy.mechanism import Mechanism
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.query_workload import QueryWorkload


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


Maker = Callable[[QueryWorkload, SolverSettings, int, StepProgress], MechanismChoice]


def choose_mechanism(
    workload: QueryWorkload,
    name: str,
    settings: SolverSettings,
    jobs: int,
    progress: StepProgress,
) -> MechanismChoice:
    """Plan a workload with the mechanism of this name.

    Raises:
        InputError: there is none, or it cannot answer such queries.
        ResourceExceeded: a subworkload is too large for the mechanism's solver.
    """
    if name not in MECHANISMS:
        raise InputError(f"mechanism is {name!r}: give one of {', '.join(MECHANISMS)}")
    return MECHANISMS[name](workload, settings, jobs, progress)


def _gaussian(
    workload: QueryWorkload, settings: SolverSettings, jobs: int, progress: StepProgress
) -> MechanismChoice:
    return MechanismChoice("gaussian", DirectMechanism(workload), 1, 0)


MECHANISMS: dict[str, Maker] = {
    "gaussian": _gaussian,
}
"""The mechanisms by name."""
