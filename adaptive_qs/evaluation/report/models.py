"""Models and the attack as marks on a line."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.evaluation.attack.game import AttackScore, Membership
from adaptive_qs.evaluation.utility.scores import ModelScores, Spread, Utility, kept_part
from adaptive_qs.pages.charts import Line, Mark
from adaptive_qs.pages.numbers import decimals, significant


@dataclass(frozen=True)
class ScoreRow:
    """One model by one measure.

    Attributes:
        model: its name.
        measure: of its predictions.
        real: trained on true rows.
        synthetic: trained on synthetic rows.
        chance: of a guess; None where it is not known.
        kept: part of the gain over chance that is left; None where there is none to keep.
        line: the same as a picture.
    """

    model: str
    measure: str
    real: Spread
    synthetic: Spread
    chance: Spread | None
    kept: float | None
    line: Line


def score_rows(utility: Utility) -> list[ScoreRow]:
    """Every model by every measure."""
    return [_row(model, measure) for model in utility.models for measure in model.real]


def attack_lines(membership: Membership) -> list[tuple[AttackScore, Line]]:
    """Each attack's advantage with its interval, and the bound, on one axis."""
    bound = membership.bound
    values = [v for s in membership.scores for v in (s.lower, s.upper)] + [0.0]
    low, high = min(values), max(*values, bound or 0.0) or 1.0
    margin = 0.04 * (high - low)
    lines = []
    for score in membership.scores:
        marks = [Mark("chance", 0.0), Mark("b", score.advantage, score.lower, score.upper)]
        label = (
            f"advantage {decimals(score.advantage)}, interval {decimals(score.lower)} to "
            f"{decimals(score.upper)}"
        )
        if bound is not None:
            marks.insert(1, Mark("limit", bound))
            label += f", bound {significant(bound)}"
        lines.append((score, Line(low - margin, high + margin, tuple(marks), label)))
    return lines


def _row(model: ModelScores, measure: str) -> ScoreRow:
    real, synthetic = model.real[measure], model.synthetic[measure]  # type: ignore[index]
    chance = model.chance.get(measure)  # type: ignore[call-overload]
    marks = [] if chance is None else [Mark("chance", chance.mean)]
    for kind, spread in (("a", real), ("b", synthetic)):
        marks.append(Mark(kind, spread.mean, spread.mean - spread.std, spread.mean + spread.std))
    label = (
        f"{measure} of {model.model}: true {significant(real.mean)}, "
        f"synthetic {significant(synthetic.mean)}"
    )
    if chance is not None:
        label += f", chance {significant(chance.mean)}"
    kept = kept_part(real.mean, synthetic.mean, None if chance is None else chance.mean)
    return ScoreRow(
        model.model, measure, real, synthetic, chance, kept, Line(0.0, 1.0, tuple(marks), label)
    )
