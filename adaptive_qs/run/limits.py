"""Threads and memory of a run, decided from public quantities before anything is read.

The number of private rows must not steer what is measured. So a fixed part of the memory is set
aside for rows: the plan uses the number of rows that fit there, and a table that has more is
refused before any budget is spent.
"""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.loop.forecast import CODE_BYTES, SYNTHETIC_CODE_BYTES, plan_memory
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, memory_bytes, plan_workers, refuse_rows
from adaptive_qs.table.coded import MAX_ROWS
from adaptive_qs.workload.workload import Workload


@dataclass(frozen=True)
class RunPlan:
    """Ceilings that keep a run inside its memory; public.

    Attributes:
        max_memory_bytes: the ceiling of the whole process.
        workers: threads.
        measured_cells: most cells of all measured cliques together.
        watched_cells: most cells of the marginals watched while a table is refined.
        most_rows: most rows of the private table and of a synthetic one.
    """

    max_memory_bytes: int
    workers: int
    measured_cells: int
    watched_cells: int
    most_rows: int

    def check_rows(self, num_rows: int, what: str = "the table") -> None:
        """Refuse a table that does not fit the memory set aside for rows.

        Raises:
            ResourceExceeded: it does not; the message does not tell how many rows came.
        """
        refuse_rows(num_rows, self.most_rows, self.max_memory_bytes, what)


def check_sample_rows(num_rows: int, attributes: int, max_memory: int | str | None) -> None:
    """Refuse a synthetic table that does not fit the memory.

    Besides the table itself there is the process, and the model is fitted with a certain number of
    rows however few are wanted.

    Raises:
        InputError: the ceiling is not a positive size.
        ResourceExceeded: it does not fit.
    """
    ceiling = memory_bytes(max_memory)
    fitted_rows = max(num_rows, SynthesisSettings().fewest_rows)
    needed = PROCESS_BYTES + fitted_rows * attributes * SYNTHETIC_CODE_BYTES
    if needed > ceiling:
        raise ResourceExceeded(
            f"{num_rows:,} rows of {attributes} columns need about {needed + 2**19 >> 20:,} MB, "
            f"more than the {ceiling / 2**20:,.0f} MB there are: "
            + ("ask for fewer rows or " if num_rows == fitted_rows else "")
            + "raise --max-memory"
        )


def plan_run(
    domain: Domain, workload: Workload, max_memory: int | str | None, workers: int | None
) -> RunPlan:
    """Divide the memory, or refuse.

    Args:
        domain: the attributes.
        workload: the marginals wanted.
        max_memory: the ceiling in bytes or as text such as "3GB"; None takes three quarters of
            the machine's memory.
        workers: threads; None takes one for every core.

    Raises:
        InputError: a ceiling or a number of workers that is not positive.
        ResourceExceeded: the workload does not fit.
    """
    threads = plan_workers(workers)
    ceiling = memory_bytes(max_memory)
    most_rows = int(ROWS_SHARE * ceiling) // (len(domain) * (CODE_BYTES + SYNTHETIC_CODE_BYTES))
    most_rows = min(max(most_rows, 1), MAX_ROWS)
    plan = plan_memory(domain, workload, most_rows, ceiling, threads)
    return RunPlan(ceiling, threads, plan.measured_cells, plan.watched_cells, most_rows)
