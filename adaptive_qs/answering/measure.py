"""Measurements with exact integer noise: the part of `answer` that touches private counts.

A strategy on the grid has integer coefficients M, so Mv is exact for counts v, and one row changes
it by at most Δ² = ‖M‖² (the largest squared column norm). Mv is released with discrete Gaussian
noise of variance σ², at ρ = Δ²/(2σ²); σ² is the rational number that makes the cost exactly the
units given. Answers are multiplied by a power of two first where σ would be small, so that the
noise is fine compared with the grid (see :mod:`adaptive_qs.answering.target`).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.privacy.budget import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.grid import integer_answers, squared_sensitivity, table_estimate
from adaptive_qs.strategy.integer_queries import integer_queries
from adaptive_qs.strategy.mechanism import Measurement, QueryMeasurement

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_ROWS = 2**31
"""Most rows of a table that is measured: sums of counts times coefficients stay in 64 bits."""
FINE_NOISE = 2**12
"""Least standard deviation of the integer noise."""


def measure(
    counter: MarginalCounter, mechanisms: Mechanisms, measurement: Measurement, units: int
) -> Array:
    """Release one measurement of a plan.

    Args:
        counter: the private counts, of at most ``MAX_ROWS`` rows.
        mechanisms: charges ``units`` · 2**-60 ρ, then draws.
        measurement: its strategies must be on the grid.
        units: the exact cost.

    Returns:
        What the mechanism's answers need: the estimated table of a strategy (rows; one axis per
        attribute), or noisy answers to queries.
    """
    if isinstance(measurement, QueryMeasurement):
        return _measure_queries(counter, mechanisms, measurement, units)
    factors = measurement.strategy.factors
    values = integer_answers(factors, counter.count(measurement.clique))
    label = _label("strategy", counter.domain, measurement.clique)
    noisy = _release(mechanisms, label, values, squared_sensitivity(factors), units)
    return table_estimate(factors, noisy)


def _measure_queries(
    counter: MarginalCounter, mechanisms: Mechanisms, measurement: QueryMeasurement, units: int
) -> Array:
    factors = integer_queries(measurement.queries)
    scale = math.prod(factor.scale for factor in factors)
    squared = math.prod(factor.squared_norm for factor in factors)
    values = counter.count(measurement.clique)
    for factor in factors:
        values = np.moveaxis(factor.answer(values), 0, -1)
    label = _label("queries", counter.domain, measurement.clique)
    return _release(mechanisms, label, values, squared, units) / scale


def _release(
    mechanisms: Mechanisms, label: str, values: Integers, squared: int, units: int
) -> Array:
    """Noisy values at a cost of exactly ``units``, in the units of the values."""
    variance = Fraction(squared * UNITS_PER_RHO, 2 * units)
    shift = 0
    while variance * 4**shift < FINE_NOISE**2:
        shift += 1
    noisy = mechanisms.release_counts(
        label, values << shift, squared * 4**shift, variance * 4**shift
    )
    return noisy / 2.0**shift


def _label(what: str, domain: Domain, clique: Clique) -> str:
    return f"{what} " + (" x ".join(domain.clique_names(clique)) if clique else "total")
