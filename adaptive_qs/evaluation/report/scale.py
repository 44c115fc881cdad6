"""What an error means: beside that of a fresh sample, and beside that of independent columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.evaluation import Evaluation

MOST_CELLS = 2**25
"""Cells of all marginals that are counted for the scale; of more, every so-many-th is taken."""
LARGEST = 2**22
"""Marginals with more cells are left out of the scale."""


@dataclass(frozen=True)
class Scale:
    """Two errors to compare with, for one marginal; L1 distances between 0 and 2.

    Attributes:
        fresh: expected of another sample of as many rows from the same population.
        independent: of the product of the true single columns.
    """

    fresh: float
    independent: float


@dataclass(frozen=True)
class WorkloadScale:
    """The scale of a workload.

    Attributes:
        per_clique: by the names of the attributes; not every marginal where they are large.
        l1: mean error of these marginals, weighted as the workload is.
        fresh: the same of a fresh sample.
        independent: the same of independent columns.
        all: whether every marginal is among them.
    """

    per_clique: Mapping[tuple[str, ...], Scale]
    l1: float
    fresh: float
    independent: float
    all: bool

    @property
    def position(self) -> float | None:
        """How far from a fresh sample (0) to independent columns (1); None without dependence."""
        room = self.independent - self.fresh
        if room <= 0.5 * self.fresh or not self.per_clique:
            return None
        return (self.l1 - self.fresh) / room


def workload_scale(evaluation: Evaluation) -> WorkloadScale:
    """The scale of the workload that was evaluated."""
    pair, cliques = evaluation.pair, evaluation.workload.per_clique
    rows = pair.synthetic.num_rows
    small = [c for c in cliques if c.cells <= LARGEST]
    step = max(1, math.ceil(sum(c.cells for c in small) / MOST_CELLS))
    chosen = small[::step]
    counter = MarginalCounter(pair.true)
    singles = one_way_shares(pair.true)
    found = {
        c.attributes: clique_scale(
            counter, singles, pair.domain.clique(c.attributes), pair.true.num_rows, rows
        )
        for c in chosen
    }
    weights = np.array([c.weight for c in chosen]) if chosen else np.ones(1)
    scales = [found[c.attributes] for c in chosen]

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=weights)) if values else math.nan

    return WorkloadScale(
        found,
        mean([c.l1 for c in chosen]),
        mean([s.fresh for s in scales]),
        mean([s.independent for s in scales]),
        len(chosen) == len(cliques),
    )


def one_way_shares(table: CodedTable) -> list[NDArray[np.float64]]:
    """The shares of the codes of every attribute."""
    return [
        np.bincount(codes, minlength=n) / table.num_rows
        for codes, n in zip(table.columns, table.domain.sizes)
    ]


def clique_scale(
    counter: MarginalCounter,
    singles: Sequence[NDArray[np.float64]],
    clique: Clique,
    true_rows: int,
    rows: int,
) -> Scale:
    """The scale of one marginal, from the true table."""
    shares = counter.count(clique) / true_rows
    product = np.ones(())
    for i in clique:
        product = np.multiply.outer(product, singles[i])
    return Scale(fresh_sample_l1(shares, true_rows, rows), float(np.abs(shares - product).sum()))


def fresh_sample_l1(shares: NDArray[np.float64], first: int, second: int) -> float:
    """Expected L1 distance between two samples of one population.

    Σ √(2 p (1 − p) (1/n + 1/m) / π): the mean of the absolute difference of two binomial shares,
    by the normal approximation. Cells with no row add nothing, so it is rather too low where most
    cells hold few rows.

    Args:
        shares: p of every cell.
        first: rows of one sample.
        second: rows of the other.
    """
    factor = 2 * (1 / first + 1 / second) / math.pi
    return float(np.sqrt(factor * shares * (1 - shares)).sum())
