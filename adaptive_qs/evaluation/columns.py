"""Single columns: shares of their codes, and values in their units."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation import scale as scales
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Grade, Word
from adaptive_qs.evaluation.scale import DOUBTFUL, STEP_ERROR, chance_l1, fresh_sample_l1
from adaptive_qs.evaluation.tables import Counts, Numbers, TablePair, exactly_coded
from adaptive_qs.pages.words import Bar, BarChart, count, counted, quoted, share, short
from adaptive_qs.release.page import Group, column_chart
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

LOST_COLUMN = 0.05
"""Total variation of a single column, beyond that of a fresh sample, from which it is off."""
MOVED_MEAN, MOVED_SHIFT = 0.05, 0.2
"""Parts of a mean or median of values, and of their standard deviation (a small effect after Cohen
1988), beyond which it has moved; the smaller counts."""
FAR_MEAN, FAR_SHIFT = 0.25, 0.5
"""The same for one that is far off."""
HEAPED, LOST_PART = 0.2, 0.5
"""Share of the rows on the most frequent values from which these matter, and the part of it below
which they are lost."""


@dataclass(frozen=True)
class ColumnPair:
    """One column in both tables.

    Attributes:
        number: its position in the schema, from 1.
        name: of the column.
        codes: their number.
        variation: share of the rows that would have to change their code.
        fresh: the same expected of a fresh sample.
        tolerance: variation beyond that of a fresh sample which chance and the estimate explain.
        shares: of the codes, in the true and in the synthetic table.
    """

    number: int
    name: str
    codes: int
    variation: float
    fresh: float
    tolerance: float
    shares: tuple[Numbers, Numbers]

    @property
    def is_off(self) -> bool:
        """Whether the variation exceeds that of a fresh sample clearly."""
        return self.variation - self.fresh >= max(LOST_COLUMN, self.tolerance)


def column_pairs(pair: TablePair) -> tuple[ColumnPair, ...]:
    """Compare every column, the worst first."""
    margins = zip(pair.domain.names, *pair.margins)
    found = [compare_counts(number, *each) for number, each in enumerate(margins, 1)]
    return tuple(sorted(found, key=lambda column: (-column.variation, column.number)))


def compare_counts(number: int, name: str, true: Counts, made: Counts) -> ColumnPair:
    """Compare the counts of the codes of one column, each a part of its sum."""
    rows = int(true.sum()), int(made.sum())
    shares = true / rows[0], made / rows[1]
    variation = float(np.abs(shares[0] - shares[1]).sum() / 2)
    fresh = fresh_sample_l1(true, rows[1]) / 2
    tolerance = STEP_ERROR * fresh + chance_l1(*rows, scales.sparse_share(true)) / 2
    return ColumnPair(number, name, true.size, variation, fresh, tolerance, shares)


def is_blind(columns: Sequence[ColumnPair]) -> bool:
    """Return whether chance can explain half of the rows in another cell, in every column."""
    several = [c for c in columns if c.codes > 1]
    return bool(several) and all(c.fresh + c.tolerance >= 0.5 for c in several)


class ColumnsCheck(Check):
    """Whether the shares of the codes of single columns are kept."""

    name, title, about = "columns", "Single columns", "columns"
    uses = ("single columns", "pairs of columns")
    rules = (
        Word("some off", "poor", lambda columns: any(c.is_off for c in columns)),
        Word("too sparse", "plain", is_blind),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[ColumnPair, ...]:
        return column_pairs(comparison.pair)

    def judge(self, facts: Sequence[ColumnPair], evaluation: Any) -> Finding:
        """Name the columns that are off."""
        off, blind = [c for c in facts if c.is_off], is_blind(facts)
        text = "No single column is far off."
        if blind:
            text = "The columns have too many codes for the rows: chance explains any difference."
        if off:
            names = [
                f"{quoted(c.name)} ({share(c.variation, 2)}; fresh sample {share(c.fresh, 2)})"
                for c in off
            ]
            text = (
                f"Single columns with at least {share(LOST_COLUMN, 1)} of the rows more in "
                f"another cell than other rows of the same population (a fresh sample): "
                f"{checks.named(names)}."
            )
        caps: dict[str, Grade] = dict.fromkeys(checks.list_uses(), "plain") if blind else {}
        figures = self._figures(facts, evaluation.comparison.schema)
        return Finding(*self.word_for(facts), text, figures=figures, caps=caps)

    def _figures(self, facts: Sequence[ColumnPair], schema: Schema) -> tuple[checks.Figure, ...]:
        rows = [(c.name, c.number, c.codes, c.variation, c.fresh) for c in facts]
        caption = "Total variation of each column, the worst first: the share of the rows that "
        caption += "would have to move to another value"
        columns = (
            checks.Column("column", partial(short, longest=1000)), checks.number("no."),
            checks.number("codes", count), checks.number("total variation", share),
            checks.number("fresh sample", share),
        )  # fmt: skip
        title = "Shares of the rows, the worst column first"
        if len(facts) > COLUMNS_SHOWN:
            title += f". Showing {COLUMNS_SHOWN} of {len(facts)} columns"
        charts = checks.Drawn(title, partial(column_charts, facts, schema))
        return charts, checks.Table(caption, columns, rows, 5)

    def as_json(self, facts: Any) -> Mapping[str, Any]:
        """Return nothing: the marginals of single columns are elsewhere."""
        return {}


COLUMNS_SHOWN, ORDERED_SHOWN = 24, 200
"""Maximum number of charts, and of rows of a table of the page."""


def column_charts(columns: Sequence[ColumnPair], schema: Schema) -> list[tuple[str, str, BarChart]]:
    """Return charts of the shares of the first columns in both tables."""
    return [
        (f"{short(c.name)} · no. {c.number}",
         f"total variation {share(c.variation, 2)}; fresh sample {share(c.fresh, 2)}",
         column_chart(schema.column(c.name), np.maximum(*c.shares).tolist(), partial(_bar, c)))
        for c in columns[:COLUMNS_SHOWN]
    ]  # fmt: skip


def _bar(column: ColumnPair, group: Group) -> Bar:
    codes = list(group.codes)
    values = tuple(float(shares[codes].sum()) for shares in column.shares)
    return Bar(group.label, values, ends=group.ends)


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the rows at which quantiles of values are taken."""
FREQUENT = 10
"""Number of the most frequent values of a column that are counted."""


