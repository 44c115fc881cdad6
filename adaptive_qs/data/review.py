"""Whether the author of a valid schema has looked at it, and advice about it."""

from __future__ import annotations

import math

from adaptive_qs.data.categories import CategoricalColumn
from adaptive_qs.data.column import ColumnBase
from adaptive_qs.data.schema import AnyColumn, Schema
from adaptive_qs.errors import SchemaError
from adaptive_qs.pages.names import first_of

TAKEN_FROM_DATA = "Taken from the data: review, not private."
"""Opens the description of every proposed schema; who has reviewed it takes the sentence out."""

AS_PROPOSED = "As proposed: review."
"""Opens the description of every column of a proposed schema; who has reviewed the column takes the
sentence out."""

UNREVIEWED = "the schema was taken from the data and reveals parts of it: review it"

MANY_CODES = 10_000
MANY_CELLS = 10**9
MAX_NAMED = 10
"""Columns with the same advice that its one line names."""


def is_unreviewed(schema: Schema) -> bool:
    """Whether a schema was proposed from the data, and of some part nobody said that it was
    reviewed: its own description or that of a column still says so."""
    return TAKEN_FROM_DATA in schema.description or bool(left_as_proposed(schema))


def check_reviewed(schema: Schema, unreviewed_schema: bool) -> None:
    """Refuse to spend budget under a schema that is private itself, unless that is asked for.

    Raises:
        SchemaError: the schema is unreviewed, and ``unreviewed_schema`` is not set.
    """
    if is_unreviewed(schema) and not unreviewed_schema:
        raise SchemaError(
            "the schema was taken from the data, which the privacy promise does not cover: review "
            f"it and remove {_marks(schema)} (adaptive-qs schema check lists what is left to do), "
            "or give --unreviewed-schema (in Python unreviewed_schema=True)"
        )


def _marks(schema: Schema) -> str:
    """What says that the schema was not reviewed, and where it stands."""
    whole = f'"{TAKEN_FROM_DATA}" from its description'
    left = len(left_as_proposed(schema))
    columns = f'"{AS_PROPOSED}" from the description of {left:,} column{"s" if left > 1 else ""}'
    found = [whole] if TAKEN_FROM_DATA in schema.description else []
    return " and ".join([*found, columns] if left else found)


def left_as_proposed(schema: Schema) -> tuple[AnyColumn, ...]:
    """The columns of which nobody has said yet that they were reviewed."""
    return tuple(column for column in schema.columns if AS_PROPOSED in column.description)


def discovered_values(schema: Schema, column: ColumnBase) -> frozenset[str]:
    """Texts of a column that nobody vouches for: values learnt, or proposed and not reviewed."""
    if not isinstance(column, CategoricalColumn):
        return frozenset()
    proposed = TAKEN_FROM_DATA in schema.description or AS_PROPOSED in column.description
    if column.learnt is None and not proposed:
        return frozenset()
    return frozenset(v for v in column.values if isinstance(v, str) and v != column.catch_all)


def check_schema(schema: Schema) -> tuple[str, ...]:
    """One line for everything in a valid schema that its author may not have meant.

    Nothing here makes the schema unusable; an empty tuple means that there is nothing to say.
    """
    advice = (
        []
        if TAKEN_FROM_DATA not in schema.description
        else [
            "the schema was taken from the data: replace what it reveals by public knowledge, then "
            "take that sentence out of its description"
        ]
    )
    left = left_as_proposed(schema)
    if left:
        some = first_of([repr(column.name) for column in left], MAX_NAMED)
        verb = "is" if len(left) == 1 else "are"
        advice.append(
            f"{len(left):,} of {len(schema.columns):,} columns {verb} as proposed ({some}): take "
            f'"{AS_PROPOSED}" out of the description of each that was reviewed'
        )
    named: dict[str, list[str]] = {}
    for column in schema.columns:
        for line in _column_advice(column):
            named.setdefault(line, []).append(repr(column.name))
    for line, names in named.items():
        some = first_of(names, MAX_NAMED)
        advice.append(f"column {some} {line}" if len(names) == 1 else f"each of {some} {line}")
    largest = sorted(schema.columns, key=lambda column: column.size)[-2:]
    cells = math.prod(column.size for column in largest)
    if len(largest) == 2 and cells > MANY_CELLS:
        both = " and ".join(repr(column.name) for column in largest)
        advice.append(f"columns {both} have {cells} cells together: use wider bins")
    return tuple(advice)


def _column_advice(column: AnyColumn) -> list[str]:
    advice = []
    if column.size > MANY_CODES:
        advice.append(f"has {column.size} codes: wider bins or fewer values give better answers")
    if column.num_values == 1:
        advice.append("has one value or bin only: it tells nothing, list it under ignore")
    if isinstance(column, CategoricalColumn):
        advice += _category_advice(column)
    return advice


def _category_advice(column: CategoricalColumn) -> list[str]:
    advice = []
    values = column.values
    if isinstance(values[0], str):
        folded: dict[str, str] = {}
        for value in map(str, values):
            other = folded.setdefault(value.casefold(), value)
            if other != value:
                advice.append(f"has values that differ in case only: {other!r} and {value!r}")
    elif type(values[0]) is int:
        if not column.ordered:
            advice.append("lists integers but is not ordered: add ordered if they are a scale")
        elif list(values) != sorted(values):
            advice.append("is ordered but its integers do not ascend: sort them")
    return advice
