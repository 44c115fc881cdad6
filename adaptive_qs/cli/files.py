"""The files that commands read and write: checked first, written last; standard input; receipts."""

from __future__ import annotations

import os
import select
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from adaptive_qs.cli import output
from adaptive_qs.errors import AdaptiveQsError, InputError, SpentNote, reason
from adaptive_qs.table.files import stamp_path

if TYPE_CHECKING:
    from adaptive_qs.release.release import Release
    from adaptive_qs.table.text import Formulas


def beside(table: Path | None) -> list[Path]:
    """A table and the files that lie beside it: its stamp and its privacy statement."""
    from adaptive_qs.release.bundle import manifest_path

    return [] if table is None else [table, stamp_path(table), manifest_path(table)]


def check_table(path: Path, force: bool) -> None:
    """Refuse a path at which no table, or no stamp or statement beside it, can or may be written.

    Raises:
        InputError: its format is unknown, or as for :func:`check_file`.
    """
    from adaptive_qs.table.write import check_table_path

    check_table_path(path)
    for file in beside(path):
        check_file(file, force)


def check_file(path: Path, force: bool) -> None:
    """Refuse a path at which no file can or may be written.

    Raises:
        InputError: it cannot be written, or it exists and ``force`` is not set.
    """
    from adaptive_qs.table.files import check_new, check_writable

    check_writable(path)
    check_new(path, force, "--force")


def companions(ledger: str | Path | None, anchor: str | Path | None = None) -> list[Path]:
    """A ledger, the files beside it that belong to it, and its anchor."""
    if ledger is None:
        return []
    from adaptive_qs.ledger.files import own_files

    return own_files(Path(ledger)) + ([] if anchor is None else [Path(anchor)])


