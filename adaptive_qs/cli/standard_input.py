"""Tables that come through standard input, where a command is given "-" in the place of a file."""

from __future__ import annotations

import os
import select
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from adaptive_qs.cli import stopping
from adaptive_qs.errors import AdaptiveQsError, InputError

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

    The latter lies in a temporary file for this user alone, which is removed at the end; where the
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
        error.args = (_renamed(str(error), str(path)),)
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
    while True:
        stopping.check()
        if not select.select([number], [], [], _PATIENCE)[0]:
            continue
        block = os.read(number, _BLOCK)
        if not block:
            return
        yield block


def _unkept(error: OSError) -> InputError:
    reason = (error.strerror or "unknown reason").lower()
    return InputError(
        f"{NAME}: cannot be kept in the folder for temporary files ({reason}): free some space, or "
        "set TMPDIR to another one"
    )


def _renamed(message: str, path: str) -> str:
    """The message without the path of the temporary file, which means nothing to its reader."""
    first, found, rest = message.partition(path)
    named = f"{NAME if not first else 'FILE'}{rest.replace(path, 'FILE')}" if found else ""
    return first + named
