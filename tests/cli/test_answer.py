"""`plan` and `answer` as users call them: output, files, exit codes, and what is refused."""

from __future__ import annotations

import json
import math
import re
import zipfile
from functools import partial
from html import unescape
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from adaptive_qs.answering import answers as answers_module
from adaptive_qs.answering import api
from adaptive_qs.answering import plan as planning
from adaptive_qs.answering.plan import BatchPlan
from adaptive_qs.cli import entry
from adaptive_qs.cli.answer import plan_json
from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.run.states import LOST
from adaptive_qs.strategy import optimal

from .conftest import done, refused

CANARY = "c4n4ry"
PLAN = ["plan", "--schema", "s.json"]
ANSWER = ["answer", "t.csv", "--schema", "s.json", "--epsilon", "5", "--out", "a.parquet"]
SPLIT = ("querysmasher", "residualplanner", "wff")
PAIRS = 3 * 10 + 3 * 9 + 10 * 9
FIXED = [
    "queries", "rmse", "lower_bound_rmse", "max_variance", "cost", "mechanism", "subworkloads",
    "distinct_solves", "seconds",
]  # fmt: skip


def planned(run, *options):
    return json.loads(done(run(*PLAN, *options, "--json")).out)


def write_workload(*parts):
    Path("w.json").write_text(json.dumps({"version": 1, "parts": parts}))


def test_plan_tells_errors_and_a_table_of_epsilons(run):
    outcome = done(run(*PLAN))
    assert outcome.err == ""
    assert outcome.out.startswith(f"{PAIRS} queries about 3 sets of attributes\n")
    for text in (
        "privacy cost 1, rho 0.5",
        "expected RMSE",
        "within the requested gap",
        "7 subwork",
    ):
        assert text in outcome.out
    rows = [line.split() for line in outcome.out.splitlines() if line.strip()][-6:]
    epsilons, costs, errors = zip(*((float(a), float(b), float(c)) for a, b, c in rows))
    assert {0.1, 0.3, 1, 3, 10} < set(epsilons)
    assert 1 in costs
    np.testing.assert_allclose(np.array(errors) * np.sqrt(costs), errors[costs.index(1)], rtol=2e-3)


def test_plan_json(run):
    outcome = done(run(*PLAN, "--json", "--epsilon", "1"))
    assert outcome.err == ""
    content = json.loads(outcome.out)
    assert list(content)[: len(FIXED)] == FIXED
    assert content["queries"] == content["forecast"]["answers"] == PAIRS
    assert (content["epsilon"], content["delta"]) == (1, 1e-9)
    assert content["rho"] == content["cost"] / 2
    assert content["lower_bound_rmse"] <= content["rmse"] * (1 + 1e-12)
    assert content["gap"] <= 1e-4
    assert math.sqrt(content["max_variance"]) >= content["rmse"]
    assert content["max_variance_exact"] is True
    assert sum(content["statuses"].values()) == content["distinct_solves"]
    assert len(content["by_epsilon"]) == 5
    assert {"epsilon", "cost", "rmse"} == set(content["by_epsilon"][0])
    assert content["forecast"]["memory_mb"] > 100


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        (["--ways", "1"], 22),
        (["--ways", "1,3"], 22 + 270),
        (["--ways", "1", "--queries", "hybrid"], 22),
        (["--queries", "affine"], 12 + 11 + 18),
        (["--workload", "w.json"], 55 + 3 * 9),
    ],
)
def test_plans_of_other_workloads(arguments, queries, run):
    write_workload(
        {"attributes": [["age"]], "queries": "range"},
        {"attributes": [["job", "day"]], "queries": {"job": "marginal", "day": "prefix"}},
    )
    assert planned(run, *arguments)["queries"] == queries


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [
        *((name, "mechanism that measures residual spaces separately") for name in SPLIT),
        ("identity", "matrix mechanism"),
    ],
)
def test_mechanisms_by_name_say_for_which_ones_their_bounds_hold(mechanism, kind, run):
    content = planned(run, "--mechanism", mechanism)
    assert content["mechanism"] == mechanism
    assert content["rmse"] >= planned(run)["rmse"] * (1 - 1e-9)
    assert f"for any {kind}; gap" in done(run(*PLAN, "--mechanism", mechanism)).out


