"""Counting on a Dask cluster: workers encode parts of a table, and only counts come back.

A part is a file, or some row groups of a Parquet file. One task
encodes it as any other engine would, and the codes stay with its worker. A marginal is counted part
by part and summed on the workers. Dask repeats the tasks of a lost worker elsewhere, where a part
that is read again must give the same codes. Dask writes exceptions and arguments to logs. So tasks
never raise: they return a :class:`Refusal`, which is safe to print. Their names are numbers.
"""

import asyncio
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import shown
from adaptive_qs.cliques import batches
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import AdaptiveQsError, DataError, InputError
from adaptive_qs.machine import CheckRows, StepProgress
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import CountingEngine, EngineOptions, Occupied
from adaptive_qs.table.engines import workers as remote
from adaptive_qs.table.engines.local import Spool, find_path
from adaptive_qs.table.read import table_files, unreadable
from adaptive_qs.table.schema import Schema

try:
    from distributed import Client, Future, KilledWorker, wait
    from distributed.utils import silence_logging_cmgr
except ImportError:
    raise InputError("engine dask is not installed: pip install 'adaptive-qs[dask]'") from None

CONNECT_SECONDS = 10
"""Time within which a scheduler answers, in seconds."""
WORKERS_SECONDS = 60
"""Time for which a foreign cluster can have no worker, in seconds: new ones can be on their way."""
LEAST_PART = 2**22
"""Least bytes of a part of a file."""
HELD_ROWS = 2**20
"""Rows of a part of a table in memory."""
BATCH_CELLS = 2**20
"""Cells that are counted together, unless a single marginal has more."""
FAN = 8
"""Arrays that one task adds."""


class Cluster:
    """A cluster that runs tasks; it can have no workers for ``patience`` seconds."""

    def __init__(self, client: Client, name: str, patience: float) -> None:
        self._client = client
        self._name = name
        self._patience = patience
        self._run = uuid4().hex
        self._numbers = count()

    def start(self) -> int:
        """Wait for workers, check their versions, and return their number of threads.

        Raise InputError if there are none, or they have other versions.
        """
        with self._failing():
            try:
                self._client.wait_for_workers(1, timeout=self._patience)
            except TimeoutError:
                raise InputError(
                    f"{self._name}: has no workers: start some by 'dask worker' with its address"
                ) from None
            reported: Any = self._client.get_versions(packages=remote.PACKAGES)
            for address, found in reported["workers"].items():
                packages = dict(found["packages"])
                packages["python"] = ".".join(packages["python"].split(".")[:2])
                remote.check_versions(f"the worker at {address}", packages, remote.own_versions())
            return sum(self._client.nthreads().values())

    def everywhere(self, task: Callable[[Any], Any], argument: Any) -> None:
        """Run a task on every worker; raise as :meth:`results`."""
        with self._failing():
            workers = list(self._client.nthreads())
        self.results(self.submit_all(task, [argument] * len(workers), workers=workers))

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future:
        """Start a task."""
        return self.submit_all(task, *([each] for each in arguments))[0]

    def submit_all(
        self,
        task: Callable[..., Any],
        *arguments: Sequence[Any],
        first: bool = False,
        workers: Sequence[str] | None = None,
    ) -> list[Future]:
        """Start a task for each value of the arguments, ``first`` or after all that wait."""
        name = task.__name__.strip("_").replace("_", "-")
        keys = [f"adaptive-qs-{name}-{self._run}-{next(self._numbers)}" for _ in arguments[0]]
        with self._failing():
            if workers is None:
                started: list[Future] = self._client.map(
                    task, *arguments, key=keys, priority=int(first)
                )
                return started
            return [
                self._client.submit(task, *each, key=key, workers=[on])
                for key, on, *each in zip(keys, workers, *arguments, strict=True)
            ]

    def results(
        self, futures: Sequence[Future], seen: Callable[[Any], None] | None = None
    ) -> list[Any]:
        """Return the results of tasks; ``seen`` is called with each as it comes.

        Raise AdaptiveQsError if a task refused, or the cluster failed.
        """
        results: dict[Future, Any] = {}
        active = time.monotonic()
        while left := [future for future in futures if future not in results]:
            with self._failing(), self._client.as_current():
                try:
                    wait(left, timeout=0.5)
                except TimeoutError:
                    active = time.monotonic() if self._client.nthreads() else active
                done = [future for future in left if future.status != "pending"]
                returned = self._client.gather(done)
            if time.monotonic() - active > self._patience and not done:
                raise AdaptiveQsError(
                    f"{self._name}: no worker is left: start some, and repeat the command"
                )
            for future, result in zip(done, returned):
                if isinstance(result, remote.Refusal):
                    raise result.error
                results[future] = result
                if seen is not None:
                    seen(result)
        return [results[future] for future in futures]

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Replace failures of the cluster by errors of one line, without Dask's message."""
        try:
            yield
            return
        except AdaptiveQsError:
            raise
        except KilledWorker:
            said = (
                "several workers ended over the same part of the table. Set a larger memory for "
                "workers, and repeat the command."
            )
        except (CancelledError, asyncio.CancelledError, OSError):
            said = "the scheduler does not answer any more: start it again, and repeat the command"
        except Exception as error:  # noqa: BLE001  (a cluster fails in many ways)
            said = f"failed ({type(error).__name__}): look at its logs, and repeat the command"
        raise AdaptiveQsError(f"{self._name}: {said}")


