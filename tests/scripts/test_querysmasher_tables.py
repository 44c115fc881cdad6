"""Tables of He et al.: the rows as published, verdicts, and an assembly that keeps its promise."""

import csv
import json
import math

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from adaptive_qs.domain import Domain
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.workload.file import all_ways_queries
from scripts.published.querysmasher_methods import METHODS, assemble
from scripts.published.querysmasher_rows import all_rows
from scripts.published.querysmasher_tables import is_quick, main, run_rows
from scripts.results import here

app = typer.Typer()
app.command()(main)


def key_of(row):
    return f"{row.table}-{row.schema}-{row.attributes}-{row.workload}"


ROWS = all_rows(range(2, 9))


@pytest.mark.parametrize("row", ROWS, ids=key_of)
def test_every_row_asks_as_many_queries_and_views_as_published(row):
    workload = row.queries()
    for name, count in (("queries", workload.num_queries), ("views", workload.num_sets)):
        assert row.published.get(name) in (None, count)


FAST = [
    row
    for row in ROWS
    if row.table in (2, 4, 5) and row.schema in ("10", "Loans") and row.workload != "random"
    if row.attributes < 30 or (row.table, row.schema) == (4, "10")
]


@pytest.mark.parametrize("row", FAST, ids=key_of)
def test_fourier_factorizations_repeat_the_published_error(row):
    # Its errors are closed forms, so they show that a row's queries are the paper's.
    digits = 3 if row.table == 2 else 2
    found = METHODS["wff"](row.queries())
    assert found == pytest.approx(row.published["wff"], abs=0.5 * 10**-digits + 1e-3)


def test_the_quick_run_meets_the_published_errors_and_writes_both_results(tmp_path):
    rows = [row for row in ROWS if is_quick(row) and row.schema != "CPS"]
    errors, timings = run_rows(rows, (0,), most_answers=0, run=here)
    assert len(errors) + len(timings) == len(rows) >= 7
    assert all(line["verdict"].startswith("met") for line in errors)
    assert all(line["others_above_3_percent"] == "" for line in errors)
    assert {line["table"] for line in errors + timings} == {4, 5, 6, 7, 8}
    out = CliRunner().invoke(app, ["--quick", "--tables", "5,6", "--folder", str(tmp_path)])
    assert out.exit_code == 0, out.output
    for name in ("querysmasher_tables", "querysmasher_timing"):
        written = json.loads((tmp_path / f"{name}.json").read_text())
        lines = list(csv.DictReader((tmp_path / f"{name}.csv").open()))
        assert len(written["numbers"]) == len(lines) == 1


def test_assembled_answers_err_as_much_as_they_promise():
    domain = Domain.from_sizes({"a": 3, "b": 4})
    workload = all_ways_queries(domain, (1, 2), "prefix")
    runs = 100
    found = [assemble(workload, InsecureSeed(seed)) for seed in range(runs)]
    assert all(run["rho_left"] == 0 for run in found)
    assert all(run["answers"] == run["answers_checked"] == 19 for run in found)
    # A mean of squared standard normal variables, however they are correlated, has variance at
    # most 2; five standard errors fail once in a million.
    mean = np.mean([run["squared_error_over_variance"] for run in found])
    assert abs(mean - 1) < 5 * math.sqrt(2 / runs)
