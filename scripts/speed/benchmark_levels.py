"""What levels are worth on tables with hierarchies: none, made of frequencies, declared.

Every table is measured with each seed and ε without levels, with those that the loop makes by
itself, and with those that a schema would declare; codes of columns with a hierarchy have no order.
Errors are the mean over all pairs of the L1 distance between normalised marginals. Writes
results/levels.*.

    python -m scripts.speed.benchmark_levels
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import typer

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.levels import build_chain
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results
from scripts.speed.benchmark_kinds import DEFAULT, DELTA, Epsilons, error_of, measured, table_of
from scripts.table_kinds import Codes, functional_dependence, refinement, skewed

SEEDS = (1, 2, 3)
ABOVE = {"district": ("county", "state"), "county": ("state",), "job": ("job_group",)}
"""Of the columns of `functional_dependence`: those that they determine, from fine to coarse."""


def main(epsilon: Epsilons = [0.1, 1.0]) -> None:  # noqa: B006
    rows: list[dict[str, Any]] = []
    for name, table in {"payroll": payroll(), "hierarchies": hierarchies()}.items():
        plain = [replace(attribute, declared=()) for attribute in table.domain.attributes]
        undeclared = CodedTable.from_codes(Domain(tuple(plain)), table.columns)
        for each in epsilon:
            for seed in SEEDS:
                base = {"table": name, "epsilon": each, "seed": seed}
                rows.append(base | {"levels": "none"} | made(undeclared, each, seed, "off"))
                rows.append(base | {"levels": "made"} | made(undeclared, each, seed, "auto"))
                rows.append(base | {"levels": "declared"} | made(table, each, seed, "auto"))
                typer.echo("\n".join(map(json.dumps, rows[-3:])))
    config = {"delta": DELTA, "ways": 2, "noise": "exact, seeded"}
    write_results("levels", {"cells": rows}, config, list(SEEDS), rows)


def made(true: CodedTable, epsilon: float, seed: int, levels: str) -> dict[str, float]:
    """Error and processor seconds of one table."""
    workload = Workload.all_ways(true.domain, 2)
    start = time.process_time()
    loop = measured(true, workload, epsilon, seed, LoopSettings(levels=levels))
    table = table_of(loop, workload, seed, DEFAULT)
    seconds = round(time.process_time() - start, 2)
    return {"error": error_of(true, table, workload), "processor_seconds": seconds}


def payroll(rows: int = 50_000, seed: int = 0) -> CodedTable:
    """Employees: 400 titles in 40 families in 6 bands, 150 departments in 18 agencies, of which the
    families, bands and agencies are no columns; pay and age follow title and family."""
    rng = np.random.default_rng(seed)
    find_family, band_of = refinement(400, 40, rng), refinement(40, 6, rng)
    agency_of = refinement(150, 18, rng)
    title = rng.choice(400, rows, p=skewed(400, rng))
    family = find_family[title]
    agency = (rng.choice(18, rows, p=skewed(18, rng)) + 3 * family) % 18
    department = np.empty(rows, dtype=np.int64)
    for each in range(18):
        here = np.flatnonzero(agency == each)
        department[here] = rng.choice(np.flatnonzero(agency_of == each), here.size)
    level = rng.normal(size=40)[family] + 0.3 * rng.normal(size=400)[title]
    level += 0.6 * rng.normal(size=rows)
    age = np.clip((30 + 8 * level + 10 * rng.normal(size=rows)).astype(int), 18, 80) - 18
    share_of_women = 1 / (1 + np.exp(-1.5 * rng.normal(size=40)))
    columns = {
        "title": (title, 400),
        "department": (department, 150),
        "pay": (np.argsort(np.argsort(level)) * 60 // rows, 60),
        "age": (age, 63),
        "sex": ((rng.random(rows) < share_of_women[family]).astype(int), 2),
        "contract": ((rng.choice(4, rows, p=[0.6, 0.2, 0.1, 0.1]) + (family % 3 == 0)) % 4, 4),
    }
    groups = {"title": [find_family, band_of[find_family]], "department": [agency_of]}
    return _table(columns, groups, ("pay", "age"), rng)


def hierarchies() -> CodedTable:
    """`functional_dependence`, in which every level of a hierarchy is a column of its own."""
    table = functional_dependence()
    sizes = dict(zip(table.domain.names, table.domain.sizes))
    columns = {name: (codes, sizes[name]) for name, codes in zip(sizes, table.columns)}
    groups: dict[str, list[Codes]] = {}
    for name, above in ABOVE.items():
        for coarser in above:
            of = np.zeros(sizes[name], dtype=np.int64)
            of[columns[name][0]] = columns[coarser][0]
            groups.setdefault(name, []).append(of)
    return _table(columns, groups, ("age",), np.random.default_rng(0))


def _table(
    columns: Mapping[str, tuple[Codes, int]],
    groups: Mapping[str, Sequence[Codes]],
    ordered: Sequence[str],
    rng: np.random.Generator,
) -> CodedTable:
    """Columns with their numbers of codes; the codes of those with groups get another order."""
    attributes, codes = [], []
    for name, (values, size) in columns.items():
        place = rng.permutation(size) if name in groups else np.arange(size)
        declared = build_chain([of[np.argsort(place)] for of in groups.get(name, ())])
        attributes.append(Attribute(name, size, name in ordered, declared=declared))
        codes.append(place[values])
    return CodedTable.from_codes(Domain(tuple(attributes)), codes)


if __name__ == "__main__":
    typer.run(main)
