"""How much of the budget each round spends (Fuentes et al., Algorithm 7, on estimates).

The pseudo-code of the paper writes the true marginal in its test; with it the schedule would
depend on private counts. Here the new estimate is compared with the old one, both released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RoundBudget:
    """zCDP of one round.

    Attributes:
        selecting: ρ of the exponential mechanism, ε²/8.
        measuring: ρ of the measurements.
    """

    selecting: float
    measuring: float

    @property
    def total(self) -> float:
        """ρ of the whole round."""
        return self.selecting + self.measuring

    @property
    def epsilon(self) -> float:
        """ε of the exponential mechanism."""
        return math.sqrt(8 * self.selecting)

    @classmethod
    def split(cls, rho: float, selecting_share: float) -> RoundBudget:
        """A round of ``rho`` of which ``selecting_share`` goes to the selection."""
        return cls(rho * selecting_share, rho * (1 - selecting_share))

    def after(self, moved: float, expected: float) -> RoundBudget:
        """The next round's budget, four times as large where this one brought only noise.

        Args:
            moved: L1 distance between the chosen marginal's new and old estimate (rows).
            expected: L1 error expected of the new estimate (rows).
        """
        if moved > expected:
            return self
        return replace(self, selecting=4 * self.selecting, measuring=4 * self.measuring)

    def fitted(self, remaining: float, selecting_share: float) -> RoundBudget:
        """This round, or all that remains where two more such rounds would not fit."""
        if remaining > 2 * self.total:
            return self
        return RoundBudget.split(remaining, selecting_share)
