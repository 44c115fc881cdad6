"""The rules of the verdict in one table: where its words change, and what each of them means.

Of every part that is judged, ``RULES`` names the words in the order in which they are tried: the
first one whose condition holds is said. The report prints ``DEFINITIONS``, which are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Grade = Literal["good", "fair", "poor", "plain"]

CLOSE, USABLE = 0.15, 0.5
"""Of the way from the error of a fresh sample to that of independent columns."""
CLOSE_SINGLE, USABLE_SINGLE = 0.02, 0.10
"""L1 error beyond a fresh sample, where independence says nothing."""
FEW, SPARSE = 5, 0.5
"""True rows of a cell that are few, and the share of the rows in such cells that is too large."""
FURTHEST = 2.0
"""L1 distance that no two tables exceed."""
STEP_ERROR = 0.05
"""Relative error of the estimate for a fresh sample that is allowed for: over cells from
well-filled to nearly empty it is below 3 % for tables of equal size, and 5 % too large at most for
a synthetic table of ten times the rows."""
LEAST_ROOM = 0.25
"""Part of a fresh sample's error by which independent columns must be further off to differ
clearly: five times the error of the estimate."""
GONE = 0.9
"""Of the same way: from here on an error is that of independent columns."""
DEVIATIONS, DOUBTFUL = 5, 3
"""Standard deviations that make it clear that chance is not the reason, and that make it likely. By
Cantelli's inequality chance goes beyond the first with probability 1/26 whatever the distribution,
and 3e-7 where it is normal."""
LOST_COLUMN = 0.05
"""Total variation of a single column beyond that of a fresh sample."""
BLIND = 0.5
"""Total variation that chance may explain in every column, from which nothing can be judged."""
LARGE_SHIFT = 0.5
"""Standard deviations by which a mean moves: a medium effect after Cohen 1988."""
MOVED_MEAN, MOVED_SHIFT = 0.05, 0.2
"""Parts of a mean or median of values, and of their standard deviation (a small effect after Cohen
1988), beyond which it has moved; the smaller counts."""
FAR_MEAN, FAR_SHIFT = 0.25, 0.5
"""The same for one that is far off."""
HEAPED = 0.2
"""Share of the rows on the most frequent values from which these matter."""
CLEAR_V, KEPT_V, LOST_PART = 0.2, 0.1, 0.5
"""Cramér's V of a clear association, difference of V that keeps it, part of V below which it is
lost."""
LEAST_EFFECT = 0.1
"""Cohen's w of a weak association: what he calls a small effect."""
LEAST_OFF, LEAST_OFF_PART = 10, 0.005
"""Rows, and part of the rows, off the most frequent value of both columns on which an association
must rest, however large its V."""
MOST_LOST, WEAK_LOST = 0.25, 0.1
"""Parts of the clear, and of the weak associations, that may be lost."""
UNSEEN = 0.05
"""Synthetic rows with two values that no true row has together, beyond those of new true rows."""
IMPOSSIBLE = 0.25
"""Synthetic rows, beyond the true ones, that break a rule or have such a pair of values, from which
a table serves for no use of single rows."""
COPY_FACTOR, COPIED = 2, 0.05
"""A fresh row equals a true row that occurs once with probability 2 f₂/N (Good and Turing; f₂ rows
occur twice), and rows that occur just twice bring one half of the true table to f₂/N matches in the
other: hence the factor."""
UNEQUAL = 2
"""Times the excess error of all rows from which that of a group is worse."""
SMALL_LOSS, LARGE_LOSS = 0.1, 0.3
"""Parts of a model's gain over chance."""
TELLTALE = 0.75
"""Area under the curve from which a classifier easily distinguishes the tables."""
BROKEN = 0.01
"""Share of synthetic rows, beyond that of the true ones, from which a broken rule is named."""


class Rule(NamedTuple):
    """One word of the verdict: its grade, whether it holds of what was found, and the condition for
    readers, "" where it is what is left."""

    word: str
    grade: Grade
    holds: Callable[[Any], bool]
    meaning: str = ""


def _otherwise(_: Any) -> bool:
    return True


# fmt: off
_CLOSENESS = (
    Rule("far", "poor", lambda p: p.far or p.beyond > max(p.usable, p.allowed),
         f"the error is more than {USABLE:.0%} of the way from that of a fresh sample to that of "
         "independent columns, or no closer than these and further than chance takes a fresh "
         "sample"),
    Rule("usable", "fair", lambda p: p.doubtful or p.beyond > max(p.close, p.allowed),
         f"it is more than {CLOSE:.0%} of that way, or as far off as independent columns in some "
         "part"),
    Rule("close", "good", _otherwise),
)

