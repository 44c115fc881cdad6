"""Means of columns of numbers or dates by the groups of other columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_qs.evaluation.associations import associate
from adaptive_qs.evaluation.checks import (
    Check,
    Column,
    Comparison,
    Finding,
    Table,
    Word,
    named,
    number,
)
from adaptive_qs.evaluation.columns import FAR_MEAN, FAR_SHIFT
from adaptive_qs.evaluation.scale import CLOSE, DEVIATIONS, DOUBTFUL, USABLE
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.pages.words import count, counted, quoted, short, significant
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

LEAST_GROUP = 10
"""True rows of a group whose mean is compared."""
LEAST_EXPLAINED = 0.01
"""Part of the variance that groups must explain: a small effect after Cohen 1988."""
MOST_TRIED, MOST_SHOWN, MOST_FOR_ONE = 60, 5, 2
"""Pairs of columns that are looked at, pairs that are given, and of them with one column of
values."""
MOST_NAMED = 20
"""Groups of each that are shown, those with the most true rows first."""


@dataclass(frozen=True)
class GroupMean:
    """One group: its label, rows with a value and their mean in both tables (None without any), and
    whether that is far off beyond chance."""

    label: str
    rows: tuple[int, int]
    means: tuple[float, float | None]
    far: bool = False


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """The means of one column by the values of another; owner only.

    Attributes:
        column: whose means they are.
        by: name of the column that makes the groups.
        explained: part of the variance of the true column that the groups explain, corrected for
            their number.
        error: root mean squared error of the means, groups weighted by their true rows, in the
            column's unit; a group without synthetic rows has the mean of all true rows.
        fresh: the same expected of a fresh sample.
        doubt: how much larger than expected chance may make the squared error.
        spread: the same if all groups had the mean of all true rows.
        groups: the largest.
        number: how many there are in all.
        far: how many of them have a mean that is far off beyond chance, as for whole columns.
    """

    column: ColumnBase
    by: str
    explained: float
    error: float
    fresh: float
    doubt: float
    spread: float
    groups: tuple[GroupMean, ...]
    number: int
    far: int = 0

    @property
    def off(self) -> float:
        """How far the error is on the way from that of a fresh sample (0) to equal means (1); 0
        where chance may be the reason."""
        if self.error**2 <= self.fresh**2 + self.doubt:
            return 0.0
        room = self.spread - self.fresh
        return (self.error - self.fresh) / room if room > 0 else 1.0

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        figures = {name: getattr(self, name) for name in ("explained", "error", "fresh", "spread")}
        groups = [
            {
                "value": group.label,
                "rows": dict(zip(("true", "synthetic"), group.rows)),
                "mean": dict(zip(("true", "synthetic"), group.means)),
                "far": group.far,
            }
            for group in self.groups
        ]
        return {"attribute": self.column.name, "by": self.by, "off": self.off, **figures,
                "number": self.number, "far": self.far, "groups": groups}  # fmt: skip


def group_means(comparison: Comparison) -> tuple[GroupMeans, ...]:
    """The pairs of a column of values and one of groups that depend on each other most.

    Groups are the codes of columns without amounts of their own. Of the pairs with the largest
    Cramér's V those are given whose groups explain most of the variance.
    """
    pair, schema = comparison.pair, comparison.schema
    amounts = [i for i, c in enumerate(schema.columns) if pair.find_amounts(c, 0) is not None
               and pair.find_amounts(c, 1) is not None]  # fmt: skip
    groups = [i for i, c in enumerate(schema.columns) if not c.measured]
    true_v = associate(comparison.pairs).cramers_v[0]
    pairs = sorted(((i, j) for i in amounts for j in groups), key=lambda p: -true_v[p])
    compared = (_means(pair, schema, *places) for places in pairs[:MOST_TRIED])
    found = sorted((m for m in compared if m is not None), key=lambda m: -m.explained)
    return tuple(_varied(found))


def _varied(found: list[GroupMeans]) -> Iterator[GroupMeans]:
    """The first of them, but not too many of one column."""
    times: dict[str, int] = {}
    given = 0
    for means in found:
        name = means.column.name
        if given < MOST_SHOWN and times.get(name, 0) < MOST_FOR_ONE:
            times[name] = times.get(name, 0) + 1
            given += 1
            yield means


def _means(pair: TablePair, schema: Schema, values: int, groups: int) -> GroupMeans | None:
    """The means of one column by another; None where the groups explain too little.

    The squared error of the mean of a group of n and m rows is σ² (1/n + 1/m) on average, and its
    variance twice the square of that. Explained is ω² (Hays 1963), the part η² less its bias.
    """
    column, by = schema.columns[values], schema.columns[groups]
    sums = np.zeros((2, 3, by.size))  # of 1, x and x², for both tables
    middle = None
    for table, coded in enumerate((pair.true, pair.synthetic)):
        amounts = pair.find_amounts(column, table)
        assert amounts is not None
        known = ~np.isnan(amounts)
        if not known.any():
            return None
        codes, amounts = coded.columns[groups][known], amounts[known]
        if middle is None:
            middle = float(amounts.mean())  # dates are large, their differences are not
        for power in range(3):
            sums[table, power] = np.bincount(codes, (amounts - middle) ** power, by.size)
    assert middle is not None
    rows = sums[:, 0]
    chosen = np.flatnonzero(rows[0] > LEAST_GROUP - 1)
    (n, m), s, q = rows[:, chosen], sums[:, 1, chosen], sums[0, 2, chosen]
    if len(chosen) < 2:
        return None
    true = s[0] / n
    within = np.maximum(q - n * true**2, 0.0)
    weight, overall = n / n.sum(), float(s[0].sum() / n.sum())
    between, free = float((n * (true - overall) ** 2).sum()), n.sum() - len(n)
    noise = float(within.sum() / free)
    total = between + float(within.sum())
    explained = (between - (len(n) - 1) * noise) / (total + noise) if total else 0.0
    by_chance = noise * (len(n) - 1 + DEVIATIONS * math.sqrt(2 * (len(n) - 1)))
    if explained < LEAST_EXPLAINED or between <= by_chance:
        return None
    made = np.where(m > 0, s[1] / np.maximum(m, 1), overall)
    expected = weight * (within / (n - 1)) * (1 / n + rows[0].sum() / rows[1].sum() / n)
    chance = DOUBTFUL * np.sqrt(within / (n - 1) * (1 / n + 1 / np.maximum(m, 1)))
    limit = np.full(len(n), FAR_SHIFT * math.sqrt(total / n.sum()))
    if column.numeric and float(min(true + middle)) >= 0:
        limit = np.minimum(limit, FAR_MEAN * (true + middle))
    far = (m == 0) | (np.abs(made - true) > np.maximum(chance, limit))
    labels = by.labels_of_codes()
    shown = sorted(range(len(chosen)), key=lambda k: -n[k])[:MOST_NAMED]
    return GroupMeans(
        column,
        by.name,
        explained,
        math.sqrt(float((weight * (made - true) ** 2).sum())),
        math.sqrt(float(expected.sum())),
        DOUBTFUL * math.sqrt(2 * float((expected**2).sum())),
        math.sqrt(float((weight * (true - overall) ** 2).sum())),
        tuple(
            GroupMean(
                labels[chosen[k]],
                (int(n[k]), int(m[k])),
                (float(true[k]) + middle, float(made[k]) + middle if m[k] else None),
                bool(far[k]),
            )
            for k in shown
        ),
        len(chosen),
        int(far.sum()),
    )


class GroupMeansCheck(Check):
    """Whether the means of columns by the groups of others are kept."""

    name, title, about = "group_means", "Means by groups", "group means"
    uses, shown = ("group means",), "bad"
    rules = (
        Word("far", "poor", lambda found: mean_off(found) > USABLE),
        Word("usable", "fair", lambda found: any(m.off > CLOSE or m.far for m in found)),
        Word("close", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> tuple[GroupMeans, ...]:
        return group_means(comparison)

    def judge(self, facts: Sequence[GroupMeans], evaluation: Any) -> Finding | None:
        if not facts:
            return None
        off = sorted((m for m in facts if m.off > CLOSE or m.far), key=lambda m: -m.off)
        names = [f"{quoted(m.column.name)} by {quoted(m.by)}" for m in off or facts]
        text = f"{len(off):,} of {counted(len(facts), 'group mean')} "
        text += f"{'differs' if len(off) == 1 else 'differ'}: {named(names, 'group-means')}."
        if not off:
            text = f"No mean by groups differs, of {counted(len(facts), 'pair')} of columns that "
            text += f"depend on each other most: {named(names, 'group-means')}."
        elif furthest := _furthest(off[0].groups):
            words, (true, made) = off[0].column.amount_text, furthest.means
            now = "there is no such row" if made is None else f"it is {words(made)}"
            text += f" The mean of {quoted(off[0].column.name)} for {quoted(furthest.label)} is "
            text += f"{words(true)} in the true table; in the synthetic one {now}."
        tables = tuple(_means_table(m, "group-means" if m is facts[0] else "") for m in facts)
        return Finding(*self.word_for(facts), text, figures=tables)


def mean_off(found: Sequence[GroupMeans]) -> float:
    """Return how far all means are off on average, each at most as far as equal means."""
    return sum(min(m.off, 1.0) for m in found) / len(found)


def _furthest(groups: Sequence[GroupMean]) -> GroupMean | None:
    """Return the group whose mean is furthest off, in standard errors."""

    def distance(group: GroupMean) -> float:
        true, made = group.means
        return math.inf if made is None else abs(made - true) * math.sqrt(group.rows[0])

    return max(groups, key=distance, default=None)


def _means_table(means: GroupMeans, anchor: str) -> Table:
    words = means.column.amount_text
    rows = [
        (g.label, g.rows[0], *("no row" if m is None else words(m) for m in g.means),
         "differs" if g.far else "")
        for g in means.groups
    ]  # fmt: skip
    caption = (
        f"Mean {short(means.column.name)} by {short(means.by)}: error {significant(means.error)}, "
        f"fresh sample {significant(means.fresh)}, equal means {significant(means.spread)}"
    )
    if means.number > len(rows):
        caption += f". Showing the {len(rows)} largest of {means.number:,} groups"
    columns = (
        Column(f"mean {short(means.column.name)} by {short(means.by)}"),
        number("true rows", count), number("true"), number("synthetic"), Column(""),
    )  # fmt: skip
    return Table(caption, columns, rows, anchor)
