"""Score synthetic files with SDNist 2.4, the evaluator of the NIST Collaborative Research Cycle.

    python sdnist_scores.py JOB.json

The job has ``synthetic`` (a CSV file), ``target`` (``national2019`` or ``ma2019``) and
``excerpts`` (the folder of the NIST Diverse Communities Data Excerpts, as SDNist reads them).
Prints one JSON object: the K-marginal score (0 to 1000), the mean squared error of propensities,
the share of unique rows that are matched exactly (per cent) and inconsistent rows (per cent).
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

# The data set comes first: its package and that of the metrics import each other.
from sdnist.report.dataset import Dataset  # noqa: E402, I001
from sdnist.load import TestDatasetName  # noqa: E402
from sdnist.metrics.inconsistency import Inconsistencies  # noqa: E402
from sdnist.metrics.kmarginal import KMarginal  # noqa: E402
from sdnist.metrics.propensity import PropensityMSE  # noqa: E402
from sdnist.metrics.unique_exact_matches import unique_exact_matches  # noqa: E402
from sdnist.utils import SimpleLogger  # noqa: E402


class Quiet(SimpleLogger):
    """A logger that prints nothing."""

    def msg(self, *_, **__):
        """Ignore a message."""

    def end_msg(self, *_, **__):
        """Ignore the end of a step."""


def main(job: dict) -> dict:
    """Return the scores of one file."""
    target = TestDatasetName[job["target"]]
    data = Dataset(Path(job["synthetic"]), Quiet(), target, Path(job["excerpts"]), False)
    groups = [name for name in data.config["k_marginal"]["group_features"] if name in data.features]
    marginal = KMarginal(data.d_target_data.copy(), data.d_synthetic_data.copy(), groups)
    scores = {"features": len(data.features), "k_marginal": round(float(marginal.compute_score()))}
    with tempfile.TemporaryDirectory() as folder:
        propensity = PropensityMSE(data.t_target_data, data.t_synthetic_data, Path(folder))
        propensity.compute_score()
        found = Inconsistencies(data.c_synthetic_data, Path(folder))
        found.compute()
    scores["propensity_mse"] = round(float(propensity.pmse_score), 5)
    _, matched, *_ = unique_exact_matches(data.c_target_data, data.c_synthetic_data)
    scores["unique_matches_percent"] = float(matched)
    for group in found.report_data["summary"]:
        name = group["Inconsistency Group"].lower()
        scores[f"inconsistent_{name}_percent"] = float(group["Percent Records Inconsistent"])
    return scores


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