RULES: dict[str, tuple[Rule, ...]] = {
    "copies": (
        Rule("the same rows", "poor", lambda rows: rows.same, "they are those of the true table"),
        Rule("copies", "poor", lambda r: r.unique_matches >= COPY_FACTOR * r.expected + COPIED,
             "the share of synthetic rows that equal a true row which occurs once exceeds "
             f"{COPY_FACTOR} times what is expected by {COPIED:.0%} of the rows"),
    ),
    "marginals": (
        Rule("no scale", "plain", lambda p: not p.known,
             f"more than {SPARSE:.0%} of the true rows lie in cells with fewer than {FEW} of them, "
             "so that chance decides most of every error, or a table has so few rows that chance "
             "may take a fresh sample as far off as any table can be"),
        *_CLOSENESS,
    ),
    "queries": (
        Rule("queries", "plain", lambda p: not p.known, "all of them are of single columns"),
        *_CLOSENESS,
    ),
    "columns": (
        Rule("some off", "poor", lambda found: found.off,
             f"one has a total variation of {LOST_COLUMN:.0%} of the rows above that of a fresh "
             "sample"),
        Rule("too few rows", "plain", lambda found: found.blind and not found.moved,
             f"chance may take a fresh sample so far that {BLIND:.0%} of its rows are in another "
             "cell, in every column: what looks good then is not said to serve for anything"),
        Rule("moved means", "fair", lambda found: found.moved,
             f"one moved by {LARGE_SHIFT} standard deviations of the true column, and by "
             f"{DOUBTFUL} of what chance moves it"),
        Rule("kept", "good", _otherwise),
    ),
    "associations": (
        Rule("losses", "poor", lambda a: len(a.lost) > MOST_LOST * a.clear,
             f"more than {MOST_LOST:.0%} of the clear ones are lost"),
        Rule("some lost", "fair",
             lambda a: a.lost or a.unconnected or len(a.weak_lost) > WEAK_LOST * a.weak,
             f"a clear one is lost, all that some column had, or more than {WEAK_LOST:.0%} of the "
             "weak ones"),
        Rule("some new", "fair",
             lambda a: a.made_up or len(a.weak_made_up) > WEAK_LOST * (a.clear + a.weak),
             "a clear one is only in the synthetic table, or more weak ones are than "
             f"{WEAK_LOST:.0%} of all of the true table"),
        Rule("too few rows", "plain", lambda a: a.blind,
             "in most pairs chance may explain even a clear one in one of the tables: what looks "
             "good then is not said to serve for pairs or single rows"),
        Rule("kept", "good", _otherwise),
    ),
    "values": (
        Rule("far off", "poor", lambda found: found.far,
             "a mean or median of numbers or dates, as the cells have them, is off by more than "
             f"{FAR_MEAN:.0%} of itself where no value is negative, or {FAR_SHIFT} standard "
             f"deviations, whichever is less, and by more than {DOUBTFUL} of what chance moves it"),
        Rule("moved", "fair", lambda found: found.moved,
             f"one is off by {MOVED_MEAN:.0%} or {MOVED_SHIFT} in the same way"),
        Rule("frequent values lost", "fair", lambda found: found.lost,
             f"a column in bins has {HEAPED:.0%} of its rows on its ten most frequent values, even "
             f"where one half of the true rows names them and the other half is counted, and the "
             f"synthetic one less than {LOST_PART:.0%} of that"),
        Rule("kept", "good", _otherwise),
    ),
    "group means": (
        Rule("far", "poor", lambda found: found.off > USABLE,
             "the error of the means of columns by the groups of others is on average more than "
             f"{USABLE:.0%} of the way from that of a fresh sample to that of equal means"),
        Rule("usable", "fair", lambda found: found.largest > CLOSE or found.far,
             f"one is more than {CLOSE:.0%} of that way, or the mean of some group is off by "
             f"{FAR_MEAN:.0%} of itself or {FAR_SHIFT} standard deviations, and beyond chance"),
        Rule("close", "good", _otherwise),
    ),
    "rows": (
        Rule("impossible rows", "poor", lambda rows: rows.broken >= IMPOSSIBLE,
             f"at least {IMPOSSIBLE:.0%} more of the synthetic rows than of the true ones break a "
             "rule that true rows keep, of all rows or of those that one rule can judge"),
        Rule("unseen pairs", "poor",
             lambda rows: rows.beyond >= max(IMPOSSIBLE, DEVIATIONS * rows.deviation),
             "those with two values that no true row has together are more than among new true "
             f"rows by {IMPOSSIBLE:.0%} of the rows and by {DEVIATIONS} standard deviations"),
        Rule("broken rules", "fair", lambda rows: rows.broken >= BROKEN,
             f"at least {BROKEN:.0%} more of them break such a rule"),
        Rule("unseen pairs", "fair",
             lambda rows: rows.beyond >= max(UNSEEN, DEVIATIONS * rows.deviation),
             f"such pairs are more by {UNSEEN:.0%} of the rows"),
    ),
    "groups": (
        Rule("some served worse", "fair", lambda found: found.worse,
             "the marginals within some group are off beyond what chance explains, by "
             f"{CLOSE_SINGLE} more than a fresh sample of the group's size at least, and by "
             f"{UNEQUAL} times as much as those of all rows; or the group has no synthetic row"),
        Rule("served alike", "good", _otherwise),
    ),
    "models": (
        Rule("no gain", "plain", lambda loss: loss is None, "true rows teach them nothing"),
        Rule("large loss", "poor", lambda loss: loss > LARGE_LOSS,
             f"training on synthetic rows takes away more than {LARGE_LOSS:.0%} of the gain over "
             "chance"),
        Rule("some loss", "fair", lambda loss: loss > SMALL_LOSS,
             f"it takes away more than {SMALL_LOSS:.0%}"),
        Rule("small loss", "good", _otherwise),
    ),
    "attack": (
        Rule("alarm", "poor", lambda found: found.bound is not None and found.lower > found.bound,
             "one certainly gains more than the promise allows"),
        Rule("some gain", "fair", lambda found: found.lower > 0, "one certainly gains something"),
        Rule("no gain", "good", _otherwise),
    ),
}
# fmt: on


