"""What a solver returns: a strategy with the evidence of how good it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from adaptive_qs.strategy.matrix import Strategy


class Status(StrEnum):
    """How a solution relates to the optimum of its problem."""

    OPTIMAL = "optimal"
    """A closed form, or an iteration that reached the gap asked for."""
    STOPPED = "stopped"
    """The iteration limit came first: the gap is honest, and larger than asked for."""
    RESTRICTED = "restricted"
    """The best of a family of strategies that need not contain the optimum."""


@dataclass(frozen=True)
class Solution:
    """A strategy at privacy cost 1, its error, and a bound that no strategy beats.

    Attributes:
        strategy: normalised: the largest column norm is 1, so noise of variance σ² costs β = 1/σ².
        objective: Σ weight · variance (rows²) over the queries with unit noise variance,
            tr(G V⁺) with V = BᵀB.
        lower_bound: no strategy of the same problem at privacy cost 1 has a smaller objective.
        status: what the solver can say.
        iterations: how many the solver took; 0 for a closed form.
    """

    strategy: Strategy
    objective: float
    lower_bound: float
    status: Status
    iterations: int = 0

    @property
    def gap(self) -> float:
        """Relative gap of the squared error: objective / lower_bound − 1 (0 where both are 0)."""
        return self.objective / self.lower_bound - 1 if self.lower_bound > 0 else 0.0
