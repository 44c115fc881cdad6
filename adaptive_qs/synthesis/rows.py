"""From a residual model and the measured cliques to coded rows: pure post-processing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from adaptive_qs.domain import Clique, Domain, downward_closure
from adaptive_qs.progress import PhaseProgress, StepProgress
from adaptive_qs.residual.model import ReferenceModel
from adaptive_qs.synthesis.branches import BranchMoves
from adaptive_qs.synthesis.fit import FitSettings, fit_weights
from adaptive_qs.synthesis.loglinear import LogLinearModel
from adaptive_qs.synthesis.refine import refine_rows
from adaptive_qs.synthesis.tables import Rows
from adaptive_qs.synthesis.targets import make_target, maximal_cliques
from adaptive_qs.synthesis.tree import Node, dependence_tree, draw_from_tree

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
    """A table of codes whose marginals match the noisy ones.

    Args:
        residuals: the noisy estimates.
        measured: cliques that were measured; only maximal ones carry weights.
        workload: cliques in which the table should be best.
        num_rows: rows wanted, at least 1.
        seed: the same seed and inputs give the same table, for any number of workers.
        settings: see there.
        workers: threads.
        progress: told about each phase.

    Returns:
        Shape (num_rows, attributes), int32.
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
        _phase(progress, "fit"),
    )  # fmt: skip
    rows = resize(model, rows, num_rows, rng)
    for mean in means:
        mean *= num_rows / fit_rows
    passes = settings.refine_passes
    refine_rows(model, rows, watched, means, passes, rng, _phase(progress, "refine"))
    return rows


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
    """Multiply joint/product of every tree edge into the weights of the clique that holds it.

    Args:
        model: its cliques hold every edge.
        tree: the edges.
        damping: rows added to numerator and denominator.
    """
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


def _phase(progress: PhaseProgress | None, name: str) -> StepProgress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)
