"""AIM of SmartNoise on a coded table: `python smartnoise_aim.py JOB.json`."""

from __future__ import annotations

from cliques import fitting
from contract import Fitted, Job, main
from smartnoise_peer import NOTES, PACKAGES, dataset


def fit(job: Job) -> Fitted:
    """Fit AIM to the workload with SmartNoise's settings."""
    from snsynth.aim.aim import AIMSynthesizer
    from snsynth.utils import cdp_rho

    data = dataset(job)
    peer = AIMSynthesizer(epsilon=job.epsilon, delta=job.delta)
    peer.rho = cdp_rho(job.epsilon, job.delta)
    column = dict(zip(job.domain, data.df.columns))
    cliques = fitting(job.workload, job.domain, peer.max_cells)
    peer.AIM(data, [tuple(column[name] for name in clique) for clique in cliques])

    def sample() -> object:
        rows = peer.synthesizer.synthetic_data(rows=len(job.codes), method="sample")
        return rows.df[list(data.df.columns)].to_numpy()

    settings = {
        "rho": peer.rho,
        "rounds": 16 * len(job.domain),
        "iters": 1000,
        "max_model_size": peer.max_model_size,
        "max_cells": peer.max_cells,
        "cliques": len(cliques),
        "cliques_too_large": len(set(job.workload) - set(cliques)),
        "method": "sample",
        "rows": "exact",
    }
    notes = [
        *NOTES,
        "Workload cliques of more than max_cells cells, which SmartNoise's own workload leaves "
        "out, are replaced by their largest subsets within the limit.",
        "SmartNoise's model size is the sum of clique sizes, not that of the junction tree: "
        "max_model_size does not bound its memory or time.",
    ]
    return Fitted(sample, settings, notes)


if __name__ == "__main__":
    main(PACKAGES, fit)
