"""Seeded runs over small tables, and what each of them lets out, member by member.

Every run enters by the functions that users call. Together they cover levels of groups, marginals
that are measured before the first choice, strategies of single columns, neighbours by replacement,
persons, learnt columns, sets of tables, interrupted runs, conditional samples and answers.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_qs import Synthesizer, answer
from adaptive_qs.domain import Domain
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.loop.forecast import LoopForecast
from adaptive_qs.privacy.events import Cost
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload

from .. import family

Members = Mapping[str, Any]
"""What a run let out: by name, parsed JSON or an array of numbers."""
RECIPE = ("package_version", "versions", "resumed")
"""Parts of a statement that say with which versions it was made, and how often it was begun."""


@dataclass(frozen=True)
class Run:
    """A run and its members; slow ones are left out of the README's test command."""

    members: Callable[[], Members]
    slow: bool = False


def _integers(sizes: Mapping[str, int], rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a table of codes in which every column follows one hidden level."""
    rng = np.random.default_rng(seed)
    level = rng.beta(0.6, 1.2, rows)
    return pd.DataFrame({
        name: np.minimum((np.clip(level + rng.normal(0, 0.2, rows), 0, 1) * n).astype(int), n - 1)
        for name, n in sizes.items()
    })  # fmt: skip


SMALL = {"a": 3, "b": 4, "c": 2, "d": 1, "e": 5}
LARGE = {"u": 60, "v": 40, "w": 30, "x": 12, "y": 50, "z": 9}
PREFIXES = {"version": 1, "parts": [
    {"ways": [2]}, {"attributes": [["u", "v"]], "queries": "prefix"},
]}  # fmt: skip
RANGES = {"version": 1, "parts": [{"attributes": [["x", "z"], ["w"]], "queries": "range"}]}
PERSONS = {"version": 1, "person": "who", "columns": [
    {"name": "a", "type": "integer", "min": 0, "max": 2},
    {"name": "b", "type": "integer", "min": 0, "max": 3},
    {"name": "c", "type": "boolean"},
]}  # fmt: skip
LEARNING = {"version": 1, "columns": [
    {"name": "age", "type": "integer", "private_bins": 6},
    {"name": "pay", "type": "numeric", "min": 0, "max": 1000, "private_bins": 8, "decimals": 2,
     "private_heaps": 5},
    {"name": "town", "type": "categorical", "private_values": 6, "catch_all": "(other)"},
    {"name": "day", "type": "date", "min": "2020-01-01", "max": "2021-12-31",
     "granularity": "month", "missing": ["?"]},
]}  # fmt: skip


@cache
def _frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(8)
    people = _integers({"a": 3, "b": 4, "c": 2}, 900, 1).assign(who=np.repeat(np.arange(300), 3))
    people["c"] = people["c"] == 1
    rows = 1_500
    age = np.minimum(rng.gamma(4.0, 9.0, rows), 99).astype(int)
    pay = np.where(rng.random(rows) < 0.4, 499.99, (rng.random(rows) * age * 10).round(2))
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), "D")
    open_ = pd.DataFrame({
        "age": age, "pay": pay, "town": rng.choice(["Bonn", "Ulm", "Hof", "Zug"], rows),
        "day": np.where(rng.random(rows) < 0.05, "?", days.strftime("%Y-%m-%d")),
    })  # fmt: skip
    return {
        "small": _integers(SMALL, 400),
        "large": _integers(LARGE, 3_000),
        "people": people,
        "open": open_,
    }


def _recipe_apart(statement: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in statement.items() if name not in RECIPE}


def _release(release: Any) -> dict[str, Any]:
    """Return the members of a release, without the versions that made it."""
    texts = {name: json.loads(text) for name, text in release.texts().items()}
    texts = {
        n: _recipe_apart(text) if isinstance(text, dict) else text for n, text in texts.items()
    }
    return texts | {n: np.concatenate([np.ravel(p) for p in some])
                    for n, some in release.arrays().items()}  # fmt: skip


def _rows(table: Any) -> list[list[Any]]:
    return [list(table.columns), *table.astype(str).to_numpy().tolist()]


def _fitted(table: str, schema: Any, samples: Mapping[str, Any] = {}, **options: Any) -> Any:
    data = _frames().get(table, table)  # the path of a file, otherwise
    if isinstance(schema, dict) and "version" not in schema:
        schema = Domain.from_sizes(schema)
        data = CodedTable.from_codes(schema, [data[name].to_numpy() for name in schema.names])
        schema = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Synthesizer(insecure_seed=5, workers=1, beyond_limits=True, **options)
        return model.fit(data, schema=schema)


def _synthesized(table: str, schema: Any, **options: Any) -> Members:
    model = _fitted(table, schema, **options)
    codes = np.stack(model.release_.sample(200, seed=3).columns)
    return {**_release(model.release_), "sample": codes}


def _sampled() -> Members:
    """Samples of all rows, and of those that meet a condition."""
    model = _fitted("open", LEARNING, rho=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "plain": _rows(model.sample(300, seed=1)),
            "where": _rows(model.sample(100, seed=2, where="town = Ulm and age >= 30")),
        }


def _from_file(**options: Any) -> Members:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        _frames()["people"].to_csv(path, index=False)
        model = _fitted(str(path), PERSONS, **options)
        return {**_release(model.release_), "sample": _rows(model.sample(100, seed=3))}


def _interrupted(table: str, schema: Any, **options: Any) -> Members:
    """A run that stops in the middle of the loop, and is taken up again from its ledger."""

    def stop(phase: str, done: int, whole: int) -> None:
        if phase == "loop" and 2 * done > whole:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder, "ledger.db")
        LedgerBook.create(ledger, Cost.within(50.0, 1e-6), {"rho": 50.0, "delta": 1e-6}).close()
        try:
            _fitted(table, schema, ledger=ledger, progress=stop, **options)
        except KeyboardInterrupt:
            model = _fitted(table, schema, ledger=ledger, resume=True, **options)
    members = _release(model.release_)
    members["manifest.json"].pop("ledger", None)  # names the ledger, which has a random name
    return members


def _set(make: Callable[[], Any], schema: Any, **options: Any) -> Members:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Synthesizer(insecure_seed=5, workers=1, beyond_limits=True, **options)
        model.fit(make(), schema=schema)
        sample = model.sample(60, seed=1)
    tables = {f"{table}/{name}": member for table, release in model.release_.tables.items()
              for name, member in _release(release).items()}  # fmt: skip
    return tables | {name: _rows(frame) for name, frame in sample.items()}


def _answered(table: str, schema: Any, workload: Any, **options: Any) -> Members:
    frame = _frames()[table]
    if "version" not in schema:
        schema = Domain.from_sizes(schema)
        frame = CodedTable.from_codes(schema, [frame[name].to_numpy() for name in schema.names])
        schema = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = answer(
            frame, schema, workload, insecure_seed=5, workers=1, beyond_limits=True, **options
        )
        found = answers.to_pandas()
    numbers = found.select_dtypes("number")
    statement = json.loads(answers.statement().to_json())
    return {
        "statement": _recipe_apart(statement),
        "labels": _rows(found.drop(columns=numbers.columns)),
        "answers": numbers.to_numpy(),
    }


def _forecast(sizes: Mapping[str, int], ways: int, rho: float, rows: int) -> Members:
    forecast = LoopForecast(Workload.all_ways(Domain.from_sizes(sizes), ways), rho)
    return {"columns": list(forecast.columns(rows)), "measured": forecast.measured(rows)}


def _run(function: Callable[..., Members], *inputs: Any, slow: bool = False, **options: Any) -> Run:
    return Run(partial(function, *inputs, **options), slow)


WAYS = {n: {"version": 1, "parts": [{"ways": [n]}]} for n in (1, 2, 3, 4)}
RUNS: Mapping[str, Run] = {
    "pairs": _run(_synthesized, "small", SMALL, rho=0.05),
    "hardly any budget": _run(_synthesized, "small", SMALL, rho=2e-3, slow=True),
    "opening": _run(_synthesized, "small", SMALL, rho=5.0),
    "opening of triples": _run(_synthesized, "small", SMALL, workload=WAYS[3], rho=0.5),
    "epsilon": _run(_synthesized, "small", SMALL, epsilon=1.0, delta=1e-6),
    "single columns": _run(_synthesized, "small", SMALL, workload=WAYS[1], rho=0.1, slow=True),
    "four columns": _run(_synthesized, "small", SMALL, workload=WAYS[4], rho=0.02),
    "levels": _run(_synthesized, "large", LARGE, rho=0.01),
    "levels off": _run(_synthesized, "large", LARGE, rho=0.01, levels="off", slow=True),
    "levels of triples": _run(_synthesized, "large", LARGE, workload=WAYS[3], rho=0.02, slow=True),
    "strategies": _run(_synthesized, "large", LARGE, workload=PREFIXES, rho=0.02, slow=True),
    "strategies, replaced": _run(
        _synthesized, "large", LARGE, workload=PREFIXES, rho=0.1, neighbours="replace", slow=True
    ),
    "strategies, opening": _run(
        _synthesized, "large", LARGE, workload=PREFIXES, rho=300.0, slow=True
    ),
    "replaced": _run(_synthesized, "small", SMALL, rho=0.2, neighbours="replace"),
    "few cells": _run(_synthesized, "large", LARGE, rho=0.05, max_cells=20_000, slow=True),
    "target": _run(_synthesized, "large", LARGE, rho=0.05, target="z", slow=True),
    "persons": _run(_from_file, rho=1.0, rows_per_person=2),
    "persons replaced": _run(
        _from_file, rho=1.0, rows_per_person=3, neighbours="replace", slow=True
    ),
    "learnt": _run(_synthesized, "open", LEARNING, epsilon=2.0),
    "learnt with much": _run(_synthesized, "open", LEARNING, epsilon=8.0, delta=1e-5, slow=True),
    "two tables": _run(_set, family.made, family.SCHEMA, rho=2.0),
    "two tables, replaced": _run(
        _set, family.made, family.SCHEMA, rho=1.0, neighbours="replace", slow=True
    ),
    "three tables": _run(_set, family.made_deep, family.DEEP, rho=8.0),
    "resumed": _run(_interrupted, "small", SMALL, rho=0.05),
    "resumed after learning": _run(_interrupted, "open", LEARNING, epsilon=2.0, slow=True),
    "conditional samples": _run(_sampled, slow=True),
    "answers": _run(_answered, "small", SMALL, WAYS[2], rho=0.5),
    "answers to ranges": _run(_answered, "large", LARGE, RANGES, epsilon=1.0, slow=True),
    "answers by hdmm": _run(
        _answered, "small", SMALL, WAYS[3], rho=0.5, mechanism="hdmm", slow=True
    ),
    "answers for persons": _run(
        _answered, "people", PERSONS, 2, rho=2.0, rows_per_person=2, neighbours="replace"
    ),
    "answers after learning": _run(_answered, "open", LEARNING, 1, epsilon=2.0, slow=True),
    "forecast": _run(_forecast, SMALL, 2, 0.05, 400),
    "forecast of an opening": _run(_forecast, SMALL, 2, 5.0, 400),
    "forecast at levels": _run(_forecast, LARGE, 2, 0.01, 3_000, slow=True),
}  # fmt: skip
