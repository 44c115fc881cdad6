"""Rules that are found in raw tables, and absurd rows of synthetic tables with and without them.

    python -m scripts.speed.benchmark_found_rules --data FOLDER [--excerpts FOLDER]

FOLDER has raw/airbnb.csv.gz, creditcard, porto and marathon there, and national2019/. Each table is
synthesised with the schema and the rules that `schema init` proposes, as they are. "known" counts
the rules that were written by hand (in national2019/schema_rules.json) and follow from those found:
if one column of the true table is shuffled, each row that breaks one breaks a found rule, too, for
each of its columns. "seconds" are of the processor. With --excerpts (the data excerpts of NIST, as
SDNist reads them) the K-marginal of national2019 is scored at ε = 1 and 10 (δ = 1e-5) for the
proposal and for the schema made by hand ("without" has the latter). Writes results/found_rules.*;
rows of other tables and seeds stay.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from adaptive_qs import Synthesizer
from adaptive_qs.evaluation.finding import propose_rules
from adaptive_qs.evaluation.rules import declared_rules
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.table.dictionary import read_dictionary
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from scripts.compare.scored import NIST_DELTA, run_evaluator
from scripts.results import RESULTS, apart, with_earlier, write_results

DELTA = 1e-6
SPLITS = [f"{k}-{k + 5}km" for k in range(0, 40, 5)]
KM_OF_DEGREE = 111.2
Figures = dict[str, float]


def airbnb(true: pd.DataFrame, made: pd.DataFrame) -> Figures:
    """Listings outside their borough or far from their neighbourhood; broken review patterns."""
    kinds = true.groupby("neighbourhood")
    wrong = made["neighbourhood"].map(kinds["neighbourhood_group"].first())
    none = made["number_of_reviews"] == 0
    gaps = (none != made["last_review"].isna()) | (none != made["reviews_per_month"].isna())
    places = ["latitude", "longitude"]
    centres = kinds[places].mean().reindex(made["neighbourhood"]).to_numpy()
    north, east = (made[places].to_numpy() - centres).T * KM_OF_DEGREE
    away = np.hypot(north, east * np.cos(np.radians(centres[:, 0])))
    return {
        "wrong borough": int((wrong != made["neighbourhood_group"]).sum()),
        "broken review patterns": int(gaps.sum()),
        "more than 5 km from the centre": int((away > 5).sum()),
    }


def creditcard(true: pd.DataFrame, made: pd.DataFrame) -> Figures:
    """Per cent of limits that are no multiples of 10,000; columns of another dtype."""
    odd = 100 * float((made["limit_bal"] % 10_000 != 0).mean())
    kinds = sum(made[name].dtype != kind for name, kind in true.dtypes.items())
    return {"limits no multiples of 10,000, %": round(odd, 2), "other dtype": kinds}


def porto(true: pd.DataFrame, made: pd.DataFrame) -> Figures:
    """Callers of other calls than A, stands of others than B; how far shares of hours are off."""
    call = made["ORIGIN_CALL"].notna() & (made["CALL_TYPE"] != "A")
    stand = made["ORIGIN_STAND"].notna() & (made["CALL_TYPE"] != "B")
    one, other = (
        pd.to_datetime(t["TIMESTAMP"]).dt.hour.value_counts(normalize=True) for t in (true, made)
    )
    off = 100 * float((other.reindex(one.index, fill_value=0) / one - 1).abs().max())
    return {
        "caller but not A": int(call.sum()), "stand but not B": int(stand.sum()),
        "share of an hour off, %": round(off, 1),
    }  # fmt: skip


def marathon(true: pd.DataFrame, made: pd.DataFrame) -> Figures:
    """Rows with a split of 5 km above 1.4 or below 0.7 times the one before."""
    splits = made[SPLITS].to_numpy(float)
    ratio = splits[:, 1:] / splits[:, :-1]
    return {"successive splits apart": int(((ratio > 1.4) | (ratio < 0.7)).any(axis=1).sum())}


def national2019(true: pd.DataFrame, made: pd.DataFrame) -> Figures:
    """Persons whose age contradicts what is missing."""
    age, missing = made["AGEP"], made.isin(["N", ""])
    limits = {"MSP": 15, "PINCP": 15, "EDU": 3, "DREM": 5, "DPHY": 5}
    off = np.any([(age < limit) != missing[name] for name, limit in limits.items()], axis=0)
    return {"inconsistent ages": int(off.sum())}


NIST = "national2019"
TABLES: dict[str, Callable[[pd.DataFrame, pd.DataFrame], Figures]] = {
    "raw/airbnb": airbnb, "raw/creditcard": creditcard, "raw/porto": porto,
    "raw/marathon": marathon, NIST: national2019,
}  # fmt: skip


def locate(data: Path, name: str) -> Path:
    """Return the file of a table."""
    return data / (f"{NIST}/{NIST}.csv.gz" if name == NIST else f"{name}.csv.gz")


def main(
    data: Annotated[Path, typer.Option(help="Folder of the tables.")],
    table: Annotated[list[str] | None, typer.Option(help="Tables; all by default.")] = None,
    epsilon: Annotated[float, typer.Option()] = 1.0,
    seed: Annotated[list[int], typer.Option()] = [1, 2, 3],  # noqa: B006
    excerpts: Annotated[Path | None, typer.Option(help="NIST's; scores K-marginals.")] = None,
    environments: Annotated[Path, typer.Option(help="Of the evaluators.")] = Path("environments"),
    out: Annotated[str, typer.Option(help="File in results/; empty: none.")] = "found_rules",
) -> None:
    """Write results/found_rules.{csv,json}."""
    known = [*TABLES] if excerpts is None else [NIST]
    if unknown := sorted({*(table or ())} - {*known}):
        raise typer.BadParameter(f"--table {unknown[0]}: use {', '.join(known)}")
    rows = []
    for name in table or known:
        for number in seed:
            if excerpts is None:
                rows += apart(measured, data, name, epsilon, number)
            else:
                for each in (1.0, 10.0):
                    rows.append(scored(data, each, number, excerpts, environments))
            typer.echo("\n".join(map(json.dumps, rows[-4:])))
    if out:
        for row in rows:
            row["case"] = " ".join(str(row[key]) for key in ("table", "absurd", "epsilon", "seed"))
        path = RESULTS / f"{out}.json"
        earlier = json.loads(path.read_text())["numbers"] if path.exists() else []
        order = sorted({row["case"] for row in (*earlier, *rows)})
        rows = with_earlier(out, rows, order)
        config = {"delta": DELTA, "delta of K-marginals": NIST_DELTA, "workers": 1}
        write_results(out, rows, config, [1, 2, 3], rows)


def proposed(path: Path) -> Schema:
    """Return what `schema init` proposes, with the data dictionary next to the table, if any."""
    known = path.parent / "data_dictionary.json"
    return propose_rules(path, propose(path, read_dictionary(known) if known.exists() else None))


def measured(data: Path, name: str, epsilon: float, seed: int) -> list[dict[str, Any]]:
    """Rows for one table and seed: each kind of absurd rows, with rules and without."""
    path = locate(data, name)
    schema, byhand = proposed(path), path.parent / "schema_rules.json"
    kept = counted(path, schema, Schema.load(byhand)) if byhand.exists() else (0, 0)
    kind = {"keep_default_na": False} if byhand.exists() else {}
    true = pd.read_csv(path, **kind)
    found, seconds = [], []
    some = pd.read_csv(path, dtype=str, keep_default_na=False).head(300)
    for source, each in ((some, schema), (path, schema), (path, schema.changed(rules=()))):
        start = time.process_time()
        text = made(source, each, len(true), epsilon, DELTA, seed)
        if source is some:  # which compiles
            continue
        seconds.append(time.process_time() - start)
        found.append(TABLES[name](true, pd.read_csv(StringIO(text), **kind)))
    return [
        {
            "table": name, "epsilon": epsilon, "seed": seed, "rules": len(schema.rules),
            "known": kept[0], "by hand": kept[1], "absurd": what, "with": number,
            "without": found[1][what], "true": TABLES[name](true, true)[what],
            "seconds": round(seconds[0], 1), "seconds without": round(seconds[1], 1),
        }
        for what, number in found[0].items()
    ]  # fmt: skip


def made(source: Any, schema: Schema, rows: int, epsilon: float, delta: float, seed: int) -> str:
    """Return a synthetic table, as CSV."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Synthesizer(
            epsilon=epsilon, delta=delta, insecure_seed=seed, workers=1, beyond_limits=True,
            unreviewed_schema=True,
        ).fit(source, schema=schema)  # fmt: skip
        return str(model.sample(rows, seed=seed).to_csv(index=False))


