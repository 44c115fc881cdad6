"""Rows that break a declared rule, and the error of marginals with rules and without.

Twelve kinds of rule on four made-up tables, each made once per epsilon and seed with its rules and
once without them. A row breaks a rule as pandas computes it on the values of the table, not as the
program does. The error is the mean total variation distance of all 2-way marginals from the true
table, in the codes of the schema.

    python -m scripts.speed.benchmark_rules --epsilon 1
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

from adaptive_qs import Synthesizer
from adaptive_qs.cliques import count_rows
from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.generate.zeros import allowed_cells
from adaptive_qs.release.release import Release
from adaptive_qs.residual import measured_variance
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results

ROWS = 10_000
DELTA = 1e-9
Broken = Callable[[pd.DataFrame], Any]


class Case(NamedTuple):
    """A table with rules.

    Attributes:
        columns: as a schema has them.
        rules: of each kind, the rule and which rows break it.
        made: the table with so many rows.
    """

    columns: list[dict[str, Any]]
    rules: dict[str, tuple[Any, Broken]]
    made: Callable[[np.random.Generator, int], pd.DataFrame]


def integer(name: str, low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "integer", "min": low, "max": high, **more}


def labels(name: str, *values: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "categorical", "values": list(values), **more}


def day(name: str, **more: Any) -> dict[str, Any]:
    ends = {"min": "2020-01-01", "max": "2021-12-31", "granularity": "month"}
    return {"name": name, "type": "date", **ends, **more}


def days_of(numbers: Any) -> Any:
    return pd.Series(np.datetime64("2020-01-01") + numbers).dt.date


def persons(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    age = rng.integers(0, 100, rows)
    status = np.where(age < 15, "never", rng.choice(["never", "married", "widowed"], rows))
    work = np.where(age < 15, "none", rng.choice(["none", "part", "full"], rows, p=[0.3, 0.2, 0.5]))
    phone = np.where(rng.random(rows) < 0.6, "yes", None)
    mail = np.where(pd.isna(phone) | (rng.random(rows) < 0.4), "yes", None)
    income = np.where(work == "none", 0, rng.gamma(2, 15, rows) * (1 + (work == "full"))).astype(
        int
    )
    frame = {"age": age, "status": status, "work": work, "phone": phone, "mail": mail}
    return pd.DataFrame(frame | {"income": np.minimum(income, 300)})


def loans(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    duration = rng.choice([12, 24, 36, 48, 60], rows, p=[0.1, 0.3, 0.3, 0.2, 0.1])
    payment = np.round(np.minimum(rng.gamma(3, 150, rows), 1_900), 2)
    opened = rng.integers(0, 600, rows)
    closed = opened + rng.integers(0, 120, rows) * (payment > 300)
    status = np.where(closed > opened + 60, "late", rng.choice(["paid", "open"], rows))
    frame = {"duration": duration, "payment": payment}
    frame |= {"amount": np.round(duration * payment, 2), "opened": days_of(opened)}
    return pd.DataFrame(frame | {"closed": days_of(closed), "status": status})


def visits(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    adults, children = rng.integers(1, 9, rows), rng.poisson(1.0, rows).clip(0, 8)
    arrival = rng.integers(0, 600, rows)
    nights = rng.geometric(0.15, rows).clip(1, 60)
    low = rng.integers(10, 90, rows)
    high = low + rng.integers(0, 40, rows)
    frame = {"adults": adults, "children": children, "guests": adults + children}
    frame |= {"arrival": days_of(arrival), "departure": days_of(arrival + nights)}
    return pd.DataFrame(frame | {"nights": nights, "low": low, "high": high})


def places(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    city = rng.choice(20, rows, p=np.arange(20, 0, -1) / 210)
    built = rng.integers(1900, 2021, rows)
    renovated = np.maximum(built, rng.integers(1900, 2021, rows))
    size = rng.integers(20, 200, rows)
    kind = np.where(size > 120, "house", rng.choice(["flat", "house"], rows))
    frame = {"city": [f"c{k}" for k in city], "county": [f"k{k // 4}" for k in city]}
    frame |= {"region": [f"r{k // 10}" for k in city], "built": built, "renovated": renovated}
    return pd.DataFrame(frame | {"size": size, "kind": kind})


def several(frame: pd.DataFrame, left: str, right: str) -> Any:
    """Rows with another value than most rows of the table with the same determining one."""
    most = frame.groupby(left)[right].agg(lambda values: values.mode()[0])
    return frame[left].map(most) != frame[right]


def gap(frame: pd.DataFrame, start: str, end: str) -> Any:
    return (pd.to_datetime(frame[end]) - pd.to_datetime(frame[start])).dt.days


REGIONS = [[f"k{k}", f"r{4 * k // 10}"] for k in (0, 1, 3, 4)]
CASES = {
    "persons": Case(
        [
            integer("age", 0, 99, bins=10), labels("status", "never", "married", "widowed"),
            labels("work", "none", "part", "full"), labels("phone", "yes", missing=[""]),
            labels("mail", "yes", missing=[""]), integer("income", 0, 300, bins=15),
        ],
        {
            "implication": (
                "age < 15 -> status = never",
                lambda t: (t["age"] < 15) & (t["status"] != "never"),
            ),
            "impossible combination": (
                "never age < 15 and work in (part, full)",
                lambda t: (t["age"] < 15) & (t["work"] != "none"),
            ),
            "at least one of": (
                "at least one of phone, mail", lambda t: t["phone"].isna() & t["mail"].isna()
            ),
        },
        persons,
    ),
    "loans": Case(
        [
            labels("duration", 12, 24, 36, 48, 60, ordered=True),
            {"name": "payment", "type": "numeric", "min": 0, "max": 2_000, "bins": 20,
             "decimals": 2},
            {"name": "amount", "type": "numeric", "min": 0, "max": 120_000, "bins": 24,
             "decimals": 2},
            day("opened"), day("closed"), labels("status", "paid", "open", "late"),
        ],
        {
            "product": (
                "amount = duration * payment",
                lambda t: (t["amount"] - t["duration"].astype(int) * t["payment"]).abs() > 0.0051,
            ),
            "order of dates": ("opened <= closed", lambda t: gap(t, "opened", "closed") < 0),
            "two alternatives": (
                "status != late or payment > 300",
                lambda t: (t["status"] == "late") & (t["payment"] <= 300),
            ),
        },
        loans,
    ),
    "visits": Case(
        [
            integer("adults", 1, 8), integer("children", 0, 8), integer("guests", 1, 16),
            day("arrival"), day("departure"), integer("nights", 1, 60, bins=15),
            integer("low", 0, 99, bins=10), integer("high", 0, 149, bins=15),
        ],
        {
            "sum": (
                "guests = adults + children",
                lambda t: t["guests"] != t["adults"] + t["children"],
            ),
            "difference of dates": (
                "nights = departure - arrival",
                lambda t: gap(t, "arrival", "departure") != t["nights"],
            ),
            "order of numbers": ("low <= high", lambda t: t["low"] > t["high"]),
        },
        visits,
    ),
    "places": Case(
        [
            labels("city", *(f"c{k}" for k in range(20))),
            labels("county", *(f"k{k}" for k in range(5))), labels("region", "r0", "r1"),
            integer("built", 1900, 2020, bins=12), integer("renovated", 1900, 2020, bins=12),
            integer("size", 20, 199, bins=9), labels("kind", "flat", "house"),
        ],
        {
            "determination, learnt": (
                "city determines county", lambda t: several(t, "city", "county")
            ),
            "determination, declared": (
                {"rule": "county determines region", "table": REGIONS},
                lambda t: t["county"].map(dict(REGIONS)).fillna(t["region"]) != t["region"],
            ),
            "contraposition": (
                "not (renovated < built or size > 120 and kind = flat)",
                lambda t: (t["renovated"] < t["built"])
                | ((t["size"] > 120) & (t["kind"] == "flat")),
            ),
        },
        places,
    ),
}  # fmt: skip


def tables(case: Case, epsilon: float, seed: int) -> Iterator[tuple[bool, pd.DataFrame, float]]:
    """The table with rules and without, and the processor seconds of each."""
    true = case.made(np.random.default_rng(seed), ROWS)
    for ruled in (True, False):
        rules = [rule for rule, _ in case.rules.values()] if ruled else []
        schema = {"version": 1, "columns": case.columns, "rules": rules}
        start = time.process_time()
        model = Synthesizer(epsilon=epsilon, delta=DELTA, insecure_seed=seed, workers=1,
                            beyond_limits=True)  # fmt: skip
        made = model.fit(true, schema=schema).sample(ROWS, seed=seed)
        yield ruled, made, time.process_time() - start


def measured(name: str, epsilon: float, seed: int) -> list[dict[str, Any]]:
    """One row for each kind of rule of a table."""
    case = CASES[name]
    schema = Schema.parse({"version": 1, "columns": case.columns})
    true = case.made(np.random.default_rng(seed), ROWS)
    coded = read_table(true, schema)
    workload = Workload.all_ways(schema.domain(), 2)
    found: dict[str, Any] = {}
    broken: dict[str, dict[str, float]] = {kind: {} for kind in case.rules}
    for ruled, made, seconds in tables(case, epsilon, seed):
        way = "with" if ruled else "without"
        distance = workload_error(coded, read_table(made, schema), workload)
        found[f"error_{way}"] = distance.mean_l1 / 2
        found[f"seconds_{way}"] = round(seconds, 1)
        for kind, (_, breaks) in case.rules.items():
            broken[kind][f"broken_{way}"] = float(np.mean(breaks(made)))
    for kind, (_, breaks) in case.rules.items():
        assert not np.any(breaks(true)), f"the true table breaks {kind}"
    base = {"table": name, "epsilon": epsilon, "seed": seed}
    return [base | {"kind": kind} | broken[kind] | found for kind in case.rules]


# Drawn against measured counts.

DRAWN_EPSILON, DRAWN_DELTA, DRAWN_SEEDS = 10.0, 1e-5, (1, 2, 3, 4, 5)
BEYOND = 5.0
"""Standard errors from which a cell of a pair counts as off."""


def events(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Three groups of columns: each has one that decides what the others can be."""
    on = rng.random(rows) < 0.04
    frame = {"switch": np.where(on, "on", "off")}
    frame |= {f"s{k}": np.where(on, "none", rng.choice(list("abcd"), rows)) for k in range(5)}
    event = rng.random(rows) < 0.3
    times = np.sort(rng.integers(0, 60, (rows, 3)) + 10 * on[:, None], axis=1)
    kind = rng.choice(["x", "y", "z"], (rows, 3), p=[0.6, 0.3, 0.1])
    values = {f"t{k}": times[:, k] for k in range(3)} | {f"k{k}": kind[:, k] for k in range(3)}
    frame |= {name: pd.array(v).astype(object) for name, v in values.items()}
    for name in values:
        frame[name] = np.where(event, frame[name], None)
    kinds = rng.choice(8, rows, p=np.array([8, 7, 6, 5, 4, 3, 2, 1]) / 36)
    frame |= {"type": [f"t{k}" for k in kinds], "group": [f"g{k // 3}" for k in kinds]}
    for k in range(4):
        frame[f"r{k}"] = kinds // 3 * 10 + rng.binomial(9, 0.3 + 0.1 * k, rows)
    frame["other"] = np.where(event ^ on, "yes", rng.choice(["yes", "no"], rows))
    frame["size"] = np.minimum(rng.geometric(0.1, rows) + 10 * on, 59)
    return pd.DataFrame(frame)


