"""Findings in sentences: what one is, and those about rows, values, group means and groups, which
speak in the units of the columns."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from adaptive_qs.evaluation import limits as limit
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.groups import GroupErrors
from adaptive_qs.evaluation.limits import Grade, word_for
from adaptive_qs.evaluation.rules import RuleCheck
from adaptive_qs.evaluation.values import FREQUENT, ColumnValues, GroupMean
from adaptive_qs.pages.words import combination, counted, listed, quoted, share, significant

# One finding of the verdict. Phrases that lead to a part of the report are marked with characters
# that no printed name has.

NAMED, FEW_NAMED = 3, 2
"""Most names in a list, and in one of several of a sentence; the rest are counted, and listed
further down."""
_MARKED = re.compile("\ue000(.*?)\ue001(.*?)\ue002")


@dataclass(frozen=True)
class Sentence:
    """One finding.

    Attributes:
        grade: for its colour.
        word: the grade in a word.
        said: the finding, with marked phrases.
        brief: the same in a line; "" where it is short enough.
    """

    grade: Grade
    word: str
    said: str
    brief: str = ""

    @property
    def text(self) -> str:
        """The finding without marks."""
        return _MARKED.sub(r"\1", self.said)

    @property
    def plain(self) -> str:
        """The finding in a line, for a terminal: no marks, and spaces like any other."""
        return _MARKED.sub(r"\1", self.brief or self.said).replace("\u00a0", " ")

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in parts, each with the id that it leads to; "" where it leads nowhere."""
        parts = [*_MARKED.split(self.said), "", ""]  # what is plain, a phrase, where it leads
        threes = zip(parts[::3], parts[1::3], parts[2::3])
        return [
            piece
            for before, phrase, anchor in threes
            for piece in ((before, ""), (phrase, anchor))
            if piece[0]
        ]


def leading(phrase: str, anchor: str) -> str:
    """A phrase that leads to an id in the report."""
    return f"\ue000{phrase}\ue001{anchor}\ue002"


def named(names: Sequence[str], anchor: str, most: int = NAMED) -> str:
    """The first names and how many more, which leads to the list of all."""
    if len(names) <= most:
        return listed(names, most)
    return f"{', '.join(names[:most])} and {leading(f'{len(names) - most:,} more', anchor)}"


def are(number: int) -> str:
    """The verb for so many."""
    return "is" if number == 1 else "are"


# Rows that cannot be, or that nobody has seen.


def broken_rules(evaluation: Evaluation) -> list[RuleCheck]:
    """Rules that synthetic rows break clearly more often than true ones, the most broken first."""
    broken = [r for r in evaluation.rules if r.broken_synthetic - r.broken_true >= limit.BROKEN]
    return sorted(broken, key=lambda r: -r.broken_synthetic)


def rows_sentence(evaluation: Evaluation) -> Sentence | None:
    """Rows that break rules, or have unseen pairs, many more than new true rows would; else None.

    Chance moves the difference of two shares of n and m rows by √(p(1 − p)(1/n + 1/m)).
    """
    broken, parts = broken_rules(evaluation), []
    excess = [r.broken_synthetic - r.broken_true for r in broken if r.judged_synthetic >= SEEN]
    if (rows := evaluation.impossible) is not None:
        excess.append(rows.synthetic - rows.true)
    beyond, deviation = 0.0, 0.0
    if (unseen := evaluation.unseen) is not None:
        numbers = evaluation.pair.true.num_rows, evaluation.pair.synthetic.num_rows
        p = (unseen.share + unseen.expected_if_redrawn) / 2
        deviation = math.sqrt(p * (1 - p) * sum(1 / n for n in numbers))
        beyond = unseen.share - unseen.expected_if_redrawn
    found = SimpleNamespace(broken=max(excess, default=0.0), beyond=beyond, deviation=deviation)
    grade, word = word_for("rows", found)
    if not word:
        return None
    if rows is not None and rows.synthetic - rows.true >= limit.BROKEN:
        kept = "the rule" if rows.rules == 1 else f"at least one of {counted(rows.rules, 'rule')}"
        parts.append(
            f"{share(rows.synthetic)} of the synthetic rows break {kept} that true rows keep"
        )
    if broken:
        most = named([_broken(rule) for rule in broken], "rules", FEW_NAMED)
        parts.append(f"Broken most: {most}")
    if unseen is not None and beyond >= max(limit.UNSEEN, limit.DEVIATIONS * deviation):
        names = named([combination(pair.attributes) for pair in unseen.worst], "unseen")
        parts.append(
            f"{share(unseen.share)} of the synthetic rows have two values that no true row has "
            f"together, about {share(unseen.expected_if_redrawn)} of new true rows would: {names}"
        )
    return Sentence(grade, word, f"{'. '.join(parts)}.")


SEEN = 0.01
"""Share of the synthetic rows that a rule must judge to be held against all of them."""


def _broken(rule: RuleCheck) -> str:
    text = f"{quoted(rule.rule)} by {share(rule.broken_synthetic)}"
    if rule.judged_synthetic < 1:
        text += " of the rows that have all its values"
    return f"{text} (true {share(rule.broken_true)})"


# Values and group means.