@dataclass(frozen=True)
class Summary:
    """The values of one column of one table, in its unit; dates and times are seconds since 1970.

    Attributes:
        rows: number of rows that have a value.
        mean, std: of the values.
        quantiles: at ``QUANTILES``, each a value that occurs.
        frequent: share of these rows on the ``FREQUENT`` most frequent values of the true table.
    """

    rows: int
    mean: float
    std: float
    quantiles: tuple[float, ...]
    frequent: float

    @classmethod
    def from_sorted(cls, ascending: Numbers, frequent: Numbers) -> Self:
        """Summarise values in ascending order."""
        quantiles = tuple(_quantile(ascending, part) for part in QUANTILES)
        known = float(np.isin(ascending, frequent).mean())
        return cls(
            len(ascending), float(ascending.mean()), float(ascending.std()), quantiles, known
        )

    @property
    def median(self) -> float:
        """The value in the middle."""
        return self.quantiles[QUANTILES.index(0.5)]

    def as_json(self) -> dict[str, Any]:
        """Return the figures, quantiles by their percentages."""
        quantiles = {f"p{100 * q:g}": value for q, value in zip(QUANTILES, self.quantiles)}
        shown = {"rows": self.rows, "mean": self.mean, "std": self.std}
        return {**shown, "quantiles": quantiles, "frequent": self.frequent}


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The values of a column of numbers, dates or times in both tables; owner only.

    Attributes:
        column: as it is declared.
        true, synthetic: summaries of the tables.
        scale: difference, in the column's unit, from which on a mean has moved.
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
    def errors(self) -> tuple[float, float]:
        """How far mean and median are off; 0 if chance may be the reason."""
        mean = abs(self.synthetic.mean - self.true.mean)
        median = abs(self.synthetic.median - self.true.median)
        inside = self.around[0] <= self.synthetic.median <= self.around[1]
        return mean if mean > self.chance else 0.0, 0.0 if inside else median

    @property
    def off(self) -> float:
        """How far the mean or the median is off, whichever is further, in units of ``scale``."""
        off = max(self.errors)
        return off / self.scale if self.scale else math.inf if off else 0.0

    @property
    def frequent_lost(self) -> bool:
        """Whether most rows on the frequent values of a column in bins lie elsewhere now."""
        lost = self.synthetic.frequent < LOST_PART * self.heaped
        return self.coarse and self.heaped >= HEAPED and lost

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        unit = "seconds since 1970" if self.column.kind == "moments" else "number"
        tables = {"true": self.true.as_json(), "synthetic": self.synthetic.as_json()}
        return {"attribute": self.column.name, "unit": unit, "off": self.off, **tables}


