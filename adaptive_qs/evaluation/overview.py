"""What an analyst looks at first: correlations, profiles, frequent values and the oddest rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Drawn, Facts, Finding, Word
from adaptive_qs.evaluation.groups import list_parts
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import ODD, OddRow, TablePair
from adaptive_qs.pages.words import Bar, BarChart, combination, count, counted, share, short, signed
from adaptive_qs.table.columns.base import MISSING
from adaptive_qs.table.schema import Schema

Numbers = NDArray[np.float64]

MOST_LISTED, FREQUENT, MOST_CHARTS = 200, 10, 12
"""Maximum number of lines of a list, of values of a column that are compared, and of charts."""
MOST_CELLS, LEAST_COMMON = 3e7, 10
"""Number of cells above which only every k-th row is correlated, and of rows with both values from
which two columns have a correlation."""
CHANGED = 0.2
"""Difference of a rank correlation from which on it is named."""

# Correlations of numbers.


@dataclass(frozen=True)
class Correlation:
    """The correlations of two columns of numbers or dates, in the true and the synthetic table.

    Those by ranks are Spearman's, the others Pearson's.
    """

    names: tuple[str, str]
    true: float
    synthetic: float
    true_by_ranks: float
    synthetic_by_ranks: float
    changed: bool

    @property
    def difference(self) -> float:
        """The larger of both differences."""
        by_ranks = abs(self.synthetic_by_ranks - self.true_by_ranks)
        return max(abs(self.synthetic - self.true), by_ranks)


def correlations(pair: TablePair, schema: Schema) -> tuple[Correlation, ...]:
    """Compare the correlations of all columns of numbers or dates, the largest change first."""
    import pandas as pd

    amounts = {c.name: [pair.find_amounts(c, table) for table in (0, 1)] for c in schema.columns}
    known = {name: both for name, both in amounts.items() if all(a is not None for a in both)}
    found: list[Numbers] = []
    for table in (0, 1):
        frame = pd.DataFrame({name: both[table] for name, both in known.items()})
        frame = frame.iloc[:: max(1, math.ceil(frame.size / MOST_CELLS))]
        found += [each.corr(min_periods=LEAST_COMMON).to_numpy() for each in (frame, frame.rank())]
    names, compared, least = list(known), [], math.sqrt(sum(1 / n for n in (
        pair.true.num_rows, pair.synthetic.num_rows)))  # fmt: skip
    for i, j in combinations(range(len(names)), 2):
        plain, by_ranks, other, other_ranks = (float(np.nan_to_num(f[i, j])) for f in found)
        if not np.isnan(found[0][i, j]):
            chance = DEVIATIONS * (1 - by_ranks**2) * least
            changed = abs(other_ranks - by_ranks) >= max(CHANGED, chance)
            both = names[i], names[j]
            compared.append(Correlation(both, plain, other, by_ranks, other_ranks, changed))
    return tuple(sorted(compared, key=lambda c: -c.difference))


class CorrelationsCheck(Check):
    """Whether the correlations of numbers are kept."""

    name, title, about, first = "correlations", "Correlations of numbers", "correlations", True
    uses = ("pairs of columns",)
    rules = (
        Word("some changed", "fair", lambda found: any(c.changed for c in found)),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[Correlation, ...]:
        """Compare the correlations."""
        return correlations(comparison.pair, comparison.schema)

    def judge(self, facts: Sequence[Correlation], evaluation: Any) -> Finding | None:
        """Name the correlations that changed."""
        if not facts:
            return None
        changed = [
            f"{combination(c.names)} ({signed(c.true_by_ranks)}, now "
            f"{signed(c.synthetic_by_ranks)})"
            for c in facts if c.changed
        ]  # fmt: skip
        pairs = counted(len(facts), "pair")
        text = f"The correlations of {pairs} of numbers are kept."
        if changed:
            text = f"Rank correlations that changed, {len(changed):,} of {pairs} of numbers: "
            text += f"{checks.named(changed)}."
        heads = ("true", "synthetic", "by ranks: true", "synthetic")
        form = partial(signed, digits=2)
        columns = (checks.COLUMNS, *(checks.number(head, form) for head in heads))
        caption = "Correlations (Pearson) and rank correlations (Spearman), largest change first"
        rows = [astuple(c)[:5] for c in facts[:MOST_LISTED]]
        return Finding(*self.word_for(facts), text, figures=(
            checks.Table(caption, columns, rows),))  # fmt: skip


# Profiles of dates, frequent values, odd rows.


@dataclass(frozen=True)
class FrequentValue:
    """One of the most frequent values of a column, with its shares of the rows of both tables."""

    column: str
    value: str
    true: float
    synthetic: float


@dataclass(frozen=True, eq=False)
class Profile:
    """The shares of the rows by hour, weekday or month, in both tables.

    Attributes:
        name: such as "hour of pickup".
        labels: of the parts.
        true, synthetic: shares of the rows that have a value.
    """

    name: str
    labels: tuple[str, ...]
    true: tuple[float, ...]
    synthetic: tuple[float, ...]

    @property
    def variation(self) -> float:
        """The share of the rows that would have to move to another part."""
        return float(np.abs(np.subtract(self.true, self.synthetic)).sum() / 2)


@dataclass(frozen=True)
class Overview:
    """The first look at both tables; owner only.

    Attributes:
        profiles: of all columns of dates and times.
        frequent: the most frequent true values of each column, the largest change first.
        odd: rows with a pair of values that is rare in the true table, the oddest first.
    """

    profiles: tuple[Profile, ...]
    frequent: tuple[FrequentValue, ...]
    odd: tuple[OddRow, ...]


def profiles(pair: TablePair, schema: Schema) -> Iterator[Profile]:
    """Yield the shares of the rows by the parts of dates and times."""
    for grouping in list_parts(pair, schema):
        size = len(grouping.labels) - 1  # the last stands for missing values
        known = [np.bincount(codes, minlength=size + 1)[:size] for codes in grouping.codes]
        true, made = ((each / max(each.sum(), 1)).tolist() for each in known)
        yield Profile(grouping.name, tuple(grouping.labels[:size]), tuple(true), tuple(made))


def frequent_values(pair: TablePair, schema: Schema) -> tuple[FrequentValue, ...]:
    """Compare the most frequent true values of all columns, the largest change of share first."""
    found = []
    for column, *margins in zip(schema.columns, *pair.margins):
        amounts = [pair.find_amounts(column, table) for table in (0, 1)]
        shares: list[tuple[str, float, float]] = []
        if (true := amounts[0]) is not None and (made := amounts[1]) is not None:
            values, times = np.unique(true[~np.isnan(true)], return_counts=True)
            for k in np.argsort(-times, kind="stable")[:FREQUENT]:
                label = column.amount_text(float(values[k]), whole=True)
                shares.append((label, times[k] / len(true), float((made == values[k]).mean())))
            first, second = (float(np.isnan(each).mean()) for each in (true, made))
            shares += [(MISSING, first, second)] * bool(column.missing)
        else:
            labels = column.labels_of_codes()
            for k in np.argsort(-margins[0], kind="stable")[:FREQUENT]:
                first, second = (float(m[k] / m.sum()) for m in margins)
                shares.append((labels[k], first, second))
        found += [FrequentValue(column.name, *each) for each in shares if each[1]]
    return tuple(sorted(found, key=lambda v: -abs(v.true - v.synthetic)))


class OverviewCheck(Check):
    """Profiles of dates, frequent values and odd rows; other checks grade them."""

    name, title, first = "overview", "Dates, frequent values and odd rows", True

    def measure(self, comparison: Comparison) -> Overview:
        """Compare the profiles and the frequent values, and find the odd rows."""
        pair, schema = comparison.pair, comparison.schema
        rows: dict[int, OddRow] = {}
        for odd in sorted(comparison.pairs.odd, key=lambda odd: -odd.surprise):
            if odd.surprise >= ODD and len(rows) < MOST_LISTED:
                rows.setdefault(odd.row, odd)
        dates = sorted(profiles(pair, schema), key=lambda profile: -profile.variation)
        return Overview(tuple(dates), frequent_values(pair, schema), tuple(rows.values()))

    def judge(self, facts: Overview, evaluation: Any) -> Finding:
        """Return the figures."""
        figures = list[checks.Figure]()
        columns = (
            checks.Column("column"), checks.Column("value"), checks.number("true rows", share),
            checks.number("synthetic", share),
        )  # fmt: skip
        caption = f"The {FREQUENT} most frequent values of each column, the largest change first"
        figures.append(
            checks.Table(caption, columns, [*map(astuple, facts.frequent[:MOST_LISTED])], 5)
        )
        if facts.profiles:
            lines = [(p.name, f"{share(p.variation, 2)} of the rows at another time")
                     for p in facts.profiles]  # fmt: skip
            charts = partial(_charts, facts.profiles[:MOST_CHARTS])
            figures += [Facts(tuple(lines)), Drawn("Rows by hour, weekday and month", charts)]
        if not facts.odd:
            line = "no pair of values in the synthetic table is surprising"
            return Finding("plain", "", figures=(*figures, Facts((("oddest rows", line),))))
        schema = evaluation.comparison.schema
        odd_columns = (
            checks.number("row", count), checks.Column("odd pair of values"),
            checks.number("true rows", count), checks.number("if independent", count),
            checks.number("synthetic rows", count),
        )  # fmt: skip
        rows = [(odd.row + 1, odd.describe(evaluation.pair, schema), odd.true, odd.expected,
                 odd.synthetic) for odd in facts.odd]  # fmt: skip
        caption = "The oddest synthetic rows, one for each pair of columns: few or no true rows "
        caption += "have both values, though each alone is frequent"
        figures.append(checks.Table(caption, odd_columns, rows, 5))
        return Finding("plain", "", figures=tuple(figures))


def _charts(shown: Sequence[Profile]) -> list[tuple[str, str, BarChart]]:
    return [
        (short(p.name), f"total variation {share(p.variation, 2)}",
         BarChart(tuple(map(Bar, p.labels, zip(p.true, p.synthetic))), scale=len(p.labels) == 24))
        for p in shown
    ]  # fmt: skip