def test_a_solver_that_stops_early_says_its_honest_gap(run, monkeypatch):
    settings = partial(planning.SolverSettings, max_iterations=1)
    monkeypatch.setattr(planning, "SolverSettings", settings)
    arguments = [*PLAN, "--ways", "1", "--queries", "hybrid", "--gap", "1e-12"]
    outcome = done(run(*arguments))
    assert outcome.err.startswith("warning: the solver stopped before its gap in ")
    assert "of the least, no closer" in outcome.err
    assert "stopped before the requested gap" in outcome.out
    outcome = done(run(*arguments, "--json"))
    assert outcome.err.startswith("warning: ")
    content = json.loads(outcome.out)
    assert content["statuses"]["stopped"] > 0
    assert content["gap"] > 1e-12


def test_subworkloads_without_certificate_are_told(run, monkeypatch):
    """A fallback of `auto` is not silent: its gap, how many subworkloads, and what to do."""
    monkeypatch.setattr(optimal, "DENSE_CELLS", 4)
    Path("pair.json").write_text('{"a": 24, "b": 23}')
    arguments = ["plan", "--schema", "pair.json", "--queries", "affine"]
    outcome = done(run(*arguments, "--json"))
    content = json.loads(outcome.out)
    assert content["statuses"]["restricted"] == 3
    assert content["gap"] > 0.01
    assert outcome.err.startswith("warning: the optimal solver could not take on 3 of 4 subwork")
    assert f"within {100 * content['gap']:.2g} % of the least, no closer" in outcome.err
    assert "raise --max-memory, declare coarser bins" in outcome.err
    assert "querysmasher (not proven optimal in 3 of 4 subworkloads" in done(run(*arguments)).out
    assert done(run(*arguments, "--gap", "100")).err == ""
    assert done(run(*arguments, "--mechanism", "wff")).err == ""


def test_a_strategy_for_the_whole_table_says_what_is_known(run):
    Path("cube.json").write_text('{"a": 20, "b": 20, "c": 20}')
    outcome = done(run("plan", "--schema", "cube.json", "--queries", "prefix", "--ways", "1,2,3"))
    assert outcome.err.startswith("note: a strategy for the whole table has less error")
    assert "within 39 % of the least of all matrix mechanisms" in outcome.err
    assert "hdmm (the best strategy found in its family)" in outcome.out
    assert "for any matrix mechanism" in outcome.out


def test_an_error_below_its_bound_is_shown(run, monkeypatch):
    monkeypatch.setattr(BatchPlan, "lower_bound_rmse", property(lambda plan: 2 * plan.rmse))
    outcome = done(run(*PLAN, "--json"))
    assert json.loads(outcome.out)["gap"] == pytest.approx(-0.75)
    assert outcome.err.startswith("warning: the error is 75 % below the bound that holds for it")
    rounding = property(lambda plan: (1 + 1e-9) * plan.rmse)
    monkeypatch.setattr(BatchPlan, "lower_bound_rmse", rounding)
    outcome = done(run(*PLAN, "--json"))
    assert (json.loads(outcome.out)["gap"], outcome.err) == (0.0, "")


def test_weighted_errors_are_called_so(run):
    write_workload({"ways": [1]}, {"ways": [2], "weight": 3})
    arguments = [*PLAN, "--workload", "w.json"]
    outcome = done(run(*arguments))
    assert "expected weighted RMSE" in outcome.out
    assert "expected RMSE" not in outcome.out
    assert " rows" not in next(line for line in outcome.out.splitlines() if "error  " in line)
    assert json.loads(done(run(*arguments, "--json")).out)["weighted"] is True
    assert json.loads(done(run(*PLAN, "--json")).out)["weighted"] is False
    assert "expected weighted RMSE" in done(run(*ANSWER, "--workload", "w.json")).out


