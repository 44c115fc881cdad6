"""The pages for people inside a release bundle, made only from what the bundle holds."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from adaptive_qs import residual
from adaptive_qs.domain import BinLabel
from adaptive_qs.pages import words
from adaptive_qs.pages.words import Bar, BarChart, at_resolution, count, counted, render, short
from adaptive_qs.privacy.budget import weaknesses
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.facts import Fact, group_facts
from adaptive_qs.release.statement import Manifest
from adaptive_qs.residual import ReferenceModel, expected_l1, is_measured, measured_variance
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema

# The chart of a column: neighbouring or rare codes share a bar.

MOST_STEPS = 40
"""Maximum number of bars of a histogram."""
MOST_LINES = 14
"""Maximum number of values with a line each."""


class Group(NamedTuple):
    """Codes that share one bar, with the first and the last of their values."""

    label: str
    codes: tuple[int, ...]
    ends: tuple[str, str]


def column_chart(
    column: ColumnBase, weights: Sequence[float], bar: Callable[[Group], Bar]
) -> BarChart:
    """Return a chart of the codes of a column, with one bar for each group of codes.

    Of many unordered values those with the largest weights are shown.
    """
    labels = column.labels_of_codes()
    codes = range(len(labels))
    if column.numeric:
        labels = _write_labels(labels)
    groups = [_build_group(labels, [k]) for k in codes]
    if len(labels) <= MOST_LINES:
        return BarChart(tuple(map(bar, groups)), False, (), "")
    if column.has_order:
        scale = column.num_values
        step = math.ceil(scale / MOST_STEPS)
        starts = range(0, scale, step)
        spans = [_build_group(labels, codes[k : min(k + step, scale)]) for k in starts]
        notes = [f"Each bar holds {step} neighbouring codes of {scale:,}."] if step > 1 else []
        widths = [b - a for a, b in pairwise(float(end) for end in column.bin_ends or ())]
        if widths and max(widths) - min(widths) > 1e-6 * max(widths):
            notes.append("Bars are equally wide, their bins are not.")
        apart = tuple(map(bar, groups[scale:]))  # missing values and the catch-all
        return BarChart(tuple(map(bar, spans)), True, apart, " ".join(notes))
    by_weight = sorted(codes, key=lambda k: (-weights[k], k))
    rest = tuple(sorted(by_weight[MOST_LINES - 1 :]))
    name = counted(len(rest), "other value")
    shown = [*(groups[k] for k in by_weight[: MOST_LINES - 1]), Group(name, rest, (name, name))]
    note = f"The {MOST_LINES - 1} most frequent of {len(labels):,} values, and all others together."
    return BarChart(tuple(map(bar, shown)), False, (), note)


def _write_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels with grouped thousands if a number has five digits; four may be a year."""
    ends = [end for label in labels for end in _find_ends(label, label)]
    write = words.grouped if any(re.match(r"-?\d{5}", end) for end in ends) else str

    def write_label(label: str) -> str:
        if not isinstance(label, BinLabel):
            return write(label)
        first, last = write(label.first), write(label.last)
        below = "below " if label.open else ""
        return BinLabel(f"{first} to {below}{last}", first, last, label.open)

    return tuple(map(write_label, labels))


def _build_group(labels: Sequence[str], codes: Sequence[int]) -> Group:
    first, last = labels[codes[0]], labels[codes[-1]]
    start, end = _find_ends(first, last)
    if first == last:
        return Group(first, (codes[0],), (start, end))
    below = "below " if isinstance(last, BinLabel) and last.open else ""
    return Group(f"{short(start)} to {below}{short(end)}", tuple(codes), (start, end))


def _find_ends(first: str, last: str) -> tuple[str, str]:
    return (
        first.first if isinstance(first, BinLabel) else first,
        last.last if isinstance(last, BinLabel) else last,
    )


# Which combinations were measured, in which rounds, and with how much noise.

Z95 = 1.959963984540054
"""Half the width of a 95 % interval, in standard errors."""


class Marginal(NamedTuple):
    """A marginal of the workload.

    Attributes:
        codes: The number of codes of each column.
        groups: The number of codes or groups of each column at the finest measured resolution.
        std: Standard error of a cell or group (rows); None if not measured.
        l1: Expected L1 error of the noise, as a share of the rows; None if not measured.
    """

    names: tuple[str, ...]
    codes: tuple[int, ...]
    groups: tuple[int, ...] = ()
    std: float | None = None
    l1: float | None = None

    @property
    def measured(self) -> bool:
        """Whether it was measured at full resolution."""
        return self.groups == self.codes

    @property
    def cells(self) -> tuple[int, int]:
        """The number of cells at the measured and at full resolution."""
        return math.prod(self.groups), math.prod(self.codes)

    @property
    def resolution(self) -> str:
        """The measured resolution as text, such as "age in 8 groups × city"."""
        return at_resolution(self.names, self.groups, self.codes)


