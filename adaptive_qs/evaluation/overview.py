"""What an analyst looks at first: correlations, profiles, frequent values and the oddest rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Drawn, Facts, Finding, Word
from adaptive_qs.evaluation.groups import list_parts
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import OddRow, TablePair
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
ODD = 25.0
"""Surprise from which on a row is odd: a pair of values that is independent is as rare as in the
true table with probability about e^−25."""

# Correlations of numbers.


class Correlation(NamedTuple):
    """The correlations of two columns of numbers or dates, in the true and the synthetic table.

    Those by ranks are Spearman's, the others Pearson's.
    """

    names: tuple[str, str]
    changed: bool
    true: float
    synthetic: float
    true_by_ranks: float
    synthetic_by_ranks: float

    @property
    def difference(self) -> float:
        """The larger of both differences."""
        return max(abs(self.synthetic - self.true),
                   abs(self.synthetic_by_ranks - self.true_by_ranks))  # fmt: skip


def correlate(columns: Numbers) -> tuple[Numbers, Numbers]:
    """Return the correlations of columns over the rows that have both values, and their numbers.

    NaN stands for a missing value, and for a correlation that is not defined.

    Args:
        columns: shape (rows, columns).
    """
    known = ~np.isnan(columns)
    rows = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, columns - np.where(known, columns, 0).sum(axis=0) / rows, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=0) / rows)
    centred /= np.where(deviation > 0, deviation, 1.0)
    mask = known.astype(np.float64)
    common = mask.T @ mask
    least = np.maximum(common, 1)
    means = centred.T @ mask / least
    variances = (centred**2).T @ mask / least - means**2
    covariance = centred.T @ centred / least - means * means.T
    product = np.maximum(variances * variances.T, 0.0)
    defined = (common >= LEAST_COMMON) & (product > 1e-18)
    found = covariance / np.sqrt(np.where(defined, product, 1.0))
    return np.where(defined, np.clip(found, -1, 1), np.nan), common


def correlations(pair: TablePair, schema: Schema) -> tuple[Correlation, ...]:
    """Compare the correlations of all columns of numbers or dates, the largest change first."""
    amounts = {c.name: [pair.find_amounts(c, table) for table in (0, 1)] for c in schema.columns}
    known = {name: both for name, both in amounts.items() if all(a is not None for a in both)}
    if len(known) < 2:
        return ()
    found: list[Numbers] = []
    rows = []
    for table in (0, 1):
        columns = np.column_stack([np.asarray(both[table]) for both in known.values()])
        columns = columns[:: math.ceil(columns.size / MOST_CELLS)]
        ranks = rankdata(columns, axis=0, nan_policy="omit")
        plain, common = correlate(columns)
        found += [plain, correlate(ranks)[0]]
        rows.append(common)
    names, compared = list(known), []
    for i, j in combinations(range(len(names)), 2):
        figures = np.array([found[k][i, j] for k in (0, 2, 1, 3)])
        if np.isnan(figures[[0, 2]]).any():
            continue
        figures = np.nan_to_num(figures)
        chance = (1 - figures[2] ** 2) * math.sqrt(sum(1 / max(n[i, j], 1) for n in rows))
        off = abs(figures[3] - figures[2])
        changed = bool(off >= max(CHANGED, DEVIATIONS * chance))
        compared.append(Correlation((names[i], names[j]), changed, *map(float, figures)))
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
        rows = [(c.names, *c[2:]) for c in facts[:MOST_LISTED]]
        return Finding(*self.word_for(facts), text, figures=(
            checks.Table(caption, columns, rows),))  # fmt: skip

    def as_json(self, facts: Sequence[Correlation]) -> Mapping[str, Any]:
        """Return the correlations."""
        return {self.name: [c._asdict() for c in facts]}


# Profiles of dates, frequent values, odd rows.


class FrequentValue(NamedTuple):
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


class Overview(NamedTuple):
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
        figures.append(checks.Table(caption, columns, facts.frequent[:MOST_LISTED], 5))
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

    def as_json(self, facts: Overview) -> Mapping[str, Any]:
        """Return the three parts."""
        return {
            "profiles": [{**asdict(p), "variation": p.variation} for p in facts.profiles],
            "frequent": [v._asdict() for v in facts.frequent],
            "odd_rows": [odd._asdict() for odd in facts.odd],
        }


def _charts(shown: Sequence[Profile]) -> list[tuple[str, str, BarChart]]:
    return [
        (short(p.name), f"total variation {share(p.variation, 2)}",
         BarChart(tuple(map(Bar, p.labels, zip(p.true, p.synthetic))), scale=len(p.labels) == 24))
        for p in shown
    ]  # fmt: skip