def test_answer_does_not_look_for_the_largest_variance(run, monkeypatch):
    def refuse(_):
        raise AssertionError("nobody asked")

    monkeypatch.setattr(BatchPlan, "max_variance", property(refuse))
    done(run(*ANSWER))
    with pytest.raises(AssertionError, match="nobody asked"):
        plan_json(api.plan({"a": 3, "b": 2}))


@pytest.mark.parametrize("mechanism", ["identity", "hdmm"])
def test_tables_that_cannot_be_measured_are_told(mechanism, run):
    """Eight attributes of 20 values: 2.56e10 cells, and 2**31 can be measured."""
    Path("wide.json").write_text(json.dumps({f"a{i}": 20 for i in range(8)}))
    write_workload({"attributes": [[f"a{i}" for i in range(8)]], "queries": "prefix"})
    arguments = ["plan", "--schema", "wide.json", "--workload", "w.json", "--mechanism", mechanism]
    outcome = done(run(*arguments, "--json"))
    assert f"cannot be answered: {mechanism} measures a table of 25,600,000,000" in outcome.err
    assert all(math.isfinite(v) for v in json.loads(outcome.out).values() if type(v) is float)


def test_errors_beyond_any_number_are_refused(run):
    Path("wide.json").write_text(json.dumps({f"a{i}": 100 for i in range(200)}))
    check(
        run,
        ["plan", "--schema", "wide.json", "--ways", "1", "--mechanism", "identity"],
        4,
        "beyond any",
    )


def test_answer_writes_a_file_and_says_what_it_cost(run):
    outcome = done(run(*ANSWER))
    assert outcome.err == ""
    for text in ("a.parquet (147 rows, 95 % intervals)", "epsilon 5, delta 1e-09", "one row"):
        assert text in outcome.out
    assert "NOT PRIVATE" not in outcome.out
    found = pd.read_parquet("a.parquet")
    assert found.columns.tolist() == [
        "attributes", "query", "estimate", "standard_error", "lower", "upper",
    ]  # fmt: skip
    assert found.attributes.astype(str).unique().tolist() == ["job x age", "job x day", "age x day"]
    assert found["query"].iloc[[0, -1]].tolist() == [
        "job = a and age = 0", "age = 9 and day = 2020-01-09",
    ]  # fmt: skip
    assert "job = (missing) and day = 2020-01-03" in set(found["query"])
    assert {path.name for path in Path.cwd().iterdir()} == {
        "t.csv", "s.json", "w.json", "a.parquet", "a.parquet.manifest.json",
    }  # fmt: skip


def test_answers_are_near_the_truth(run):
    """147 answers: one is beyond 5.5 standard errors with probability 6e-6."""
    done(run(*ANSWER, "--insecure-seed", "4"))
    found = pd.read_parquet("a.parquet").set_index("query")
    table = pd.read_csv("t.csv", dtype=str).replace({"job": {"?": "(missing)"}})
    for one, other in (("job", "age"), ("job", "day"), ("age", "day")):
        counts = table.groupby([one, other]).size()
        for (a, b), count in counts.items():
            row = found.loc[f"{one} = {a} and {other} = {b}"]
            assert abs(row.estimate - count) < 5.5 * row.standard_error


def test_answer_json(run):
    outcome = done(run(*ANSWER, "--ways", "1", "--confidence", "0.5", "--json"))
    assert outcome.err == ""
    content = json.loads(outcome.out)
    found = pd.read_parquet("a.parquet")
    assert content["queries"] == content["rows"] == len(found) == 22
    assert content["out"] == "a.parquet"
    assert 0 < content["rho_spent"] <= content["rho"] == content["cost"] / 2
    assert (content["epsilon"], content["delta"], content["confidence"]) == (5, 1e-9, 0.5)
    assert content["rmse"] == pytest.approx(np.sqrt((found.standard_error**2).mean()))
    assert set(content["seconds"]) == {"plan", "read", "answer", "total"}
    assert content["peak_memory_mb"] > 1
    assert content["seed_insecure"] is False
    widths = (found.upper - found.lower) / found.standard_error
    np.testing.assert_allclose(widths, 2 * 0.6744897501960817)


