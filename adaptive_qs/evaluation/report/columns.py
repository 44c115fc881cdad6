"""Single columns of both tables, side by side."""

from __future__ import annotations

import numpy as np

from adaptive_qs.data.schema import Schema
from adaptive_qs.evaluation.verdict.column_pairs import ColumnPair
from adaptive_qs.pages.charts import Bar, BarChart
from adaptive_qs.release.page.axes import Group, axis_of


def column_chart(column: ColumnPair, schema: Schema) -> BarChart:
    """Shares of both tables; values are put together by their larger share."""
    true, made = column.shares

    def bar(group: Group) -> Bar:
        codes = list(group.codes)
        values = (float(true[codes].sum()), float(made[codes].sum()))
        return Bar(group.label, values, ends=group.ends)

    weights = np.maximum(true, made).tolist()
    return axis_of(schema.column(column.name), weights).chart(bar)