def workload_marginals(bundle: Bundle, model: ReferenceModel, total: float) -> list[Marginal]:
    """Return the workload's marginals of several columns, the measured ones first.

    The noisiest comes first; the others follow in the order of the workload.
    """
    domain, known, unknown = model.domain, list[Marginal](), list[Marginal]()
    for clique in (c for c in bundle.workload.cliques if len(c) > 1):
        names, codes = domain.clique_names(clique), domain.shape(clique)
        levels = (c for c in domain.at_levels(clique) if is_measured(bundle.estimates, c, domain))
        if (finest := max(levels, key=domain.size, default=None)) is None:
            unknown.append(Marginal(names, codes))
            continue
        std = math.sqrt(measured_variance(model, finest).mean())
        noise = std, expected_l1(model, finest, total)
        known.append(Marginal(names, codes, domain.shape(finest), *noise))
    return [*sorted(known, key=lambda m: (-(m.l1 or 0.0), m.names)), *unknown]


class SingleColumn(NamedTuple):
    """A column, numbered from 1 in the schema, with the noise of its measurement if there is one.

    Attributes:
        std: Standard error of a code (rows).
        l1: Expected L1 error of the noise, as a share of the rows.
    """

    number: int
    declared: ColumnBase
    std: float | None = None
    l1: float | None = None


def single_columns(schema: Schema, model: ReferenceModel, total: float) -> list[SingleColumn]:
    """Return every column, in the order of the schema."""
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


def _error_bars(column: ColumnBase, model: ReferenceModel, attribute: int) -> BarChart:
    """Return the noisy counts of a column with 95 % intervals (rows)."""
    counts = model.marginal((attribute,))

    def bar(group: Group) -> Bar:
        count = math.fsum(counts[code] for code in group.codes)
        half = Z95 * math.sqrt(residual.group_variance(model, attribute, group.codes))
        return Bar(group.label, (count,), count - half, count + half, group.ends)

    return column_chart(column, counts.tolist(), bar)


# What tables of the release are suitable for.

PRECISE = 0.1
"""Largest L1 error of the noise, as a share of the rows, of counts that are called precise."""
NAMED = 4
"""Maximum number of columns or combinations that a line names."""


class Uses(NamedTuple):
    """Sentences: what tables of a release are good for, with care, and not."""

    good: tuple[str, ...]
    careful: tuple[str, ...]
    bad: tuple[str, ...]


