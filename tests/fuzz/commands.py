"""Command lines from the program's own list of verbs and options, run in process."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from adaptive_qs.cli.entry import commands, main
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.table.files import SampleDataset

from .releases import release_bytes
from .tables import CANARY, CANARY_NUMBER, DOCUMENT, HEADER, ROW

EXIT_CODES = {0, 2, 3, 4}
OUTPUTS = {"--out", "--release", "--report"}
"""Options that name a file which a failed command must not leave behind."""

LEDGER = "l.ledger"
INPUTS = ["t.csv", "bad.csv", "s.json", "w.json", "q.json", "r.zip", LEDGER, "none.csv", ".", ""]
FILES = [*INPUTS, "o.csv", "o.csv.gz", "o.parquet", "o.zip", "o.json", "no/o.csv", "x" * 300]
NUMBERS = ["0", "1", "2", "0.5", "1e-9", "-1", "nan", "inf", "1e308", "5e-324", "9" * 400, "x", "",
           "1,2", "0,1", "1MB", "3GB"]  # fmt: skip
NAME = DOCUMENT["columns"][0]["name"]
WORDS = [NAME, "auto", "marginal", "prefix", "range", "hybrid", "affine", "random", "custom",
         "hdmm", "identity", "product", "uniform", "mbi", "sdv", "schema", "workload"]  # fmt: skip
USUAL = [("--schema", "s.json", 9), ("--epsilon", "1", 9), ("--out", "o.csv", 9),
         ("--ledger", LEDGER, 5), ("--pairs", "1", 10), ("--columns", NAME, 9)]  # fmt: skip
"""Options with the values that they mostly have, and in how many cases of ten."""
_numbers = st.sampled_from(NUMBERS) | st.integers(-3, 60).map(str) | st.floats().map(repr)
_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
_POOLS = {
    "E": _numbers, "D": _numbers, "R": _numbers, "B": _numbers, "N": _numbers, "G": _numbers,
    "P": _numbers, "K": _numbers, "SIZE": _numbers, "FILE": st.sampled_from(FILES),
}  # fmt: skip
"""By what the help calls a value; anything else is a word."""


@dataclass(frozen=True)
class Verb:
    """One command: its words, how many arguments it takes, its flags, and options with values."""

    words: tuple[str, ...]
    arguments: int
    flags: tuple[str, ...]
    options: dict[str, str]


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, (*words, name))


@cache
def verbs() -> tuple[Verb, ...]:
    """Every command of the program."""
    found = []
    for words, command in _commands(commands()):
        options = [p for p in command.params if p.param_type_name == "option"]
        found.append(
            Verb(
                words,
                len(command.params) - len(options),
                tuple(p.opts[0] for p in options if p.is_flag),
                {p.opts[0]: p.metavar or "" for p in options if not p.is_flag},
            )
        )
    return tuple(found)


@st.composite
def argument_lists(draw: st.DrawFn) -> list[str]:
    """A command line, right in most of its parts."""
    verb = draw(st.sampled_from(verbs()))
    words = list(verb.words)
    for number in range(draw(st.sampled_from([verb.arguments] * 5 + [0, verb.arguments + 1]))):
        likely = {"sample": "r.zip", "marginals": "r.zip", "schema": "s.json"}.get(
            verb.words[0], "t.csv"
        )
        usual = "t.csv" if number else likely
        words.append(draw(st.sampled_from([usual] * 30 + INPUTS)))
    for option, value, tenths in USUAL:
        if option in verb.options and draw(st.integers(1, 10)) <= tenths:
            words += [option, value]
    chosen = draw(st.lists(st.sampled_from(sorted(verb.options) or ["--help"]), max_size=2))
    for option in chosen:
        pool = _POOLS.get(verb.options.get(option, ""), st.sampled_from(WORDS))
        words += [f"{option}={draw(pool | _texts)}"]
    flags = [*verb.flags * 5, "--help", "--x"]
    words += draw(st.lists(st.sampled_from(flags), max_size=2))
    return words


def _files() -> dict[str, bytes]:
    day = ROW.replace(",", f",{CANARY_NUMBER}", 1)
    marginals = {"version": 1, "parts": [{"ways": [1]}]}
    queries = {"version": 1, "parts": [{"ways": [1], "queries": "prefix"}]}
    return {
        "t.csv": f"{HEADER}\n{f'{ROW}{chr(10)}' * 40}".encode(),
        "bad.csv": f"{HEADER}\n{ROW}\n{day}{CANARY}\n".encode(),
        "s.json": json.dumps(DOCUMENT).encode(),
        "w.json": json.dumps(marginals).encode(),
        "q.json": json.dumps(queries).encode(),
        "r.zip": release_bytes(),
        LEDGER: _ledger_bytes(),
    }


@cache
def _ledger_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / LEDGER
        assert main(["ledger", "create", "--ledger", str(path), "--epsilon", "3"]) == 0
        return path.read_bytes()


def _values(words: list[str], options: set[str]) -> set[str]:
    """What these options are given."""
    pairs = [*pairwise(words), *(word.split("=", 1) for word in words if "=" in word)]
    return {value for option, value in pairs if option in options and value}


def check_command(words: list[str]) -> None:
    """A documented exit code, no traceback, no cell, and no file but the outputs that it names."""
    before = _files()
    outputs = _values(words, OUTPUTS)
    quick = partial(SynthesisSettings, fit_rows=50)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, content in before.items():
            Path(name).write_bytes(content)
        demo = SampleDataset(Path("t.csv"), Path("s.json"))
        with (
            mock.patch("adaptive_qs.table.files.sample_dataset", return_value=demo),
            mock.patch("adaptive_qs.release.release.SynthesisSettings", quick),
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            code = main(words)
        after = {str(p.relative_to(folder)): p for p in Path(folder).rglob("*") if p.is_file()}
        changed = {name for name, path in after.items() if path.read_bytes() != before.get(name)}
    text = out.getvalue() + err.getvalue()
    assert code in EXIT_CODES, (code, err.getvalue())
    assert "Traceback" not in text
    if "init" not in words:
        assert CANARY not in text
        assert CANARY_NUMBER not in text
    assert before.keys() <= after.keys()
    if "--demo" in words:
        outputs |= {"adult_synthetic.csv", "adult_answers.parquet"}
    ledgers = tuple(_values(words, {"--ledger"}))
    allowed = {name for name in changed - before.keys() if name.startswith(ledgers)}
    allowed |= {LEDGER} & set(ledgers)
    allowed |= (changed - before.keys()) & set(_values(words, {"--anchor"}))
    if code == 0:
        allowed |= {words[2]} if words[:2] == ["schema", "check"] and "--ask" in words else set()
        allowed |= outputs | {n for n in changed - before.keys() if n.startswith(tuple(outputs))}
    assert changed <= allowed, (code, changed, err.getvalue())
    if code:
        lines = err.getvalue().splitlines()
        assert any(line.startswith("error: ") for line in lines) or not words[1:], lines
