"""How far a synthetic table is from the true one. Only this package sees the truth unprotected.

Everything here is for the owner of the data: it is computed from private rows without noise.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Clique
from adaptive_qs.errors import DataError
from adaptive_qs.progress import StepProgress
from adaptive_qs.workload.workload import Workload

MAX_DENSE_CELLS = 2**22
"""Marginals with more cells are counted by their occupied cells only."""


@dataclass(frozen=True)
class CliqueError:
    """Error in one marginal.

    Attributes:
        attributes: names of its attributes.
        l1: Σ|a/N_a − b/N_b| over its cells, between 0 and 2.
        rmse: root mean squared error of its cells, in shares of the rows.
        cells: their number.
        weight: its weight in the workload.
    """

    attributes: tuple[str, ...]
    l1: float
    rmse: float
    cells: int
    weight: float


@dataclass(frozen=True)
class WorkloadDistance:
    """Error in every marginal of a workload; owner only.

    Attributes:
        per_clique: one entry for each marginal, in the workload's order.
    """

    per_clique: tuple[CliqueError, ...]

    @cached_property
    def mean_l1(self) -> float:
        """Mean of the errors, weighted as the workload is."""
        weights = np.array([clique.weight for clique in self.per_clique])
        return float(np.average([clique.l1 for clique in self.per_clique], weights=weights))

    @cached_property
    def max_l1(self) -> float:
        """The largest error."""
        return max(clique.l1 for clique in self.per_clique)


@dataclass(frozen=True)
class TotalVariation:
    """Half the L1 distance over all marginals of so many attributes; owner only.

    Attributes:
        ways: attributes of each marginal.
        marginals: their number.
        compared: how many were compared; fewer where there are very many, drawn evenly.
        mean: over those compared.
        max: over those compared.
        worst: names of the attributes of the worst.
    """

    ways: int
    marginals: int
    compared: int
    mean: float
    max: float
    worst: tuple[str, ...]


def workload_error(
    true: CodedTable,
    synthetic: CodedTable,
    workload: Workload,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> WorkloadDistance:
    """L1 distance between the normalised marginals of two tables, clique by clique.

    Args:
        true: the private rows.
        synthetic: rows over the same domain.
        workload: the marginals to compare.
        workers: threads; each holds one marginal at a time.
        progress: called with the marginals done and in all.

    Raises:
        DataError: the tables and the workload have different domains, or a table has no rows.
    """
    if not true.domain == synthetic.domain == workload.domain:
        raise DataError("the tables have different attributes: encode both with one schema")
    if not (true.num_rows and synthetic.num_rows):
        raise DataError("a table has no rows: give two with at least one")
    counters = (MarginalCounter(true), MarginalCounter(synthetic))

    def error(clique: Clique) -> tuple[float, float]:
        cells = workload.domain.size(clique)
        if cells > MAX_DENSE_CELLS:
            difference = sparse_difference(true, synthetic, clique)
        else:
            a, b = (counter.count(clique) for counter in counters)
            difference = a / true.num_rows - b / synthetic.num_rows
        return float(np.abs(difference).sum()), float(np.sqrt(np.square(difference).sum() / cells))

    errors = []
    with ThreadPoolExecutor(workers) as pool:
        for found in pool.map(error, workload.cliques):
            errors.append(found)
            if progress is not None:
                progress(len(errors), len(workload))
    return WorkloadDistance(
        tuple(
            CliqueError(
                workload.domain.clique_names(clique), *found, workload.domain.size(clique), weight
            )
            for (clique, weight), found in zip(workload.weights.items(), errors)
        )
    )


def sparse_difference(
    true: CodedTable, synthetic: CodedTable, clique: Clique
) -> NDArray[np.float64]:
    """a/N_a − b/N_b of the occupied cells, in memory linear in the rows, for any marginal."""
    keys: NDArray[np.int64] = np.zeros(true.num_rows + synthetic.num_rows, dtype=np.int64)
    for i in clique:
        codes = np.concatenate([true.columns[i], synthetic.columns[i]]).astype(np.int64)
        cells = keys * true.domain.sizes[i] + codes
        keys = np.unique(cells, return_inverse=True)[1]
    cells_seen = int(keys.max()) + 1
    a = np.bincount(keys[: true.num_rows], minlength=cells_seen)
    b = np.bincount(keys[true.num_rows :], minlength=cells_seen)
    difference: NDArray[np.float64] = a / true.num_rows - b / synthetic.num_rows
    return difference
