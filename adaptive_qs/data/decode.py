"""Codes back to values of the declared types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from adaptive_qs.data.codec import draw_values
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import SchemaError


def decode(table: CodedTable, schema: Schema, rng: np.random.Generator) -> pa.Table:
    """The table with the values that its codes stand for.

    Categorical values have the type they were declared with; integers, numbers, dates and times
    are drawn uniformly from their bin or period, never outside the declared bounds; missing
    values are null; unknown values are the catch-all label. Encoding the result under the same
    schema gives the same codes.

    Args:
        table: codes under `schema.domain()`.
        schema: the schema of the codes.
        rng: the randomness of the draws, taken column by column.

    Raises:
        SchemaError: the table has another domain than the schema.
    """
    if table.domain != schema.domain():
        raise SchemaError("the codes and the schema have different domains: use the same schema")
    columns = [
        draw_values(column, codes, rng) for column, codes in zip(schema.columns, table.columns)
    ]
    return pa.table(columns, names=list(schema.names))