def column_values(pair: TablePair, schema: Schema) -> tuple[ColumnValues, ...]:
    """Compare every column whose values are known in both tables, the furthest off first."""
    found = []
    for column in schema.columns:
        true, made = (pair.find_amounts(column, table) for table in (0, 1))
        if true is None or made is None:
            continue
        true, made = (np.sort(values[~np.isnan(values)]) for values in (true, made))
        if len(true) > 1 and len(made):  # one row says nothing of what chance may do
            found.append(_compare(column, true, made))
    return tuple(sorted(found, key=lambda c: (-c.off, not c.frequent_lost)))


def _compare(column: ColumnBase, true: Numbers, made: Numbers) -> ColumnValues:
    """Compare values in ascending order.

    A sample's median lies between the quantiles at 1/2 ± z/2 · √(1/n + 1/m) of the other's.
    """
    half = np.random.default_rng(0).permutation(len(true)) < len(true) // 2
    heaped = float(np.isin(true[~half], _find_frequent(true[half])).mean())
    frequent = _find_frequent(true)
    first, second = (Summary.from_sorted(table, frequent) for table in (true, made))
    deviation = math.sqrt(1 / len(true) + 1 / len(made))
    mean, std = abs(first.mean), first.std
    parts = [(MOVED_SHIFT * std, FAR_SHIFT * std)] * (std > 0)
    if column.numeric and true[0] >= 0 and mean > 0:
        parts.append((MOVED_MEAN * mean, FAR_MEAN * mean))
    scale, far = (min(limits) for limits in zip(*parts)) if parts else (0.0, 0.0)
    reach = DOUBTFUL * deviation / 2
    around = _quantile(true, 0.5 - reach), _quantile(true, 0.5 + reach)
    limits = scale, far / scale if scale else 1.0, DOUBTFUL * std * deviation, around
    return ColumnValues(column, first, second, *limits, not exactly_coded(column), heaped)


def _find_frequent(rows: Numbers) -> Numbers:
    values, times = np.unique(rows, return_counts=True)
    return np.asarray(values[np.argsort(-times, kind="stable")[:FREQUENT]])


def _quantile(ascending: Numbers, share: float) -> float:
    """Return the smallest value that at least this share of the rows does not exceed."""
    position = math.ceil(share * len(ascending)) - 1
    return float(ascending[min(max(position, 0), len(ascending) - 1)])


