"""Commands write what they were asked for, its hidden parts, the ledger, and nothing else.

Every way in which Python opens a file for writing or makes a name is watched, the folder is listed
at each named place, and a folder for temporary files that nothing was made in keeps its time stamp,
whoever would have made it.
"""

import json
import os
import re
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from adaptive_qs.faults import on_reach

from ..faults.children import Child

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
        {"p.parquet", "p.parquet.manifest.json", "p.parquet.NOT-PRIVATE.txt"},
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
        rf"{re.escape(str(folder))}/(?:{known}|\.(?:{known})\.\w{{8}}\.part|\.l\.run-\d\.lock)"
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
            made = {tuple(note[1:]) for note in notes if note[0] == "os.mkdir"}
            assert {mode for _, mode in made} == {0o700}
            ((private, _),) = made
            notes = [note for note in notes if not f"{note[1]}/".startswith(f"{private}/")]
        else:
            assert temporary.stat().st_mtime_ns == before, words
        stamps = {f"{name}.NOT-PRIVATE.txt" for name in TABLES & outputs}
        listed = [note for note in notes if note[0] == "listed"]
        assert not unexpected(listed, folder, there | stamps | LOGS), words
        others = [note for note in notes if note[0] != "listed"]
        assert not unexpected(others, folder, outputs | stamps | {"l", "l.key", "l.mark"}), words
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


def test_the_watch_sees_what_is_written(folder, logs):
    words = ["plan", "--schema", "s.json"]
    Child(words, folder, logs, partial(watching, logs / "journal", logs), untidy).ended()
    (first, second, third) = unexpected(noted(logs / "journal"), folder, {"o.csv"})
    assert first == ("open", str(folder / "o.csv.tmp"))
    assert second[0] == "open"
    assert second[1].startswith(str(logs))
    assert third[0] == "socket.connect"
