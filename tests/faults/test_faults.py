"""Full disks, read-only folders, signals, closed pipes, locks: exit code, ledger, resume."""

import codecs
import os
import shutil
import signal
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from adaptive_qs.machine import Fault
from adaptive_qs.privacy.events import Cost

from .children import Child, at
from .jobs import JOBS, LEDGER, Stage
from .kills import Story, check, finish, is_over, kill
from .preparations import (
    NOBODY,
    full,
    full_from,
    locked_from,
    nobody,
    read_only,
    read_only_from,
    reader_gone,
    stdout_to,
)

PRIVATE = [job for job in JOBS if not job.seeded]
VERBS = pytest.mark.parametrize("job", PRIVATE, ids=lambda job: job.verb)
KEPT = "run 1 in ledger keeps what was paid for: --resume continues it and spends nothing twice"


@pytest.fixture(scope="module")
def stage():
    """Where also those without the rights of root can work."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield Stage(folder / "stage")
    shutil.rmtree(folder)


def stopped(story: Story, code: int, *preparations: partial) -> str:
    """An attempt that fails with this code and one line, and leaves everything in order."""
    ended = story.scene.run(*preparations, resume=len(story.rows) > 1)
    assert ended.code == code, ended
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    story.kills += 1
    check(story)
    if story.scene.folder.stat().st_mode & 0o200:
        assert not [n for n in story.scene.names() if n.endswith((".part", ".lock", "-wal"))]
    return ended.err


@VERBS
@pytest.mark.parametrize("size", [600, 5_000, 20_000])
def test_a_full_disk_before_anything_is_spent(stage, job, size):
    story = Story(stage.scene(job))
    error = stopped(story, 2, partial(full, size))
    assert "keeps" not in error
    assert len(story.rows) == 1
    finish(story, stage)


@VERBS
def test_a_disk_that_is_full_again_and_again(stage, job):
    """The log of the ledger grows by about 10 kB with each release."""
    story = Story(stage.scene(job))
    sizes = [len(story.rows)]
    for fault in (Fault.CHARGED, Fault.DRAWN, Fault.MEASURED):
        error = stopped(
            story, 1, partial(full_from, Fault.COMMITTED, 45_000), partial(at, fault, 99)
        )
        assert KEPT in error
        sizes.append(len(story.rows))
    assert sizes == sorted(set(sizes))
    finish(story, stage)


TERM = 128 + signal.SIGTERM
ACCIDENTS = {
    "a disk that is full when outputs are written": (
        1, partial(full_from, Fault.PUBLISHED, 1_000), "cannot be written (file too large). ", True,
    ),
    "a ledger that another process keeps locked": (
        1,
        partial(locked_from, Fault.COMMITTED, LEDGER, 0.2),
        "error: ledger: other processes keep the ledger locked: try again ",
        True,
    ),
    "a signal after everything is in place": (
        TERM, partial(at, Fault.CLOSED, 1, signal.SIGTERM), "the budget is spent", False,
    ),
    "a signal right after the reservation": (
        TERM, partial(at, Fault.RESERVED, 1, signal.SIGTERM), "stopped before the end", None,
    ),
}  # fmt: skip
"""The exit code, what happens, what is said, and whether it is said that the run can be resumed."""


@VERBS
@pytest.mark.parametrize("case", ACCIDENTS)
def test_accidents(stage, job, case):
    story = Story(stage.scene(job))
    code, preparation, words, resumable = ACCIDENTS[case]
    error = stopped(story, code, preparation)
    assert words in error
    if resumable is not None:
        assert ((KEPT if resumable else "--resume") in error) == resumable
    if case.startswith("a disk"):
        assert not set(job.outputs) & story.scene.names()
    finish(story, stage)
    assert story.resumed == (resumable is not False)


SLOW = [pytest.param(suffix, marks=pytest.mark.slow) for suffix in (".csv.gz", ".parquet")]


@pytest.mark.parametrize("suffix", [".csv", *SLOW])
def test_a_disk_that_is_full_in_the_middle_of_a_table(stage, suffix):
    table = f"o{suffix}"
    options = ("--out", table, "--release", "r.zip", "--rows", "400000")
    story = Story(stage.scene(replace(PRIVATE[0], options=options, outputs=("r.zip", table))))
    error = stopped(story, 1, partial(full_from, Fault.PUBLISHED, 200_000))
    assert f"error: {table} cannot be written (file too large). " in error
    assert "the release is in r.zip: sample a table from it free of charge" in error
    assert table not in story.scene.names()
    assert not kill(story)
    assert table in story.scene.names()


@VERBS
def test_a_read_only_folder(stage, job):
    story = Story(stage.scene(job))
    folder = story.scene.folder
    unprivileged = partial(nobody, folder)
    error = stopped(story, 2, unprivileged, partial(read_only, folder))
    assert "permission denied" in error
    folder.chmod(0o755)
    error = stopped(story, 1, unprivileged, partial(read_only_from, Fault.MEASURED, folder))
    assert KEPT in error
    folder.chmod(0o755)
    finish(story, stage)


def unwritable(folder: Path, temporary: Path) -> None:
    """A medium that is only read, for somebody who is not its owner."""
    tempfile.tempdir = str(temporary)
    codecs.lookup("cp437")  # of names in archives; the library may be out of reach later
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


LOGS = [pytest.param(log, marks=pytest.mark.slow) for log in ("checkpointed", "with its log")]


@pytest.mark.parametrize("log", [*LOGS, "with log and index"])
def test_a_ledger_that_cannot_be_written_is_verified_shown_and_exported(stage, log):
    """Also one with the log of a process that was killed; and no copy of it is left."""
    scene = stage.scene(PRIVATE[0])
    assert scene.run().code == 0
    expected = len(scene.rows())
    if log != "checkpointed":  # as if a process that had it open had been killed
        kept = {}
        with closing(sqlite3.connect(scene.folder / LEDGER, isolation_level=None)) as open_one:
            with scene.book() as book:
                book.anchor(scene.folder / "anchor")
            open_one.execute("BEGIN IMMEDIATE")
            open_one.execute("INSERT INTO inputs VALUES (99, '', '')")
            open_one.execute("COMMIT")
            for end in ("-wal", "-shm") if "index" in log else ("-wal",):
                path = scene.folder / f"{LEDGER}{end}"
                kept[path] = path.read_bytes()
                assert kept[path]
            kept[scene.folder / LEDGER] = (scene.folder / LEDGER).read_bytes()
        for path, content in kept.items():
            path.write_bytes(content)
    before = {path.name: path.read_bytes() for path in scene.folder.iterdir()}
    temporary = Path(tempfile.mkdtemp())
    temporary.chmod(0o777)
    logs = scene.logs / "reading"
    logs.mkdir()
    unable = partial(unwritable, scene.folder, temporary)
    for words, said in (
        (["verify", "--release", "r.zip"], f"{expected} entries, all sound; r.zip is recorded"),
        (["verify", "--anchor", "anchor"] if log != "checkpointed" else ["verify"], "all sound"),
        (["show"], "run"),
        (["export"], '"format": "adaptive-qs ledger"'),
    ):
        child = Child(
            ["ledger", words[0], "--ledger", LEDGER, *words[1:]], scene.folder, logs, unable
        )
        ended = child.ended()
        assert (ended.code, ended.err) == (0, ""), ended
        assert said in ended.out
        assert not any(temporary.iterdir())
    child = Child([*scene.job.arguments, "--force"], scene.folder, logs, unable)
    ended = child.ended()
    assert ended.code == 2, "a run needs the ledger itself"
    assert {path.name: path.read_bytes() for path in scene.folder.iterdir()} == before
    scene.folder.chmod(0o755)
    temporary.rmdir()


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@VERBS
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("fault", "nth"),
    [
        (Fault.CHARGED, 2),
        (Fault.COMMITTED, 1),
        (Fault.COMMITTED, 2),
        (Fault.WRITTEN, 1),
        (Fault.DELIVERED, 1),
    ],
)
@pytest.mark.one_in(7)
def test_signals_that_ask_to_stop(stage, job, number, fault, nth):
    story = Story(stage.scene(job))
    error = stopped(story, 128 + number, partial(at, fault, nth, number))
    assert error.startswith("error: stopped before the end: ")
    kept = "r.zip" if fault == Fault.DELIVERED and job.verb == "synthesize" else KEPT
    assert kept in error
    finish(story, stage)


@VERBS
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_the_first_release_gives_the_budget_back(stage, job, number):
    scene = stage.scene(job)
    ended = scene.run(partial(at, Fault.CHARGED, 1, number))
    assert ended.code == 128 + number
    assert ended.err == "error: stopped before the end: no output was written\n"
    with scene.book() as book:
        assert [(run.state, run.spent) for run in book.runs()] == [("closed", Cost())]
        assert book.held == Cost()
    assert scene.run().code == 0  # the total would not be enough for two


@VERBS
def test_nobody_reads_the_results(stage, job):
    """They are in place by then, and the run is closed."""
    story = Story(stage.scene(job))
    assert stopped_quietly(story, reader_gone) == (128 + signal.SIGPIPE, "")
    code, error = stopped_quietly(Story(stage.scene(job)), partial(stdout_to, "/dev/full"))
    assert code == 1
    assert error.startswith("error: stdout cannot be written (No space left on device): ")


def stopped_quietly(story: Story, preparation) -> tuple[int, str]:
    """Exit status and errors; with unlucky noise a run also warns of columns that are alone."""
    ended = story.scene.run(preparation)
    assert ended.out == ""
    check(story)
    assert is_over(story)
    errors = [line for line in ended.err.splitlines() if not line.startswith("warning: ")]
    return ended.code, "\n".join(errors)


@VERBS
def test_waiting_for_a_lock_hears_signals(stage, job):
    story = Story(stage.scene(job))
    child = story.scene.start(partial(locked_from, Fault.COMMITTED, LEDGER, 60.0))
    child.wait_for(Fault.COMMITTED)
    child.wait_for("drawn\t1")
    child.send(signal.SIGTERM)
    ended = child.ended()
    assert ended.code == TERM
    story.kills += 1
    check(story)
    finish(story, stage)
