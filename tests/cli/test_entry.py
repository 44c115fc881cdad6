"""Whatever text comes, the answer is one line and a documented exit code, never a traceback."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adaptive_qs.cli import entry
from adaptive_qs.cli.io import fail, note, percent, warn
from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.release.bundle import manifest_path
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.schema import Schema

from .conftest import refused
from .transcripts import CANARY

FUZZ = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
numbers = st.floats().map(repr) | st.integers().map(str) | st.text(max_size=8)


@pytest.fixture
def command(run, monkeypatch):
    """Run `synthesize` or `answer` up to the first charge, which is refused with exit code 3."""

    def refuse(*_):
        raise BudgetExceeded("the first charge")

    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", refuse)
    files = sorted(Path.cwd().iterdir())

    def call(*arguments, verb="synthesize"):
        outcome = run(verb, "t.csv", "--schema", "s.json", "--out", "o.csv", *arguments)
        assert outcome.code in (2, 3, 4), outcome
        assert outcome.out == ""
        assert len(outcome.err.splitlines()) <= 2
        assert outcome.err.startswith(("error: ", "warning: ", "note: "))
        assert not Path("o.csv").exists()
        assert sorted(Path.cwd().iterdir()) == files

    return call


OPTIONS = {
    "synthesize": ["delta", "ways", "rows", "seed", "max-memory", "workers",
                   "insecure-seed"],
    "answer": ["cost", "rho", "delta", "confidence", "gap", "mechanism", "queries", "ways",
               "workers", "max-memory", "insecure-seed"],
}  # fmt: skip


@pytest.mark.parametrize("verb", OPTIONS)
@FUZZ
@given(data=st.data(), value=numbers)
@example(data=None, value="9" * 400)
@example(data=None, value="5e-324")
def test_option_values(command, verb, data, value):
    for option in [data.draw(st.sampled_from(OPTIONS[verb]))] if data else OPTIONS[verb]:
        command("--epsilon", "1", f"--{option}={value}", verb=verb)


@FUZZ
@given(epsilon=numbers)
@example(epsilon="1e308")
@example(epsilon="1.7976931348576007e+308")
@example(epsilon="5e-324")
def test_budgets(command, epsilon):
    command(f"--epsilon={epsilon}")
    command(f"--rho={epsilon}")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "parts", "ways", "attributes", "queries", "weight", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@FUZZ
@given(content=st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_workload_files(command, content):
    Path("w.json").write_bytes(content)
    command("--epsilon", "1", "--workload", "w.json")


@FUZZ
@given(content=st.binary(max_size=60))
def test_tables(command, content):
    Path("t.csv").write_bytes(b"job,age,day\n" + content)
    command("--epsilon", "1")


# Notes, warnings and errors are one line each, whatever names they quote.

NAMES = ["a\x1b[2Jb", "a\nb", "a\r\x07b", "a\u202eb", "a\x9bb"]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("say", [note, warn, fail])
@pytest.mark.parametrize("name", NAMES)
def test_control_characters_do_not_reach_the_terminal(name, say, terminal, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    say(f"{name}.csv: caf\u00e9")
    said = capsys.readouterr().err
    assert said.endswith("caf\u00e9\n")
    assert said.removesuffix("\n").isprintable()


# What `evaluate` prints stands in the order of what matters, in digits that can be read.


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"), (2e-29, "under 0.001 %"), (0.77, "77.0 %"), (1, "100 %"), (0.0024, "0.240 %"),
        (0.99999, "100.00 %"),
    ],
)  # fmt: skip
def test_shares_have_digits_that_can_be_read(share, text):
    assert percent(share) == text


@pytest.mark.parametrize("verb", ["", *entry.COMMANDS])
def test_help_and_version(verb, run):
    outcome = run(*verb.split(), "--help")
    assert f"Usage: adaptive-qs {verb}".rstrip() in outcome.out
    assert (outcome.code, outcome.err) == (0, "")
    none = run()
    assert (none.code, "error:" in none.err) == (2, False)
    assert run("--version").out.startswith("adaptive-qs ")


# Failures before anything is spent.

GOOD = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "1", "--out", "o.csv"]


def failing(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", fail)


@pytest.mark.parametrize(
    ("error", "code", "hints"),
    [
        (BudgetExceeded("total: cost rho 2 exceeds the remaining 1"), 3, ["exceeds"]),
        (ValueError(CANARY), 1, ["internal error (ValueError at states.py", entry.DEBUG_VARIABLE]),
        (MemoryError(), 4, ["out of memory"]),
        (ImportError("x.so: failed to map segment"), 4, ["in this memory: raise the limit"]),
        (OSError(12, "Cannot allocate memory"), 4, ["in this memory: raise the limit"]),
        (KeyboardInterrupt(), 130, ["stopped before the end"]),
        (entry.Stopped(15), 143, ["stopped before the end"]),
    ],
)
def test_failures_before_anything_is_spent(error, code, hints, run, monkeypatch):
    failing(monkeypatch, error)
    before = sorted(Path.cwd().iterdir())
    said = refused(run(*GOOD), code)
    assert CANARY not in said
    assert all(hint in said for hint in hints)
    assert sorted(Path.cwd().iterdir()) == before


def test_tracebacks_are_shown_when_asked_for(run, monkeypatch):
    failing(monkeypatch, ValueError(CANARY))
    monkeypatch.setenv(entry.DEBUG_VARIABLE, "1")
    assert CANARY in run(*GOOD).err


# What only a process of its own can show: signals, pipes, exit codes, imports, the real demo.

ADULT = sample_dataset()
COMMAND = [sys.executable, "-m", "adaptive_qs"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def start(folder, *arguments, **options):
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_interrupts,
        **options,
    )


def _hear_interrupts():
    """A suite that runs in the background may have inherited that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_demo(folder, command):
    """Return what `command --demo --json` says, which warns of its lonely columns only."""
    process = start(folder, command, "--demo", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert all("independent of all" in line for line in err.splitlines())
    content = json.loads(out)
    assert (content["epsilon"], content["delta"]) == (1, 1e-9)
    return content


@pytest.mark.slow
def test_the_demo_opens_in_pandas_with_the_declared_types(tmp_path):
    content = run_demo(tmp_path, "synthesize")
    path = tmp_path / "adult_synthetic.csv"
    made, true = pd.read_csv(path), pd.read_csv(ADULT.data)
    assert made.dtypes.to_dict() == true.dtypes.to_dict()
    assert len(made) == content["rows"]
    assert abs(len(made) - len(true)) < 1_000
    read_table(path, Schema.load(ADULT.schema))
    assert sorted(tmp_path.iterdir()) == [path, manifest_path(path)]


@pytest.mark.slow
def test_the_demo_of_answers(tmp_path):
    content = run_demo(tmp_path, "answer")
    path = tmp_path / "adult_answers.parquet"
    assert sorted(tmp_path.iterdir()) == [path, manifest_path(path)]
    found, true = pd.read_parquet(path), pd.read_csv(ADULT.data)
    assert len(found) == content["rows"] == content["queries"]
    counts = true.groupby(["gender", "income"]).size()
    for (sex, income), count in counts.items():
        row = found[found["query"] == f"gender = {sex} and income = {income}"].iloc[0]
        assert abs(row.estimate - count) < 6 * row.standard_error


def size(path):
    """Bytes of a temporary file; 0 where it has gone, as that of the check for writing has."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_no_answers_and_say_what_was_spent(number, tmp_path):
    process = start(tmp_path, "answer", "--demo", "--ways", "4", "--mechanism", "residualplanner")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(map(size, tmp_path.glob(".*.part"))):
        time.sleep(0.02)
    assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, "")
    assert err.startswith("error: stopped before the end: part of the budget was spent")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def listens(process):
    """Whether a process has its own handler of SIGTERM, as the commands have once they run."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        time.sleep(1)
        return True
    caught = re.search(r"SigCgt:\s*(\w+)", status.read_text())
    return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("saved", [False, True])
def test_signals_leave_the_release_once_it_is_saved_and_nothing_else(number, saved, tmp_path):
    arguments = ["--demo", "--epsilon", "1", "--release", "r.zip", "--rows", "400000"]
    process = start(tmp_path, "synthesize", *arguments)
    release = tmp_path / "r.zip"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (release.exists() if saved else listens(process)):
        time.sleep(0.05)
    time.sleep(0.3)  # into the fit, or somewhere before
    assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert out == ""
    *notes, last = err.splitlines()
    assert last.startswith("error: stopped")
    assert [note[:20] for note in notes] in ([], ["note: This budget su"])
    assert list(tmp_path.iterdir()) == ([release] if release.exists() else [])
    assert ("the budget is spent; the release is in r.zip" in err) == release.exists()
    assert release.exists() or not saved


def test_a_signal_that_compiled_code_swallowed_is_no_bug(monkeypatch, capsys):
    """A kernel whose compilation it broke off may end as any error."""

    def command():
        ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))()
        raise RuntimeError("no kernel")

    monkeypatch.setattr(entry, "parse", lambda words: command)
    assert entry.main(["synthesize"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "error: stopped before the end: no output was written\n"


def test_a_closed_pipe_is_no_traceback(tmp_path):
    (tmp_path / "s.json").write_text('{"a": 2}')
    process = start(tmp_path, "schema", "check", "s.json")
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == ""


def test_terminals_that_know_ascii_only(tmp_path):
    table = tmp_path / "t\u00e9.csv"
    table.write_text("a\n1\n")
    (tmp_path / "s.json").write_text('{"a": 2}')
    process = subprocess.run(
        [*COMMAND, "schema", "check", "s.json", table.name],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "fits the schema" in process.stdout


def test_a_stop_whose_exception_got_lost_is_raised_again_by_progress():
    code = (
        "import os, signal, weakref\n"
        "from adaptive_qs.cli import entry, io\n"
        "class Lost:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"  # what it raises here is dropped
        "        for _ in range(1000): pass\n"
        "def command(*_, **__):\n"
        "    with io.progress_bars() as report:\n"
        "        thing = Lost()\n"
        "        del thing\n"
        "        print('went on', flush=True)\n"
        "        report('fit', 1, 2)\n"
        "        print('too far')\n"
        "entry.parse = command\n"
        "raise SystemExit(entry.main([]))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT)
    assert process.stdout == b"went on\n"
    assert process.returncode == 143
    assert process.stderr.strip().endswith(b"error: stopped before the end: no output was written")
