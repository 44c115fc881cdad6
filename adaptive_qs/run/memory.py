"""What a run of the loop takes: memory, candidates that are looked at, and time."""

import math
from dataclasses import dataclass
from typing import Self

from adaptive_qs.cliques import MOST_FORMED
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.generate.exact import can_fit
from adaptive_qs.generate.rows import PAGE_CODES, SynthesisSettings
from adaptive_qs.loop.candidates import measurable_cliques
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, memory_bytes
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.table.coded import CODE_BYTES, KEPT_CELLS, MAX_ROWS
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.limit import Ceilings, DroppedMarginals, limited
from adaptive_qs.workload.workload import Workload

CLIQUE_BYTES = 4096
"""Bookkeeping of one clique of the workload's closure, at the most."""
SCORED_CELL_BYTES = 40
"""Counts, estimate and intermediate arrays of one cell of a marginal while it is scored."""
MEASURED_CELL_BYTES = 72
"""Estimate, component, target, weights and their copies for one cell of a measured clique."""
WATCHED_CELL_BYTES = 12
"""Mean, difference and one temporary for one cell of a watched marginal."""
RULED_CELL_BYTES, RULED_AXIS_BYTES = 32, 4
"""Weight, target and masks of one cell of the columns of a rule, and its copy for each column."""
SYNTHETIC_CODE_BYTES = 16
"""One value of a synthetic table that is held as a whole: its code, and the value decoded."""
FITTED_CODE_BYTES = 24
"""One value of the chains: their state, its proposals and a page with its decoded values."""


SCORING_THREADS = 4
"""Threads that the memory is planned for: what is measured and left out is the same for any number
of them. More of them score where there is room."""
KEPT_CELL_BYTES = 12
"""One cell of a counted marginal that is kept, with the count from which it was taken over."""
MOST_KEPT_CELLS = 2**26
"""More counts are not kept: they are sparse, and to count them again is as quick."""

# A scoring pass looks at every candidate once: it projects its estimate, and compares it with the
# rows. Processor seconds, measured on two cores of a server of 2024 (the script
# ``scripts/speed/benchmark_columns.py``); other machines differ by a factor, not by their order.

CANDIDATE_SECONDS, CELL_SECONDS = 2e-5, 2.5e-9
"""Processor seconds of a pass for one candidate and one cell of it."""
START_SECONDS, COLUMN_SECONDS, MEASURED_SECONDS, FITTED_SECONDS = 1.5, 0.14, 0.025, 6.6e-7
READ_SECONDS, WRITTEN_SECONDS = 3e-8, 3.5e-7
"""Processor seconds of a whole run: to start, by column, by measured marginal, by cell that is seen
of the candidates, by value that is read, and by value that is drawn and written. Least squares over
26 runs of ten tables of 7,634 to 10^8 rows. Left out of it, 25 of the 26 were within
a factor of 2."""
RESCORED = 0.26
"""Scoring passes of as many candidates as there are, for each measured marginal and in a table of
few columns, with what planning takes."""
SEEN_CELLS = MOST_FORMED
"""Cells of a candidate beyond which more take no more time."""
DEFAULT_CANDIDATES = 250_000
"""Candidates of several columns, if not said otherwise: over a table of a million rows they are
scored in about five minutes of one core."""
DEFAULT_CELLS = 2**39
"""Cells of all candidates, if not said otherwise: two million for each of the others."""


@dataclass(frozen=True)
class _Candidates:
    """The marginals of a workload that may be measured, and the memory that looking at them takes.

    Attributes:
        closure: marginals of the workload and all inside them, of which something is kept.
        number: of candidates, single columns among them.
        cells: of all of them together.
        largest: the one with most cells, empty if there are none.
        seen_cells: as ``cells``, of each at most ``SEEN_CELLS``.
    """

    attributes: int
    closure: int
    number: int
    cells: int
    largest: Clique
    largest_cells: int
    seen_cells: int

    @classmethod
    def of(cls, workload: Workload) -> Self:
        domain, cliques = workload.domain, measurable_cliques(workload)
        sizes = [domain.size(clique) for clique in cliques]
        most = max(sizes, default=1)
        largest = cliques[sizes.index(most)] if sizes else ()
        seen = sum(min(size, SEEN_CELLS) for size in sizes)
        return cls(len(domain), len(workload.closure), len(sizes), sum(sizes), largest, most, seen)

    def bytes(self, kept_cells: int) -> int:
        """Memory besides the process and the rows, if some cells of counts are kept."""
        return (
            self.closure * (CLIQUE_BYTES + self.attributes)
            + self.largest_cells * SCORING_THREADS * SCORED_CELL_BYTES
            + min(self.cells, kept_cells) * KEPT_CELL_BYTES
        )


