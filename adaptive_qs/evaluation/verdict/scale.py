"""What an error means: beside that of a fresh sample, and beside that of independent columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.evaluation.contingency import in_batches
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.evaluation.verdict.fresh import STEP_ERROR, chance_l1, fresh_sample_l1
from adaptive_qs.evaluation.verdict.independent import independent_l1
from adaptive_qs.evaluation.verdict.thresholds import (
    CLOSE_ALONE,
    DEVIATIONS,
    FEW,
    GONE,
    SPARSE,
)
from adaptive_qs.progress import StepProgress

MOST_CELLS = 2**25
"""Cells of all marginals that are counted for the scale; of more, every so-many-th is taken."""
MOST_MARGINALS = 10_000
"""The same for their number."""
LARGEST = 2**22
"""Marginals with more cells are left out of the scale."""
LEAST_ROOM = 0.25
"""Part of a fresh sample's error by which independent columns must be further off to be told from
it: five times the error of the estimate."""


def like_independent(error: float, fresh: float, independent: float, doubt: float) -> bool:
    """Whether an error is that of independent columns.

    Args:
        error: of the synthetic table.
        fresh: of a fresh sample.
        independent: of independent columns.
        doubt: how much further than a fresh sample both must be.
    """
    room, excess = independent - fresh, error - fresh
    return min(room, excess) > doubt and excess >= GONE * room


@dataclass(frozen=True)
class Scale:
    """Two errors to compare with, for one marginal; L1 distances between 0 and 2.

    Attributes:
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        sparse: share of the true rows in cells with fewer than ``FEW`` of them.
        chance: how much further than expected a fresh sample may be, by ``DEVIATIONS`` of them:
            there are many marginals.
    """

    fresh: float
    independent: float
    sparse: float
    chance: float = 0.0

    def is_gone(self, l1: float) -> bool:
        """Whether an error is that of independent columns, where these are further off than chance
        takes a fresh sample."""
        doubt = max(CLOSE_ALONE, self.chance + STEP_ERROR * self.fresh)
        return self.sparse <= SPARSE and like_independent(l1, self.fresh, self.independent, doubt)


@dataclass(frozen=True)
class WorkloadScale:
    """The scale of a workload.

    Attributes:
        per_clique: by the names of the attributes; not every marginal where they are large.
        l1: mean error of these marginals, weighted as the workload is.
        fresh: the same of a fresh sample.
        independent: the same of independent columns.
        all: whether every marginal is among them.
        sparse: mean share of the true rows in cells with few of them.
        chance: how much further than expected a fresh sample may be.
        gone: attributes of the marginals that are as far off as independent columns would be, the
            furthest beyond a fresh sample first.
    """

    per_clique: Mapping[tuple[str, ...], Scale]
    l1: float
    fresh: float
    independent: float
    all: bool
    sparse: float = 0.0
    chance: float = 0.0
    gone: tuple[tuple[str, ...], ...] = ()

    @property
    def known(self) -> bool:
        """Whether the marginals have a scale: some were counted, and most rows lie in cells with
        enough of them."""
        return bool(self.per_clique) and self.sparse <= SPARSE

    @property
    def doubt(self) -> float:
        """Error beyond that of a fresh sample which chance and the estimate explain."""
        return self.chance + STEP_ERROR * self.fresh

    @property
    def joint(self) -> bool:
        """Whether independence says something: its error is above that of a fresh sample by more
        than the estimate is wrong, which it is never for single columns."""
        return self.known and self.independent - self.fresh > STEP_ERROR * self.fresh

    @property
    def worse(self) -> bool:
        """Whether the table is no closer than independent columns, and no fresh sample either: by
        more than chance explains."""
        return self.joint and self.l1 >= self.independent and self.l1 - self.fresh > self.doubt

    @property
    def position(self) -> float | None:
        """How far from a fresh sample (0) to independent columns (1).

        None where the two cannot be told apart, or there is no scale.
        """
        room = self.independent - self.fresh
        if not self.known or room <= max(LEAST_ROOM * self.fresh, 2 * self.chance):
            return None
        return (self.l1 - self.fresh) / room


def workload_scale(
    evaluation: Evaluation, workers: int = 1, progress: StepProgress | None = None
) -> WorkloadScale:
    """The scale of the workload that was evaluated.

    Args:
        evaluation: of the tables.
        workers: threads; each holds one marginal.
        progress: called with the marginals done and in all.
    """
    pair, cliques = evaluation.pair, evaluation.workload.per_clique
    rows = pair.synthetic.num_rows
    small = [c for c in cliques if c.cells <= LARGEST]
    steps = sum(c.cells for c in small) / MOST_CELLS, len(small) / MOST_MARGINALS
    chosen = small[:: max(1, math.ceil(max(steps)))]
    counter = MarginalCounter(pair.true)
    shares = [counts / pair.true.num_rows for counts in pair.margins[0]]

    def scales_of(batch: Sequence[CliqueError]) -> list[Scale]:
        cliques = [pair.domain.clique(c.attributes) for c in batch]
        return [clique_scale(counter.count(q), [shares[i] for i in q], rows) for q in cliques]

    scales = in_batches(scales_of, chosen, workers, progress)
    weights = np.array([c.weight for c in chosen]) if chosen else np.ones(1)

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=weights)) if values else math.nan

    sparse = mean([s.sparse for s in scales])
    return WorkloadScale(
        {c.attributes: scale for c, scale in zip(chosen, scales)},
        mean([c.l1 for c in chosen]),
        mean([s.fresh for s in scales]),
        mean([s.independent for s in scales]),
        len(chosen) == len(cliques),
        sparse,
        chance_l1(pair.true.num_rows, rows, sparse),
        _gone(chosen, scales),
    )


def _gone(cliques: Sequence[CliqueError], scales: Sequence[Scale]) -> tuple[tuple[str, ...], ...]:
    """Marginals that are as far off as independent columns would be."""
    gone = [(c.l1 - s.fresh, c) for c, s in zip(cliques, scales) if s.is_gone(c.l1)]
    ordered = sorted(gone, key=lambda item: (-item[0], item[1].attributes))
    return tuple(clique.attributes for _, clique in ordered)


def clique_scale(
    counts: NDArray[np.integer], singles: Sequence[NDArray[np.float64]], rows: int
) -> Scale:
    """The scale of one marginal.

    Args:
        counts: of the true table, one axis for each column.
        singles: shares of the codes of these columns.
        rows: of the synthetic table.
    """
    sparse = sparse_share(counts)
    return Scale(
        fresh_sample_l1(counts, rows),
        independent_l1(counts, singles, rows),
        sparse,
        chance_l1(int(counts.sum()), rows, sparse, DEVIATIONS),
    )


def sparse_share(counts: NDArray[np.integer]) -> float:
    """Share of the rows in cells with fewer than ``FEW`` of them."""
    return float(counts[counts < FEW].sum() / counts.sum())
