"""Pairs of tables with a known problem each, whose verdicts are kept in ``golden/``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from adaptive_qs import Synthesizer, evaluate
from adaptive_qs.evaluation.evaluation import Promised
from adaptive_qs.table.schema import Schema

CITIES = [f"city {k}" for k in range(12)]
COUNTRIES = ["west", "north", "east", "south"]
SCHEMA = Schema.parse({"version": 1, "rules": ["start <= stop"], "columns": [
    {"name": "city", "type": "categorical", "values": CITIES},
    {"name": "country", "type": "categorical", "values": COUNTRIES},
    {"name": "age", "type": "integer", "min": 0, "max": 39, "bins": 20, "missing": [""]},
    {"name": "start", "type": "integer", "min": 0, "max": 9},
    {"name": "stop", "type": "integer", "min": 0, "max": 14},
    {"name": "price", "type": "numeric", "edges": [0, 100, 200, 1000], "decimals": 2},
    {"name": "member", "type": "boolean"},
    {"name": "mood", "type": "categorical", "values": ["low", "fair", "high"]},
]})  # fmt: skip
ROWS = 3_000


def people(seed, rows=ROWS):
    """City determines country; price follows the country; stop is after start."""
    rng = np.random.default_rng(seed)
    city = rng.choice(12, rows, p=np.arange(12, 0, -1) / 78)
    age = np.minimum(rng.gamma(4, 4, rows), 39).astype(int)
    start = rng.integers(0, 10, rows)
    price = np.round(np.array([40, 90, 150, 400])[city // 3] * rng.uniform(0.6, 1.4, rows), -1)
    return pd.DataFrame({
        "city": np.array(CITIES)[city],
        "country": np.array(COUNTRIES)[city // 3],
        "age": pd.array(np.where(rng.random(rows) < 0.1, None, age), dtype="Int64"),
        "start": start,
        "stop": start + rng.integers(0, 5, rows),
        "price": price,
        "member": rng.random(rows) < age / 39,
        "mood": rng.choice(["low", "fair", "high"], rows, p=[0.5, 0.3, 0.2]),
    })  # fmt: skip


TRUE = people(1)


def shuffled(names, rows=ROWS):
    """Another sample, in which some columns are independent of all others."""
    rng = np.random.default_rng(7)
    made = people(2, rows)
    return made.assign(**{name: rng.permutation(made[name].array) for name in names})


def changed(name, part, values):
    """Another sample, in which a part of the rows has other values of a column."""
    made = people(2)
    return made.assign(**{name: made[name].where(np.arange(ROWS) >= part * ROWS, values)})


def compared(made, workload=2, true=TRUE, **options):
    """The evaluation of a table of these columns."""
    return evaluate(true, made, SCHEMA, workload, **options)


def copies():
    """Most rows are true ones."""
    return compared(pd.concat([TRUE[:2_400], people(2)[2_400:]]), 1)


def spread_in_bins():
    """Prices drawn evenly in their bins: the codes stay, the values do not."""
    made, rng = people(2), np.random.default_rng(5)
    bins = np.digitize(made.price, [100, 200])
    low, high = np.array([0, 100, 200])[bins], np.array([100, 200, 1000])[bins]
    return compared(made.assign(price=np.round(rng.uniform(low, high - 0.01), 2)))


def contradicted(part=0.4, drawn=1_500.0, **statement):
    """A part of the moods is not what was measured, as the statement next to the table says."""
    model = Synthesizer(rho=2.0, workload=1, workers=1).fit(TRUE, schema=SCHEMA)
    manifest = model.release_.manifest.model_copy(update=statement)
    found = compared(changed("mood", part, "high"), 1)
    cell = {"columns": ["mood"], "cell": ["high"], "measured": 600.0, "drawn": drawn,
            "standard_errors": 40.0}  # fmt: skip
    promised = Promised(manifest, sampling={"rows": ROWS, "contradictions": [cell]})
    comparison = replace(found.comparison, promised=promised)
    release = found.checks[0].measure(comparison)
    return replace(found, comparison=comparison, facts={**found.facts, "release": release})


def few_rows():
    """Eight rows in each table."""
    return compared(people(2)[:8], true=TRUE[:8])


def sparse():
    """Marginals in which most cells hold a row or none."""
    columns = [{"name": n, "type": "integer", "min": 0, "max": 199} for n in "abc"]
    rng = np.random.default_rng(1)
    frames = (pd.DataFrame(rng.integers(0, 200, (2_000, 3)), columns=list("abc")) for _ in "tm")
    return evaluate(*frames, {"version": 1, "columns": columns}, 3)


RANGES = {"version": 1, "parts": [
    {"attributes": [["start", "stop"]], "queries": "range", "weight": 2.0},
    {"attributes": [["age"]], "queries": "prefix"},
]}  # fmt: skip
PREFIXES = {"version": 1, "parts": RANGES["parts"][1:]}


def criteria(limit):
    """One limit of the owner."""
    listed = [{"measure": "count_difference", "ways": 1, "limit": limit}]
    return {"version": 1, "criteria": listed}


def hours_lost():
    """Dates that have lost their hours."""
    column = {"name": "seen", "type": "datetime", "min": "2024-01-01T00:00:00",
              "max": "2024-12-31T23:59:59", "granularity": "day"}  # fmt: skip
    rng = np.random.default_rng(1)
    days, hours = rng.integers(0, 365, 2_000), rng.binomial(23, 0.5, 2_000)
    moments = pd.Timestamp("2024-01-01") + pd.to_timedelta(24 * days + hours, unit="h")
    true = pd.DataFrame({"seen": moments})
    made = pd.DataFrame({"seen": moments.normalize()})
    return evaluate(true, made, {"version": 1, "columns": [column]}, 1)


CASES = {
    "a fresh sample": lambda: compared(people(2)),
    "the true table": lambda: compared(TRUE.sample(frac=1, random_state=1)),
    "copies": copies,
    "independent columns": lambda: compared(shuffled(list(TRUE))),
    "one association lost": lambda: compared(shuffled(["member"])),
    "means by groups lost": lambda: compared(shuffled(["price"])),
    "an association made up": lambda: compared(
        people(2).assign(mood=lambda t: np.where(t.member, "high", "low"))
    ),
    "a column off": lambda: compared(changed("mood", 0.3, "high")),
    "a rule broken": lambda: compared(changed("stop", 0.1, 0), rules="city determines country"),
    "a map broken": lambda: compared(
        people(2).assign(country=lambda t: t.country.mask(t.city == "city 1", "south"))
    ),
    "values moved in bins": spread_in_bins,
    "a release contradicted": contradicted,
    "a release slightly contradicted": lambda: contradicted(0.02, 640.0),
    "few rows": few_rows,
    "sparse marginals": sparse,
    "queries of a fresh sample": lambda: compared(people(2), RANGES),
    "queries lost": lambda: compared(shuffled(["start", "stop"]), RANGES),
    "queries of one column": lambda: compared(changed("age", 0.1, 3), PREFIXES),
    "one column": lambda: evaluate(
        TRUE[["mood"]], people(2)[["mood"]],
        {"version": 1, "columns": [{"name": "mood", "type": "categorical",
                                    "values": ["low", "fair", "high"]}]}, 1,
    ),
    "models": lambda: compared(shuffled(["member"]), 1, target="member", repeats=2),
    "hours lost": hours_lost,
    "criteria met": lambda: compared(people(2), 1, accept=criteria(0.05)),
    "a criterion not met": lambda: compared(people(2), 1, accept=criteria(0.001)),
    "a group missing": lambda: compared(people(2).query("country != 'south'"), 1),
}  # fmt: skip
"""A problem, and the evaluation of tables that have it."""
