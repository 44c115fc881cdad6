"""The privacy of a batch release, as its cost β = μ² = 2ρ.

All noise of a batch is Gaussian, so the budget is that of exact Gaussian DP: β is the largest μ²
whose curve δ(ε) meets the (ε, δ) asked for, 8-15 % more than through zCDP.

The noise is discrete. For a row with integer effect s the privacy loss is (2⟨y, s⟩ + ‖s‖²)/(2σ²)
with y discrete Gaussian: it lives on a lattice of step g/σ², g the greatest common divisor of s,
and δ(ε) is the expectation over it of (1 − e^{ε−L})₊, a function with one kink. By Poisson
summation the lattice sum differs from the Gaussian integral by at most step² · density/8 at the
kink (and by terms below exp(−2π²σ²/‖s‖²·...) that vanish for the σ used here). Measurements keep
σ ≥ 2¹² and g ≤ Δ ≤ σ√β, so step ≤ √β/2¹²; with density/δ below 10⁶ for β ≤ 1 the relative change
of δ stays below SLACK, by which δ is lowered first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, Self

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import gaussian_epsilon_of, gaussian_mu_of
from adaptive_qs.privacy.budget import UNITS_PER_RHO

DEFAULT_DELTA = 1e-9
SLACK = 2.0**-20
MIN_COST, MAX_COST = 1e-10, 1e10


@dataclass(frozen=True)
class BatchTarget:
    """A privacy cost and what it implies.

    Attributes:
        cost: β = μ², the privacy cost of He et al.; exact Gaussian DP with μ = √β.
        epsilon: ε implied at this δ.
        delta: δ.
    """

    cost: float
    epsilon: float
    delta: float

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        cost: float | None = None,
    ) -> Self:
        """The target given as (epsilon, delta), as rho, or as the privacy cost β itself.

        With rho or cost, delta only says at which δ the implied ε is reported.

        Raises:
            InputError: not exactly one of epsilon, rho and cost, or a value out of range.
        """
        given = {"epsilon": epsilon, "rho": rho, "cost": cost}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            came = " and ".join(named) + " were" if named else "neither epsilon, rho nor cost was"
            raise InputError(f"{came} given: give exactly one of them")
        delta = DEFAULT_DELTA if delta is None else _number("delta", delta)
        if not delta < 1:
            raise InputError(f"delta is {delta!r}: give a number below 1, such as 1e-9")
        if epsilon is not None:
            epsilon = _number("epsilon", epsilon)
            beta = gaussian_mu_of(epsilon, delta * (1 - SLACK)) ** 2
            beta = math.nextafter(beta, 0.0)
        else:
            beta = 2 * _number("rho", rho) if cost is None else _number("cost", cost)
        if not MIN_COST <= beta <= MAX_COST:
            raise InputError(
                f"the privacy cost is {beta:.3g}: give one from {MIN_COST:g}, below which there is "
                f"nothing but noise, to {MAX_COST:g}, above which there is none"
            )
        if epsilon is None:
            epsilon = gaussian_epsilon_of(math.sqrt(beta), delta * (1 - SLACK))
        return cls(beta, epsilon, delta)

    @property
    def rho(self) -> float:
        """The same cost in zCDP, ρ = β/2."""
        return self.cost / 2

    @property
    def units(self) -> int:
        """The cost in units of 2**-60 ρ, rounded down."""
        return math.floor(Fraction(self.cost) / 2 * UNITS_PER_RHO)


def _number(name: str, value: Any) -> float:
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{name} is {value!r}: give a positive finite number")
    return number
