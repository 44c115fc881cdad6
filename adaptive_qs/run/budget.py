"""The privacy that a caller asks for, of tables and of answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import epsilon_of, gaussian_epsilon_of, gaussian_mu_of, rho_of
from adaptive_qs.privacy.budget import chosen_delta, delta_left, float_below, positive_number
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost

# The privacy that a caller asks for.

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


# The privacy of a batch release, as its cost β = μ² = 2ρ.
#
# All noise of a batch is Gaussian, so the budget is that of exact Gaussian DP: β is the largest μ²
# whose curve δ(ε) meets the (ε, δ) asked for, 8-15 % more than through zCDP.
#
# The noise is discrete, and this is why its curve is that of Gaussian DP all the same. Divide each
# answer by its σ, which is at least F = ``FINE_NOISE``. All answers together then are a point z of
# a lattice with steps of at most 1/F along each axis, with probability proportional to
# exp(−|z|²/2), and a row moves the point by a lattice vector of some length m ≤ μ. The privacy loss
# depends only on the coordinate t of z along that vector, so that
#
#     δ(ε) = Σ_z exp(−|z⊥|²/2) h(t) / Σ_z exp(−|z|²/2),    h(t) = (exp(−t²/2) − e^ε exp(−(t+m)²/2))₊
#
# while Gaussian DP has integrals in place of both sums. By Poisson's formula a sum over the
# lattice, times the volume of its cell, is the integral plus the Fourier transform at all other
# points ξ of the dual lattice, whose coordinates are multiples of the σ. Below the line that adds a
# share of less than 3 exp(−2π²F²) for each answer: nothing. Above it the transform at a point with
# coordinate τ along the row's vector is at most exp(−2π²|ξ⊥|²) C/(4π²τ²), C the total variation of
# h′ (two integrations by parts; h has one kink). Points with |τ| < 7F/8 have |ξ⊥| > 0.48F: nothing
# again. Cut the others into slabs of width F/8 in τ. In a slab exp(−2π²|ξ⊥|²) is at most e^¼ times
# exp(−64|ξ − c|²/F²), c the slab's centre, and the sum of a Gaussian over a shifted lattice is at
# most its sum over the lattice itself, here 1 + 2e⁻⁶⁴ for each answer. So all slabs together add
# less than 2e^¼ C/(4π²) · (64/F²) Σ_{i≥7} 1/i² < C/F². The integral grows with m, and for no m ≤ μ
# is C above 2¹⁷ times the integral at μ, at all costs up to ``MAX_COST`` and all δ from 10⁻³⁰⁰ on:
# discrete noise makes δ larger by a factor of at most 1 + 2¹⁷/F² = 1 + 2⁻²¹, and δ is lowered by
# SLACK = 2⁻²⁰ of itself first.

SLACK = 2.0**-20
"""Share of δ set aside for the noise being discrete."""
MIN_COST, MAX_COST = 1e-10, 1e6
MAX_EPSILON = 1e9
"""Above it every cost is above ``MAX_COST``."""


@dataclass(frozen=True)
class BatchTarget:
    """A privacy cost and what it implies.

    Attributes:
        cost: β = μ², the privacy cost of He et al.; exact Gaussian DP with μ = √β.
        epsilon: ε implied at this δ.
        delta: δ.
        discovery_share: where bins or values are learnt first, the part of δ set aside for values;
            (ε, δ) is then that of zCDP. None where all noise is that of the batch.
        kept: part of the whole cost that learning leaves to the batch; ``cost`` is that part.
    """

    cost: float
    epsilon: float
    delta: float
    discovery_share: Fraction | None = None
    kept: float = 1.0

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        cost: float | None = None,
        discovery_share: Fraction | None = None,
    ) -> Self:
        """The target given as (epsilon, delta), as rho, or as the privacy cost β itself.

        With rho or cost, delta only says at which δ the implied ε is reported.

        Args:
            epsilon: ε of the whole batch.
            delta: δ of the whole batch, by default 1e-9.
            rho: the budget ρ instead of ``epsilon``.
            cost: β = 2ρ instead of ``epsilon``.
            discovery_share: where bins or values are learnt first, the part of δ set aside for
                values; the budget is then that of zCDP.

        Raises:
            InputError: not exactly one of epsilon, rho and cost, or a value out of range.
        """
        given = {"epsilon": epsilon, "rho": rho, "cost": cost}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            came = " and ".join(named) + " were" if named else "neither epsilon, rho nor cost was"
            raise InputError(f"{came} given: give exactly one of them")
        delta = chosen_delta(delta)
        left = delta_left(delta, Fraction(delta) * (discovery_share or 0))
        if epsilon is not None:
            epsilon = positive_number("epsilon", epsilon)
            beta = _cost_of(epsilon, delta, left, discovery_share is None)
        else:
            beta = (
                2 * positive_number("rho", rho) if cost is None else positive_number("cost", cost)
            )
        if not MIN_COST <= beta <= MAX_COST:
            (name,) = named
            means = "" if name == "cost" else f", which is a privacy cost of {beta:.3g}"
            less = beta < MIN_COST
            limit = MIN_COST if less else MAX_COST
            do, side, leaves = "lower", "above", "no noise"
            if less:
                do, side, leaves = "raise", "below", "nothing but noise"
            raise InputError(
                f"{name} is {float(given[name] or 0):.6g}{means}: {do} it, "
                f"as a cost {side} {limit:g} leaves {leaves}"
            )
        if epsilon is None and discovery_share is not None:
            epsilon = epsilon_of(beta / 2, left)
        elif epsilon is None:
            epsilon = gaussian_epsilon_of(
                math.nextafter(math.sqrt(beta), math.inf), delta * (1 - SLACK)
            )
        return cls(beta, epsilon, delta, discovery_share)

    @property
    def rho(self) -> float:
        """The same cost in zCDP, ρ = β/2."""
        return self.cost / 2

    @property
    def budget(self) -> Cost:
        """The cost and the share of δ in whole units, rounded down."""
        discovery = Fraction(self.delta) * (self.discovery_share or 0)
        return Cost.within(Fraction(self.cost) / 2, discovery)

    def left_of(self, remaining: Cost) -> Self:
        """The same promise, of which only this much is left for the batch."""
        cost = min(self.cost, float_below(2 * remaining.rho))
        return replace(self, cost=cost, kept=cost / self.cost)

    def at(self, epsilon: float) -> Self:
        """The same at another ε.

        Raises:
            InputError: the ε is out of range.
        """
        target = self.of(epsilon, self.delta, discovery_share=self.discovery_share)
        return replace(target, cost=self.kept * target.cost, kept=self.kept)

    @property
    def units(self) -> int:
        """The cost in units of 2**-60 ρ, rounded down."""
        return math.floor(Fraction(self.cost) / 2 * UNITS_PER_RHO)


def _cost_of(epsilon: float, delta: float, left: float, gaussian: bool) -> float:
    """β that implies (ε, δ); ``left`` is the part of δ that zCDP has."""
    if epsilon > MAX_EPSILON:
        return math.inf
    if not gaussian:
        return 2 * rho_of(epsilon, left)
    return math.nextafter(gaussian_mu_of(epsilon, delta * (1 - SLACK)) ** 2, 0.0)
