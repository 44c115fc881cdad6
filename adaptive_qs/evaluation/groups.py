"""Rows by groups: the errors within the groups of one column, and means by groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.associations import associate_all
from adaptive_qs.evaluation.checks import (
    FEW_NAMED,
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
from adaptive_qs.evaluation.marginals import marginal_distances
from adaptive_qs.evaluation.scale import (
    CLOSE,
    CLOSE_SINGLE,
    DEVIATIONS,
    DOUBTFUL,
    STEP_ERROR,
    USABLE,
    chance_l1,
    fresh_sample_l1,
    sparse_share,
)
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.pages.charts import Line, Mark
from adaptive_qs.pages.words import count, counted, quoted, short, significant
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

# The error within the groups of one column, compared with a sample of each group's size.

MOST_GROUPS = 50
"""Codes of a column that can make the groups."""
COMPARED, COMPARED_CELLS = 60, 2**20
"""Marginals that are compared within every group, an even choice of the workload's, and cells of
each."""
UNEQUAL = 2
"""Times the excess error of all rows from which that of a group is worse."""


@dataclass(frozen=True)
class GroupError:
    """The error within one group; means over the marginals.

    Attributes:
        label: of the group.
        rows: of the true and of the synthetic table.
        error: L1 distance of the marginals of its true and of its synthetic rows; None where it has
            no synthetic rows.
        fresh: the same expected of a fresh sample with as many rows as it has synthetic ones.
        doubt: how much further chance, and the estimate, may take a fresh sample.
    """

    label: str
    rows: tuple[int, int]
    error: float | None
    fresh: float | None
    doubt: float = 0.0

    @property
    def excess(self) -> float | None:
        """How much further off it is than a fresh sample."""
        return None if self.error is None or self.fresh is None else self.error - self.fresh


@dataclass(frozen=True)
class GroupErrors:
    """The errors within the groups of one column; owner only.

    Attributes:
        by: name of the column.
        marginals: number of marginals compared, of the other columns.
        all: all rows together.
        groups: that true rows have, in the order of the codes.
    """

    by: str
    marginals: int
    all: GroupError
    groups: tuple[GroupError, ...]

    @cached_property
    def worse(self) -> list[GroupError]:
        """Groups with larger errors than the whole table, the worst first."""
        least = max(CLOSE_SINGLE, UNEQUAL * (self.all.excess or 0.0))
        found = [
            group
            for group in self.groups
            if group.excess is None or group.excess > max(least, group.doubt)
        ]
        return sorted(found, key=lambda g: -2.0 if g.excess is None else -g.excess)

    def as_json(self) -> dict[str, Any]:
        """Return plain values; the groups by their labels."""

        def plain(group: GroupError) -> dict[str, Any]:
            rows = dict(zip(("true", "synthetic"), group.rows))
            errors = {"mean_l1": group.error, "fresh_sample": group.fresh}
            return {"value": group.label, "rows": rows, **errors}

        groups = [{**plain(group), "worse": group in self.worse} for group in self.groups]
        content = {"attribute": self.by, "marginals": self.marginals, "all": plain(self.all)}
        return {**content, "groups": groups}


def check_by(by: str, schema: Schema) -> None:
    """Refuse a column that cannot make groups.

    Raises:
        InputError: it is unknown, the only one, or has too many values.
    """
    if by not in schema.names:
        raise InputError(f"by {by!r} is not in the schema: check the spelling")
    if len(schema.names) == 1:
        raise InputError(f"by {by!r} is the only column: nothing is left to compare in its groups")
    if (size := schema.column(by).size) > MOST_GROUPS:
        raise InputError(
            f"by {by!r} has {size:,} codes, more than {MOST_GROUPS}: name a column with fewer"
        )


def group_errors(comparison: Comparison) -> GroupErrors | None:
    """Return the errors within the groups of the requested column, if there is one."""
    if (by := comparison.by) is None:
        return None
    pair, schema, workers = comparison.pair, comparison.schema, comparison.workers
    progress, place = comparison.steps("groups"), schema.names.index(by)
    cliques = without_column(comparison.marginals, place)
    labels = schema.column(by).labels_of_codes()
    codes = pair.true.columns[place], pair.synthetic.columns[place]
    rows = [np.bincount(each, minlength=len(labels)) for each in codes]
    present = np.flatnonzero(rows[0]).tolist()
    groups = []
    for done, code in enumerate(present, 1):
        numbers = int(rows[0][code]), int(rows[1][code])
        if numbers[1]:
            true = _take_rows(pair.true, codes[0] == code)
            made = _take_rows(pair.synthetic, codes[1] == code)
            groups.append(group_error(labels[code], TablePair(true, made), cliques, workers))
        else:
            groups.append(GroupError(labels[code], numbers, None, None))
        if progress is not None:
            progress(done, len(present) + 1)
    everything = group_error("all rows", pair, cliques, workers)
    return GroupErrors(by, len(cliques), everything, tuple(groups))


def without_column(workload: Workload, place: int) -> list[Clique]:
    """The workload's marginals without one column, each once; single columns where none is left."""
    domain = workload.domain
    found = dict.fromkeys(tuple(i for i in clique if i != place) for clique in workload.cliques)
    cliques = [c for c in found if c and domain.size(c) <= COMPARED_CELLS]
    cliques = cliques or [(i,) for i in range(len(domain)) if i != place]
    widest = max(map(len, cliques))
    if len(wide := [c for c in cliques if len(c) == widest]) >= len(cliques) / 2:
        cliques = wide  # what is left of those that held the column says less
    step = -(-len(cliques) // COMPARED)
    return cliques[::step]


def _take_rows(table: CodedTable, chosen: np.ndarray) -> CodedTable:
    return CodedTable(table.domain, tuple(column[chosen] for column in table.columns))


def group_error(label: str, pair: TablePair, cliques: Sequence[Clique], workers: int) -> GroupError:
    """The mean error of some marginals of two tables, beside that of a fresh sample."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    found = marginal_distances(JointCodes(pair), cliques, workers)
    counter = MarginalCounter(pair.true, workers=workers)
    counter.prepare(cliques)
    counts = [counter.count(clique) for clique in cliques]
    fresh = float(np.mean([fresh_sample_l1(each, rows[1]) for each in counts]))
    sparse = float(np.mean([sparse_share(each) for each in counts]))
    error = float(np.mean([found[clique].l1 for clique in cliques]))
    doubt = chance_l1(*rows, sparse) + STEP_ERROR * fresh
    return GroupError(label, rows, error, fresh, doubt)


class GroupsCheck(Check):
    """Whether some group of rows has larger errors than the whole table."""

    name, title, about, shown = "by", "Groups", "groups", "always"
    rules = (
        Word("some less accurate", "fair", lambda found: found.worse,
             "the marginals within some group are off beyond what chance explains, by "
             f"{CLOSE_SINGLE} more than a fresh sample of the group's size at least, and by "
             f"{UNEQUAL} times as much as those of all rows; or the group has no synthetic row"),
        Word("alike", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> GroupErrors | None:
        """Measure both tables."""
        return group_errors(comparison)

    def judge(self, facts: GroupErrors | None, evaluation: Any) -> Finding | None:
        """Judge what was measured."""
        if facts is None:
            return None
        text = f"No group of {quoted(facts.by)} has larger errors than the whole table, compared "
        text += "with fresh samples of the same size."
        if facts.worse:
            names = [
                f"{quoted(g.label)} (no synthetic row)"
                if g.error is None
                else f"{quoted(g.label)} (error {significant(g.error)}; fresh sample of the same "
                f"size {significant(g.fresh)})"
                for g in facts.worse
            ]
            text = f"Groups of {quoted(facts.by)} with larger errors than the whole table: "
            text += f"{named(names, 'groups', FEW_NAMED)}."
        groups = (*facts.groups, facts.all)
        top = max(v for g in groups for v in (g.error, g.fresh, 0.0) if v is not None) or 1.0
        rows = [
            (g.label, *g.rows, g.error, g.fresh, "larger" if g in facts.worse else "",
             group_line(g, top))
            for g in groups
        ]  # fmt: skip
        caption = f"Mean L1 error of {counted(facts.marginals, 'marginal')} of the other columns "
        caption += f"within each group of {quoted(facts.by)}"
        columns = (
            Column(f"groups of {short(facts.by)}"),
            number("true rows", count), number("synthetic rows", count),
            number("error", significant), number("fresh sample", significant), Column(""),
            Column("picture"),
        )  # fmt: skip
        figures = (Table(caption, columns, rows, "groups", len(rows)),)
        return Finding(*self.word_for(facts), text, figures=figures)

    def as_json(self, facts: GroupErrors | None) -> Mapping[str, Any]:
        """Return the fields of JSON."""
        return {self.name: None if facts is None else facts.as_json()}


def group_line(group: GroupError, top: float) -> Line | None:
    """Return the error of a group and that of a fresh sample on one axis."""
    if group.error is None or group.fresh is None:
        return None
    label = f"error {significant(group.error)}, fresh sample {significant(group.fresh)}"
    return Line(0.0, top, (Mark("chance", group.fresh), Mark("b", group.error)), label)


# Means of a column of numbers or dates by the groups of another column.

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
    amounts = [i for i, c in enumerate(schema.columns) if pair.amounts_of(c, 0) is not None
               and pair.amounts_of(c, 1) is not None]  # fmt: skip
    groups = [i for i, c in enumerate(schema.columns) if not c.measured]
    true_v = comparison.shared(associate_all).cramers_v[0]
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
        Word("far", "poor", lambda found: mean_off(found) > USABLE,
             "the error of the means of columns by the groups of others is on average more than "
             f"{USABLE:.0%} of the way from that of a fresh sample to that of equal means"),
        Word("usable", "fair", lambda found: any(m.off > CLOSE or m.far for m in found),
             f"one is more than {CLOSE:.0%} of that way, or the mean of some group is off by "
             f"{FAR_MEAN:.0%} of itself or {FAR_SHIFT} standard deviations, and beyond chance"),
        Word("close", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> tuple[GroupMeans, ...]:
        """Measure both tables."""
        return group_means(comparison)

    def judge(self, facts: Sequence[GroupMeans], evaluation: Any) -> Finding | None:
        """Judge what was measured."""
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

    def as_json(self, facts: Sequence[GroupMeans] | None) -> Mapping[str, Any]:
        """Return the fields of JSON."""
        return {self.name: [means.as_json() for means in facts or ()]}


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
