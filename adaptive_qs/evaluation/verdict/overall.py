"""The first word of the verdict: the worst of what was found."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.verdict.sentence import Sentence
from adaptive_qs.evaluation.verdict.thresholds import Grade

WORDS: dict[Grade, str] = {"good": "close", "fair": "usable", "poor": "far", "plain": "no grade"}
"""The word for each grade."""
_ORDER: tuple[Grade, ...] = ("good", "plain", "fair", "poor")
_TEXTS: dict[Grade, str] = {
    "good": "Close to the true table in all that was compared",
    "fair": "Usable with care: not all of the true table is kept",
    "poor": "Far from the true table in at least one way",
    "plain": "No overall grade: there is no scale for the marginals",
}


def overall_sentence(closeness: Sequence[tuple[str, Sentence]], attack: Sentence) -> Sentence:
    """A headline that is never kinder than the findings under it.

    Args:
        closeness: what each finding is about, and the finding.
        attack: what the attacks found; it counts where it is an alarm.
    """
    told = "; ".join(f"{what}: {finding.word}" for what, finding in closeness)
    if attack.grade == "poor":
        text = f"An attack gains more than the promise allows, whatever else holds ({told})."
        return Sentence("poor", attack.word, text)
    grade = max((finding.grade for _, finding in closeness), key=_ORDER.index)
    return Sentence(grade, WORDS[grade], f"{_TEXTS[grade]} ({told}).")
