"""The two tables that are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.inputs import read_table
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError
from adaptive_qs.progress import PhaseProgress

Margins = tuple[NDArray[np.int64], ...]
"""The rows of every code, one array for each attribute."""
OWNER_ONLY = "owner only: computed from private rows without noise, do not publish"


@dataclass(frozen=True, eq=False)
class TablePair:
    """A true and a synthetic table over one domain; owner only.

    Attributes:
        true: the private rows.
        synthetic: the rows that stand for them.

    Raises:
        DataError: the domains differ, or a table has no rows.
    """

    true: CodedTable
    synthetic: CodedTable

    def __post_init__(self) -> None:
        if self.true.domain != self.synthetic.domain:
            raise DataError("the tables have different attributes: encode both with one schema")
        if not (self.true.num_rows and self.synthetic.num_rows):
            raise DataError("a table has no rows: give two with at least one")

    @classmethod
    def of(
        cls, true: Any, synthetic: Any, schema: Schema, progress: PhaseProgress | None = None
    ) -> Self:
        """The pair of two files (CSV or Parquet), data frames (pandas, polars, pyarrow) or coded
        tables.

        Raises:
            DataError: one of them is missing, has no rows, or does not fit the schema.
        """
        return cls(
            read_compared(true, schema, "true", progress),
            read_compared(synthetic, schema, "synthetic", progress),
        )

    @property
    def domain(self) -> Domain:
        """The attributes of both."""
        return self.true.domain

    @cached_property
    def margins(self) -> tuple[Margins, Margins]:
        """The rows of every code of every attribute, of the true and of the synthetic table."""
        return _margins(self.true), _margins(self.synthetic)


def read_compared(
    table: Any, schema: Schema, role: str, progress: PhaseProgress | None = None
) -> CodedTable:
    """The codes of one of the tables that are compared.

    Args:
        table: a path, a data frame or a coded table.
        schema: of it.
        role: "true", "synthetic" or "control": errors say which table of a caller's they are about.
        progress: told about the phase "read".

    Raises:
        DataError: it cannot be read, has no rows, or does not fit the schema. The synthetic table
            may come from another tool: the message then says how to bring it to the schema.
    """
    steps = None if progress is None else partial(progress, "read")
    try:
        return read_table(table, schema, steps)
    except DataError as error:
        said = str(error)
        if not isinstance(table, str | Path):
            said = re.sub(r"^(the )?((coded )?table)", rf"the {role} \2", said)
        if role == "synthetic" and any(refusal in said for refusal in _OF_ANOTHER_TOOL):
            said += (
                "; a table of another tool must be brought to the schema first: round its numbers, "
                "and clip them to the declared range"
            )
        raise DataError(said) from None


_OF_ANOTHER_TOOL = ("cannot be read as integer", "has a value outside its declared range")
"""Refusals of fractions and of numbers out of range, which tables of other tools may have."""


def _margins(table: CodedTable) -> Margins:
    return tuple(
        np.bincount(codes, minlength=n) for codes, n in zip(table.columns, table.domain.sizes)
    )
