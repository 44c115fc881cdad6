"""Codes in public words: one label for each code of a column, to name queries with."""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise

import numpy as np

from adaptive_qs.data.categories import BooleanColumn, CategoricalColumn
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.moments import MomentColumn
from adaptive_qs.data.periods import starts_of
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn
from adaptive_qs.labels import BinLabel

MISSING = "(missing)"
"""Label of missing values; in more brackets where that is a declared value."""

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m"}


def column_labels(column: ColumnBase) -> tuple[str, ...]:
    """One distinct label for each code of a column.

    A value is named by itself, a calendar period in ISO 8601 (quarters as "2024-Q1"), and a bin by
    its ends, as a :class:`BinLabel`. Unknown and missing values come last, as they do in the codes.
    """
    labels = list(_value_labels(column))
    if column.missing:
        marker = MISSING
        while marker in labels:
            marker = f"({marker})"
        labels.append(marker)
    assert len(labels) == column.size
    return tuple(labels)


@singledispatch
def _value_labels(column: ColumnBase) -> list[str]:
    """Labels of declared values and of the catch-all."""
    raise AssertionError(f"no labels for {type(column).__name__}")


@_value_labels.register
def _(column: CategoricalColumn) -> list[str]:
    if isinstance(column.values[0], bool):
        return [str(value).lower() for value in column.labels]
    return [str(value) for value in column.labels]


@_value_labels.register
def _(column: BooleanColumn) -> list[str]:
    return ["false", "true"]


@_value_labels.register
def _(column: IntegerColumn) -> list[str]:
    if column.starts is None:
        return [str(value) for value in range(column.min, column.max + 1)]
    return [
        str(start) if end == start + 1 else _bin(str(start), str(end - 1))
        for start, end in pairwise((*column.starts, column.max + 1))
    ]


@_value_labels.register
def _(column: NumericColumn) -> list[str]:
    texts = [_shortest(edge) for edge in column.bin_edges]
    bins = [BinLabel(f"[{a}, {b})", a, b, open=True) for a, b in pairwise(texts)]
    bins[-1] = BinLabel(f"[{texts[-2]}, {texts[-1]}]", texts[-2], texts[-1])
    return [*bins]


@_value_labels.register
def _(column: MomentColumn) -> list[str]:
    periods = column.period(column.min) + np.arange(column.num_values)
    if column.granularity == "quarter":
        return [f"{1970 + period // 4}-Q{period % 4 + 1}" for period in periods.tolist()]
    if column.granularity == "week":
        days = starts_of(periods, "week").astype("M8[s]").astype("M8[D]")
        return [_bin(str(day), str(day + np.timedelta64(6, "D"))) for day in days]
    unit = _UNITS[column.granularity]
    moments = periods.astype(f"M8[{unit}]")
    if column.granularity == "hour":
        return [f"{moment}h" for moment in moments]
    return [str(moment) for moment in moments]


def _bin(first: str, last: str) -> BinLabel:
    return BinLabel(f"{first}..{last}", first, last)


def _shortest(number: float) -> str:
    """The shortest text that reads back as the same number, without a needless ".0"."""
    text = repr(number)
    return text.removesuffix(".0")
