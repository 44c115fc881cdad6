"""How hard solvers try."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SolverSettings:
    """Limits shared by all solvers.

    Attributes:
        gap: stop once objective / lower_bound − 1 is at most this (on the squared error).
        max_iterations: stop there in any case, with the gap reached by then.
        max_bytes: most memory one subworkload may take; more is refused.
    """

    gap: float = 1e-4
    max_iterations: int = 1_000
    max_bytes: int = 4 * 2**30
