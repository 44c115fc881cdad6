"""Sampled tables in the kind of data frame that the caller works with.

A data frame tells how its columns are kept, and some of that pandas infers from the cells: one row
without a value turns a column of int64 into float64, and one that is no number turns it into text.
A table that comes back must not tell it on. So the frame says only which *family* of containers
the caller chose for a column: categories, pandas's nullable types, Arrow's types. All else (whether
a column holds integers, numbers or text, its categories and their order) comes from the schema,
which is public; plain types (int64, float64, object, pandas's default text) say nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import narwhals as nw
import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.data.categories import BooleanColumn, CategoricalColumn
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.ranges import IntegerColumn
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.stamps import PRIVATE, STAMP_KEY
from adaptive_qs.data.table import CodedTable

Library = Literal["pandas", "polars", "pyarrow", "codes"]
Family = Literal["categories", "text", "nullable", "arrow"]


@dataclass(frozen=True)
class Container:
    """What a caller chose to keep a column in.

    Attributes:
        family: of the type; "text" is nullable text.
        detail: the integer type's name, or how text is stored; "" for the family's usual.
    """

    family: Family
    detail: str = ""


@dataclass(frozen=True)
class Kind:
    """The kind of table that came; see the module on what of it depends on private rows.

    Attributes:
        library: whose tables they are.
        containers: by name, of the columns for which one was chosen.
    """

    library: Library
    containers: Mapping[str, Container] = field(default_factory=dict)


def kind_of(table: Any) -> Kind:
    """The kind of table that came; files and everything unknown count as pandas."""
    if isinstance(table, CodedTable):
        return Kind("codes")
    native = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(native, nw.DataFrame):
        return Kind("pandas")
    if native.implementation.is_pyarrow():
        chosen = {f.name: _CATEGORIES for f in table.schema if pa.types.is_dictionary(f.type)}
        return Kind("pyarrow", chosen)
    if native.implementation.is_polars():
        listed = (nw.Enum, nw.Categorical)
        return Kind("polars", {n: _CATEGORIES for n, t in native.schema.items() if t in listed})
    if not isinstance(table, pd.DataFrame):
        return Kind("pandas")
    found = {str(name): _container(dtype) for name, dtype in table.dtypes.items()}
    return Kind("pandas", {name: kept for name, kept in found.items() if kept is not None})


def to_kind(table: pa.Table, kind: Kind, schema: Schema) -> Any:
    """The decoded table as that kind of data frame.

    Columns that came as categories have the values that the schema lists as categories, in its
    order, and are ordered where it says so. In pandas, columns that came in a nullable type come
    back in the one of their declared type, with the integer type that came where the declared
    values fit it; plain columns with missing values have the nullable types Int64 and boolean, so
    that integers stay integers; dates are datetime64. A stamp in the table's metadata that says
    that it is not private is copied to ``attrs``.

    Args:
        table: values of the declared types.
        kind: what came.
        schema: of the table.
    """
    listed = {c.name: c for c in schema.columns if isinstance(c, CategoricalColumn | BooleanColumn)}
    categories = {
        name: listed[name]
        for name, kept in kind.containers.items()
        if kept.family == "categories" and name in listed
    }
    if kind.library == "pyarrow":
        for name, column in categories.items():
            table = table.set_column(
                table.column_names.index(name), name, _dictionary(table[name], column)
            )
        return table
    if kind.library == "polars":
        frame = nw.from_arrow(table, backend="polars")
        texts = {n: c for n, c in categories.items() if pa.types.is_string(table[n].type)}
        enums = [nw.col(n).cast(nw.Enum([str(v) for v in labels_of(c)])) for n, c in texts.items()]
        return frame.with_columns(enums).to_native() if enums else frame.to_native()
    return _pandas(table, kind.containers, categories, schema)


def labels_of(column: CategoricalColumn | BooleanColumn) -> tuple[str | int, ...]:
    """The values that a schema lists for a column, in the order of their codes."""
    return (False, True) if isinstance(column, BooleanColumn) else column.labels


def _pandas(
    table: pa.Table,
    containers: Mapping[str, Container],
    categories: Mapping[str, CategoricalColumn | BooleanColumn],
    schema: Schema,
) -> Any:
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns):
        kept = containers.get(name)
        if name in categories:
            frame[name] = _categorical(column, categories[name])
            continue
        dtype = None if kept is None else _dtype(kept, column.type, schema.column(name))
        if dtype is None and column.null_count and column.type in (pa.int64(), pa.bool_()):
            dtype = _NULLABLE[str(column.type)]
        if dtype is not None:
            frame[name] = _filled(column, dtype)
    stamp = (table.schema.metadata or {}).get(STAMP_KEY, b"").decode()
    if stamp not in ("", PRIVATE):
        frame.attrs[STAMP_KEY.decode()] = stamp
    return frame


def _container(dtype: Any) -> Container | None:
    """What was chosen by a type of pandas; None for the plain ones."""
    if isinstance(dtype, pd.CategoricalDtype):
        return _CATEGORIES
    if isinstance(dtype, pd.ArrowDtype):
        return Container("arrow")
    if isinstance(dtype, pd.StringDtype):  # the default text of pandas has NaN, not NA
        return Container("text", dtype.storage) if dtype.na_value is pd.NA else None
    if isinstance(dtype, _INTEGERS):
        return Container("nullable", dtype.name)
    if isinstance(dtype, pd.Float32Dtype | pd.Float64Dtype | pd.BooleanDtype):
        return Container("nullable")
    return None


def _dtype(kept: Container, declared: pa.DataType, column: ColumnBase) -> Any:
    """The type of pandas for values of a declared type; None for the plain one.

    Numbers are kept in 64 bits: fewer would move some of them out of their bins.
    """
    if kept.family == "categories":
        return None
    if kept.family == "arrow":
        return pd.ArrowDtype(declared)
    if kept.family == "text" and pa.types.is_string(declared):
        return pd.StringDtype(kept.detail)
    if kept.detail in _INTEGER_NAMES and pa.types.is_integer(declared):
        limits = np.iinfo(kept.detail.lower())
        low, high = _extremes(column)
        return kept.detail if limits.min <= low and high <= limits.max else "Int64"
    return _NULLABLE.get(str(declared))


def _extremes(column: ColumnBase) -> tuple[int, int]:
    """The least and the greatest integer that a schema declares for a column."""
    if isinstance(column, IntegerColumn):
        return column.min, column.max
    labels = [int(label) for label in labels_of(column)]  # type: ignore[arg-type]
    return min(labels), max(labels)


def _filled(column: pa.ChunkedArray, dtype: Any) -> Any:
    """A column in an extension type of pandas, without a detour over floats."""
    if isinstance(dtype, pd.ArrowDtype):
        return pd.array(column.combine_chunks(), dtype=dtype)
    if pa.types.is_string(column.type):
        return pd.array(column.to_pandas(), dtype=dtype)
    missing = column.is_null().to_numpy()
    values = column.fill_null(0 if not pa.types.is_boolean(column.type) else False).to_numpy()
    array = pd.array(values, dtype=dtype)
    array[missing] = pd.NA
    return array


def _codes(column: pa.ChunkedArray, listed: CategoricalColumn | BooleanColumn) -> pa.ChunkedArray:
    """Positions of the values among those that the schema lists; null where missing."""
    return pc.index_in(column, value_set=pa.array(labels_of(listed)))


def _categorical(column: pa.ChunkedArray, listed: CategoricalColumn | BooleanColumn) -> Any:
    codes = _codes(column, listed).fill_null(-1).to_numpy()
    categories: Any = pd.Index(labels_of(listed))
    return pd.Categorical.from_codes(codes, categories, ordered=listed.ordered)


def _dictionary(
    column: pa.ChunkedArray, listed: CategoricalColumn | BooleanColumn
) -> pa.DictionaryArray:
    codes = _codes(column, listed).combine_chunks()
    return pa.DictionaryArray.from_arrays(
        codes, pa.array(labels_of(listed)), ordered=listed.ordered
    )


_CATEGORIES = Container("categories")
_INTEGERS = (
    pd.Int8Dtype, pd.Int16Dtype, pd.Int32Dtype, pd.Int64Dtype,
    pd.UInt8Dtype, pd.UInt16Dtype, pd.UInt32Dtype, pd.UInt64Dtype,
)  # fmt: skip
_INTEGER_NAMES = frozenset(dtype.name for dtype in _INTEGERS)
_NULLABLE = {"int64": "Int64", "double": "Float64", "bool": "boolean", "string": "string"}
"""Types of pandas with a missing value, by the type of Arrow that a declared column has."""
