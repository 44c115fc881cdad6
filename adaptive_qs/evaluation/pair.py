"""The two tables that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.encode import encode_file, encode_table
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError

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
    def of(cls, true: Any, synthetic: Any, schema: Schema) -> Self:
        """The pair of two files (CSV or Parquet) or data frames (pandas, polars, pyarrow).

        Raises:
            DataError: one of them is missing, has no rows, or does not fit the schema.
        """
        return cls(*(_encoded(table, schema) for table in (true, synthetic)))

    @property
    def domain(self) -> Domain:
        """The attributes of both."""
        return self.true.domain

    @cached_property
    def margins(self) -> tuple[Margins, Margins]:
        """The rows of every code of every attribute, of the true and of the synthetic table."""
        return _margins(self.true), _margins(self.synthetic)


def _encoded(table: Any, schema: Schema) -> CodedTable:
    if isinstance(table, str | Path):
        return encode_file(table, schema)
    return encode_table(table, schema)


def _margins(table: CodedTable) -> Margins:
    return tuple(
        np.bincount(codes, minlength=n) for codes, n in zip(table.columns, table.domain.sizes)
    )
