"""AIM of OpenDP on a coded table: `python opendp_aim.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main
from opendp_peer import fit_table


def fit(job: Job) -> Fitted:
    """Fit AIM to the workload, each clique with weight 1, with OpenDP's defaults."""
    from opendp.extras.mbi import AIM, Count

    def algorithm(column: dict[str, str]) -> AIM:
        cliques = {tuple(column[a] for a in clique if a in column) for clique in job.workload}
        return AIM(queries=[Count(by) for by in sorted(cliques) if by])

    fitted = fit_table(job, algorithm)
    fitted.settings.update(max_size=AIM().max_size, rounds=16 * len(job.domain))
    return fitted


if __name__ == "__main__":
    main(["opendp", "mbi", "jax", "polars", "numpy"], fit)
