"""Sets of tables next to flat joins: errors of own marginals and across each key, and seconds.

Both protect a row of the root with everything below it, at the same epsilon. The flat join of a
table has one row for each of its rows, behind the columns and numbers of children of all ancestors.
It is synthesized as one table of persons with the whole budget: the person is the root's key, with
as many rows as the set allows. It has no keys, so no links.

Two sets of three levels:

- "adult": UCI Adult (the shipped sample). Each of its rows is a spell of work. Rows of one country,
  race, gender, education and marital status follow each other in random order, and each one to
  three of them are the spells of one person. Each one to four consecutive persons of one country
  and race are a household.
- "town": 10,000 generated households, their persons and the trips of these, with known dependence
  across both keys (docs/example/make_households.py draws similar ones).

The error is the mean L1 distance between true and synthetic marginals of two columns: "own" if both
columns are the table's, "across" if one is an ancestor's column or number of children.

    python -m scripts.speed.benchmark_tables
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

from adaptive_qs import Synthesizer
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.tables import MeasuredTable, TableSet
from adaptive_qs.workload.workload import Workload
from scripts.results import cpu_model, write_results

DELTA = 1e-9
HOUSEHOLDS = 10_000
ROOT_KEY = "household"
Tables = dict[str, pd.DataFrame]


def describe(columns: Mapping[str, list[Any]], most: tuple[int, int], keys: Any) -> TableSet:
    """Return the schema of three tables, each the parent of the next."""
    names = list(columns)
    return TableSet.parse(
        {
            "version": 1,
            "tables": {n: {"version": 1, "columns": c} for n, c in columns.items()},
            "keys": [
                {"child": names[k + 1], "column": keys[k], "parent": names[k], "most": most[k]}
                for k in range(2)
            ],
        }
    )


LEVELS = {
    "households": ("race", "native-country"),
    "persons": ("gender", "education", "marital-status"),
    "spells": ("age", "workclass", "occupation", "relationship", "hours-per-week", "income"),
}
"""Columns of Adult by table."""
PERSONS, SPELLS = 4, 3
"""Maximum numbers of persons of a household and of spells of a person in "adult"."""


def adult_schema() -> TableSet:
    """Return the columns of the shipped schema, divided among three tables."""
    known = {c["name"]: c for c in json.loads(sample_dataset().schema.read_text())["columns"]}
    columns = {table: [known[name] for name in names] for table, names in LEVELS.items()}
    return describe(columns, (PERSONS, SPELLS), (ROOT_KEY, "person"))


def adult(rng: np.random.Generator) -> Tables:
    """Return the rows of Adult as spells of persons in households."""
    rows = pd.read_csv(sample_dataset().data, dtype=str, keep_default_na=False)
    home, person, spell = (list(names) for names in LEVELS.values())
    rows = rows.iloc[rng.permutation(len(rows))].sort_values([*home, *person], kind="stable")
    rows["person"] = _chunks(rows, [*home, *person], SPELLS, rng)
    persons = rows.drop_duplicates("person")[[*home, *person, "person"]]
    persons = persons.iloc[rng.permutation(len(persons))].sort_values(home, kind="stable")
    persons[ROOT_KEY] = _chunks(persons, home, PERSONS, rng)
    return {
        "households": persons.drop_duplicates(ROOT_KEY)[[ROOT_KEY, *home]],
        "persons": persons[["person", ROOT_KEY, *person]],
        "spells": rows[["person", *spell]],
    }


def _chunks(rows: pd.DataFrame, alike: list[str], most: int, rng: np.random.Generator) -> Any:
    """Number consecutive rows with equal cells in chunks of one to ``most``, from 1."""
    new = rows.groupby(alike, sort=False).cumcount().to_numpy() == 0
    new |= np.isin(np.arange(len(rows)), np.cumsum(rng.integers(1, most + 1, len(rows))))
    return np.cumsum(new)


def town_schema() -> TableSet:
    """Return the columns of the generated tables."""

    def labels(name: str, number: int) -> dict[str, Any]:
        values = [f"{name}{k}" for k in range(number)]
        return {"name": name, "type": "categorical", "values": values}

    def integers(name: str, most: int, bins: int) -> dict[str, Any]:
        return {"name": name, "type": "integer", "min": 0, "max": most, "bins": bins}

    columns = {
        "households": [labels("region", 8), labels("housing", 4), integers("income", 99, 20)],
        "persons": [integers("age", 99, 20), labels("sex", 2), labels("education", 7)],
        "trips": [labels("vehicle", 5), integers("minutes", 89, 18), integers("hour", 23, 24)],
    }
    return describe(columns, (6, 4), (ROOT_KEY, "person"))


def town(rng: np.random.Generator) -> Tables:
    """Return households, persons and trips that depend on each other across both keys."""
    n = HOUSEHOLDS
    region = rng.choice(8, n, p=np.arange(8, 0, -1) / 36)
    housing = (region + rng.choice(4, n, p=[0.55, 0.25, 0.15, 0.05])) % 4
    income = np.clip(30 + 6 * housing + 2 * region + rng.normal(0, 14, n), 0, 99).astype(int)
    size = 1 + rng.binomial(5, np.clip(0.15 + income / 300 + 0.1 * (region < 3), 0, 1))
    home = np.repeat(np.arange(n), size)
    m = len(home)
    age = np.clip(rng.gamma(2.0, 16, m) + 8 * (size[home] < 3) + income[home] / 8, 0, 99)
    education = np.clip(income[home] / 18 + (age > 18) + rng.normal(0, 1.2, m), 0, 6).astype(int)
    number = rng.binomial(4, np.where(age < 65, 0.3 + 0.05 * education, 0.25))
    person = np.repeat(np.arange(m), number)
    t = len(person)
    vehicle = (region[home[person]] + (age[person] > 18) + rng.choice(3, t, p=[0.6, 0.3, 0.1])) % 5
    minutes = np.clip(rng.gamma(2.0, 4 + 3 * vehicle, t) + income[home[person]] / 5, 0, 89)
    hour = np.clip(rng.normal(np.where(age[person] < 25, 9, 14), 4, t), 0, 23)

    def named(name: str, codes: Any) -> Any:
        return np.char.add(name, codes.astype(str))

    return {
        "households": pd.DataFrame({
            ROOT_KEY: np.arange(n), "region": named("region", region),
            "housing": named("housing", housing), "income": income,
        }),
        "persons": pd.DataFrame({
            "person": np.arange(m), ROOT_KEY: home, "age": age.astype(int),
            "sex": named("sex", rng.integers(0, 2, m)), "education": named("education", education),
        }),
        "trips": pd.DataFrame({
            "person": person, "vehicle": named("vehicle", vehicle),
            "minutes": minutes.astype(int), "hour": hour.astype(int),
        }),
    }  # fmt: skip


class Case(NamedTuple):
    """A set of tables: its schema, and how it is made."""

    schema: Callable[[], TableSet]
    make: Callable[[np.random.Generator], Tables]


CASES = {"adult": Case(adult_schema, adult), "town": Case(town_schema, town)}


def join(tables: Mapping[str, pd.DataFrame], schema: TableSet) -> Tables:
    """Return each table behind the columns and numbers of children of its ancestors."""
    found: Tables = {}
    for name in schema.names:
        rows = tables[name]
        for key in schema.find_keys_below(name):
            counts = tables[key.child][key.column].value_counts()
            counts = counts.reindex(rows[key.identifier], fill_value=0).to_numpy()
            rows = rows.assign(**{key.number: np.minimum(counts, key.most)})
        if (own := schema.by_child.get(name)) is not None:
            above = found[own.parent]
            rows = rows.merge(above, left_on=own.column, right_on=own.identifier)
        found[name] = rows
    return found


def errors(
    true: pd.DataFrame, made: pd.DataFrame, measured: MeasuredTable
) -> tuple[float | None, float | None]:
    """Return the mean L1 error of own pairs, and of pairs across keys, if there are such."""
    names = [*measured.schema.names]
    coded, synthetic = (read_table(table[names], measured.schema) for table in (true, made))
    pairs = Workload.all_ways(measured.schema.domain(), 2).weights
    own = {c: w for c, w in pairs.items() if c[0] >= measured.given}
    across = {c: w for c, w in pairs.items() if c[0] < measured.given <= c[1]}
    found: list[float | None] = []
    for weights in (own, across):
        workload = Workload(coded.domain, weights) if weights else None
        error = None if workload is None else workload_error(coded, synthetic, workload).mean_l1
        found.append(None if error is None else round(error, 5))
    return found[0], found[1]


def measure(name: str, epsilon: float, seed: int) -> list[dict[str, Any]]:
    """Return errors and seconds of one set, with a row for each table."""
    case = CASES[name]
    schema, tables = case.schema(), case.make(np.random.default_rng(seed))
    budget: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "insecure_seed": seed,
        "workers": 1,
    }
    start = time.process_time()
    made = Synthesizer(**budget).fit(tables, schema=schema).sample(seed=seed)
    seconds = time.process_time() - start
    true, joined, rows = join(tables, schema), join(made, schema), []
    for measured in schema.measured():
        table = measured.name
        start = time.process_time()
        flat = Synthesizer(rows_per_person=measured.rows_per_unit, **budget)
        schema_of_join = measured.schema.changed(person=ROOT_KEY, ignore=(), rules=())
        flat.fit(true[table][[*measured.schema.names, ROOT_KEY]], schema=schema_of_join)
        drawn = flat.sample(seed=seed)
        flat_seconds = time.process_time() - start
        own, across = errors(true[table], joined[table], measured)
        own_flat, across_flat = errors(true[table], drawn, measured)
        rows.append({
            "set": name, "epsilon": epsilon, "seed": seed, "table": table,
            "rows": len(tables[table]), "made_rows": len(made[table]),
            "rows_per_unit": measured.rows_per_unit, "share": round(float(measured.share), 4),
            "own": own, "own_flat": own_flat, "across": across, "across_flat": across_flat,
            "times": None if across is None or not across_flat else round(across / across_flat, 3),
            "cpu_seconds_set": round(seconds, 2), "cpu_seconds_flat": round(flat_seconds, 2),
            "machine": cpu_model(),
        })  # fmt: skip
    return rows


def main(
    name: Annotated[list[str], typer.Option("--set")] = [*CASES],  # noqa: B006
    epsilon: Annotated[list[float], typer.Option("--epsilon")] = [1.0, 10.0],  # noqa: B006
    seeds: int = 3,
    write: bool = True,
) -> None:
    """Measure every set at every budget; write results/tables.*."""
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for each in name:
        for eps in epsilon:
            for seed in range(1, seeds + 1):
                for row in measure(each, eps, seed):
                    rows.append(row)
                    typer.echo(json.dumps(row))
    if write:
        config = {"delta": DELTA, "error": "mean L1 over pairs of columns"}
        write_results("tables", rows, config, [*range(1, seeds + 1)], rows)


if __name__ == "__main__":
    typer.run(main)
