"""Related tables beside the join made flat: error of marginals over columns of both, and seconds.

Both protect a parent with all children at the same epsilon. The flat table has a row for each child
with the columns of its parent and the number of children, and is made as one table of persons: the
key is the person, whose rows count up to the same number. It has no keys, so no links.

Two pairs: one that is generated, 10,000 households and 60,000 persons; and one derived from the
shipped sample (UCI Adult), whose persons of the same education, race and country are put into
groups of one to eight, in the order of a hash. The error is the mean L1 distance, over all pairs of
a column of parents or the number of children and a column of children, between the true join and
the synthetic one.

    python -m scripts.speed.benchmark_related
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

from adaptive_qs import RelatedSynthesizer, Synthesizer
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.related import Family, FamilyRows, RelatedSchema
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results

DELTA, TO_REACH = 1e-9, 1.3
PARENTS, CHILDREN = 10_000, 60_000
MOST = {"households": 12, "adult groups": 8}
Tables = tuple[pd.DataFrame, pd.DataFrame]


def household_schema() -> dict[str, Any]:
    def labels(name: str, number: int) -> dict[str, Any]:
        return {
            "name": name,
            "type": "categorical",
            "values": [f"{name}{k}" for k in range(number)],
        }

    def integers(name: str, most: int, bins: int) -> dict[str, Any]:
        return {"name": name, "type": "integer", "min": 0, "max": most, "bins": bins}

    parents = [labels("region", 8), labels("housing", 4), integers("income", 99, 20)]
    parents += [integers("rooms", 9, 10)]
    children = [integers("age", 99, 20), labels("sex", 2), labels("education", 7)]
    children += [labels("work", 6), integers("hours", 79, 16), labels("health", 5)]
    return {
        "version": 1, "key": "household", "most_children": MOST["households"],
        "parents": {"version": 1, "columns": parents},
        "children": {"version": 1, "columns": children},
    }  # fmt: skip


def households(rng: np.random.Generator) -> Tables:
    """Households, and persons whose columns depend on those of the household and on each other."""
    n = PARENTS
    region = rng.choice(8, n, p=np.arange(8, 0, -1) / 36)
    housing = (region + rng.choice(4, n, p=[0.55, 0.25, 0.15, 0.05])) % 4
    income = np.clip(30 + 6 * housing + 2 * region + rng.normal(0, 14, n), 0, 99).astype(int)
    rooms = np.clip(income // 15 + housing + rng.integers(0, 3, n), 0, 9)
    weight = 0.5 + rooms + 2 * (region < 3)
    size = 1 + rng.multinomial(CHILDREN - n, weight / weight.sum())
    key = rng.permutation(n) + 1
    of = np.repeat(np.arange(n), size)
    m = len(of)
    age = np.clip(rng.gamma(2.0, 16, m) + 8 * (size[of] < 4) + income[of] / 8, 0, 99).astype(int)
    sex = rng.integers(0, 2, m)
    education = np.clip(income[of] / 18 + (age > 18) + rng.normal(0, 1.2, m), 0, 6).astype(int)
    work = np.where(age < 16, 0, 1 + (education + region[of] + rng.choice(3, m)) % 5)
    hours = np.where(work == 0, 0, np.clip(30 + 4 * sex + 3 * work + rng.normal(0, 9, m), 1, 79))
    health = np.clip(age / 25 + 2 - housing[of] / 2 + rng.normal(0, 0.8, m), 0, 4).astype(int)

    def named(name: str, codes: Any) -> Any:
        return np.char.add(name, codes.astype(str))

    parents = pd.DataFrame({
        "household": key, "region": named("region", region), "housing": named("housing", housing),
        "income": income, "rooms": rooms,
    })  # fmt: skip
    children = pd.DataFrame({
        "household": key[of], "age": age, "sex": named("sex", sex),
        "education": named("education", education), "work": named("work", work),
        "hours": hours.astype(int), "health": named("health", health),
    })  # fmt: skip
    return parents, children


OF_GROUP = ("education", "race", "native-country")
OF_PERSON = (
    "age", "workclass", "marital-status", "occupation", "relationship", "gender", "hours-per-week",
    "income",
)  # fmt: skip


def adult_schema() -> dict[str, Any]:
    columns = {c["name"]: c for c in json.loads(sample_dataset().schema.read_text())["columns"]}
    parts = ("parents", OF_GROUP), ("children", OF_PERSON)
    described = {
        part: {"version": 1, "columns": [columns[name] for name in names]} for part, names in parts
    }
    return {"version": 1, "key": "group", "most_children": MOST["adult groups"], **described}


def adult_groups(rng: np.random.Generator) -> Tables:
    """Persons of the shipped sample, in groups of the same education, race and country."""
    persons = pd.read_csv(sample_dataset().data, dtype=str, keep_default_na=False)
    persons = persons.iloc[rng.permutation(len(persons))].sort_values([*OF_GROUP], kind="stable")
    place = persons.groupby([*OF_GROUP]).cumcount()
    ends = np.cumsum(rng.integers(1, MOST["adult groups"] + 1, len(persons)))
    new = (place == 0) | np.isin(np.arange(len(persons)), ends)
    children = persons[[*OF_PERSON]].assign(group=np.cumsum(new))
    parents = persons.loc[new, [*OF_GROUP]].assign(group=np.arange(1, int(new.sum()) + 1))
    return parents, children


class Case(NamedTuple):
    """A pair of tables: its schema, and how it is made."""

    schema: Callable[[], dict[str, Any]]
    made: Callable[[np.random.Generator], Tables]


CASES = {
    "households": Case(household_schema, households),
    "adult groups": Case(adult_schema, adult_groups),
}


def join(tables: Any, schema: RelatedSchema) -> CodedTable:
    """Children behind the columns of their parents, in codes."""
    return read_table(FamilyRows(Family.of(*tables, schema, 2**40), "children"), schema.joined)


def flat_join(tables: Tables, schema: RelatedSchema) -> pd.DataFrame:
    """The same as pandas makes it, with the key."""
    parents, children = tables
    number = children[schema.key].value_counts().reindex(parents[schema.key], fill_value=0)
    most = schema.most_children
    counted = parents.assign(**{schema.count: np.minimum(number.to_numpy(), most)})
    return children.merge(counted, on=schema.key)


def measured(name: str, epsilon: float, share: float, seed: int) -> dict[str, Any]:
    """Errors and seconds of one pair, related and flat."""
    case = CASES[name]
    schema = RelatedSchema.parse(case.schema())
    true = case.made(np.random.default_rng(seed))
    coded, width = join(true, schema), len(schema.counted.columns)
    pairs = Workload.all_ways(coded.domain, 2).weights
    across = {c: w for c, w in pairs.items() if c[0] < width <= c[1]}
    inside = {c: w for c, w in pairs.items() if c[0] >= width}
    budget = {"epsilon": epsilon, "delta": DELTA, "insecure_seed": seed, "workers": 1}

    start = time.process_time()
    made = RelatedSynthesizer(parents_share=share, **budget).fit(*true, schema=schema)
    related = made.sample(seed=seed)
    seconds = time.process_time() - start
    start = time.process_time()
    flat = Synthesizer(rows_per_person=schema.most_children, **budget)
    flat.fit(flat_join(true, schema), schema=schema.joined)
    flat_table = read_table(flat.sample(seed=seed), schema.joined)
    flat_seconds = time.process_time() - start

    both = {"related": join(related, schema), "flat": flat_table}
    found: dict[str, Any] = {"pair": name, "epsilon": epsilon, "share": share, "seed": seed}
    for kind, weights in (("across", across), ("children", inside)):
        workload = Workload(coded.domain, weights)
        for way, table in both.items():
            found[f"{kind}_{way}"] = round(workload_error(coded, table, workload).mean_l1, 5)
    return found | {
        "times": round(found["across_related"] / found["across_flat"], 3), "to_reach": TO_REACH,
        "parents": len(true[0]), "children": len(true[1]), "made_parents": len(related[0]),
        "made_children": len(related[1]), "cpu_seconds": round(seconds, 2),
        "cpu_seconds_flat": round(flat_seconds, 2),
    }  # fmt: skip


def main(
    pair: Annotated[list[str], typer.Option("--pair")] = [*CASES],  # noqa: B006
    epsilon: Annotated[list[float], typer.Option("--epsilon")] = [1.0],  # noqa: B006
    share: Annotated[list[float], typer.Option("--share")] = [0.25],  # noqa: B006
    seeds: int = 3,
    write: bool = True,
) -> None:
    """Every pair at every budget and share; writes results/related.*."""
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for name in pair:
        for eps in epsilon:
            for part in share:
                for seed in range(1, seeds + 1):
                    rows.append(measured(name, eps, part, seed))
                    typer.echo(json.dumps(rows[-1]))
    if write:
        config = {"delta": DELTA, "error": "mean L1 over pairs of columns", "most": MOST}
        write_results("related", rows, config, [*range(1, seeds + 1)], rows)


if __name__ == "__main__":
    typer.run(main)
