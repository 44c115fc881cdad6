"""Tables 4 to 7 of McKenna et al. again: HDMM's strategies, from one attribute to fourteen.

Root mean squared error per query at ε = 1 (Laplace) or (ε, δ) = (1, 1e-6) (Gaussian, the exact
calibration of their proposition 2), with a lower bound that no strategy beats. The rows of table 6
and 7 on Census data (SF1, SF1+) are left out: the paper does not list their queries. So are the
rows of permuted ranges over 4,096 cells: a permutation changes no optimum, and the search starts
from points whose distribution it does not change either.

    python -m scripts.published.hdmm_tables            # about half an hour on one core
    python -m scripts.published.hdmm_tables --quick    # seconds: the small rows, into a folder
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.privacy.accounting import compute_gaussian_mu
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.hdmm import ProductWorkload, product_workload
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Marginal, Prefix, Range
from adaptive_qs.workload.workload import QueryPart, QueryWorkload
from scripts.published.laplace import GAUSSIAN, LAPLACE, Noise, optimize_p_identity, select
from scripts.results import RESULTS, apart, here, peak_memory_mb, write_results

EPSILON, DELTA, SEED = 1.0, 1e-6, 0
WIDTH = 32
SIZES = {  # categorical and numeric attributes: He et al., section 8.4
    "CPS": ((7, 4, 2), (50, 100)),
    "Adult": ((42, 16, 15, 9, 7, 6, 5, 2, 2), (100, 100, 100, 99, 85)),
    "Loans": ((51, 36, 15, 8, 6, 5, 4, 3), (101, 101, 101, 101)),
}
SMALL = 5_000  # cells of a "small" marginal are fewer
PUBLISHED_1D = {  # workload: {cells: (Laplace OPT_0, Gaussian OPT_0)}
    "all-range": {64: (5.55, 9.73), 256: (8.07, 12.26), 1024: (11.08, 14.85), 4096: (14.38, 17.46)},
    "prefix": {64: (5.32, 8.87), 256: (7.35, 10.66), 1024: (9.58, 12.49), 4096: (12.20, 14.32)},
    "width32": {64: (5.88, 8.74), 256: (6.34, 9.93), 1024: (6.41, 10.08), 4096: (6.46, 10.11)},
    "permuted-range": {64: (5.55, 9.73), 256: (8.06, 12.26), 1024: (11.08, 14.85)},
}
PUBLISHED = {  # (dataset, workload): (Laplace HDMM, Gaussian HDMM)
    ("CPS", "all marginals"): (4.84, 7.85),
    ("CPS", "all prefix-marginals"): (40.59, 29.48),
    ("Adult", "<=3D marginals"): (225.35, 46.44),
    ("Adult", "2D prefix-marginals"): (484.07, 126.17),
    ("Loans", "small marginals"): (100.92, 34.91),
    ("Loans", "small prefix-marginals"): (288.29, 99.72),
}
SEARCHES = {  # cells: (rows p, searches from random points beside the first ones, most iterations)
    64: [(4, 5, 2_000)],
    256: [(16, 5, 2_000)],
    1024: [(64, 2, 2_000)],
    4096: [(256, 0, 300), (128, 1, 600)],  # capped: minutes each, the second does ranges better
}
GAPS = {64: 1e-6, 256: 1e-6, 1024: 1e-6, 4096: 1e-4}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One row: what is computed and what the paper found."""

    table: int
    noise: Noise
    dataset: str
    workload: str
    published: float
    cells: int = 0


def all_cases() -> list[Case]:
    """The rows in the paper's order."""
    cases = []
    for table, (noise, column) in {4: (LAPLACE, 0), 5: (GAUSSIAN, 1)}.items():
        for workload, sizes in PUBLISHED_1D.items():
            cases += [Case(table, noise, "1d", workload, v[column], n) for n, v in sizes.items()]
    for table, (noise, column) in {6: (LAPLACE, 0), 7: (GAUSSIAN, 1)}.items():
        cases += [Case(table, noise, *key, value[column]) for key, value in PUBLISHED.items()]
    return cases


def one_dimensional(workload: str, cells: int) -> tuple[Array, int]:
    """Gram matrix and number of queries of a workload of table 4."""
    if workload == "prefix":
        return Prefix(cells).gram(), cells
    if workload == "width32":
        starts = cells - WIDTH + 1
        ends = np.arange(cells)
        first, last = np.minimum.outer(ends, ends), np.maximum.outer(ends, ends)
        covering = np.minimum(first, starts - 1) - np.maximum(last - WIDTH + 1, 0) + 1
        return np.maximum(covering, 0).astype(np.float64), starts
    gram = Range(cells).gram()
    if workload == "permuted-range":
        order = np.random.default_rng(SEED).permutation(cells)
        gram = gram[np.ix_(order, order)]
    return gram, Range(cells).num_queries