def test_insecure_answers_repeat_and_are_stamped(run):
    arguments = [*ANSWER[:-1], "a.csv", "--insecure-seed", "1"]
    outcome = done(run(*arguments))
    assert outcome.err.startswith("warning: --insecure-seed")
    assert "NOT PRIVATE" in outcome.out
    assert "NOT PRIVATE" in Path("a.csv.NOT-PRIVATE.txt").read_text()
    first = Path("a.csv").read_bytes()
    assert json.loads(done(run(*arguments, "--force", "--json")).out)["seed_insecure"]
    assert Path("a.csv").read_bytes() == first
    done(run(*ANSWER, "--insecure-seed", "1"))
    assert b"NOT PRIVATE" in pq.read_schema("a.parquet").metadata[b"adaptive_qs.stamp"]
    csv, parquet = pd.read_csv("a.csv"), pd.read_parquet("a.parquet")
    assert csv["query"].tolist() == parquet["query"].tolist()
    np.testing.assert_allclose(csv.iloc[:, 2:], parquet.iloc[:, 2:], rtol=1e-14)
    done(run(*ANSWER[:-1], "a.csv", "--force"))
    assert not Path("a.csv.NOT-PRIVATE.txt").exists()
    assert Path("a.csv").read_bytes() != first


def test_existing_answers_are_replaced_only_by_force(run):
    done(run(*ANSWER))
    before = Path("a.parquet").read_bytes()
    assert "a.parquet already exists. Use --force" in refused(run(*ANSWER))
    assert Path("a.parquet").read_bytes() == before
    done(run(*ANSWER, "--force"))
    assert Path("a.parquet").read_bytes() != before


def test_the_demos_need_nothing(run, monkeypatch):
    shipped = Path("t.csv"), Path("s.json")
    monkeypatch.setattr("adaptive_qs.cli.options.demo_files", lambda: shipped)
    for _ in range(2):  # its own output is replaced
        assert "epsilon 1, delta 1e-09" in done(run("answer", "--demo")).out
    assert len(pd.read_parquet("adult_answers.parquet")) == PAIRS
    content = json.loads(done(run("plan", "--demo", "--ways", "1", "--json")).out)
    assert content["queries"] == 435


def test_mbi_domains_work(run):
    Path("m.json").write_text('{"a": 3, "b": 2}')
    Path("m.csv").write_text("a,b\n" + "2,1\n0,0\n" * 20)
    arguments = ["--schema", "m.json", "--queries", "range", "--ways", "1"]
    assert "9 queries about 2 sets" in done(run("plan", *arguments)).out
    done(run("answer", "m.csv", *arguments, "--cost", "1e6", "--beyond-limits", "--out", "a.csv"))
    found = pd.read_csv("a.csv").set_index("query").estimate.round()
    assert found["a in [0, 2]"] == 40
    assert found["b in [1, 1]"] == 20


def without(arguments, option):
    at = arguments.index(option)
    return [*arguments[:at], *arguments[at + 2 :]]


def changed(arguments, option, value):
    return [value if a == option else b for a, b in zip(["", *arguments], arguments)]


