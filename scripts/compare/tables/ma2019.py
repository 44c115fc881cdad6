"""NIST's excerpt of the American Community Survey, Massachusetts 2019."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from scripts.compare.tables.files import needed

SCHEMA = Path(__file__).with_name("ma2019.schema.json")
FETCH = "take ma2019.csv of the Diverse Communities Data Excerpts in usnistgov/SDNist and gzip it"


def load(folder: Path) -> CodedTable:
    """The 7,634 rows of `ma2019.csv.gz`, coded by the schema beside this file.

    Raises:
        DataError: the file is missing, or does not fit the schema.
    """
    return read_table(needed(folder / "ma2019.csv.gz", FETCH), Schema.load(SCHEMA))
