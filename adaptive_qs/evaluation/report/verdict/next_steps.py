"""What to do now."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.report import thresholds as limit
from adaptive_qs.evaluation.report.fates import Associations
from adaptive_qs.evaluation.report.verdict.models import why_no_models
from adaptive_qs.evaluation.report.verdict.sentence import Sentence
from adaptive_qs.pages.names import combination, listed, quoted


def next_sentence(
    evaluation: Evaluation,
    fates: Associations,
    alone: Sequence[str],
    *,
    far: bool,
    copied: bool,
) -> Sentence:
    """What to do now.

    Args:
        evaluation: of the tables.
        fates: of the associations.
        alone: columns of which no combination was measured.
        far: whether the workload's marginals are.
        copied: whether synthetic rows look like copies of true ones.
    """
    steps = []
    if copied:
        steps.append("find out why so many synthetic rows equal true ones, before anything else")
    if alone:
        steps.append(
            f"no combination with {listed([quoted(name) for name in alone])} was measured: give "
            "coarser bins or fewer values, or more budget"
        )
    if far:
        steps.append("coarser columns, a smaller workload or more budget would bring most")
    lost = fates.lost
    if lost:
        steps.append(
            f"raise the weight of {combination(lost[0])} in the workload if it matters to you"
        )
    broken = [
        r.rule for r in evaluation.rules if r.broken_synthetic - r.broken_true >= limit.BROKEN
    ]
    if broken:
        steps.append(f"mend or warn of rows that break {listed([quoted(r) for r in broken], 3)}")
    if evaluation.utility is None and why_no_models(evaluation) is None:
        steps.append("name a target to learn what models lose")
    if evaluation.membership is None:
        steps.append("give a control table to try an attack")
    if not steps:
        steps.append("use the table for what the workload names; check other questions first")
    text = "; ".join(steps[:4])
    return Sentence("plain", "next", text[0].upper() + text[1:] + ".")
