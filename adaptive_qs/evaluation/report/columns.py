"""Single columns of both tables, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.schema import Schema
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.report.scale import fresh_sample_l1, one_way_shares
from adaptive_qs.pages.charts import Bar, BarChart
from adaptive_qs.release.page.axes import Group, axis_of


@dataclass(frozen=True)
class ColumnPair:
    """One column in both tables.

    Attributes:
        number: its position in the schema, from 1.
        name: of the column.
        codes: their number.
        variation: share of the rows that would have to change their code.
        fresh: the same expected of a fresh sample.
        shares: of the codes, in the true and in the synthetic table.
    """

    number: int
    name: str
    codes: int
    variation: float
    fresh: float
    shares: tuple[NDArray[np.float64], NDArray[np.float64]]


def column_pairs(pair: TablePair) -> list[ColumnPair]:
    """Every column, the worst first."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    both = zip(one_way_shares(pair.true), one_way_shares(pair.synthetic))
    found = [
        ColumnPair(
            i + 1,
            pair.domain.names[i],
            true.size,
            float(np.abs(true - made).sum() / 2),
            fresh_sample_l1(true, *rows) / 2,
            (true, made),
        )
        for i, (true, made) in enumerate(both)
    ]
    return sorted(found, key=lambda column: (-column.variation, column.number))


def column_chart(column: ColumnPair, schema: Schema) -> BarChart:
    """Shares of both tables; values are put together by their larger share."""
    true, made = column.shares

    def bar(group: Group) -> Bar:
        codes = list(group.codes)
        values = (float(true[codes].sum()), float(made[codes].sum()))
        return Bar(group.label, values, ends=group.ends)

    weights = np.maximum(true, made).tolist()
    return axis_of(schema.column(column.name), weights).chart(bar)
