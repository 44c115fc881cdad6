"""A Dask scheduler and workers on this machine, for a run that was given none."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import LocalCluster

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE
from adaptive_qs.table.engines import EngineOptions
from adaptive_qs.table.files import private_folder


@contextmanager
def local_scheduler() -> Iterator[str]:
    """A scheduler in this process; its address."""
    with LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster.scheduler_address


def fitting_workers(options: EngineOptions) -> int:
    """How many workers of this machine there is room for, beside the coordinator and the rows.

    Raises:
        ResourceExceeded: for none.
    """
    ceiling = options.rows_bytes / ROWS_SHARE
    room = int((ceiling - options.rows_bytes) // PROCESS_BYTES) - 1
    if room < 1:
        needed = math.ceil(2 * PROCESS_BYTES / (1 - ROWS_SHARE) / 2**20)
        raise ResourceExceeded(
            f"engine dask: a cluster of one worker on this machine takes {needed:,} MB, more than "
            f"the {ceiling / 2**20:,.0f} MB there are: raise --max-memory, or take another engine"
        )
    return min(options.workers, room)


@contextmanager
def local_workers(address: str, options: EngineOptions) -> Iterator[None]:
    """Processes of one thread that share the memory set aside for rows.

    They are started by Dask's command rather than by its classes, which would import the caller's
    main module again.
    """
    share = options.rows_bytes // options.workers
    memory = {"TARGET": share / (PROCESS_BYTES + share), "SPILL": False, "PAUSE": False}
    settings = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{key}": str(memory[key]) for key in memory}
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, **settings, "PYTHONPATH": paths}
    none = subprocess.DEVNULL
    command = [
        *(sys.executable, "-P", "-m", "distributed.cli.dask_worker", address, "--no-nanny"),
        *("--no-dashboard", "--nthreads=1", f"--memory-limit={PROCESS_BYTES + share}"),
    ]
    started: list[subprocess.Popen[bytes]] = []
    with private_folder(options.temp_folder) as folder:
        command.append(f"--local-directory={folder}")
        try:
            for _ in range(options.workers):
                process = subprocess.Popen(
                    command, env=environment, stdin=none, stdout=none, stderr=none
                )
                started.append(process)
            yield
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()