def describe_uses(
    columns: Sequence[SingleColumn],
    marginals: Sequence[Marginal],
    unconnected: Sequence[str],
    rules: Sequence[str] = (),
) -> Uses:
    """Return what tables are good for, from released noise and the rules of the schema only."""
    measured = [c for c in columns if c.l1 is not None]
    precise, noisy = _split_by_noise([(c.declared.name, c.l1 or 0.0) for c in measured])
    known = [(words.combination(m.names), m.l1 or 0.0) for m in marginals if m.measured]
    pairs, noisy_pairs = _split_by_noise(known)
    coarse = [m.resolution for m in marginals if m.groups and not m.measured]
    others = sum(not (m.measured or m.groups) for m in marginals)
    good = [
        ("counts and shares of single columns", precise),
        ("counts by combinations that were measured", pairs),
        ("rules that every row of a table keeps", rules),
    ]
    careful = [
        ("single columns whose noise is large", noisy),
        ("combinations whose noise is large", noisy_pairs),
        ("combinations that were measured over groups of codes", coarse),
    ]
    more, bad = [], []
    if others:
        more.append(
            f"{counted(others, 'combination')} not measured as a whole: what a table shows there "
            "comes from the model"
        )
    if unconnected:
        bad.append(f"how anything depends on {_name(unconnected)}: no combination was measured")
    if stds := [c.std for c in measured if c.std is not None]:
        least = Z95 * sorted(stds)[len(stds) // 2]
        few = f"groups of fewer than about {count(least)} rows"
        bad.append(f"{few}, which noise can hide or create")
    bad.append("looking up single rows: every row of a synthetic table is artificial")
    said = (
        [f"{text}: {_name(names)}" for text, names in part if names] for part in (good, careful)
    )
    return Uses(tuple(next(said)), (*next(said), *more), tuple(bad))


def _split_by_noise(noise: Sequence[tuple[str, float]]) -> tuple[list[str], list[str]]:
    """Return names with little noise, most precise first, and with much, noisiest first."""
    ordered = [name for name, _ in sorted(noise, key=lambda each: each[1])]
    number = sum(l1 <= PRECISE for _, l1 in noise)
    return ordered[:number], ordered[number:][::-1]


def _name(names: Sequence[str]) -> str:
    return words.listed([short(name, 120) for name in names], NAMED)


COLUMNS_SHOWN = 24
MARGINALS_SHOWN = 40

SECTIONS = (
    ("good-for", "What it is good for"),
    ("promise", "What is promised"),
    ("columns", "Single columns, with error bars"),
    ("combinations", "Combinations of columns"),
    ("rounds", "How the rounds went"),
    ("facts", "Everything that is disclosed, and its cost"),
    ("use", "How to use the release"),
    ("versions", "Versions and settings"),
)


def bound_belief(epsilon: float) -> float:
    """Return the largest belief, after the release, in what had probability 1/2: e^ε/(1 + e^ε)."""
    return 1 / (1 + math.exp(-epsilon))


def release_page(bundle: Bundle) -> str:
    """Return one self-contained HTML file; equal bundles give equal text.

    It is made from members of the bundle only, so it may be shared with the bundle.
    """
    model = bundle.model()
    manifest = bundle.manifest
    total = max(model.total, 1.0)
    columns = single_columns(bundle.schema, model, total)
    shown = [i for i, c in enumerate(columns) if c.std is not None][:COLUMNS_SHOWN]
    marginals = workload_marginals(bundle, model, total)
    measured = [m for m in marginals if m.groups]
    rules = [rule.rule for rule in bundle.schema.declared_rules]
    return render(
        "release.html",
        ("adaptive_qs.release",),
        manifest=manifest,
        about=bundle.schema.about,
        uses=describe_uses(columns, marginals, manifest.unconnected, rules),
        sure=bound_belief(manifest.epsilon),
        total=model.total,
        total_std=math.sqrt(1 / model.precision(())),
        columns=columns,
        by_queries=[
            (columns[i].declared.name, len(strategy.integers))
            for i, strategy in sorted(bundle.strategies.items())
        ],
        cards=[(columns[i], _error_bars(columns[i].declared, model, i)) for i in shown],
        marginals=measured[:MARGINALS_SHOWN],
        measured=len(measured),
        coarse=sum(not m.measured for m in measured),
        unmeasured=[m for m in marginals if not m.groups],
        most_unmeasured=400,
        rounds=bundle.rounds,
        rounds_shown=200,
        z95=Z95,
        disclosed=group_facts(manifest.facts),
        sections=SECTIONS,
    )


_COLUMNS_NAMED = 12


def statement_page(manifest: Manifest) -> str:
    """Return the statement as Markdown; equal statements give equal text."""
    facts = [fact for fact in manifest.facts if fact.basis == "paid for"]
    paid = [(_mark_fact(fact), fact.rho, fact.delta) for fact in facts]
    return render(
        "statement.md",
        ("adaptive_qs.release",),
        manifest=manifest,
        weak=weaknesses(manifest.epsilon, manifest.delta, manifest.protects),
        paid=[*paid, ("all", manifest.rho_spent, manifest.delta_spent)],
        free=group_facts([fact for fact in manifest.facts if fact.basis != "paid for"]),
        escape=_escape,
        name_columns=_name_columns,
        mark_fact=_mark_fact,
    )


def _mark_fact(fact: Fact) -> str:
    return ": ".join(filter(None, (_name_columns(fact.columns), _escape(fact.fact))))


def _name_columns(columns: Sequence[str]) -> str:
    names = words.join_first([*map(_escape, columns)], _COLUMNS_NAMED)
    return names + (" columns" if len(columns) > _COLUMNS_NAMED else "")


def _escape(text: str) -> str:
    """Return the text on one line, with the characters escaped that Markdown interprets."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode()
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", shown)


# The members of a bundle for people; loading needs none of them.

_NO_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>No page</title>
<p>The page with charts could not be made because of an error in the program. The release is
complete without it: statement.md states the promise, and tables can be sampled.
"""


def build_pages(bundle: Bundle) -> dict[str, str]:
    """Return every page by its name; equal bundles give equal pages.

    If the page with charts cannot be made, another one says so: the release is paid for.
    """
    try:
        page = release_page(bundle)
    except Exception:  # noqa: BLE001  (the budget is spent, and everything else is whole)
        page = _NO_PAGE
    return {"statement.md": statement_page(bundle.manifest), "page.html": page}
