"""The codes of a column as the axis of a chart: neighbours or rare values put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from adaptive_qs.data.any_column import AnyColumn
from adaptive_qs.data.labels import column_labels
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn
from adaptive_qs.labels import BinLabel
from adaptive_qs.pages.charts import Bar, BarChart
from adaptive_qs.pages.names import short
from adaptive_qs.pages.numbers import counted, grouped

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


def axis_of(column: AnyColumn, weights: Sequence[float]) -> Axis:
    """The axis of a column.

    Args:
        column: its declaration.
        weights: of each code; of an unordered column with many values the heaviest are shown.
    """
    labels = column_labels(column)
    codes = range(len(labels))
    if isinstance(column, (IntegerColumn, NumericColumn)):
        labels = _readable(labels)
    if len(labels) <= MOST_LINES:
        return Axis(tuple(_single(labels, k) for k in codes), False, (), "")
    if column.ordered:
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


def _even(column: AnyColumn, step: int) -> bool:
    """Whether all bars but the last stand for equally wide parts of the scale."""
    if isinstance(column, NumericColumn):
        edges = [float(edge) for edge in column.bin_edges]
    elif isinstance(column, IntegerColumn) and column.bin_starts is not None:
        edges = [float(edge) for edge in (*column.bin_starts, column.max + 1)]
    else:
        return True
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
