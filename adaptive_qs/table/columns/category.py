"""Columns with listed values: categorical and boolean."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from adaptive_qs.table.columns.base import ColumnBase, Text, refuse_duplicates

TRUE_WORDS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS = frozenset({"false", "f", "no", "n", "0"})
"""Cells read as booleans, in any case."""

Integer64 = Annotated[StrictInt, Field(gt=-(10**18), lt=10**18)]


class CategoricalColumn(ColumnBase):
    """A column whose values are listed: all strings, all integers or all booleans."""

    type: Literal["categorical"]
    values: Annotated[tuple[Text | StrictBool | Integer64, ...], Field(min_length=1)]
    """The values, in code order."""
    ordered: bool = False
    """Whether the order of the values means something (for prefix and range queries)."""
    catch_all: Text | Integer64 | None = None
    """Label that takes every value not listed; it may be one of the listed values."""
    learnt: tuple[Literal["values"]] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    @property
    def num_values(self) -> int:
        """Number of listed values."""
        return len(self.values)

    @cached_property
    def labels(self) -> tuple[str | int, ...]:
        """The listed values, followed by the catch-all label when it is not one of them."""
        if self.catch_all is None or self.catch_all in self.values:
            return self.values
        return (*self.values, self.catch_all)

    @property
    def texts(self) -> tuple[str, ...]:
        """Missing markers, and the labels where these are text."""
        return (*(label for label in self.labels if isinstance(label, str)), *self.missing)

    @property
    def catch_all_code(self) -> int | None:
        """Code of unknown values, or None when they are refused."""
        return None if self.catch_all is None else self.labels.index(self.catch_all)

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is one of the labels."""
        if isinstance(self.values[0], bool):
            return text.lower() in TRUE_WORDS | FALSE_WORDS
        if isinstance(self.values[0], int):
            return integer_of(text) in self.labels
        return text in self.labels

    def _check_values(self) -> None:
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("the values are of several types: quote all of them or none")
        refuse_duplicates(self.values)
        if self.catch_all is not None and type(self.catch_all) is not type(self.values[0]):
            raise ValueError(
                f"catch_all {self.catch_all!r} is not of the type of the values: make it so"
            )


class BooleanColumn(ColumnBase):
    """False is code 0 and true is code 1; cells are true/false, t/f, yes/no, y/n, 1/0."""

    type: Literal["boolean"]
    ordered: bool = False
    """Whether false < true means something (for prefix and range queries)."""
    outside: Literal["refuse", "missing"] = "refuse"
    """What happens to a cell that is no boolean."""

    @property
    def num_values(self) -> int:
        """Two."""
        return 2

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is a boolean."""
        return text.lower() in TRUE_WORDS | FALSE_WORDS

    def _check_values(self) -> None:
        if self.outside == "missing" and not self.missing:
            raise ValueError('outside is "missing" but no missing marker is declared: add one')


def integer_of(text: str) -> int | None:
    """The integer in a cell such as "39" or "39.0", or None."""
    whole, _, fraction = text.partition(".")
    digits = whole[1:] if whole[:1] in ("+", "-") else whole
    if not (digits.isascii() and digits.isdigit()) or fraction.strip("0"):
        return None
    return int(whole)
