"""From a residual model and the measured cliques to coded rows: fit, draw, refine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.arguments import one_of
from adaptive_qs.domain import Clique, Domain, downward_closure
from adaptive_qs.generate.loglinear import (
    LogLinearModel,
    Rows,
    Target,
    add_counts,
    build_adjacency,
    count_rows,
    make_target,
    maximal_cliques,
    over_items,
)
from adaptive_qs.generate.tree import BranchMoves, Node, dependence_tree, draw_from_tree
from adaptive_qs.machine import PhaseProgress, StepProgress
from adaptive_qs.residual import ReferenceModel

# A sampled table carries sampling noise in every marginal. Each proposal replaces one value of
# one row by a draw from the model's conditional and is kept if it lowers Σ_γ ‖table_γ − mean_γ‖₁.
# The proposals keep rows plausible beyond the watched marginals; the rule only ever descends.


def refine_rows(
    model: LogLinearModel,
    rows: Rows,
    watched: Sequence[Clique],
    means: Sequence[NDArray[np.float32]],
    passes: int,
    rng: np.random.Generator,
    progress: StepProgress | None = None,
) -> float:
    """Descend on the distance between the rows' marginals and the wanted ones, in place.

    Args:
        model: proposes values from its conditionals.
        rows: the table.
        watched, means: cliques to match, and their marginals for ``len(rows)`` rows.
        passes: each proposes once for every value of the table.
        rng: order and proposals.
        progress: called after each pass.

    Returns:
        The mean over watched cliques of ‖table_γ − mean_γ‖₁ / rows at the end.
    """
    a = build_adjacency(model.domain, watched, copy_per_axis=False)
    excess = np.empty(a.cells, dtype=np.float32)
    for position, clique, mean in zip(a.position, watched, means):
        difference = count_rows(rows, model.domain, clique) - mean
        excess[position : position + mean.size] = difference.ravel()
    for k in range(passes):
        proposals = rows.copy()
        model.sweep(proposals, int(rng.integers(2**63)))
        row_order = rng.permutation(len(rows))
        attribute_order = rng.permutation(rows.shape[1])
        _descend(rows, proposals, row_order, attribute_order, excess, a)
        if progress:
            progress(k + 1, passes)
    return float(np.abs(excess).sum(dtype=np.float64)) / len(rows) / max(len(watched), 1)


@njit(cache=True, nogil=True)
def _descend(rows, proposals, row_order, attribute_order, excess, a):  # type: ignore[no-untyped-def]
    start, offset, other, stride, own_stride, _, _ = a
    leave = np.empty(start[-1], dtype=np.int64)
    enter = np.empty(start[-1], dtype=np.int64)
    for r in row_order:
        for i in attribute_order:
            old, new = rows[r, i], proposals[r, i]
            if old == new:
                continue
            change = 0.0
            for e in range(start[i], start[i + 1]):
                cell = offset[e]
                for k in range(other.shape[1]):
                    cell += rows[r, other[e, k]] * stride[e, k]
                leave[e] = cell + old * own_stride[e]
                enter[e] = cell + new * own_stride[e]
                x, y = excess[leave[e]], excess[enter[e]]
                change += abs(x - 1.0) - abs(x) + abs(y + 1.0) - abs(y)
            if change < 0.0:
                for e in range(start[i], start[i + 1]):
                    excess[leave[e]] -= 1.0
                    excess[enter[e]] += 1.0
                rows[r, i] = new


# Fit a log-linear model to noisy marginals with Gibbs chains whose state is a table.
#
# Each step sweeps the rows once, proposes one branch of the dependence tree to each, and then
# moves every weight by
#
#     w_γ ← w_γ · ((target + d) / (count + d))^η,    d = κ + t · noise_std,
#
# so weights react to differences above the noise and hardly to those below it; the number of
# steps and d together act as the regularisation. The chain never restarts: rows follow the
# weights. The mean of the marginals over the last sweeps is the model's estimate, far less noisy
# than the rows at any one moment.


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
        model, rows: the weights and the state of the chains, moved in place.
        branches: moves of the chains besides single values.
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


ENTRY_STEPS = 16
"""Work of finding the weights of a clique around a value, in multiplications."""


@dataclass(frozen=True)
class SynthesisSettings:
    """How a table is made.

    Attributes:
        fit: how weights follow the targets.
        fewest_rows: the model is fitted with at least this many rows, to keep its noise low.
        most_rows: and with at most this many; a larger table is swept from copies.
        most_steps: most inner steps of all sweeps together; wide attributes get fewer rows,
        least_rows: but never fewer than this.
        refine_passes: proposals per value of the table that bring its marginals closer to the
            model's.
        watched_cells: most cells of the marginals that refinement watches.
        watched_counts: most row-by-marginal increments per sweep spent on watching them.
    """

    fit: FitSettings = field(default_factory=FitSettings)
    fewest_rows: int = 40_000
    most_rows: int = 150_000
    least_rows: int = 1_000
    most_steps: int = 10**11
    refine_passes: int = 3
    watched_cells: int = 2**26
    watched_counts: int = 100_000_000


def synthesise_rows(
    residuals: ReferenceModel,
    measured: Iterable[Clique],
    workload: Sequence[Clique],
    num_rows: int,
    seed: int,
    settings: SynthesisSettings | None = None,
    workers: int = 1,
    progress: PhaseProgress | None = None,
) -> Rows:
    """Rows whose marginals match the noisy ones; only maximal cliques measured carry weights.

    Every generator has these arguments and this result; none sees a private row.

    Args:
        residuals: the noisy estimates.
        measured: cliques that were measured.
        workload: cliques in which the table should be best.
        num_rows: rows wanted, at least 1.
        seed: the same seed and inputs give the same table, for any number of workers.
        settings: limits on time and memory.
        workers: threads.
        progress: called with each phase, its steps done and its steps in all.

    Returns:
        Codes, shape (num_rows, attributes).
    """
    settings = settings or SynthesisSettings()
    domain = residuals.domain
    rng = np.random.default_rng(seed)
    cliques = [c for c in maximal_cliques(measured) if len(c) > 1]
    fit_rows = choose_fit_rows(domain, cliques, num_rows, settings)
    factor = fit_rows / max(residuals.total, 1.0)
    targets = [make_target(residuals, c).scaled(factor) for c in cliques]
    singles = [make_target(residuals, (i,)).scaled(factor) for i in range(len(domain))]
    watched = watch_list(domain, workload, cliques, fit_rows, settings)

    counts = [t.counts for t in singles]
    tree = dependence_tree(domain, targets, counts)
    model = LogLinearModel(domain, cliques, counts, workers)
    write_tree(model, tree, settings.fit.damping_rows)
    rows = draw_from_tree(tree, counts, fit_rows, rng)
    branches = BranchMoves(model, tree, counts, workers)
    means = fit_weights(
        model, branches, rows, [*targets, *singles], watched, settings.fit, rng, workers,
        progress and partial(progress, "fit"),
    )  # fmt: skip
    rows = resize(model, rows, num_rows, rng)
    for mean in means:
        mean *= num_rows / fit_rows
    passes = settings.refine_passes
    refine_rows(model, rows, watched, means, passes, rng, progress and partial(progress, "refine"))
    return rows


Generator = Callable[..., Rows]
"""From what was released to rows; called as :func:`synthesise_rows`."""
DEFAULT_GENERATOR = "loglinear"

GENERATORS: dict[str, Generator] = {DEFAULT_GENERATOR: synthesise_rows}
"""The generators by the name that a release's settings give."""


