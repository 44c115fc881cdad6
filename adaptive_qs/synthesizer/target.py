"""The privacy that a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import epsilon_of, rho_of
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.parameters import chosen_delta, delta_left, positive_number

MIN_RHO, MAX_RHO = 1e-12, 1e12
"""Budgets outside lead to noise that no exact sampler can draw."""


@dataclass(frozen=True)
class PrivacyTarget:
    """A zCDP budget and the (ε, δ) that it implies.

    Attributes:
        rho: the budget ρ.
        epsilon: ε at this δ.
        delta: δ.
        discovery_delta: the share of δ for discovering values; the rest converts ρ to ε.
    """

    rho: float
    epsilon: float
    delta: float
    discovery_delta: Fraction = Fraction(0)

    @property
    def cost(self) -> Cost:
        """The budget in whole units, rounded down."""
        return Cost.within(self.rho, self.discovery_delta)

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_share: Fraction | int = 0,
    ) -> Self:
        """The target given either as (epsilon, delta) or as rho.

        With rho, delta only says at which δ the implied ε is reported.

        Args:
            epsilon: ε of the whole run.
            delta: δ of the whole run, by default 1e-9.
            rho: the budget ρ instead of ``epsilon``.
            discovery_share: part of δ set aside for discovering values.

        Raises:
            InputError: both or neither of epsilon and rho, or a value out of range.
        """
        if (epsilon is None) == (rho is None):
            came = "neither epsilon nor rho was" if rho is None else "both epsilon and rho were"
            raise InputError(f"{came} given: give one of them")
        delta = chosen_delta(delta)
        discovery = Fraction(delta) * discovery_share
        left = delta_left(delta, discovery)
        if epsilon is not None:
            epsilon = positive_number("epsilon", epsilon)
            target = cls(rho_of(epsilon, left), epsilon, delta, discovery)
        else:
            rho = positive_number("rho", rho)
            target = cls(rho, epsilon_of(rho, left), delta, discovery)
        if not MIN_RHO <= target.rho <= MAX_RHO:
            raise InputError(
                f"the budget is rho {target.rho:.3g} (zCDP): give one from {MIN_RHO:g}, below "
                f"which there is nothing but noise, to {MAX_RHO:g}, above which there is none"
            )
        return target
