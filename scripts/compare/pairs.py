"""Compare this project with a peer pair by pair: on which share of the pairs is the peer better?

    python -m scripts.compare.pairs --data FOLDER --peers ENVIRONMENTS

A mean over all pairs can hide pairs that are much worse. Each mechanism makes one table for each
seed, and its error of a pair is the mean L1 error over the seeds. Writes results/pairs.{csv,json}:
mean errors, the share of the pairs on which the peer's error is smaller, and the pair on which the
peer is ahead the most.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload
from scripts.compare.job import Job, read_codes, write_codes
from scripts.compare.mechanisms import Mechanism, all_mechanisms
from scripts.compare.tables import load_source
from scripts.results import with_earlier, write_results

OURS = "adaptive"
DELTA = 1e-9
THREADS = 1


def main(
    data: Annotated[Path, typer.Option(help="Folder of the tables.")],
    peers: Annotated[Path, typer.Option(help="Folder of the peers' virtual environments.")],
    peer: Annotated[str, typer.Option(help="Name of the peer.")] = "dpsynth-swift",
    table: Annotated[list[str], typer.Option()] = ["adult", "ma2019", "br2000"],  # noqa: B006
    epsilon: float = 1.0,
    seeds: int = 3,
) -> None:
    """Compare the mechanisms on each table and write results/pairs.{csv,json}."""
    mechanisms = all_mechanisms(peers)
    numbers = range(1, seeds + 1)
    rows = []
    for name in table:
        true = load_source(name, data).table
        workload = Workload.all_ways(true.domain, 2)
        errors = {}
        for each in (OURS, peer):
            runs = [run(mechanisms[each], each, true, workload, epsilon, n) for n in numbers]
            errors[each] = np.mean(runs, axis=0)
        lead = errors[OURS] - errors[peer]
        most = int(np.argmax(lead))
        rows.append(
            {
                "case": f"{name} {peer} {epsilon}",
                "table": name,
                "peer": peer,
                "epsilon": epsilon,
                "pairs": len(lead),
                "mean_l1": round(float(errors[OURS].mean()), 4),
                "mean_l1_peer": round(float(errors[peer].mean()), 4),
                "share_peer_better": round(float((lead > 0).mean()), 3),
                "most_behind": " x ".join(true.domain.clique_names(workload.cliques[most])),
                "l1_there": round(float(errors[OURS][most]), 4),
                "l1_there_peer": round(float(errors[peer][most]), 4),
            }
        )
        typer.echo(json.dumps(rows[-1]))
    rows = with_earlier("pairs", rows, [row["case"] for row in rows])
    write_results("pairs", rows, {"delta": DELTA, "threads": THREADS}, [*numbers], rows)


def run(
    mechanism: Mechanism, name: str, true: CodedTable, workload: Workload, epsilon: float, seed: int
) -> list[float]:
    """Return the L1 error of each pair in one table of a mechanism.

    Raises:
        BadParameter: the mechanism is not installed, or it failed.
    """
    if mechanism.command is None:
        raise typer.BadParameter(f"{name} is not installed: no environment {mechanism.missing!r}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        codes, made = folder / "codes.npy", folder / "synthetic.npy"
        write_codes(codes, true)
        job = Job(
            codes=str(codes),
            domain=dict(zip(true.domain.names, true.domain.sizes)),
            workload=[list(true.domain.clique_names(clique)) for clique in workload.cliques],
            epsilon=epsilon,
            delta=DELTA,
            seed=seed,
            threads=THREADS,
            out=str(made),
            report=str(folder / "report.json"),
            answers=str(folder / "answers.f64"),
            mechanism=name,
        )
        job.save(folder / "job.json")
        command = [*mechanism.command, str(folder / "job.json")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise typer.BadParameter(f"{name} failed: {ended.stderr.strip()[-500:]}")
        synthetic = read_codes(made, true.domain)
    return [error.l1 for error in workload_error(true, synthetic, workload).per_clique]


if __name__ == "__main__":
    typer.run(main)
