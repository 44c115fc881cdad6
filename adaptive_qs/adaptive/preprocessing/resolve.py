"""From a schema with private columns to one that can be coded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from adaptive_qs.adaptive.preprocessing.gather import Gathered, gather
from adaptive_qs.adaptive.preprocessing.ranges import learn_ranges
from adaptive_qs.adaptive.preprocessing.shares import column_costs
from adaptive_qs.adaptive.preprocessing.texts import Counts, Texts
from adaptive_qs.data.categories import CategoricalColumn
from adaptive_qs.data.encode import CheckRows
from adaptive_qs.data.private import (
    PrivateCategoricalColumn,
    PrivateIntegerColumn,
    PrivateNumericColumn,
)
from adaptive_qs.data.schema import AnyColumn, Schema
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, PartitionEvent
from adaptive_qs.privacy.labels import Purpose, column_label
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.partitions import least_threshold
from adaptive_qs.progress import StepProgress

MOST_BYTES = 2**30
"""Ceiling of the private values kept, where the caller gives none."""


def gather_private(
    source: Any,
    schema: Schema,
    cost: Cost,
    *,
    most_bytes: int = MOST_BYTES,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> Gathered:
    """The private values that a schema is learnt from; none, unread, if it left nothing open.

    Every cell of the table fits the schema that :func:`learn_schema` makes of them: what encoding
    would refuse is refused here. No budget is needed yet, and none is touched.

    Args:
        source: the path of a CSV or Parquet file, or a pandas, polars or pyarrow table.
        schema: what is public about the table.
        cost: most that all columns together may cost; see :func:`.shares.preprocessing_cost`.
        most_bytes: ceiling of the private values kept while the columns are learnt.
        progress: reports the reading.
        check_rows: told how many rows have come; it raises where they are too many.

    Raises:
        InputError: the cost is too small to divide.
        DataError: the table does not fit the schema, or is coded.
        ResourceExceeded: the private columns do not fit ``most_bytes``.
    """
    if not schema.private_columns:
        return Gathered()
    column_costs(schema, cost)
    return gather(source, schema, most_bytes, progress, check_rows)


def learn_schema(schema: Schema, gathered: Gathered, mechanisms: Mechanisms, cost: Cost) -> Schema:
    """The schema with bins and values in place of what it left open; itself if it left nothing.

    What is released is fully determined by the schema, the cost and the outputs of the mechanisms:
    a run that is resumed gets the same schema.

    Args:
        schema: what is public about the table.
        gathered: what :func:`gather_private` found for this schema and cost.
        mechanisms: every private value passes through it, charged before it is drawn.
        cost: most that all columns together may cost.

    Raises:
        InputError: the cost is too small to divide; nothing is charged.
        BudgetExceeded: the ledger behind ``mechanisms`` holds less than ``cost``.
    """
    if not schema.private_columns:
        return schema
    costs = column_costs(schema, cost)
    ranges = [
        c for c in schema.columns if isinstance(c, PrivateIntegerColumn | PrivateNumericColumn)
    ]
    learnt: dict[str, AnyColumn] = {
        **learn_ranges(ranges, gathered.numbers, mechanisms, costs),
        **{
            c.name: _learn_values(c, *gathered.texts[c.name], mechanisms, costs[c.name])
            for c in schema.columns
            if isinstance(c, PrivateCategoricalColumn)
        },
    }
    return Schema(
        version=schema.version,
        description=schema.description,
        columns=tuple(learnt.get(c.name, c) for c in schema.columns),
        ignore=schema.ignore,
    )


def resolve_private(
    source: Any,
    schema: Schema,
    mechanisms: Mechanisms,
    cost: Cost,
    *,
    most_bytes: int = MOST_BYTES,
    progress: StepProgress | None = None,
    check_rows: CheckRows | None = None,
) -> Schema:
    """:func:`gather_private` and :func:`learn_schema` in a row, with their arguments and errors."""
    gathered = gather_private(
        source, schema, cost, most_bytes=most_bytes, progress=progress, check_rows=check_rows
    )
    return learn_schema(schema, gathered, mechanisms, cost)


def _learn_values(
    column: PrivateCategoricalColumn,
    texts: Texts,
    counts: Counts,
    mechanisms: Mechanisms,
    cost: Cost,
) -> CategoricalColumn:
    """The column with the values found; see :mod:`adaptive_qs.privacy.partitions`."""
    variance = Fraction(UNITS_PER_RHO, 2 * cost.rho_units)
    event = PartitionEvent(
        column_label(Purpose.VALUES, column.name),
        variance,
        least_threshold(variance, cost.delta),
        cost.delta,
    )
    return column.resolved(mechanisms.discover_values(event, texts, counts, column.private_values))
