"""`plan` tells how much data there is for a cell, and errors of --queries name the option."""

import json
from pathlib import Path

import pytest

PLAN = ["plan", "--schema", "s.json"]
PAIRS = [3 * 10, 3 * 9, 10 * 9]
"""Cells of the pairs of the columns job, age and day."""


def planned(run, *options):
    said = run(*PLAN, *options, "--json")
    assert said.code == 0, said
    return json.loads(said.out)


def line_of(run, *options):
    said = run(*PLAN, *options)
    assert said.code == 0, said
    (line,) = [line for line in said.out.splitlines() if line.startswith("  cells ")]
    return line.removeprefix("  cells").strip()


def test_cells_are_counted(run):
    found = planned(run)
    assert found["cells"] == {"mean": sum(PAIRS) / 3, "largest": 90}
    assert (found["rows"], found["rows_per_cell"], found["relative_rmse"]) == (None,) * 3
    words = "49 in a set of attributes on average, 90 at most (--rows N tells the rows in each)"
    assert line_of(run) == words


def test_rows_of_a_cell_and_the_error_beside_them(run):
    found = planned(run, "--rows", "4900", "--epsilon", "1")
    assert (found["rows"], found["rows_per_cell"]) == (4900, 100)
    assert found["relative_rmse"] == pytest.approx(found["rmse"] / 100)
    line = line_of(run, "--rows", "4900", "--epsilon", "1")
    assert line.endswith(
        "; 4,900 rows are 100 for each, and the expected RMSE is "
        f"{100 * found['relative_rmse']:.3g} % of that"
    )


def test_a_set_that_occurs_twice_counts_once_and_a_weighted_error_is_not_compared(run):
    parts = [{"ways": [2]}, {"attributes": [["age", "job"]], "weight": 4.0}]
    Path("w.json").write_text(json.dumps({"version": 1, "parts": parts}))
    options = ["--workload", "w.json", "--rows", "4900"]
    found = planned(run, *options)
    assert found["cells"]["mean"] == sum(PAIRS) / 3
    assert (found["rows_per_cell"], found["relative_rmse"]) == (100, None)
    assert line_of(run, *options).endswith("; 4,900 rows are 100 for each")


def test_errors_of_queries_that_count_more_than_a_cell_are_not_compared(run):
    found = planned(run, "--queries", "hybrid", "--rows", "4900")
    assert (found["rows_per_cell"], found["relative_rmse"]) == (100, None)
    assert line_of(run, "--queries", "hybrid", "--rows", "4900").endswith("100 for each")


@pytest.mark.parametrize("rows", ["0", "-5", "1" + 50 * "0"])
def test_a_number_of_rows_that_no_table_has(run, rows):
    said = run(*PLAN, "--rows", rows)
    assert (said.code, said.err) == (
        2,
        f"error: --rows is {rows}: give about how many rows the table will have\n",
    )


@pytest.mark.parametrize(
    "command", [PLAN, ["answer", "t.csv", "--schema", "s.json", "--rho", "1", "--out", "a.csv"]]
)
def test_what_is_wrong_with_queries_names_the_option(run, command):
    said = run(*command, "--queries", "range")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("error: --queries range: attribute 'job' is not ordered, so it")
    assert not Path("a.csv").exists()
    said = run(*command, "--queries", "prefix", "--ways", "4")
    assert said.err.startswith("error: --queries prefix: ")
    part = {"ways": [1], "queries": "range"}
    Path("w.json").write_text(json.dumps({"version": 1, "parts": [part]}))
    said = run(*command, "--workload", "w.json")
    assert said.err.startswith("error: w.json: part 1: attribute 'job' is not ordered")
