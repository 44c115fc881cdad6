"""SWIFT of dpsynth on a coded table: `python dpsynth_swift.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main
from dpsynth_peer import PACKAGES, fit_table

MOST_CELLS, ITERATIONS = 1_000_000, 2_000


def fit(job: Job) -> Fitted:
    """Fit SWIFT to the workload, each clique with weight 1."""
    from dpsynth.discrete_mechanisms import swift

    def configured() -> swift.SWIFTConfig:
        return swift.SWIFTConfig(
            workload=dict.fromkeys(job.workload, 1.0),
            max_clique_size=MOST_CELLS,
            pgm_iters=ITERATIONS,
        )

    fitted = fit_table(job, configured, {"max_clique_size": MOST_CELLS, "pgm_iters": ITERATIONS})
    fitted.notes.append(
        "max_clique_size is a tenth and pgm_iters a fifth of the defaults, which take over an "
        "hour on two cores."
    )
    return fitted


if __name__ == "__main__":
    main(PACKAGES, fit)
