"""OpenDP's contingency tables on coded tables, for the algorithms of opendp.extras.mbi."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from contract import Fitted, Job

NOTES = [
    "Declared keys for every column: no budget goes to finding keys. OpenDP adds a null to every "
    "key set; the last code of each column takes its place, so the domain is exactly the table's.",
    "rho is the largest that OpenDP's own conversion from zCDP allows for (epsilon, delta).",
    "oneway_split and measure_split are the defaults: half of the budget for single columns, 0.9 "
    "of the rest for measuring.",
    "Rows are drawn with mbi's method 'sample': its default, 'round', makes columns that share a "
    "parent in the model move together.",
    "OpenDP's noise has no seed: the seed fixes the sampling of rows only.",
]


def fit_table(job: Job, algorithm: Callable[[dict[str, str]], Any]) -> Fitted:
    """Release a contingency table for one row at (epsilon, delta).

    `algorithm` gets the peer's column name of every attribute and gives the configuration.
    """
    import numpy as np
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    # A column of one value has no key beside the null, and nothing to learn.
    varying = [name for name, size in job.domain.items() if size > 1]
    column = {name: f"a{i}" for i, name in enumerate(varying)}
    at = {name: i for i, name in enumerate(job.domain)}
    data = pl.LazyFrame({column[name]: job.codes[:, at[name]] for name in varying})
    rho = zcdp_budget(job.epsilon, job.delta)
    configuration = algorithm(column)
    context = dp.Context.compositor(
        data=data, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
    )
    table = (
        context.query(rho=rho)
        .contingency_table(
            keys={column[name]: list(range(job.domain[name] - 1)) for name in varying},
            algorithm=configuration,
        )
        .release()
    )

    def sample() -> Any:
        rows = table.synthesize(method="sample")
        codes = np.zeros((rows.height, len(job.domain)), dtype=np.int64)
        for name in varying:
            codes[:, at[name]] = rows[column[name]].fill_null(job.domain[name] - 1).to_numpy()
        return codes

    settings = {"rho": rho, "method": "sample", "rows": "estimated total"}
    settings["measured"] = len(table.marginals.cliques())
    return Fitted(sample, settings, list(NOTES))


def zcdp_budget(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta), by OpenDP's conversion."""
    import opendp.prelude as dp

    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)

    def allowed(rho: float) -> bool:
        noise = dp.m.make_gaussian(*space, scale=sqrt(1 / (2 * rho)))
        return dp.c.make_zCDP_to_approxDP(noise).map(1.0).epsilon(delta) <= epsilon

    return float(dp.binary_search(allowed, bounds=(1e-9, 1e3)))
