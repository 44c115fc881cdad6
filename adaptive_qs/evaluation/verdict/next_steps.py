"""What to do now."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict import Verdict
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.findings import Findings
from adaptive_qs.evaluation.verdict.models import why_no_models
from adaptive_qs.evaluation.verdict.sentence import Sentence, named
from adaptive_qs.pages.names import combination, quoted

MOST_STEPS = 4
"""Steps that are named at most."""


def next_sentence(found: Findings, judged: Verdict, alone: Sequence[str]) -> Sentence:
    """What to do now.

    Args:
        found: what the numbers mean.
        judged: the verdict on it.
        alone: columns of which no combination was measured.
    """
    evaluation = found.evaluation
    steps = []
    links: tuple[tuple[str, str], ...] = ()
    if judged.copied:
        steps.append("find out why so many synthetic rows equal true ones, before anything else")
    if alone:
        names, links = named([quoted(name) for name in alone], "alone")
        together = "" if len(alone) == 1 else f"any of {len(alone):,} columns ("
        steps.append(
            f"no combination with {together}{names}{')' if together else ''} was measured: give "
            "coarser bins or fewer values, or more budget"
        )
    if judged.marginals.grade == "poor":
        steps.append("coarser columns, a smaller workload or more budget would bring most")
    if found.fates.alone and not alone:
        names, more = named([quoted(name) for name in found.fates.alone], "cut-off")
        steps.append(
            f"where what depends on {names} matters, give coarser codes, fewer columns, or a "
            "workload of little else"
        )
        links += more
    elif gone := _lost_most(found):
        steps.append(
            f"where {combination(gone)} matters, give coarser codes, or a workload of little else"
        )
    broken = broken_rules(evaluation)
    if broken:
        names, more = named([quoted(rule) for rule in broken], "rules")
        steps.append(f"mend or warn of rows that break {names}")
        links += more
    if evaluation.utility is None and why_no_models(evaluation) is None:
        steps.append("name a target to learn what models lose")
    if evaluation.membership is None:
        steps.append("give a control table to try an attack")
    if not steps and judged.overall.grade in ("good", "plain"):
        steps.append("use the table for what the workload names; check other questions first")
    elif not steps:
        steps.append("use the table for nothing that the lines above name as lost or far off")
    text = "; ".join(steps[:MOST_STEPS])
    links = tuple(link for link in links if link[0] in text)
    return Sentence("plain", "next", text[0].upper() + text[1:] + ".", links)


def _lost_most(found: Findings) -> tuple[str, ...]:
    """The columns of the association or marginal whose loss is worst; empty where none is lost."""
    lost = [*found.fates.lost, *found.fates.weak_lost]
    marginals = [*(fate.names for fate in lost[:1]), *found.scale.gone]
    return marginals[0] if marginals else ()


def broken_rules(evaluation: Evaluation) -> list[str]:
    """Rules that synthetic rows break clearly more often than true ones, the most broken first."""
    broken = [r for r in evaluation.rules if r.broken_synthetic - r.broken_true >= limit.BROKEN]
    return [r.rule for r in sorted(broken, key=lambda r: -r.broken_synthetic)]
