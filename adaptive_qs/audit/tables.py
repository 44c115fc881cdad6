"""Generated rows of several kinds under a schema, as a CSV reader would get them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.decode import decode
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.data.writers import write_table

Codes = NDArray[np.int64]
Rows = list[list[str]]

MOST_ROWS = 300
"""Rows of a generated table: enough for structure, few enough for one row to matter."""


def _uniform(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    return rng.integers(0, sizes, (rng.integers(50, MOST_ROWS), len(sizes)))


def _dependent(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """Skewed columns that all follow one hidden level."""
    rows = rng.integers(50, MOST_ROWS)
    level = rng.beta(0.6, 1.2, (rows, 1)) + rng.normal(0, 0.1, (rows, len(sizes)))
    return np.clip((level * sizes).astype(np.int64), 0, np.array(sizes) - 1)


def _one_combination(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    return np.tile(rng.integers(0, sizes), (int(rng.integers(2, MOST_ROWS)), 1))


def _low_codes(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """The upper half of each column's codes never occurs."""
    return _uniform([(size + 1) // 2 for size in sizes], rng)


def _balanced(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """Every value as often as any other: one row decides which is the most frequent."""
    rows = min(math.lcm(*sizes) * 4, MOST_ROWS)
    return np.stack([rng.permutation(np.arange(rows) % size) for size in sizes], axis=1)


def _few_rows(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    return rng.integers(0, sizes, (3, len(sizes)))


def _one_row(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    return rng.integers(0, sizes, (1, len(sizes)))


KINDS: Mapping[str, Callable[[Sequence[int], np.random.Generator], Codes]] = MappingProxyType(
    {
        "uniform": _uniform,
        "dependent": _dependent,
        "one combination": _one_combination,
        "low codes": _low_codes,
        "balanced": _balanced,
        "few rows": _few_rows,
        "one row": _one_row,
    }
)
"""Codes of shape (rows, columns) for column sizes, by kind of table."""


def to_rows(codes: Codes, schema: Schema, folder: Path, rng: np.random.Generator) -> Rows:
    """Cells of a CSV file whose codes these are; values are drawn inside their bins."""
    path = folder / "decoded.csv"
    coded = CodedTable.from_codes(schema.domain(), codes.T)
    write_table(decode(coded, schema, rng), path, schema)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def write_rows(rows: Rows, names: Sequence[str], folder: Path) -> Path:
    """A CSV file of the rows."""
    path = folder / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *rows])
    return path


def no_rows(schema: Schema) -> CodedTable:
    """The table without rows, which no file can hold."""
    domain = schema.domain()
    return CodedTable.from_codes(domain, [np.zeros(0, dtype=np.int64)] * len(domain))
