"""Small jobs of both verbs, with their inputs, and what they leave when nothing disturbs them."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Row
from adaptive_qs.ledger.files import keyed_hash
from adaptive_qs.ledger.run import RunState
from adaptive_qs.privacy.events import Cost

from .children import Child, Ended, Preparation, noting, small_groups, stopped_clock

INPUTS = ("t.csv", "s.json")
LEDGER = "ledger"
KEPT = {LEDGER, f"{LEDGER}.key", f"{LEDGER}.mark", *INPUTS}
RHO = 0.5
TOTAL = Cost.within(1.25 * RHO)
"""Enough for one run and not for two."""

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["a", "b"], "missing": ["?"]},
        {"name": "age", "type": "integer", "min": 0, "max": 9},
        {"name": "day", "type": "date", "min": "2020-01-01", "max": "2020-01-09"},
        {"name": "member", "type": "boolean"},
    ],
}


@dataclass(frozen=True)
class Job:
    """A command on the small table."""

    verb: str
    options: tuple[str, ...]
    outputs: tuple[str, ...]
    seeded: bool

    @property
    def arguments(self) -> list[str]:
        """The command line."""
        return [
            self.verb, "t.csv", "--schema", "s.json", "--rho", str(RHO), "--ledger", LEDGER,
            *self.options, *(("--insecure-seed", "3") if self.seeded else ()),
        ]  # fmt: skip


_TABLE = ("--out", "o.csv", "--release", "r.zip", "--seed", "5", "--workers", "1")
JOBS = tuple(
    Job(verb, options, outputs, seeded)
    for seeded in (True, False)
    for verb, options, outputs in (
        ("synthesize", _TABLE, ("r.zip", "o.csv")),
        ("answer", ("--out", "o.parquet", "--workers", "1"), ("o.parquet",)),
    )
)


@dataclass
class Scene:
    """A folder in which a job is done."""

    job: Job
    folder: Path
    logs: Path

    def start(self, *preparations: Preparation, resume: bool = False) -> Child:
        """Begin the job, whatever an earlier attempt left, or go on with it."""
        (self.logs / "journal").unlink(missing_ok=True)
        always = [small_groups, partial(noting, self.logs / "journal")]
        if self.job.seeded:
            always.append(stopped_clock)
        arguments = [*self.job.arguments, "--force", *(["--resume"] if resume else [])]
        return Child(arguments, self.folder, self.logs, *always, *preparations)

    def run(self, *preparations: Preparation, resume: bool = False) -> Ended:
        """Do the job, or what is left of it."""
        return self.start(*preparations, resume=resume).ended()

    def noted(self, what: str) -> list[list[str]]:
        """What the last command noted of one kind."""
        journal = self.logs / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [words for kind, *words in (s.split("\t") for s in lines) if kind == what]

    def book(self) -> closing[LedgerBook]:
        """The ledger, whose chain is checked by opening it."""
        return closing(LedgerBook(self.folder / LEDGER))

    def rows(self) -> list[Row]:
        """All entries of the ledger."""
        with self.book() as book:
            return list(book.rows())

    def state(self) -> RunState:
        """The one run of the ledger, and that everything adds up."""
        with self.book() as book:
            book.verify()
            assert book.held.fits(book.limit)
            (run,) = book.runs()
            assert book.held == (run.reserved if run.state == "open" else run.spent)
            return run

    def contents(self) -> dict[str, bytes]:
        """Those files."""
        return {name: (self.folder / name).read_bytes() for name in self.names()}

    def names(self) -> set[str]:
        """All files in the folder but those that were there at first."""
        return {path.name for path in self.folder.iterdir()} - KEPT


@dataclass(frozen=True)
class Undisturbed:
    """What a job leaves, and how it gets there, when nothing disturbs it."""

    rows: list[Row]
    contents: dict[str, bytes]
    faults: list[str]
    seconds: float


@dataclass
class Stage:
    """Makes scenes with the same inputs and, for seeded jobs, the same ledger and key."""

    folder: Path
    _references: dict[Job, Undisturbed] = field(default_factory=dict)
    _scenes: int = 0

    def __post_init__(self) -> None:
        """Write the inputs."""
        source = self.folder / "inputs"
        source.mkdir(parents=True)
        rng = np.random.default_rng(1)
        rows = [
            f"{rng.choice(['a', 'b', '?'])},{rng.integers(10)},2020-01-0{rng.integers(1, 10)},"
            f"{rng.choice(['true', 'false'])}"
            for _ in range(300)
        ]
        (source / "t.csv").write_text("\n".join(["job,age,day,member", *rows]) + "\n")
        (source / "s.json").write_text(json.dumps(SCHEMA))
        LedgerBook.create(source / LEDGER, TOTAL, {"rho": float(TOTAL.rho), "delta": 1e-9}).close()
        keyed_hash(source / LEDGER, [])

    def scene(self, job: Job) -> Scene:
        """A new folder for a job; a job whose noise is not seeded also has to make its key."""
        self._scenes += 1
        folder = self.folder / f"scene-{self._scenes}"
        logs = self.folder / f"logs-{self._scenes}"
        logs.mkdir()
        shutil.copytree(self.folder / "inputs", folder)
        if not job.seeded:
            (folder / f"{LEDGER}.key").unlink()
        return Scene(job, folder, logs)

    def undisturbed(self, job: Job) -> Undisturbed:
        """The job done once without disturbance."""
        if job not in self._references:
            scene = self.scene(job)
            start = time.monotonic()
            ended = scene.run()
            seconds = time.monotonic() - start
            assert ended.code == 0, ended
            assert scene.names() >= set(job.outputs)
            contents = scene.contents()
            faults = [name for (name,) in scene.noted("reached")]
            self._references[job] = Undisturbed(scene.rows(), contents, faults, seconds)
        return self._references[job]