def events_schema() -> dict[str, Any]:
    numbers = [integer(f"r{k}", 0, 29) for k in range(4)]
    columns = [
        labels("switch", "on", "off"),
        *(labels(f"s{k}", "none", *"abcd") for k in range(5)),
        *(integer(f"t{k}", 0, 79, bins=16, missing=[""]) for k in range(3)),
        *(labels(f"k{k}", "x", "y", "z", missing=[""]) for k in range(3)),
        labels("type", *(f"t{k}" for k in range(8))), labels("group", "g0", "g1", "g2"),
        *numbers, labels("other", "yes", "no"), integer("size", 0, 59, bins=12),
    ]  # fmt: skip
    rules: list[Any] = ["t0 <= t1", "t1 <= t2"]
    for k in range(5):
        rules += [f"switch = on -> s{k} = none", f"switch = off -> s{k} != none"]
    for name in ("t1", "t2", "k0", "k1", "k2"):
        rules += [f"t0 is missing -> {name} is missing", f"{name} is missing -> t0 is missing"]
    for k in range(4):
        rules += [f"group = g{g} -> r{k} >= {10 * g} and r{k} <= {10 * g + 9}" for g in range(3)]
    table = [[f"t{k}", f"g{k // 3}"] for k in range(8)]
    rules.append({"rule": "type determines group", "table": table})
    return {"version": 1, "columns": columns, "rules": rules}


