"""The privacy that a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import epsilon_of, rho_of
from adaptive_qs.privacy.parameters import chosen_delta, positive_number

MIN_RHO, MAX_RHO = 1e-12, 1e12
"""Budgets outside lead to noise that no exact sampler can draw."""


@dataclass(frozen=True)
class PrivacyTarget:
    """A zCDP budget and the (ε, δ) that it implies.

    Attributes:
        rho: the budget ρ.
        epsilon: ε at this δ.
        delta: δ.
    """

    rho: float
    epsilon: float
    delta: float

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
    ) -> Self:
        """The target given either as (epsilon, delta) or as rho.

        With rho, delta only says at which δ the implied ε is reported.

        Raises:
            InputError: both or neither of epsilon and rho, or a value out of range.
        """
        if (epsilon is None) == (rho is None):
            came = "neither epsilon nor rho was" if rho is None else "both epsilon and rho were"
            raise InputError(f"{came} given: give one of them")
        delta = chosen_delta(delta)
        if epsilon is not None:
            epsilon = positive_number("epsilon", epsilon)
            target = cls(rho_of(epsilon, delta), epsilon, delta)
        else:
            rho = positive_number("rho", rho)
            target = cls(rho, epsilon_of(rho, delta), delta)
        if not MIN_RHO <= target.rho <= MAX_RHO:
            raise InputError(
                f"the budget is rho {target.rho:.3g} (zCDP): give one from {MIN_RHO:g}, below "
                f"which there is nothing but noise, to {MAX_RHO:g}, above which there is none"
            )
        return target
