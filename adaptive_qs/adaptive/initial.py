"""The first measurements: the number of rows and every attribute on its own."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.adaptive.measure import measure_residuals, measurement_cost
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.residual.model import ReferenceModel, uniform_reference
from adaptive_qs.synthesis.targets import make_target

Array = NDArray[np.float64]


TOTAL_SHARE = 0.01
"""Part of ρ spent on the number of rows before anything else."""


def one_way_precisions(domain: Domain, rho: float) -> Array:
    """Precision (1 / rows²) with which to measure each attribute's marginal for ``rho`` in all.

    A variance σ_i² ∝ n_i^(−2/3) minimises the summed L1 error Σ n_i σ_i of noisy marginals that
    cost Σ 1/(2σ_i²).
    """
    weight = np.array([float(n) ** (2 / 3) for n in domain.sizes])
    return 2 * rho * weight / math.fsum(weight)


def initial_share(domain: Domain, rho: float, total: float) -> float:
    """Part of the budget for the one-way marginals, from released quantities alone.

    With E the summed L1 error (share of the rows) that the one-way marginals would have if they
    got everything, the share is E^0.4 / 2, kept between 0.1 and 0.9: where one-way marginals are
    noisy already, interactions are out of reach. The rule was fitted to the tables and budgets
    of ``results/initial_share.csv``; errors are flat around it.

    Args:
        domain: the attributes.
        rho: zCDP of the whole run.
        total: the noisy number of rows.
    """
    noise_std = 1 / np.sqrt(one_way_precisions(domain, rho))
    error = math.sqrt(2 / math.pi) * float(noise_std @ np.array(domain.sizes)) / max(total, 1.0)
    return float(np.clip(0.5 * error**0.4, 0.1, 0.9))


def measure_total(counter: MarginalCounter, mechanisms: Mechanisms, rho: float) -> ReferenceModel:
    """Measure the number of rows with ``rho``; the model has a uniform reference."""
    model = ReferenceModel(counter.domain, uniform_reference(counter.domain))
    precision = 2 * rho / measurement_cost(counter.domain, ())
    _measure(model, counter, mechanisms, {(): precision})
    return model


def measure_one_way(
    counter: MarginalCounter, mechanisms: Mechanisms, model: ReferenceModel, rho: float
) -> None:
    """Measure every one-way residual, and the total as part of them (Fuentes et al., Algorithm 6).

    A marginal measured with variance σ_i² gives its residual with variance σ_i² and the total
    with variance n_i σ_i²; the totals are drawn as one measurement.

    Args:
        counter: the private counts.
        mechanisms: charges ``rho`` in all, then draws.
        model: receives the measurements.
        rho: zCDP to spend.
    """
    _measure(model, counter, mechanisms, one_way_plan(counter.domain, rho))


def one_way_plan(domain: Domain, rho: float) -> dict[Clique, float]:
    """Precision (1 / rows²) with which :func:`measure_one_way` measures each residual."""
    precision = one_way_precisions(domain, rho)
    total_precision = math.fsum(x / n for x, n in zip(precision, domain.sizes))
    cost = measurement_cost(domain, ()) * total_precision
    cost += math.fsum(measurement_cost(domain, (i,)) * x for i, x in enumerate(precision))
    unit = 2 * rho / cost
    precisions: dict[Clique, float] = {(): unit * total_precision}
    precisions |= {(i,): unit * float(precision[i]) for i, n in enumerate(domain.sizes) if n > 1}
    return precisions


def _measure(
    model: ReferenceModel,
    counter: MarginalCounter,
    mechanisms: Mechanisms,
    precisions: Mapping[Clique, float],
) -> None:
    variances = {residual: 1 / precision for residual, precision in precisions.items()}
    for residual, values in measure_residuals(counter, mechanisms, variances).items():
        model.update(residual, values, precisions[residual])


def product_reference(model: ReferenceModel) -> tuple[Array, ...]:
    """A strictly positive distribution per attribute from its noisy one-way marginal.

    The marginal is projected to the simplex and floored at half a row: post-processing.
    """
    floor = 0.5
    reference = []
    for i in range(len(model.domain)):
        counts = np.maximum(make_target(model, (i,)).counts, floor)
        reference.append(counts / math.fsum(counts))
    return tuple(reference)