def excerpts(folder: Path) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Tables with blocks, and their schemas: two excerpts of a survey, and a made-up one."""
    described = json.loads((folder / "national2019" / "schema_rules.json").read_text())
    for name in ("national2019", "ma2019"):
        frame = pd.read_csv(folder / name / f"{name}.csv.gz", dtype=str)
        schema = json.loads(json.dumps(described))
        for column in schema["columns"]:
            if column["name"] in ("PUMA", "DENSITY"):
                column["values"] = sorted(frame[column["name"]].unique())
        for rule in schema["rules"]:
            if isinstance(rule, dict) and rule["rule"] == "PUMA determines DENSITY":
                rule["table"] = sorted(map(list, {*zip(frame["PUMA"], frame["DENSITY"])}))
        yield name, frame, schema
    yield "events", events(np.random.default_rng(1), 20_000), events_schema()


def gaps(rows: np.ndarray, release: Release, clique: Clique) -> np.ndarray:
    """Drawn counts minus measured ones in standard errors; 0 in cells that rules forbid."""
    model, zeros = release.model(), release.zeros
    columns = model.domain.columns(clique)
    counted = count_rows(rows, model.domain, columns) * (model.total / len(rows))
    drawn, measured = model.domain.summed(counted, columns, clique), model.marginal(clique)
    likely = np.maximum(np.maximum(measured, drawn), 1.0)
    drawing = likely * np.maximum(1 - likely / model.total, 0.0) * model.total / len(rows)
    found = (drawn - measured) / np.sqrt(measured_variance(model, clique) + drawing)
    allowed = allowed_cells(zeros, model.domain, columns) if clique == columns else None
    return found if allowed is None or len(clique) == 1 else np.where(allowed, found, 0.0)


def drawn_and_measured(
    true: pd.DataFrame, schema: dict[str, Any], seed: int, ruled: bool
) -> dict[str, Any]:
    """Gaps of one table, its error, and the processor seconds of measuring and of drawing it."""
    described = schema if ruled else schema | {"rules": []}
    start = time.process_time()
    model = Synthesizer(epsilon=DRAWN_EPSILON, delta=DRAWN_DELTA, insecure_seed=seed, workers=1,
                        beyond_limits=True).fit(true, schema=described)  # fmt: skip
    measured_at = time.process_time()
    made = model.release_.sample(seed=seed)
    seconds = time.process_time() - measured_at
    release = model.release_
    coded = read_table(true, release.schema)
    rows = np.asfortranarray(np.stack(made.columns, axis=1).astype(np.int32))
    singles = [gaps(rows, release, (i,)) for i in range(rows.shape[1])]
    measured = {past.clique: release.domain.clique_at(past.clique, past.groups)
                for past in release.rounds}.values()  # fmt: skip
    pairs = [gaps(rows, release, clique) for clique in measured if len(clique) > 1]
    workload = Workload.all_ways(release.schema.domain(), 2)
    return {
        "rules": ruled,
        "seed": seed,
        "largest_single": max(float(np.abs(gap).max()) for gap in singles),
        "largest_together": max(float(np.abs(gap).max()) for gap in pairs),
        "cells": sum(gap.size for gap in pairs),
        "cells_beyond": sum(int((np.abs(gap) > BEYOND).sum()) for gap in pairs),
        "error": workload_error(coded, made, workload).mean_l1,
        "seconds_measuring": round(measured_at - start, 1),
        "seconds_drawing": round(seconds, 1),
    }


def compare_drawn(folder: Path) -> None:
    """Write results/rules_drawn.*."""
    rows: list[dict[str, Any]] = []
    for name, true, schema in excerpts(folder):
        drawn_and_measured(true.head(500), schema, 0, True)  # compiles
        for seed in DRAWN_SEEDS:
            for ruled in (True, False):
                rows.append({"table": name} | drawn_and_measured(true, schema, seed, ruled))
                typer.echo(json.dumps(rows[-1]))
                config = {"epsilon": DRAWN_EPSILON, "delta": DRAWN_DELTA, "beyond": BEYOND}
                write_results("rules_drawn", rows, config, list(DRAWN_SEEDS), rows)


def main(
    table: Annotated[list[str], typer.Option("--table")] = [*CASES],  # noqa: B006
    epsilon: Annotated[list[float], typer.Option("--epsilon")] = [0.1, 1.0, 10.0],  # noqa: B006
    seed: int = 1,
    drawn: Path | None = None,
) -> None:
    """Every kind of rule on its table; writes results/rules.*, or results/rules_drawn.*."""
    warnings.simplefilter("ignore")
    if drawn is not None:
        compare_drawn(drawn)
        return
    rows: list[dict[str, Any]] = []
    for name in table:
        for eps in epsilon:
            rows += (found := measured(name, eps, seed))
            typer.echo(found)
            config = {"delta": DELTA, "rows": ROWS, "error": "mean 2-way total variation"}
            write_results("rules", rows, config, [seed], rows)


if __name__ == "__main__":
    typer.run(main)
