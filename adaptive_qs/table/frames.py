"""Sampled tables as the kind of data frame that the caller works with.

A data frame has containers, some of which pandas infers from the cells: one row without a value
turns a column of int64 into float64, and one cell of text turns it into text. A sampled table must
not reveal them. So only the *family* of containers that the caller chose for a column is read from
the frame: categories, nullable types of pandas, or types of Arrow. The schema, which is public,
gives all else: whether a column holds integers, numbers or text, its categories and their order.
Plain types (int64, float64, object, the default text of pandas) choose nothing.
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

from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.files import PRIVATE, STAMP_KEY
from adaptive_qs.table.schema import Schema

Library = Literal["pandas", "polars", "pyarrow", "codes"]
_CATEGORIES, _ARROW = "categories", "arrow"
_INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_NULLABLE = {"int64": "Int64", "double": "Float64", "bool": "boolean", "string": "string"}
"""Nullable type of pandas for each type of Arrow that a declared column has."""


@dataclass(frozen=True)
class Kind:
    """The kind of a private table.

    Attributes:
        library: the library of the table.
        containers: of each column for which the caller chose one: categories, types of Arrow, or
            the name of a nullable type of pandas.
    """

    library: Library
    containers: Mapping[str, str] = field(default_factory=dict)


def find_kind(table: Any) -> Kind:
    """Return the kind of a given table; files and everything unknown count as pandas."""
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


def _container(dtype: Any) -> str | None:
    """Return the container that a type of pandas stands for; None for the plain ones."""
    if isinstance(dtype, pd.CategoricalDtype):
        return _CATEGORIES
    if isinstance(dtype, pd.ArrowDtype):
        return _ARROW
    if isinstance(dtype, pd.StringDtype):  # the default text of pandas has NaN, not NA
        return f"string[{dtype.storage}]" if dtype.na_value is pd.NA else None
    nullable = {*_INTEGERS, "Float32", "Float64", "boolean"}
    return str(dtype.name) if dtype.name in nullable else None


def to_kind(table: pa.Table, kind: Kind, schema: Schema) -> Any:
    """Return the decoded table as that kind of data frame.

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
    categories = {
        column.name: column
        for column in schema.columns
        if column.listed is not None and kind.containers.get(column.name) == _CATEGORIES
    }
    if kind.library == "pyarrow":
        for name, column in categories.items():
            place = table.column_names.index(name)
            table = table.set_column(place, name, _dictionary(table[name], column))
        return table
    if kind.library == "polars":
        frame = nw.from_arrow(table, backend="polars")
        texts = {n: c for n, c in categories.items() if pa.types.is_string(table[n].type)}
        enums = [
            nw.col(n).cast(nw.Enum([str(v) for v in c.listed or ()])) for n, c in texts.items()
        ]
        return frame.with_columns(enums).to_native() if enums else frame.to_native()
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns):
        if name in categories:
            frame[name] = _dictionary(column, categories[name]).to_pandas()
        elif dtype := _dtype(kind.containers.get(name), column, schema.by_name[name]):
            frame[name] = _filled(column, dtype)
    stamp = (table.schema.metadata or {}).get(STAMP_KEY, b"").decode()
    if stamp not in ("", PRIVATE):
        frame.attrs[STAMP_KEY.decode()] = stamp
    return frame


def _dtype(kept: str | None, values: pa.ChunkedArray, column: ColumnBase) -> Any:
    """Return the type of pandas for values of a declared type; None for the plain one.

    Numbers are kept in 64 bits: fewer would move some of them out of their bins.
    """
    declared = values.type
    if kept in (None, _CATEGORIES):
        plain = not values.null_count or declared not in (pa.int64(), pa.bool_())
        return None if plain else _NULLABLE[str(declared)]
    if kept == _ARROW:
        return pd.ArrowDtype(declared)
    if kept.startswith("string") and pa.types.is_string(declared):
        return kept
    if kept in _INTEGERS and pa.types.is_integer(declared):
        limits = np.iinfo(kept.lower())
        low, high = column.limits or (-np.inf, np.inf)
        return kept if limits.min <= low and high <= limits.max else "Int64"
    return _NULLABLE.get(str(declared))


def _filled(column: pa.ChunkedArray, dtype: Any) -> Any:
    """Return a column in an extension type of pandas, without a detour over floats."""
    if isinstance(dtype, pd.ArrowDtype):
        return pd.array(column.combine_chunks(), dtype=dtype)
    if pa.types.is_string(column.type):
        return pd.array(column.to_pandas(), dtype=dtype)
    missing = column.is_null().to_numpy()
    array = pd.array(column.fill_null(pa.scalar(0).cast(column.type)).to_numpy(), dtype=dtype)
    array[missing] = pd.NA
    return array


def _dictionary(column: pa.ChunkedArray, listed: ColumnBase) -> pa.DictionaryArray:
    """Return the positions of values among the listed ones, as a dictionary; missing is null."""
    values = pa.array(listed.listed)
    codes = pc.index_in(column, value_set=values).combine_chunks()
    return pa.DictionaryArray.from_arrays(codes, values, ordered=listed.has_order)