def scored_bytes(workload: Workload, kept_cells: int = MOST_KEPT_CELLS) -> tuple[int, int, int]:
    """Return how many candidates and cells of them there are, and the memory to look at them.

    Single columns are among them. Some counts are kept; rows and what is measured take more.
    """
    found = _Candidates.of(workload)
    return found.number, found.cells, PROCESS_BYTES + found.bytes(kept_cells)


def run_seconds(workload: Workload, rows: int, measured: int) -> float:
    """Estimate the processor seconds of a run by the number of marginals that it measures.

    About ``rows`` rows are read, and as many drawn and written. Rules and sets of tables take more.
    """
    found, domain = _Candidates.of(workload), workload.domain
    seconds = START_SECONDS + rows * len(domain) * (READ_SECONDS + WRITTEN_SECONDS)
    if can_fit(domain, measurable_cliques(workload), SynthesisSettings().exact_cells):
        return seconds
    order = max(map(len, workload.cliques), default=1)
    again = min(2 * order / len(domain), 1.0)  # part of the candidates that a round changes
    scoring = found.number * CANDIDATE_SECONDS + found.seen_cells * CELL_SECONDS
    seconds += measured * (MEASURED_SECONDS + RESCORED * again * scoring)
    return seconds + len(domain) * COLUMN_SECONDS + found.seen_cells * FITTED_SECONDS


