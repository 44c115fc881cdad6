"""Sampled tables in the kind of data frame that the caller works with."""

from __future__ import annotations

from typing import Any, Literal

import narwhals as nw
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa

from adaptive_qs.data.stamps import PRIVATE, STAMP_KEY
from adaptive_qs.data.table import CodedTable

Kind = Literal["pandas", "polars", "pyarrow", "codes"]


def kind_of(table: Any) -> Kind:
    """The kind of table that came; files and everything unknown count as pandas."""
    if isinstance(table, CodedTable):
        return "codes"
    native = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        if native.implementation.is_polars():
            return "polars"
        if native.implementation.is_pyarrow():
            return "pyarrow"
    return "pandas"


def to_kind(table: pa.Table, kind: Kind) -> Any:
    """The decoded table as that kind of data frame.

    In pandas, columns with missing values have the nullable types Int64 and boolean, so that
    integers stay integers; dates are datetime64. A stamp in the table's metadata that says that
    it is not private is copied to ``attrs``.
    """
    if kind == "pyarrow":
        return table
    if kind == "polars":
        return nw.from_arrow(table, backend="polars").to_native()
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns):
        if column.null_count and (
            pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
        ):
            nullable = "boolean" if pa.types.is_boolean(column.type) else "Int64"
            frame[name] = pd.array(column.to_pylist(), dtype=nullable)
    stamp = (table.schema.metadata or {}).get(STAMP_KEY, b"").decode()
    if stamp not in ("", PRIVATE):
        frame.attrs[STAMP_KEY.decode()] = stamp
    return frame
