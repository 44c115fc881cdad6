"""The pages for people inside a release bundle, made only from what the bundle holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import BinLabel, Clique, Domain, subsets
from adaptive_qs.pages.charts import Bar, BarChart, Cell, HeatMap, sequential_cell
from adaptive_qs.pages.words import counted, grouped, render, short
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.facts import Kind
from adaptive_qs.release.statement import HEADINGS, Statement, statement_page
from adaptive_qs.residual import (
    ReferenceModel,
    ResidualEstimate,
    privacy_cost,
    variance_weight,
)
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

# The codes of a column as the axis of a chart: neighbours or rare values put together.

MOST_STEPS = 40
"""Most bars of a histogram."""
MOST_LINES = 14
"""Most values with a line each."""
EVEN = 1e-6
"""Relative difference of widths up to which bins are equally wide."""


@dataclass(frozen=True)
class Group:
    """Codes that share one bar.

    Attributes:
        label: of all of them.
        codes: of the column.
        ends: the first and the last value.
    """

    label: str
    codes: tuple[int, ...]
    ends: tuple[str, str]


@dataclass(frozen=True)
class Axis:
    """The bars of a column.

    Attributes:
        groups: in the order shown.
        scale: whether they are neighbours on a scale with too many steps for a line each.
        apart: codes that are not on the scale: missing values and the catch-all.
        note: what was put together; "" where nothing was.
    """

    groups: tuple[Group, ...]
    scale: bool
    apart: tuple[Group, ...]
    note: str

    def chart(self, bar: Callable[[Group], Bar]) -> BarChart:
        """A chart with one bar for each group."""
        return BarChart(
            tuple(map(bar, self.groups)), self.scale, tuple(map(bar, self.apart)), self.note
        )


def axis_of(column: ColumnBase, weights: Sequence[float]) -> Axis:
    """The axis of a column.

    Args:
        column: its declaration.
        weights: of each code; of an unordered column with many values the heaviest are shown.
    """
    labels = column.labels_of_codes()
    codes = range(len(labels))
    if column.numeric:
        labels = _readable(labels)
    if len(labels) <= MOST_LINES:
        return Axis(tuple(_single(labels, k) for k in codes), False, (), "")
    if column.has_order:
        scale = column.num_values
        step = ceil(scale / MOST_STEPS)
        groups = [range(k, min(k + step, scale)) for k in range(0, scale, step)]
        notes = [f"Each bar holds {step} neighbouring codes of {scale:,}."] if step > 1 else []
        if not _even(column, step):
            notes.append("Bins are not equally wide, but are drawn so.")
        return Axis(
            tuple(_span(labels, g) for g in groups),
            True,
            tuple(_single(labels, k) for k in codes[scale:]),
            " ".join(notes),
        )
    by_weight = sorted(codes, key=lambda k: (-weights[k], k))
    rest = tuple(sorted(by_weight[MOST_LINES - 1 :]))
    name = counted(len(rest), "other value")
    others = Group(name, rest, (name, name))
    shown = tuple(_single(labels, k) for k in by_weight[: MOST_LINES - 1])
    note = f"The {MOST_LINES - 1} most frequent of {len(labels):,} values, and all others together."
    return Axis((*shown, others), False, (), note)


def _even(column: ColumnBase, step: int) -> bool:
    """Whether all bars but the last stand for equally wide parts of the scale."""
    edges = [float(edge) for edge in column.bin_ends or ()]
    widths = [b - a for a, b in pairwise(edges[::step])]
    return not widths or max(widths) - min(widths) <= EVEN * max(widths)


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


def _single(labels: Sequence[str], code: int) -> Group:
    return Group(labels[code], (code,), _ends(labels[code], labels[code]))


def _span(labels: Sequence[str], codes: Sequence[int]) -> Group:
    first, last = labels[codes[0]], labels[codes[-1]]
    if first == last:
        return _single(labels, codes[0])
    start, end = _ends(first, last)
    below = "below " if isinstance(last, BinLabel) and last.open else ""
    return Group(f"{short(start)} to {below}{short(end)}", tuple(codes), (start, end))


def _ends(first: str, last: str) -> tuple[str, str]:
    return (
        first.first if isinstance(first, BinLabel) else first,
        last.last if isinstance(last, BinLabel) else last,
    )


# What the budget went into, part by part.

_PARTS: dict[Kind, str] = {
    "values": "learning bins and values",
    "rows": "number of rows",
    "single columns": "single columns",
    "selections": "choosing combinations",
    "combinations": "measuring combinations",
    "answers": "answers",
}


@dataclass(frozen=True)
class BudgetPart:
    """A part of what was spent.

    Attributes:
        name: what for.
        learnt: what that tells of the rows, in words of the statement.
        rho: zCDP.
        part: of everything spent, 0 to 1.
        delta: of it.
    """

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


# How large the noise in the marginals of a release is, from released quantities alone.

Z95 = 1.959963984540054
"""Half a 95 % interval of a normal deviate, in standard deviations."""


def is_measured(
    estimates: Mapping[Clique, ResidualEstimate], clique: Clique, domain: Domain
) -> bool:
    """Whether all that a marginal can tell was measured: every residual in it.

    A residual with an attribute of one code is zero and needs no measurement.
    """
    several = tuple(i for i in clique if domain.sizes[i] > 1)
    return several in estimates and all(tau in estimates for tau in subsets(several))


def group_variance(model: ReferenceModel, attribute: int, codes: int) -> float:
    """Variance of the sum of so many cells of a one-way marginal (rows²).

    Residual noise σ² (I − 11ᵀ/n) adds σ² g (1 − g/n), the number of rows (g/n)² σ₀².
    """
    n = model.domain.sizes[attribute]
    part = codes / n
    return _variance(model, (attribute,)) * codes * (1 - part) + _variance(model, ()) * part**2


def measured_variance(model: ReferenceModel, clique: Clique) -> float:
    """Variance of every cell of a measured marginal (rows²): Fuentes et al., Proposition 4.4."""
    return math.fsum(
        variance_weight(model.domain, tau, clique) * _variance(model, tau)
        for tau in subsets(clique)
    )


def expected_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """Expected L1 distance, in shares of the rows, between a measured marginal and the truth.

    Only noise counts: n_γ √(2/π) standard errors. Signed estimates; a table has no negative
    cells and is a little closer.
    """
    std = math.sqrt(measured_variance(model, clique))
    return model.domain.size(clique) * math.sqrt(2 / math.pi) * std / total


def known_noise_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """The same of any marginal, for the part of it that was measured.

    A measured residual τ enters the estimate with weight
    Σ_{π: τ⊆π⊆γ} k_π (⊗_{π∖τ} excess) ⊗ (⊗_{γ∖π} q), as in :class:`ReferenceModel`, and so does
    its noise. That the reference follows the same noise changes this in the second order only.
    What the unmeasured residuals hold comes on top and is not known to anybody but the owner.
    """
    domain, sizes = model.domain, model.domain.sizes
    measured = [tau for tau in subsets(clique) if tau in model.estimates]
    variance: NDArray[np.float64] = np.zeros(domain.shape(clique))
    for tau in measured:
        factor: dict[Clique, int] = {tau: 1}
        weight = np.zeros([1 if i in tau else sizes[i] for i in clique])
        for pi in (p for p in measured if set(p) >= set(tau)):
            if pi != tau:
                factor[pi] = -sum(k for below, k in factor.items() if set(below) <= set(pi))
            weight = weight + factor[pi] * _outer(model, clique, tau, pi)
        variance += _variance(model, tau) * privacy_cost(domain, tau) * np.square(weight)
    return math.sqrt(2 / math.pi) * float(np.sqrt(variance).sum()) / total


def _outer(model: ReferenceModel, clique: Clique, tau: Clique, pi: Clique) -> NDArray[np.float64]:
    """(⊗_{π∖τ} excess) ⊗ (⊗_{γ∖π} q), with axes of length 1 for τ."""
    array: NDArray[np.float64] = np.ones([1] * len(clique))
    for axis, i in enumerate(clique):
        if i not in tau:
            q = model.reference[i]
            shape = [1] * len(clique)
            shape[axis] = -1
            array = array * (q - 1 / q.size if i in pi else q).reshape(shape)
    return array


def _variance(model: ReferenceModel, residual: Clique) -> float:
    precision = model.precision(residual)
    return 1 / precision if precision else 0.0


# Which combinations were measured, in which rounds, and how much noise they hold.

UNMEASURED_SHOWN = 400
"""Marginals that were not measured of which the noise in their parts is computed."""
LARGEST = 2**16
"""Cells of the largest of them."""


@dataclass(frozen=True)
class Marginal:
    """A marginal of the workload.

    Attributes:
        names: of its columns.
        cells: their number.
        measured: whether everything in it was measured.
        std: standard error of a cell (rows); None where it was not measured.
        l1: distance from the truth expected of the noise in what was measured, in shares of the
            rows; None where it was not computed.
        rounds: in which it was chosen.
        rho: of these rounds, to measure it.
    """

    names: tuple[str, ...]
    cells: int
    measured: bool
    std: float | None
    l1: float | None
    rounds: int
    rho: float


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
        if measured:
            std = math.sqrt(measured_variance(model, clique))
            l1 = expected_l1(model, clique, total)
        elif len(unknown) < UNMEASURED_SHOWN and cells <= LARGEST:
            l1 = known_noise_l1(model, clique, total)
        rho = chosen.get(names, [])
        marginal = Marginal(names, cells, measured, std, l1, len(rho), math.fsum(rho))
        (known if measured else unknown).append(marginal)
    return [*sorted(known, key=lambda m: (-(m.l1 or 0.0), m.names)), *unknown]


def partners(bundle: Bundle) -> dict[int, set[int]]:
    """Each column with several codes, and the columns that a combination was measured with."""
    domain = bundle.workload.domain
    found: dict[int, set[int]] = {i: set() for i, n in enumerate(domain.sizes) if n > 1}
    for clique in bundle.estimates:
        for i in clique:
            found[i] |= set(clique) - {i}
    return found


def pair_map(
    bundle: Bundle, model: ReferenceModel, total: float, columns: Sequence[int]
) -> HeatMap:
    """L1 distance that noise brings into every measured pair of these columns."""
    domain = model.domain
    errors: dict[tuple[int, int], float] = {
        (a, b): expected_l1(model, (a, b), total)
        for a in columns
        for b in columns
        if a < b and is_measured(bundle.estimates, (a, b), domain)
    }
    top = max(errors.values(), default=1.0)

    def cell(a: int, b: int) -> Cell:
        return Cell("") if a == b else sequential_cell(errors.get((min(a, b), max(a, b))), top)

    return HeatMap(
        "L1 of the noise in every measured pair, not the error of a table; – was not measured",
        tuple(i + 1 for i in columns),
        tuple(domain.names[i] for i in columns),
        tuple(tuple(cell(a, b) for b in columns) for a in columns),
    )


# Single columns as they were released: noisy counts with their intervals.


@dataclass(frozen=True)
class SingleColumn:
    """One column of the release.

    Attributes:
        number: its position in the schema, from 1.
        declared: its name, type, description and codes.
        std: standard error of a code (rows); None where nothing was measured.
        l1: expected distance from the truth through noise, in shares of the rows; or None.
    """

    number: int
    declared: ColumnBase
    std: float | None = None
    l1: float | None = None


def single_columns(schema: Schema, model: ReferenceModel, total: float) -> list[SingleColumn]:
    """Every column, in the order of the schema."""
    return [
        SingleColumn(
            i + 1, column, math.sqrt(group_variance(model, i, 1)), expected_l1(model, (i,), total)
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
        half = Z95 * math.sqrt(group_variance(model, attribute, len(group.codes)))
        return Bar(group.label, (count,), count - half, count + half, group.ends)

    return axis_of(column, counts.tolist()).chart(bar)


COLUMNS_SHOWN = 24
MARGINALS_SHOWN = 40
ROUNDS_SHOWN = 200

SECTIONS = (
    ("promise", "What is promised"),
    ("budget", "What the budget went into"),
    ("columns", "Single columns, with error bars"),
    ("combinations", "Combinations of columns"),
    ("rounds", "How the rounds went"),
    ("facts", "Everything that is disclosed of the rows"),
    ("use", "How to use the release"),
    ("versions", "Versions and settings"),
)


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
    measured = [m for m in marginals if m.measured]
    others = partners(bundle)
    mapped = sorted(sorted(others, key=lambda i: (-len(others[i]), i))[:COLUMNS_SHOWN])
    return render(
        "release.html",
        ("adaptive_qs.release",),
        manifest=manifest,
        total=model.total,
        total_std=math.sqrt(1 / model.precision(())),
        parts=budget_parts(manifest),
        columns=columns,
        cards=[(columns[i], error_bars(columns[i].declared, model, i)) for i in shown],
        marginals=measured[:MARGINALS_SHOWN],
        measured=len(measured),
        unmeasured=[m for m in marginals if not m.measured],
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


def pages_of(bundle: Bundle) -> dict[str, str]:
    """Every page by its name; the same bundle gives the same pages.

    A fault in the page with charts must not cost what was paid: then it says that there is none.
    """
    try:
        page = release_page(bundle)
    except Exception:  # noqa: BLE001  (the budget is spent, and everything else is whole)
        page = _NO_PAGE
    return {STATEMENT: statement_page(bundle.manifest), PAGE: page}
