"""The files that commands write: checked first, written last, stamped where not private."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
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
    from adaptive_qs.data.files import check_new, check_writable

    check_writable(path)
    check_new(path, force, "--force")


def companions(ledger: Path | None, anchor: str | None = None) -> list[Path]:
    """A ledger, the files beside it that belong to it, and its anchor."""
    if ledger is None:
        return []
    from adaptive_qs.ledger.mark import own_files

    return own_files(ledger) + ([] if anchor is None else [Path(anchor)])


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
    again, the SHA-256 of its file, and every charge.

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
        state = partial(write_manifest, release.manifest, path, sampling=sampling, charges=charges)
        write_table(table, path, release.schema, formulas, lambda sha256: state(sha256=sha256))
