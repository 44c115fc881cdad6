"""The verdict: a few sentences made from the numbers by the rules in ``thresholds``."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.report.columns import ColumnPair
from adaptive_qs.evaluation.report.fates import Associations
from adaptive_qs.evaluation.report.release import ReleaseView
from adaptive_qs.evaluation.report.scale import WorkloadScale
from adaptive_qs.evaluation.report.verdict.attack import attack_sentence
from adaptive_qs.evaluation.report.verdict.closeness import dependence_sentence, marginals_sentence
from adaptive_qs.evaluation.report.verdict.copies import copies_sentence
from adaptive_qs.evaluation.report.verdict.models import models_sentence
from adaptive_qs.evaluation.report.verdict.next_steps import next_sentence
from adaptive_qs.evaluation.report.verdict.sentence import Sentence


def verdict(
    evaluation: Evaluation,
    scale: WorkloadScale,
    columns: Sequence[ColumnPair],
    fates: Associations,
    release: ReleaseView | None,
) -> list[Sentence]:
    """All findings, and what to do now."""
    marginals = marginals_sentence(evaluation, scale)
    copies = copies_sentence(evaluation)
    return [
        *([copies] if copies else []),
        marginals,
        dependence_sentence(fates, columns),
        models_sentence(evaluation),
        attack_sentence(evaluation.membership, release),
        next_sentence(
            evaluation,
            fates,
            release.alone if release else (),
            far=marginals.grade == "poor",
            copied=copies is not None,
        ),
    ]
