"""Small sets of tables for tests: households and persons, and trips of these."""

from __future__ import annotations

import numpy as np
import pandas as pd

from adaptive_qs import Synthesizer
from adaptive_qs.privacy.mechanisms import auditing
from adaptive_qs.privacy.unit import SetMember, Unit
from adaptive_qs.table.tables import TableSet

HOMES = {
    "version": 1,
    "columns": [
        {"name": "region", "type": "categorical", "values": ["n", "s"]},
        {"name": "income", "type": "integer", "min": 0, "max": 3},
    ],
}
PERSONS = {
    "version": 1,
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 4},
        {"name": "sex", "type": "categorical", "values": ["f", "m"], "missing": ["?"]},
    ],
    "ignore": ["id"],
}
TRIPS = {"version": 1, "columns": [{"name": "km", "type": "integer", "min": 0, "max": 3}]}
KEY = {"child": "persons", "column": "home", "parent": "homes", "most": 3, "count": "children"}
SCHEMA = {"version": 1, "tables": {"homes": HOMES, "persons": PERSONS}, "keys": [KEY]}
DEEP = {
    "version": 1,
    "tables": {"homes": HOMES, "persons": {**PERSONS, "ignore": []}, "trips": TRIPS},
    "keys": [
        {**KEY, "most": 2, "count": "size"},
        {"child": "trips", "column": "person", "parent": "persons", "parent_column": "id",
         "most": 2},
    ],
}  # fmt: skip


def find_unit(content):
    """What a run on the tables of a schema protects, as it is for the root."""
    schema = TableSet.parse(content)
    return Unit(related=SetMember(schema.names, schema.root, schema.joins))


UNIT, DEEP_UNIT = find_unit(SCHEMA), find_unit(DEEP)


def made(parents=400, seed=0, most=4):
    """Households and persons, of whom one household in five or so has more than count.

    Age follows the income of the household, which follows the region, and so does their number.
    """
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 2, parents)
    income = np.minimum(region + rng.integers(0, 3, parents), 3)
    size = np.minimum(income + rng.integers(0, 2, parents), most)
    key = rng.permutation(parents) + 11
    of = np.repeat(np.arange(parents), size)
    homes = pd.DataFrame({"home": key, "region": np.array(["n", "s"])[region], "income": income})
    persons = pd.DataFrame(
        {
            "id": np.arange(len(of)),
            "home": key[of],
            "age": np.minimum(income[of] + rng.integers(0, 2, len(of)), 4),
            "sex": rng.choice(["f", "m", "?"], len(of), p=[0.45, 0.45, 0.1]),
        }
    )
    persons = persons.iloc[rng.permutation(len(persons))].reset_index(drop=True)
    return {"homes": homes, "persons": persons}


def made_deep(parents=400, seed=0, most=4):
    """The same with trips of persons, whose length follows the age, and whose number the sex."""
    tables, rng = made(parents, seed, most), np.random.default_rng(seed + 1)
    persons = tables["persons"]
    number = rng.integers(0, 3, len(persons)) + (persons["sex"] == "m").to_numpy()
    of = np.repeat(np.arange(len(persons)), number)
    rng.shuffle(of)
    km = np.minimum(persons["age"].to_numpy()[of] + rng.integers(0, 2, len(of)), 3)
    return {**tables, "trips": pd.DataFrame({"person": persons["id"].to_numpy()[of], "km": km})}


def without(tables, key):
    """The tables without one household and all rows below it."""
    gone = set(tables["persons"]["id"][tables["persons"]["home"] == key])
    found = {n: tables[n][tables[n]["home"] != key] for n in ("homes", "persons")}
    if "trips" in tables:
        found["trips"] = tables["trips"][~tables["trips"]["person"].isin(gone)]
    return {name: table.reset_index(drop=True) for name, table in found.items()}


def published(tables, mechanisms, schema=SCHEMA, **options):
    """All that a run on a set of tables lets out, with the noise of these mechanisms."""
    with auditing(mechanisms):
        model = Synthesizer(beyond_limits=True, **options).fit(tables, schema=schema)
    drawn = model.release_.sample(20, seed=1)
    sampled = {name: table.to_pandas().to_csv().encode() for name, table in drawn.items()}
    return {"digests": repr(model.release_.digests()).encode(), **sampled}


MOST_ROWS = 900
"""Rows of a table of a drawn tree: each has its own value of a column, by which it is known."""


def drawn_tree(parents, seed, rows=14):
    """A schema of tables t0, t1, ... with these parents, and tables in which rows are known again
    by column i0, i1, ..."""
    rng = np.random.default_rng(seed)
    content = {"version": 1, "tables": {}, "keys": []}
    tables: dict[str, pd.DataFrame] = {}
    for number, parent in enumerate(parents):
        name, size = f"t{number}", rows
        columns = {}
        if parent is not None:
            above = tables[f"t{parent}"]
            times = rng.integers(0, 5, len(above))
            columns["up"] = np.repeat(above["key"].to_numpy(), times)
            size = len(columns["up"])
            content["keys"].append(
                {"child": name, "column": "up", "parent": f"t{parent}", "parent_column": "key",
                 "most": int(rng.integers(1, 4)), "count": f"n{number}"}
            )  # fmt: skip
        keys = rng.permutation(10 * size + 1)[:size]
        frame = pd.DataFrame({"key": keys, **columns, f"i{number}": np.arange(size) % MOST_ROWS})
        tables[name] = frame.iloc[rng.permutation(size)].reset_index(drop=True)
        column = {"name": f"i{number}", "type": "integer", "min": 0, "max": MOST_ROWS}
        content["tables"][name] = {"version": 1, "columns": [column]}
        if number not in parents:
            content["tables"][name]["ignore"] = ["key"]
    return TableSet.parse(content), tables
