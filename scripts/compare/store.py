"""The results file: one line of JSON for each cell that came to an end, safe against kill -9.

A line is appended with one write and fsync, so that a crash can tear the last line only, and a
torn line is a cell that did not come to an end. The lock is on the file itself and goes with
the process.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from scripts.compare import Complaint

Record = dict[str, Any]


class Store:
    """The records of a results file, the latest of each key, and the right to add more.

    Args:
        path: of the file; it and its folder are made if they are not there.

    Raises:
        Complaint: another harness uses the file, or a line other than the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise Complaint(
                f"{path.name}: another harness is using it: wait, or give another --results"
            ) from None
        try:
            self.dropped = self._drop_torn_line()
            self.records = read_records(path)
            _sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record; it is on the disk when this returns."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode()
        written = os.write(self._file, data)
        while written < len(data):
            written += os.write(self._file, data[written:])
        os.fsync(self._file)
        self.records[record["key"]] = dict(record)

    def _drop_torn_line(self) -> bool:
        """Cut off what follows the last newline; says whether there was something."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = data.rfind(b"\n") + 1
        if whole == len(data):
            return False
        os.ftruncate(self._file, whole)
        return True


def read_records(path: Path) -> dict[str, Record]:
    """The latest record of each key, in the order in which keys first came; no lock is needed.

    Raises:
        Complaint: a line other than the last is damaged, or there is no file.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        raise Complaint(f"{path.name}: cannot be read: run a grid first") from None
    records: dict[str, Record] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            records[record["key"]] = record
        except (ValueError, KeyError, TypeError):
            raise Complaint(
                f"{path.name}: line {number} is damaged: remove it to run its cell again"
            ) from None
    return records


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
