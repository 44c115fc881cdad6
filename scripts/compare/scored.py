"""Score synthetic tables with evaluators of others: SDNist, SDMetrics and Anonymeter.

    python -m scripts.compare.scored --data FOLDER --environments FOLDER --excerpts FOLDER

The environments come from ``python -m scripts.compare.peers.install FOLDER``; the excerpts are the
folder of the NIST Diverse Communities Data Excerpts as SDNist reads it. Cases:

- SDNist on national2019: 24 features, the schema with public rules, δ = 1e-5.
- SDMetrics on Adult (the shipped schema) and on the raw table creditcard (the proposal of ``schema
  init`` as it is), δ = 1e-9; and one half of the true rows scored against the other.
- Anonymeter on Adult: 80 % of the rows are used and 20 % are controls, and again with as many of
  the used rows as there are controls.

Writes results/scored.*.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from scripts.results import RESULTS, run_program, with_earlier, write_results

EVALUATORS = Path(__file__).parent / "evaluators"
DATASETS = RESULTS.parent / "datasets"
DELTA, NIST_DELTA = 1e-9, 1e-5
ATTACKS = 1_000
"""Guesses of each attack of Anonymeter."""


class Case:
    """A true table and the file of its schema, in a folder where files of the case go."""

    def __init__(self, folder: Path, frame: pd.DataFrame, schema: Path, delta: float) -> None:
        self.folder, self.frame, self.schema, self.delta = folder, frame, schema, delta
        self.private = self.write("private", frame)

    def write(self, name: str, frame: pd.DataFrame) -> str:
        """Write rows to a file of the folder; return its path."""
        path = self.folder / f"{name}.csv"
        frame.to_csv(path, index=False)
        return str(path)

    @property
    def numbers(self) -> list[str]:
        """Names of the columns that are numbers."""
        columns = Schema.load(self.schema).columns
        found = [c.name for c in columns if c.type in ("integer", "numeric")]
        return [name for name in found if name in self.frame]

    def synthesize(self, epsilon: float, seed: int, private: str) -> str:
        """Make a table of a file by the command, with noise of a seed; return its path."""
        made = self.folder / "synthetic.csv"
        run_program(
            "synthesize", private, "--schema", self.schema, "--unreviewed-schema", "--epsilon",
            epsilon, "--delta", self.delta, "--insecure-seed", seed, "--seed", seed, "--out", made,
            "--force",
        )  # fmt: skip
        return str(made)

    def halves(self, seed: int) -> tuple[str, str]:
        """Write two halves of the true rows; return their paths."""
        mixed = self.frame.sample(frac=1.0, random_state=seed)
        half = len(mixed) // 2
        return self.write("half", mixed[:half]), self.write("other", mixed[half:])


def run_evaluator(name: str, job: Mapping[str, Any], environments: Path) -> dict[str, Any]:
    """Return what an evaluator says of a job, run in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        python = environments / name / "bin" / "python"
        command = [str(python), str(EVALUATORS / f"{name}_scores.py"), str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise typer.BadParameter(f"{name} failed: {ended.stderr.strip()[-500:]}")
    return dict(json.loads(ended.stdout.strip().splitlines()[-1]))


def main(
    data: Annotated[Path, typer.Option(help="Folder of the tables.")],
    environments: Annotated[Path, typer.Option(help="Folder of the environments.")],
    excerpts: Annotated[Path | None, typer.Option(help="NIST's excerpts, for SDNist.")] = None,
    evaluator: Annotated[list[str] | None, typer.Option(help="Evaluators; all by default.")] = None,
    epsilon: Annotated[list[float], typer.Option()] = [1.0, 10.0],  # noqa: B006
    seeds: int = 3,
) -> None:
    """Score the cases and write the results; other cases of the file stay."""
    rows: list[dict[str, Any]] = []
    for name in evaluator or ("sdnist", "sdmetrics", "anonymeter"):
        for row, job in list_jobs(name, data, excerpts, epsilon, range(1, seeds + 1)):
            scores = run_evaluator(name, job, environments)
            case = " ".join(str(value) for value in (name, *row.values()))
            rows.append({"case": case, "evaluator": name, **row, "scores": json.dumps(scores)})
            typer.echo(json.dumps(rows[-1]))
    path = RESULTS / "scored.json"
    earlier = json.loads(path.read_text())["numbers"] if path.exists() else []
    order = dict.fromkeys(row["case"] for row in (*earlier, *rows))
    rows = with_earlier("scored", rows, list(order))
    config = {"delta": DELTA, "delta of national2019": NIST_DELTA, "attacks": ATTACKS}
    write_results("scored", rows, config, list(range(1, seeds + 1)), rows)


def list_jobs(
    name: str, data: Path, excerpts: Path | None, epsilons: list[float], seeds: range
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield what each row of the results says of its case, and the job for the evaluator."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "sdnist":
            if excerpts is None:
                raise typer.BadParameter("sdnist needs --excerpts")
            case = _nist(Path(folder), data)
            for row, made in _tables(case, "national2019", epsilons, seeds):
                yield row, {"synthetic": made, "target": "national2019", "excerpts": str(excerpts)}
        elif name == "sdmetrics":
            for table, make in (("adult", _adult), ("creditcard", _card)):
                case = make(Path(folder), data)
                shared = {"numbers": case.numbers}
                half, other = case.halves(1)
                row = {"table": table, "rows": "halves of the truth", "epsilon": "", "seed": 1}
                yield row, {"private": half, "synthetic": other, **shared}
                for row, made in _tables(case, table, epsilons, seeds):
                    yield row, {"private": case.private, "synthetic": made, **shared}
        else:
            yield from _attacks(_adult(Path(folder), data), epsilons, seeds)


def _tables(
    case: Case, table: str, epsilons: list[float], seeds: range
) -> Iterator[tuple[dict[str, Any], str]]:
    for epsilon in epsilons:
        for seed in seeds:
            row = {"table": table, "rows": "synthetic", "epsilon": epsilon, "seed": seed}
            yield row, case.synthesize(epsilon, seed, case.private)


def _attacks(
    case: Case, epsilons: list[float], seeds: range
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for epsilon in epsilons:
        for seed in seeds:
            mixed = case.frame.sample(frac=1.0, random_state=seed)
            cut = len(mixed) * 4 // 5
            used, control = mixed[:cut], mixed[cut:]
            job = {
                "control": case.write("control", control),
                "synthetic": case.synthesize(epsilon, seed, case.write("used", used)),
                "numbers": case.numbers,
                "secret": "income",
                "attacks": ATTACKS,
                "seed": seed,
            }
            row = {"table": "adult", "epsilon": epsilon, "seed": seed}
            for rows, part in (("used 80 %", used), ("used as many", used[: len(control)])):
                yield {**row, "rows": rows}, {**job, "private": case.write("used", part)}


def _adult(folder: Path, _: Path) -> Case:
    frame = _texts(DATASETS / "adult" / "adult.csv.gz")
    return Case(folder, frame, DATASETS / "adult" / "schema.json", DELTA)


def _nist(folder: Path, data: Path) -> Case:
    source = data / "national2019"
    frame = _texts(source / "national2019.csv.gz")
    return Case(folder, frame, source / "schema_rules.json", NIST_DELTA)


def _card(folder: Path, data: Path) -> Case:
    path = folder / "creditcard.csv"
    with gzip.open(data / "raw" / "creditcard.csv.gz") as packed, path.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    schema = folder / "schema.json"
    propose(path).dump(schema)
    return Case(folder, _texts(path), schema, DELTA)


def _texts(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        typer.run(main)
