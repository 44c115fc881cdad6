"""Memory planned before any budget is spent, and the ceilings that keep a run inside it."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.adaptive.loop import measurable_cliques
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES
from adaptive_qs.synthesis.rows import SynthesisSettings
from adaptive_qs.workload.workload import Workload

CLIQUE_BYTES = 1024
"""Bookkeeping of one clique of the workload's closure."""
SCORED_CELL_BYTES = 40
"""Counts, estimate and intermediate arrays of one cell of a marginal while it is scored."""
MEASURED_CELL_BYTES = 72
"""Estimate, component, target, weights and their copies for one cell of a measured clique."""
WATCHED_CELL_BYTES = 12
"""Mean, difference and one temporary for one cell of a watched marginal."""
CODE_BYTES = 8
"""One private value: its code and the counter's copy."""
SYNTHETIC_CODE_BYTES = 16
"""One synthetic value: the chains, their proposals, the table and its copy."""


@dataclass(frozen=True)
class MemoryPlan:
    """Planned peak memory and the ceilings that hold a run to it.

    Attributes:
        fixed_bytes: what every run on this table needs.
        total_bytes: planned peak at most.
        measured_cells: for :class:`LoopSettings`.
        watched_cells: for :class:`SynthesisSettings`.
    """

    fixed_bytes: int
    total_bytes: int
    measured_cells: int
    watched_cells: int


def plan_memory(
    domain: Domain, workload: Workload, num_rows: int, max_memory_bytes: int, workers: int
) -> MemoryPlan:
    """Divide the memory ceiling, or refuse.

    Args:
        domain: the attributes.
        workload: the marginals wanted.
        num_rows: most rows of the private and of the synthetic table. This number must be
            public: the ceilings it leaves steer what is measured.
        max_memory_bytes: the ceiling.
        workers: threads that score candidates, each with its own scratch memory.

    Raises:
        ResourceExceeded: the ceiling is too low; the message names the largest marginal.
    """
    candidates = measurable_cliques(workload)
    largest = max(candidates, key=domain.size, default=())
    cells = domain.size(largest)
    defaults = SynthesisSettings()
    fixed = (
        PROCESS_BYTES
        + len(workload.closure) * (CLIQUE_BYTES + len(domain))
        + workers * cells * SCORED_CELL_BYTES
        + num_rows * len(domain) * CODE_BYTES
        + max(num_rows, defaults.fewest_rows) * len(domain) * SYNTHETIC_CODE_BYTES
    )
    if fixed + cells * MEASURED_CELL_BYTES > max_memory_bytes:
        raise ResourceExceeded(_refusal(domain, largest, workers, fixed, max_memory_bytes))
    spare = max_memory_bytes - fixed
    watched = min(defaults.watched_cells, spare // 4 // WATCHED_CELL_BYTES)
    measured = max((spare - watched * WATCHED_CELL_BYTES) // MEASURED_CELL_BYTES, cells)
    # More cells than every candidate measured once are never needed.
    measured = min(measured, sum(map(domain.size, candidates)))
    total = fixed + measured * MEASURED_CELL_BYTES + watched * WATCHED_CELL_BYTES
    return MemoryPlan(fixed, min(total, max_memory_bytes), measured, watched)


def _refusal(
    domain: Domain, largest: Clique, workers: int, fixed: int, max_memory_bytes: int
) -> str:
    cells = domain.size(largest)
    marginal = cells * (MEASURED_CELL_BYTES + workers * SCORED_CELL_BYTES)
    needed = fixed + cells * MEASURED_CELL_BYTES
    message = (
        f"the plan needs {_megabytes(needed)} and the ceiling is {_megabytes(max_memory_bytes)}: "
        "raise --max-memory"
    )
    if 2 * marginal < needed:
        return message
    return (
        f"{message}, ask for fewer ways, or declare coarser bins; the largest marginal, over "
        f"{' x '.join(domain.clique_names(largest))}, has {cells:,} cells and takes "
        f"{_megabytes(marginal)} of it"
    )


def _megabytes(size: int) -> str:
    return f"{-(-size // 2**20):,} MB"
