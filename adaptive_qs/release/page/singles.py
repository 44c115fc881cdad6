"""Single columns as they were released: noisy counts with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from adaptive_qs.data.any_column import AnyColumn
from adaptive_qs.data.schema import Schema
from adaptive_qs.pages.charts import Bar, BarChart
from adaptive_qs.release.page.axes import Group, axis_of
from adaptive_qs.release.page.noise import Z95, expected_l1, group_variance
from adaptive_qs.residual.model import ReferenceModel


@dataclass(frozen=True)
class SingleColumn:
    """One column of the release.

    Attributes:
        number: its position in the schema, from 1.
        name: of the column.
        type: as declared.
        description: as declared.
        codes: their number.
        std: standard error of a code (rows); None where nothing was measured.
        l1: expected distance from the truth through noise, in shares of the rows; or None.
    """

    number: int
    name: str
    type: str
    description: str
    codes: int
    std: float | None
    l1: float | None


def single_columns(schema: Schema, model: ReferenceModel, total: float) -> list[SingleColumn]:
    """Every column, in the order of the schema."""
    columns = []
    for i, column in enumerate(schema.columns):
        measured = model.precision((i,)) > 0
        columns.append(
            SingleColumn(
                i + 1,
                column.name,
                column.type,
                column.description,
                column.size,
                math.sqrt(group_variance(model, i, 1)) if measured else None,
                expected_l1(model, (i,), total) if measured else None,
            )
        )
    return columns


def error_bars(column: AnyColumn, model: ReferenceModel, attribute: int) -> BarChart:
    """The noisy counts of one column with 95 % intervals (rows)."""
    counts = model.marginal((attribute,))

    def bar(group: Group) -> Bar:
        count = math.fsum(counts[code] for code in group.codes)
        half = Z95 * math.sqrt(group_variance(model, attribute, len(group.codes)))
        return Bar(group.label, (count,), count - half, count + half, group.ends)

    return axis_of(column, counts.tolist()).chart(bar)
