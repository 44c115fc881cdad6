"""The real tables of the comparison, read from a data folder that is no part of the project."""

from __future__ import annotations

from pathlib import Path

from adaptive_qs.errors import DataError
from adaptive_qs.table.coded import CodedTable
from scripts.compare.tables import adult, kdd_census, ma2019

_LOADERS = {"adult": adult.load, "ma2019": ma2019.load, "kdd-census": kdd_census.load}

NAMES: tuple[str, ...] = tuple(_LOADERS)


def load(name: str, data: Path) -> CodedTable:
    """The coded table `name`, one of `NAMES`, from `data/name`.

    Raises:
        DataError: there is no such table, its files are missing (the message says what to fetch),
            or they do not fit their schema.
    """
    if name not in _LOADERS:
        raise DataError(f"table {name!r} is unknown: give one of {', '.join(NAMES)}")
    return _LOADERS[name](Path(data) / name)
