"""What every declared column shares: a name, missing markers, and the layout of its codes."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from adaptive_qs.table.formulas import escapes

ASCII_SPACE = " \t\r\n\x0b\x0c"
"""Characters stripped from both ends of every cell and column name before they are read."""

MAX_SIZE = 2**32
"""Codes are at most 32 bits wide."""


def _clean(text: str) -> str:
    if text != text.strip(ASCII_SPACE):
        raise ValueError(f"{text!r} begins or ends with white space: remove it")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{text!r} holds a character that a text file cannot: remove it")
    return text


def refuse_duplicates(items: tuple) -> None:
    """Raise ValueError when two items are equal."""
    seen = set()
    for item in items:
        if item in seen:
            raise ValueError(f"{item!r} is listed twice: keep one")
        seen.add(item)


Text = Annotated[str, AfterValidator(_clean)]
"""A string that survives a round trip through a CSV cell."""


class ColumnBase(BaseModel):
    """A column of the private table, as declared in public.

    Its codes are 0 .. num_values-1 for the declared values or bins, then one code for unknown
    values if the column has a catch-all of its own, then one code for missing values if it
    declares missing markers. Null cells of a typed table (Parquet, data frames) count as missing
    exactly when at least one marker is declared; an empty CSV cell is the marker "".
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Annotated[Text, Field(min_length=1)]
    """Name of the column in the data."""
    description: str = ""
    """Free text for people; not part of the fingerprint."""
    missing: tuple[Text, ...] = ()
    """Cells that mean "no value"; the first one is written for missing values in CSV output."""

    @property
    def num_values(self) -> int:
        """Number of declared values or bins."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts that the column names: missing markers, and labels where these are text."""
        return self.missing

    @cached_property
    def escapes(self) -> dict[str, str]:
        """Those that a spreadsheet program would run, and what CSV has in their place."""
        return escapes(self.texts)

    @property
    def catch_all_code(self) -> int | None:
        """Code of unknown values, or None when they are refused."""
        return None

    @property
    def missing_code(self) -> int | None:
        """Code of missing values, or None when they are refused."""
        return self.size - 1 if self.missing else None

    @property
    def size(self) -> int:
        """Number of codes."""
        extra = self.catch_all_code == self.num_values
        return self.num_values + int(extra) + int(bool(self.missing))

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is a declared value."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        self._check_values()
        refuse_duplicates(self.missing)
        for marker in self.missing:
            if self.declares(marker):
                raise ValueError(f"missing marker {marker!r} is also a declared value: remove one")
        if self.size > MAX_SIZE:
            raise ValueError(f"the column has {self.size} codes: declare fewer bins or values")
        return self

    def _check_values(self) -> None:
        """Raise ValueError when the declared values contradict each other."""
