"""MST of OpenDP on a coded table: `python opendp_mst.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main
from opendp_peer import fit_table

SLACK = 1e-12
"""Part of a budget left unused, for sums of parts that are rounded up."""
NOTES = [
    "MST takes no workload.",
    "OpenDP 0.16.0 divides the budget of its selections by their number, and the sum of the parts, "
    "rounded up, exceeds it ('insufficient budget for query' on a table of 14 columns): the "
    f"adapter lets it leave {SLACK:g} of each part unused instead of one floating-point step.",
]


def fit(job: Job) -> Fitted:
    """Fit MST with OpenDP's defaults."""
    from opendp.extras.mbi import MST, _mst

    _mst.prior = lambda budget: budget * (1 - SLACK)
    fitted = fit_table(job, lambda column: MST())
    fitted.notes.extend(NOTES)
    return fitted


if __name__ == "__main__":
    main(["opendp", "mbi", "jax", "polars", "numpy"], fit)
