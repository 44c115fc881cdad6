"""SIGINT and SIGTERM end a command within two seconds, whatever library is at work."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from adaptive_qs.ledger.book import LedgerBook

SECONDS = 2.0
"""From the signal to the end, on a machine that has a core to spare."""

RUN = """
import importlib, pathlib, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup around the tests ignores it
place, marker, *arguments = sys.argv[1:]
module, *names, last = place.split(":")
owner = importlib.import_module(module)
for name in names:
    owner = getattr(owner, name)
plain = getattr(owner, last)

def marked(*args, **kwargs):
    pathlib.Path(marker).touch()
    return plain(*args, **kwargs)

setattr(owner, last, marked)
{seam}
from adaptive_qs.cli.entry import main
sys.exit(main(arguments))
"""
"""Runs a command, and makes a file when a function is first called."""
DEAF = """
import hashlib
from adaptive_qs.machine import Fault, on_reach

def compute(fault):
    if fault == Fault.COMMITTED:
        pathlib.Path(marker).touch()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

on_reach(compute)
"""
"""Once a release is committed, C code goes on for about half an hour."""
INTERRUPTED = "adaptive_qs.table.sql:interruptible"
SCHEMA = {"version": 1, "columns": [
    {"name": "n", "type": "integer", "min": 0, "max": 9},
]}  # fmt: skip


def allowed_seconds() -> float:
    """SECONDS, times the processes that share a core on average."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 8.0
    return SECONDS * (1 + load / (os.cpu_count() or 1))


def stop(folder: Path, number, place: str, *arguments: str, seam: str = "", **environment) -> str:
    """The only line that a command says which gets a signal half a second after it called this."""
    marker, before = folder / "marker", {path.name for path in folder.iterdir()}
    command = [sys.executable, "-c", RUN.replace("{seam}", seam), place, str(marker), *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    ) as process:  # fmt: skip
        try:
            while not marker.exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(0.5)
            assert process.poll() is None, process.communicate()
            began = time.monotonic()
            process.send_signal(number)
            out, error = process.communicate(timeout=60)
            seconds = time.monotonic() - began
        finally:
            process.kill()
    assert (process.returncode, out) == (128 + number, ""), error
    assert seconds < allowed_seconds()
    lines = error.splitlines()  # notes about the budget come before
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert lines[-1].startswith("error: stopped before the end")
    marker.unlink()
    left = {path.name for path in folder.iterdir()} - before
    # What a crash leaves as well, and the next run takes over: a log of the ledger, locks, claims.
    assert all(name.startswith(("ledger", ".")) for name in left), left
    return lines[-1]


def synthesize(folder: Path, *source: str, schema=SCHEMA) -> list[str]:
    (folder / "s.json").write_text(json.dumps(schema))
    budget = ["--rho", "1", "--ledger", "ledger", "--out", "o.csv"]
    ledger = ["ledger", "create", "--ledger", "ledger", "--rho", "1"]
    if not (folder / "ledger").exists():
        subprocess.run([sys.executable, "-m", "adaptive_qs", *ledger], cwd=folder, check=True,
                       capture_output=True)  # fmt: skip
    return ["synthesize", *source, "--schema", "s.json", *budget]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_table_of_sqlite_that_takes_long_to_read(tmp_path, number):
    """Blocks of rows come from a thread."""
    with sqlite3.connect(tmp_path / "d.sqlite") as database:
        database.execute("CREATE TABLE t (n INTEGER)")
        numbers = "WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r LIMIT 5000000)"
        database.execute(f"INSERT INTO t {numbers} SELECT n % 10 FROM r")
    database.close()
    arguments = synthesize(tmp_path, "d.sqlite")
    place = "adaptive_qs.table.containers:_blocks"
    assert "no output was written" in stop(tmp_path, number, place, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_planning_a_large_workload(tmp_path, number):
    (tmp_path / "s.json").write_text('{"a": 1480}')
    queries = {"family": "random", "p": 0.3, "count": 5000, "seed": 7}
    parts = [{"attributes": [["a"]], "queries": queries}]
    (tmp_path / "w.json").write_text(json.dumps({"version": 1, "parts": parts}))
    arguments = ["plan", "--schema", "s.json", "--workload", "w.json", "--rho", "1"]
    stop(tmp_path, number, "numpy:linalg:eigh", *arguments)


def many_rows(folder: Path) -> list[str]:
    """A run of seconds on eight columns."""
    names = [f"c{k}" for k in range(8)]
    columns = [{"name": name, "type": "integer", "min": 0, "max": 9} for name in names]
    lines = [",".join(str((j * j + k * j) % 10) for k in range(8)) for j in range(1_000)]
    (folder / "t.csv").write_text("\n".join([",".join(names), *lines * 50]) + "\n")
    return synthesize(folder, "t.csv", schema={"version": 1, "columns": columns})


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["warm", "empty"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fitting_and_compiling(tmp_path, tmp_path_factory, number, cache):
    """The rows are fitted by compiled kernels, which are compiled first if the cache is empty."""
    arguments = [*many_rows(tmp_path), "--rows", "2000000"]
    place = "adaptive_qs.generate.rows:fit_model"
    code = {"NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("code"))} if cache == "empty" else {}
    stop(tmp_path, number, place, *arguments, **code)
    with closing(LedgerBook(tmp_path / "ledger")) as book:
        assert [run.state for run in book.runs()] == ["open"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_deaf_ends_and_can_be_resumed(tmp_path, number):
    arguments = many_rows(tmp_path)
    place = "adaptive_qs.ledger.run:LedgerRun:finish"
    error = stop(tmp_path, number, place, *arguments, seam=DEAF)
    assert "count any budget that the run had as spent" in error
    command = [sys.executable, "-m", "adaptive_qs", *arguments, "--resume"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    assert (tmp_path / "o.csv").exists()
