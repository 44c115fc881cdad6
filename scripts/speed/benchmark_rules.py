"""Rows that break a declared rule, and the error of marginals with rules and without.

Twelve kinds of rule on four made-up tables, each made once per epsilon and seed with its rules and
once without them. A row breaks a rule as pandas computes it on the values of the table, not as the
program does. The error is the mean total variation distance of all 2-way marginals from the true
table, in the codes of the schema.

    python -m scripts.speed.benchmark_rules --epsilon 1
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

from adaptive_qs import Synthesizer
from adaptive_qs.evaluation.marginals import workload_error
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


def main(
    table: Annotated[list[str], typer.Option("--table")] = [*CASES],  # noqa: B006
    epsilon: Annotated[list[float], typer.Option("--epsilon")] = [0.1, 1.0, 10.0],  # noqa: B006
    seed: int = 1,
) -> None:
    """Every kind of rule on its table; writes results/rules.*."""
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for name in table:
        for eps in epsilon:
            rows += (found := measured(name, eps, seed))
            typer.echo(found)
            config = {"delta": DELTA, "rows": ROWS, "error": "mean 2-way total variation"}
            write_results("rules", rows, config, [seed], rows)


if __name__ == "__main__":
    typer.run(main)