def word_for(about: str, found: Any) -> tuple[Grade, str]:
    """The grade and the word for a part of the table; no word where no rule holds.

    Args:
        about: one of the keys of ``RULES``.
        found: what its conditions ask.
    """
    holding = (rule for rule in RULES[about] if rule.holds(found))
    return next(((rule.grade, rule.word) for rule in holding), ("plain", ""))


def _definition(about: str) -> str:
    words = "; ".join(f"“{r.word}” where {r.meaning}" for r in RULES[about] if r.meaning)
    last = RULES[about][-1]
    return f"{about.capitalize()}: {words}{'' if last.meaning else f'; else “{last.word}”'}."


DEFINITIONS = (
    "Overall: the first word is never better than the worst of the findings on rows, values, "
    "group means, queries, marginals, columns, associations and groups, nor than an "
    "attack that gains more than the promise allows; where these would be close and the marginals "
    "have no scale, there is no grade.",
    *map(_definition, RULES),
    f"For marginals of single columns, and where independent columns hardly differ from a "
    f"fresh sample, the limits are L1 errors of {CLOSE_SINGLE} and {USABLE_SINGLE} above a fresh "
    "sample.",
    "Limits of marginals and columns are never below what chance may add: three standard "
    "deviations, which are between 1.8 and 3 times √(1/n + 1/m) for tables of n and m rows, and "
    f"{STEP_ERROR:.0%} of the error of a fresh sample, which is an estimate. Those of queries are "
    f"never below {DEVIATIONS} standard deviations of the squared error of a fresh sample. Queries "
    "are no closer than independent columns where all together are as far off, by more than "
    f"{DOUBTFUL} standard deviations.",
    f"A marginal or a part of the queries is as far off as independent columns from {GONE:.0%} of "
    "the way on, if these are further off than a fresh sample by what chance may add, here "
    f"{DEVIATIONS} standard deviations; in marginals by {CLOSE_SINGLE} at least.",
    f"An association is clear from a Cramér's V of {CLEAR_V} in the true table, kept if V differs "
    f"by at most {KEPT_V}, lost if less than {LOST_PART:.0%} of it is left, and only in the "
    f"synthetic table if V is at least {CLEAR_V} there and less than {LOST_PART:.0%} of that in "
    f"the true one; always by more than {DEVIATIONS} standard deviations. What rests on fewer than "
    f"{LEAST_OFF} rows, or {LEAST_OFF_PART:.1%} of them, off the most frequent value of either "
    "column counts nowhere.",
    f"An association is weak if V is below {CLEAR_V}, Cohen's w (V times the root of the smaller "
    f"number of values less one) at least {LEAST_EFFECT}, and V so large that its loss could be "
    "distinguished from chance.",
    f"Rules are named where at least {BROKEN:.0%} more of the synthetic rows that they can judge "
    "break them. Rows that lack a value are neither kept nor broken.",
)
"""The table for readers of the report, and the terms in it."""