def keep_what_fits(
    workload: Workload,
    num_rows: int,
    max_memory_bytes: int,
    max_candidates: int | None = None,
    max_cells: int | None = None,
) -> tuple[Workload, DroppedMarginals | None]:
    """Return the marginals that fit the ceilings, by :func:`limited`, and what is dropped.

    If :func:`plan_memory` refuses, fewer marginals are kept. The largest number of marginals of
    several columns is by default ``DEFAULT_CANDIDATES``, that of their cells together
    ``DEFAULT_CELLS``.
    """
    domain = workload.domain
    ceilings = Ceilings(max_candidates or DEFAULT_CANDIDATES, max_cells or DEFAULT_CELLS)
    kept, left = limited(workload, ceilings)
    try:
        plan_memory(kept, num_rows, max_memory_bytes)
    except ResourceExceeded:
        each = CLIQUE_BYTES + len(domain)
        spare = max_memory_bytes - _table_bytes(domain, num_rows)
        spare -= (1 + len(domain)) * each + KEPT_CELLS * KEPT_CELL_BYTES
        fitting = min(ceilings.candidates, spare // 2 // each)
        cell_bytes = MEASURED_CELL_BYTES + SCORING_THREADS * SCORED_CELL_BYTES
        largest = (spare - fitting * each) // cell_bytes
        if fitting > 0 and largest > 0:
            by = "max-candidates" if fitting == ceilings.candidates else "max-memory"
            return limited(workload, Ceilings(fitting, ceilings.cells, largest, by))
    return kept, left


def fit_bytes(attributes: int) -> int:
    """Memory of fitting the model and of the pages that are drawn at the same time."""
    return SynthesisSettings().fit_rows * attributes * FITTED_CODE_BYTES + PAGE_CODES * 24


@dataclass(frozen=True)
class MemoryPlan:
    """Planned peak memory and the ceilings that hold a run to it.

    Attributes:
        fixed_bytes: what every run on this table needs.
        total_bytes: planned peak at most.
        kept_cells: for :meth:`MarginalCounter.keep_up_to`.
    """

    fixed_bytes: int
    total_bytes: int
    measured_cells: int
    watched_cells: int
    kept_cells: int
    scoring_threads: int


def _table_bytes(domain: Domain, num_rows: int) -> int:
    return PROCESS_BYTES + num_rows * len(domain) * CODE_BYTES + fit_bytes(len(domain))


def rule_bytes(schema: Schema) -> int:
    """Return the memory of the cells that rules leave to their columns, hours and weekdays."""
    rules = schema.ruleset
    sizes = {c.names: c.allowed.size for c in (*rules.cells, *rules.ties)} if rules else {}
    return sum(n * (RULED_CELL_BYTES + RULED_AXIS_BYTES * len(k)) for k, n in sizes.items())


def plan_memory(
    workload: Workload, num_rows: int, max_memory_bytes: int, ruled: int = 0
) -> MemoryPlan:
    """Divide the memory ceiling, or raise ResourceExceeded, which names the largest marginal.

    The largest number of rows of the private table must be public: the ceilings that it leaves
    steer what is measured. ``ruled`` is what :func:`rule_bytes` returns.
    """
    domain, candidates = workload.domain, _Candidates.of(workload)
    cells = candidates.largest_cells
    table = _table_bytes(domain, num_rows) + ruled
    fixed = table + candidates.bytes(KEPT_CELLS)
    if fixed + cells * MEASURED_CELL_BYTES > max_memory_bytes:
        needed = fixed + cells * MEASURED_CELL_BYTES
        others = needed - num_rows * len(domain) * CODE_BYTES
        needed = max(needed, math.ceil(others / (1 - ROWS_SHARE)))  # as rows get a share of it
        raise ResourceExceeded(
            _refusal(domain, candidates.largest, needed, max_memory_bytes, ruled)
        )
    spare = max_memory_bytes - fixed
    room = (spare - cells * MEASURED_CELL_BYTES) // 4 // KEPT_CELL_BYTES
    kept = min(candidates.cells, max(KEPT_CELLS, min(MOST_KEPT_CELLS, KEPT_CELLS + room)))
    fixed = table + candidates.bytes(kept)
    spare = max_memory_bytes - fixed
    watched = min(SynthesisSettings().watched_cells, spare // 4 // WATCHED_CELL_BYTES)
    measured = max((spare - watched * WATCHED_CELL_BYTES) // MEASURED_CELL_BYTES, cells)
    # More cells than every candidate measured once are never needed.
    measured = min(measured, candidates.cells)
    total = fixed + measured * MEASURED_CELL_BYTES + watched * WATCHED_CELL_BYTES
    more = max(0, max_memory_bytes - total) // (cells * SCORED_CELL_BYTES)
    total = min(total, max_memory_bytes)
    return MemoryPlan(fixed, total, measured, watched, kept, SCORING_THREADS + more)


def _refusal(
    domain: Domain, largest: Clique, needed: int, max_memory_bytes: int, ruled: int
) -> str:
    def megabytes(size: int) -> str:
        return f"{-(-size // 2**20):,} MB"

    cells = domain.size(largest)
    marginal = cells * (MEASURED_CELL_BYTES + SCORING_THREADS * SCORED_CELL_BYTES)
    message = (
        f"The run needs {megabytes(needed)}; --max-memory allows {megabytes(max_memory_bytes)}. "
        "Raise --max-memory"
    )
    if ruled > marginal:
        return f"{message}, or declare coarser bins: the rules take {megabytes(ruled)} of it."
    if 2 * marginal < needed:
        return f"{message}."
    return (
        f"{message}, use fewer ways or coarser bins. The largest marginal, over "
        f"{' x '.join(domain.clique_names(largest))}, has {cells:,} cells and takes "
        f"{megabytes(marginal)} of it."
    )


def check_sample_rows(
    release: ReleaseSet, num_rows: int | None, max_memory: int | str | None, held: bool = True
) -> None:
    """Refuse synthetic tables that do not fit the memory, with the process and the fit.

    Args:
        release: What they are drawn from.
        num_rows: Rows of the root; None for their noisy number.
        max_memory: Ceiling of the process's memory.
        held: Whether whole tables are held in memory; they are drawn page by page otherwise.

    Raises:
        InputError: The ceiling is not a positive size.
        ResourceExceeded: A table does not fit, or has more than ``MAX_ROWS`` rows.
    """
    for name, rows in release.count_rows(num_rows).items():
        schema, whole = release.tables[name].schema, held or release.schema.is_set
        ruled = rule_bytes(schema)
        check_table_rows(max(rows, 1), len(schema.columns), max_memory, whole, ruled)


def check_table_rows(
    num_rows: int, attributes: int, max_memory: int | str | None, held: bool = True, ruled: int = 0
) -> None:
    """Refuse a synthetic table that does not fit the memory, as :func:`check_sample_rows` does."""
    ceiling = memory_bytes(max_memory)
    table = num_rows * attributes * SYNTHETIC_CODE_BYTES if held else 0
    needed = PROCESS_BYTES + fit_bytes(attributes) + ruled + table
    if num_rows > MAX_ROWS:
        raise ResourceExceeded(f"a table has at most {MAX_ROWS:,} rows: request fewer")
    if needed > ceiling:
        raise ResourceExceeded(
            f"{num_rows:,} rows of {attributes} columns need about {needed + 2**19 >> 20:,} MB, "
            f"more than the {ceiling / 2**20:,.0f} MB there are: "
            + ("request fewer rows or " if needed - table <= ceiling else "")
            + "raise --max-memory"
        )