BAD = {
    "no schema": (["plan"], "No schema is set"),
    "missing schema": (["plan", "--schema", "no.json"], "no.json: no such file"),
    "two budgets": ([*PLAN, "--epsilon", "1", "--cost", "1"], "epsilon and cost were given"),
    "ways": ([*PLAN, "--ways", "4"], "ways is 4: give a number from 1 to 3"),
    "ways text": ([*PLAN, "--ways", "x"], "--ways is 'x'"),
    "ways and queries": ([*PLAN, "--ways", "0", "--queries", "range"], "ways"),
    "family": ([*PLAN, "--queries", "rnage"], "--queries is 'rnage'. Use one of marginal"),
    "both": ([*PLAN, "--ways", "1", "--workload", "w.json"], "--workload and --ways cannot"),
    "file and queries": (
        [*PLAN, "--queries", "range", "--workload", "w.json"],
        "--workload and --queries",
    ),
    "unordered": ([*PLAN, "--ways", "1", "--queries", "range"], "'job' is not ordered"),
    "custom": ([*PLAN, "--queries", "custom"], "or a --workload file"),
    "demo": (["plan", "--demo", "--schema", "s.json"], "--demo has its own schema"),
    "demo answer": (["answer", "t.csv", "--demo"], "--demo has its own"),
    "no data": (["answer", *ANSWER[2:]], "No DATA is set"),
    "no file": (["answer", "no.csv", *ANSWER[2:]], "no.csv"),
    "no answer schema": (without(ANSWER, "--schema"), "No schema is set"),
    "no budget": (without(ANSWER, "--epsilon"), "neither epsilon, rho nor cost"),
    "no out": (without(ANSWER, "--out"), "No output file is set"),
    "out suffix": (changed(ANSWER, "--out", "a.txt"), "a.txt: unknown table format"),
    "out folder": (changed(ANSWER, "--out", "no/a.csv"), "no/a.csv: cannot be written"),
    "out is data": ([*changed(ANSWER, "--out", "t.csv"), "--force"], "t.csv: it is also an input"),
    "confidence 1": ([*ANSWER, "--confidence", "1"], "confidence is 1.0"),
    "confidence 95": ([*ANSWER, "--confidence", "95"], "confidence is 95.0"),
}


def check(run, arguments, code, hint):
    before = sorted(Path.cwd().iterdir())
    outcome = run(*arguments)
    lines = [line for line in outcome.err.splitlines(True) if not line.startswith("warning: ")]
    assert hint in refused(outcome._replace(err="".join(lines)), code)
    assert CANARY not in outcome.err
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.usefixtures("unspent")
@pytest.mark.parametrize("case", BAD)
def test_bad_arguments(case, run):
    check(run, BAD[case][0], 2, BAD[case][1])


MATRICES = {
    "width": (np.ones((2, 4)), "m.npy"),
    "NaN": (np.full((2, 10), np.nan), "m.npy"),
}
WORKLOADS = {
    "range on a category": ({"attributes": [["job"]], "queries": "range"}, "'job' is not ordered"),
    "affine of three": ({"ways": [3], "queries": "affine"}, "'affine' queries compare two"),
    "weight 0": ({"ways": [1], "weight": 0}, "part 1: weight: must be at least 1e-12, not 0"),
    "weight -1": ({"ways": [1], "weight": -1}, "part 1: weight: must be at least 1e-12, not -1"),
    "twice": ({"attributes": [["age", "age"]]}, "name one column twice"),
    "unknown": ({"attributes": [["agee"]]}, "'agee' is not in the schema"),
    **{
        f"matrix {name}": (
            {"attributes": [["age"]], "queries": {"family": "custom", "matrix": "m.npy"}},
            hint,
        )
        for name, (_, hint) in MATRICES.items()
    },
}


@pytest.mark.usefixtures("unspent")
@pytest.mark.parametrize("case", WORKLOADS)
@pytest.mark.parametrize("verb", [PLAN, ANSWER])
def test_bad_workloads(verb, case, run):
    part, hint = WORKLOADS[case]
    write_workload(part)
    if case.startswith("matrix "):
        np.save("m.npy", MATRICES[case.removeprefix("matrix ")][0])
    check(run, [*verb, "--workload", "w.json"], 2, hint)


@pytest.mark.usefixtures("unspent")
def test_private_cells_are_not_shown(run):
    Path("t.csv").write_text(f"job,age,day\n{CANARY},1,2020-01-02\n")
    check(run, ANSWER, 2, "'job' has a value that is not declared")


@pytest.mark.usefixtures("unspent")
def test_memory_is_refused_with_exit_code_4(run):
    check(run, [*ANSWER, "--max-memory", "380MB"], 4, "raise")


def test_budget_refusals_have_exit_code_3(run, monkeypatch):
    def refuse(*_):
        raise BudgetExceeded("total: cost rho 2 exceeds the remaining 1: raise the budget")

    monkeypatch.setattr(answers_module, "answer_sets", refuse)
    check(run, ANSWER, 3, "exceeds")


