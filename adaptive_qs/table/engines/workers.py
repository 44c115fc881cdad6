"""Dask processes on this machine, for a run that was given none, and the versions that all need."""

from __future__ import annotations

import logging
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distributed import Scheduler, Security, SpecCluster, Worker

from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, version_of
from adaptive_qs.table.engines import EngineOptions
from adaptive_qs.table.files import private_folder


class _WithoutHTTP:
    """A scheduler or worker without Dask's HTTP server, which would ask for no secret."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start nothing."""


class LocalScheduler(_WithoutHTTP, Scheduler):
    """A scheduler that answers only those that hold the key of the run."""


class LocalWorker(_WithoutHTTP, Worker):
    """A worker that answers only those that hold the key of the run."""


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
def local_cluster(options: EngineOptions) -> Iterator[tuple[str, Security]]:
    """Start a scheduler in this process and worker processes of one thread each.

    Every socket is on loopback and speaks TLS with one key of this run, on both sides. The workers
    find the key in a folder that only this user can read. They share the memory set aside for rows,
    and are started by Dask's command rather than by its classes, which would import the caller's
    main module again.

    Yields:
        The address of the scheduler, and what a client needs to connect.

    Raises:
        InputError: the library that makes keys is missing, or the folder cannot be made.
    """
    try:
        security = Security.temporary()
    except ImportError:
        raise InputError(
            "engine dask needs cryptography for workers on this machine: "
            "pip install 'adaptive-qs[dask]'"
        ) from None
    scheduler = {"host": "127.0.0.1", "port": 0, "protocol": "tls://", "security": security}
    started: list[subprocess.Popen[bytes]] = []
    with (
        private_folder(options.temp_folder) as folder,
        SpecCluster(
            scheduler={"cls": LocalScheduler, "options": {**scheduler, "dashboard": False}},
            workers={},
            security=security,
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        command = _worker_command(cluster.scheduler_address, options, folder, security)
        none = subprocess.DEVNULL
        try:
            for _ in range(options.workers):
                process = subprocess.Popen(
                    command, env=_worker_environment(options), stdin=none, stdout=none, stderr=none
                )
                started.append(process)
            yield cluster.scheduler_address, security
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()


def _worker_command(address: str, options: EngineOptions, folder: Path, security: Any) -> list[str]:
    """Write the key of the run to the folder, and return the command that starts a worker."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    for path, text in (key, security.tls_worker_key), (certificate, security.tls_worker_cert):
        path.touch(0o600)
        path.write_text(text)
    bytes_each = PROCESS_BYTES + options.rows_bytes // options.workers
    return [
        *(sys.executable, "-P", "-m", "distributed.cli.dask_worker", address, "--no-nanny"),
        *("--worker-class", f"{__name__}.{LocalWorker.__name__}", "--no-dashboard"),
        *("--host", "127.0.0.1", "--protocol", "tls", "--nthreads=1"),
        *("--tls-ca-file", str(certificate), "--tls-cert", str(certificate)),
        *("--tls-key", str(key), f"--memory-limit={bytes_each}", f"--local-directory={folder}"),
    ]


def _worker_environment(options: EngineOptions) -> dict[str, str]:
    share = options.rows_bytes // options.workers
    memory = {"TARGET": share / (PROCESS_BYTES + share), "SPILL": False, "PAUSE": False}
    settings = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{key}": str(memory[key]) for key in memory}
    return {**os.environ, **settings, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


# Versions decide what a cell means: all machines must have the same.

_EXTRAS = ("openpyxl",)
PACKAGES = ("adaptive_qs", "numpy", "pandas", "pyarrow", *_EXTRAS)
"""What turns files into cells, cells into codes, and codes into counts; extras may be missing, and
who lacks one says so when a file takes it."""


def own_versions() -> dict[str, str]:
    """Versions of Python and of what reads cells, as this process has them."""
    python = ".".join(platform.python_version_tuple()[:2])
    here = [name for name in PACKAGES if name not in _EXTRAS or find_spec(name)]
    return {"python": python, **{name: version_of(name) for name in here}}


def check_versions(where: str, found: Mapping[str, str | None], wanted: Mapping[str, str]) -> None:
    """Refuse other versions than the coordinator's.

    Raises:
        InputError: one differs.
    """
    for name, own in wanted.items():
        if found.get(name) != own and (found.get(name) or name not in _EXTRAS):
            has = f"has {name} {found.get(name)}" if found.get(name) else f"lacks {name}"
            raise InputError(
                f"{where} {has}, and this machine has {own}: install the same versions everywhere"
            )
