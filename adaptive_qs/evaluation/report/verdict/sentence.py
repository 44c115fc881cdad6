"""One finding of the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.evaluation.report.thresholds import Grade


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
