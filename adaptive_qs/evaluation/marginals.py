"""How far the marginals of a synthetic table are from the true ones, overall and in groups."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation import scale as scaling
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.scale import CLOSENESS, DEVIATIONS, CliqueError, Scale, WorkloadScale
from adaptive_qs.evaluation.tables import JointCodes, TablePair, in_batches
from adaptive_qs.machine import StepProgress, njit, plan_workers
from adaptive_qs.pages.words import combination, count, counted, share, significant
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload


class Distance(NamedTuple):
    """Σ|a/N_a − b/N_b| and Σ(a/N_a − b/N_b)² over the cells of one marginal."""

    l1: float
    squares: float


Distances = Mapping[Clique, Distance]


def marginal_distances(
    joint: JointCodes,
    cliques: Iterable[Clique],
    workers: int = 1,
    progress: StepProgress | None = None,
) -> Distances:
    """Return the distances of marginals, counting each once; exactly 0 for equal tables.

    Time is linear in the rows, and each thread holds one marginal of at most ``MAX_DENSE_CELLS``
    cells.
    """
    distinct = tuple(dict.fromkeys(cliques))

    def distances(batch: Sequence[Clique]) -> list[Distance]:
        scratch = np.zeros(0, dtype=np.int64)
        found = []
        for clique in batch:
            cells, bound = joint.cells(clique)
            if bound > len(scratch):
                scratch = np.zeros(bound, dtype=np.int64)
            found.append(Distance(*_difference(cells, joint.true_rows, scratch)))
        return found

    return dict(zip(distinct, in_batches(distances, distinct, workers, progress)))


@njit(cache=True, nogil=True)
def _difference(cells, true_rows, scratch):  # type: ignore[no-untyped-def]
    """Return Σ|d| and Σd², with d = a/N_a − b/N_b computed as whole multiples of 1/(N_a·N_b).

    The scratch array is 0 before and after; only occupied cells are touched.
    """
    synthetic_rows = cells.size - true_rows
    for row in range(true_rows):
        scratch[cells[row]] += synthetic_rows
    for row in range(true_rows, cells.size):
        scratch[cells[row]] -= true_rows
    unit = 1.0 / (float(true_rows) * float(synthetic_rows))
    total, squares = 0.0, 0.0
    for row in range(cells.size):
        cell = cells[row]
        if scratch[cell] != 0:
            difference = abs(scratch[cell]) * unit
            total += difference
            squares += difference * difference
            scratch[cell] = 0
    return total, squares


@dataclass(frozen=True)
class WorkloadDistance:
    """Error in every marginal of a workload; owner only.

    Attributes:
        per_clique: one entry for each marginal, in the workload's order.
    """

    per_clique: tuple[CliqueError, ...]

    @cached_property
    def mean_l1(self) -> float:
        """Mean of the errors, weighted as the workload is."""
        weights = np.array([clique.weight for clique in self.per_clique])
        return float(np.average([clique.l1 for clique in self.per_clique], weights=weights))

    @cached_property
    def max_l1(self) -> float:
        """The largest error."""
        return max(clique.l1 for clique in self.per_clique)

    @cached_property
    def rmse(self) -> float:
        """√(Σ weight · squared error / queries) over every cell of every marginal, in shares.

        ``plan`` forecasts it for marginal queries, in rows.
        """
        queries = sum(clique.cells for clique in self.per_clique)
        squares = (clique.weight * clique.cells * clique.rmse**2 for clique in self.per_clique)
        return math.sqrt(math.fsum(squares) / queries)


def workload_error(
    true: CodedTable,
    synthetic: CodedTable,
    workload: Workload,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> WorkloadDistance:
    """Return the errors of the normalised marginals of a synthetic table, clique by clique.

    Raises:
        DataError: the tables and the workload have different domains, or a table has no rows.
        InputError: workers is no positive integer.
    """
    threads = plan_workers(workers)
    pair = TablePair(true, synthetic)
    if pair.domain != workload.domain:
        raise DataError("the tables have different attributes: encode both with one schema")
    found = marginal_distances(JointCodes(pair), workload.cliques, threads, progress)
    return workload_distance(workload, found)


def workload_distance(workload: Workload, found: Distances) -> WorkloadDistance:
    """Return the errors of a workload from its distances."""
    domain, errors = workload.domain, []
    for clique, weight in workload.weights.items():
        (l1, squares), cells = found[clique], domain.size(clique)
        names = domain.clique_names(clique)
        errors.append(CliqueError(names, l1, math.sqrt(squares / cells), cells, weight))
    return WorkloadDistance(tuple(errors))


MOST_CELLS, MOST_MARGINALS = 2**25, 10_000
"""Maximum number of cells and of marginals that are counted for the scale: an even sample."""
LARGEST = 2**22
"""Maximum number of cells of a marginal that is counted for the scale."""


def workload_scale(comparison: Comparison, cliques: Sequence[CliqueError]) -> WorkloadScale:
    """Return the errors that a fresh sample and independent columns would have in marginals."""
    pair, workers, (n, m) = comparison.pair, comparison.workers, comparison.rows
    small = [c for c in cliques if c.cells <= LARGEST]
    steps = sum(c.cells for c in small) / MOST_CELLS, len(small) / MOST_MARGINALS
    chosen = small[:: max(1, math.ceil(max(steps)))]
    counter = MarginalCounter(pair.true, workers=workers)
    counter.prepare(pair.domain.clique(error.attributes) for error in chosen)
    shares = [counts / n for counts in pair.margins[0]]

    def scale(error: CliqueError) -> Scale:
        clique = pair.domain.clique(error.attributes)
        counts = counter.count(clique)
        independent = scaling.independent_l1(counts, [shares[i] for i in clique], m)
        sparse = scaling.sparse_share(counts)
        chance = scaling.chance_l1(n, m, sparse, DEVIATIONS)  # there are many marginals
        return Scale(scaling.fresh_sample_l1(counts, m), independent, sparse, chance)

    progress = comparison.steps("verdict")
    scales = in_batches(lambda batch: [*map(scale, batch)], chosen, workers, progress)
    return scaling.scale_over(cliques, {e.attributes: s for e, s in zip(chosen, scales)}, (n, m))


MARGINALS_SHOWN = 200
"""Maximum number of marginals on the page."""
MARGINAL_COLUMNS = (
    checks.COLUMNS,
    checks.number("cells", count),
    *(checks.number(h, significant) for h in ("L1 error", "fresh sample", "independent columns")),
)
"""Columns of a table of marginals."""


def marginal_rows(errors: Iterable[CliqueError], scale: WorkloadScale) -> list[tuple[Any, ...]]:
    """Return the rows of a table of marginals; errors to compare with are None if not known."""
    compared = ((error, scale.per_clique.get(error.attributes)) for error in errors)
    return [
        (e.attributes, e.cells, e.l1, *((s.fresh, s.independent) if s else (None, None)))
        for e, s in compared
    ]


class MarginalsCheck(Check):
    """How far the marginals of the workload are off."""

    name, title, about = "workload", "Marginals of the workload", "marginals"
    uses, shown = ("the requested counts",), "always"
    rules = (Word("no scale", "plain", lambda error: not error.known), *CLOSENESS)

    def measure(self, comparison: Comparison) -> WorkloadDistance:
        steps, cliques = comparison.steps("evaluate"), comparison.marginals.cliques
        found = marginal_distances(comparison.joint, cliques, comparison.workers, steps)
        return workload_distance(comparison.marginals, found)

    def judge(self, facts: WorkloadDistance, evaluation: Any) -> Finding:
        """Place the mean error between a fresh sample and independent columns."""
        scale: WorkloadScale = evaluation.scale
        grade, word = self.word_for(scale.place)
        advice = ("Coarser columns, a smaller workload or more budget would improve most.",)
        return Finding(
            grade, word, marginals_sentence(facts, scale, evaluation),
            figures=self._figures(facts, scale), advice=advice * (grade == "poor"),
        )  # fmt: skip

    def _figures(self, facts: WorkloadDistance, scale: WorkloadScale) -> tuple[checks.Figure, ...]:
        lines = (
            ("mean", f"{facts.mean_l1:.4f}"),
            ("largest", f"{facts.max_l1:.4f}"),
            ("RMSE", f"{significant(facts.rmse)} of the rows, over all cells"),
        )
        worst = sorted(facts.per_clique, key=lambda c: (-c.l1, c.attributes))[:MARGINALS_SHOWN]
        rows = [(*row, c.rmse) for row, c in zip(marginal_rows(worst, scale), worst)]
        caption = "Marginals, the worst first: L1 error from 0 (equal) to 2 (disjoint)"
        if len(worst) < len(facts.per_clique):
            caption += f". Showing {len(worst)} of {len(facts.per_clique):,}; --json has all"
        columns = (*MARGINAL_COLUMNS, checks.number("RMSE of a cell", share))
        return checks.Facts(lines), checks.Table(caption, columns, rows)

    def as_json(self, facts: WorkloadDistance) -> Mapping[str, Any]:
        return {"per_clique": facts.per_clique}


def marginals_sentence(facts: WorkloadDistance, scale: WorkloadScale, evaluation: Any) -> str:
    """Return how close the workload's marginals are, and on which scale."""
    subject = f"The {counted(len(facts.per_clique), 'requested marginal').removeprefix('1 ')}"
    if evaluation.queries is not None:
        subject = subject.replace("requested ", "") + " of the requested columns"
    differ = "differs" if len(facts.per_clique) == 1 else "differ"
    text = (
        f"{subject} {differ} by {significant(facts.mean_l1)} on average: "
        f"{share(facts.mean_l1 / 2)} of the rows would have to move to another cell."
    )
    if not scale.per_clique:
        return f"{text} They are too large for a comparison."
    if not scale.all:
        text += (
            f" {len(scale.per_clique):,} of them, with mean error {significant(scale.l1)}, give "
        )
        text += "the scale."
    other = counted(evaluation.pair.synthetic.num_rows, "other row")
    text += f" For comparison: {other} of the same population (a fresh sample) would differ by "
    text += f"about {significant(scale.fresh)}{describe_place(scale)}"
    if scale.gone and len(scale.per_clique) > 1:
        names = [combination(attributes) for attributes in scale.gone]
        are = "marginal is" if len(names) == 1 else "marginals are"
        text += f" {len(names):,} {are} as far off as independent columns: "
        text += f"{checks.named(names, most=checks.FEW_NAMED)}."
    return text


def describe_place(scale: WorkloadScale) -> str:
    """Return the end of a sentence on the error of independent columns and of the table."""
    if scale.vacuous:
        return (
            ". The cells hold so few rows that chance alone can make any difference, so no grade "
            "is given. Coarser bins or more rows would say more."
        )
    if not scale.known:
        return (
            f". {share(scale.sparse, 2)} of the true rows lie in cells of fewer than {scaling.FEW} "
            "rows. Chance decides most of such an error, so no grade is given. Coarser bins, fewer "
            "columns at a time or more rows would say more."
        )
    independent = f", a table with independent columns by {significant(scale.independent)}"
    return f"{independent if scale.joint else ''}{scale.place}"
