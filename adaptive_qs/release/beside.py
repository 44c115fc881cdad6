"""The statement in a file beside a table, which has no place for it."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.data.files import atomic_writer
from adaptive_qs.release.statement import Statement


def manifest_path(table: str | Path) -> Path:
    """The file beside a table that holds its privacy statement."""
    path = Path(table)
    return path.parent / f"{path.name}.manifest.json"


def write_manifest(statement: Statement, table: str | Path) -> Path:
    """Write a statement beside a table, before the table itself appears.

    Returns:
        The file, as JSON; the same statement gives the same bytes.

    Raises:
        InputError: it cannot be written.
    """
    path = manifest_path(table)
    with atomic_writer(path) as file:
        file.write(statement.to_json().encode())
    return path
