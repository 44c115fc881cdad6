"""The tables of the comparison: real ones from a data folder, and the made-up kinds."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adaptive_qs.errors import AdaptiveQsError, DataError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from scripts.compare import Complaint
from scripts.table_kinds import KINDS

HERE = Path(__file__).parent
REAL = {  # name: (file in the folder of that name, schema or domain sizes, how to get it)
    "adult": (
        "adult.csv",
        "domain.json",
        "take adult.csv and adult-domain.json (domain.json here) of ryan112358/private-pgm, data/",
    ),
    "ma2019": (
        "ma2019.csv.gz",
        HERE / "ma2019.schema.json",
        "take ma2019.csv of the Diverse Communities Data Excerpts in usnistgov/SDNist and gzip it",
    ),
    "br2000": (
        "br2000.csv",
        "domain.json",
        "take br2000.csv and br2000-domain.json (domain.json here) of caicre/PrivMRF, preprocess/",
    ),
    "kdd-census": (
        "census-income.csv.gz",
        HERE / "kdd-census.schema.json",
        "run python -m scripts.compare.tables.fetch_kdd_census with the data folder",
    ),
}
"""The schema of Adult is its domain sizes (mbi format), next to its rows."""
MOST_ROWS = 10_000_000
"""Of a made-up table."""


@dataclass(frozen=True)
class Source:
    """A table and the digest of its content."""

    table: CodedTable
    fingerprint: str


def load_real(name: str, data: Path) -> CodedTable:
    """The coded table `name`, a key of `REAL`, from `data/name`.

    Raises:
        DataError: its files are missing (the message says what to fetch), or the rows do not fit
            their schema.
        SchemaError: the domain sizes are not valid.
    """
    file, schema, fetch = REAL[name]
    paths = [data / name / schema, data / name / file]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: not found: {fetch}")
    return read_table(paths[1], Schema.load(paths[0]))


def load_source(name: str, data: Path) -> Source:
    """A table by its name.

    Args:
        name: a key of `REAL`, or ``KIND@ROWS`` with a kind of ``scripts.table_kinds``.
        data: the folder of the real tables.

    Raises:
        Complaint: there is no such table, or its files are missing or wrong.
    """
    made_up = re.fullmatch(r"(\w+)@(\d{1,8})", name)
    try:
        if made_up and made_up[1] in KINDS and 1 <= int(made_up[2]) <= MOST_ROWS:
            table = KINDS[made_up[1]](rows=int(made_up[2]))
        elif name in REAL:
            table = load_real(name, data)
        else:
            known = ", ".join([*REAL, *(f"{kind}@ROWS" for kind in KINDS)])
            raise Complaint(f"table {name!r} is unknown: give one of {known}")
    except AdaptiveQsError as error:
        raise Complaint(f"table {name}: {error}") from None
    except OSError as error:
        raise Complaint(f"table {name}: {error.strerror}: check --data") from None
    digest = hashlib.sha256(repr((table.domain.names, table.domain.sizes)).encode())
    for column in table.columns:
        digest.update(np.ascontiguousarray(column, dtype="<u4").tobytes())
    return Source(table, digest.hexdigest()[:16])
