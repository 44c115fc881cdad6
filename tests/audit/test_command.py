"""`audit` on the command line."""

import json
from pathlib import Path

import pytest

from adaptive_qs.cli.entry import main

from ..family import DEEP
from ..mutants.registry import MUTANTS

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["a", "b"], "missing": ["?"]},
        {"name": "age", "type": "integer", "min": 0, "max": 9, "outside": "clip"},
        {"name": "member", "type": "boolean"},
    ],
}
AUDIT = ["audit", "--schema", "s.json", "--pairs", "4"]
ONE_PAIR = [*AUDIT[:-1], "1"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the command line beside a schema and a workload: code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(json.dumps(SCHEMA))
    parts = [{"ways": [1], "queries": "range"}, {"ways": [2], "queries": "affine"}]
    ordered = json.loads(json.dumps(SCHEMA))
    ordered["columns"][0]["ordered"] = ordered["columns"][2]["ordered"] = True
    Path("ordered.json").write_text(json.dumps(ordered))
    Path("w.json").write_text(json.dumps({"version": 1, "parts": parts}))
    Path("town.json").write_text(json.dumps(DEEP))

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_clean_audit(run):
    code, out, err = run(*AUDIT, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["clean"]
    assert told["findings"] == []
    assert told["pairs"] == 4
    assert told["runs"] == 16
    assert 0 < told["moved"] <= told["draws"]
    assert all(check["made"] > 0 and check["failed"] == 0 for check in told["checks"])
    code, out, err = run(*ONE_PAIR)
    assert (code, err) == (0, "")
    assert out.startswith("No differences found.")
    assert "outputs equal to the last byte" in out
    assert sorted(path.name for path in Path.cwd().iterdir()) == [
        "ordered.json",
        "s.json",
        "town.json",
        "w.json",
    ]


def test_the_same_seed_gives_the_same_audit(run):
    first, second, other = (run(*ONE_PAIR, "--json", "--seed", seed) for seed in (1, 1, 3))
    assert first == second
    assert first != other


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--ways", "1,2"],
        ["--rho", "0.5"],
        ["--epsilon", "2", "--delta", "1e-6"],
        ["--rho", "1e5"],
        ["--schema", "ordered.json", "--workload", "w.json"],
    ],
)
def test_workloads_and_budgets(run, options):
    code, out, _ = run(*AUDIT, *options, "--json")
    assert code == 0
    assert json.loads(out)["clean"]


def test_findings_are_an_own_fault(run):
    mutant = MUTANTS["a sensitivity of scores that is too small"]
    with mutant.apply():
        code, out, err = run(*AUDIT)
        assert code == 1
        assert out.startswith("Differences found.")
        assert "scores differ by at most the sensitivity declared" in out
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        code, out, _ = run(*AUDIT, "--json")
    told = json.loads(out)
    assert code == 1
    assert not told["clean"]
    assert {finding["label"] for finding in told["findings"]} == {"select"}


SETS = ["audit", "--schema", "town.json", "--pairs", "4", "--json"]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.slow
def test_sets_of_three_levels_that_differ_by_a_row_of_the_root_with_all_rows_below(run, neighbours):
    code, out, err = run(*SETS, "--neighbours", neighbours)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["clean"]
    assert found["runs"] == 8
    assert 0 < found["moved"] <= found["draws"]


@pytest.mark.slow
def test_a_bug_is_found_in_sets(run):
    with MUTANTS["a sensitivity of scores that is too small"].apply():
        code, out, _ = run(*SETS[:-1])
    assert code == 1
    assert "of synthesize, each replayed" in out
    assert "scores differ by at most the sensitivity declared" in out


BAD = {
    "no schema": (["audit"], "No schema is set"),
    "missing schema": (["audit", "--schema", "no.json"], "no.json"),
    "ways": ([*AUDIT, "--ways", "9"], "ways is 9"),
    "both": ([*AUDIT, "--ways", "1", "--workload", "w.json"], "--workload and --ways"),
    "two budgets": ([*AUDIT, "--rho", "1", "--epsilon", "1"], "epsilon and rho"),
    "only delta": ([*AUDIT, "--delta", "1e-6"], "No privacy budget is set"),
    "persons of a set": ([*SETS, "--rows-per-person", "2"], "rows-per-person"),
    "engine": ([*AUDIT, "--engine", "none"], "engine is 'none'"),
    "no pairs": ([*AUDIT[:3], "--pairs", "0"], "pairs is 0. Use"),
    "huge budget": ([*AUDIT, "--rho", "1e9"], "rho is 1e+09"),
}


def test_too_little_memory_is_refused(run):
    code, out, err = run(*AUDIT, "--max-memory", "50MB")
    assert (code, out) == (4, "")
    assert "--max-memory" in err


@pytest.mark.parametrize("case", BAD)
def test_bad_options(run, case):
    arguments, hint = BAD[case]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert hint in err