FAILURES = {
    "signal": (entry.Stopped(15), 143, "stopped before the end"),
    "bug": (RuntimeError(CANARY), 1, "internal error (RuntimeError"),
    "budget": (BudgetExceeded("x"), 1, "x"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_after_the_first_charge_own_up(case, run, monkeypatch):
    error, code, hint = FAILURES[case]
    real = answers_module.answer_sets

    def failing(*arguments):
        yield next(real(*arguments))
        raise error

    monkeypatch.setattr(answers_module, "answer_sets", failing)
    check(run, ANSWER, code, hint)
    monkeypatch.setattr(answers_module, "answer_sets", failing)
    vars(error).pop("__notes__", None)
    assert str(LOST) in run(*ANSWER).err


# `plan` tells how much data there is for a cell, and errors of --queries name the option.

PLAN_CELLS_PAIRS = [3 * 10, 3 * 9, 10 * 9]
"""Cells of the pairs of the columns job, age and day."""


def line_of(run, *options):
    lines = done(run(*PLAN, *options)).out.splitlines()
    (line,) = [line for line in lines if line.startswith("  cells ")]
    return line.removeprefix("  cells").strip()


def test_cells_are_counted(run):
    found = planned(run)
    assert found["cells"] == {"mean": sum(PLAN_CELLS_PAIRS) / 3, "largest": 90}
    assert (found["rows"], found["rows_per_cell"], found["relative_rmse"]) == (None,) * 3
    words = "49 per marginal on average, 90 at most (--rows N adds the rows per cell)"
    assert line_of(run) == words


def test_rows_of_a_cell_and_the_error_beside_them(run):
    found = planned(run, "--rows", "4900", "--epsilon", "1")
    assert (found["rows"], found["rows_per_cell"]) == (4900, 100)
    assert found["relative_rmse"] == pytest.approx(found["rmse"] / 100)
    line = line_of(run, "--rows", "4900", "--epsilon", "1")
    assert line.endswith(
        "; with 4,900 rows a cell holds 100 rows on average, and the expected RMSE is "
        f"{100 * found['relative_rmse']:.3g} % of this"
    )


def test_a_set_that_occurs_twice_counts_once_and_a_weighted_error_is_not_compared(run):
    write_workload({"ways": [2]}, {"attributes": [["age", "job"]], "weight": 4.0})
    options = ["--workload", "w.json", "--rows", "4900"]
    found = planned(run, *options)
    assert found["cells"]["mean"] == sum(PLAN_CELLS_PAIRS) / 3
    assert (found["rows_per_cell"], found["relative_rmse"]) == (100, None)
    assert line_of(run, *options).endswith("; with 4,900 rows a cell holds 100 rows on average")


def test_errors_of_queries_that_count_more_than_a_cell_are_not_compared(run):
    found = planned(run, "--queries", "hybrid", "--rows", "4900")
    assert (found["rows_per_cell"], found["relative_rmse"]) == (100, None)
    assert line_of(run, "--queries", "hybrid", "--rows", "4900").endswith("100 rows on average")


@pytest.mark.parametrize("rows", ["0", "-5", "1" + 50 * "0"])
def test_a_number_of_rows_that_no_table_has(run, rows):
    words = f"error: rows is {rows}: give about how many rows the table will have\n"
    assert refused(run(*PLAN, "--rows", rows)) == words


@pytest.mark.parametrize(
    "command", [PLAN, ["answer", "t.csv", "--schema", "s.json", "--rho", "1", "--out", "a.csv"]]
)
def test_what_is_wrong_with_queries_names_the_option(run, command):
    write_workload({"ways": [1], "queries": "range"})
    for options, words in (
        (["--queries", "range"], "--queries range: attribute 'job' is not ordered, so it"),
        (["--queries", "prefix", "--ways", "4"], "--queries prefix: "),
        (["--workload", "w.json"], "w.json: part 1: attribute 'job' is not ordered"),
    ):
        assert refused(run(*command, *options)).startswith(f"error: {words}")
        assert not Path("a.csv").exists()


# One sentence says what is promised, wherever it is said: also where values were discovered.

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "private_values": 4, "catch_all": "other"},
        {"name": "age", "type": "integer", "min": 0, "max": 9},
    ],
}
BUDGET = ["--rho", "0.5", "--delta", "1e-6"]
PLAIN = re.compile(r"(?<!approximate rho-)(?<!approximate )zCDP with|\(zCDP\)")
"""Where zCDP itself is claimed to hold."""


