"""The assurance suite in its long form: every figure of the privacy promise, measured.

Each section runs in a process of its own and says what it found beside what it should. A section
that was measured is kept in ``--parts`` with its scale and its commit, so a run that was stopped
goes on; it is measured again where either differs or where code differed from its commit.
``results/assurance.json`` holds all of them.

    python -m scripts.speed.assurance                    # everything; 1.5 hours on two cores
    python -m scripts.speed.assurance --quick            # the same code in minutes, written nowhere
    python -m scripts.speed.assurance --section kills    # one of them
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.results import CODE, git_commit, write_atomically, write_results

ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261
ALONE = ("reservations", "cost")
"""Sections that time something: nothing else runs beside them."""

STARTED_FROM = git_commit((*CODE, "tests"))
"""The commit when the script began; the sections are code of the tests, too."""

Commit = Mapping[str, Any] | None
"""Hash, and whether code differs from it; None outside a repository."""
Section = Callable[["Scale", Path], dict[str, Any]]
"""One part of the promise: its target, whether it passed, and what was found."""


@dataclass(frozen=True)
class Scale:
    """How long the long form is.

    Attributes:
        draws: for each path of the noise.
        pairs, schemas: of the replay audit.
        game_runs: of the neighbour game, in each world.
        releases: of tables, recomputed, and as many batches of answers.
        kills: of whole commands.
        reservations, worker_kills: by eight processes.
        fuzz_seconds: of all properties together.
    """

    draws: int = 200_000
    pairs: int = 500
    schemas: int = 10
    game_runs: int = 5_000
    releases: int = 100
    kills: int = 500
    reservations: int = 10_000
    worker_kills: int = 60
    fuzz_seconds: float = 1_800.0


QUICK = Scale(60_000, 40, 4, 400, 6, 20, 400, 4, 20.0)


def noise(scale: Scale, _: Path) -> dict[str, Any]:
    """Every way through which noise reaches a release."""
    from tests.privacy.noise_paths import paths
    from tests.privacy.recorded_noise import faults

    found: dict[str, Any] = {}
    worst: list[str] = []
    for name, draw in paths().items():
        figures = draw(scale.draws).figures()
        found[name] = figures
        worst += [f"{name}: {fault}" for fault in faults(figures)]
    target = "standard deviation within 1 %, exact law, no correlation"
    return {"target": target, "passed": not worst, "faults": worst, "paths": found}


def replay(scale: Scale, _: Path) -> dict[str, Any]:
    """Neighbouring tables with the same noise give the same bytes: `Synthesizer.fit`, `answer`."""
    return _replayed(scale.pairs, scale.schemas, persons=False)


def persons(scale: Scale, _: Path) -> dict[str, Any]:
    """The same where neighbours differ by a person with all rows, added or replaced."""
    return _replayed(scale.pairs // 5, scale.schemas // 2, persons=True)


def _replayed(pairs: int, schemas: int, persons: bool) -> dict[str, Any]:
    from adaptive_qs.audit.tables import FORMS
    from tests.audit.pairs import replay_pairs

    found = replay_pairs(pairs, schemas, SEED, persons=persons)
    return {
        "target": f"{pairs} pairs on {schemas} schemas, in every form in turn and "
        "every second one at the ceiling of memory, nothing found",
        "passed": not found.findings and found.pairs >= pairs and "polars" in FORMS,
        "forms": list(FORMS),
        "pairs": found.pairs,
        "schemas": found.schemas,
        "runs": found.runs,
        "draws": found.draws,
        "findings": [str(finding) for finding in found.findings],
    }


def game(scale: Scale, _: Path) -> dict[str, Any]:
    """Guess the table from the release, at mu = 3."""
    from tests.audit.game import MU, batch_game, loop_game

    batch, loop = batch_game(scale.game_runs, SEED), loop_game(scale.game_runs, SEED)
    return {
        "target": "99.9 % lower bound of mu at most 3; of batches, whose noise is all Gaussian, "
        "at least 2, to show that the game could have found more",
        "passed": batch.mu <= MU and loop.mu <= MU and batch.mu >= 2,
        "runs in each world": scale.game_runs,
        "batch": asdict(batch),
        "adaptive loop": asdict(loop),
    }


def curves(scale: Scale, _: Path) -> dict[str, Any]:
    """Trade-off curves of the game for every kind of release, at three budgets."""
    from tests.audit.curves import audit_curves

    found = audit_curves(max(8, scale.game_runs // 125), scale.draws // 2, 20, SEED)
    return {
        "target": "no error rates below the claimed curve at 99.9 % for all games together; the "
        "worst of 20 random pairs has at least 0.9 of the claimed mu; noise along what a unit "
        "changes is not narrower than charged",
        "passed": all(each["passed"] for each in found.values()),
        "games": found,
    }


def one_run(*_: object) -> dict[str, Any]:
    """Coins of 1,000 canary rows in the shipped table, guessed from one release."""
    from tests.audit.one_run import WEAK, one_run, weaker_noise

    honest = {f"epsilon {epsilon:g}": one_run(epsilon, SEED) for epsilon in (1.0, 3.0, 10.0)}
    with weaker_noise():
        weak = one_run(3.0, SEED)
    return {
        "target": "99.9 % lower bound of epsilon at most what is stated; above it where noise is "
        f"{WEAK} times too small",
        "passed": not any(verdict.refuted for verdict in honest.values()) and weak.refuted,
        "runs": {name: asdict(verdict) for name, verdict in honest.items()},
        f"noise {WEAK} times too small": asdict(weak),
    }


def accountants(_: Scale, folder: Path) -> dict[str, Any]:
    """The stated epsilon of every kind of release, recomputed by dp_accounting."""
    from tests.audit.accountants import recompute_kinds, recompute_sample

    found = recompute_kinds(SEED) | recompute_sample((0.1, 0.3, 1.0, 3.0, 10.0, 10.0), folder)
    return {
        "target": "a lower bound of the recomputed epsilon is at most the stated one, and both are "
        "within 1 %",
        "passed": all(each["passed"] for each in found.values()),
        "releases": found,
    }


def mutants(*_: object) -> dict[str, Any]:
    """Known privacy bugs, put into the code one by one."""
    from tests.mutants.registry import kill_all

    killed = kill_all()
    return {
        "target": "every mutant is noticed by a check that is silent without it",
        "passed": all(killed.values()),
        "mutants": len(killed),
        "survivors": [name for name, dead in killed.items() if not dead],
    }


def entry_points(*_: object) -> dict[str, Any]:
    """What `fit`, `answer` and the commands hand over: entropy, budgets, ceilings, tables.

    With and without a ledger, fresh and resumed, on files and frames of every kind.
    """
    from tests.mutants.entries import ENTRIES
    from tests.mutants.entry_checks import CHECKS

    found = {check.__name__: check() for check in CHECKS}
    return {
        "target": "every check finds nothing",
        "passed": not any(found.values()),
        "entry points": list(ENTRIES),
        "checks": list(found),
        "faults": {name: faults for name, faults in found.items() if faults},
    }


def recomputed(scale: Scale, folder: Path) -> dict[str, Any]:
    """The charges of runs and of their ledger, added up by code that shares nothing with ours."""
    from tests.audit.paid import recomputed_runs

    found = recomputed_runs(scale.releases, folder)
    return {
        "target": "every charge stands in its release and in the ledger; costs, hashes and sums "
        "are as recomputed, and within the budget and the total with no tolerance",
        "passed": not found["problems"],
        **found,
    }


def kills(scale: Scale, folder: Path) -> dict[str, Any]:
    """Commands killed at named places and at random moments, then resumed."""
    from tests.faults.kills import run_kills

    found = run_kills(scale.kills, SEED, folder)
    return {
        "target": f"{scale.kills} kills: nothing spent twice, nothing committed lost, outputs "
        "whole, the total that of an undisturbed run",
        "passed": True,  # run_kills raises at the first violation
        **found,
    }


def reservations(scale: Scale, folder: Path) -> dict[str, Any]:
    """Eight processes on one ledger, some killed."""
    from tests.faults.crowd import reservations as run

    found = run(8, scale.reservations, scale.worker_kills, folder)
    return {
        "target": "the sum never exceeds the total; at least 100 reservations a second",
        "passed": found["per_second"] >= 100,  # run raises where the sum is wrong
        **found,
    }


def cost(_: Scale, folder: Path) -> dict[str, Any]:
    """What the ledger and exact noise take of `synthesize` on Adult."""
    from tests.faults.cost import cost as measure

    found = measure(folder)
    return {"target": "less than 20 % of the time", "passed": found["share"] < 0.2, **found}


def workers(_: Scale, folder: Path) -> dict[str, Any]:
    """The same release and table for any number of threads."""
    from adaptive_qs.synthesizer import Synthesizer
    from adaptive_qs.table.files import sample_dataset

    sample = sample_dataset()
    digests: dict[int, str] = {}
    for count in (1, 2, 8):
        synthesizer = Synthesizer(epsilon=1.0, insecure_seed=SEED, workers=count)
        fitted = synthesizer.fit(sample.data, schema=sample.schema)
        path = folder / "release.zip"
        fitted.save(path, force=True)
        table = fitted.sample(seed=SEED).to_csv().encode()
        digests[count] = hashlib.sha256(path.read_bytes() + table).hexdigest()
    return {
        "target": "identical bytes for 1, 2 and 8 workers",
        "passed": len(set(digests.values())) == 1,
        "sha256": digests,
    }


def fuzz(scale: Scale, _: Path) -> dict[str, Any]:
    """Tables, schemas, workloads, releases and command lines that nobody meant."""
    from tests.fuzz.long import run

    failures: list[str] = []
    examples = run(scale.fuzz_seconds, SEED, failures)
    idle = [name for name, count in examples.items() if count == 0 and name != "failures"]
    return {
        "target": f"{scale.fuzz_seconds / 60:g} minutes without a failure, examples of every "
        "property",
        "passed": not failures and not idle,
        "examples": examples,
        "without examples": idle,
        "failures": [text.partition("\nExplanation:")[0] for text in failures],  # it names paths
    }


MOST_MB, MOST_SECONDS = 1024, 20.0
"""Of one small input under ``--max-memory 1GB``: memory of all its processes, processor time."""


def small_inputs(_: Scale, folder: Path) -> dict[str, Any]:
    """Files of at most a megabyte that stand for much, given to `synthesize --max-memory 1GB`."""
    from tests.cli.small_inputs import write_all

    inputs, found = write_all(folder), {}
    for name, arguments in inputs.items():
        command = ["synthesize", *arguments, "--epsilon", "1", "--out", str(folder / "o.csv")]
        found[name] = _watched([*command, "--force", "--max-memory", "1GB"])
    return {
        "target": f"at most {MOST_MB:,} MB for all processes together and {MOST_SECONDS:g} "
        "processor seconds; a result or one line",
        "passed": all(
            each["peak_mb"] <= MOST_MB
            and each["processor_seconds"] <= MOST_SECONDS
            and each["exit_code"] in (0, 2, 4)
            for each in found.values()
        ),
        "inputs": found,
    }


def _watched(command: Sequence[str]) -> dict[str, Any]:
    """Run a command; return its exit code, peak memory (MB) of all its processes and time."""
    import psutil

    process = psutil.Popen(
        [sys.executable, "-m", "adaptive_qs", *command], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    peak, seconds, began = 0, 0.0, time.perf_counter()
    while process.poll() is None and time.perf_counter() - began < 20 * MOST_SECONDS:
        with suppress(psutil.Error):
            every = [process, *process.children(recursive=True)]
            peak = max(peak, sum(each.memory_info().rss for each in every))
            seconds = sum(sum(each.cpu_times()[:2]) for each in every)
        time.sleep(0.02)
    with suppress(psutil.NoSuchProcess):
        process.kill()
    line = process.communicate()[1].strip().splitlines()[-1:]
    return {
        "exit_code": process.returncode,
        "peak_mb": round(peak / 2**20),
        "processor_seconds": round(seconds, 1),
        "line": line[0].partition(": ")[2].rpartition("/")[2] if line else None,
    }


SECTIONS: dict[str, Section] = {
    section.__name__: section
    for section in (
        fuzz, kills, game, curves, one_run, accountants, replay, persons, entry_points, recomputed,
        noise, mutants, reservations, cost, workers,
        small_inputs,
    )
}  # fmt: skip


def measured(section: Section, scale: Scale) -> dict[str, Any]:
    """One section, with its scale, what it took and the code that it ran on.

    A section that raises has failed, with the error instead of figures.
    """
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = section(scale, Path(folder))
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
        traceback.print_exc()
        found = failed(f"{type(error).__name__}: {error}")
    return {
        **found,
        "seconds": round(time.perf_counter() - began, 1),
        "scale": asdict(scale),
        "commit": STARTED_FROM,
    }


def failed(error: str) -> dict[str, Any]:
    """What stands for a section that did not come to its end."""
    return {"passed": False, "error": error}


@dataclass(frozen=True)
class Parts:
    """Sections that were measured, each in a file.

    Attributes:
        folder: of the files.
        scale: asked for now.
        commit: of the code now.
        accept_older: use sections of other commits, too.
    """

    folder: Path
    scale: Scale
    commit: Commit
    accept_older: bool = False

    def file(self, name: str) -> Path:
        """Where a section is kept."""
        return self.folder / f"{name}.json"

    def kept(self, name: str) -> dict[str, Any] | None:
        """A section that need not be measured again; None if it must be.

        A section is used for its own scale only, and never where it ended in an error or where
        code differed from the commit that it names.
        """
        path = self.file(name)
        found = json.loads(path.read_text()) if path.exists() else {}
        if found.get("scale") != asdict(self.scale) or "error" in found:
            return None
        if not _clean(found["commit"]):
            return None
        same = _clean(self.commit) and found["commit"]["hash"] == self.commit["hash"]
        return found if same or self.accept_older else None

    def section(self, name: str, measure: Callable[[str, Path], int]) -> dict[str, Any]:
        """A section, measured unless it is kept.

        Args:
            name: of the section.
            measure: writes the section of this name to this file, and returns an exit code.

        Returns:
            What was found; "other_commit" says whether its commit is not that of the code now.
        """
        found = self.kept(name)
        if found is None:
            fresh = self.folder / f"{name}.new"
            fresh.unlink(missing_ok=True)
            code = measure(name, fresh)
            if fresh.exists():
                fresh.replace(self.file(name))
                found = json.loads(self.file(name).read_text())
            else:
                found = failed(f"its process ended with code {code} and no figures")
                found |= {"scale": asdict(self.scale), "commit": self.commit}
        return {**found, "other_commit": found["commit"] != self.commit}

    def sections(
        self, names: Iterable[str], jobs: int, measure: Callable[[str, Path], int]
    ) -> dict[str, dict[str, Any]]:
        """All of these sections, told as they end; those that time something run alone."""

        def told(name: str) -> dict[str, Any]:
            found = self.section(name, measure)
            print(summary(name, found), flush=True)
            return found

        together = [name for name in names if name not in ALONE]
        with ThreadPoolExecutor(jobs) as pool:
            found = dict(zip(together, pool.map(told, together)))
        return found | {name: told(name) for name in names if name in ALONE}


def _clean(commit: Commit) -> bool:
    return commit is not None and not commit["dirty"]


def summary(name: str, found: Mapping[str, Any]) -> str:
    """One line about a section."""
    words = "passed" if found["passed"] else f"FAILED {found.get('error', '')}".rstrip()
    commit = found["commit"] or {"hash": "unknown"}
    other = f", measured on commit {commit['hash'][:12]}" if found["other_commit"] else ""
    return f"{name}: {words} ({found.get('seconds', 0):g} s{other})"


def main() -> int:
    """Run what the command line asks for; 0 where all of it passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    parser.add_argument("--section", choices=SECTIONS, help="only this one, printed")
    parser.add_argument("--out", type=Path, help="where --section writes instead")
    parser.add_argument("--parts", type=Path, help="folder of measured sections, to go on from")
    parser.add_argument(
        "--accept-older", action="store_true", help="go on from parts of other commits, too"
    )
    parser.add_argument("--jobs", type=int, default=2, help="sections at once")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else Scale()
    if arguments.section:
        found = measured(SECTIONS[arguments.section], scale)
        text = json.dumps(found, indent=2, default=str) + "\n"
        if arguments.out:
            write_atomically(arguments.out, text)
        else:
            print(text, end="")
        return 0 if found["passed"] else 1

    def measure(name: str, out: Path) -> int:
        command = [sys.executable, "-m", "scripts.speed.assurance", "--section", name]
        quick = ["--quick"] if arguments.quick else []
        return subprocess.run([*command, "--out", str(out.resolve()), *quick], cwd=ROOT).returncode

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.parts or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        parts = Parts(folder, scale, STARTED_FROM, arguments.accept_older)
        found = parts.sections(SECTIONS, arguments.jobs, measure)
    if not arguments.quick:
        path = write_results("assurance", found, asdict(scale), [SEED])
        print(path.relative_to(ROOT))
    return 0 if all(section["passed"] for section in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
