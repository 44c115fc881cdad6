"""The errors that synthetic tables are judged by, each beside what it is to reach.

    python -m scripts.speed.benchmark_accuracy --data FOLDER

FOLDER holds a folder for each real table: coded with domain.json beside it, or as
``scripts.compare.tables`` takes it; tables that are missing are left out. Every figure is the
median of several runs of `Synthesizer` with noise from the system. Writes
results/benchmark_accuracy.*; with --only or --epsilon, the rows of other cases stay as they were.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from adaptive_qs.domain import Clique
from adaptive_qs.errors import AdaptiveQsError
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.compare.tables import REAL, load_real
from scripts.results import with_earlier, write_results
from scripts.table_kinds import KINDS, coded_table

DELTA, PUBLISHED_DELTA = 1e-9, 1e-5
RUNS = 3
NUMERIC = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
"""Columns of Adult on whose pairs prefixes and ranges are asked."""
RANGES = 1_000
"""Boxes drawn for each pair."""


def mean_l1(true: CodedTable, made: CodedTable, ways: int) -> float:
    """Mean over all marginals of so many columns of the L1 distance between normalised tables."""
    return workload_error(true, made, Workload.all_ways(true.domain, ways)).mean_l1


def mean_tv(true: CodedTable, made: CodedTable, ways: int) -> float:
    """Mean total variation: half of :func:`mean_l1`."""
    return mean_l1(true, made, ways) / 2


def prefix_rows(true: CodedTable, made: CodedTable, ways: int) -> float:
    """Mean absolute error (rows) of all prefixes of pairs of numeric columns."""
    return _mean_over(true, made, _numeric_pairs(true), corners)


def range_rows(true: CodedTable, made: CodedTable, ways: int) -> float:
    """The same of boxes drawn at random."""
    return _mean_over(true, made, _numeric_pairs(true), boxes)


def cell_rows(true: CodedTable, made: CodedTable, ways: int) -> float:
    """The same of every cell of all marginals together: nearly all of them in the large ones."""
    exact, other = MarginalCounter(true), MarginalCounter(made)
    every = combinations(range(len(true.domain)), ways)
    errors = [np.abs(exact.count(c) - other.count(c)) for c in every]
    return float(sum(e.sum() for e in errors) / sum(e.size for e in errors))


Score = Callable[[CodedTable, CodedTable, int], float]


@dataclass(frozen=True)
class Figure:
    """One figure: of which table, workload and budget, and what it is to reach."""

    table: str
    ways: int
    epsilon: float
    target: float | None
    score: Score = mean_l1
    delta: float = DELTA

    @property
    def case(self) -> str:
        """Its name."""
        return f"{self.table} {self.ways}-way {self.score.__name__} {self.epsilon:g}"


def figures() -> Iterator[Figure]:
    """All of them."""
    for table, ways, targets in (
        ("adult", 2, (0.178, 0.065, 0.026)),
        ("adult", 3, (0.295, 0.150, 0.085)),
        ("nltcs", 2, (0.030, 0.0040, 0.0010)),
        ("ma2019", 2, (0.30, 0.095, 0.028)),
    ):
        for epsilon, target in zip((0.1, 1.0, 10.0), targets):
            yield Figure(table, ways, epsilon, target)
    for table, targets in (("nltcs", (0.017, 0.0045, 0.0022)), ("br2000", (0.055, 0.022, 0.014))):
        for epsilon, target in zip((0.1, 0.8, 3.2), targets):
            yield Figure(table, 3, epsilon, target, mean_tv, PUBLISHED_DELTA)
    yield Figure("kdd-census", 2, 1.0, 0.019)
    for kind in KINDS:
        yield Figure(kind, 2, 1.0, {"tails": 0.40, "wide": 0.145}.get(kind))
    for score, target in ((prefix_rows, 90.0), (range_rows, 75.0), (cell_rows, 2.0)):
        yield Figure("adult", 2, 1.0, target, score)


def main(
    data: Annotated[Path, typer.Option(help="Folder of the real tables.")],
    only: Annotated[list[str] | None, typer.Option(help="Tables; all by default.")] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Epsilons; all by default.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs for each figure.")] = RUNS,
) -> None:
    """Write results/benchmark_accuracy.{csv,json}."""
    every = list(figures())
    chosen = [f for f in every if not only or f.table in only]
    chosen = [f for f in chosen if not epsilon or f.epsilon in epsilon]
    runs_of: dict[tuple[Any, ...], list[Figure]] = {}
    for figure in chosen:
        key = (figure.table, figure.ways, figure.epsilon, figure.delta)
        runs_of.setdefault(key, []).append(figure)
    rows: list[dict[str, Any]] = []
    for (table, *_), alike in runs_of.items():
        try:
            true = load(table, data)
        except (AdaptiveQsError, OSError) as error:
            typer.echo(f"{table} left out: {error}", err=True)
            continue
        for row in measured(true, alike, runs):
            rows.append(row)
            typer.echo(json.dumps(row))
        kept = with_earlier("benchmark_accuracy", rows, [f.case for f in every])
        config = {"settings": "default", "noise": "operating system entropy"}
        write_results("benchmark_accuracy", kept, config, None, kept)


def load(name: str, data: Path) -> CodedTable:
    """A table by its name: made up, as the comparison reads it, or of codes.

    Raises:
        AdaptiveQsError, OSError: its files are missing or wrong.
    """
    if name in KINDS:
        return KINDS[name]()
    if name in REAL:
        return load_real(name, data)
    return coded_table(data / name)


def measured(true: CodedTable, alike: list[Figure], runs: int) -> list[dict[str, Any]]:
    """The rows of figures that are taken from the same synthetic tables."""
    names = true.domain.names
    frame = pd.DataFrame(dict(zip(names, true.columns)))
    first = alike[0]
    scores: list[list[float]] = []
    seconds: list[float] = []
    for _ in range(runs):
        model = Synthesizer(epsilon=first.epsilon, delta=first.delta, workload=first.ways)
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample = model.fit(frame, schema=dict(zip(names, true.domain.sizes))).sample()
        seconds.append(time.process_time() - start)
        made = CodedTable.from_codes(true.domain, [sample[name].to_numpy() for name in names])
        scores.append([figure.score(true, made, figure.ways) for figure in alike])
    return [
        {
            "case": figure.case,
            "table": figure.table,
            "ways": figure.ways,
            "measure": figure.score.__name__,
            "epsilon": figure.epsilon,
            "delta": figure.delta,
            "figure": float(f"{median(values):.4g}"),
            "least": float(f"{min(values):.4g}"),
            "most": float(f"{max(values):.4g}"),
            "target": figure.target,
            "runs": runs,
            "met": None if figure.target is None else median(values) <= figure.target,
            "processor_seconds": round(median(seconds), 1),
        }
        for figure, values in zip(alike, zip(*scores))
    ]


def _mean_over(
    true: CodedTable,
    made: CodedTable,
    cliques: list[Clique],
    queries: Callable[[np.ndarray], np.ndarray],
) -> float:
    """Mean over marginals of the mean absolute error of their queries."""
    exact, other = MarginalCounter(true), MarginalCounter(made)
    errors = [np.abs(queries(exact.count(c) - other.count(c))).mean() for c in cliques]
    return float(np.mean(errors))


def _numeric_pairs(table: CodedTable) -> list[Clique]:
    return list(combinations(table.domain.clique(NUMERIC), 2))


def corners(difference: np.ndarray) -> np.ndarray:
    """Answers to all prefixes of a pair."""
    return difference.cumsum(axis=0).cumsum(axis=1)


def boxes(difference: np.ndarray) -> np.ndarray:
    """Answers to ranges of a pair that are drawn at random, always the same."""
    rng = np.random.default_rng(0)
    below = np.pad(corners(difference), ((1, 0), (1, 0)))
    ends = [np.sort(rng.integers(0, n, size=(2, RANGES)), axis=0) for n in difference.shape]
    (a, b), (c, d) = ((first, last + 1) for first, last in ends)
    return below[b, d] - below[a, d] - below[b, c] + below[a, c]


if __name__ == "__main__":
    typer.run(main)
