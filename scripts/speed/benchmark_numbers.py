"""How near synthetic numbers are to true ones in pairs: errors at fine resolution, correlations.

    python -m scripts.speed.benchmark_numbers --data FOLDER --epsilon 1 --codes 0 --codes 64

FOLDER has raw tables as a steward gets them (``marathon.csv.gz``, ...). The whole table is
synthesised, with the schema that ``propose`` drafts (codes 0) or with its numbers in so many codes
of equal share. Errors are over 40 codes of equal share of the true table, whatever codes the
program had. "independent" is the error of true columns that are shuffled. Writes results/numbers.*.

With ``--beside-coarse`` every table is synthesised as proposed and in 8 to 136 codes of equal
share, and results/fine_codes.* has how much further off each is than the best of these. Rows that
the file has of other cases stay.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from adaptive_qs import Synthesizer
from adaptive_qs.table.propose import propose
from scripts.results import apart, peak_memory_mb, with_earlier, write_results

DELTA = 1e-6
EPSILONS, SEEDS = (0.1, 1.0, 10.0), range(1, 10)
CODES = 40
"""Codes of equal share over which pairs are compared."""
GROUPS = (16, 64)
"""Groups of equal share over which single columns are compared besides."""
DECLARED = (8, 17, 34, 68, 136)
"""Codes of equal share that are compared with those of the proposal."""
BILLS, PAYMENTS = ([f"{kind}_amt{k}" for k in range(1, 7)] for kind in ("bill", "pay"))
NUMBERS = {
    "marathon": [*(f"{k}-{k + 5}km" for k in range(0, 40, 5)), "40-42km"],
    "creditcard": ["age", *BILLS, *PAYMENTS],
    "airbnb": [
        *("price", "minimum_nights", "number_of_reviews", "reviews_per_month"),
        *("availability_365", "latitude", "longitude"),
    ],
    "cdnow_purchases": ["cds", "amt"],
}
"""Columns that are compared, by table."""
LEFT_OUT = ["users_id"]
Points = NDArray[np.float64]


def main(
    data: Annotated[Path, typer.Option(help="Folder of the raw tables.")],
    table: Annotated[list[str] | None, typer.Option(help="Tables; all by default.")] = None,
    epsilon: Annotated[list[float], typer.Option()] = [*EPSILONS],  # noqa: B006
    codes: Annotated[list[int] | None, typer.Option(help="Of a number; 0: as proposed.")] = None,
    seed: Annotated[list[int], typer.Option()] = [1, 2],  # noqa: B006
    out: Annotated[str, typer.Option(help="File in results/; empty: none.")] = "numbers",
    beside_coarse: Annotated[bool, typer.Option(help="Write results/fine_codes.*.")] = False,
) -> None:
    """Write results/numbers.{csv,json}, or results/fine_codes.{csv,json}."""
    rows = []
    for name in table or NUMBERS:
        for count in codes or [0, *(DECLARED if beside_coarse else ())]:
            for each in epsilon:
                for number in seed:
                    rows.append(apart(measured, data, name, count, each, number))
                    typer.echo(json.dumps(rows[-1]))
    config = {"delta": DELTA, "noise": "exact, seeded", "codes": CODES, "workers": 1}
    if beside_coarse:
        out = "fine_codes"
    if out:
        rows = with_earlier(out, rows, every_case())
        for row in rows if beside_coarse else ():
            row["beside_best"] = beside_best(row, rows)
        write_results(out, rows, config, sorted({row["seed"] for row in rows}), rows)


def every_case() -> list[str]:
    """Return the cases of which a file may have rows, in their order."""
    ordered = product(NUMBERS, EPSILONS, SEEDS, ["proposed", *DECLARED])
    return [" ".join(map(str, one)) for one in ordered]


def beside_best(row: dict[str, Any], rows: list[dict[str, Any]]) -> float | None:
    """Return by which part the pairs of a row are further off than in the best declared codes."""
    same = [one for one in rows if all(one[k] == row[k] for k in ("table", "epsilon", "seed"))]
    best = [one["pairs"] for one in same if one["codes"] != "proposed"]
    return round(row["pairs"] / min(best) - 1, 3) if best else None


def measured(data: Path, name: str, codes: int, epsilon: float, seed: int) -> dict[str, Any]:
    """One row: errors of one synthetic table, and what making it took."""
    frame = pd.read_csv(data / f"{name}.csv.gz").drop(columns=LEFT_OUT, errors="ignore")
    true = Numbers.of(frame, NUMBERS[name], CODES)
    schema = json.loads(propose(frame).to_json())
    if codes:
        schema["columns"] = [in_codes(each, true, codes) for each in schema["columns"]]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Synthesizer(
            epsilon=epsilon, delta=DELTA, insecure_seed=seed, unreviewed_schema=True, workers=1
        ).fit(frame, schema=schema)
        table = run.release_.draw(seed=seed).table()
    seconds = time.process_time() - start
    made = table.to_pandas()
    rng = np.random.default_rng(seed)
    shuffled = pd.DataFrame({each: rng.permutation(frame[each]) for each in NUMBERS[name]})
    coarse = {f"columns_{k}": Numbers.of(frame, NUMBERS[name], k).error(made, 1) for k in GROUPS}
    label = codes or "proposed"
    return {
        "case": " ".join(map(str, (name, epsilon, seed, label))),
        "table": name,
        "codes": label,
        "most_codes": max(run.schema_.column(each).num_values for each in NUMBERS[name]),
        "epsilon": epsilon,
        "seed": seed,
        "pairs": round(true.error(made, 2), 4),
        "pairs_independent": round(true.error(shuffled, 2), 4),
        "correlations_off": round(true.correlation_off(made), 4),
        "columns": round(true.error(made, 1), 4),
        **{key: round(error, 4) for key, error in coarse.items()},
        "cpu_seconds": round(seconds, 1),
        "memory_mb": round(peak_memory_mb()),
    }


@dataclass(frozen=True)
class Numbers:
    """Numbers of a true table, in codes of equal share; missing ones are medians.

    Attributes:
        values: the columns compared.
        cuts: ends of the codes of each column.
    """

    values: pd.DataFrame
    cuts: dict[str, Points]

    @classmethod
    def of(cls, frame: pd.DataFrame, columns: list[str], codes: int) -> Numbers:
        """Return these columns of a true table, in at most so many codes each."""
        values = frame[columns].apply(pd.to_numeric, errors="coerce")
        values = values.fillna(values.median()).astype(float)
        return cls(values, {name: equal_shares(values[name], codes) for name in columns})

    def like(self, made: pd.DataFrame) -> pd.DataFrame:
        """Return the columns compared of another table; missing ones are medians of this one."""
        values = made[[*self.cuts]].apply(pd.to_numeric, errors="coerce")
        return values.fillna(self.values.median()).astype(float)

    def shares(self, values: pd.DataFrame, columns: tuple[str, ...]) -> Points:
        """Return the share of the rows in each cell of these columns' codes, flat."""
        shape = tuple(len(self.cuts[name]) - 1 for name in columns)
        ends = (np.searchsorted(self.cuts[name], values[name], side="right") for name in columns)
        codes = tuple(np.clip(end - 1, 0, size - 1) for end, size in zip(ends, shape))
        flat = np.ravel_multi_index(codes, shape)
        return np.bincount(flat, minlength=math.prod(shape)) / len(values)

    def error(self, made: pd.DataFrame, ways: int) -> float:
        """Return the mean L1 distance of all marginals of so many columns."""
        values = self.like(made)
        off = (
            self.shares(self.values, some) - self.shares(values, some)
            for some in combinations(self.cuts, ways)
        )
        return float(np.mean([np.abs(each).sum() for each in off]))

    def correlation_off(self, made: pd.DataFrame) -> float:
        """Return the mean absolute deviation of Pearson correlations of all pairs."""
        off = (self.values.corr() - self.like(made).corr()).abs().to_numpy()
        return float(off[np.triu_indices(len(self.cuts), 1)].mean())


def equal_shares(values: pd.Series, codes: int) -> Points:
    """Return distinct ends, ascending, of at most so many codes with equal shares of the rows."""
    return np.unique(np.quantile(values, np.linspace(0, 1, codes + 1)))


def in_codes(column: dict[str, Any], true: Numbers, codes: int) -> dict[str, Any]:
    """Return the description of a column, with a number in so many codes of equal share."""
    if column["name"] not in true.cuts:
        return column
    cuts = equal_shares(true.values[column["name"]], codes)
    kept = {k: v for k, v in column.items() if k not in ("private_heaps", "bin_starts", "edges")}
    if column["type"] == "integer":
        inner = np.ceil(cuts[1:-1]).astype(int).tolist()
        return {**kept, "bin_starts": sorted({column["min"], *inner})}
    ends = {float(column["edges"][0]), *cuts[1:-1].tolist(), float(column["edges"][-1])}
    return {**kept, "edges": sorted(ends)}


if __name__ == "__main__":
    typer.run(main)
