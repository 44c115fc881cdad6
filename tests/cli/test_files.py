"""Commands write what they were asked for, its hidden parts, the ledger, and nothing else.

Every way in which Python opens a file for writing or makes a name is watched, the folder is listed
at each named place, and a folder for temporary files that nothing was made in keeps its time stamp,
whoever would have made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.machine import Fault, on_reach
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.files import claimed

from ..faults.children import Child
from .conftest import done, refused

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MAKING = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1, "os.truncate": 0,
          "sqlite3.connect": 0}  # fmt: skip
"""Events and which of their arguments is the path."""
LEAVING = {"socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"}
"""Events by which contents could go elsewhere."""
LEARNT = {"version": 1, "ignore": ["day"], "columns": [
    {"name": "job", "type": "categorical", "private_values": 3, "catch_all": "*"},
    {"name": "age", "type": "integer", "private_bins": 4},
]}  # fmt: skip
RUN = "--ledger l --rho 1 --ways 1,2 --out"
COMMANDS = {
    "ledger create --ledger l --epsilon 50 --delta 1e-6 --discovery-delta 1e-7": {"l", "l.mark"},
    f"synthesize t.csv --schema s.json {RUN} o.csv --release r.zip":
        {"o.csv", "o.csv.manifest.json", "r.zip"},
    f"synthesize t.csv --schema learnt.json {RUN} p.parquet --insecure-seed 1":
        {"p.parquet", "p.parquet.manifest.json"},
    f"answer t.csv --schema learnt.json {RUN} a.csv.gz --json":
        {"a.csv.gz", "a.csv.gz.manifest.json"},
    "sample r.zip --out more.csv.gz": {"more.csv.gz", "more.csv.gz.manifest.json"},
    "ledger show --ledger l": set(),
    "ledger verify --ledger l --release r.zip": set(),
    "ledger export --ledger l --out e.json": {"e.json"},
    "evaluate t.csv o.csv --schema s.json": set(),
    "plan --schema s.json": set(),
    "schema check s.json t.csv": set(),
    "audit --schema learnt.json --ways 1 --pairs 1": set(),
}  # fmt: skip
"""What each of them makes."""
TABLES = {"o.csv", "p.parquet", "a.csv.gz", "more.csv.gz"}
"""A stamp may lie beside them, for which there is a check beforehand."""
LOGS = {"l-wal", "l-shm"}
"""Of the ledger: removed by whoever closes it last, which a child that is forked leaves out."""


def written(event, arguments):
    """The path that an event makes or opens for writing, if it does."""
    if event == "open" and isinstance(arguments[0], str | bytes) and arguments[2] & WRITING:
        return os.fsdecode(arguments[0])
    if event in MAKING:
        return os.fsdecode(arguments[MAKING[event]])
    return "elsewhere" if event in LEAVING else None


def watching(journal, temporary):
    """Note every such path, the permissions of new folders, and names in the working folder."""
    tempfile.tempdir = str(temporary)
    handle = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind, path, mode=0):
        os.write(handle, (json.dumps([kind, os.path.abspath(path), mode]) + "\n").encode())

    def hook(event, arguments):
        path = written(event, arguments)
        if path is not None and path != ":memory:":
            note(event, path, arguments[1] if event == "os.mkdir" else 0)

    def look(_):
        for name in os.listdir():
            note("listed", name)

    on_reach(look)
    sys.addaudithook(hook)


def noted(journal):
    """What was noted, and nothing more of it afterwards."""
    notes = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.unlink()
    return notes


def unexpected(notes, folder, names):
    """Paths that are neither these files in the folder, nor their parts, the ledger or its lock."""
    known = "|".join(map(re.escape, names))
    expected = re.compile(
        rf"{re.escape(str(folder))}/(?:{known}|\.(?:{known})\.(?:\w{{8}}\.part|claim)|\.l\.run-\d\.lock)"
    )
    return [
        (kind, path)
        for kind, path, _ in notes
        if not expected.fullmatch(path) and not re.search(r"/__pycache__/.*\.(nbi|nbc|pyc)$", path)
    ]


@pytest.fixture
def logs(folder, tmp_path_factory):
    """A folder for what children say, and the schema of columns that are learnt in the other."""
    Path("learnt.json").write_text(json.dumps(LEARNT))
    return tmp_path_factory.mktemp("logs")


@pytest.mark.slow
def test_nothing_else_is_written(folder, logs):
    journal, temporary = logs / "journal", logs / "temporary"
    temporary.mkdir()
    there = {path.name for path in folder.iterdir()}
    for words, outputs in COMMANDS.items():
        before = temporary.stat().st_mtime_ns
        watch = partial(watching, journal, temporary)
        ended = Child(words.split(), folder, logs, watch).ended()
        assert ended.code == 0, (words, ended)
        there |= outputs | ({"l.key"} if RUN in words else set())
        assert {path.name for path in folder.iterdir()} - LOGS == there, words
        assert not any(temporary.iterdir()), words
        notes = noted(journal)
        if words.startswith("audit"):  # whose rows are made up
            made = {note[1]: note[2] for note in notes if note[0] == "os.mkdir"}
            assert set(made.values()) == {0o700}
            private = min(made, key=len)
            assert all(f"{path}/".startswith(f"{private}/") for path in made)
            notes = [note for note in notes if not f"{note[1]}/".startswith(f"{private}/")]
        else:
            assert temporary.stat().st_mtime_ns == before, words
        listed = [note for note in notes if note[0] == "listed"]
        assert not unexpected(listed, folder, there | LOGS), words
        others = [note for note in notes if note[0] != "listed"]
        assert not unexpected(others, folder, outputs | {"l", "l.key", "l.mark"}), words
        named = {Path(path).name for kind, path, _ in others if kind in ("os.rename", "os.link")}
        assert named >= outputs, "outputs get their names when they are complete"
        opened = {Path(path).name for kind, path, _ in others if kind == "open"}
        assert not opened & outputs, "and are never written under them"


def untidy():
    """Write files as no command may."""
    Path("o.csv.tmp").write_text("x")
    os.close(tempfile.mkstemp()[0])
    with pytest.raises(OSError, match=""), socket.socket(socket.AF_UNIX) as link:
        link.connect("nowhere")


@pytest.mark.slow
def test_the_watch_sees_what_is_written(folder, logs):
    words = ["plan", "--schema", "s.json"]
    Child(words, folder, logs, partial(watching, logs / "journal", logs), untidy).ended()
    (first, second, third) = unexpected(noted(logs / "journal"), folder, {"o.csv"})
    assert first == ("open", str(folder / "o.csv.tmp"))
    assert second[0] == "open"
    assert second[1].startswith(str(logs))
    assert third[0] == "socket.connect"


# Several runs for one output.

COMMAND = [sys.executable, "-m", "adaptive_qs"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
PAID = ["synthesize", "t.csv", "--schema", "s.json", "--ledger", "l", "--rho", "0.01"]


@pytest.fixture
def ledger(run):
    done(run("ledger", "create", "--ledger", "l", "--rho", "1"))

    def runs():
        return json.loads(run("ledger", "show", "--ledger", "l", "--json").out)["runs"]

    return runs


@pytest.mark.parametrize("name", ["o.csv", "r.zip", "o.csv.manifest.json"])
@pytest.mark.parametrize("more", [[], ["--force"]])
def test_an_output_that_another_run_is_about_to_write_is_refused(run, ledger, name, more):
    command = [*PAID, "--out", "o.csv", "--release", "r.zip", *more]
    with claimed(name):
        assert f"{name} is being written by another run" in refused(run(*command))
    assert ledger() == []
    done(run(*command))
    assert not list(Path().glob(".*.claim"))


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("name", ["o.csv", "r.zip", "o.csv.manifest.json", "a.csv"])
def test_a_file_that_appears_during_a_run_is_not_replaced(run, ledger, monkeypatch, name, links):
    """Nothing of the run stays beside it, and nothing that was paid for is lost."""
    command = [*PAID, "--out", "o.csv", "--release", "r.zip"]
    if name == "a.csv":
        command = ["answer", *PAID[1:], "--out", name]
    if not links:
        monkeypatch.delattr(os, "link")

    def appear(fault):
        if fault == Fault.CHARGED:
            Path(name).write_text("theirs")

    with monkeypatch.context() as during:
        during.setattr("adaptive_qs.machine._handlers", [appear])
        outcome = run(*command)
    assert (outcome.code, outcome.out) == (1, "")
    assert f"{name} already exists. Use --force" in outcome.err
    assert "--resume continues it and spends nothing twice" in outcome.err
    assert Path(name).read_text() == "theirs"
    own = {"t.csv", "s.json", "w.json", "l", "l.key", "l.mark", "l-wal", "l-shm"}
    left = {path.name for path in Path().iterdir()} - own
    assert left == {name} | ({"r.zip"} if name.startswith("o") else set())
    Path(name).unlink()
    done(run(*command, "--resume"))
    assert [each["state"] for each in ledger()] == ["finished"]


def test_python_replaces_nothing_that_appeared_meanwhile(folder, monkeypatch):
    release = Synthesizer(rho=0.1).fit("t.csv", schema="s.json").release_

    def appear(fault):
        if fault == Fault.SYNCED:
            Path("r.zip").write_text("theirs")

    with monkeypatch.context() as during:
        during.setattr("adaptive_qs.machine._handlers", [appear])
        with pytest.raises(InputError, match="already exists"):
            release.save("r.zip")
        assert Path("r.zip").read_text() == "theirs"
        release.save("r.zip", force=True)
    assert zipfile.is_zipfile("r.zip")


@pytest.mark.slow
def test_of_two_runs_at_the_same_time_one_writes_all_and_one_is_refused(folder):
    """In processes of their own: table, statement and bundle are of one run."""
    create = [*COMMAND, "ledger", "create", "--ledger", "l", "--rho", "1"]
    subprocess.run(create, env=ENVIRONMENT, check=True)
    command = [*COMMAND, *PAID, "--out", "o.csv", "--release", "r.zip"]
    both = [
        subprocess.Popen([*command, "--rho", rho], env=ENVIRONMENT, stderr=subprocess.PIPE)
        for rho in ("0.015", "0.02")
    ]
    said = [process.communicate(timeout=300)[1].decode() for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 2], said
    line = said[codes.index(2)]
    assert "is being written by another run" in line or "already exists" in line
    stated = json.loads(Path("o.csv.manifest.json").read_text())
    with zipfile.ZipFile("r.zip") as bundle:
        assert stated["ledger"] == json.loads(bundle.read("manifest.json"))["ledger"]
    assert stated["sha256"] == hashlib.sha256(Path("o.csv").read_bytes()).hexdigest()


# Shell completion.


@pytest.mark.parametrize(
    ("shell", "script", "sourced"),
    [
        ("bash", ".bash_completions/adaptive-qs.sh", ".bashrc"),
        ("zsh", ".zfunc/_adaptive-qs", ".zshrc"),
        ("fish", ".config/fish/completions/adaptive-qs.fish", None),
    ],
)
def test_completion_is_installed_for_the_shell(run, monkeypatch, shell, script, sourced):
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: (shell, f"/bin/{shell}"))
    done(run("--install-completion"))
    assert "_ADAPTIVE_QS_COMPLETE" in Path(script).read_text()
    assert sourced is None or Path(sourced).exists()


def test_completion_names_commands_and_options(folder):
    def complete(words):
        variables = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = subprocess.run(
            COMMAND,
            env={**ENVIRONMENT, **variables, "_ADAPTIVE_QS_COMPLETE": "complete_bash"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.split()

    assert complete("adaptive-qs syn") == ["synthesize"]
    assert complete("adaptive-qs answer --eps") == ["--epsilon"]


def test_completion_that_cannot_be_installed_is_one_line(run, monkeypatch):
    Path("home").write_text("a file")
    monkeypatch.setenv("HOME", "home")
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    assert "Completion cannot be installed" in refused(run("--install-completion"))