def generator_named(name: Any) -> Generator:
    """The generator of this name.

    Raises:
        InputError: there is none.
    """
    return GENERATORS[one_of("generator", name, GENERATORS)]


def choose_fit_rows(
    domain: Domain, cliques: Sequence[Clique], num_rows: int, settings: SynthesisSettings
) -> int:
    """Rows of the chains: the table's, within the settings' limits on rows and on work.

    Sweeping one row takes n_i steps for each attribute, and again for each clique around it with
    ``ENTRY_STEPS`` to find the clique's weights.
    """
    around = (ENTRY_STEPS * len(c) + sum(domain.shape(c)) for c in cliques)
    steps = sum(domain.sizes) + sum(around)
    affordable = settings.most_steps // (steps * settings.fit.sweeps)
    rows = min(max(num_rows, settings.fewest_rows), settings.most_rows, affordable)
    return max(rows, settings.least_rows)


def write_tree(model: LogLinearModel, tree: Sequence[Node], damping: float) -> None:
    """Multiply joint/product of every tree edge into the weights of the clique that holds it,
    with ``damping`` rows added to numerator and denominator."""
    for node in tree:
        if node.source is None or node.parent is None:
            continue
        independent = np.outer(node.table.sum(axis=1), node.table.sum(axis=0)) / node.table.sum()
        ratio = (node.table + damping) / (independent + damping)
        pair = (node.parent, node.attribute)
        ratio = ratio if pair[0] < pair[1] else ratio.T
        shape = [
            n if i in pair else 1 for i, n in zip(node.source.clique, node.source.counts.shape)
        ]
        model.scale(node.source.clique, ratio.reshape(shape))


def resize(model: LogLinearModel, rows: Rows, num_rows: int, rng: np.random.Generator) -> Rows:
    """A random subset of the rows, or copies swept apart, until there are ``num_rows``."""
    if num_rows == len(rows):
        return rows
    if num_rows < len(rows):
        return rows[rng.choice(len(rows), num_rows, replace=False)]
    larger = rows[np.arange(num_rows) % len(rows)]
    for _ in range(2):
        model.sweep(larger, int(rng.integers(2**63)))
    return larger


def watch_list(
    domain: Domain,
    workload: Sequence[Clique],
    measured: Sequence[Clique],
    num_rows: int,
    settings: SynthesisSettings,
) -> tuple[Clique, ...]:
    """The workload's cliques, or their projections to fewer attributes where those are too many.

    The highest number of attributes is taken whose marginals fit the settings' limits. Where
    not even pairs do, the measured cliques come first and then as many pairs as fit.
    """
    most = max(settings.watched_counts // num_rows, 1)
    closure = downward_closure(workload)
    for degree in range(max(len(c) for c in workload), 1, -1):
        watched = maximal_cliques(c for c in closure if len(c) <= degree)
        if len(watched) <= most and sum(map(domain.size, watched)) <= settings.watched_cells:
            return watched
    pairs = [c for c in closure if 1 <= len(c) <= 2]
    pairs.sort(key=lambda c: (c[-1] - c[0], c))  # neighbours first: every attribute gets its share
    chosen: list[Clique] = []
    cells = 0
    for clique in dict.fromkeys([*measured, *pairs]):
        cells += domain.size(clique)
        if len(chosen) == most or cells > settings.watched_cells:
            break
        chosen.append(clique)
    return tuple(chosen)
