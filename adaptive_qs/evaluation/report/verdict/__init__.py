"""The verdict: a few sentences made from the numbers by the rules in ``thresholds``."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.report.columns import ColumnPair
from adaptive_qs.evaluation.report.fates import Associations
from adaptive_qs.evaluation.report.release import ReleaseView
from adaptive_qs.evaluation.report.scale import WorkloadScale
from adaptive_qs.evaluation.report.verdict.attack import attack_sentence
from adaptive_qs.evaluation.report.verdict.closeness import marginals_sentence
from adaptive_qs.evaluation.report.verdict.columns import columns_sentence
from adaptive_qs.evaluation.report.verdict.copies import copies_sentence
from adaptive_qs.evaluation.report.verdict.dependence import dependence_sentence
from adaptive_qs.evaluation.report.verdict.models import models_sentence
from adaptive_qs.evaluation.report.verdict.next_steps import next_sentence
from adaptive_qs.evaluation.report.verdict.overall import overall_sentence
from adaptive_qs.evaluation.report.verdict.sentence import Sentence


def verdict(
    evaluation: Evaluation,
    scale: WorkloadScale,
    columns: Sequence[ColumnPair],
    fates: Associations,
    release: ReleaseView | None,
) -> list[Sentence]:
    """The worst of the findings in a word, all of them, and what to do now."""
    marginals = marginals_sentence(evaluation, scale)
    singles = columns_sentence(evaluation, columns)
    dependence = dependence_sentence(fates)
    attack = attack_sentence(evaluation.membership, release)
    copies = copies_sentence(evaluation)
    closeness = [("marginals", marginals), ("columns", singles), ("associations", dependence)]
    return [
        copies or overall_sentence(closeness, attack),
        marginals,
        singles,
        dependence,
        models_sentence(evaluation),
        attack,
        next_sentence(
            evaluation,
            fates,
            release.alone if release else (),
            far=marginals.grade == "poor",
            copied=copies is not None,
        ),
    ]
