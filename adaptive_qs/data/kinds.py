"""Whether a file holds a table, told without reading it."""

from __future__ import annotations

import contextlib
from pathlib import Path

_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".xlsx", ".xls")
PARQUET_MAGIC = b"PAR1"
"""First bytes of Parquet files."""


def is_table_file(path: str | Path) -> bool:
    """Whether there is a file that is a table by its name, or Parquet by its first bytes."""
    with contextlib.suppress(OSError, ValueError):  # whoever reads it explains them
        if Path(path).is_file():
            if str(path).lower().endswith(_ENDINGS):
                return True
            with open(path, "rb") as file:
                return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    return False
