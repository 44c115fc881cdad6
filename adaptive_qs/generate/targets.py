"""What the fit aims at: single columns without most of their noise, and a model that has them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adaptive_qs.generate.denoise import denoised_counts
from adaptive_qs.generate.loglinear import Array, Target, make_target
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose

LEAST_ROWS = 0.5
"""Rows of a code in the distribution of its column, which is strictly positive."""


def single_targets(model: ReferenceModel) -> list[Target]:
    """The counts of every column, denoised, with the noise that they were measured with."""
    return [single_target(model, i) for i in range(len(model.domain))]


def single_target(model: ReferenceModel, attribute: int) -> Target:
    """The same of one column."""
    projected = make_target(model, (attribute,))
    if not model.precision((attribute,)):
        return projected
    counts = denoised_counts(
        model.marginal((attribute,)),
        projected.noise_std,
        max(model.total, 1.0),
        model.domain.attributes[attribute].ordered,
        independent=attribute not in model.column_noise,
    )
    return Target(projected.clique, counts, projected.noise_std)


def positive_shares(singles: Sequence[Target]) -> tuple[Array, ...]:
    """A strictly positive distribution for each column, of at least half a row for each code."""
    floored = (np.maximum(target.counts, LEAST_ROWS) for target in singles)
    return tuple(counts / math.fsum(counts) for counts in floored)


def denoised_model(model: ReferenceModel, singles: Sequence[Target]) -> ReferenceModel:
    """The model with these single columns: their residuals instead of the measured ones, and their
    product as the reference. Interactions are as measured."""
    estimates = dict(model.estimates)
    for target in singles:
        measured = estimates.get(target.clique)
        if measured is not None:
            residual = decompose(target.counts, target.clique, target.clique)
            estimates[target.clique] = ResidualEstimate(residual, measured.precision)
    return ReferenceModel(model.domain, positive_shares(singles), estimates, model.column_noise)
