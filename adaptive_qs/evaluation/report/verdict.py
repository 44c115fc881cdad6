"""The verdict: a few sentences made from the numbers by the rules in ``thresholds``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from adaptive_qs.evaluation.attack.game import Membership
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.report import thresholds as limit
from adaptive_qs.evaluation.report.columns import ColumnPair
from adaptive_qs.evaluation.report.models import kept_part
from adaptive_qs.evaluation.report.scale import WorkloadScale
from adaptive_qs.evaluation.report.thresholds import Grade
from adaptive_qs.evaluation.utility.scores import Measure, Utility
from adaptive_qs.pages.names import combination, listed, quoted
from adaptive_qs.pages.numbers import count, counted, share, significant

MEASURES: tuple[Measure, ...] = ("AUROC", "macro F1", "balanced accuracy")
"""The first of them that was computed speaks for a model."""


@dataclass(frozen=True)
class Sentence:
    """One finding.

    Attributes:
        grade: for its colour.
        word: the grade in a word.
        text: the finding.
    """

    grade: Grade
    word: str
    text: str


@dataclass(frozen=True)
class Associations:
    """Clear associations of two attributes by their fate; the strongest first.

    Attributes:
        clear: their number in the true table.
        kept: how many of them hardly changed.
        lost: those of which little is left.
        made_up: those that only the synthetic table has.
    """

    clear: int
    kept: int
    lost: tuple[tuple[str, str], ...]
    made_up: tuple[tuple[str, str], ...]


def associations(evaluation: Evaluation) -> Associations:
    """What became of the clear associations, by Cramér's V."""
    names = evaluation.association.names
    true, made = evaluation.association.cramers_v
    pairs = list(combinations(range(len(names)), 2))
    clear = [p for p in pairs if true[p] >= limit.CLEAR_V]
    lost = [p for p in clear if made[p] < limit.LOST_PART * true[p]]
    new = [p for p in pairs if made[p] >= limit.CLEAR_V and true[p] < limit.LOST_PART * made[p]]
    return Associations(
        len(clear),
        sum(abs(made[p] - true[p]) <= limit.KEPT_V for p in clear),
        tuple((names[i], names[j]) for i, j in sorted(lost, key=lambda p: -true[p])),
        tuple((names[i], names[j]) for i, j in sorted(new, key=lambda p: -made[p])),
    )


def lost_columns(columns: Sequence[ColumnPair]) -> list[ColumnPair]:
    """Single columns that are far off, the worst first."""
    return [c for c in columns if c.variation - c.fresh >= limit.LOST_COLUMN]


def marginals_sentence(evaluation: Evaluation, scale: WorkloadScale) -> Sentence:
    """How close the workload's marginals are, on which scale."""
    found = evaluation.workload
    rows = count(evaluation.pair.synthetic.num_rows)
    text = (
        f"The workload's {counted(len(found.per_clique), 'marginal')} differ by "
        f"{significant(found.mean_l1)} on average (L1: 0 is equal, 2 has nothing in common): "
        f"{share(found.mean_l1 / 2)} of the rows would have to move to another cell."
    )
    if not scale.per_clique:
        return Sentence("plain", "no scale", text + " They are too large for a comparison.")
    if not scale.all:
        text += f" A part of them with mean error {significant(scale.l1)} gives the scale:"
    position = scale.position
    if position is None:
        beyond = found.mean_l1 - scale.fresh
        good, fair = beyond <= limit.CLOSE_ALONE, beyond <= limit.USABLE_ALONE
        text += f" A fresh sample of {rows} rows would differ by {significant(scale.fresh)}."
    else:
        good, fair = position <= limit.CLOSE, position <= limit.USABLE
        text += (
            f" A fresh sample of {rows} rows would differ by {significant(scale.fresh)}, "
            f"independent columns by {significant(scale.independent)}: the table is "
            f"{_way(position)}."
        )
    grades: list[tuple[Grade, str]] = [("good", "close"), ("fair", "usable"), ("poor", "far")]
    grade, word = grades[0 if good else 1 if fair else 2]
    return Sentence(grade, word, text)


