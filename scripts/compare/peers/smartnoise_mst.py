"""MST of SmartNoise on a coded table: `python smartnoise_mst.py JOB.json`."""

from __future__ import annotations

from contract import Fitted, Job, main
from smartnoise_peer import NOTES, PACKAGES, dataset


def fit(job: Job) -> Fitted:
    """Fit MST with SmartNoise's settings; it takes no workload."""
    from snsynth.mst.mst import MSTSynthesizer

    data = dataset(job)
    peer = MSTSynthesizer(epsilon=job.epsilon, delta=job.delta)
    peer.MST(data, job.epsilon, job.delta)

    def sample() -> object:
        rows = peer.synthesizer.synthetic_data(rows=len(job.codes), method="sample")
        return peer.undo_compress_fn(rows).df[list(data.df.columns)].to_numpy()

    settings = {"iters": 5000, "compress": True, "method": "sample", "rows": "exact"}
    return Fitted(sample, settings, [*NOTES, "MST takes no workload."])


if __name__ == "__main__":
    main(PACKAGES, fit)
