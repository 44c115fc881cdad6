"""The sidecar: the statement in a file beside a table or answers, which have no place for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from pydantic import TypeAdapter

from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.jsonfile import read_json
from adaptive_qs.machine import memory_claims
from adaptive_qs.privacy.budget import Place
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.statement import Statement, check_version
from adaptive_qs.table.files import atomic_writer, sha256_of

ANSWERS_MEMBER = "answers"
"""Names the file of answers among what a ledger records as handed over."""
_ENDING = ".manifest.json"


def manifest_path(table: str | Path) -> Path:
    """The sidecar of a table: the file beside it that holds its privacy statement."""
    path = Path(table)
    return path.parent / f"{path.name}{_ENDING}"


def table_path(manifest: str | Path) -> Path | None:
    """The table or answers of a sidecar; None where its name tells of none."""
    path = Path(manifest)
    name = path.name.removesuffix(_ENDING)
    return path.parent / name if name not in ("", path.name) else None


def write_manifest(statement: Statement, table: str | Path, **more: Any) -> None:
    """Write a statement beside a table, before the table itself appears.

    Args:
        statement: what is stated; the same statement gives the same bytes.
        table: path of the table.
        more: fields of this table only, such as the seed that it was sampled with.

    Raises:
        InputError: it cannot be written.
    """
    content = {**json.loads(statement.to_json()), **more}
    with atomic_writer(manifest_path(table)) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


@contextmanager
def with_manifest(table: str | Path) -> Iterator[None]:
    """Around the writing of a table: where none appears, no statement of one stays."""
    try:
        yield
    except BaseException:
        if not Path(table).exists():
            with suppress(OSError):
                manifest_path(table).unlink(missing_ok=True)
        raise


def digest_of_statement(statement: Statement) -> str:
    """SHA-256 of a statement by itself, without what a sidecar adds to it."""
    return sha256_of([statement.to_json().encode()])


def read_sidecar(path: str | Path, max_memory: int | str | None = None) -> dict[str, Any]:
    """The content of a sidecar.

    Args:
        path: of it.
        max_memory: ceiling of the process's memory.

    Raises:
        InputError: it is not one, or was made by a newer version.
        ResourceExceeded: reading it would take more memory.
    """
    try:
        content = read_json(path, InputError, memory_claims(max_memory))
    except ResourceExceeded as error:
        raise ResourceExceeded(f"{path}: {error}") from None
    if not isinstance(content, dict) or "format_version" not in content:
        raise InputError(f"{path}: is neither a release bundle nor the manifest of a table")
    check_version(content, path)
    return content


def read_place(path: str | Path, max_memory: int | str | None = None) -> Place | None:
    """Where a ledger keeps the charges of a release, by its bundle or its sidecar.

    Returns:
        None where it was made without a ledger.

    Raises:
        InputError: the file is neither.
        ResourceExceeded: reading it would take more memory.
    """
    if is_zipfile(path):
        return Bundle.load(path, max_memory).manifest.ledger
    found = read_sidecar(path, max_memory).get("ledger")
    try:
        return None if found is None else TypeAdapter(Place).validate_python(found)
    except ValueError:
        pass
    raise InputError(f"{path}: is neither a release bundle nor the manifest of a table")


def of_interrupted_run(
    output: str | Path, ledger: str | Path | None, max_memory: int | str | None = None
) -> bool:
    """Whether an output says that it comes from a run that is still open in this ledger.

    Args:
        output: a bundle, or a table with its sidecar.
        ledger: None for none.
        max_memory: ceiling of the process's memory while the output is read.

    Raises:
        LedgerError: the ledger cannot be used.
    """
    beside = manifest_path(output)
    release = beside if exists(beside) else output
    if ledger is None or not exists(release):
        return False
    try:
        place = read_place(release, max_memory)
    except (InputError, ResourceExceeded):
        return False
    from adaptive_qs.ledger.book import LedgerBook

    return place is not None and LedgerBook(ledger).is_open(place.ledger, place.run)