def check_distinct(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuse an output that is also an input or another output.

    Raises:
        InputError: two of them are the same file.
    """
    seen = {os.path.realpath(path) for path in inputs if path is not None}
    for path in filter(None, outputs):
        if os.path.realpath(path) in seen:
            raise InputError(f"{path}: is also an input or another output: give another path")
        seen.add(os.path.realpath(path))


def write_stamped(table: Any, path: Path, release: Release, seed: int, formulas: Formulas) -> None:
    """Write a table sampled from a release, with its privacy statement in a file beside it.

    Insecure noise is also stamped there. The statement tells the seed that the table was sampled
    with, its number of rows and, for CSV, which formulas were escaped, so that it can be made
    again, the SHA-256 of its file, and every charge.

    Raises:
        InputError: a file cannot be written or removed.
    """
    from adaptive_qs.privacy.events import Transcript
    from adaptive_qs.release.bundle import with_manifest, write_manifest
    from adaptive_qs.table.files import stamped
    from adaptive_qs.table.write import table_format, write_table

    charges = Transcript(events=release.events).model_dump(mode="json")["events"]
    sampling: dict[str, Any] = {"seed": seed, "rows": table.num_rows}
    if table_format(path).is_text:
        sampling["formulas"] = formulas
    with with_manifest(path), stamped(path, release.manifest.stamp):
        state = partial(write_manifest, release.manifest, path, sampling=sampling, charges=charges)
        write_table(table, path, release.schema, formulas, lambda sha256: state(sha256=sha256))


# Tables that come through standard input, where a command is given "-" in the place of a file.

STANDARD_INPUT = Path("-")
NAME = "standard input"
_PATIENCE = 0.2
"""Seconds after which a request to stop is looked for."""
_BLOCK = 1 << 20


def shown(table: Path) -> str:
    """What a table is called in results."""
    return NAME if table == STANDARD_INPUT else str(table)


def check_read_once(tables: Sequence[Path | None]) -> None:
    """Refuse several tables from standard input.

    Raises:
        InputError: more than one is "-".
    """
    if sum(table == STANDARD_INPUT for table in tables) > 1:
        raise InputError("- is given twice, but standard input holds one table: name files")


@contextmanager
def readable(table: Path) -> Iterator[Path]:
    """A file that can be read more than once: the table itself, or what standard input holds.

    The latter lies in a temporary file that only this user can read, removed at the end; where the
    system gives open files a path of their own, it has no name meanwhile, so that nothing is left
    even if the process is killed. Errors raised in the block say "standard input" instead.

    Raises:
        InputError: standard input is a terminal, or what it holds cannot be read or kept.
    """
    if table != STANDARD_INPUT:
        yield table
        return
    if sys.stdin is not None and sys.stdin.isatty():
        raise InputError("- reads standard input, which is a terminal: pipe a table into it")
    try:
        file = tempfile.NamedTemporaryFile(prefix="adaptive-qs-", delete=False)  # noqa: SIM115
    except OSError as error:
        raise _unkept(error) from None
    path = named = Path(file.name)
    try:
        with file:
            by_number = Path(f"/proc/self/fd/{file.fileno()}")
            if by_number.exists():
                named.unlink()
                path = by_number
            _copy(file)
            yield path
    except AdaptiveQsError as error:
        # The path of the temporary file means nothing to a reader.
        first, found, rest = str(error).partition(str(path))
        name = f"{'FILE' if first else NAME}{rest.replace(str(path), 'FILE')}" if found else ""
        error.args = (first + name,)
        raise
    finally:
        if path == named:
            named.unlink(missing_ok=True)


def _copy(file: IO[bytes]) -> None:
    """Fill a file with what standard input holds."""
    try:
        if sys.stdin is not None:
            file.writelines(_blocks(sys.stdin.buffer))
        file.flush()
    except OSError as error:
        raise _unkept(error) from None


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """What a stream holds; a request to stop is heard while nothing comes, too."""
    try:
        number = stream.fileno()
    except OSError:  # no file of the system
        number = -1
    if number < 0 or sys.platform == "win32":  # where only sockets can be waited for
        yield from iter(partial(stream.read, _BLOCK), b"")
        return
    block = b"."
    while block:
        output.check()
        if select.select([number], [], [], _PATIENCE)[0]:
            block = os.read(number, _BLOCK)
            yield block


def _unkept(error: OSError) -> InputError:
    return InputError(
        f"{NAME}: cannot be kept in the folder for temporary files ({reason(error)}): free some "
        "space, or set TMPDIR to another one"
    )


# What the budget bought, for whoever reads why a command failed after it was spent.


@dataclass
class Receipt:
    """The files that hold what was paid for; None until they are written.

    Attributes:
        kept: gives the note that a ledger holds it, while one does.
    """

    kept: Callable[[], SpentNote | None] = lambda: None
    release: Path | None = None
    table: Path | None = None

    def note(self) -> SpentNote:
        """That the budget is spent, and what there is to show for it."""
        kept = self.kept()
        if self.release is not None:
            more = f"; {kept}" if kept else ""
            what = f"the release is in {self.release}: sample a table from it free of charge{more}"
        else:
            lost = "no release was kept (--release FILE keeps one before the table is fitted)"
            what = kept or lost
        table = "" if self.table is None else f"the table is in {self.table}; "
        return SpentNote(f"the budget is spent; {table}{what}")


@contextmanager
def paid(kept: Callable[[], SpentNote | None] = lambda: None) -> Iterator[Receipt]:
    """Add the receipt to whatever is raised in the block, to be filled in by the block.

    Args:
        kept: gives the note that a ledger holds what was paid for, while one does.
    """
    receipt = Receipt(kept)
    try:
        yield receipt
    except BaseException as error:
        error.add_note(receipt.note())
        raise


def spent(error: BaseException) -> str:
    """What an error says about the budget; nothing where none was spent."""
    notes = getattr(error, "__notes__", ())
    return "; ".join(note for note in notes if isinstance(note, SpentNote))
