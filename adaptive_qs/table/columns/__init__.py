"""The types of columns: one class each, and the names by which schemas call them.

To add one, write a class that follows :class:`ColumnBase` and list it here. Schemas, their
published JSON Schema, messages, proposals and the audit take it from this list.
"""

from collections.abc import Sequence

from adaptive_qs.table.columns.base import ColumnBase, Topic
from adaptive_qs.table.columns.category import BooleanColumn, CategoricalColumn
from adaptive_qs.table.columns.moment import DateColumn, DatetimeColumn
from adaptive_qs.table.columns.numeric import IntegerColumn, NumericColumn
from adaptive_qs.table.columns.part import PartColumn

COLUMN_TYPES: dict[str, type[ColumnBase]] = {
    "part": PartColumn,
    "categorical": CategoricalColumn,
    "integer": IntegerColumn,
    "numeric": NumericColumn,
    "date": DateColumn,
    "datetime": DatetimeColumn,
    "boolean": BooleanColumn,
}
"""The classes by the values of the key "type". Drafts are requested from the end: types that take
nearly any cells come first, those that take few come last."""


def list_values(column: ColumnBase, values: Sequence[str]) -> ColumnBase:
    """Return the proposal of a column of numbers with a list of its values instead of bins."""
    topics: list[Topic] = ["values", *(topic for topic in column.open if topic != "limits")]
    return CategoricalColumn(
        name=column.name, type="categorical", values=tuple(values), missing=column.missing,
        description=column.description, open=tuple(topics),
        why=(*column.why, "its values are listed: another column determines each"),
    )  # fmt: skip
