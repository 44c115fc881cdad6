"""KDD census-income: people of the 1994 and 1995 US Current Population Surveys."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from scripts.compare.tables.files import needed

SCHEMA = Path(__file__).with_name("kdd-census.schema.json")
FILE = "census-income.csv.gz"
FETCH = "run scripts/compare/tables/fetch_kdd_census.py with the data folder"


def load(folder: Path) -> CodedTable:
    """The 299,285 rows of training and test part, coded by the schema beside this file.

    Raises:
        DataError: the file is missing, or does not fit the schema.
    """
    return read_table(needed(folder / FILE, FETCH), Schema.load(SCHEMA))
