"""Measurements with exact integer noise: the part of `answer` that touches private counts.

A strategy on the grid has integer coefficients M, so Mv is exact for counts v, and one row changes
it by at most Δ² = ‖M‖² (the largest squared column norm). Mv is released with discrete Gaussian
noise of variance σ², at ρ = Δ²/(2σ²); σ² is the rational number that makes the cost exactly the
units given. Answers are multiplied by a power of two first where σ would be small, so that the
noise is fine compared with the grid (see :mod:`adaptive_qs.answering.target`).

Proof: docs/proofs.md, section 4.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.labels import Purpose, measurement_label
from adaptive_qs.privacy.mechanisms import CountsRequest, Mechanisms
from adaptive_qs.strategy.integers.grid import (
    GridFactor,
    integer_answers,
    squared_sensitivity,
    table_estimate,
)
from adaptive_qs.strategy.integers.integer_queries import answer_scale, integer_queries
from adaptive_qs.strategy.mechanisms.mechanism import Measurement, Mechanism, QueryMeasurement

Array = NDArray[np.float64]

MAX_ROWS = 2**31
"""Most rows of a table that is measured. With so many and ``MAX_COST``, values that are multiplied
for noise of ``FINE_NOISE`` stay below 2⁶¹: no coefficient exceeds Δ = σ√β."""
MOST_NOISE_BITS = 44
"""Bits of the largest standard deviation of the integer noise."""
MOST_GRID_BITS = 40
"""More would change no figure that anybody sees."""


def grid_bits(mechanism: Mechanism, units: int, most_rows: int) -> int:
    """Bits that the coefficients of each strategy may have, from public quantities.

    Sums of coefficients over ``most_rows`` rows stay below 2⁶² and the noise inside its sampler.
    """
    shares = (mechanism.measurement(k).share for k in range(mechanism.num_measurements))
    least = min(shares) * 2 * units / UNITS_PER_RHO
    rows = 61 - max(most_rows, 1).bit_length()
    return min(MOST_GRID_BITS, rows, MOST_NOISE_BITS + math.floor(math.log2(least) / 2))


def check_noise(mechanism: Mechanism, units: int) -> None:
    """Refuse queries whose noise is too large to draw, before anything is spent.

    Strategies need no check: ``grid_bits`` leaves room for their noise.

    Raises:
        ResourceExceeded: coefficients of too many sizes, or a budget too small for them.
    """
    seen: set[object] = set()
    for number in range(mechanism.num_measurements):
        measurement = mechanism.measurement(number)
        if isinstance(measurement, QueryMeasurement) and measurement.queries not in seen:
            seen.add(measurement.queries)
            share = measurement.share * 2 * units / UNITS_PER_RHO
            std = math.sqrt(measurement.squared_sensitivity / share)
            if std * answer_scale(measurement.queries) > 2**MOST_NOISE_BITS:
                raise ResourceExceeded(
                    f"noise on {_label(mechanism.workload.domain, measurement)} is too large for "
                    "exact integers: scale the custom matrices alike, or raise the budget"
                )


def measure(
    counter: MarginalCounter,
    mechanisms: Mechanisms,
    measurements: Sequence[Measurement],
    units: Sequence[int],
) -> list[Array]:
    """Release some measurements of a plan, charged all or none.

    Args:
        counter: the private counts, of at most ``MAX_ROWS`` rows.
        mechanisms: charges ``units`` · 2**-60 ρ, then draws.
        measurements: their strategies must be on the grid.
        units: the exact cost of each.

    Returns:
        Noisy answers to each integer strategy or its queries, one axis for each of their factors.
    """
    requests, shifts = [], []
    for measurement, cost in zip(measurements, units):
        request, shift = _request(counter, measurement, cost)
        requests.append(request)
        shifts.append(shift)
    released = mechanisms.release_together(requests)
    return [noisy / 2.0**shift for noisy, shift in zip(released, shifts)]


def estimate(measurement: Measurement, noisy: Array) -> Array:
    """What the mechanism's answers need of a release; post-processing.

    Returns:
        The estimated table of a strategy (rows; one axis per attribute), or noisy answers to
        queries (rows).
    """
    if isinstance(measurement, QueryMeasurement):
        return noisy / answer_scale(measurement.queries)
    return table_estimate(measurement.strategy.factors, noisy)


def _request(
    counter: MarginalCounter, measurement: Measurement, units: int
) -> tuple[CountsRequest, int]:
    """What to release at a cost of exactly ``units``, and by how many bits it is shifted."""
    counts = counter.count(measurement.clique)
    if isinstance(measurement, QueryMeasurement):
        queries = integer_queries(measurement.queries)
        squared = math.prod(factor.squared_norm for factor in queries)
        values = counts
        for factor in queries:
            values = np.moveaxis(factor.answer(values), 0, -1)
    else:
        factors = measurement.strategy.factors
        squared = squared_sensitivity(factors)
        values = integer_answers(factors, counts)
    variance = Fraction(squared * UNITS_PER_RHO, 2 * units)
    shift = 0
    while variance * 4**shift < FINE_NOISE**2:
        shift += 1
    label = _label(counter.domain, measurement)
    definition = _definition(measurement)
    request = CountsRequest(
        label, values << shift, squared * 4**shift, variance * 4**shift, definition
    )
    return request, shift


def _definition(measurement: Measurement) -> str:
    """Digest of the integers that are measured; queries follow from the workload alone."""
    if isinstance(measurement, QueryMeasurement):
        return ""
    factors = measurement.strategy.factors
    parts = [f.digest if isinstance(f, GridFactor) else repr(f) for f in factors]
    return hashlib.sha256(repr((measurement.clique, parts)).encode()).hexdigest()


def _label(domain: Domain, measurement: Measurement) -> str:
    direct = isinstance(measurement, QueryMeasurement)
    purpose = Purpose.QUERIES if direct else Purpose.STRATEGY
    return measurement_label(purpose, domain.clique_names(measurement.clique))
