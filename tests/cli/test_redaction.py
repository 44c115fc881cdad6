"""Nothing that a run leaves behind, at any moment, holds a private cell or an exact count."""

from __future__ import annotations

import io
import json
import logging
import signal
import tempfile
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from adaptive_qs import machine
from adaptive_qs.answering.api import answer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import AdaptiveQsError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.machine import Fault
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer import Synthesizer

from ..faults.children import Child, at
from .private_traces import (
    CANARY,
    CANARY_NUMBER,
    JOBS,
    SCHEMAS,
    Secrets,
    declared,
    kept_answers,
    write_private_table,
)

RHO = 1e-10
"""Noise of standard deviation 1 / sqrt(2 RHO) > 7e4 rows on every count."""
DELTA = 1e-9
OUTPUTS = {
    "synthesize": ["--out", "o.csv", "--release", "r.zip", "--rows", "300", "--seed", "5"],
    "answer": ["--out", "a.parquet", "--ways", "1,2"],
}
BAD_ROWS = {"changed": f"b,?,{CANARY}", "bad": f"b,{CANARY},{CANARY_NUMBER}"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The private table, with one row more, and with a bad cell: paths by name."""
    folder = tmp_path_factory.mktemp("private")
    paths = {name: folder / f"{name}.csv" for name in ("private", *BAD_ROWS)}
    write_private_table(paths["private"])
    for name, row in BAD_ROWS.items():
        paths[name].write_bytes(paths["private"].read_bytes() + f"{row}\n".encode())
    return paths


@pytest.fixture(scope="module")
def secrets(tables):
    """What must not be found."""
    return Secrets(tables["private"], declared())


@pytest.fixture
def stage(tmp_path, monkeypatch, caplog):
    """A working folder with the schemas and a ledger for two runs, and a TMPDIR of its own."""
    folders = tmp_path / "here", tmp_path / "tmp"
    for folder in folders:
        folder.mkdir()
    monkeypatch.chdir(folders[0])
    monkeypatch.setattr(tempfile, "tempdir", str(folders[1]))
    monkeypatch.setattr(machine, "_handlers", [])
    monkeypatch.setattr("adaptive_qs.answering.measure.GROUP_MEASUREMENTS", 2)
    caplog.set_level(logging.DEBUG)
    for name, content in SCHEMAS.items():
        Path(f"{name}.json").write_text(json.dumps(content))
    total = Cost.within(2.5 * RHO, 2.5 * DELTA)
    LedgerBook.create("ledger", total, {"rho": 2.5 * RHO, "delta": 2.5 * DELTA}).close()
    return folders


@pytest.fixture
def run(stage, secrets, capsys, caplog):
    """Call a command; what it says and leaves is searched, also at each named place."""

    def call(code, *words, stop=0):
        committed, found = 0, []

        def look(fault):
            nonlocal committed
            try:
                secrets.absent_in(*stage)
            except Exception as error:  # noqa: BLE001  (the command would take it for its own fault)
                found.append(error)
            committed += fault == Fault.COMMITTED
            if fault == Fault.COMMITTED and committed == stop:
                raise RuntimeError(CANARY, CANARY_NUMBER, JOBS["a"])

        machine._handlers[:] = [look]
        ended = main([str(word) for word in words])
        said = capsys.readouterr()
        for error in found:
            raise error
        assert ended == code, said
        for name, text in (("stdout", said.out), ("stderr", said.err), ("log", caplog.text)):
            secrets.absent(name, text)
        secrets.absent_in(*stage)
        return said

    return call


def command(verb, table, schema, *more):
    return [
        verb, table, "--schema", f"{schema}.json", "--rho", RHO, "--delta", DELTA,
        "--ledger", "ledger", "--learning-share", "0.5", "--insecure-seed", "3",
        "--max-memory", "2GB", "--beyond-limits", *OUTPUTS[verb], *more,
    ]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("verb", OUTPUTS)
def test_runs_that_are_finished_interrupted_resumed_and_refused(verb, schema, tables, run, secrets):
    words = command(verb, tables["private"], schema, "--force")
    run(0, *words, "--json")
    run(2, *command(verb, tables["bad"], schema, "--force"))
    run(1, *words, stop=2)
    kept = kept_answers("ledger")
    assert kept
    assert kept.isdisjoint(secrets.scalars)
    run(2, *command(verb, tables["changed"], schema, "--resume"))
    run(0, *words, "--resume")
    run(3, *words)
    run(0, "ledger", "show", "--ledger", "ledger")
    run(0, "ledger", "show", "--ledger", "ledger", "--json")
    run(0, "ledger", "verify", "--ledger", "ledger", "--json")
    run(0, "ledger", "export", "--ledger", "ledger", "--out", "ledger.json")
    if verb == "synthesize":
        run(0, "ledger", "verify", "--ledger", "ledger", "--release", "r.zip")
        run(0, "sample", "r.zip", "--rows", "200", "--seed", "1", "--out", "more.parquet")
        if schema == "learnt":
            Secrets(tables["private"], Release.load("r.zip").schema).absent_in(Path.cwd())


@pytest.mark.parametrize("verb", OUTPUTS)
def test_the_search_finds_a_run_without_noise(verb, tables, run, monkeypatch):
    monkeypatch.setattr(Mechanisms, "_draw_counts", lambda self, event, values: values)
    with pytest.raises(AssertionError):
        run(0, *command(verb, tables["private"], "declared"))


def test_a_value_of_one_row_is_not_learnt(tables, stage):
    """With plenty of budget; it would pass the threshold with a probability of DELTA at most."""
    words = [tables["private"], "--schema", "learnt.json", "--rho", 5, "--delta", DELTA]
    for verb, options in OUTPUTS.items():
        assert main([str(word) for word in (verb, *words, *options)]) == 0
    cells = Secrets(tables["private"])
    cells.absent_in(*stage)
    assert set(Release.load("r.zip").schema.column("job").values) == {"a", "b", "c"}
    bounds = Release.load("r.zip").schema.column("age")
    assert bounds.max < CANARY_NUMBER


def test_no_cache_in_the_package_holds_a_cell():
    for path in Path(machine.__file__).parent.rglob("__pycache__/*"):
        assert CANARY.encode() not in path.read_bytes()


def in_temporary(folder):
    tempfile.tempdir = str(folder)


@pytest.mark.parametrize(
    ("verb", "fault"),
    [pytest.param("synthesize", Fault.SYNCED, marks=pytest.mark.slow), ("answer", Fault.COMMITTED)],
)
def test_what_a_kill_leaves(verb, fault, tables, stage, secrets, tmp_path):
    logs, temporary = tmp_path / "logs", tmp_path / "child"
    for folder in (logs, temporary):
        folder.mkdir()
    words = list(map(str, command(verb, tables["private"], "declared")))
    preparations = partial(in_temporary, temporary), partial(at, fault, 1)
    child = Child(words, stage[0], logs, *preparations)
    assert child.ended().code == -signal.SIGKILL
    left = {path.name for path in stage[0].iterdir()}
    assert {"ledger", "ledger-wal", "ledger-shm", "ledger.key", ".ledger.run-1.lock"} <= left
    assert any(name.endswith(".part") for name in left)
    assert not any(temporary.iterdir())
    secrets.absent_in(stage[0], logs)


COMMON = {
    "rho": RHO,
    "insecure_seed": 3,
    "max_memory": "2GB",
    "ledger": "ledger",
    "beyond_limits": True,
}
HINTS = {
    "changed": ["not the one that run 1 read", "started with another command"],
    "bad": ["cannot be read as integer"] * 2,
}


def interrupted(fault):
    """Stop a run after its first release."""
    if fault == Fault.COMMITTED:
        raise RuntimeError("stopped by a test")


def failures(tables):
    """Calls of the Python interface that fail on an interrupted run, and what they say."""
    resumed = {**COMMON, "resume": True}
    schema = declared()
    for name, hints in HINTS.items():
        for source in (tables[name], pacsv.read_csv(tables[name]).to_pandas()):
            yield hints[0], lambda s=source: Synthesizer(**resumed).fit(s, schema=schema)
            yield hints[1], lambda s=source: answer(s, schema, 1, **resumed).to_pandas()
    private = tables["private"]
    yield "left of", lambda: answer(private, schema, 1, **{**COMMON, "rho": 1.0})


def everything(error):
    """An error, and all that it leads to, as text."""
    texts, pending = [], [error]
    while pending:
        error = pending.pop()
        notes = getattr(error, "__notes__", ())
        texts.append(f"{error!r} {error} {error.args!r} {vars(error)} {notes}")
        pending += [e for e in (error.__cause__, error.__context__) if e is not None]
    return "\n".join(texts)


def test_errors_of_the_python_interface(tables, stage, secrets):
    machine._handlers[:] = [interrupted]
    with pytest.raises(RuntimeError) as stopped:
        Synthesizer(**COMMON).fit(tables["private"], schema=declared())
    secrets.absent("notes", everything(stopped.value))
    machine._handlers.clear()
    for hint, call in failures(tables):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(AdaptiveQsError, match=hint) as bad:
                call()
        secrets.absent(hint, everything(bad.value))
        secrets.absent(hint, str([str(warning.message) for warning in caught]))
    secrets.absent_in(*stage)


# The search for private traces finds what it is made for.


@pytest.fixture(scope="module")
def private_traces_secrets(tmp_path_factory):
    path = tmp_path_factory.mktemp("private") / "t.csv"
    write_private_table(path)
    return Secrets(path, declared())


def leaks():
    """Each form of each secret, where a leak would put it."""
    a, marginal = JOBS["a"], np.array([JOBS[job] for job in ("a", "b", "c", CANARY, "?")])
    yield from (
        CANARY,
        f"x{CANARY_NUMBER}",
        f"is {a}.",
        f"{a:,} rows",
        f'{{"n":{a}}}',
        f"[1,{a}.0]",
    )
    for kind in ("<i8", "<f8", "<u4"):
        yield b"x" + marginal.astype(kind).tobytes() + b"y"
    yield (5 * marginal - marginal.sum()).tobytes()
    yield np.array([1.0, sum(JOBS.values())]).tobytes()
    packed = io.BytesIO()
    pq.write_table(pa.table({"x": ["a", CANARY] * 99}), packed)
    yield packed.getvalue()
    packed = io.BytesIO()
    pq.write_table(pa.table({"x": np.r_[np.zeros(99), a]}), packed)
    yield packed.getvalue()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.txt", f"{CANARY} " * 99)
    yield packed.getvalue()


def test_the_search_finds_leaks_and_nothing_else(private_traces_secrets):
    a = JOBS["a"]
    for leak in leaks():
        with pytest.raises(AssertionError):
            private_traces_secrets.absent("leak", leak)
    for harmless in (f"{a}.5", f"1{a}", f"0.{a}", f"ab{a}", f"{a}0", "no secrets"):
        private_traces_secrets.absent("text", harmless)
