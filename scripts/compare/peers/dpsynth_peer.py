"""What SWIFT and AIM-GDP of dpsynth share: the table, the budget, one-way marginals, rows."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, sqrt
from typing import Any

from contract import Fitted, Job

PACKAGES = ["dpsynth", "mbi", "jax", "numpy"]
NOTES = [
    "Both mechanisms are Gaussian DP as a whole: they get the rho that exact Gaussian DP allows "
    "at this epsilon and delta, more than a conversion from zCDP would.",
    "Run inside dpsynth's own wrapper, which measures one-way marginals and merges codes that "
    "look rarer than the noise (compress_columns), as its documentation recommends.",
    "Noise comes from NumPy with the seed of the job.",
]


def fit_table(job: Job, mechanism: Callable[[], Any], settings: dict[str, Any]) -> Fitted:
    """Fit an inner mechanism of dpsynth, which `mechanism` configures."""
    import mbi
    import numpy as np
    from dpsynth.discrete_mechanisms import discrete

    domain = mbi.Domain(tuple(job.domain), tuple(job.domain.values()))
    columns = {name: job.codes[:, i] for i, name in enumerate(job.domain)}
    rho = gaussian_budget(job.epsilon, job.delta)
    config = discrete.DiscreteConfig(mechanism=mechanism(), compress_columns=True)
    calibrated = config.configure(zcdp_rho=rho, delta=job.delta)
    found = calibrated(np.random.default_rng(job.seed), mbi.Dataset(columns, domain))

    def sample() -> Any:
        made = found.synthetic_data
        return np.stack([np.asarray(made.data[name]) for name in job.domain], axis=1)

    facts = {"rho": rho, "compress_columns": True, "rows": "estimated total", **settings}
    return Fitted(sample, facts, list(NOTES))


def gaussian_budget(epsilon: float, delta: float) -> float:
    """The largest mu**2 / 2 for which mu-Gaussian DP implies (epsilon, delta).

    Source: Dong, Roth, Su (2022), Corollary 2.13.
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(mu: float) -> float:
        above, below = (log_ndtr(sign * mu / 2 - epsilon / mu) for sign in (1, -1))
        return exp(above) - exp(epsilon + below) - delta

    mu = brentq(excess, 1e-6 * sqrt(epsilon), 10 * (epsilon + 1), xtol=1e-12)
    return float(mu**2 / 2)
