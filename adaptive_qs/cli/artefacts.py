"""The files that commands write: checked first, written last, stamped where not private."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_qs.data.stamps import stamp_path
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.data.formulas import Formulas
    from adaptive_qs.release.release import Release


def beside(table: Path | None) -> list[Path]:
    """A table and the files that lie beside it: its stamp and its privacy statement."""
    from adaptive_qs.release.beside import manifest_path

    return [] if table is None else [table, stamp_path(table), manifest_path(table)]


def check_table(path: Path, force: bool) -> None:
    """Refuse a path at which no table, or no stamp or statement beside it, can or may be written.

    Raises:
        InputError: its format is unknown, one of the files cannot be written, or exists and
            ``force`` is not set.
    """
    from adaptive_qs.data.writers import check_table_path

    check_table_path(path)
    for file in beside(path):
        check_file(file, force)


def check_file(path: Path, force: bool) -> None:
    """Refuse a path at which no file can or may be written.

    Raises:
        InputError: it cannot be written, or it exists and ``force`` is not set.
    """
    from adaptive_qs.data.files import check_writable

    check_writable(path)
    _refuse_existing(path, force)


def of_interrupted_run(output: Path, ledger: Path | None) -> bool:
    """Whether an output says that it comes from a run that is still open in this ledger.

    Args:
        output: a bundle, or a table with its statement beside it.
        ledger: None for none.

    Raises:
        LedgerError: the ledger cannot be used.
    """
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.release.beside import manifest_path, read_place

    beside_it = manifest_path(output)
    release = beside_it if exists(beside_it) else output
    if ledger is None or not exists(release):
        return False
    try:
        place = read_place(release)
    except InputError:
        return False
    return place is not None and LedgerBook(ledger).is_open(place.ledger, place.run)


def companions(ledger: Path | None) -> list[Path]:
    """A ledger and the files beside it that belong to it."""
    if ledger is None:
        return []
    return [ledger, *(Path(f"{ledger}{end}") for end in (".key", ".mark", "-wal", "-shm"))]


def check_distinct(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuse an output that is also an input or another output.

    Raises:
        InputError: two of them are the same file.
    """
    seen = {os.path.realpath(path) for path in inputs if path is not None}
    for path in outputs:
        if path is not None and os.path.realpath(path) in seen:
            raise InputError(f"{path}: is also an input or another output: give another path")
        if path is not None:
            seen.add(os.path.realpath(path))


def write_stamped(table: Any, path: Path, release: Release, seed: int, formulas: Formulas) -> None:
    """Write a table sampled from a release, with its privacy statement in a file beside it.

    Insecure noise is also stamped there. The statement tells the seed that the table was sampled
    with, its number of rows and, for CSV, which formulas were escaped, so that it can be made
    again, and every charge.

    Raises:
        InputError: a file cannot be written or removed.
    """
    from adaptive_qs.data.stamps import stamped
    from adaptive_qs.data.writers import table_format, write_table
    from adaptive_qs.privacy.transcript import Transcript
    from adaptive_qs.release.beside import with_manifest, write_manifest

    charges = Transcript.of(release.events).model_dump(mode="json")["events"]
    sampling: dict[str, Any] = {"seed": seed, "rows": table.num_rows}
    if table_format(path) != "parquet":
        sampling["formulas"] = formulas
    with with_manifest(path), stamped(path, release.manifest.stamp):
        write_manifest(release.manifest, path, sampling=sampling, charges=charges)
        write_table(table, path, release.schema, formulas)


def _refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise InputError(f"{path}: exists already: add --force to replace it, or give another path")