class ValuesCheck(Check):
    """Whether means, medians and frequent values of numbers and dates are kept."""

    name, title, about = "values", "Values in their units", "values"
    uses, shown, of_numbers = ("single columns", "pairs of columns"), "bad", True
    rules = (
        Word("far off", "poor", lambda found: any(c.off > max(1, c.far) for c in found)),
        Word("moved", "fair", lambda found: any(c.off > 1 for c in found)),
        Word("frequent values lost", "fair", lambda found: any(c.frequent_lost for c in found)),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[ColumnValues, ...]:
        return column_values(comparison.pair, comparison.schema)

    def judge(self, facts: Sequence[ColumnValues], evaluation: Any) -> Finding | None:
        """Name the columns whose values moved."""
        if not facts:
            return None
        moved, lost = [c for c in facts if c.off > 1], [c for c in facts if c.frequent_lost]
        amount = counted(len(facts), "column")
        text = f"The {amount} of numbers or dates kept means and medians."
        if moved:
            names = checks.named([_describe_moved(c) for c in moved], most=checks.FEW_NAMED)
            text = f"Mean or median of {len(moved):,} of {amount} of numbers or dates moved: "
            text += f"{names}."
        if lost:
            heaps = [
                f"{quoted(c.column.name)} ({share(c.true.frequent, 2)} of the true rows have one "
                f"of the {FREQUENT} most frequent values, {share(c.synthetic.frequent, 2)} of the "
                "synthetic ones)"
                for c in lost
            ]
            names = checks.named(heaps, most=checks.FEW_NAMED)
            text += f" Frequent values are lost: {names}."
        return Finding(*self.word_for(facts), text, figures=(_values_table(facts),))


def _describe_moved(found: ColumnValues) -> str:
    mean, median = found.errors
    what = "mean" if mean and mean >= median else "median"
    true, made = (found.column.amount_text(getattr(table, what))
                  for table in (found.true, found.synthetic))  # fmt: skip
    return f"{quoted(found.column.name)} ({what} {true}, now {made})"


def _values_table(facts: Sequence[ColumnValues]) -> checks.Table:
    rows = []
    for found in facts[: ORDERED_SHOWN // 2]:
        words = found.column.amount_text
        note = "frequent values lost" if found.frequent_lost else ""
        note = ("far off" if found.off > found.far else "moved") if found.off > 1 else note
        for name, table in (("true", found.true), ("synthetic", found.synthetic)):
            quantiles = (words(value, whole=True) for value in table.quantiles)
            first = (found.column.name, note) if table is found.true else ("", "")
            rows.append((first[0], name, words(table.mean), *quantiles, table.frequent, first[1]))
    heads = ("mean", *(f"{100 * q:g} %" for q in QUANTILES))
    columns = (
        checks.Column("column"), checks.Column("table"), *map(checks.number, heads),
        checks.number("frequent", partial(share, digits=2)), checks.Column(""),
    )  # fmt: skip
    caption = (
        "Means and quantiles of the cells, the column that is furthest off first. Frequent: rows "
        f"with one of the {FREQUENT} most frequent values of the true table"
    )
    return checks.Table(caption, columns, rows, 20)


class FrequentValue(NamedTuple):
    """One of the most frequent values of a column, with its shares of the rows of both tables."""

    column: str
    value: str
    true: float
    synthetic: float


def frequent_values(pair: TablePair, schema: Schema) -> Iterator[FrequentValue]:
    """Yield the most frequent values of each column of the true table, with their shares."""
    for column, *margins in zip(schema.columns, *pair.margins):
        true, made = (pair.find_amounts(column, table) for table in (0, 1))
        if true is not None and made is not None:
            for value in _find_frequent(true[~np.isnan(true)]).tolist():
                shares = (float((each == value).mean()) for each in (true, made))
                yield FrequentValue(column.name, column.amount_text(value, whole=True), *shares)
            continue
        labels = column.labels_of_codes()
        for k in np.argsort(-margins[0], kind="stable")[:FREQUENT].tolist():
            if margins[0][k]:
                shares = (float(margin[k] / margin.sum()) for margin in margins)
                yield FrequentValue(column.name, labels[k], *shares)
