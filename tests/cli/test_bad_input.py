"""Bad input: one line on stderr, the exit code, nothing written, no budget spent, no cell shown."""

import gzip
import json
from pathlib import Path

import pytest

from adaptive_qs.cli import entry
from adaptive_qs.errors import BudgetExceeded

from .conftest import refused

CANARY = "c4n4ry"
GOOD = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "1", "--out", "o.csv"]
HEADER = b"job,age,day\n"
ROW = b"a,1,2020-01-02\n"


pytestmark = pytest.mark.usefixtures("unspent")


def check(run, arguments, code, *hints):
    before = sorted(Path.cwd().iterdir())
    said = refused(run(*arguments), code)
    assert CANARY not in said
    for hint in hints:
        assert hint in said
    assert sorted(Path.cwd().iterdir()) == before


TABLES = {
    "empty file": (b"", "t.csv: is empty"),
    "no rows": (HEADER, "t.csv: no rows"),
    "ragged": (HEADER + ROW + f"{CANARY},1\n".encode(), "cells of the header"),
    "truncated": (HEADER + ROW + f'"{CANARY},1,2020-01-02\n'.encode(), "never closed"),
    "truncated gzip": (gzip.compress(HEADER + ROW * 99)[:-9], "truncated gzip"),
    "encoding": (HEADER + b"\xff\xfe,1,2020-01-02\n", "UTF-8"),
    "NUL": (HEADER + b"a\0,1,2020-01-02\n", "NUL"),
    "twice": (b"job,age,day,job\n" + ROW.strip() + b",a\n", "'job' occurs twice"),
    "missing column": (b"job,age\na,1\n", "'day' of the schema is missing"),
    "more columns": (b"job,age,day,pay\na,1,2020-01-02,3\n", "'pay' is not in the schema"),
    "no header": (f"{CANARY},1,2020-01-02\n".encode() + ROW, "has 0 of the 3 columns"),
    "undeclared": (HEADER + f"{CANARY},1,2020-01-02\n".encode(), "'job' has a value that is not"),
    "not a number": (HEADER + f"a,{CANARY},2020-01-02\n".encode(), "'age' has a cell"),
    "outside": (HEADER + b"a,10,2020-01-02\n", "'age' has a value outside"),
    "NaN": (HEADER + b"a,nan,2020-01-02\n", "'age'"),
    "no value": (HEADER + b"a,,2020-01-02\n", "'age' has empty cells"),
    "bad date": (HEADER + f"a,1,{CANARY}\n".encode(), "'day'"),
    "Parquet": (b"PAR1 and nothing else", "Parquet"),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(case, run):
    content, hint = TABLES[case]
    Path("t.csv").write_bytes(content)
    check(run, GOOD, 2, "t.csv", hint)


def replaced(option, value):
    arguments = list(GOOD)
    arguments[arguments.index(option) + 1] = value
    return arguments


ARGUMENTS = {
    "missing file": (["synthesize", "no.csv", *GOOD[2:]], "no.csv"),
    "folder": (["synthesize", ".", *GOOD[2:]], "would be one of the files of ."),
    "no data": (["synthesize", *GOOD[2:]], "No DATA is set"),
    "no schema": (["synthesize", "t.csv", "--epsilon", "1", "--out", "o.csv"], "No schema is set"),
    "no budget": ([*GOOD[:4], "--out", "o.csv"], "neither epsilon nor rho"),
    "two budgets": ([*GOOD, "--rho", "1"], "both epsilon and rho"),
    "no output": (GOOD[:-2], "No output file is set"),
    "missing schema": (replaced("--schema", "no.json"), "no.json"),
    "bad schema": (replaced("--schema", "w.json"), "w.json"),
    "epsilon below doubles": (
        replaced("--epsilon", "1e-400"),
        "epsilon is 1e-400, or 0 as a double: give a number from",
    ),
    "epsilon above doubles": (replaced("--epsilon", "1e400"), "is 1e400, or inf as a double"),
    "epsilon nearly a double": (replaced("--epsilon", "1e-310"), "the budget is rho"),
    "epsilon far above doubles": (replaced("--epsilon", f"-1e{9**30}"), ", or -inf as a double"),
    "delta below doubles": ([*GOOD, "--delta", "1e-400"], "delta is 1e-400, or 0 as a double"),
    "rho below doubles": (
        [*GOOD[:4], "--rho", "0.0e0", *GOOD[6:], "--learning-share", "-1e-400"],
        "learning-share is -1e-400, or 0 as a double",
    ),
    "rows 0": ([*GOOD, "--rows", "0"], "the number of rows is 0"),
    "rows -5": ([*GOOD, "--rows", "-5"], "the number of rows is -5"),
    "rows 1.5": ([*GOOD, "--rows", "1.5"], "number of rows is 1.5: give a positive integer"),
    "seed": ([*GOOD, "--seed", "-1"], "seed is -1"),
    "ways text": ([*GOOD, "--ways", "two"], "--ways is 'two'"),
    "ways 0": ([*GOOD, "--ways", "0"], "ways is 0"),
    "ways 4": ([*GOOD, "--ways", "1,4"], "ways is 4: give a number from 1 to 3"),
    "both workloads": (
        [*GOOD, "--ways", "1", "--workload", "w.json"],
        "--workload and --ways cannot",
    ),
    "missing workload": ([*GOOD, "--workload", "no.json"], "no.json: no such file"),
    "no such folder": (replaced("--out", "none/o.csv"), "none/o.csv: cannot be written"),
    "output below a file": (replaced("--out", "s.json/o.csv"), "s.json/o.csv: cannot be written"),
    "output is a folder": (replaced("--out", "."), "."),
    "output suffix": (replaced("--out", "o.txt"), "o.txt: unknown table format"),
    "output exists": (replaced("--out", "old.csv"), "old.csv already exists"),
    "output is the input": ([*replaced("--out", "t.csv"), "--force"], "t.csv: it is also an input"),
    "output is the schema": ([*GOOD, "--release", "./s.json", "--force"], "s.json: it is also"),
    "outputs are one": ([*GOOD, "--release", "o.csv"], "o.csv: it is also an input"),
    "release path": ([*GOOD, "--release", "none/r.zip"], "none/r.zip: cannot be written"),
    "release suffix": ([*GOOD, "--release", "r.txt"], "r.txt: a release is a zip archive"),
    "ledger folder": (["ledger", "show", "--ledger", "."], ".: is a folder: name the file of a"),
    "create in folder": (
        ["ledger", "create", "--ledger", ".", "--epsilon", "1"],
        ".: is a folder: name a file in",
    ),
    "workbook": (["synthesize", "bad.xlsx", *GOOD[2:]], "bad.xlsx: is no readable file of the kind"),
    "database": (["schema", "init", "bad.sqlite"], "bad.sqlite: is no readable file of the kind"),
    "release exists": ([*GOOD, "--release", "old.csv"], "old.csv already exists"),
    "demo with data": (["synthesize", "t.csv", "--demo"], "--demo has its own"),
    "unknown option": ([*GOOD, "--epsilom", "1"], "--epsilom"),
    "unknown verb": (["synthesise"], "synthesise"),
    "sample nothing": (["sample"], "RELEASE"),
    "sample a table": (["sample", "t.csv", "--out", "o.csv"], "t.csv is not a release"),
    "sample no file": (["sample", "no.zip", "--out", "o.csv"], "no.zip: no such file"),
    "evaluate no schema": (["evaluate", "t.csv", "t.csv"], "No schema is set"),
    "evaluate no file": (["evaluate", "t.csv", "no.csv", "--schema", "s.json"], "no.csv"),
    "check no file": (["schema", "check", "no.json"], "no.json"),
    "check bad table": (["schema", "check", "s.json", "no.csv"], "no.csv"),
    "init no file": (["schema", "init", "no.csv"], "no.csv"),
    "init over data": (["schema", "init", "t.csv", "--out", "t.csv", "--force"], "also an input"),
    "json-schema": (["schema", "json-schema", "table"], "'table' is not a kind"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_arguments(case, run):
    arguments, hint = ARGUMENTS[case]
    Path("old.csv").write_text("kept")
    for name in ("bad.xlsx", "bad.sqlite"):
        Path(name).write_text("a,b\n1,2\n")
    if case == "check bad table":
        assert run(*arguments).code == 2
        return
    check(run, arguments, 2, hint)
    assert Path("old.csv").read_text() == "kept"


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ({"attributes": [["agee"]]}, "w.json: part 1: attribute 'agee' is not in the schema"),
        ({"attributes": []}, "w.json: part 1: attributes: is empty"),
        ({"ways": [1], "queries": "range"}, "w.json: part 1: attribute 'job' is not ordered"),
        (None, "w.json: parts: is empty"),
    ],
)
def test_bad_workloads(part, hint, run):
    parts = [] if part is None else [part]
    Path("w.json").write_text(json.dumps({"version": 1, "parts": parts}))
    check(run, [*GOOD, "--workload", "w.json"], 2, hint)


@pytest.mark.parametrize(
    "arguments",
    [["--max-memory", "1MB", "--max-memory"], ["--rows", str(2**41), "ask for fewer"]],
)
def test_resources_are_refused_with_exit_code_4(arguments, run):
    check(run, [*GOOD, *arguments[:2]], 4, arguments[2])


def failing(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", fail)


@pytest.mark.parametrize(
    ("error", "code", "hints"),
    [
        (BudgetExceeded("total: cost rho 2 exceeds the remaining 1"), 3, ["exceeds"]),
        (
            ValueError(CANARY),
            1,
            ["internal error (ValueError at job.py", entry.DEBUG_VARIABLE],
        ),
        (MemoryError(), 4, ["out of memory"]),
        (KeyboardInterrupt(), 130, ["stopped before the end"]),
        (entry.Stopped(15), 143, ["stopped before the end"]),
    ],
)
def test_failures_before_anything_is_spent(error, code, hints, run, monkeypatch):
    failing(monkeypatch, error)
    check(run, GOOD, code, *hints)


def test_tracebacks_are_shown_when_asked_for(run, monkeypatch):
    failing(monkeypatch, ValueError(CANARY))
    monkeypatch.setenv(entry.DEBUG_VARIABLE, "1")
    assert CANARY in run(*GOOD).err
