"""The sections of the assurance suite: each runs checks of the test suite for longer."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261


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


def noise(scale: Scale) -> dict[str, Any]:
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


def replay(scale: Scale) -> dict[str, Any]:
    """Neighbouring tables with the same noise give the same bytes: `Synthesizer.fit`, `answer`."""
    from adaptive_qs.audit.tables import FORMS
    from tests.audit.pairs import replay_pairs

    found = replay_pairs(scale.pairs, scale.schemas, SEED)
    return {
        "target": f"{scale.pairs} pairs on {scale.schemas} schemas, in every form in turn and "
        "every second one at the ceiling of memory, nothing found",
        "passed": not found.findings and found.pairs >= scale.pairs and "polars" in FORMS,
        "forms": list(FORMS),
        "pairs": found.pairs,
        "schemas": found.schemas,
        "runs": found.runs,
        "draws": found.draws,
        "findings": [str(finding) for finding in found.findings],
    }


def game(scale: Scale) -> dict[str, Any]:
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


def mutants(_: Scale) -> dict[str, Any]:
    """Known privacy bugs, put into the code one by one."""
    from tests.mutants.registry import kill_all

    killed = kill_all()
    return {
        "target": "every mutant is noticed by a check that is silent without it",
        "passed": all(killed.values()),
        "mutants": len(killed),
        "survivors": [name for name, dead in killed.items() if not dead],
    }


def entry_points(_: Scale) -> dict[str, Any]:
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


def recomputed(scale: Scale) -> dict[str, Any]:
    """The charges of runs and of their ledger, added up by code that shares nothing with ours."""
    from tests.audit.paid import recomputed_runs

    with tempfile.TemporaryDirectory() as folder:
        found = recomputed_runs(scale.releases, Path(folder))
    return {
        "target": "every charge stands in its release and in the ledger; costs, hashes and sums "
        "are as recomputed, and within the budget and the total with no tolerance",
        "passed": not found["problems"],
        **found,
    }


def kills(scale: Scale) -> dict[str, Any]:
    """Commands killed at named places and at random moments, then resumed."""
    from tests.faults.kills import run_kills

    with tempfile.TemporaryDirectory() as folder:
        found = run_kills(scale.kills, SEED, Path(folder))
    return {
        "target": f"{scale.kills} kills: nothing spent twice, nothing committed lost, outputs "
        "whole, the total that of an undisturbed run",
        "passed": True,  # run_kills raises at the first violation
        **found,
    }


def reservations(scale: Scale) -> dict[str, Any]:
    """Eight processes on one ledger, some killed."""
    from tests.faults.crowd import reservations as run

    with tempfile.TemporaryDirectory() as folder:
        found = run(8, scale.reservations, scale.worker_kills, Path(folder))
    return {
        "target": "the sum never exceeds the total; at least 100 reservations a second",
        "passed": found["per_second"] >= 100,  # run raises where the sum is wrong
        **found,
    }


def cost(_: Scale) -> dict[str, Any]:
    """What the ledger and exact noise take of `synthesize` on Adult."""
    from tests.faults.cost import cost as measure

    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    return {"target": "less than 20 % of the time", "passed": found["share"] < 0.2, **found}


def workers(_: Scale) -> dict[str, Any]:
    """The same release and table for any number of threads."""
    from adaptive_qs.synthesizer import Synthesizer
    from adaptive_qs.table.files import sample_dataset

    sample = sample_dataset()
    digests: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 2, 8):
            fitted = Synthesizer(epsilon=1.0, insecure_seed=SEED, workers=count).fit(
                sample.data, schema=sample.schema
            )
            path = Path(folder) / "release.zip"
            fitted.save(path, force=True)
            table = fitted.sample(seed=SEED).to_csv().encode()
            digests[count] = hashlib.sha256(path.read_bytes() + table).hexdigest()
    return {
        "target": "identical bytes for 1, 2 and 8 workers",
        "passed": len(set(digests.values())) == 1,
        "sha256": digests,
    }


def fuzz(scale: Scale) -> dict[str, Any]:
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


SECTIONS: dict[str, Callable[[Scale], dict[str, Any]]] = {
    section.__name__: section
    for section in (
        fuzz, kills, game, replay, entry_points, recomputed, noise, mutants, reservations, cost,
        workers,
    )
}  # fmt: skip