@pytest.fixture
def discovered(run):
    Path("p.json").write_text(json.dumps(SCHEMA))
    Path("p.csv").write_text("job,age\n" + "".join(f"{'ab'[i % 2]},{i % 10}\n" for i in range(400)))
    ledger = ["--ledger", "l", "--rho", 4, "--delta", "1e-6", "--discovery-delta", "9e-7"]
    done(run("ledger", "create", *ledger))
    return run


@pytest.mark.parametrize("ledger", [[], ["--ledger", "l"]])
def test_a_run_that_discovers_values_claims_no_plain_zcdp(discovered, ledger):
    run = discovered
    command = ["synthesize", "p.csv", "--schema", "p.json", *BUDGET, *ledger]
    said = done(run(*command, "--out", "o.csv", "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()[:3]}
    manifest = json.loads(texts["manifest.json"])
    sentence = manifest["guarantee"]
    assert re.match(r"\S+-approximate rho-zCDP with rho = 0\.5, which implies", sentence)
    assert manifest["delta_spent"] > 0
    assert f"- guarantee: {sentence}\n" in texts["statement.md"]
    assert f"<li>Guarantee: {sentence}.</li>" in unescape(texts["page.html"])
    assert json.loads(Path("o.csv.manifest.json").read_text())["guarantee"] == sentence
    done(run("evaluate", "p.csv", "o.csv", "--schema=r.zip", "--report=e.html"))
    assert f"<p>Guarantee: {sentence}." in unescape(Path("e.html").read_text())
    shown = [*texts.values(), said.out, Path("e.html").read_text()]
    if ledger:
        shown.append(run("ledger", "show", *ledger).out)
    for text in shown:
        assert "approximate" in text
        assert not PLAIN.search(text), PLAIN.search(text)


def test_answers_with_discovered_values_claim_no_plain_zcdp(discovered):
    said = done(discovered("answer", "p.csv", "--schema", "p.json", *BUDGET, "--out", "a.csv"))
    sentence = json.loads(Path("a.csv.manifest.json").read_text())["guarantee"]
    assert re.match(r"\S+-approximate rho-zCDP with", sentence)
    assert "-approximate zCDP)" in said.out
    assert not PLAIN.search(said.out)


def test_without_discovery_plain_zcdp_is_claimed(run):
    said = run("synthesize", "t.csv", "--schema", "s.json", *BUDGET, "--release", "r.zip")
    assert "rho 0.5 (zCDP)" in said.out
    with zipfile.ZipFile("r.zip") as archive:
        statement = archive.read("statement.md").decode()
    assert "guarantee: mu-Gaussian DP with mu = 1 up to a share 2^-20 of delta" in statement
    assert "; rho = 0.5 zCDP" in statement
    assert PLAIN.search(said.out)
    assert "approximate" not in statement


def test_answers_go_to_standard_output(run):
    """All of them as CSV and nothing else there; no file is left."""
    before = {path.name for path in Path.cwd().iterdir()}
    outcome = done(run(*ANSWER[:-1], "-", "--ways", "1,2"))
    table = pd.read_csv(StringIO(outcome.out))
    assert table.columns[:2].tolist() == ["attributes", "query"]
    assert len(table) == 3 + 10 + 9 + PAIRS
    assert "answers: standard output (169 rows, 95 % intervals)" in outcome.err
    assert "privacy: " in outcome.err
    assert {path.name for path in Path.cwd().iterdir()} == before


@pytest.mark.usefixtures("unspent")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json"], "both write to standard output"),
        (["--insecure-seed", "1"], "needs its mark next to it. Name a file"),
    ],
)
def test_answers_on_standard_output_that_would_be_misread_are_refused(run, options, said):
    assert said in refused(run(*ANSWER[:-1], "-", *options))
