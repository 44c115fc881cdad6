"""Every kind of column in one type, told apart by its keys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from adaptive_qs.data.categories import BooleanColumn, CategoricalColumn
from adaptive_qs.data.moments import DateColumn, DatetimeColumn
from adaptive_qs.data.private import (
    PrivateCategoricalColumn,
    PrivateColumn,
    PrivateIntegerColumn,
    PrivateNumericColumn,
)
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn

AnyColumn = (
    CategoricalColumn
    | PrivateCategoricalColumn
    | IntegerColumn
    | PrivateIntegerColumn
    | NumericColumn
    | PrivateNumericColumn
    | DateColumn
    | DatetimeColumn
    | BooleanColumn
)


VARIANTS = ("declared", "private")
"""Two columns of the same type; pydantic names the variant in the place of an error."""


def _variant(column: Any) -> str:
    if isinstance(column, dict):
        return VARIANTS["private_bins" in column or "private_values" in column]
    return VARIANTS[isinstance(column, PrivateColumn)]


_Variant = Discriminator(_variant)
_Declared, _Private = map(Tag, VARIANTS)

Column = Annotated[
    Annotated[
        Annotated[CategoricalColumn, _Declared] | Annotated[PrivateCategoricalColumn, _Private],
        _Variant,
    ]
    | Annotated[
        Annotated[IntegerColumn, _Declared] | Annotated[PrivateIntegerColumn, _Private], _Variant
    ]
    | Annotated[
        Annotated[NumericColumn, _Declared] | Annotated[PrivateNumericColumn, _Private], _Variant
    ]
    | DateColumn
    | DatetimeColumn
    | BooleanColumn,
    Field(discriminator="type"),
]
"""`AnyColumn` as pydantic reads it."""
