"""Score a synthetic file with the quality report of SDMetrics.

    python sdmetrics_scores.py JOB.json

The job has ``private`` and ``synthetic`` (CSV files with the same columns) and ``numbers`` (the
columns that are numbers; all others are categories). Prints one JSON object: the overall score,
column shapes and column pair trends, each 1 for equal tables.
"""

import json
import sys
import warnings
from pathlib import Path

import pandas as pd

warnings.filterwarnings("ignore")

from sdmetrics.reports.single_table import QualityReport  # noqa: E402


def read(path: str, numbers: list) -> pd.DataFrame:
    """Return a table whose categories are text."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def main(job: dict) -> dict:
    """Return the scores of one file."""
    true, made = (read(job[key], job["numbers"]) for key in ("private", "synthetic"))
    kinds = {
        name: {"sdtype": "numerical" if name in job["numbers"] else "categorical"} for name in true
    }
    report = QualityReport()
    report.generate(true, made[list(true)], {"columns": kinds}, verbose=False)
    properties = report.get_properties().set_index("Property")["Score"]
    return {
        "quality": round(float(report.get_score()), 4),
        "column_shapes": round(float(properties["Column Shapes"]), 4),
        "pair_trends": round(float(properties["Column Pair Trends"]), 4),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
