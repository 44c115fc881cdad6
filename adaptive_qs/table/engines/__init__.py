"""Engines that count the rows of a private table: one protocol, several places for the rows.

An engine is opened on a source (a path, a folder, a data frame, codes) and a schema without open
bins or values. It reads the rows once, cell by cell as :mod:`adaptive_qs.table.encode` does, keeps
their codes and counts them. All engines return the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from adaptive_qs.arguments import Registry, check_choice, shown
from adaptive_qs.machine import CheckRows, StepProgress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adaptive_qs.domain import Clique, Domain


class Occupied(NamedTuple):
    """The cells of a marginal that have rows."""

    cells: NDArray[np.int64]  # positions in the flattened marginal, in any order, shape (cells,)
    counts: NDArray[np.int64]  # rows of each, at least 1, shape (cells,)


class CountingEngine(Protocol):
    """The exact counts of one private table, which are never released without noise.

    Threads can call the methods concurrently.
    """

    domain: Domain
    """Attributes and their numbers of codes."""

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """Return the exact marginals over some nonempty cliques (rows), counted in one pass."""

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        """Return their occupied cells: less work if most cells are empty."""

    def count_rows(self) -> int:
        """Return the number of rows (private)."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of every engine; none of them changes a count."""

    workers: int = 1  # threads that encode and count
    rows_bytes: int = 2**28  # memory for rows, in bytes
    check_rows: CheckRows | None = None  # refuses more rows than can be counted
    check_held: CheckRows | None = None  # refuses too many rows, for engines that hold all
    temp_folder: str | Path | None = None  # folder of temporary files; None takes the system's
    scheduler: Any = None  # address or client of a cluster, for engines that count on one


class EngineOpener(Protocol):
    """A function that makes an engine of a table: an entry of ``ENGINES``."""

    def __call__(
        self, source: Any, schema: Any, options: EngineOptions, progress: StepProgress | None
    ) -> AbstractContextManager[CountingEngine]:
        """Read and encode the table; leaving the context removes all that was kept of it.

        The schema has no open bins or values. Raises InputError if the table cannot be read or does
        not fit the schema, ResourceExceeded if it does not fit where the engine keeps it.
        """


DEFAULT_ENGINE = "auto"
ENGINES: Registry[EngineOpener] = Registry(
    {
        DEFAULT_ENGINE: "adaptive_qs.table.engines.local:open_auto",
        "memory": "adaptive_qs.table.engines.local:open_memory",
        "stream": "adaptive_qs.table.engines.local:open_stream",
        "dask": "adaptive_qs.table.engines.dask:open_dask",
    }
)
"""The engines that ``--engine`` can name, each an :class:`EngineOpener`."""
CHECKS: Registry[Any] = Registry({"dask": "adaptive_qs.table.engines.dask:check_cluster"})
"""Checks of a table before it is read, for engines that a trial with one row does not check."""
SCHEDULED = (DEFAULT_ENGINE, "dask")
"""The engines that take a scheduler."""


def scheduler_warnings(scheduler: Any) -> tuple[str, ...]:
    """Return a warning if a scheduler, given as an address or a client, does not use TLS."""
    address = getattr(getattr(scheduler, "scheduler", None), "address", scheduler)
    if not isinstance(address, str) or address.startswith(("tls://", "wss://", "inproc://")):
        return ()
    return (
        f"scheduler {shown(address)}: does not use TLS: codes of the private rows are sent "
        "unencrypted, and anyone who can connect to the scheduler or a worker can read them and "
        "run code there: use TLS and an address such as tls://host:8786",
    )


def open_engine(
    name: str,
    source: Any,
    schema: Any,
    options: EngineOptions,
    progress: StepProgress | None = None,
) -> AbstractContextManager[CountingEngine]:
    """Open the engine of that name on a table, as an :class:`EngineOpener`."""
    return ENGINES[check_choice("engine", name, ENGINES)](source, schema, options, progress)
