"""How far means, quantiles and frequent values of synthetic columns are off, in their units.

Tables are made with every habit of real numbers: prices that end with .99, rents in multiples of 5
and 25, incomes with many zeros, long tails, dates on the first of a month; and Adult as it was
published. Each has the schema that ``propose`` drafts, which also asks for the frequent dates.
"uniform" draws values evenly inside the bins of a run that counts no frequent values; "density" is
what the program does.

    python -m scripts.speed.benchmark_values --table made --seeds 5
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import typer

from adaptive_qs import Synthesizer
from adaptive_qs.evaluation.columns import FREQUENT, QUANTILES
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results

DELTA = 1e-6
ADULT = Path(__file__).resolve().parents[2] / "datasets" / "adult" / "adult.csv.gz"
DAY = 86_400
FIGURES = ("mean", *(f"p{100 * share:g}" for share in QUANTILES))

app = typer.Typer(add_completion=False)


def made(rows: int = 20_000, seed: int = 0) -> pd.DataFrame:
    """Numbers and dates as people write them, and one group that depends on the rent."""
    rng = np.random.default_rng(seed)
    price = np.exp(rng.normal(4.7, 0.65, rows))
    rent = np.exp(rng.normal(4.7, 0.7, rows))
    step = np.where(rng.random(rows) < 0.7, 25, 5)
    rent = np.clip(np.round(rent / step) * step, 10, 10_000).astype(int)
    income = np.round(np.exp(rng.normal(10, 0.9, rows)), -2)
    day = np.datetime64("2015-01-01") + rng.integers(0, 3650, rows)
    day = np.where(rng.random(rows) < 0.3, day.astype("M8[M]").astype("M8[D]"), day)
    return pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.6, np.floor(price) + 0.99, price.round(2)),
            "rent": rent,
            "income": np.where(rng.random(rows) < 0.4, 0, income).astype(int),
            "wait": rng.exponential(30, rows).round(3),
            "loss": (1000 * (rng.pareto(2.5, rows) + 1)).round(2),
            "score": rng.normal(50, 12, rows).round(1),
            "share": rng.uniform(0, 1000, rows).round(2),
            "age": np.clip(np.round(rng.gamma(4, 10, rows)), 0, 99).astype(int),
            "weight": np.exp(rng.normal(4.2, 0.25, rows)),
            "day": pd.to_datetime(day).date,
            "kind": np.where(rent > 120, rng.choice(["a", "b"], rows, p=[0.7, 0.3]), "c"),
        }
    )


TABLES = {"made": made, "adult": lambda: pd.read_csv(ADULT)}


@app.command()
def main(
    table: Annotated[list[str] | None, typer.Option(help="made, adult; both by default.")] = None,
    epsilon: Annotated[list[float], typer.Option()] = [1.0],  # noqa: B006
    seeds: int = 5,
) -> None:
    """Root mean squared errors over the seeds, of means also the median and the worst; writes
    results/values.*."""
    rows = [
        cell
        for name in table or TABLES
        for each in epsilon
        for cell in compared(name, TABLES[name](), each, range(1, seeds + 1))
    ]
    config = {"delta": DELTA, "noise": "exact, seeded", "schemas": "as proposed"}
    write_results("values", rows, config, [*range(1, seeds + 1)], rows)


def compared(
    name: str, frame: pd.DataFrame, epsilon: float, seeds: range
) -> Iterator[dict[str, Any]]:
    """One row for every column and way; percent of the true figure, and days of dates."""
    asked = json.loads(propose(frame).to_json())
    for column in asked["columns"]:
        if column["type"] == "date":
            column["private_heaps"] = 50
    plain = json.loads(json.dumps(asked))
    for column in plain["columns"]:
        column.pop("private_heaps", None)
    for way, content in (("uniform", plain), ("density", asked)):
        errors: dict[str, list[list[float]]] = {}
        shares: dict[str, list[float]] = {}
        pairs = []
        for seed in seeds:
            schema, table, pair = _synthesized(frame, content, epsilon, seed, way == "uniform")
            pairs.append(pair)
            for column in schema.columns:
                if column.measured:
                    true, synthetic = _amounts(column, frame), _amounts(column, table)
                    unit = DAY if column.kind == "moments" else None
                    errors.setdefault(column.name, []).append(_off(true, synthetic, unit))
                    shares.setdefault(column.name, []).append(_frequent(true, synthetic))
        for column_name, found in errors.items():
            rms = np.sqrt(np.mean(np.square(found), axis=0))
            true_share = _frequent(*[_amounts(Schema.parse(plain).column(column_name), frame)] * 2)
            cell = {"table": name, "epsilon": epsilon, "column": column_name, "way": way}
            cell |= {f"{figure}_off": round(off, 2) for figure, off in zip(FIGURES, rms.tolist())}
            means = np.abs(np.array(found)[:, 0])
            cell |= {"mean_median": round(float(np.median(means)), 2)}
            cell |= {"mean_worst": round(float(means.max()), 2)}
            cell |= {"frequent_true": round(true_share, 4)}
            cell |= {"frequent": round(float(np.mean(shares[column_name])), 4)}
            cell |= {"pair_error": round(float(np.mean(pairs)), 4)}
            typer.echo(cell)
            yield cell


def _synthesized(
    frame: pd.DataFrame, content: Any, epsilon: float, seed: int, uniform: bool
) -> tuple[Schema, pa.Table, float]:
    """The released schema, a table, and the mean error of the pairs of columns."""
    run = Synthesizer(epsilon=epsilon, delta=DELTA, insecure_seed=seed, unreviewed_schema=True)
    release = run.fit(frame, schema=content).release_
    table = release.draw(seed=seed).table()
    true, synthetic = (read_table(rows, release.schema) for rows in (frame, table))
    if uniform:
        table = decode(synthetic, release.schema, np.random.default_rng(seed))
    workload = Workload.all_ways(true.domain, 2)
    return release.schema, table, workload_error(true, synthetic, workload).mean_l1


def _amounts(column: Any, table: Any) -> np.ndarray:
    """Sorted, without missing ones."""
    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table[[column.name]])
    values = table.column(column.name).combine_chunks()
    values = values.cast(pa.timestamp("s")) if column.kind == "moments" else values
    amounts = column.amounts(values.drop_null())
    return np.sort(amounts[~np.isnan(amounts)])


def _off(true: np.ndarray, synthetic: np.ndarray, unit: float | None) -> list[float]:
    """How far the mean and quantiles are off: in the unit, or in percent of the true ones."""
    pairs = [(true.mean(), synthetic.mean())]
    pairs += zip(np.quantile(true, QUANTILES), np.quantile(synthetic, QUANTILES))
    return [float((s - t) / (unit or abs(t) / 100 or 1.0)) for t, s in pairs]


def _frequent(true: np.ndarray, synthetic: np.ndarray) -> float:
    """Share of the rows on the values that are most frequent among the true ones."""
    values, times = np.unique(true, return_counts=True)
    return float(np.isin(synthetic, values[np.argsort(-times, kind="stable")[:FREQUENT]]).mean())


if __name__ == "__main__":
    app()
