"""Rules that are found in raw tables, and absurd rows of synthetic tables with and without them.

    python -m scripts.speed.benchmark_found_rules --data FOLDER

FOLDER has raw/airbnb.csv.gz, raw/porto.csv.gz, raw/marathon.csv.gz and national2019/. Each table is
synthesised with the schema and the rules that `schema init` proposes, as they are. "known" counts
the rules that were written by hand (in national2019/schema_rules.json) and follow from those found:
if one column of the true table is shuffled, each row that breaks one breaks a found rule, too, for
each of its columns. "seconds" are of the processor. Writes results/found_rules.*.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
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
from scripts.results import apart, write_results

DELTA = 1e-6
SPLITS = [*(f"{k}-{k + 5}km" for k in range(0, 40, 5)), "40-42km"]
Absurd = Callable[[pd.DataFrame, pd.DataFrame], dict[str, int]]


def airbnb(true: pd.DataFrame, made: pd.DataFrame) -> dict[str, int]:
    """Listings outside their borough; reviews without a date, or the other way round."""
    borough = true.drop_duplicates("neighbourhood").set_index("neighbourhood")[
        "neighbourhood_group"
    ]
    wrong = made["neighbourhood"].map(borough) != made["neighbourhood_group"]
    none = made["number_of_reviews"] == 0
    gaps = (none != made["last_review"].isna()) | (none != made["reviews_per_month"].isna())
    return {"wrong borough": int(wrong.sum()), "broken review patterns": int(gaps.sum())}


def porto(true: pd.DataFrame, made: pd.DataFrame) -> dict[str, int]:
    """Callers of other calls than A, stands of others than B."""
    call = made["ORIGIN_CALL"].notna() & (made["CALL_TYPE"] != "A")
    stand = made["ORIGIN_STAND"].notna() & (made["CALL_TYPE"] != "B")
    return {"caller but not A": int(call.sum()), "stand but not B": int(stand.sum())}


def marathon(true: pd.DataFrame, made: pd.DataFrame) -> dict[str, int]:
    """Splits of 5 km that differ from the one before by more than 1.4 or 0.7."""
    splits = made[SPLITS[:-1]].to_numpy(float)
    ratio = splits[:, 1:] / splits[:, :-1]
    return {"successive splits apart": int(((ratio > 1.4) | (ratio < 0.7)).sum())}


def national2019(true: pd.DataFrame, made: pd.DataFrame) -> dict[str, int]:
    """Persons whose age contradicts what is missing."""
    age, missing = made["AGEP"], made.isin(["N", ""])
    limits = {"MSP": 15, "PINCP": 15, "EDU": 3, "DREM": 5, "DPHY": 5}
    off = np.any([(age < limit) != missing[name] for name, limit in limits.items()], axis=0)
    return {"inconsistent ages": int(off.sum())}


TABLES: dict[str, Absurd] = {
    "raw/airbnb": airbnb, "raw/porto": porto, "raw/marathon": marathon,
    "national2019/national2019": national2019,
}  # fmt: skip


def main(
    data: Annotated[Path, typer.Option(help="Folder of the tables.")],
    table: Annotated[list[str] | None, typer.Option(help="Tables; all by default.")] = None,
    epsilon: Annotated[float, typer.Option()] = 1.0,
    seed: Annotated[list[int], typer.Option()] = [1, 2, 3],  # noqa: B006
    out: Annotated[str, typer.Option(help="File in results/; empty: none.")] = "found_rules",
) -> None:
    """Write results/found_rules.{csv,json}."""
    rows = []
    for name in table or TABLES:
        for number in seed:
            rows += apart(measured, data, name, epsilon, number)
            typer.echo("\n".join(map(json.dumps, rows[-2:])))
    if out:
        write_results(out, rows, {"delta": DELTA, "epsilon": epsilon, "workers": 1}, seed, rows)


def measured(data: Path, name: str, epsilon: float, seed: int) -> list[dict[str, Any]]:
    """Rows for one table and seed: each kind of absurd rows, with rules and without."""
    path = data / f"{name}.csv.gz"
    known = path.parent / "data_dictionary.json"
    proposal = propose(path, read_dictionary(known) if known.exists() else None)
    schema = propose_rules(path, proposal)
    byhand = path.parent / "schema_rules.json"
    kept = counted(path, schema, Schema.load(byhand)) if byhand.exists() else (0, 0)
    kind = {"keep_default_na": False} if known.exists() else {}
    true = pd.read_csv(path, **kind)
    found, seconds = [], []
    some = pd.read_csv(path, dtype=str, keep_default_na=False).head(300)
    for source, each in ((some, schema), (path, schema), (path, schema.changed(rules=()))):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Synthesizer(
                epsilon=epsilon, delta=DELTA, insecure_seed=seed, workers=1, beyond_limits=True,
                unreviewed_schema=True,
            ).fit(source, schema=each)  # fmt: skip
            table = model.sample(len(true), seed=seed)
        if source is some:  # which compiles
            continue
        seconds.append(time.process_time() - start)
        text = table.to_csv(index=False)
        found.append(TABLES[name](true, read(text, kind)))
    return [
        {
            "table": name, "epsilon": epsilon, "seed": seed, "rules": len(schema.rules),
            "known": kept[0], "by hand": kept[1], "absurd": what, "with": number,
            "without": found[1][what], "true": TABLES[name](true, true)[what],
            "seconds": round(seconds[0], 1), "seconds without": round(seconds[1], 1),
        }
        for what, number in found[0].items()
    ]  # fmt: skip


def read(text: str, kind: dict[str, Any]) -> pd.DataFrame:
    """Return the table as pandas reads it."""
    from io import StringIO

    return pd.read_csv(StringIO(text), **kind)


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
