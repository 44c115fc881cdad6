"""Threads and memory of a run, decided from public quantities before anything is read.

The number of private rows must not steer what is measured. So a fixed part of the memory is set
aside for rows: the plan uses the number of rows that fit there, and a table that has more is
refused before any budget is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, memory_bytes
from adaptive_qs.table.coded import MAX_ROWS


@dataclass(frozen=True)
class Limits:
    """Ceilings that keep a run inside its memory; public.

    Attributes:
        max_memory_bytes: the ceiling of the whole process.
        workers: threads.
        most_rows: most rows of the private table and of a synthetic one.
        countable_rows: most rows whatever the memory.
        measured_cells: most cells of all measured cliques of the loop together.
        watched_cells: most cells of the marginals watched while a table is refined.
    """

    max_memory_bytes: int
    workers: int
    most_rows: int
    countable_rows: int = MAX_ROWS
    measured_cells: int = 0
    watched_cells: int = 0

    @classmethod
    def of(
        cls,
        domain: Domain,
        max_memory: int | str | None,
        workers: int,
        value_bytes: int,
        countable_rows: int = MAX_ROWS,
    ) -> Self:
        """Divide the memory between rows and the rest.

        Args:
            domain: the attributes.
            max_memory: the ceiling in bytes or as text such as "3GB"; None takes three quarters of
                the machine's memory.
            workers: threads.
            value_bytes: memory of one value of a row.
            countable_rows: most rows whatever the memory.

        Raises:
            InputError: a ceiling that is not positive.
        """
        ceiling = memory_bytes(max_memory)
        fitting = int(ROWS_SHARE * ceiling) // (len(domain) * value_bytes)
        return cls(ceiling, workers, min(max(fitting, 1), countable_rows), countable_rows)

    @property
    def rows_bytes(self) -> int:
        """What is set aside for rows."""
        return int(ROWS_SHARE * self.max_memory_bytes)

    @property
    def solver_bytes(self) -> int:
        """Most memory that one problem may take while others are solved beside it."""
        return max(0, self.max_memory_bytes - PROCESS_BYTES) // self.workers

    def check_rows(self, num_rows: int, what: str = "the table") -> None:
        """Refuse a table that does not fit the memory set aside for rows.

        Args:
            num_rows: rows of the table, private.
            what: the table, in public words.

        Raises:
            ResourceExceeded: it does not; the message does not tell how many rows came.
        """
        if num_rows > self.countable_rows:
            raise ResourceExceeded(
                f"{what} has more than {self.countable_rows:,} rows, the most that can be "
                "measured: give a part of it"
            )
        if num_rows > self.most_rows:
            raise ResourceExceeded(
                f"{what} has more rows than the {self.most_rows:,} that fit a quarter of "
                f"{self.max_memory_bytes / 2**20:,.0f} MB: raise --max-memory"
            )
