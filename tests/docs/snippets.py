"""Run the code of a page of documentation as a reader would, from top to bottom in one folder.

    python tests/docs/snippets.py docs/quickstart.md

prints every command of a page with what it really says, to be pasted into the page.

| fence | what is done |
| --- | --- |
| `sh` | run line by line; must succeed |
| `console` | commands after `$ ` are run; all lines shown must come, within the tolerance below |
| `python` | run in one namespace for the page |
| `text` | right after `python`: lines that it must print, as for `console` |
| `json` | a schema or a workload: read by the program's own loader |

Digits depend on the processor: a last bit of a product, which libraries compute in another order,
changes every later draw of a fitted table, as another seed would. So lines are compared without
their numbers and order, and where columns are combined (`age x district`), which ones are the worst
is left to the digits: as many columns have to be named, each of them one that the output names.

A line `...` tells readers that lines were left out. Commands must end with exit code 0, or another
one where an `error:` is shown. A block after a line that ends with a file name in backquotes and a
colon is saved under that name. `<!-- not run: REASON -->` on the line before a fence excuses the
block from being run. Noise and seeds come from a fixed generator, so that a page passes always or
never. Tests fit tables with few rows, which makes them worse but quick.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from adaptive_qs.cli.entry import main
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.privacy.noise import SystemEntropy, Words
from adaptive_qs.strategy.integer import round_matrix
from adaptive_qs.table.tables import TableSet
from adaptive_qs.workload.file import WorkloadFile

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted(page for page in ROOT.glob("*.md") if page.name != "README.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
)
LANGUAGES = {"sh", "console", "python", "text", "json"}
LINKED = ("datasets", "docs")
QUICK_ROWS = 2_000
CHAINED = re.compile(r"(?P<first>.+) (?P<how>&&|\|) (?P<program>adaptive-qs [^|;&$<>*`]+)")
"""The program after another command, which it needs nothing of but its files or what it prints."""
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)*(?:[eE][-+]?\d+)?")


class Snippet(NamedTuple):
    """A fenced block: its language, where it begins, and what is said just before it."""

    line: int
    language: str
    text: str
    saved_as: str | None
    excuse: str | None


class Command(NamedTuple):
    """A command of a `console` block with the lines that are shown below it."""

    text: str
    shown: list[str]


def snippets(markdown: str) -> list[Snippet]:
    """The fenced blocks of a page, in order."""
    found = []
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        before = markdown[: fence.start()]
        spoken = [line for line in before.splitlines() if line.strip()]
        excused = bool(spoken) and spoken[-1].startswith("<!-- not run")
        excuse = re.fullmatch(r"<!-- not run: (.+) -->", spoken.pop()) if excused else None
        name = re.search(r"`([\w.-]+\.\w+)`:$", spoken[-1] if spoken else "")
        line = before.count("\n") + 1
        found.append(Snippet(line, fence[1], fence[2], name and name[1], excuse and excuse[1]))
    return found


def commands(block: str) -> list[Command]:
    """The commands of a `console` block."""
    joined = block.replace("\\\n", " ")
    found: list[Command] = []
    for line in joined.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif line.strip():
            found[-1].shown.append(line)
    return found


COMBINED = re.compile(r"[\w-]+(?: x [\w-]+)+")
"""A combination of columns."""


def shape(line: str) -> str:
    """A line without its numbers, spaces and rules, and names of columns that are combined."""
    line = COMBINED.sub(lambda found: " x ".join("@" for _ in names(found[0])), line)
    return re.sub(r"[─━]+", "─", " ".join(NUMBER.sub("#", line).split()))


def names(text: str) -> list[str]:
    """The columns of all combinations that a text names."""
    return [name for found in COMBINED.findall(text) for name in found.split(" x ")]


def missing_line(shown: list[str], said: str) -> str | None:
    """The first line shown that was not said, or None; their order is not compared.

    Rows of tables that are sorted by noisy numbers change places.
    """
    lines = Counter(shape(line) for line in said.splitlines())
    known = set(names(said))
    for line in shown:
        wanted = shape(line)
        if wanted not in ("", "..."):
            if not lines[wanted] or not known.issuperset(names(line)):
                return line
            lines[wanted] -= 1
    return None


class Reader:
    """Somebody who runs the blocks of one page in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "example"}
        self.printed = ""
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)

    def follow(self, snippet: Snippet, echo: bool = False) -> None:
        """Do what a block says, and check what it shows."""
        if snippet.saved_as:
            (self.folder / snippet.saved_as).write_text(snippet.text)
        if snippet.excuse:
            return
        if snippet.language == "json":
            read_json(snippet.text)
        elif snippet.language == "python" and not snippet.saved_as:
            self.printed = self._captured(lambda: self._execute(snippet))[1]
            if echo:
                print(self.printed)
        elif snippet.language == "text" and not snippet.saved_as:
            assert (lost := missing_line(snippet.text.splitlines(), self.printed)) is None, (
                f"not printed: {lost}\nprinted:\n{self.printed}"
            )
        elif snippet.language == "sh":
            for line in snippet.text.replace("\\\n", " ").splitlines():
                self._run(Command(line, []), echo)
        elif snippet.language == "console":
            for command in commands(snippet.text):
                self._run(command, echo)

    def _execute(self, snippet: Snippet) -> int:
        exec(compile(snippet.text, "example", "exec"), self.names)
        return 0

    def _run(self, command: Command, echo: bool) -> None:
        words = re.sub(r"\s+", " ", command.text.strip())
        code, said = self._done(words, command.text)
        if echo:
            print(f"$ {words}\n{said}[{code}]\n")
        fails = any(line.startswith("error:") for line in command.shown)
        assert (code != 0) == fails, f"exit code {code}: {words}\n{said}"
        lost = missing_line(command.shown, said)
        assert lost is None, f"not said by {words}: {lost}\nsaid:\n{said}"

    def _done(self, words: str, text: str) -> tuple[int, str]:
        if words.startswith("adaptive-qs ") and not re.search(r"[|;&$<>*`]", words):
            return self.program(shlex.split(words)[1:])
        if (chain := CHAINED.fullmatch(words)) is None:
            return self.shell(text)
        code, said = self.shell(chain["first"])
        if code:
            return code, said
        arguments = shlex.split(chain["program"])[1:]
        if chain["how"] == "|":
            return self.program(arguments, said)
        code, more = self.program(arguments)
        return code, said + more

    def program(self, arguments: list[str], given: str = "") -> tuple[int, str]:
        """Exit code of the program, and what it says; ``given`` is what standard input holds."""
        with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode()))):
            return self._captured(lambda: main(arguments))

    def _captured(self, call: Callable[[], int]) -> tuple[int, str]:
        stream = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
        ):
            code = call()
        return code, stream.getvalue()

    def shell(self, text: str) -> tuple[int, str]:
        """Exit code of a shell command, and what it says on stdout and stderr."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@contextlib.contextmanager
def fixed_noise() -> Iterator[None]:
    """The noise and the seeds that the program draws itself come from one generator."""
    source = random.Random(1)

    def words(_: SystemEntropy, count: int) -> Words:
        return np.frombuffer(source.randbytes(8 * count), dtype=np.uint64)

    noise = mock.patch.object(SystemEntropy, "words", words)
    with noise, mock.patch("adaptive_qs.release.release.secrets.randbits", source.getrandbits):
        yield


@contextlib.contextmanager
def quick_tables() -> Iterator[None]:
    """Tables fitted with few rows, and strategies that come again rounded once."""
    quick = partial(SynthesisSettings, fit_rows=QUICK_ROWS)
    known: dict[tuple[Any, ...], Any] = {}

    def rounded(matrix: Any, shape: tuple[int, ...], bits: int) -> Any:
        key = matrix.tobytes(), matrix.shape, shape, bits
        if key not in known:
            known[key] = round_matrix(matrix, shape, bits)
        integers, balanced = known[key]
        return integers.copy(), balanced

    tables = mock.patch("adaptive_qs.release.release.SynthesisSettings", quick)
    with tables, mock.patch("adaptive_qs.strategy.integer.round_matrix", rounded):
        yield


def read_json(text: str) -> None:
    """Read a schema or a workload as the program would; anything else is no example."""
    content = json.loads(text)
    (WorkloadFile if "parts" in content else TableSet).parse(content)


def read_page(page: Path, folder: Path, echo: bool = False) -> None:
    """Follow a page from top to bottom; what fails names page and line."""
    reader = Reader(folder)
    with fixed_noise():
        for snippet in snippets(page.read_text(encoding="utf-8")):
            try:
                reader.follow(snippet, echo)
            except Exception as error:
                place = f"{page.relative_to(ROOT)}, block at line {snippet.line}"
                raise AssertionError(f"{place}: {error}") from error


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        read_page(Path(sys.argv[1]).resolve(), Path(temporary), echo=True)
