"""How far a ledger has certainly come, written beside it after every commit.

SQLite takes the first damaged frame of its log for the end of the log, and a lost log for an empty
one. What is left is a sound chain that ends too early, and releases that were seen would be drawn
and paid again. So the number and hash of the newest entry are also kept here, before anybody sees
what that entry released; a ledger that does not reach them is damaged.

Two records take turns, each with a checksum: a crash while one is written leaves the other.

Whoever restores ledger and mark together from one copy turns both back, and neither tells. An
anchor is a second mark on another volume, or the newest entry as it was printed.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from adaptive_qs.data.partial import create_partial, sync_folder
from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.chain import START
from adaptive_qs.ledger.locks import locked
from adaptive_qs.ledger.wording import RESTORE

_RECORD, _SPACING = 8 + 32 + 32, 512


class Mark(NamedTuple):
    """An entry that a ledger has for certain.

    Attributes:
        number: of the entry; 0 before the first.
        hash: of the entry.
    """

    number: int = 0
    hash: bytes = START

    def __str__(self) -> str:
        return f"{self.number}:{self.hash.hex()}"


def own_files(ledger: Path) -> list[Path]:
    """A ledger and the files beside it that belong to it."""
    return [Path(f"{ledger}{end}") for end in ("", ".key", ".mark", "-wal", "-shm")]


def mark_path(ledger: Path) -> Path:
    """Where the mark of a ledger lies; the same whatever links lead to the ledger."""
    return Path(f"{os.path.realpath(ledger)}.mark")


def write_mark(path: Path, mark: Mark) -> None:
    """Begin a mark anew, whole or not at all.

    Args:
        path: of the mark.
        mark: what it says from now on.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = create_partial(path)
    try:
        os.pwrite(handle, _packed(mark), 0)
        os.fsync(handle)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)
    sync_folder(path.parent)


def read_mark(ledger: Path) -> Mark:
    """The newest entry that the ledger must have.

    Raises:
        LedgerError: the mark is missing or damaged.
    """
    path = mark_path(ledger)
    try:
        found = _newest(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise LedgerError(f"{path}: {reason}: it belongs to the ledger: {RESTORE}") from None
    if found is None:
        raise LedgerError(f"{path}: is damaged: {RESTORE}")
    return found


def advance_mark(path: Path, mark: Mark) -> None:
    """Make sure that a mark is at least this far; durable on return.

    Raises:
        LedgerError: it cannot be written.
    """
    try:
        with locked(path) as handle:
            newest = _newest(os.pread(handle, 2 * _SPACING, 0))
            if newest is None or newest.number < mark.number:
                os.pwrite(handle, _packed(mark), _SPACING * (mark.number % 2))
                os.fsync(handle)
    except OSError as error:
        raise _unwritable(path, error) from None


class Anchor:
    """How far a ledger has come, kept where a restored copy of it does not reach.

    Args:
        given: the file, which :meth:`create` makes; or the newest entry as it was printed, such as
            "12:9f86...", which the ledger must have and which is kept nowhere.
    """

    def __init__(self, given: str | Path) -> None:
        printed = _PRINTED.fullmatch(str(given).strip())
        self._path = None if printed else Path(given)
        self._given = Mark(int(printed[1]), bytes.fromhex(printed[2])) if printed else Mark()

    def __str__(self) -> str:
        return "the anchor" if self._path is None else f"the anchor {self._path}"

    @property
    def path(self) -> Path | None:
        """The file; None where the entry itself was given."""
        return self._path

    def check_apart(self, ledger: Path) -> None:
        """Refuse a file that belongs to the ledger, with which it would be turned back.

        Raises:
            LedgerError: it is one.
        """
        if self._path is None:
            return
        if Path(os.path.realpath(self._path)) in own_files(Path(os.path.realpath(ledger))):
            raise LedgerError(
                f"{self._path}: belongs to the ledger itself and would be turned back with it: "
                "name a file on another volume"
            )

    def read(self) -> Mark:
        """The newest entry that the ledger must have.

        Raises:
            LedgerError: the file is missing or damaged.
        """
        if self._path is None:
            return self._given
        try:
            found = _newest(self._path.read_bytes())
        except FileNotFoundError:
            raise LedgerError(
                f"{self._path}: no such anchor: mount the volume that it is on, or make one with "
                "adaptive-qs ledger anchor"
            ) from None
        except OSError as error:
            reason = (error.strerror or "unreadable").lower()
            raise LedgerError(f"{self._path}: {reason}: make the anchor readable") from None
        if found is None:
            raise LedgerError(
                f"{self._path}: is damaged, or no anchor: check the path; if it was the anchor, "
                "remove it, and adaptive-qs ledger restore makes it anew"
            )
        return found

    def check_replaceable(self) -> None:
        """Refuse a file that is there and no anchor: nothing else may be replaced by one.

        Raises:
            LedgerError: it is such a file.
        """
        if self._path is not None and os.path.lexists(self._path):
            self.read()

    def advance(self, mark: Mark) -> None:
        """Make sure that the file is at least this far; durable on return.

        Raises:
            LedgerError: it cannot be written.
        """
        if self._path is not None:
            advance_mark(self._path, mark)

    def write(self, mark: Mark) -> None:
        """Make the file say this, whatever it said before.

        Raises:
            LedgerError: it cannot be written.
        """
        if self._path is None:
            return
        try:
            write_mark(self._path, mark)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def create(self, mark: Mark) -> None:
        """Make the file.

        Raises:
            LedgerError: there is one already, or it cannot be written.
        """
        if self._path is None:
            raise LedgerError("an anchor is to be made: name a file on another volume for it")
        if os.path.lexists(self._path):
            raise LedgerError(f"{self._path}: exists already: give another path for the anchor")
        self.write(mark)


_PRINTED = re.compile("([0-9]{1,18}):([0-9a-f]{64})", re.ASCII)


def _unwritable(path: Path, error: OSError) -> LedgerError:
    reason = (error.strerror or "unknown reason").lower()
    return LedgerError(f"{path}: cannot be written ({reason}): make it writable")


def _packed(mark: Mark) -> bytes:
    content = mark.number.to_bytes(8, "big") + mark.hash
    return content + hashlib.sha256(content).digest()


def _newest(data: bytes) -> Mark | None:
    """The newer of the records that are whole."""
    found = []
    for start in (0, _SPACING):
        record = data[start : start + _RECORD]
        mark = Mark(int.from_bytes(record[:8], "big"), record[8:40])
        if len(record) == _RECORD and record == _packed(mark):
            found.append(mark)
    return max(found, default=None)
