"""What the verdict is made from, computed once for all who show it."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict.column_pairs import ColumnPair, column_pairs
from adaptive_qs.evaluation.verdict.fates import Associations, associations
from adaptive_qs.evaluation.verdict.scale import WorkloadScale, workload_scale
from adaptive_qs.progress import StepProgress


@dataclass(frozen=True, eq=False)
class Findings:
    """An evaluation and what its numbers mean; owner only.

    Attributes:
        evaluation: of the tables.
        scale: of the workload's marginals.
        columns: every single column, the largest error first.
        fates: of the associations.
    """

    evaluation: Evaluation
    scale: WorkloadScale
    columns: tuple[ColumnPair, ...]
    fates: Associations


def findings(
    evaluation: Evaluation, workers: int = 1, progress: StepProgress | None = None
) -> Findings:
    """What an evaluation's numbers mean; no model is trained for it.

    Args:
        evaluation: of the tables.
        workers: threads; they change no result.
        progress: called with the marginals done and in all.
    """
    return Findings(
        evaluation,
        workload_scale(evaluation, workers, progress),
        tuple(column_pairs(evaluation.pair)),
        associations(evaluation),
    )
