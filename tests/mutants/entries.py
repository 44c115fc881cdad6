"""Every way in which a caller spends a budget, and what it really hands to the mechanisms.

The entry points run as they are. All that is replaced is the class of the mechanisms in the two
modules that make them: what is made in its place records, replays or stops, and keeps the ledger
and the source of entropy that it was given.
"""

import contextlib
import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from adaptive_qs.answering.api import answer
from adaptive_qs.audit.replay import Recorder, Replayer
from adaptive_qs.cli.entry import main
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.files import key_path, mark_path
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent
from adaptive_qs.privacy.mechanisms import PrimitiveCall
from adaptive_qs.privacy.noise import EntropySource
from adaptive_qs.synthesizer import Synthesizer

RHO = 0.25
"""Of every run, unless it is said otherwise: a number that floats hold exactly."""

DECLARED = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["x", "y", "z"], "catch_all": "other"},
        {"name": "b", "type": "integer", "min": 0, "max": 9, "outside": "clip", "missing": ["?"]},
        {"name": "c", "type": "boolean"},
    ],
}
LEARNT = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "private_values": 3, "catch_all": "other"},
        {"name": "b", "type": "integer", "min": 0, "private_bins": 4, "missing": ["?"]},
        {"name": "c", "type": "boolean"},
    ],
}
SCHEMAS = {"declared": DECLARED, "learnt": LEARNT}


def rows(count: int) -> pd.DataFrame:
    """A table of both schemas."""
    k = np.arange(count)
    texts = np.array(["x", "x", "y", "z"], dtype=object)
    return pd.DataFrame({"a": texts[k % 4], "b": k * k % 7, "c": k % 3 == 0})


@dataclass
class Watched:
    """What one run did.

    Attributes:
        handed: the ledger and the source of entropy of all mechanisms that it made.
        calls: every draw, with its private inputs.
        files: every file that it wrote, by name.
        error: what ended it; of a command, what it said.
    """

    handed: list[tuple[Any, EntropySource]] = field(default_factory=list)
    calls: list[PrimitiveCall] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def events(self) -> list[Event]:
        """What was asked for, in order."""
        return [call.event for call in self.calls]

    @property
    def course(self) -> list[tuple[Any, ...]]:
        """All of it but the private inputs."""
        return [
            (c.event, c.score_sensitivity, c.inputs.shape * (not c.values), _plain(c.output))
            for c in self.calls
        ]

    @property
    def noise(self) -> np.ndarray:
        """What was added to counts, one after the other."""
        gaussian = [c for c in self.calls if isinstance(c.event, GaussianEvent)]
        return np.concatenate([np.ravel(c.output - c.inputs) for c in gaussian] or [np.zeros(0)])

    @property
    def manifest(self) -> dict[str, Any]:
        """The statement of the release, as a program reads it."""
        (content,) = [b for n, b in self.files.items() if n.endswith("manifest.json")]
        return json.loads(content)


class Interrupted(Exception):
    """Stands for a crash."""


class CommandFailed(Exception):
    """A command ended with an error; ``args`` are its exit code and what it said."""


def _fit(source: Any, schema: Any, folder: Path, ways: Any, options: dict[str, Any]) -> None:
    model = Synthesizer(workload=ways, workers=1, **options)
    model.fit(source, schema=schema)
    model.save(folder / "r.zip")


def _answer(source: Any, schema: Any, folder: Path, ways: Any, options: dict[str, Any]) -> None:
    answer(source, schema, ways, workers=1, **options).write(folder / "answers.csv")


def _command(
    verb: str, source: Any, schema: Any, folder: Path, ways: Any, options: dict[str, Any]
) -> None:
    path = source
    if not isinstance(source, Path):
        path = folder / "private.csv"
        source.to_csv(path, index=False, na_rep="?")
    (folder / "private.json").write_text(json.dumps(schema))
    arguments = [verb, path, "--schema", folder / "private.json"]
    if isinstance(ways, dict):
        (folder / "private.workload").write_text(json.dumps(ways))
        arguments += ["--workload", folder / "private.workload"]
    else:
        arguments += ["--ways", ",".join(map(str, ways)) if isinstance(ways, list) else ways]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        arguments += (
            [option] if value is True else [] if value in (None, False) else [option, value]
        )
    output = {"synthesize": ["--release", folder / "r.zip", "--workers", 1, "--seed", 8]}
    arguments += output.get(verb, ["--out", folder / "answers.csv", "--workers", 1])
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([str(argument) for argument in [*arguments, "--force"]])
    if code:
        raise CommandFailed(code, said.getvalue())


ENTRIES: dict[str, Callable[..., None]] = {
    "Synthesizer.fit": _fit,
    "answer": _answer,
    "synthesize": lambda *given: _command("synthesize", *given),
    "the command answer": lambda *given: _command("answer", *given),
}
"""By name: spends a budget on a table, and writes everything there is into a folder."""
SYNTHESIS = ("Synthesizer.fit", "synthesize")


def watch(
    entry: str,
    source: Any,
    folder: Path,
    schema: Any = DECLARED,
    ways: Any = 2,
    recorded: Sequence[PrimitiveCall] | None = None,
    stop_after: int | None = None,
    **options: Any,
) -> Watched:
    """Run an entry point.

    Args:
        entry: its name.
        source: the private table.
        folder: where it writes; a new one.
        schema: as parsed JSON.
        ways: the workload: numbers of attributes, or the content of a workload file.
        recorded: draws whose outputs are handed out again.
        stop_after: draws after which it crashes.
        options: by the names of the arguments in Python.
    """
    folder.mkdir(parents=True)
    seen = Watched()
    outputs = iter(recorded or ())

    def make(ledger: Any, entropy: EntropySource) -> Recorder:
        seen.handed.append((ledger, entropy))
        made = Recorder(ledger, entropy)
        if recorded is not None:
            made = Replayer(ledger, entropy, outputs)  # type: ignore[arg-type]
        made._observer = observe
        return made

    def observe(call: PrimitiveCall) -> None:
        seen.calls.append(call)
        if len(seen.calls) == stop_after:
            raise Interrupted

    with mock.patch("adaptive_qs.run.states.Mechanisms", make), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ENTRIES[entry](source, schema, folder, ways, {"rho": RHO, **options})
        except Exception as error:  # noqa: BLE001  (a finding, or what a check is about)
            seen.error = error
    for path in sorted(folder.iterdir()):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                seen.files |= {name: archive.read(name) for name in archive.namelist()}
        elif not path.name.startswith("private."):
            seen.files[path.name] = path.read_bytes()
    return seen


def new_ledger(folder: Path, rho: float = RHO, discovery: float = 1e-9) -> Path:
    """A ledger for one run in a new folder."""
    folder.mkdir(parents=True)
    path = folder / "ledger"
    LedgerBook.create(path, Cost.within(rho, discovery), {"rho": rho}).close()
    return path


def copied(ledger: Path, folder: Path) -> Path:
    """The same ledger at another place, with all that belongs to it."""
    folder.mkdir(parents=True)
    for path in (ledger, mark_path(ledger), key_path(ledger)):
        if path.exists():
            shutil.copy(path, folder / path.name)
    return folder / ledger.name


@contextlib.contextmanager
def opened(ledger: Path) -> Iterator[LedgerBook]:
    """A ledger to look at."""
    with contextlib.closing(LedgerBook(ledger)) as book:
        yield book


def _plain(output: Any) -> Any:
    return output.tolist() if isinstance(output, np.ndarray) else output
