"""MST of OpenDP on a coded table: `python opendp_mst.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main
from opendp_peer import fit_table


def fit(job: Job) -> Fitted:
    """Fit MST with OpenDP's defaults; it takes no workload."""
    from opendp.extras.mbi import MST

    fitted = fit_table(job, lambda column: MST())
    fitted.notes.append("MST takes no workload.")
    return fitted


if __name__ == "__main__":
    main(["opendp", "mbi", "jax", "polars", "numpy"], fit)