def values_sentence(evaluation: Evaluation) -> Sentence | None:
    """Whether means, medians and frequent values are kept; None where no values are known."""
    columns = evaluation.values
    if not columns:
        return None
    moved = [c for c in columns if c.off > 1]
    lost = [c for c in columns if c.frequent_lost]
    number = counted(len(columns), "column")
    text = f"Means and medians of the {number} of numbers or dates are kept."
    if moved:
        names = named([_moved(c) for c in moved], "values", FEW_NAMED)
        text = f"Of {number} of numbers or dates, {len(moved):,} {are(len(moved))} off in mean or "
        text += f"median: {names}."
    if lost:
        where = [
            f"{quoted(c.column.name)} ({share(c.true.frequent, 2)} of the true rows have one of "
            f"the {FREQUENT} most frequent values, {share(c.synthetic.frequent, 2)} of the "
            "synthetic ones)"
            for c in lost
        ]
        text += f" Frequent values are lost: {named(where, 'values', FEW_NAMED)}."
    found = SimpleNamespace(moved=moved, lost=lost, far=any(c.off > c.far for c in moved))
    return Sentence(*word_for("values", found), text)


def _moved(found: ColumnValues) -> str:
    """Mean or median, whichever is further off beyond chance, in both tables."""
    true, made, words = found.true, found.synthetic, found.column.amount_text
    mean, median = abs(made.mean - true.mean), abs(made.median - true.median)
    of_mean = mean > found.chance and mean >= median * (
        not found.around[0] <= made.median <= found.around[1]
    )
    what, ends = (
        ("mean", (true.mean, made.mean)) if of_mean else ("median", (true.median, made.median))
    )
    return f"{quoted(found.column.name)} ({what} {words(ends[0])}, now {words(ends[1])})"


def group_means_sentence(evaluation: Evaluation) -> Sentence | None:
    """Whether the means of columns by the groups of others are kept; None where none depend."""
    found = evaluation.group_means
    if not found:
        return None
    off = sorted((m for m in found if m.off > limit.CLOSE or m.far), key=lambda m: -m.off)
    judged = SimpleNamespace(
        off=sum(min(m.off, 1.0) for m in found) / len(found),
        largest=max(m.off for m in found),
        far=any(m.far for m in found),
    )
    number = counted(len(found), "mean by groups", "means by groups")
    text = f"The {number} that differ most between groups {'is' if len(found) == 1 else 'are'} kept"
    text += (
        f": {named([f'{quoted(m.column.name)} by {quoted(m.by)}' for m in found], 'group-means')}."
    )
    if off:
        worst, words = off[0], off[0].column.amount_text
        names = named([f"{quoted(m.column.name)} by {quoted(m.by)}" for m in off], "group-means")
        text = f"Of {number}, {len(off):,} {are(len(off))} off: {names}."
        if furthest := _furthest(worst.groups):
            true, made = furthest.means
            now = "no row now" if made is None else f"now {words(made)}"
            text += f" The mean of {quoted(worst.column.name)} for {quoted(furthest.label)} is "
            text += f"{words(true)}, {now}."
    return Sentence(*word_for("group means", judged), text)


def _furthest(groups: Sequence[GroupMean]) -> GroupMean | None:
    """The group whose mean is furthest off, in all that is known of it."""

    def apart(group: GroupMean) -> float:
        true, made = group.means
        return math.inf if made is None else abs(made - true) * math.sqrt(group.rows[0])

    return max(groups, key=apart, default=None)


# Groups of rows.


def by_sentence(found: GroupErrors | None) -> Sentence | None:
    """Whether some group is served worse than all rows; None where no groups were asked for."""
    if found is None:
        return None
    worse = found.worse
    text = f"Within the {counted(len(found.groups), 'group')} of {quoted(found.by)}, marginals are "
    text += "off about as far as those of all rows, beside samples of the groups' sizes."
    if worse:
        names = [
            f"{quoted(g.label)} (no synthetic row)"
            if g.error is None
            else f"{quoted(g.label)} (error {significant(g.error)}, a sample of its size "
            f"{significant(g.fresh)})"
            for g in worse
        ]
        text = f"Groups of {quoted(found.by)} that are served worse than all rows together: "
        text += f"{named(names, 'groups', FEW_NAMED)}."
    return Sentence(*word_for("groups", SimpleNamespace(worse=worse)), text)


# What the table serves for.

_SERVES: dict[Grade, str] = {
    "good": "serves for",
    "fair": "serves with care for",
    "poor": "does not serve for",
    "plain": "was not judged for",
}
SERVES: dict[Grade, str] = {"good": "yes", "fair": "with care", "poor": "no", "plain": "not known"}
"""The same for programs."""


def uses_sentence(uses: Sequence[tuple[str, Grade]]) -> Sentence:
    """What the table serves for and what not.

    Args:
        uses: each kind of use, with the grade of what was found for it.
    """
    parts = []
    for grade, words in _SERVES.items():
        kinds = [what for what, found in uses if found == grade]
        parts += [f"{words} {listed(kinds, len(kinds))}"] if kinds else []
    return Sentence("plain", "use", f"The table {'; it '.join(parts)}.")


def worst_grade(sentences: Sequence[Sentence | None]) -> Grade:
    """The worst of some findings; "plain" where there is none."""
    order: tuple[Grade, ...] = ("plain", "good", "fair", "poor")
    return max((s.grade for s in sentences if s is not None), key=order.index, default="plain")
