"""Means and medians of numbers and dates by the groups that other columns make."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import shown, split_names
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation import columns as singles
from adaptive_qs.evaluation.associations import associate
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.columns import COLUMNS_SHOWN, FAR_MEAN, FAR_SHIFT, FREQUENT, ColumnPair
from adaptive_qs.evaluation.scale import CLOSE, DEVIATIONS, DOUBTFUL, USABLE
from adaptive_qs.evaluation.tables import DAY, Numbers, TablePair
from adaptive_qs.pages import words as pages
from adaptive_qs.pages.words import Bar, BarChart, count, counted, quoted, share, short, significant
from adaptive_qs.table.columns.base import MISSING, ColumnBase
from adaptive_qs.table.columns.part import PARTS as WEEKS
from adaptive_qs.table.columns.part import find_parts
from adaptive_qs.table.schema import Schema

Codes = NDArray[np.integer]

MOST_CELLS, LEAST_PAIRS, MOST_LISTED, MOST_GROUPS, FEW_NUMBERS = 4e7, 60, 200, 250, 12
"""Number of rows times pairs of columns that are compared, and least number of pairs; maximum
number of groups in a list, of values of a column that makes groups, and of numbers that do."""
LEAST_ROWS = 10
"""Number of true rows from which a group is judged."""

PARTS = {
    **WEEKS,
    "month": ["January", "February", "March", "April", "May", "June", "July", "August",
              "September", "October", "November", "December"],
}  # fmt: skip


class Grouping(NamedTuple):
    """Groups of the true and of the synthetic rows, by the codes of a column or a part of one.

    The position is that of the column in the schema, and a name such as "hour of pickup".
    """

    name: str
    codes: tuple[NDArray[np.integer], NDArray[np.integer]]
    labels: Sequence[str]
    position: int


def list_parts(pair: TablePair, schema: Schema) -> Iterator[Grouping]:
    """Yield the groups by hour, weekday and month of all columns of dates or times.

    The last group has the missing values, with a label in one part only. A part that is the same
    in all true rows is left out.
    """
    for (position, column), part in product(enumerate(schema.columns), PARTS):
        tables = [pair.find_amounts(column, table) for table in (0, 1)]
        if column.kind != "moments" or tables[0] is None or tables[1] is None:
            continue
        first, second = (_number_parts(table, part) for table in tables if table is not None)
        known = first[first < len(PARTS[part])]
        if known.size and (known != known[0]).any():
            labels = [*PARTS[part], MISSING if part == "month" else ""]
            yield Grouping(f"{part} of {column.name}", (first, second), labels, position)


def group_by_codes(pair: TablePair, schema: Schema, position: int) -> Grouping:
    """Group the rows of both tables by the values of one column."""
    codes, column = (pair.true.columns[position], pair.synthetic.columns[position]), schema.columns
    return Grouping(column[position].name, codes, column[position].labels_of_codes(), position)


def _number_parts(moments: Numbers, part: str) -> Codes:
    missing = np.isnan(moments)
    seconds = np.where(missing, 0, moments).astype(np.int64)
    if part == "month":
        number = seconds.astype("M8[s]").astype("M8[M]").astype(np.int64) % 12
    else:
        number = find_parts(seconds, part)
    return np.where(missing, len(PARTS[part]), number)


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """The means and medians of one column by groups; owner only.

    Arrays have one entry for each group with enough true rows; figures are NaN without rows.

    Attributes:
        column: whose means they are.
        by, labels: name of the groups, and of each group.
        explained: part of the variance of the true column that the groups explain (ω²); 0 if it is
            small, or chance may be the reason.
        error: root mean squared error of the means, groups weighted by their true rows, in the
            column's unit; a group without synthetic rows has the mean of all true rows.
        fresh: the same expected of a fresh sample.
        tolerance: how much larger than expected chance may make the squared error.
        spread: the error if all groups had the mean of all true rows.
        rows, means, medians: of the true and of the synthetic table.
        off: how far the mean or the median is off, in units of the distance from which on it is
            far off; 0 if chance may be the reason.
    """

    column: ColumnBase
    by: str
    explained: float
    error: float
    fresh: float
    tolerance: float
    spread: float
    labels: tuple[str, ...]
    rows: Numbers
    means: Numbers
    medians: Numbers
    off: Numbers

    @property
    def lost(self) -> float:
        """The part of the way from a fresh sample (0) to equal means (1); 0 if it may be chance."""
        if self.error**2 <= self.fresh**2 + self.tolerance:
            return 0.0
        room = self.spread - self.fresh
        return (self.error - self.fresh) / room if room > 0 else 1.0

    @property
    def title(self) -> str:
        """The names of both columns."""
        return f"{short(self.column.name)} by {short(self.by)}"

    def group_json(self, group: int) -> dict[str, Any]:
        """Return plain values of one group."""
        both = "true", "synthetic"
        figures = {"rows": self.rows, "mean": self.means, "median": self.medians}
        named = {key: dict(zip(both, each[:, group].tolist())) for key, each in figures.items()}
        return {"attribute": self.column.name, "by": self.by, "value": self.labels[group],
                **named, "off": float(self.off[group])}  # fmt: skip


@dataclass(frozen=True)
class GroupFacts:
    """All comparisons by groups, those whose groups explain most first, and the requested ones."""

    pairs: tuple[GroupMeans, ...]
    requested: tuple[GroupMeans, ...] = ()

    @property
    def strongest(self) -> list[GroupMeans]:
        """The pairs whose means are graded: those whose groups explain most, five at most."""
        return [means for means in self.pairs if means.explained][:5]

    @property
    def ranked(self) -> list[tuple[GroupMeans, int]]:
        """Groups that are off beyond chance, by their distance times their true rows.

        A distance counts from a fifth of far off up to that of a mean of twice the true one.
        """
        found = [(-min(m.off[k], 1 / FAR_MEAN) * m.rows[0, k], m.title, int(k), m)
                 for m in self.pairs for k in np.flatnonzero(m.off >= 0.2)]  # fmt: skip
        return [(m, k) for *_, k, m in sorted(found, key=lambda group: group[:3])]

    def as_json(self) -> dict[str, Any]:
        """Return the number of pairs, and the groups that are off."""
        groups = [means.group_json(group) for means, group in self.ranked[:MOST_LISTED]]
        requested = [m.group_json(k) for m in self.requested for k in range(len(m.labels))]
        return {"compared": len(self.pairs), "groups": groups, "requested": requested}


class _Values:
    """The known cells of a column in both tables, in ascending order, less the true mean."""

    def __init__(self, column: ColumnBase, amounts: Sequence[Numbers]) -> None:
        self.column = column
        known = (int(np.count_nonzero(~np.isnan(each))) for each in amounts)
        self.rows = [np.argsort(each, kind="stable")[:n] for each, n in zip(amounts, known)]
        cells = [each[rows] for each, rows in zip(amounts, self.rows)]
        self.middle = float(cells[0].mean()) if len(cells[0]) else 0.0
        self.cells = [each - self.middle for each in cells]  # dates are large, not their distances

    def by_group(self, table: int, codes: Codes, size: int) -> "_Grouped":
        """Return rows, sums, sums of squares, and the cells group by group."""
        groups, cells = codes[self.rows[table]], self.cells[table]
        order = np.argsort(groups.astype(np.uint16) if size < 2**16 else groups, kind="stable")
        sums = [np.bincount(groups, cells**power, size).astype(np.float64) for power in (1, 2)]
        return _Grouped(np.bincount(groups, minlength=size), sums[0], sums[1], cells[order])


def read_values(pair: TablePair, column: ColumnBase) -> _Values | None:
    """Return the known cells of a column in both tables, if it has numbers or dates in both."""
    true, made = (pair.find_amounts(column, table) for table in (0, 1))
    return None if true is None or made is None else _Values(column, (true, made))


class _Grouped(NamedTuple):
    rows: Codes
    sums: Numbers
    squares: Numbers
    cells: Numbers

    def quantiles(self, part: Numbers | float, chosen: Codes) -> Numbers:
        """Return the smallest cell of each group that this part does not exceed; NaN for none."""
        ends, rows = np.cumsum(self.rows)[chosen], self.rows[chosen]
        place = np.clip(np.ceil(part * rows) - 1, 0, np.maximum(rows - 1, 0)).astype(np.int64)
        cells = np.append(self.cells, np.nan)
        return np.where(rows > 0, cells[np.minimum(ends - rows + place, len(cells) - 1)], np.nan)


def compare_means(values: _Values, by: Grouping) -> GroupMeans | None:
    """Compare the means and medians of one column by groups; None for fewer than two groups.

    The squared error of the mean of a group of n and m rows is σ² (1/n + 1/m) on average, and its
    variance twice the square of that. Explained is ω² (Hays 1963), the part η² less its bias.
    """
    true, made = (values.by_group(t, codes, len(by.labels)) for t, codes in enumerate(by.codes))
    chosen = np.flatnonzero((true.rows >= LEAST_ROWS) & (np.array(by.labels) != ""))
    if len(chosen) < 2 or not made.rows.any():
        return None
    n, m = true.rows[chosen], made.rows[chosen]
    means = np.stack([each.sums[chosen] / np.where(each.rows[chosen], each.rows[chosen], np.nan)
                      for each in (true, made)])  # fmt: skip
    within = np.maximum(true.squares[chosen] - n * means[0] ** 2, 0.0)
    weight, overall = n / n.sum(), float((n * means[0]).sum() / n.sum())
    between, free = float((n * (means[0] - overall) ** 2).sum()), max(n.sum() - len(n), 1)
    noise, total = float(within.sum() / free), between + float(within.sum())
    explained = (between - (len(n) - 1) * noise) / (total + noise) if total else 0.0
    by_chance = noise * (len(n) - 1 + DEVIATIONS * math.sqrt(2 * (len(n) - 1)))
    if explained < 0.01 or between <= by_chance:  # a small effect (Cohen 1988)
        explained = 0.0
    variance = within / np.maximum(n - 1, 1)
    expected = weight * variance * (1 / n + true.rows.sum() / made.rows.sum() / n)
    error, spread = (
        math.sqrt(float((weight * (each - means[0]) ** 2).sum()))
        for each in (np.where(m > 0, means[1], overall), overall)
    )
    fresh, tolerance = float(expected.sum()), DOUBTFUL * math.sqrt(2 * float((expected**2).sum()))
    other = (made.squares[chosen] - m * means[1] ** 2) / np.maximum(m - 1, 1)
    medians = np.stack([each.quantiles(0.5, chosen) for each in (true, made)])
    shift = math.sqrt(total / n.sum())
    tiny = 1e-9 * shift  # as rounding errors are
    other, some = np.maximum(np.nan_to_num(other), variance), np.maximum(m, 1)
    deviation = np.sqrt(variance / n + other / some)
    reach = DEVIATIONS / 2 * np.sqrt(1 / n + 1 / some)
    around = [true.quantiles(0.5 + side * reach, chosen) for side in (-1, 1)]
    unexplained = (
        np.abs(means[1] - means[0]) > DEVIATIONS * deviation + tiny,
        ((medians[1] < around[0]) | (medians[1] > around[1])) & (reach < 0.5),
    )
    middle, names = values.middle, by.labels
    off = np.where(m == 0, 1 / FAR_MEAN, 0.0)
    for (before, now), beyond in zip((means, medians), unexplained):
        limit = _far_limit(values.column, before + middle, shift)
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.fmax(off, np.where(beyond, np.abs(now - before) / limit, 0.0))
    means, medians = (np.where(np.abs(each + middle) < tiny, 0.0, each + middle)
                      for each in (means, medians))  # fmt: skip
    return GroupMeans(
        values.column, by.name, explained, error, math.sqrt(fresh), tolerance, spread,
        tuple(names[k] for k in chosen.tolist()), np.stack([n, m]), means, medians, off,
    )  # fmt: skip


def _far_limit(column: ColumnBase, figures: Numbers, std: float) -> Numbers:
    """Return the distances from which on means or medians are far off."""
    limit = np.full(len(figures), FAR_SHIFT * std)
    if column.numeric and float(figures.min()) >= 0:
        limit = np.where(figures > 0, np.minimum(limit, FAR_MEAN * figures), limit)
    return limit


def compare_groups(comparison: Comparison) -> GroupFacts:
    """Compare all numbers and dates by all columns with few values, and by parts of dates.

    Of very many, those pairs are compared whose columns have the largest Cramér's V. In a table of
    a set at least one column of a pair is its own, not an ancestor's.
    """
    pair, schema = comparison.pair, comparison.schema
    given = comparison.key.given if comparison.key else frozenset()
    read = (read_values(pair, column) for column in schema.columns)
    values = {position: found for position, found in enumerate(read) if found is not None}
    parts = list(list_parts(pair, schema))
    few = [group_by_codes(pair, schema, k) for k in range(len(schema.columns))]
    groups = parts + [few[k] for k, margin in enumerate(pair.margins[0])
                      if not schema.columns[k].part_of and 1 < np.count_nonzero(margin)
                      <= (FEW_NUMBERS if schema.columns[k].measured else MOST_GROUPS)]  # fmt: skip
    v, names = associate(comparison.pairs).cramers_v[0], schema.names
    pairs = [(i, by) for i, by in product(values, groups)
             if i != by.position and not {names[i], names[by.position]} <= given]  # fmt: skip
    most = max(LEAST_PAIRS, int(MOST_CELLS / max(comparison.rows)))
    pairs = sorted(pairs, key=lambda both: -v[both[0], both[1].position])[:most]
    compared = filter(None, (compare_means(values[i], by) for i, by in pairs))
    requested = []
    for number, by in comparison.compare:
        known = number in names and names.index(number) in values
        meant = [g for g in (*few, *parts) if by in (g.name, g.name.split(" of ")[0])]
        means = known and len(meant) == 1 and compare_means(values[names.index(number)], meant[0])
        if not means:
            raise InputError(
                f"Cannot compare {shown(number)} by {shown(by)}. Name numbers or dates, and a "
                "column of which two values have 10 rows, or the hour, weekday or month of one."
            )
        requested.append(means)
    return GroupFacts(tuple(sorted(compared, key=lambda m: -m.explained)), tuple(requested))


def parse_compared(text: str) -> list[tuple[str, str]]:
    """Return the columns named in a text such as "price by district, tips by vendor"."""
    parts = (each.partition(" by ") for each in split_names(text))
    return [(number.strip(" `"), by.strip(" `")) for number, _, by in parts]


class GroupMeansCheck(Check):
    """Whether means and medians of columns by the groups of others are kept."""

    name, title, about = "group_means", "Numbers by category", "group means"
    uses, shown, first, of_numbers = ("group means",), "bad", True, True
    rules = (
        Word("far", "poor", lambda found: sum(min(m.lost, 1.0) for m in found.strongest)
             > USABLE * len(found.strongest)),
        Word("usable", "fair", lambda found: any(m.lost > CLOSE for m in found.strongest)
             or any((m.off >= 1).any() for m in found.pairs)),
        Word("close", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> GroupFacts:
        return compare_groups(comparison)

    def judge(self, facts: GroupFacts, evaluation: Any) -> Finding | None:
        """Name the means that differ, and the groups that are furthest off."""
        if not facts.pairs:
            return None
        lost = sorted((m for m in facts.strongest if m.lost > CLOSE), key=lambda m: -m.lost)
        ranked = facts.ranked
        far = [(m, k) for m, k in ranked if m.off[k] >= 1]
        number = sum(len(m.labels) for m in facts.pairs)
        text = f"No mean or median of {counted(number, 'group')} is far off."
        if far:
            text = f"Mean or median is far off in {len(far):,} of {counted(number, 'group')}: "
            names = list(dict.fromkeys(_describe(*each) for each in far))
            text += f"{checks.named(names, most=checks.FEW_NAMED)}."
        if lost:
            names = [f"{quoted(m.column.name)} by {quoted(m.by)}" for m in lost]
            text += f" Differences between groups are lost: {checks.named(names)}."
        figures = [_requested_table(means) for means in facts.requested]
        figures += [_ranked_table(ranked, len(facts.pairs))] if ranked else []
        return Finding(*self.word_for(facts), text, figures=tuple(figures))


def difference(column: ColumnBase, true: float, made: float) -> str:
    """Return how far a figure is off: in per cent, in days, or in the unit of the column."""
    if math.isnan(made):
        return "no row"
    if column.kind == "moments":
        return f"{pages.signed(days := (made - true) / DAY, int(abs(days) < 100))} days"
    off = share(made / true - 1, 2) if true > 0 <= made else significant(made - true, 2)
    return f"+{off}" if made > true else off


def _describe(means: GroupMeans, group: int) -> str:
    """Return the figure of a group that is further off, with both values."""
    words, label = means.column.amount_text, means.labels[group]
    where = f"{quoted(means.by)} is {'missing' if label == MISSING else quoted(label)}"
    if not means.rows[1, group]:
        return f"no row where {where}"
    both = ("mean", means.means[:, group]), ("median", means.medians[:, group])
    name, (true, made) = max(both, key=lambda figure: abs(figure[1][1] - figure[1][0]))
    return (f"{name} {quoted(means.column.name)} where {where} ({words(true)}, now {words(made)}, "
            f"{difference(means.column, true, made)})")  # fmt: skip


def _cells(means: GroupMeans, group: int) -> tuple[Any, ...]:
    column, words = means.column, means.column.amount_text
    figures = (
        text
        for true, made in (means.means[:, group], means.medians[:, group])
        for text in (words(true), "" if math.isnan(made) else words(made),
                     difference(column, true, made))
    )  # fmt: skip
    return (*means.rows[:, group], *figures, "far" if means.off[group] >= 1 else "")


_FIGURES = (
    checks.number("true rows", count), checks.number("synthetic", count),
    *(checks.number(head) for head in ("mean: true", "synthetic", "off", "median: true",
                                       "synthetic", "off")),
    checks.Column(""),
)  # fmt: skip


def _ranked_table(ranked: Sequence[tuple[GroupMeans, int]], pairs: int) -> checks.Table:
    rows = [(m.title, m.labels[k], *_cells(m, k)) for m, k in ranked[:MOST_LISTED]]
    caption = "Means and medians that are clearly off, not by chance. Far differences of many rows "
    caption += f"come first: {counted(len(ranked), 'group')} of {counted(pairs, 'pair')} of columns"
    columns = (checks.Column("number by category"), checks.Column("category"), *_FIGURES)
    return checks.Table(caption, columns, rows)


def _requested_table(means: GroupMeans) -> checks.Table:
    unit, days = (DAY, " days") if means.column.kind == "moments" else (1, "")
    error, fresh = (significant(each / unit) + days for each in (means.error, means.fresh))
    rows = [(means.labels[k], *_cells(means, k)) for k in range(len(means.labels))]
    caption = f"{means.title}, as requested. Mean error {error}, {fresh} in a fresh sample"
    return checks.Table(caption, (checks.Column(means.title), *_FIGURES), rows, len(rows))


class Profiles(NamedTuple):
    """Shares of the rows by parts of dates, with labels, and of frequent values; owner only."""

    parts: tuple[tuple[ColumnPair, Sequence[str]], ...]
    frequent: tuple[singles.FrequentValue, ...]


class ProfilesCheck(Check):
    """Whether the shares of the hours, weekdays and months of dates are kept."""

    name, title, about = "profiles", "Dates by part, and frequent values", "dates"
    uses, first = ("single columns",), True
    rules = (
        Word("profiles off", "fair", lambda found: any(pair.is_off for pair, _ in found.parts)),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> Profiles:
        pair, schema, parts = comparison.pair, comparison.schema, []
        for found in list_parts(pair, schema):
            size = len(found.labels)
            first, second = (np.bincount(c, minlength=size)[:-1] for c in found.codes)
            if second.any():
                parts.append(
                    (singles.compare_counts(0, found.name, first, second), found.labels[:-1])
                )
        parts.sort(key=lambda part: part[0].fresh - part[0].variation)
        frequent = sorted(
            singles.frequent_values(pair, schema), key=lambda v: -abs(v.true - v.synthetic)
        )
        return Profiles(tuple(parts), tuple(frequent))

    def judge(self, facts: Profiles, evaluation: Any) -> Finding:
        """Name the profiles that are off."""
        lines = [(short(pair.name), f"{share(pair.variation, 2)} of the rows at another time")
                 for pair, _ in facts.parts]  # fmt: skip
        off = [f"{n} ({text})" for (n, text), (pair, _) in zip(lines, facts.parts) if pair.is_off]
        text = f"Profiles of dates are off: {checks.named(off)}." if off else ""
        charts = checks.Drawn("Rows by hour, weekday and month", partial(_profile_charts, facts))
        columns = (
            checks.Column("column"), checks.Column("value"), checks.number("true rows", share),
            checks.number("synthetic", share),
        )  # fmt: skip
        caption = f"The {FREQUENT} most frequent values of each column, the largest change first"
        table = checks.Table(caption, columns, facts.frequent[:MOST_LISTED], 3)
        figures = (checks.Facts(tuple(lines)), charts, table) if facts.parts else (table,)
        grade, word = self.word_for(facts) if facts.parts else ("plain", "")
        return Finding(grade, word, text, figures=figures)

    def as_json(self, facts: Profiles) -> Mapping[str, Any]:
        both = "true", "synthetic"
        parts = [
            {"name": pair.name, "variation": pair.variation, "labels": labels}
            | {key: each.tolist() for key, each in zip(both, pair.shares)}
            for pair, labels in facts.parts
        ]
        return {"profiles": parts, "frequent": [v._asdict() for v in facts.frequent]}


def _profile_charts(facts: Profiles) -> list[tuple[str, str, BarChart]]:
    return [
        (short(pair.name), f"total variation {share(pair.variation, 2)}",
         BarChart(tuple(map(Bar, labels, zip(*(each.tolist() for each in pair.shares)))), False))
        for pair, labels in facts.parts[:COLUMNS_SHOWN]
    ]  # fmt: skip
