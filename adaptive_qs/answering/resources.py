"""Memory and threads of a batch, divided in public before anything is read.

A fixed part of the ceiling is set aside for rows, since their number is private and must not steer
the plan; a table that has more than fit there is refused before any budget is spent.
"""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.adaptive.resources import CODE_BYTES
from adaptive_qs.answering.forecast import Forecast
from adaptive_qs.answering.measure import MAX_ROWS
from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, memory_bytes, plan_workers, refuse_rows


@dataclass(frozen=True)
class BatchLimits:
    """Ceilings that keep planning and answering inside their memory; public.

    Attributes:
        max_memory_bytes: the ceiling of the whole process.
        jobs: threads that solve.
        most_rows: most rows of the private table.
    """

    max_memory_bytes: int
    jobs: int
    most_rows: int

    @classmethod
    def of(
        cls, domain: Domain, max_memory: int | str | None = None, jobs: int | None = None
    ) -> BatchLimits:
        """The limits by a ceiling such as "3GB" and a number of threads; None takes the machine's.

        Raises:
            InputError: a ceiling or a number of threads that is not positive.
        """
        ceiling = memory_bytes(max_memory)
        rows = int(ROWS_SHARE * ceiling) // (len(domain) * CODE_BYTES)
        return cls(ceiling, plan_workers(jobs, "jobs"), min(max(rows, 1), MAX_ROWS))

    @property
    def solver_bytes(self) -> int:
        """Most memory that one subworkload may take while others are solved beside it."""
        return max(0, self.max_memory_bytes - PROCESS_BYTES) // self.jobs

    def check_rows(self, num_rows: int) -> None:
        """Refuse a table that does not fit the memory set aside for rows.

        Raises:
            ResourceExceeded: it does not; the message does not tell how many rows came.
        """
        if num_rows > MAX_ROWS:
            raise ResourceExceeded(
                f"the table has more than {MAX_ROWS:,} rows, the most that can be measured: "
                "give a part of it"
            )
        refuse_rows(num_rows, self.most_rows, self.max_memory_bytes, "the table")

    def check_forecast(self, forecast: Forecast) -> None:
        """Refuse a plan that does not fit beside the rows.

        Raises:
            ResourceExceeded: it does not.
        """
        left = self.max_memory_bytes * (1 - ROWS_SHARE)
        if forecast.memory_bytes <= left:
            return
        mend = f"ask for less than {forecast.largest_set:,} queries about one set of attributes"
        if 2 * forecast.strategy_bytes > forecast.memory_bytes:
            mend = "use --mechanism residualplanner, or declare coarser bins"
        raise ResourceExceeded(
            f"answering needs about {forecast.memory_bytes / 2**20:,.0f} MB beside the table and "
            f"three quarters of --max-memory are {left / 2**20:,.0f} MB: raise it, or {mend}"
        )
