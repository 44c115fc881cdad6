"""The tables of a grid, by name: real ones, and the made-up kinds with a number of rows."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from adaptive_qs.errors import AdaptiveQsError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import table_bytes
from scripts.compare.complaint import Complaint
from scripts.table_kinds import KINDS

MOST_ROWS = 10_000_000
"""Of a made-up table."""


@dataclass(frozen=True)
class Source:
    """A table and the digest of its content."""

    name: str
    table: CodedTable
    fingerprint: str


def load_source(name: str, folder: Path) -> Source:
    """A table by its name.

    Args:
        name: one of ``scripts.compare.tables.NAMES``, or ``KIND@ROWS`` with a kind of
            ``scripts.table_kinds``.
        folder: where the real tables lie.

    Raises:
        Complaint: there is no such table, or its files are missing or wrong.
    """
    made_up = re.fullmatch(r"(\w+)@(\d{1,8})", name)
    if made_up and made_up[1] in KINDS and 1 <= int(made_up[2]) <= MOST_ROWS:
        table = KINDS[made_up[1]](rows=int(made_up[2]))
    else:
        table = _real(name, folder)
    digest = hashlib.sha256()
    for part in table_bytes(table):
        digest.update(part)
    return Source(name, table, digest.hexdigest()[:16])


def _real(name: str, folder: Path) -> CodedTable:
    tables = import_module("scripts.compare.tables")
    if name not in tables.NAMES:
        known = ", ".join([*tables.NAMES, *(f"{kind}@ROWS" for kind in KINDS)])
        raise Complaint(f"table {name!r} is unknown: give one of {known}")
    try:
        table: CodedTable = tables.load(name, folder)
    except AdaptiveQsError as error:
        raise Complaint(f"table {name}: {error}") from None
    except OSError as error:
        raise Complaint(f"table {name}: {error.strerror}: check --data") from None
    return table
