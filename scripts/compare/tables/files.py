"""Files of a data folder."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.errors import DataError


def needed(path: Path, fetch: str) -> Path:
    """The path, if there is a file.

    Raises:
        DataError: there is none; `fetch` says where it comes from.
    """
    if not path.is_file():
        raise DataError(f"{path}: not found: {fetch}")
    return path
