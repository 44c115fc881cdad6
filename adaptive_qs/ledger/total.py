"""The total of a ledger as its owner gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import epsilon_of, rho_of
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.guard_rails import GuardRail, guard_rails
from adaptive_qs.privacy.parameters import chosen_delta, delta_left, positive_number


@dataclass(frozen=True)
class Total:
    """What all runs on a data set may spend together.

    Attributes:
        limit: in whole units, rounded down.
        declared: in the owner's terms: delta, and epsilon or rho.
    """

    limit: Cost
    declared: dict[str, float]

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_delta: float = 0.0,
    ) -> Self:
        """The total given either as (epsilon, delta) or as rho.

        With rho, delta only says at which δ the implied ε is reported.

        Args:
            discovery_delta: part of delta for runs that discover values; the zCDP part is that of
                the rest.

        Raises:
            InputError: both or neither of epsilon and rho, or a value out of range.
        """
        if (epsilon is None) == (rho is None):
            came = "both --epsilon and --rho" if rho is not None else "neither --epsilon nor --rho"
            raise InputError(f"{came} were given: set the total with one of them")
        delta = chosen_delta(delta)
        if not 0 <= discovery_delta < delta:
            raise InputError(
                f"the delta for discovery is {discovery_delta!r}: give a part of delta {delta:g}"
            )
        if epsilon is not None:
            epsilon = positive_number("epsilon", epsilon)
            left = delta_left(delta, discovery_delta)
            limit = Cost.within(rho_of(epsilon, left), discovery_delta)
            declared = {"epsilon": epsilon, "delta": delta}
        else:
            rho = positive_number("rho", rho)
            limit = Cost.within(rho, discovery_delta)
            declared = {"rho": rho, "delta": delta}
        if limit.rho_units < 1:
            raise InputError("the total is below 2**-60 rho: raise it")
        return cls(limit, declared)

    def rails(self, rows: int | None) -> tuple[GuardRail, ...]:
        """What there is to say about it.

        Args:
            rows: about how many rows the data set has, as far as is public.
        """
        rho, delta = float(self.limit.rho), self.declared["delta"]
        epsilon = self.declared.get("epsilon")
        if epsilon is None:
            epsilon = epsilon_of(rho, delta_left(delta, self.limit.delta))
        std = (2 * rho) ** -0.5
        return guard_rails(epsilon, delta, std, rows, "a count that gets all of it")
