"""A schema that generated rows can follow, in place of one that leaves bins or values open."""

from __future__ import annotations

import numpy as np

from adaptive_qs.data.private import (
    PrivateCategoricalColumn,
    PrivateIntegerColumn,
    PrivateNumericColumn,
)
from adaptive_qs.data.schema import AnyColumn, Schema

WIDTH = 100
"""Of a range without declared ends."""
MOST_BINS = 20
MOST_VALUES = 8


def stand_in(schema: Schema) -> Schema:
    """The schema with arbitrary bins and values where it leaves them open."""
    columns = tuple(map(_column, schema.columns))
    return Schema(version=schema.version, columns=columns, ignore=schema.ignore)


def _column(column: AnyColumn) -> AnyColumn:
    if isinstance(column, PrivateCategoricalColumn):
        # More than can be kept, where that is possible.
        values = [f"value {k}" for k in range(min(column.private_values + 2, MOST_VALUES))]
        return column.resolved([v for v in values if v not in column.missing])
    if isinstance(column, PrivateIntegerColumn):
        low, high = _ends(column.min, column.max)
        count = min(column.private_bins, MOST_BINS, int(high - low) + 1)
        edges = np.linspace(low, high + 1, count + 1).astype(np.int64)
        return column.resolved(np.unique(edges).tolist())
    if isinstance(column, PrivateNumericColumn):
        low, high = _ends(column.min, column.max)
        count = min(column.private_bins, MOST_BINS)
        if column.decimals is None:
            return column.resolved(np.linspace(low, high, count + 1).tolist())
        unit = 10**column.decimals
        steps = np.linspace(round(low * unit), round(high * unit), count + 1)
        return column.resolved((np.unique(np.rint(steps)) / unit).tolist())
    return column


def _ends(low: float | None, high: float | None) -> tuple[float, float]:
    """The declared ends, or ends as far apart as ``WIDTH``."""
    if low is None:
        low = 0 if high is None else high - WIDTH
    return low, low + WIDTH if high is None else high