def scored(
    data: Path, epsilon: float, seed: int, excerpts: Path, environments: Path
) -> dict[str, Any]:
    """A row of K-marginals by SDNist, of the proposal and of the schema made by hand."""
    path, scores = locate(data, NIST), []
    true = pd.read_csv(path, dtype=str, keep_default_na=False)
    schemas = proposed(path), Schema.load(path.parent / "schema_rules.json")
    for schema in schemas:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "synthetic.csv"
            text = StringIO(made(path, schema, len(true), epsilon, NIST_DELTA, seed))
            table = pd.read_csv(text, dtype=str, keep_default_na=False)
            table = table[table["PUMA"].isin(true["PUMA"])]  # SDNist ends at others
            table.replace("", "N").to_csv(file, index=False)  # as it reads missing values
            job = {"synthetic": str(file), "target": path.parent.name, "excerpts": str(excerpts)}
            scores.append(run_evaluator("sdnist", job, environments)["k_marginal"])
    return {
        "table": NIST, "epsilon": epsilon, "seed": seed, "rules": len(schemas[0].rules),
        "known": "", "by hand": len(schemas[1].rules), "absurd": "K-marginal", "with": scores[0],
        "without": scores[1], "true": 1000, "seconds": "", "seconds without": "",
    }  # fmt: skip


def counted(path: Path, found: Schema, byhand: Schema) -> tuple[int, int]:
    """Return how many of the rules written by hand follow from those found, and their number."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    rules = declared_rules(byhand)
    follows = dict.fromkeys(rules, True)
    for name in frame:
        concerned = [rule for rule in rules if name in rule.names]
        mixed = frame.assign(**{name: np.random.default_rng(0).permutation(frame[name])})
        joint, other = (JointCodes(TablePair.of(frame, mixed, s)) for s in (byhand, found))
        caught = np.any([rule.check(other).broken for rule in declared_rules(found)], axis=0)
        for rule in concerned:
            follows[rule] &= bool((caught | ~rule.check(joint).broken).all())
    return sum(follows.values()), len(rules)


if __name__ == "__main__":
    typer.run(main)
