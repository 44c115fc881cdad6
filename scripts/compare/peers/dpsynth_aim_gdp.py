"""AIM-GDP of dpsynth on a coded table: `python dpsynth_aim_gdp.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main
from dpsynth_peer import PACKAGES, fit_table


def fit(job: Job) -> Fitted:
    """Fit AIM-GDP with its defaults to the workload, each clique with weight 1."""
    from dpsynth.discrete_mechanisms import aim_gdp

    weights = dict.fromkeys(job.workload, 1.0)
    return fit_table(job, lambda: aim_gdp.AIMGDPConfig(workload=weights), {})


if __name__ == "__main__":
    main(PACKAGES, fit)
