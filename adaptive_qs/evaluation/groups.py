"""Means of columns of numbers or dates by the groups of other columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.associations import associate
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.columns import FAR_MEAN, FAR_SHIFT
from adaptive_qs.evaluation.scale import CLOSE, DEVIATIONS, DOUBTFUL, USABLE
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.pages.words import count, counted, quoted, short, significant
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

Numbers = NDArray[np.float64]

MOST_TRIED, MOST_NAMED = 60, 20
"""Maximum number of pairs of columns that are compared, and of groups that are shown."""


@dataclass(frozen=True)
class GroupMean:
    """One group in both tables: its value, its rows and their means (None without a row).

    It is far if the mean is far off beyond chance.
    """

    label: str
    rows: tuple[int, int]
    means: tuple[float, float | None]
    far: bool = False

    @property
    def distance(self) -> float:
        """How far the mean is off, in standard errors up to a factor."""
        true, made = self.means
        return math.inf if made is None else abs(made - true) * math.sqrt(self.rows[0])


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """The means of one column by the values of another; owner only.

    Attributes:
        column: whose means they are.
        by: name of the column that makes the groups.
        explained: part of the variance of the true column that the groups explain (ω²).
        error: root mean squared error of the means, groups weighted by their true rows, in the
            column's unit; a group without synthetic rows has the mean of all true rows.
        fresh: the same expected of a fresh sample.
        tolerance: how much larger than expected chance may make the squared error.
        spread: the error if all groups had the mean of all true rows.
        groups: the first that are shown: far ones, then the largest.
        number, far: of all groups, and of far ones.
    """

    column: ColumnBase
    by: str
    explained: float
    error: float
    fresh: float
    tolerance: float
    spread: float
    groups: tuple[GroupMean, ...]
    number: int
    far: int = 0

    @property
    def off(self) -> float:
        """The part of the way from a fresh sample (0) to equal means (1); 0 if it may be chance."""
        if self.error**2 <= self.fresh**2 + self.tolerance:
            return 0.0
        room = self.spread - self.fresh
        return (self.error - self.fresh) / room if room > 0 else 1.0

    @property
    def differs(self) -> bool:
        """Whether the means are not close."""
        return self.off > CLOSE or bool(self.far)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("true", "synthetic")
        figures = {name: getattr(self, name) for name in ("explained", "error", "fresh", "spread")}
        groups = [
            {"value": group.label, "rows": dict(zip(names, group.rows)),
             "mean": dict(zip(names, group.means)), "far": group.far}
            for group in self.groups
        ]  # fmt: skip
        return {"attribute": self.column.name, "by": self.by, "off": self.off, **figures,
                "number": self.number, "far": self.far, "groups": groups}  # fmt: skip


def group_means(comparison: Comparison) -> tuple[GroupMeans, ...]:
    """Compare the pairs of a column of values and one of groups that depend on each other most.

    Groups are the codes of columns without amounts. Of the pairs with the largest Cramér's V those
    are returned whose groups explain most of the variance: five at most, two of one column of
    values. In a table of a set at least one column
    of a pair is its own, not an ancestor's.
    """
    pair, schema = comparison.pair, comparison.schema
    given = comparison.key.given if comparison.key else frozenset()
    numbers = [all(pair.find_amounts(c, t) is not None for t in (0, 1)) for c in schema.columns]
    true_v, names = associate(comparison.pairs).cramers_v[0], schema.names
    own = (
        (i, j)
        for i, j in product(range(len(names)), repeat=2)
        if numbers[i] and not schema.columns[j].measured and not {names[i], names[j]} <= given
    )
    pairs = sorted(own, key=lambda p: -true_v[p])
    compared = (compare_means(pair, schema, *both) for both in pairs[:MOST_TRIED])
    found, times = [], Counter[str]()
    for means in sorted(filter(None, compared), key=lambda m: -m.explained):
        times[means.column.name] += 1
        if times[means.column.name] <= 2:
            found.append(means)
    return tuple(found[:5])


def _sum_by_group(
    pair: TablePair, column: ColumnBase, groups: int, size: int
) -> tuple[Numbers, float] | None:
    """Return sums of 1, x and x² by group, shape (2 tables, 3, size), and what was taken off x."""
    sums, middle = np.zeros((2, 3, size)), None
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
            sums[table, power] = np.bincount(codes, (amounts - middle) ** power, size)
    assert middle is not None
    return sums, middle


def compare_means(pair: TablePair, schema: Schema, values: int, groups: int) -> GroupMeans | None:
    """Compare the means of one column by another; None if the groups explain too little.

    The squared error of the mean of a group of n and m rows is σ² (1/n + 1/m) on average, and its
    variance twice the square of that. Explained is ω² (Hays 1963), the part η² less its bias.
    """
    column, by = schema.columns[values], schema.columns[groups]
    found = _sum_by_group(pair, column, groups, by.size)
    if found is None:
        return None
    sums, middle = found
    rows = sums[:, 0]
    chosen = np.flatnonzero(rows[0] >= 10)
    if len(chosen) < 2:
        return None
    (n, m), s, q = rows[:, chosen], sums[:, 1, chosen], sums[0, 2, chosen]
    true = s[0] / n
    within = np.maximum(q - n * true**2, 0.0)
    weight, overall = n / n.sum(), float(s[0].sum() / n.sum())
    between, free = float((n * (true - overall) ** 2).sum()), n.sum() - len(n)
    noise = float(within.sum() / free)
    total = between + float(within.sum())
    explained = (between - (len(n) - 1) * noise) / (total + noise) if total else 0.0
    by_chance = noise * (len(n) - 1 + DEVIATIONS * math.sqrt(2 * (len(n) - 1)))
    if explained < 0.01 or between <= by_chance:  # a small effect (Cohen 1988)
        return None
    made = np.where(m > 0, s[1] / np.maximum(m, 1), overall)
    expected = weight * (within / (n - 1)) * (1 / n + rows[0].sum() / rows[1].sum() / n)
    chance = DOUBTFUL * np.sqrt(within / (n - 1) * (1 / n + 1 / np.maximum(m, 1)))
    limit = np.full(len(n), FAR_SHIFT * math.sqrt(total / n.sum()))
    if column.numeric and float(min(true + middle)) >= 0:
        limit = np.minimum(limit, FAR_MEAN * (true + middle))
    far = (m == 0) | (np.abs(made - true) > np.maximum(chance, limit))
    labels = by.labels_of_codes()
    shown = sorted(range(len(chosen)), key=lambda k: (not far[k], -n[k]))[:MOST_NAMED]
    named = tuple(
        GroupMean(labels[chosen[k]], (int(n[k]), int(m[k])),
                  (float(true[k]) + middle, float(made[k]) + middle if m[k] else None),
                  bool(far[k]))
        for k in shown
    )  # fmt: skip
    error, spread = (
        math.sqrt(float((weight * (means - true) ** 2).sum())) for means in (made, overall)
    )
    fresh, tolerance = float(expected.sum()), DOUBTFUL * math.sqrt(2 * float((expected**2).sum()))
    figures = (explained, error, math.sqrt(fresh), tolerance, spread)
    return GroupMeans(column, by.name, *figures, named, len(chosen), int(far.sum()))


class GroupMeansCheck(Check):
    """Whether the means of columns by the groups of others are kept."""

    name, title, about = "group_means", "Means by groups", "group means"
    uses, shown = ("group means",), "bad"
    rules = (
        Word(
            "far", "poor", lambda found: sum(min(m.off, 1.0) for m in found) > USABLE * len(found)
        ),
        Word("usable", "fair", lambda found: any(m.differs for m in found)),
        Word("close", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[GroupMeans, ...]:
        """Compare the means."""
        return group_means(comparison)

    def judge(self, facts: Sequence[GroupMeans], evaluation: Any) -> Finding | None:
        """Name the means that differ, and the group that is furthest off."""
        if not facts:
            return None
        off = sorted((m for m in facts if m.differs), key=lambda m: -m.off)
        pairs = [f"{quoted(m.column.name)} by {quoted(m.by)}" for m in off or facts]
        names = checks.named(pairs)
        text = f"{len(off):,} of {counted(len(facts), 'group mean')} "
        text += f"{'differs' if len(off) == 1 else 'differ'}: {names}."
        if not off:
            text = f"No mean by groups differs, of {counted(len(facts), 'pair')} of columns that "
            text += f"depend on each other most: {names}."
        else:
            furthest = max(off[0].groups, key=lambda group: group.distance)
            words, (true, made) = off[0].column.amount_text, furthest.means
            now = "there is no such row" if made is None else f"it is {words(made)}"
            text += f" The mean of {quoted(off[0].column.name)} for {quoted(furthest.label)} is "
            text += f"{words(true)} in the true table; in the synthetic one {now}."
        tables = tuple(_means_table(m) for m in facts)
        return Finding(*self.word_for(facts), text, figures=tables)


def _means_table(means: GroupMeans) -> checks.Table:
    words = means.column.amount_text
    rows = [
        (g.label, g.rows[0], *("no row" if m is None else words(m) for m in g.means),
         "differs" if g.far else "")
        for g in means.groups
    ]  # fmt: skip
    names = f"{short(means.column.name)} by {short(means.by)}"
    caption = f"Mean {names}: error {significant(means.error)}, fresh sample "
    caption += f"{significant(means.fresh)}, equal means {significant(means.spread)}"
    if means.number > len(rows):
        caption += f". Showing {len(rows)} of {means.number:,} groups: those that differ, then the "
        caption += "largest"
    columns = (
        checks.Column(f"mean {names}"), checks.number("true rows", count), checks.number("true"),
        checks.number("synthetic"), checks.Column(""),
    )  # fmt: skip
    return checks.Table(caption, columns, rows)