def multi_dimensional(dataset: str, workload: str) -> ProductWorkload:
    """A workload of table 6, from the paper's description.

    Its Identity column settles what the description leaves open: prefixes on numeric attributes
    only, the 0-way marginal is in where the degrees start at 0, and "all prefix-marginals" of CPS
    are the sets that hold both numeric attributes (a prefix query already contains the total).
    """
    categorical, numeric = SIZES[dataset]
    sizes = categorical + numeric
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})
    prefixes = "prefix" in workload
    axis = {
        i: Prefix(n) if prefixes and i >= len(categorical) else Marginal(n)
        for i, n in enumerate(sizes)
    }
    chosen: dict[str, Callable[[Clique], bool]] = {
        "all marginals": lambda clique: True,
        "all prefix-marginals": lambda clique: {3, 4} <= set(clique),
        "<=3D marginals": lambda clique: len(clique) <= 3,
        "2D prefix-marginals": lambda clique: len(clique) == 2,
        "small marginals": lambda clique: domain.size(clique) < SMALL,
        "small prefix-marginals": lambda clique: domain.size(clique) < SMALL,
    }
    keep = chosen[workload]
    parts = []
    for k in range(1, len(sizes) + 1):
        cliques = [clique for clique in combinations(range(len(sizes)), k) if keep(clique)]
        if cliques:
            array = np.array(cliques, dtype=np.int32)
            parts.append(QueryPart(array, axis, None, np.ones(len(cliques))))
    products = product_workload(QueryWorkload(domain, tuple(parts)))
    return with_total(products) if keep(()) else products


def with_total(workload: ProductWorkload) -> ProductWorkload:
    """The same queries and, as one more set, the number of rows with weight 1."""
    kinds = np.vstack([workload.kinds, np.zeros_like(workload.kinds[:1])])
    weights, counts = np.append(workload.weights, 1.0), (*workload.num_queries, 1)
    return replace(workload, kinds=kinds, weights=weights, num_queries=counts)


def rmse(workload: ProductWorkload, set_errors: Array) -> float:
    """Root of the mean squared error per query, every query counted once."""
    return math.sqrt(math.fsum(set_errors) / sum(workload.num_queries))


def noise_scale(noise: Noise) -> float:
    """Standard deviation of the noise on sensitivity 1 at the paper's parameters."""
    factor = 1 / compute_gaussian_mu(EPSILON, DELTA) if noise == GAUSSIAN else 1 / EPSILON
    return factor * math.sqrt(noise.unit_variance)


def solve(case: Case) -> dict[str, Any]:
    """The row's numbers: RMSE, bound, seconds, and the peak memory of this process."""
    start = time.perf_counter()
    scale = noise_scale(case.noise)
    if case.cells:
        gram, count = one_dimensional(case.workload, case.cells)
        error, bound, note = solve_one_dimension(gram, case)
        domain = str(case.cells)
    else:
        workload = multi_dimensional(case.dataset, case.workload)
        count = sum(workload.num_queries)
        found = select(workload, case.noise, seed=SEED)
        error, bound = found.strategy.total_error, found.lower_bound
        each = {n: scale * rmse(workload, s.set_errors) for n, s in found.candidates.items()}
        note = "; ".join(f"{name} {value:.2f}" for name, value in each.items())
        domain = "x".join(map(str, workload.sizes))
    ours, lowest = (scale * math.sqrt(value / count) for value in (error, bound))
    return {
        "table": case.table,
        "noise": case.noise.name,
        "dataset": case.dataset,
        "workload": case.workload,
        "domain": domain,
        "published": case.published,
        "ours": round(ours, 4),
        "lower_bound": round(lowest, 4),
        "gap": abs(round(error / bound - 1, 6)),
        "seconds": round(time.perf_counter() - start, 2),
        "peak_memory_mb": round(peak_memory_mb()),
        "note": note,
    }


def solve_one_dimension(gram: Array, case: Case) -> tuple[float, float, str]:
    """Error, bound and note of OPT_0."""
    if case.noise == GAUSSIAN:
        settings = SolverSettings(gap=GAPS[case.cells])
        solution = solve_dense(gram, (case.cells,), settings)
        return solution.objective, solution.lower_bound, f"certified: {solution.status.value}"
    rng = np.random.default_rng(SEED)
    found = []
    for rows, restarts, iterations in SEARCHES[case.cells]:
        covariance = optimize_p_identity(gram, rows, rng, restarts, iterations).covariance
        note = f"p = {rows}, {restarts} random starts, {iterations} iterations at most; SVD bound"
        found.append((float(np.vdot(gram, covariance)), note))
    error, note = min(found)
    return error, gram_bound(gram), note


def kept_rows(cases: list[Case], folder: Path) -> dict[Case, dict[str, Any]]:
    """The rows that an earlier run wrote, by their cases."""
    path = folder / "hdmm_tables.json"
    rows = json.loads(path.read_text())["numbers"] if path.exists() else []
    keys = {(str(c.table), c.workload, c.dataset, str(c.cells or "")): c for c in cases}
    found = {}
    for row in rows:
        domain = row["domain"] if row["dataset"] == "1d" else ""
        found[keys[str(row["table"]), row["workload"], row["dataset"], domain]] = row
    return found


def main(
    quick: Annotated[bool, typer.Option(help="Only rows that take less than a second.")] = False,
    cells: Annotated[int, typer.Option(help="Only rows on so many cells; others stay.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where to write.")] = RESULTS,
) -> None:
    """Write hdmm_tables.{json,csv}."""
    cases = all_cases()
    if quick:
        cases = [c for c in cases if c.cells == 64 or (c.dataset == "CPS" and not c.cells)]
    config = {"epsilon": EPSILON, "delta": DELTA, "quick": quick}
    done = kept_rows(cases, folder) if cells else {}
    chosen = [case for case in cases if not cells or case.cells == cells]
    for case in sorted(chosen, key=lambda case: case.cells):
        done[case] = (here if quick else apart)(solve, case)
        print(*done[case].values(), sep=" | ", file=sys.stderr, flush=True)
        rows = [done[case] for case in cases if case in done]
        write_results("hdmm_tables", rows, config, [SEED], rows, folder)  # a stopped run keeps them


if __name__ == "__main__":
    typer.run(main)
