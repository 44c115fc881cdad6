"""What only a process of its own can show: signals, pipes, exit codes, imports, the real demo."""

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

from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.sample import sample_dataset
from adaptive_qs.data.schema import Schema
from adaptive_qs.release.beside import manifest_path

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


def test_the_demo_opens_in_pandas_with_the_declared_types(tmp_path):
    process = start(tmp_path, "synthesize", "--demo", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    content = json.loads(out)
    # Its columns of many values stay alone at this budget, which is all that is warned of.
    assert err.splitlines() == [line for line in err.splitlines() if "independent of all" in line]
    assert (content["epsilon"], content["delta"]) == (1, 1e-9)
    path = tmp_path / "adult_synthetic.csv"
    made, true = pd.read_csv(path), pd.read_csv(ADULT.data)
    assert made.dtypes.to_dict() == true.dtypes.to_dict()
    assert len(made) == content["rows"]
    assert abs(len(made) - len(true)) < 1_000
    encode_file(path, Schema.load(ADULT.schema))
    assert sorted(tmp_path.iterdir()) == [path, manifest_path(path)]


def test_the_demo_of_answers(tmp_path):
    process = start(tmp_path, "answer", "--demo", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    content = json.loads(out)
    # Its columns of many values stay alone at this budget, which is all that is warned of.
    assert err.splitlines() == [line for line in err.splitlines() if "independent of all" in line]
    assert (content["epsilon"], content["delta"]) == (1, 1e-9)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_no_answers_and_say_what_was_spent(number, tmp_path):
    process = start(tmp_path, "answer", "--demo", "--ways", "4", "--mechanism", "gaussian")
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
    assert process.returncode == 128 + number
    assert out == ""
    *notes, last = err.splitlines()
    assert last.startswith("error: stopped")
    assert [note[:14] for note in notes] in ([], ["at this budget"])
    assert list(tmp_path.iterdir()) == ([release] if release.exists() else [])
    assert ("the budget is spent; the release is in r.zip" in err) == release.exists()
    assert release.exists() or not saved


def test_a_closed_pipe_is_no_traceback(tmp_path):
    process = start(tmp_path, "schema", "json-schema")
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == ""


@pytest.mark.parametrize("verb", ["synthesize", "plan", "answer"])
def test_help_imports_nothing_heavy(verb):
    code = (
        "import sys\n"
        "from adaptive_qs.cli import main\n"
        f"assert main(['{verb}', '--help']) == 0\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'sklearn', 'numba', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL
    )


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
        "from adaptive_qs.cli import entry, output, stopping\n"
        "class Lost:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"  # what it raises here is dropped
        "        for _ in range(1000): pass\n"
        "def command(*_, **__):\n"
        "    with output.progress_bars() as report:\n"
        "        thing = Lost()\n"
        "        del thing\n"
        "        print('went on', flush=True)\n"
        "        report('fit', 1, 2)\n"
        "        print('too far')\n"
        "entry.app = command\n"
        "raise SystemExit(entry.main([]))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT)
    assert process.stdout == b"went on\n"
    assert process.returncode == 143
    assert process.stderr.strip().endswith(b"error: stopped before the end: no output was written")
