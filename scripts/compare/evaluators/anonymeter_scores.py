"""Estimate the risks of a synthetic file with Anonymeter.

    python anonymeter_scores.py JOB.json

The job has ``private``, ``control`` and ``synthetic`` (CSV files with the same columns: the rows
that were used, rows of the same population that were not, and the table), ``numbers`` (the columns
that are numbers), ``secret`` (the column to infer), ``attacks`` and ``seed``. Prints one JSON
object: for each attack the share of guesses that are right about used rows and about control rows,
and the risk, which is the first in excess of the second, with its 95 % interval.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

warnings.filterwarnings("ignore")

from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator  # noqa: E402


def read(path: str, numbers: list) -> pd.DataFrame:
    """Return a table whose categories are text."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return frame


def main(job: dict) -> dict:
    """Return the risks of one file."""
    np.random.seed(job["seed"])
    used, control, made = (
        read(job[key], job["numbers"]) for key in ("private", "control", "synthetic")
    )
    control, made = control[list(used)], made[list(used)]
    others = [name for name in used if name != job["secret"]]
    half = len(others) // 2
    attacks = {
        "singling_out": SinglingOutEvaluator(
            ori=used, syn=made, control=control, n_attacks=job["attacks"], n_cols=4,
            seed=job["seed"],
        ),
        "linkability": LinkabilityEvaluator(
            ori=used, syn=made, control=control, n_attacks=job["attacks"], n_neighbors=10,
            aux_cols=(others[:half], others[half:]),
        ),
        "inference": InferenceEvaluator(
            ori=used, syn=made, control=control, n_attacks=job["attacks"],
            aux_cols=others, secret=job["secret"],
        ),
    }  # fmt: skip
    scores = {}
    for name, attack in attacks.items():
        attack.evaluate(**({"mode": "multivariate"} if name == "singling_out" else {}))
        results, risk = attack.results(), attack.risk()
        scores |= {
            f"{name}_right": round(results.attack_rate.value, 4),
            f"{name}_right_control": round(results.control_rate.value, 4),
            f"{name}_risk": round(risk.value, 4),
            f"{name}_risk_low": round(risk.ci[0], 4),
            f"{name}_risk_high": round(risk.ci[1], 4),
        }
    return scores


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
