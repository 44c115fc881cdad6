"""Numbers and dates in their units: means, quantiles, frequent values, group means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.limits import (
    DEVIATIONS,
    DOUBTFUL,
    FAR_MEAN,
    FAR_SHIFT,
    HEAPED,
    LOST_PART,
    MOVED_MEAN,
    MOVED_SHIFT,
)
from adaptive_qs.evaluation.marginals import Association
from adaptive_qs.evaluation.tables import TablePair, exactly_coded
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

Numbers = NDArray[np.float64]

# One column in both tables.

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MEDIAN = QUANTILES.index(0.5)
FREQUENT = 10
"""Values that are taken for the frequent ones of a column."""


@dataclass(frozen=True)
class Summary:
    """The values of one column of one table, in its unit; dates and times are seconds since 1970.

    Attributes:
        rows: that have a value.
        mean, std: of them.
        quantiles: at ``QUANTILES``, each a value that occurs.
        frequent: share of these rows that hold one of the ``FREQUENT`` most frequent values of the
            true table.
    """

    rows: int
    mean: float
    std: float
    quantiles: tuple[float, ...]
    frequent: float

    @property
    def median(self) -> float:
        """The value in the middle."""
        return self.quantiles[MEDIAN]


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The values of a column of numbers, dates or times in both tables; owner only.

    Attributes:
        column: as it is declared.
        true, synthetic: what the tables hold.
        scale: what a moved mean is measured by, in the column's unit: it has moved from 1 on.
        far: times that, from which on it is far off.
        chance: how far chance may take the mean of a fresh sample (``DOUBTFUL`` deviations).
        around: true values between which as many deviations leave its median.
        coarse: whether codes stand for several values.
        heaped: share of one half of the true rows on the ``FREQUENT`` most frequent values of the
            other half: in a small table the most frequent values are so by chance.
    """

    column: ColumnBase
    true: Summary
    synthetic: Summary
    scale: float
    far: float
    chance: float
    around: tuple[float, float]
    coarse: bool
    heaped: float

    @property
    def off(self) -> float:
        """How far the mean or the median is off, whichever is further, in units of ``scale``; 0
        where chance may be the reason."""
        mean = abs(self.synthetic.mean - self.true.mean)
        median = abs(self.synthetic.median - self.true.median)
        inside = self.around[0] <= self.synthetic.median <= self.around[1]
        off = max(mean if mean > self.chance else 0.0, 0.0 if inside else median)
        return off / self.scale if self.scale else math.inf if off else 0.0

    @property
    def frequent_lost(self) -> bool:
        """Whether most rows on the frequent values of a column in bins lie elsewhere now."""
        return (
            self.coarse
            and self.heaped >= HEAPED
            and self.synthetic.frequent < LOST_PART * self.heaped
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values; quantiles by their percentages."""

        def plain(table: Summary) -> dict[str, Any]:
            quantiles = {f"p{100 * q:g}": value for q, value in zip(QUANTILES, table.quantiles)}
            shown = {"rows": table.rows, "mean": table.mean, "std": table.std}
            return {**shown, "quantiles": quantiles, "frequent": table.frequent}

        unit = "seconds since 1970" if self.column.kind == "moments" else "number"
        tables = {"true": plain(self.true), "synthetic": plain(self.synthetic)}
        return {"attribute": self.column.name, "unit": unit, "off": self.off, **tables}


def column_values(pair: TablePair, schema: Schema) -> tuple[ColumnValues, ...]:
    """Every column whose values both tables tell, those that are furthest off first."""
    found = []
    for column in schema.columns:
        true, made = (pair.amounts_of(column, table) for table in (0, 1))
        if true is None or made is None:
            continue
        true, made = (np.sort(values[~np.isnan(values)]) for values in (true, made))
        if len(true) > 1 and len(made):  # one row says nothing of what chance may do
            found.append(_compared(column, true, made))
    return tuple(sorted(found, key=lambda c: (-c.off, not c.frequent_lost)))


def _compared(column: ColumnBase, true: Numbers, made: Numbers) -> ColumnValues:
    """Both in ascending order.

    A sample's median lies between the quantiles at 1/2 ± z/2 · √(1/n + 1/m) of the other's.
    """
    half = np.random.default_rng(0).permutation(len(true)) < len(true) // 2
    heaped = float(np.isin(true[~half], _frequent(true[half])).mean())
    frequent = _frequent(true)
    summaries = [_summary(table, frequent) for table in (true, made)]
    spread = math.sqrt(1 / len(true) + 1 / len(made))
    mean, std = abs(summaries[0].mean), summaries[0].std
    relative = bool(column.numeric and true[0] >= 0 and mean > 0)
    scales = [MOVED_MEAN * mean] * relative + [MOVED_SHIFT * std] * (std > 0)
    fars = [FAR_MEAN * mean] * relative + [FAR_SHIFT * std] * (std > 0)
    scale = min(scales, default=0.0)
    reach = DOUBTFUL * spread / 2
    around = tuple(_quantile(true, share) for share in (0.5 - reach, 0.5 + reach))
    return ColumnValues(
        column,
        summaries[0],
        summaries[1],
        scale,
        min(fars, default=0.0) / scale if scale else 1.0,
        DOUBTFUL * std * spread,
        (around[0], around[1]),
        not exactly_coded(column),
        heaped,
    )


def _frequent(rows: Numbers) -> Numbers:
    """The values that most rows have."""
    values, times = np.unique(rows, return_counts=True)
    return np.asarray(values[np.argsort(-times, kind="stable")[:FREQUENT]])


def _summary(ascending: Numbers, frequent: Numbers) -> Summary:
    return Summary(
        len(ascending),
        float(ascending.mean()),
        float(ascending.std()),
        tuple(_quantile(ascending, share) for share in QUANTILES),
        float(np.isin(ascending, frequent).mean()),
    )


def _quantile(ascending: Numbers, share: float) -> float:
    """The smallest value that at least this share of the rows does not exceed."""
    place = math.ceil(share * len(ascending)) - 1
    return float(ascending[min(max(place, 0), len(ascending) - 1)])


# Means of a column of numbers or dates by the groups of another column.

LEAST_ROWS = 10
"""True rows of a group whose mean is compared."""
LEAST_EXPLAINED = 0.01
"""Part of the variance that groups must explain: a small effect after Cohen 1988."""
MOST_TRIED, MOST_SHOWN, MOST_FOR_ONE = 60, 5, 2
"""Pairs of columns that are looked at, pairs that are given, and of them with one column of
values."""
MOST_GROUPS = 20
"""Groups of each that are named, those with the most true rows first."""


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


def group_means(
    pair: TablePair, schema: Schema, association: Association
) -> tuple[GroupMeans, ...]:
    """The pairs of a column of values and one of groups that depend on each other most.

    Groups are the codes of columns without amounts of their own. Of the pairs with the largest
    Cramér's V those are given whose groups explain most of the variance.
    """
    amounts = [i for i, c in enumerate(schema.columns) if pair.amounts_of(c, 0) is not None
               and pair.amounts_of(c, 1) is not None]  # fmt: skip
    groups = [i for i, c in enumerate(schema.columns) if not c.measured]
    true_v = association.cramers_v[0]
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
        amounts = pair.amounts_of(column, table)
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
    chosen = np.flatnonzero(rows[0] >= LEAST_ROWS)
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
    shown = sorted(range(len(chosen)), key=lambda k: -n[k])[:MOST_GROUPS]
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
