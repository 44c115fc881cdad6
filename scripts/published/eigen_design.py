"""EigenDesign against the lower bound, as in the experiments of Li and Miklau.

    python -m scripts.published.eigen_design

The paper's text names some ratios, but neither the domains and samples behind them nor the numbers
of its figures. Chosen here: five shapes of 2048 cells (for the CDF, whose ratio falls with the
size, also fewer), 1000 random ranges, half of all marginals, 4096 random predicates, all drawn
with one seed. "ours" and "published" are ratios of root mean square errors, lower bound over
error, so that 1 is optimal; beside them stands the optimum of the same problem. The
time counts the eigenvectors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations
from math import prod, sqrt
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Prefix, Range
from scripts.published.eigen_speedups import Principal, Separation, solve_eigen_dense
from scripts.results import RESULTS, apart, peak_memory_mb, write_results

Array = NDArray[np.float64]
Shape = tuple[int, ...]
Cliques = list[tuple[int, ...]]

SEED = 20120810
DESIGN = SolverSettings(gap=1e-4, max_iterations=20_000)
OPTIMAL = SolverSettings(gap=1e-3)
WITHIN = "the paper: within a factor of 1.3 of the lower bound"
MATCH = "the paper: matches the lower bound"
SHAPES: tuple[Shape, ...] = ((2048,), (64, 32), (16, 16, 8), (8, 8, 8, 4), (2,) * 11)
QUICK: tuple[Shape, ...] = ((32,), (8, 4), (4, 4, 2), (4, 2, 2, 2), (2,) * 5)
"""The shapes of --quick, in the same order."""
GROUPS = (4, 8, 16, 32, 64)
RANGES = 1000
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.25)

COLUMNS = (
    *("experiment", "domain", "cells", "published", "ours", "lower_bound", "objective"),
    *("certified", "seconds", "peak_memory_mb", "note"),
)
SHOWN = ("experiment", "domain", "published", "ours", "seconds", "note")


@dataclass(frozen=True)
class Experiment:
    """One workload on one domain.

    Attributes:
        name: the paper's name of the workload.
        shape: the domain.
        gram: makes its Gram matrix.
        published: the paper's ratio, or the least it allows for; None where there is none.
        speedup: of the design.
        axes: the Gram matrices of the axes where the workload is their product, up to the order
            of the cells: the optimum is the product of theirs.
        note: what a reader must know.
    """

    name: str
    shape: Shape
    gram: Callable[[], Array]
    published: float | None
    speedup: Separation | Principal | None = None
    axes: tuple[Array, ...] = ()
    note: str = ""


def main(
    quick: Annotated[bool, typer.Option(help="32 cells instead of 2048.")] = False,
    folder: Annotated[Path, typer.Option(help="Where the results go.")] = RESULTS,
) -> None:
    """Run every experiment, each in a process of its own so that its peak memory is known."""
    rows: list[dict[str, Any]] = []
    certified: dict[tuple[str, Shape], float] = {}
    for experiment in experiments(QUICK if quick else SHAPES):
        key = (experiment.name, experiment.shape)
        if key not in certified:
            certified[key] = apart(optimum, experiment, start="fork")
        row = apart(measure, experiment, start="fork")
        row |= {"certified": certified[key], "note": experiment.note}
        rows.append({column: row[column] for column in COLUMNS})
        print(
            " ".join(f"{row[c]:.6g}" if isinstance(row[c], float) else f"{row[c]}" for c in SHOWN)
        )
    config = {
        "cells": prod((QUICK if quick else SHAPES)[0]),
        "design_gap": DESIGN.gap,
        "certified_gap": OPTIMAL.gap,
        "random_ranges": RANGES,
        "predicates_per_cell": 2,
    }
    write_results("eigen_design", {"rows": rows}, config, [SEED], rows=rows, folder=folder)


def experiments(shapes: tuple[Shape, ...]) -> Iterator[Experiment]:
    """Everything the paper's text compares with the lower bound, then its speed-ups."""
    line, plane, cube, table, bits = shapes
    cells = line[0]
    ranges = (Range(cells).gram(),)
    for shape in shapes:
        axes = tuple(Range(n).gram() for n in shape)
        yield Experiment("all range", shape, partial(kron, axes), 1 / 1.3, axes=axes, note=WITHIN)
    for shape in (line, plane, table):
        gram = partial(random_ranges, shape)
        yield Experiment("random range", shape, gram, 1 / 1.3, note=WITHIN)
    for shape in (cube, table, bits):
        pairs = list(combinations(range(len(shape)), 2))
        yield Experiment("2-way marginal", shape, partial(marginals, shape, pairs), 1.0, note=MATCH)
        half = half_of_all(len(shape))
        yield Experiment("random marginal", shape, partial(marginals, shape, half), 1.0, note=MATCH)
    permuted = partial(shuffled, ranges[0])
    yield Experiment("1D range (permuted)", line, permuted, 0.99, axes=ranges)
    for ways, published, domains in ((1, 0.98, (plane, cube, table)), (2, 0.95, (cube, table))):
        for shape in domains:
            cliques = list(combinations(range(len(shape)), ways))
            gram = partial(range_marginals, shape, cliques)
            yield Experiment(f"{ways}-way range marginal", shape, gram, published)
    for size in (cells, cells // 4, cells // 8):
        yield Experiment("1D CDF", (size,), Prefix(size).gram, 0.80)
    yield Experiment("predicate", line, partial(random_predicates, cells), 1.00)
    speedups = (None, *map(Separation, GROUPS), *map(Principal, SHARES))
    for speedup in speedups:
        note = str(speedup or "every eigenvector")
        yield Experiment("all range", line, Range(cells).gram, None, speedup, ranges, note)
    pairs = partial(marginals, bits, list(combinations(range(len(bits)), 2)))
    every = partial(marginals, table, all_sets(len(table)))
    for name, shape, gram in (("2-way marginal", bits, pairs), ("all marginal", table, every)):
        for speedup in speedups:
            note = str(speedup or "every eigenvector")
            yield Experiment(name, shape, gram, None, speedup, note=note)


def measure(experiment: Experiment) -> dict[str, Any]:
    """Design, time and memory, eigenvectors included."""
    gram = experiment.gram()
    start = time.perf_counter()
    solution = solve_eigen_dense(gram, experiment.shape, DESIGN, experiment.speedup)
    seconds = time.perf_counter() - start
    return {
        "experiment": experiment.name,
        "domain": " x ".join(map(str, experiment.shape)),
        "cells": len(gram),
        "published": experiment.published and round(experiment.published, 3),
        "ours": sqrt(solution.lower_bound / solution.objective),
        "lower_bound": solution.lower_bound,
        "objective": solution.objective,
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(),
    }


def optimum(experiment: Experiment) -> float:
    """The error of the optimum, within the gap of ``OPTIMAL``."""
    if experiment.axes:
        return prod(solve_dense(gram, (len(gram),), OPTIMAL).objective for gram in experiment.axes)
    return solve_dense(experiment.gram(), experiment.shape, OPTIMAL).objective


def kron(factors: tuple[Array, ...]) -> Array:
    """⊗ of Gram matrices."""
    return reduce(np.kron, factors)


def shuffled(gram: Array) -> Array:
    """The same queries with the cells in random order."""
    order = np.random.default_rng(SEED).permutation(len(gram))
    return gram[np.ix_(order, order)]


def random_ranges(shape: Shape) -> Array:
    """Gram of box queries with every side drawn from all ranges of its attribute alike."""
    rng = np.random.default_rng(SEED)
    queries = np.ones((RANGES, 1))
    for size in shape:
        low, high = np.triu_indices(size)
        chosen = rng.integers(low.size, size=RANGES)
        i = np.arange(size)
        side = (i >= low[chosen, None]) & (i <= high[chosen, None])
        queries = (queries[:, :, None] * side[:, None, :]).reshape(RANGES, -1)
    return queries.T @ queries


def random_predicates(cells: int) -> Array:
    """Gram of two predicates for each cell, every cell in or out with equal chance."""
    rng = np.random.default_rng(SEED)
    queries = (rng.random((2 * cells, cells)) < 0.5).astype(np.float64)
    return queries.T @ queries


def marginals(shape: Shape, cliques: Cliques) -> Array:
    """Gram of the marginals of some sets of attributes."""
    return _by_set(shape, cliques, np.eye)


def range_marginals(shape: Shape, cliques: Cliques) -> Array:
    """Gram of all range queries on the marginals of some sets of attributes."""
    return _by_set(shape, cliques, lambda n: Range(n).gram())


def all_sets(attributes: int) -> Cliques:
    """All sets of attributes."""
    sizes = range(attributes + 1)
    return [clique for k in sizes for clique in combinations(range(attributes), k)]


def half_of_all(attributes: int) -> Cliques:
    """Half of all sets of attributes, alike in probability."""
    every = all_sets(attributes)
    chosen = np.random.default_rng(SEED).choice(len(every), len(every) // 2, replace=False)
    return [every[k] for k in chosen]


def _by_set(shape: Shape, cliques: Cliques, kept: Callable[[int], Array]) -> Array:
    total = np.zeros((prod(shape), prod(shape)))
    for clique in cliques:
        sides = (kept(n) if i in clique else np.ones((n, n)) for i, n in enumerate(shape))
        total += kron(tuple(sides))
    return total


if __name__ == "__main__":
    typer.run(main)
