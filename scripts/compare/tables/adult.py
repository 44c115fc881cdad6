"""UCI Adult, coded 0..k-1, as the papers on AIM and residual mechanisms use it."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from scripts.compare.tables.files import needed

FETCH = "take adult.csv and adult-domain.json (as domain.json) from data/ of ryan112358/private-pgm"


def load(folder: Path) -> CodedTable:
    """The 48,842 rows of `adult.csv` with the domain sizes in `domain.json` (mbi's format).

    Raises:
        DataError: a file is missing, or the rows do not fit the domain.
        SchemaError: `domain.json` is not valid.
    """
    domain = needed(folder / "domain.json", FETCH)
    return read_table(needed(folder / "adult.csv", FETCH), Schema.load(domain))
