"""One finding of the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adaptive_qs.evaluation.verdict.thresholds import Grade
from adaptive_qs.pages.names import listed

NAMED, FEW_NAMED = 3, 2
"""Most names in a list, and in one of several of a sentence; the rest are counted, and listed
further down."""


@dataclass(frozen=True)
class Sentence:
    """One finding.

    Attributes:
        grade: for its colour.
        word: the grade in a word.
        text: the finding.
        links: phrases of the text, and the id in the report of what they lead to.
        brief: the finding in a line; the text where it is short enough.
    """

    grade: Grade
    word: str
    text: str
    links: tuple[tuple[str, str], ...] = ()
    brief: str = ""

    @property
    def plain(self) -> str:
        """The finding in a line, for a terminal: no links, and spaces like any other."""
        return (self.brief or self.text).replace("\u00a0", " ")

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in parts, each with the id that it leads to; "" where it leads nowhere."""
        rest, found = self.text, []
        for phrase, anchor in reversed(self.links):
            before, phrase, after = rest.rpartition(phrase)
            found += [(after, ""), (phrase, anchor)]
            rest = before
        return [piece for piece in [(rest, ""), *reversed(found)] if piece[0]]


def named(
    names: Sequence[str], anchor: str, most: int = NAMED
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The first names and how many more, and the link from that to the list of all."""
    more = len(names) - most
    links = ((f"{more:,} more", anchor),) if more > 0 else ()
    return listed(names, most), links


def are(number: int) -> str:
    """The verb for so many things."""
    return "is" if number == 1 else "are"
