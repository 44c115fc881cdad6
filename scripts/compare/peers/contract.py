"""What every peer script does alike: read the job, limit threads, time, check, write the report.

A peer script runs with the Python of its own environment, which lacks this project:

    python dpmm_mst.py JOB.json

The job names a table of codes (.npy, shape (rows, attributes)), its domain sizes in column order,
the workload as lists of attribute names, the budget, a seed, a number of threads, and where to put
the synthetic codes and the report. Only the standard library is imported before the limits are set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "NPROC",
)


@dataclass(frozen=True)
class Job:
    """One run of one peer: `codes` (rows, attributes), and (epsilon, delta) for one row."""

    codes: Any
    domain: dict[str, int]
    workload: list[tuple[str, ...]]
    epsilon: float
    delta: float
    seed: int
    threads: int


@dataclass(frozen=True)
class Fitted:
    """What a peer learnt: `sample()` gives codes (rows, attributes) at no further budget."""

    sample: Callable[[], Any]
    settings: dict[str, Any]
    notes: list[str]


def main(packages: Sequence[str], fit: Callable[[Job], Fitted]) -> None:
    """Run the job named on the command line with this peer; versions of `packages` are reported."""
    if len(sys.argv) != 2:
        sys.exit(_fail(f"usage: python {Path(sys.argv[0]).name} JOB.json"))
    path = Path(sys.argv[1])
    try:
        content = json.loads(path.read_text())
        limit_threads(int(content["threads"]))
        job = read(content)
        out, report = Path(content["out"]), Path(content["report"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(_fail(f"{path}: no valid job ({type(error).__name__}: {error}): write it anew"))
    import numpy as np

    np.random.seed(job.seed % 2**32)
    start = time.perf_counter()
    fitted = fit(job)
    middle = time.perf_counter()
    synthetic = np.asarray(fitted.sample())
    end = time.perf_counter()
    sizes = np.array(list(job.domain.values()))
    if synthetic.ndim != 2 or synthetic.shape[1] != len(sizes):
        raise AssertionError(f"the peer gave an array of shape {synthetic.shape}")
    if (synthetic < 0).any() or (synthetic >= sizes).any():
        raise AssertionError("the peer gave codes outside the domain")
    np.save(out, synthetic.astype(np.int32))
    facts = {
        "versions": {name: version(name) for name in packages},
        "settings": fitted.settings,
        "seconds": {"fit": round(middle - start, 3), "sample": round(end - middle, 3)},
        "notes": fitted.notes,
    }
    report.write_text(json.dumps(facts, indent=2) + "\n")


def limit_threads(threads: int) -> None:
    """Let numerical libraries that are imported later use so many threads, where they obey."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ["JAX_PLATFORMS"] = "cpu"
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


def read(content: dict[str, Any]) -> Job:
    """The job in parsed JSON.

    Raises:
        ValueError: the codes do not fit the domain, or the workload names unknown attributes.
    """
    import numpy as np

    domain = {str(name): int(size) for name, size in content["domain"].items()}
    codes = np.load(content["codes"], allow_pickle=False)
    if codes.ndim != 2 or codes.shape[1] != len(domain) or codes.dtype.kind not in "iu":
        raise ValueError(f"codes have shape {codes.shape} for {len(domain)} attributes")
    workload = [tuple(clique) for clique in content["workload"]]
    unknown = {name for clique in workload for name in clique} - domain.keys()
    if unknown:
        raise ValueError(f"the workload names {sorted(unknown)}, which the domain lacks")
    return Job(
        codes.astype(np.int64),
        domain,
        workload,
        float(content["epsilon"]),
        float(content["delta"]),
        int(content["seed"]),
        int(content["threads"]),
    )


def _fail(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 2


__all__ = ["Fitted", "Job", "limit_threads", "main", "read"]
