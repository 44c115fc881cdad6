"""Commands on machines that lack something: a home folder, a working folder, threads, locales."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import adaptive_qs
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.machine import ThreadPool
from adaptive_qs.table.schema import Schema

from .conftest import refused

ROOT = Path(__file__).parents[2]
PLAIN = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
TABLE = "a,b\n" + "1,x\n2,y\n3,x\n" * 30
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "integer", "min": 1, "max": 3},
        {"name": "b", "type": "categorical", "values": ["x", "y"]},
    ],
}
READ = ["t.csv", "--schema", "s.json", "--epsilon", "1"]
VERBS = {
    "synthesize": ["synthesize", *READ, "--release", "r.zip"],
    "answer": ["answer", *READ, "--ways", "1"],
}


@pytest.fixture
def folder(tmp_path):
    """A folder with a small table and its schema."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "t.csv").write_text(TABLE)
    (place / "s.json").write_text(json.dumps(SCHEMA))
    return place


def started(folder, *words, python=(), **variables):
    """Run a command, or Python with "-c", in a process of its own."""
    command = words if words[0] == "-c" else ("-m", "adaptive_qs", *words)
    return subprocess.run(
        [sys.executable, *python, *command], cwd=folder, env={**PLAIN, **variables},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


# Compiled code, where neither the package nor the home folder can be written.


@pytest.fixture
def homeless(tmp_path):
    """Variables of a process without a home, whose copy of the package cannot hold code."""
    package = tmp_path / "installed" / "adaptive_qs"
    shutil.copytree(ROOT / "adaptive_qs", package, ignore=shutil.ignore_patterns("__pycache__"))
    for place in (package, *filter(Path.is_dir, list(package.rglob("*")))):
        (place / "__pycache__").write_text("a file, which stops even the owner")
    spool = tmp_path / "spool"
    spool.mkdir()
    nowhere = str(tmp_path / "installed" / "adaptive_qs" / "__init__.py" / "home")
    return {"PYTHONPATH": str(package.parent), "HOME": nowhere, "XDG_CACHE_HOME": nowhere,
            "TMPDIR": str(spool)}  # fmt: skip


@pytest.mark.slow
def test_without_a_home_code_is_compiled_anew_and_a_line_says_so(homeless, folder):
    said = started(folder, *VERBS["answer"], "--out", "o.csv", **homeless)
    assert said.returncode == 0, said.stderr
    (line,) = [line for line in said.stderr.splitlines() if "compile" in line]
    assert line.endswith("NUMBA_CACHE_DIR names another private folder")
    assert list(Path(homeless["TMPDIR"]).iterdir()) == []


KERNEL = """\
import resource, signal, sys
from adaptive_qs.machine import njit

@njit(cache=True)
def doubled(x):
    return 2 * x

if sys.argv[1:] == ["full"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
print(doubled(21))
"""


@pytest.mark.slow
def test_code_that_was_damaged_or_cannot_be_kept_is_compiled_anew(folder):
    (folder / "kernel.py").write_text(KERNEL)
    code = "import runpy, sys; sys.path.insert(0, '.'); import kernel"
    full = "import sys; sys.path.insert(0, '.'); sys.argv = ['k', 'full']; import kernel"
    for script in (full, code):
        assert started(folder, "-c", script).stdout == "42\n"
    (index,) = (folder / "__pycache__").glob("*.nbi")
    index.write_bytes(b"")
    assert started(folder, "-c", code).stdout == "42\n"
    assert index.stat().st_size > 0


# A working folder that is gone, names that cannot be written, threads that do not start.


@pytest.mark.parametrize(
    "words", [["synthesize", "--demo"], [*VERBS["answer"], "--out", "o.csv"]], ids=str
)
def test_a_working_folder_that_is_gone_is_one_line(tmp_path, words):
    gone = "import os, sys; os.mkdir('x'); os.chdir('x'); os.rmdir('../x')\n"
    gone += f"from adaptive_qs.cli import main; sys.exit(main({words!r}))"
    said = started(tmp_path, "-c", gone)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "error: the working folder is gone: change to a folder that exists\n"


ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


@pytest.mark.slow
@pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8", reason="this process cannot write such names either"
)
def test_file_names_that_the_locale_cannot_write_are_kept_as_they_are(folder):
    (folder / "é.csv").write_text(TABLE)
    words = [
        word.replace("t.csv", "é.csv").replace("r.zip", "é.zip") for word in VERBS["synthesize"]
    ]
    said = started(folder, *words, "--out", "ü.csv", **ASCII)
    assert said.returncode == 0, said.stderr
    assert {"ü.csv", "é.zip"} < {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["\ud800.csv", "a\0b.csv"])
def test_names_that_no_file_can_have_are_refused_in_one_line(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    schema = Schema.load("s.json")
    fitted = adaptive_qs.Synthesizer(epsilon=1).fit("t.csv", schema=schema)
    answers = adaptive_qs.answer("t.csv", schema, epsilon=1)
    attempts = [
        lambda: fitted.save(name.replace("csv", "zip")),
        lambda: answers.write(name),
        lambda: adaptive_qs.Synthesizer(epsilon=1).fit(name, schema=schema),
        lambda: adaptive_qs.answer(name, schema, epsilon=1),
        lambda: Schema.load(name),
        lambda: adaptive_qs.Release.load(name),
    ]
    for attempt in attempts:
        with pytest.raises(InputError) as caught:
            attempt()
        assert "\n" not in str(caught.value)


@pytest.fixture
def no_threads(monkeypatch):
    """No thread starts, as under a limit on memory or processes."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("verb", VERBS)
def test_threads_that_do_not_start_are_one_line(folder, monkeypatch, run, no_threads, verb):
    monkeypatch.chdir(folder)
    line = refused(run(*VERBS[verb], "--out", "o.csv"), code=4)
    assert "the system starts no further thread" in line
    with pytest.raises(ResourceExceeded, match="ulimit"):
        adaptive_qs.Synthesizer(epsilon=1).fit("t.csv", schema=Schema.load("s.json"))


def test_other_errors_of_a_pool_keep_their_words():
    pool = ThreadPool(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(print)


def test_a_lack_of_memory_is_no_fault_of_the_table(folder, monkeypatch, run):
    def none_left(*_, **__):
        raise MemoryError("malloc of size 12345 failed")

    monkeypatch.chdir(folder)
    monkeypatch.setattr("pyarrow.csv.read_csv", none_left)
    line = refused(run(*VERBS["answer"], "--out", "o.csv"), code=4)
    assert "out of memory" in line
    assert "12345" not in line


# Python without asserts.


@pytest.mark.slow
def test_commands_work_without_asserts(folder):
    calls = [[*words, "--out", f"{verb}.csv"] for verb, words in VERBS.items()]
    calls.append(["sample", "r.zip", "--out", "sample.csv"])
    code = f"from adaptive_qs.cli import main; print(__debug__, *map(main, {calls!r}), sep=',')"
    said = started(folder, "-c", code, python=("-O",))
    assert said.stdout.splitlines()[-1] == "False,0,0,0", said.stderr
    assert {"synthesize.csv", "answer.csv", "sample.csv"} < set(os.listdir(folder))
