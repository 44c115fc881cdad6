"""Tables and answers of all kinds from one durable ledger, recomputed together with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pandas as pd

from adaptive_qs.answering.api import answer
from adaptive_qs.ledger.book import LedgerBook, export_json
from adaptive_qs.ledger.entries import Total
from adaptive_qs.privacy.accounting import compute_gaussian_mu
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.files import sample_dataset

from .recompute import answers_problems, charged, cost, problems
from .recompute_ledger import Book, placement_problems

LEARNT = {
    "hours-per-week": {"type": "integer", "private_bins": 8, "min": 0},
    "fnlwgt": {"type": "integer", "private_bins": 16},
    "native-country": {"type": "categorical", "private_values": 60, "catch_all": "(other)"},
    "occupation": {"type": "categorical", "private_values": 20, "catch_all": "(other)"},
}
"""Columns of the sample whose bins or values are learnt in every second run."""
DELTA = 1e-9
"""Of every run."""


@dataclass(frozen=True)
class Paid:
    """One run.

    Attributes:
        kind: what it released.
        manifest: the statement of its release.
        records: its charges, as the release tells them.
        problems: what the release alone shows to be wrong.
    """

    kind: str
    manifest: Any
    records: list[Any]
    problems: list[str]

    @property
    def share(self) -> Fraction:
        """The exact cost as a share of the budget."""
        return sum(map(cost, self.records), Fraction(0)) / Fraction(self.manifest["rho"])


def recomputed_runs(count: int, folder: Path) -> dict[str, Any]:
    """Release tables and answers of the shipped sample, and recompute what all of them cost.

    Args:
        count: runs of each of tables and answers; every second of both learns columns.
        folder: for the ledger and what is released; an empty one.

    Returns:
        Figures: runs by kind, entries of the ledger, the largest exact cost of a run as a share of
        its budget, and the problems found.
    """
    ledger = folder / "ledger"
    budgets = [0.1 * 100 ** (number / count) for number in range(count)]
    total = Total.from_parameters(
        rho=sum(compute_gaussian_mu(epsilon, DELTA) ** 2 for epsilon in budgets),
        delta=1e-6,
        discovery_delta=2 * count * DELTA,
    )
    LedgerBook.create(ledger, total.limit, total.declared).close()
    runs = list(released_runs(budgets, ledger))
    with closing(LedgerBook(ledger)) as book:
        export = json.loads(export_json(book))
    recomputed = Book(export)
    found = list(recomputed.problems)
    for run in runs:
        placed = placement_problems(export, run.manifest, run.records)
        number = run.manifest["ledger"]["run"]
        found += [f"run {number}, {run.kind}: {problem}" for problem in run.problems + placed]
    if len(recomputed.runs) != len(runs) or not all(r.closed for r in recomputed.runs.values()):
        found.append("the ledger has not one closed run for each release")
    return {
        "runs": Counter(run.kind for run in runs),
        "ledger entries": len(export["entries"]),
        "largest share of a budget": float(max(run.share for run in runs)),
        "problems": found,
    }


def released_runs(budgets: list[float], ledger: Path) -> Iterator[Paid]:
    """Release a table and answers of the shipped sample at each ε, on one ledger."""
    sample = sample_dataset()
    rows = pd.read_csv(sample.data, dtype=str, keep_default_na=False)
    declared = json.loads(sample.schema.read_text(encoding="utf-8"))
    columns = [{"name": c["name"], **LEARNT.get(c["name"], c)} for c in declared["columns"]]
    schemas = {"": declared, " with learnt columns": {**declared, "columns": columns}}
    bundle, answers = ledger.with_name("release.zip"), ledger.with_name("answers.parquet")
    beside = answers.with_name(f"{answers.name}.manifest.json")
    for number, epsilon in enumerate(budgets):
        words, schema = list(schemas.items())[number % 2]
        ways = 1 + number // 2 % 2
        spent = {"epsilon": epsilon, "delta": DELTA, "ledger": ledger}
        Synthesizer(**spent, workload=ways).fit(rows, schema=schema).save(bundle, force=True)
        with ZipFile(bundle) as archive:
            manifest, transcript = (
                json.loads(archive.read(f"{part}.json")) for part in ("manifest", "ledger")
            )
        yield Paid(f"tables{words}", manifest, transcript["events"], problems(bundle))
        answer(rows, schema, ways, **spent).write(answers, force=True)
        manifest = json.loads(beside.read_text(encoding="utf-8"))
        yield Paid(f"answers{words}", manifest, charged(manifest), answers_problems(beside))