def dependence_sentence(evaluation: Evaluation, columns: Sequence[ColumnPair]) -> Sentence:
    """Which columns and associations are lost."""
    found, off = associations(evaluation), lost_columns(columns)
    parts = []
    if off:
        names = listed([f"{quoted(c.name)} ({share(c.variation, 2)})" for c in off])
        parts.append(f"Single columns that are off: {names} of the rows in another cell.")
    else:
        parts.append("Every single column is close to the true one.")
    if found.clear:
        parts.append(
            f"Of {counted(found.clear, 'clear association')} between two columns, {found.kept:,} "
            f"kept their strength"
        )
        parts[-1] += (
            f" and {len(found.lost):,} {'is' if len(found.lost) == 1 else 'are'} lost: "
            f"{listed([combination(p) for p in found.lost])}."
            if found.lost
            else " and none is lost."
        )
    else:
        parts.append("No two columns of the true table depend clearly on each other.")
    if found.made_up:
        parts.append(f"Made up by noise: {listed([combination(p) for p in found.made_up])}.")
    if off or len(found.lost) > found.clear / 4:
        return Sentence("poor", "losses", " ".join(parts))
    if found.lost or found.made_up:
        return Sentence("fair", "some lost", " ".join(parts))
    return Sentence("good", "kept", " ".join(parts))


def models_sentence(utility: Utility | None) -> Sentence:
    """What models lose."""
    if utility is None or not utility.models:
        return Sentence("plain", "not asked", "No model was trained, so its loss is not known.")
    parts, losses = [], []
    for model in utility.models:
        measure = next((m for m in MEASURES if m in model.real), None)
        if measure is None:
            continue
        real, made = model.real[measure].mean, model.synthetic[measure].mean
        chance = model.chance.get(measure)
        kept = kept_part(real, made, None if chance is None else chance.mean)
        text = f"{model.model} reaches {measure} {significant(made)} instead of {significant(real)}"
        if kept is not None:
            losses.append(1 - kept)
            text += f" ({share(max(kept, 0.0), 2)} of its gain over chance)"
        parts.append(text)
    text = f"Trained on synthetic rows to predict {quoted(utility.target)}, {'; '.join(parts)}."
    if utility.propensity.mean >= limit.TELLTALE:
        text += (
            " A classifier tells synthetic rows from true ones with ease (area under the curve "
            f"{significant(utility.propensity.mean)})."
        )
    if not losses:
        return Sentence("plain", "no gain", text + " Nothing was to be learnt from the true rows.")
    worst = max(losses)
    if worst <= limit.SMALL_LOSS:
        return Sentence("good", "small loss", text)
    if worst <= limit.LARGE_LOSS:
        return Sentence("fair", "some loss", text)
    return Sentence("poor", "large loss", text)


def attack_sentence(membership: Membership | None) -> Sentence:
    """What the strongest attack finds, against the bound."""
    if membership is None or not membership.scores:
        text = "No control table was given, so no attack was tried; the promise holds without it."
        return Sentence("plain", "not tried", text)
    top = membership.scores[0]
    interval = f"between {significant(top.lower)} and {significant(top.upper)}"
    text = f"The strongest attack ({top.attack}) gains {significant(top.advantage)}, {interval}"
    bound = membership.bound
    if bound is not None and top.lower > bound:
        text += f": more than the {significant(bound)} that the promise allows on average over"
        text += " releases. Do not release before that is explained."
        return Sentence("poor", "alarm", text)
    if bound is not None:
        text += f"; the promise allows at most {significant(bound)} on average over releases"
    if top.lower > 0:
        text += ". It tells members from others better than chance."
        return Sentence("fair", "some gain", text)
    return Sentence("good", "no gain", text + ". It is not told from chance.")


def next_sentence(evaluation: Evaluation, far: bool, alone: Sequence[str]) -> Sentence:
    """What to do now.

    Args:
        evaluation: of the tables.
        far: whether the workload's marginals are.
        alone: columns of which no combination was measured.
    """
    steps = []
    if alone:
        steps.append(
            f"no combination with {listed([quoted(name) for name in alone])} was measured: give "
            "coarser bins or fewer values, or more budget"
        )
    if far:
        steps.append("coarser columns, a smaller workload or more budget would bring most")
    lost = associations(evaluation).lost
    if lost:
        steps.append(
            f"raise the weight of {combination(lost[0])} in the workload if it matters to you"
        )
    broken = [
        r.rule for r in evaluation.rules if r.broken_synthetic - r.broken_true >= limit.BROKEN
    ]
    if broken:
        steps.append(f"mend or warn of rows that break {listed([quoted(r) for r in broken], 3)}")
    if evaluation.utility is None:
        steps.append("name a target to learn what models lose")
    if evaluation.membership is None:
        steps.append("give a control table to try an attack")
    if not steps:
        steps.append("use the table for what the workload names; check other questions first")
    text = "; ".join(steps[:4])
    return Sentence("plain", "next", text[0].upper() + text[1:] + ".")


def _way(position: float) -> str:
    if position <= 0:
        return "as close as a fresh sample"
    if position >= 1:
        return "no closer than independent columns"
    return f"{share(position, 2)} of the way from the one to the other"
