"""MST of dpmm on a coded table: `python dpmm_mst.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main


def fit(job: Job) -> Fitted:
    """Fit MST with dpmm's defaults and without its preprocessing."""
    import pandas as pd
    from dpmm.pipelines import MSTPipeline

    jobs = max(1, job.threads - 1)
    table = pd.DataFrame(job.codes, columns=list(job.domain))
    pipeline = MSTPipeline(
        epsilon=job.epsilon, delta=job.delta, n_jobs=jobs, disable_processing=True
    )
    pipeline.fit(table, domain=job.domain, random_state=job.seed)
    mechanism = pipeline.gen.generator
    return Fitted(
        sample=lambda: pipeline.gen.generate()[table.columns].to_numpy(),
        settings={
            "rho": mechanism.rho,
            "n_iters": mechanism.n_iters,
            "compress": mechanism.compress,
            "max_model_size": mechanism.max_model_size,
            "n_jobs": jobs,
            "disable_processing": True,
            "rows": "estimated total",
        },
        notes=[
            "The table is coded already: preprocessing is off, the whole budget goes to MST.",
            "MST takes no workload; all other settings are the defaults of MSTPipeline.",
            "n_jobs is dpmm's own rule, cores - 1, applied to the threads of the job.",
            "Noise comes from OpenDP's unseeded source: the seed fixes choices and rows only.",
        ],
    )


if __name__ == "__main__":
    main(["dpmm", "opendp", "numpy", "pandas"], fit)
