"""The two tables that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from adaptive_qs.data.encode import encode_file, encode_table
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError

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


def _encoded(table: Any, schema: Schema) -> CodedTable:
    if isinstance(table, str | Path):
        return encode_file(table, schema)
    return encode_table(table, schema)
