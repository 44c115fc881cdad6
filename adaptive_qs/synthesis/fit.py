"""Fit a log-linear model to noisy marginals with Gibbs chains whose state is a table.

Each step sweeps the rows once, proposes one branch of the dependence tree to each, and then
moves every weight by

    w_γ ← w_γ · ((target + d) / (count + d))^η,    d = κ + t · noise_std,

so weights react to differences above the noise and hardly to those below it; the number of
steps and d together act as the regularisation. The chain never restarts: rows follow the
weights. The mean of the marginals over the last sweeps is the model's estimate, far less noisy
than the rows at any one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.progress import StepProgress
from adaptive_qs.synthesis.branches import BranchMoves
from adaptive_qs.synthesis.loglinear import LogLinearModel
from adaptive_qs.synthesis.parallel import over_items
from adaptive_qs.synthesis.tables import Rows, add_counts, count_rows
from adaptive_qs.synthesis.targets import Target


@dataclass(frozen=True)
class FitSettings:
    """How the weights follow the targets.

    Attributes:
        sweeps: steps; each sweeps all rows once.
        averaged: last steps whose marginals are averaged.
        step: first exponent η; it falls as 1 / (1 + decay · progress).
        decay: see ``step``.
        damping_rows: κ, rows added to both sides of each ratio.
        damping_noise: t, noise standard deviations added to both sides.
    """

    sweeps: int = 80
    averaged: int = 24
    step: float = 0.1
    decay: float = 4.0
    damping_rows: float = 2.0
    damping_noise: float = 8.0

    def __post_init__(self) -> None:
        if not 1 <= self.averaged <= self.sweeps:
            raise ValueError("averaged sweeps must lie between 1 and the number of sweeps")


def fit_weights(
    model: LogLinearModel,
    branches: BranchMoves,
    rows: Rows,
    targets: Sequence[Target],
    watched: Sequence[Clique],
    settings: FitSettings,
    rng: np.random.Generator,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> list[NDArray[np.float32]]:
    """Move the weights until the rows match the targets as closely as the noise warrants.

    Args:
        model: weights to fit, in place.
        branches: moves of the chains besides single values.
        rows: state of the chains, in place.
        targets: marginals of ``len(rows)`` rows: cliques of the model and single attributes.
        watched: cliques whose mean marginal is wanted.
        settings: see there.
        rng: randomness of the sweeps.
        workers: threads; the result does not depend on it.
        progress: called after each step.

    Returns:
        For each watched clique its mean marginal over the last sweeps (rows).
    """
    assert settings.averaged * len(rows) < 2**24, "sums of counts leave 32-bit floats"
    domain = model.domain
    means = [np.zeros(domain.shape(c), dtype=np.float32) for c in watched]

    def follow(exponent: float, target: Target) -> None:
        damping = settings.damping_rows + settings.damping_noise * target.noise_std
        counts = count_rows(rows, domain, target.clique)
        ratio = (target.counts + damping) / (counts + damping)
        model.scale(target.clique, ratio**exponent)

    def accumulate(item: tuple[NDArray[np.float32], Clique]) -> None:
        mean, clique = item
        add_counts(mean, rows, domain, clique)

    for k in range(settings.sweeps):
        model.sweep(rows, int(rng.integers(2**63)))
        branches(rows, int(rng.integers(2**63)))
        exponent = settings.step / (1 + settings.decay * k / settings.sweeps)
        over_items(workers, partial(follow, exponent), targets)
        if k >= settings.sweeps - settings.averaged:
            over_items(workers, accumulate, list(zip(means, watched)))
        if progress:
            progress(k + 1, settings.sweeps)
    for mean in means:
        mean /= settings.averaged
    return means
