"""What each choice in the synthesis is worth, on every kind of table.

For each table (the generated kinds, and any coded CSV given) and ε, the loop runs once per seed
and the table is made with the default settings and with one choice changed at a time, on the
same measurements. Errors are the mean over all 2-way marginals of the L1 distance between
normalised tables; "floor" is a bootstrap of the true table, an error no private method needs to
beat; "independent" draws every column on its own from the true distribution.

    python -m scripts.speed.benchmark_kinds variants --table sequences --csv adult.csv
    python -m scripts.speed.benchmark_kinds shares
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.generate.chains import FitSettings
from adaptive_qs.generate.rows import SynthesisSettings, synthesize_rows
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.loop import LoopResult, run_loop
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results
from scripts.table_kinds import KINDS, bootstrap, shuffled_columns

DELTA = 1e-9
WORKERS = 2
FIT = FitSettings()
HALF = replace(FIT, sweeps=FIT.sweeps // 2, averaged=FIT.averaged // 2)
DEFAULT = SynthesisSettings()
VARIANTS = {
    "default": DEFAULT,
    "no refinement": replace(DEFAULT, refine_passes=0),
    "half the sweeps": replace(DEFAULT, fit=HALF),
    "damping 4 noise std": replace(DEFAULT, fit=replace(FIT, damping_noise=4.0)),
    "damping 16 noise std": replace(DEFAULT, fit=replace(FIT, damping_noise=16.0)),
}
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)

Tables = Annotated[
    list[str] | None, typer.Option("--table", help="Kinds to run; all of them by default.")
]
Csv = Annotated[
    list[Path] | None,
    typer.Option("--csv", help="A public table to add: CSV, also zipped, recoded as observed."),
]
Epsilons = Annotated[list[float], typer.Option("--epsilon")]

app = typer.Typer(add_completion=False)


@app.command()
def variants(
    table: Tables = None,
    csv: Csv = None,
    epsilon: Epsilons = [1.0],  # noqa: B006
    seed: int = 1,
) -> None:
    """Default synthesis against one change at a time; writes results/synthesis_variants.*."""
    config = {"delta": DELTA, "ways": 2, "noise": "exact, seeded", "workers": WORKERS}
    rows = []
    for name, true in tables(table, csv):
        workload = Workload.all_ways(true.domain, 2)
        for eps in epsilon:
            base = {"table": name, "epsilon": eps}
            base |= {"floor": error_of(true, bootstrap(true), workload)}
            base |= {"independent": error_of(true, shuffled_columns(true), workload)}
            for reference in ("product", "uniform"):
                loop = measured(true, workload, eps, seed, LoopSettings(reference=reference))
                chosen = VARIANTS if reference == "product" else {"uniform reference": DEFAULT}
                for variant, settings in chosen.items():
                    cell = base | {"variant": variant}
                    cell |= synthesized(true, workload, loop, seed, settings)
                    rows.append(cell)
                    typer.echo(cell)
        write_results("synthesis_variants", rows, config, [seed], rows)


@app.command()
def shares(
    table: Tables = None,
    csv: Csv = None,
    epsilon: Epsilons = [0.1, 1.0, 10.0],  # noqa: B006
    seed: int = 1,
) -> None:
    """Error against the initial share, and the share chosen; writes results/initial_share.*."""
    quick = replace(DEFAULT, fit=HALF, refine_passes=1)
    config = {
        "delta": DELTA,
        "ways": 2,
        "noise": "exact, seeded",
        "fit": f"{HALF.sweeps} sweeps, 1 pass",
    }
    rows = []
    for name, true in tables(table, csv):
        workload = Workload.all_ways(true.domain, 2)
        for eps in epsilon:
            for share in (None, *SHARES):
                loop = measured(true, workload, eps, seed, LoopSettings(initial_share=share))
                cell: dict[str, Any] = {"table": name, "epsilon": eps}
                cell["initial_share"] = loop.initial_rho / PrivacyTarget.of(eps, DELTA).rho
                cell["chosen"] = share is None
                cell |= synthesized(true, workload, loop, seed, quick)
                rows.append(cell)
                typer.echo(cell)
        write_results("initial_share", rows, config, [seed], rows)


def tables(names: list[str] | None, files: list[Path] | None) -> Iterator[tuple[str, CodedTable]]:
    """The tables asked for, with their names."""
    for path in files or []:
        yield path.name.split(".")[0], recoded(path)
    for name in names or ([] if files else KINDS):
        yield name, KINDS[name]()


def recoded(path: Path) -> CodedTable:
    """A public table with its observed values as codes: a benchmark, not a private release.

    Numbers of more than 100 different values are cut into 50 bins of equal width; other columns
    of more than 100 values, and those of one value, are left out.
    """
    columns: dict[str, np.ndarray] = {}
    for name, column in pd.read_csv(path, low_memory=False).items():
        numbers = pd.to_numeric(column, errors="coerce")
        if column.nunique() > 100 and numbers.notna().mean() > 0.5:
            column = pd.cut(numbers, 50, labels=False)
        codes, values = pd.factorize(column, use_na_sentinel=False)
        if 1 < len(values) <= 100:
            columns[str(name)] = codes
    domain = Domain.from_sizes({name: int(codes.max()) + 1 for name, codes in columns.items()})
    return CodedTable.from_codes(domain, columns.values())


def measured(
    true: CodedTable, workload: Workload, epsilon: float, seed: int, settings: LoopSettings
) -> LoopResult:
    """One run of the loop with seeded exact noise."""
    rho = PrivacyTarget.of(epsilon, DELTA).rho
    mechanisms = Mechanisms(Budget(rho, filtered=True), InsecureSeed(seed))
    return run_loop(
        mechanisms.table(MarginalCounter(true)), workload, mechanisms, rho, settings, WORKERS
    )


def synthesized(
    true: CodedTable, workload: Workload, loop: LoopResult, seed: int, settings: SynthesisSettings
) -> dict[str, float]:
    """Error and seconds of one table."""
    start = time.perf_counter()
    table = table_of(loop, workload, seed, settings)
    seconds = time.perf_counter() - start
    return {"error": error_of(true, table, workload), "seconds": round(seconds, 2)}


def table_of(
    loop: LoopResult, workload: Workload, seed: int, settings: SynthesisSettings
) -> CodedTable:
    """One table of as many rows as were counted."""
    num_rows = max(1, round(loop.model.total))
    parts = synthesize_rows(
        loop.model, [r.clique for r in loop.rounds], workload.cliques, num_rows, seed, settings,
        WORKERS,
    )  # fmt: skip
    return CodedTable.from_parts(workload.domain, parts, num_rows)


def error_of(true: CodedTable, table: CodedTable, workload: Workload) -> float:
    """Mean over the workload of the L1 distance between normalised marginals."""
    return round(workload_error(true, table, workload).mean_l1, 4)


if __name__ == "__main__":
    app()
