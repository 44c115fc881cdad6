"""What counts the rows of a private table, wherever they are kept: one protocol, several engines.

An engine is opened on a source (a path, a folder, a data frame, codes) and a schema without open
bins or values. It reads the rows once, cell by cell as :mod:`adaptive_qs.table.encode` does, keeps
their codes and counts them. Whatever engine is taken, the counts are the same integers.
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
    """The cells of a marginal that have rows.

    Attributes:
        cells: shape (cells,), their positions in the flattened marginal, in any order.
        counts: shape (cells,), rows of each, at least 1.
    """

    cells: NDArray[np.int64]
    counts: NDArray[np.int64]


class CountingEngine(Protocol):
    """Counts the rows of one private table."""

    domain: Domain
    """Attributes and their numbers of codes."""

    def count_all(self, cliques: Sequence[Clique]) -> list[NDArray[np.int64]]:
        """The exact marginals over some cliques (rows), one axis per attribute, in one pass.

        Cliques are not empty. Counts are never released without noise. Threads may ask at the same
        time.
        """

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        """The same marginals by their occupied cells: less work where most cells are empty."""

    def count_rows(self) -> int:
        """The number of rows; private."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What every engine is told; nothing of it changes a count.

    Attributes:
        workers: threads that encode and count.
        rows_bytes: memory set aside for rows.
        check_rows: refuses more rows than can be counted.
        check_held: for engines that hold all rows in memory: refuses those that do not fit.
        temp_folder: where codes go that do not stay in memory; the system's folder for temporary
            files where it is None.
        scheduler: where the engine is to find its workers, for engines that have such.
    """

    workers: int = 1
    rows_bytes: int = 2**28
    check_rows: CheckRows | None = None
    check_held: CheckRows | None = None
    temp_folder: str | Path | None = None
    scheduler: Any = None


class EngineOpener(Protocol):
    """Makes an engine of a table: an entry of ``ENGINES``."""

    def __call__(
        self, source: Any, schema: Any, options: EngineOptions, progress: StepProgress | None
    ) -> AbstractContextManager[CountingEngine]:
        """Read and encode the table; leaving the context removes all that was kept of it.

        Args:
            source: the table, as for :func:`adaptive_qs.table.encode.read_table`.
            schema: a :class:`~adaptive_qs.table.schema.Schema` with no bins or values left open.
            options: of the engine.
            progress: counts what was read.

        Raises:
            InputError: the table cannot be read or does not fit the schema, or the engine does not
                take such a table.
            ResourceExceeded: it does not fit where the engine keeps it.
        """


DEFAULT_ENGINE = "auto"
_LOCAL = "adaptive_qs.table.engines.local"
ENGINES: Registry[EngineOpener] = Registry(
    {
        DEFAULT_ENGINE: f"{_LOCAL}:open_auto",
        "memory": f"{_LOCAL}:open_memory",
        "stream": f"{_LOCAL}:open_stream",
        "dask": "adaptive_qs.table.engines.dask:open_dask",
    }
)
"""The engines that ``--engine`` can name, each an :class:`EngineOpener`."""
CHECKS: Registry[Any] = Registry({"dask": "adaptive_qs.table.engines.dask:check_cluster"})
"""Checks of a table before it is read, for engines that opening on one row says little of."""
SCHEDULED = (DEFAULT_ENGINE, "dask")
"""Those that take a scheduler."""


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
    """The engine of that name on a table; see :class:`EngineOpener`.

    Raises:
        InputError: there is no such engine; as for the opener.
    """
    return ENGINES[check_choice("engine", name, ENGINES)](source, schema, options, progress)
