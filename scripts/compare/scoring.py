"""The errors of a cell, computed in the same way for every mechanism.

L1 is Σ|a/N − b/M| over the cells of a marginal, between 0 and 2, with N and M the rows of the true
and the synthetic table; twice the total variation. L2 is the root of the sum of squares of the same
differences. Means and maxima are over the workload's marginals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.compare.job import read_answers

Array = NDArray[np.float64]

MOST_DENSE_CELLS = 2**24
"""Marginals with more cells have no L2."""
MOST_COUNTED = 10**9
"""Total variation of all k-way marginals is left out where it takes more row counts than this."""


def table_error(true: CodedTable, synthetic: CodedTable, workload: Workload) -> dict[str, Any]:
    """Errors of a table: mean and maximum L1, mean L2, and k-way total variation, k = 1, 2, 3.

    Raises:
        DataError: the table has no rows.
    """
    distance = workload_error(true, synthetic, workload)
    variation = {}
    for ways in (1, 2, 3):
        if ways > len(true.domain):
            continue
        if math.comb(len(true.domain), ways) * true.num_rows > MOST_COUNTED:
            continue
        cliques = Workload.all_ways(true.domain, ways)
        same = set(cliques.cliques) == set(workload.cliques)
        found = distance if same else workload_error(true, synthetic, cliques)
        variation[str(ways)] = found.mean_l1 / 2
    return {
        "mean_l1": distance.mean_l1,
        "max_l1": distance.max_l1,
        "mean_l2": _mean_l2(true, synthetic, workload),
        "total_variation": variation,
        "rows": synthetic.num_rows,
    }


def answer_error(true: CodedTable, path: Path, workload: Workload) -> dict[str, Any]:
    """Errors of answered marginals: as they came, and made into distributions.

    "raw" answers are divided by the true number of rows and may be negative; "projected" ones are
    clipped to be non-negative and scaled to sum 1.

    Raises:
        ValueError: the file does not hold one number for each cell.
    """
    counter = MarginalCounter(true)
    raw, projected = [], []
    for clique, answers in read_answers(path, workload):
        truth = counter.count(clique) / true.num_rows
        raw.append(_distances(truth, answers / true.num_rows))
        projected.append(_distances(truth, as_distribution(answers)))
    return {"raw": _summary(raw), "projected": _summary(projected)}


def as_distribution(answers: Array) -> Array:
    """Non-negative and of sum 1; uniform where nothing is positive."""
    clipped = np.maximum(answers, 0.0)
    total = float(clipped.sum())
    return clipped / total if total > 0 else np.full(answers.shape, 1 / answers.size)


def _distances(truth: Array, found: Array) -> tuple[float, float]:
    difference = truth - found
    return float(np.abs(difference).sum()), float(np.linalg.norm(difference))


def _summary(distances: Iterable[tuple[float, float]]) -> dict[str, float]:
    l1, l2 = np.array(list(distances)).T
    return {"mean_l1": float(l1.mean()), "max_l1": float(l1.max()), "mean_l2": float(l2.mean())}


def _mean_l2(true: CodedTable, synthetic: CodedTable, workload: Workload) -> float | None:
    if max(map(workload.domain.size, workload.cliques)) > MOST_DENSE_CELLS:
        return None
    counters = (MarginalCounter(true), MarginalCounter(synthetic))

    def distance(clique: Clique) -> float:
        a, b = (counter.count(clique) for counter in counters)
        return float(np.linalg.norm(a / true.num_rows - b / synthetic.num_rows))

    return float(np.mean([distance(clique) for clique in workload.cliques]))