class DaskEngine(CountingEngine):
    """An engine that counts the parts of a table where they are."""

    def __init__(
        self,
        cluster: Cluster,
        domain: Domain,
        parts: Sequence[Future],
        facts: Sequence[remote.PartFacts],
    ) -> None:
        self.domain: Domain = domain
        self._cluster = cluster
        self._parts = parts
        self._facts = facts
        self._rows = sum(each.rows for each in facts)

    def count_rows(self) -> int:
        return self._rows

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        runs = batches([*map(self.domain.size, cliques)], BATCH_CELLS)
        return [counts for run in runs for counts in self._counted(cliques[run])]

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        """Return the occupied cells of the marginals over some cliques, joined on the workers."""
        most = max(2**22 // max(self._rows, 1), 1)  # cells that a worker lists in one step
        runs = [cliques[k : k + most] for k in range(0, len(cliques), most)]
        return [
            found for run in runs for found in self._summed(remote.list_occupied, remote.join, run)
        ]

    def _summed(
        self, task: Callable[..., Any], add: Callable[..., Any], run: Sequence[Clique]
    ) -> Any:
        start, request = self._cluster.submit_all, remote.CountRequest(run)
        found = start(task, self._parts, [request] * len(self._parts), self._facts)
        while len(found) > 1:
            found = start(add, [found[k : k + FAN] for k in range(0, len(found), FAN)], first=True)
        (total,) = self._cluster.results(found)
        return total

    def _counted(self, cliques: Sequence[Clique]) -> Iterator[NDArray[np.int64]]:
        total = self._summed(remote.count, remote.add, cliques)
        ends = np.cumsum([self.domain.size(clique) for clique in cliques])
        for clique, cells in zip(cliques, np.split(total, ends[:-1])):
            yield cells.reshape(self.domain.shape(clique))


@contextmanager
def open_dask(
    source: Any, schema: Schema, options: EngineOptions, progress: StepProgress | None
) -> Iterator[CountingEngine]:
    """Open an engine on a cluster that encodes a table and keeps the codes."""
    with ExitStack() as stack:
        cluster = stack.enter_context(_connected(options))
        threads = cluster.start()
        files = find_path(source)
        sums = isinstance(source, Spool) and source.sums
        reader = cluster.submit(remote.same, remote.Reader(schema, remote.own_versions(), sums))
        cluster.everywhere(remote.load, reader)
        if files is not None:
            parts = _file_parts(cluster, reader, files, threads)
            tasks = cluster.submit_all(remote.encode, parts, [reader] * len(parts))
        else:
            table = read_table(source, schema, None, options.check_held)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a task is large
                tasks = _sent(cluster, table)
        facts = _facts_of_parts(cluster, tasks, options.check_rows, progress)
        if not any(each.rows for each in facts):
            raise DataError(f"{source} has no rows. It needs at least one.")
        if files is not None and isinstance(source, Spool) and sums:
            source.note_sum(sum(each.row_sum for each in facts) % 2**64)
        yield DaskEngine(cluster, schema.domain(), tasks, facts)


@contextmanager
def check_cluster(source: Any, rows: int, options: EngineOptions) -> Iterator[EngineOptions]:
    """Yield options with which :func:`open_dask` finds a cluster that works and sees a table.

    Raises:
        InputError: If there is no cluster, or a worker does not see a file.
        ResourceExceeded: If the table is no file, and too large for the coordinator's memory.
    """
    files = find_path(source)
    if files is None and options.check_held is not None:
        options.check_held(rows)
    with _connected(options) as cluster:
        cluster.start()
        if files is not None:
            cluster.everywhere(remote.see, _whole_files(files))
        yield replace(options, scheduler=cluster)


def _file_parts(
    cluster: Cluster, reader: Future, source: str | Path, threads: int
) -> list[remote.FilePart]:
    whole = _whole_files(source)
    total = sum(part.size for part in whole)
    most = min(max(total // (4 * threads), LEAST_PART), 2**26)  # four parts per thread
    large = [part for part in whole if part.size > most]
    cut = cluster.results([cluster.submit(remote.cut, part, reader, most) for part in large])
    return [part for part in whole if part not in large] + [piece for each in cut for piece in each]


def _whole_files(source: str | Path) -> list[remote.FilePart]:
    whole = []
    for path in map(os.path.abspath, table_files(source)):
        stamp = redacted(partial(remote.file_stamp, path), partial(unreadable, path))
        whole.append(remote.FilePart(path, stamp, stamp[0]))
    return whole


def _sent(cluster: Cluster, table: CodedTable) -> list[Future]:
    parts = []
    for first in range(0, table.num_rows, HELD_ROWS):
        columns = [column[first : first + HELD_ROWS].copy() for column in table.columns]
        parts.append(remote.PartCodes(table.domain, columns))
    return cluster.submit_all(remote.same, parts)


def _facts_of_parts(
    cluster: Cluster,
    parts: Sequence[Future],
    check_rows: CheckRows | None,
    progress: StepProgress | None,
) -> list[remote.PartFacts]:
    rows = done = 0

    def seen(facts: remote.PartFacts) -> None:
        nonlocal rows, done
        rows, done = rows + facts.rows, done + 1
        if check_rows is not None:
            check_rows(rows)
        if progress is not None:
            progress(done, len(parts))

    return cluster.results(cluster.submit_all(remote.find_facts, parts), seen)


@contextmanager
def _connected(options: EngineOptions) -> Iterator[Cluster]:
    """Yield a cluster that is given as such, as a client or as an address."""
    given: Any = options.scheduler
    if given is None:
        raise InputError(
            "engine dask counts on a cluster. Name its --scheduler, or use engine auto, which "
            "uses all cores of this machine."
        )
    if isinstance(given, Cluster):
        yield given
        return
    security = None
    if isinstance(given, Client):  # ours, another one, takes all with it when it is closed
        if given.status != "running":
            raise InputError("scheduler is a client that is closed. Use another, or an address.")
        security = given.security
        given = given.scheduler.address  # type: ignore[union-attr]
    if not isinstance(given, str):
        raise InputError(f"scheduler is {shown(given)}. Use an address or a distributed.Client.")
    certificate = " and that it accepts the certificate" if given.startswith("tls://") else ""
    no_answer = InputError(
        f"Cannot connect to the scheduler at {shown(given)}. Check the address (such as "
        f"tls://host:8786) and that it is running{certificate}."
    )
    with silence_logging_cmgr(logging.CRITICAL), ExitStack() as stack:
        try:
            client = Client(given, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception:  # noqa: BLE001  (each protocol fails in its own way)
            raise no_answer from None
        yield Cluster(stack.enter_context(client), f"scheduler {given}", WORKERS_SECONDS)
