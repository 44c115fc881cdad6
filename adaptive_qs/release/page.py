"""The pages for people inside a release bundle, made only from what the bundle holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import numpy as np

from adaptive_qs.domain import BinLabel, Clique
from adaptive_qs.pages.charts import Bar, BarChart, Cell, HeatMap, sequential_cell
from adaptive_qs.pages.words import (
    at_resolution,
    combination,
    count,
    counted,
    grouped,
    listed,
    render,
    short,
)
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.facts import Kind
from adaptive_qs.release.statement import HEADINGS, Statement, statement_page
from adaptive_qs.residual import (
    ReferenceModel,
    expected_l1,
    group_variance,
    is_measured,
    known_noise_l1,
    measured_variance,
)
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

# The codes of a column as the axis of a chart: neighbours or rare values put together.

MOST_STEPS = 40
"""Most bars of a histogram."""
MOST_LINES = 14
"""Most values with a line each."""
LEAST_BINS = 4
"""Bins of unequal width from which on a histogram is drawn."""
NARROWEST = 1e-9
"""Part of the range of a column that a bin of several values has at least."""
AXIS, LITTLE = 1_000.0, 0.15
"""Length of an axis with unequal bins, and the part of it that is too little for half the rows."""
EVEN = 1e-6
"""Relative difference of widths up to which bins are equally wide."""


class Group(NamedTuple):
    """Codes that share one bar, with the first and the last of their values."""

    label: str
    codes: tuple[int, ...]
    ends: tuple[str, str]


def column_chart(
    column: ColumnBase, weights: Sequence[float], bar: Callable[[Group], Bar]
) -> BarChart:
    """A chart of the codes of a column, with one bar for each group of them.

    Args:
        column: its declaration.
        weights: of each code; of an unordered column with many values the heaviest are shown.
        bar: makes the bar of a group.
    """
    labels = column.labels_of_codes()
    codes = range(len(labels))
    if column.numeric:
        labels = _readable(labels)
    groups = [_span(labels, [k]) for k in codes]
    scale = column.num_values
    step = ceil(scale / MOST_STEPS)
    even = _even(column, step)
    if len(labels) <= MOST_LINES and (even or scale < LEAST_BINS):
        return BarChart(tuple(map(bar, groups)), False, (), "")
    if column.has_order:
        spans = [_span(labels, codes[k : min(k + step, scale)]) for k in range(0, scale, step)]
        notes = [f"Each bar holds {step} neighbouring codes of {scale:,}."] if step > 1 else []
        places: tuple[float, ...] = ()
        if not even:
            places, squeezed = _places(column, step, weights)
            notes.append("Bars are as wide as their bins, and their areas are the numbers.")
            notes += ["The axis is squeezed towards its large values."] if squeezed else []
        apart = tuple(map(bar, groups[scale:]))  # missing values and the catch-all
        return BarChart(tuple(map(bar, spans)), True, apart, " ".join(notes), places=places)
    by_weight = sorted(codes, key=lambda k: (-weights[k], k))
    rest = tuple(sorted(by_weight[MOST_LINES - 1 :]))
    name = counted(len(rest), "other value")
    shown = [*(groups[k] for k in by_weight[: MOST_LINES - 1]), Group(name, rest, (name, name))]
    note = f"The {MOST_LINES - 1} most frequent of {len(labels):,} values, and all others together."
    return BarChart(tuple(map(bar, shown)), False, (), note)


def _even(column: ColumnBase, step: int) -> bool:
    edges = [float(edge) for edge in column.bin_ends or ()]
    widths = [b - a for a, b in pairwise(edges[::step])]
    return not widths or max(widths) - min(widths) <= EVEN * max(widths)


def _places(
    column: ColumnBase, step: int, weights: Sequence[float]
) -> tuple[tuple[float, ...], bool]:
    """Where bars of unequal bins begin and end on an axis from 0 to ``AXIS``, and whether that is
    squeezed.

    It is where the middle half of the rows would take little of it: by asinh(x/c), which is linear
    near 0 and logarithmic far from it, with c the width of the bin in the middle of the rows.
    """
    edges = np.array(column.bin_ends, dtype=np.float64)
    rows = np.maximum(np.array(weights[: column.num_values], dtype=np.float64), 0)
    sums = np.cumsum(rows) / (rows.sum() or 1.0)
    first, middle, last = (int(np.searchsorted(sums, part)) for part in (0.25, 0.5, 0.75))
    last = min(last, len(rows) - 1)
    squeezed = bool(edges[last + 1] - edges[first] < LITTLE * (edges[-1] - edges[0]))
    if squeezed:
        widths = np.diff(edges)
        wide = widths > NARROWEST * (edges[-1] - edges[0])  # others hold a single value
        width = widths[min(middle, len(rows) - 1)]
        edges = np.arcsinh(edges / max(width, widths[wide].min()))
    bars = np.append(edges[:-1:step], edges[-1])
    places = AXIS * (bars - bars[0]) / (bars[-1] - bars[0])
    return tuple(places.tolist()), squeezed


def _readable(labels: Sequence[str]) -> tuple[str, ...]:
    """Labels of numbers and bins as people read them, thousands apart where some have five digits:
    four alone may be years."""
    ends = [end for label in labels for end in _ends(label, label)]
    long = any(re.match(r"-?\d{5}", end) for end in ends)
    write = grouped if long else str

    def shown(label: str) -> str:
        if not isinstance(label, BinLabel):
            return write(label)
        first, last = write(label.first), write(label.last)
        below = "below " if label.open else ""
        return BinLabel(f"{first} to {below}{last}", first, last, label.open)

    return tuple(map(shown, labels))


def _span(labels: Sequence[str], codes: Sequence[int]) -> Group:
    first, last = labels[codes[0]], labels[codes[-1]]
    start, end = _ends(first, last)
    if first == last:
        return Group(first, (codes[0],), (start, end))
    below = "below " if isinstance(last, BinLabel) and last.open else ""
    return Group(f"{short(start)} to {below}{short(end)}", tuple(codes), (start, end))


def _ends(first: str, last: str) -> tuple[str, str]:
    return (
        first.first if isinstance(first, BinLabel) else first,
        last.last if isinstance(last, BinLabel) else last,
    )


# How the budget was spent, part by part.

_PARTS: dict[Kind, str] = {
    "values": "learning bins and values",
    "heaps": "frequent values",
    "rows": "number of rows",
    "single columns": "single columns",
    "selections": "choosing combinations",
    "combinations": "measuring combinations",
    "answers": "answers",
}


class BudgetPart(NamedTuple):
    """A part of what was spent: what for, what that tells of the rows, its ρ and δ, and which
    part of everything it is (0 to 1)."""

    name: str
    learnt: str
    rho: float
    part: float
    delta: float


def budget_parts(statement: Statement) -> list[BudgetPart]:
    """Every disclosure fact that was paid for, those of a kind put together."""
    spent = sum(fact.rho_units for fact in statement.facts)
    paid = {
        kind: [f for f in statement.facts if f.kind == kind and f.basis == "paid for"]
        for kind in _PARTS
    }
    return [
        BudgetPart(
            name=_PARTS[kind],
            learnt=facts[0].fact if len(facts) == 1 else f"{len(facts):,} facts",
            rho=sum(fact.rho for fact in facts),
            part=sum(fact.rho_units for fact in facts) / spent,
            delta=sum(fact.delta for fact in facts),
        )
        for kind, facts in paid.items()
        if facts
    ]


# Which combinations were measured, in which rounds, and how much noise they hold.

Z95 = 1.959963984540054
"""Half a 95 % interval of a normal deviate, in standard deviations."""
UNMEASURED_SHOWN = 400
"""Marginals that were not measured of which the noise in their parts is computed."""
LARGEST = 2**16
"""Cells of the largest of them."""


class Marginal(NamedTuple):
    """A marginal of the workload, and in how many rounds it was chosen, for how much ρ.

    Attributes:
        measured: whether everything in it was.
        std: standard error of a cell, of groups if measured so (rows); None where it was not
            measured.
        l1: distance from the truth expected of the noise in what was measured, in shares of the
            rows; None where it was not computed.
        groups: codes of each column, or groups of them, at the finest levels at which it was
            measured; none where it was not.
        resolution: the same in words, such as "age in 8 groups × city".
    """

    names: tuple[str, ...]
    cells: int
    measured: bool
    std: float | None
    l1: float | None
    rounds: int
    rho: float
    groups: tuple[int, ...] = ()
    resolution: str = ""

    @property
    def cells_measured(self) -> int:
        """Cells of groups."""
        return math.prod(self.groups)


def workload_marginals(bundle: Bundle, model: ReferenceModel, total: float) -> list[Marginal]:
    """The workload's marginals of several columns.

    First those that were measured, the noisiest first; then the others, in the workload's order.
    """
    domain = model.domain
    chosen: dict[tuple[str, ...], list[float]] = {}
    for past in bundle.rounds:
        chosen.setdefault(past.clique, []).append(past.rho_measuring)
    known: list[Marginal] = []
    unknown: list[Marginal] = []
    for clique in (c for c in bundle.workload.cliques if len(c) > 1):
        names, cells = domain.clique_names(clique), domain.size(clique)
        measured = is_measured(bundle.estimates, clique, domain)
        l1 = std = None
        groups: tuple[int, ...] = ()
        words = combination(names)
        if (finest := finest_measured(bundle, clique)) is not None:
            groups = domain.shape(finest)
            words = at_resolution(names, groups, domain.shape(clique))
            std = math.sqrt(measured_variance(model, finest).mean())
            l1 = expected_l1(model, finest, total)
        elif len(unknown) < UNMEASURED_SHOWN and cells <= LARGEST:
            l1 = known_noise_l1(model, clique, total)
        rho = chosen.get(names, [])
        spent = math.fsum(rho)
        marginal = Marginal(names, cells, measured, std, l1, len(rho), spent, groups, words)
        (known if groups else unknown).append(marginal)
    return [*sorted(known, key=lambda m: (-(m.l1 or 0.0), m.names)), *unknown]


def finest_measured(bundle: Bundle, clique: Clique) -> Clique | None:
    """A marginal at the finest levels at which all of it was measured; None where at none."""
    domain = bundle.domain
    several = [c for c in domain.at_levels(clique) if is_measured(bundle.estimates, c, domain)]
    return max(several, key=domain.size, default=None)


def partners(bundle: Bundle) -> dict[int, set[int]]:
    """Each column with several codes, and the columns that a combination was measured with."""
    domain = bundle.workload.domain
    found: dict[int, set[int]] = {i: set() for i, n in enumerate(domain.sizes) if n > 1}
    for clique in map(bundle.domain.columns, bundle.estimates):
        for i in clique:
            found[i] |= set(clique) - {i}
    return found


def pair_map(
    bundle: Bundle, model: ReferenceModel, total: float, columns: Sequence[int]
) -> HeatMap:
    """L1 distance that noise brings into every measured pair of these columns."""
    domain = model.domain
    errors: dict[tuple[int, int], float] = {
        (a, b): expected_l1(model, finest, total)
        for a in columns
        for b in columns
        if a < b and (finest := finest_measured(bundle, (a, b))) is not None
    }
    top = max(errors.values(), default=1.0)

    def cell(a: int, b: int) -> Cell:
        return Cell("") if a == b else sequential_cell(errors.get((min(a, b), max(a, b))), top)

    return HeatMap(
        "L1 of the noise in every measured pair, at the finest groups of codes that were measured, "
        "not the error of a table; – was not measured",
        tuple(domain.names[i] for i in columns),
        tuple(tuple(cell(a, b) for b in columns) for a in columns),
    )


# Single columns as they were released: noisy counts with their intervals.


class SingleColumn(NamedTuple):
    """One column, numbered from 1: the standard error of a code (rows) and the distance from the
    truth expected of noise (shares of the rows), both None where nothing was measured."""

    number: int
    declared: ColumnBase
    std: float | None = None
    l1: float | None = None


def single_columns(schema: Schema, model: ReferenceModel, total: float) -> list[SingleColumn]:
    """Every column, in the order of the schema."""
    return [
        SingleColumn(
            i + 1,
            column,
            math.sqrt(measured_variance(model, (i,)).mean()),
            expected_l1(model, (i,), total),
        )
        if model.precision((i,)) > 0
        else SingleColumn(i + 1, column)
        for i, column in enumerate(schema.columns)
    ]


def error_bars(column: ColumnBase, model: ReferenceModel, attribute: int) -> BarChart:
    """The noisy counts of one column with 95 % intervals (rows)."""
    counts = model.marginal((attribute,))

    def bar(group: Group) -> Bar:
        count = math.fsum(counts[code] for code in group.codes)
        half = Z95 * math.sqrt(group_variance(model, attribute, group.codes))
        return Bar(group.label, (count,), count - half, count + half, group.ends)

    return column_chart(column, counts.tolist(), bar)


# What tables of the release are good for, as far as released values tell.

PRECISE = 0.1
"""L1 of the noise, as a share of the rows, up to which counts of a column or a combination are
precise: at most a twentieth of the rows seem to lie elsewhere."""
NAMED = 4
"""Columns or combinations that a line names."""


class Uses(NamedTuple):
    """What tables of a release are good for, with care, and what not: sentences."""

    good: tuple[str, ...]
    careful: tuple[str, ...]
    bad: tuple[str, ...]


def describe_uses(
    columns: Sequence[SingleColumn],
    marginals: Sequence[Marginal],
    unconnected: Sequence[str],
    rules: Sequence[str] = (),
) -> Uses:
    """From the noise of what was measured, from what was not, and from the rules of the schema; no
    private row is looked at."""
    measured = [c for c in columns if c.l1 is not None]
    precise, noisy = _parted([(c.declared.name, c.l1 or 0.0) for c in measured])
    known = [(combination(m.names), m.l1 or 0.0) for m in marginals if m.measured]
    pairs, noisy_pairs = _parted(known)
    coarse = [m.resolution for m in marginals if m.groups and not m.measured]
    others = sum(not (m.measured or m.groups) for m in marginals)
    good, careful, bad = [], [], []
    if precise:
        good.append(f"counts and shares of single columns: {_named(precise)}")
    if pairs:
        good.append(f"counts by combinations that were measured: {_named(pairs)}")
    if rules:
        good.append(f"rules that every row of a table keeps: {_named(rules)}")
    if noisy:
        careful.append(f"single columns whose noise is large: {_named(noisy)}")
    if noisy_pairs:
        careful.append(f"combinations whose noise is large: {_named(noisy_pairs)}")
    if coarse:
        careful.append(f"combinations that were measured over groups of codes: {_named(coarse)}")
    if others:
        careful.append(
            f"{counted(others, 'combination')} not measured as a whole: what a table shows there "
            "comes from the model"
        )
    if unconnected:
        bad.append(f"how anything depends on {_named(unconnected)}: no combination was measured")
    if stds := [c.std for c in measured if c.std is not None]:
        least = Z95 * sorted(stds)[len(stds) // 2]
        bad.append(f"groups of fewer than about {count(least)} rows, which noise may hide or make")
    bad.append("looking up single rows: every row of a table is made up")
    return Uses(tuple(good), tuple(careful), tuple(bad))


def _parted(noise: Sequence[tuple[str, float]]) -> tuple[list[str], list[str]]:
    """Names with little noise, the most precise first, and with much, the noisiest first."""
    ordered = [name for name, _ in sorted(noise, key=lambda each: each[1])]
    number = sum(l1 <= PRECISE for _, l1 in noise)
    return ordered[:number], ordered[number:][::-1]


def _named(names: Sequence[str]) -> str:
    return listed([short(name, 120) for name in names], NAMED)


COLUMNS_SHOWN = 24
MARGINALS_SHOWN = 40
ROUNDS_SHOWN = 200

SECTIONS = (
    ("good-for", "What it is good for"),
    ("promise", "What is promised"),
    ("columns", "Single columns, with error bars"),
    ("combinations", "Combinations of columns"),
    ("budget", "How the budget was spent"),
    ("rounds", "How the rounds went"),
    ("facts", "Everything that is disclosed about the rows"),
    ("use", "How to use the release"),
    ("versions", "Versions and settings"),
)


def sure_at_most(epsilon: float) -> float:
    """How sure at most somebody is after the release of what was as likely as not before it:
    e^ε/(1 + e^ε), but for the chance δ."""
    return 1 / (1 + math.exp(-epsilon))


def release_page(bundle: Bundle) -> str:
    """One self-contained HTML file; the same bundle gives the same text.

    Only the members of the bundle enter, so it may be shared wherever the bundle may.
    """
    model = bundle.model()
    manifest = bundle.manifest
    total = max(model.total, 1.0)
    columns = single_columns(bundle.schema, model, total)
    shown = [i for i, c in enumerate(columns) if c.std is not None][:COLUMNS_SHOWN]
    marginals = workload_marginals(bundle, model, total)
    measured = [m for m in marginals if m.groups]
    others = partners(bundle)
    mapped = sorted(sorted(others, key=lambda i: (-len(others[i]), i))[:COLUMNS_SHOWN])
    return render(
        "release.html",
        ("adaptive_qs.release",),
        manifest=manifest,
        about=bundle.schema.about,
        uses=describe_uses(
            columns,
            marginals,
            manifest.unconnected,
            [rule.rule for rule in bundle.schema.declared_rules],
        ),
        sure=sure_at_most(manifest.epsilon),
        total=model.total,
        total_std=math.sqrt(1 / model.precision(())),
        parts=budget_parts(manifest),
        columns=columns,
        by_queries=[
            (columns[i].declared.name, len(strategy.integers))
            for i, strategy in sorted(bundle.strategies.items())
        ],
        cards=[(columns[i], error_bars(columns[i].declared, model, i)) for i in shown],
        marginals=measured[:MARGINALS_SHOWN],
        measured=len(measured),
        coarse=sum(not m.measured for m in measured),
        unmeasured=[m for m in marginals if not m.groups],
        most_unmeasured=UNMEASURED_SHOWN,
        pairs=pair_map(bundle, model, total, mapped) if len(mapped) > 1 else None,
        rounds=bundle.rounds,
        rounds_shown=ROUNDS_SHOWN,
        z95=Z95,
        headings=HEADINGS,
        sections=SECTIONS,
    )


# The members of a bundle for people; loading needs none of them.

STATEMENT, PAGE = "statement.md", "page.html"
_NO_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>No page</title>
<p>The page with charts could not be made: a fault of the program. The release is whole without it:
statement.md tells what is promised, and tables can be sampled as ever.
"""


def build_pages(bundle: Bundle) -> dict[str, str]:
    """Every page by its name; the same bundle gives the same pages.

    A fault in the page with charts must not cost what was paid: then it says that there is none.
    """
    try:
        page = release_page(bundle)
    except Exception:  # noqa: BLE001  (the budget is spent, and everything else is whole)
        page = _NO_PAGE
    return {STATEMENT: statement_page(bundle.manifest), PAGE: page}
