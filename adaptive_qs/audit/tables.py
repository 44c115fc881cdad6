"""Generated rows under a schema, in every form of table, and neighbours that differ by one."""

from __future__ import annotations

import csv
import gzip
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from adaptive_qs.privacy.unit import Unit
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import CellType, ColumnBase
from adaptive_qs.table.columns.category import CategoricalColumn
from adaptive_qs.table.encode import decode
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import COMMA, FALSE_WORDS, TRUE_WORDS
from adaptive_qs.table.write import write_table

Codes = NDArray[np.int64]
Cell = str | bool | int | float | date | None
Rows = list[list[str]]
"""Cells as a CSV file has them."""

MOST_ROWS = 300
"""Rows of a generated table: enough for structure, few enough for one row to matter."""


def _uniform(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    return rng.integers(0, sizes, (rng.integers(50, MOST_ROWS), len(sizes)))


def _dependent(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """Skewed columns that all follow one hidden level."""
    rows = rng.integers(50, MOST_ROWS)
    level = rng.beta(0.6, 1.2, (rows, 1)) + rng.normal(0, 0.1, (rows, len(sizes)))
    return np.clip((level * sizes).astype(np.int64), 0, np.array(sizes) - 1)


def _balanced(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """Every value as often as any other: one row decides which is the most frequent."""
    rows = min(math.lcm(*sizes) * 4, MOST_ROWS)
    return np.stack([rng.permutation(np.arange(rows) % size) for size in sizes], axis=1)


KINDS: Mapping[str, Callable[[Sequence[int], np.random.Generator], Codes]] = MappingProxyType(
    {
        "uniform": _uniform,
        "dependent": _dependent,
        "one combination": lambda sizes, rng: np.tile(
            rng.integers(0, sizes), (int(rng.integers(2, MOST_ROWS)), 1)
        ),
        # The upper half of each column's codes never occurs.
        "low codes": lambda sizes, rng: _uniform([(size + 1) // 2 for size in sizes], rng),
        "balanced": _balanced,
        "few rows": lambda sizes, rng: rng.integers(0, sizes, (3, len(sizes))),
        "one row": lambda sizes, rng: rng.integers(0, sizes, (1, len(sizes))),
    }
)
"""Codes of shape (rows, columns) for column sizes, by kind of table."""


def to_rows(codes: Codes, schema: Schema, folder: Path, rng: np.random.Generator) -> Rows:
    """Cells of a CSV file whose codes these are; values are drawn inside their bins."""
    path = folder / "decoded.csv"
    coded = CodedTable.from_codes(schema.domain(), codes.T)
    write_table(decode(coded, schema, rng), path, schema)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=schema.delimiter or COMMA))[1:]


class Verbatim(str):
    """A cell that is text in data frames of Python objects, too, whatever it says."""

    __slots__ = ()


def write_rows(
    rows: Rows,
    names: Sequence[str],
    folder: Path,
    name: str = "rows.csv",
    delimiter: str | None = None,
) -> Path:
    """A CSV file of the rows, compressed where its name ends in ".gz"."""
    path = folder / name
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter or COMMA, lineterminator="\n")
        writer.writerows([names, *rows])
    return path


Form = Callable[[Rows, "Types", Path], Any]
"""Makes a table of rows, whose columns have these types, as a file in the folder or as a frame."""


class Types:
    """The type that each column of two neighbouring tables has in data frames and Parquet.

    The owner of a table chooses it before any row is known, and all rows then have it. So it holds
    every cell of both tables; a column with a cell that has no other type is text.
    """

    def __init__(self, schema: Schema, *tables: Rows) -> None:
        """Types for the columns of a schema with these rows."""
        self.names, self.delimiter = schema.names, schema.delimiter
        self._columns = schema.columns
        self._common = [
            _common_type(column, {row[i] for rows in tables for row in rows} - {*column.missing})
            for i, column in enumerate(schema.columns)
        ]

    def arrow(self, rows: Rows) -> pa.Table:
        """The rows with one type for each column; values of a category are dictionary encoded."""
        columns = {}
        for i, (column, (kind, read)) in enumerate(zip(self._columns, self._common)):
            values = [None if row[i] in column.missing else read(row[i]) for row in rows]
            cells = pa.array(values, kind)
            columns[column.name] = cells.dictionary_encode() if kind == pa.string() else cells
        return pa.table(columns)

    def objects(self, rows: Rows) -> pd.DataFrame:
        """The rows as Python objects, each of a type of its own."""

        def read(column: ColumnBase, cell: str) -> Cell:
            if isinstance(cell, Verbatim):
                return str(cell)
            return None if cell in column.missing else _common_type(column, [cell])[1](cell)

        return pd.DataFrame(
            {
                column.name: pd.Series([read(column, row[i]) for row in rows], dtype=object)
                for i, column in enumerate(self._columns)
            }
        )


_NULLABLE = {
    pa.int64(): pd.Int64Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
GROUP_ROWS = 100
"""Rows of a row group or chunk; most tables have several."""


def _chunked(rows: Rows, types: Types, folder: Path) -> pa.Table:
    """Of several chunks, each with a dictionary of its own."""
    parts = [rows[k : k + GROUP_ROWS] for k in range(0, len(rows), GROUP_ROWS)]
    return pa.concat_tables(map(types.arrow, parts))


def _parquet(rows: Rows, types: Types, folder: Path) -> Path:
    path = folder / "rows.parquet"
    pq.write_table(types.arrow(rows), path, row_group_size=GROUP_ROWS)
    return path


def _polars(rows: Rows, types: Types, folder: Path) -> Any:
    return nw.from_arrow(types.arrow(rows), backend="polars").to_native()


def _excel(rows: Rows, types: Types, folder: Path) -> Path:
    """Cells of the kinds of Python objects; a row of missing values has texts for them, since one
    without any value is none."""
    from openpyxl import Workbook

    book, path = Workbook(write_only=True), folder / "rows.xlsx"
    sheet = book.create_sheet()
    typed = types.objects(rows).to_numpy()
    for cells, texts in zip([np.array(types.names), *typed], [types.names, *rows]):
        held = [text or " " for text in texts] if all(c is None for c in cells) else cells
        sheet.append([_excel_cell(sheet, cell) for cell in held])
    book.save(path)
    return path


def _excel_cell(sheet: Any, value: Cell) -> Any:
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(sheet, value)
    if isinstance(value, str):
        cell.data_type = "s"
    return cell


def _sqlite(rows: Rows, types: Types, folder: Path) -> Path:
    """Columns without a type, whose values keep the types of Python objects; moments are texts."""
    path = folder / "rows.db"
    path.unlink(missing_ok=True)
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in types.names)
    places = ", ".join("?" * len(types.names))
    held = [
        [cell.isoformat() if isinstance(cell, date) else cell for cell in row]
        for row in types.objects(rows).to_numpy()
    ]
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE rows ({names})")
        database.executemany(f"INSERT INTO rows VALUES ({places})", held)
        database.commit()
    return path


def _csv(rows: Rows, types: Types, folder: Path, name: str) -> Path:
    return write_rows(rows, types.names, folder, name, types.delimiter)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "CSV": lambda rows, types, folder: _csv(rows, types, folder, "rows.csv"),
        "pandas objects": lambda rows, types, _: types.objects(rows),
        "Parquet": _parquet,
        # Nullable integers, numbers and booleans, datetime64 and category.
        "pandas": lambda rows, types, _: types.arrow(rows).to_pandas(
            types_mapper=_NULLABLE.get, date_as_object=False
        ),
        "pyarrow": _chunked,
        "CSV.gz": lambda rows, types, folder: _csv(rows, types, folder, "rows.csv.gz"),
    }
    | {"SQLite": _sqlite}
    | ({"Excel": _excel} if find_spec("openpyxl") else {})
    | ({"polars": _polars} if find_spec("polars") else {})
)
"""Every form in which a table may come, by its name; Excel and polars where their libraries are
installed."""


def _common_type(
    column: ColumnBase, cells: Iterable[str]
) -> tuple[pa.DataType, Callable[[str], Cell]]:
    """The first type that all cells can have, and how to read them."""
    for read, kind in map(_PARSERS.__getitem__, column.cell_types):
        with suppress(ValueError):
            for text in cells:
                read(text)
            return kind, read
    return pa.string(), str


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) >= 2**62:
        raise ValueError("it takes more than 64 bits")
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError("no boolean")
    return text.lower() in TRUE_WORDS


def _plain(read: Callable[[str], Cell]) -> Callable[[str], Cell]:
    """The same for texts only that are as the value is written, in lower case."""

    def parse(text: str) -> Cell:
        value = read(text)
        if str(value).lower() != text:
            raise ValueError("written in another way")
        return value

    return parse


_PARSERS: Mapping[CellType, tuple[Callable[[str], Cell], pa.DataType]] = MappingProxyType(
    {
        "integer": (_integer, pa.int64()),
        "number": (float, pa.float64()),
        "boolean": (_boolean, pa.bool_()),
        "digits": (_plain(_integer), pa.int64()),
        "true or false": (_plain(_boolean), pa.bool_()),
        "date": (date.fromisoformat, pa.date32()),
        "datetime": (datetime.fromisoformat, pa.timestamp("s")),
    }
)
"""How cells of each type are read, and the type of Arrow that holds them."""


def no_rows(schema: Schema) -> CodedTable:
    """The table without rows, which no file can hold."""
    domain = schema.domain()
    return CodedTable.from_codes(domain, np.zeros((len(domain), 0), dtype=np.int64))


# Pairs of neighbouring tables: one of them has a row that the other lacks.


@dataclass(frozen=True)
class Pair:
    """Two tables of text cells that differ by one row, named by the kind of table and of row."""

    name: str
    here: Rows
    there: Rows


def neighbour_pairs(schema: Schema, folder: Path, rng: np.random.Generator) -> Iterator[Pair]:
    """Pairs without end: every kind of table with every kind of row, in turn.

    Args:
        schema: what the tables follow, with no bins or values left open; where it takes unknown
            or missing values, rows have some.
        folder: for temporary files of generated rows.
        rng: decides the rows, and which of the two tables comes first.
    """
    sizes = schema.domain().sizes
    rounds = 0
    while True:
        for position, (kind, make) in enumerate(KINDS.items()):
            codes = make(sizes, rng)
            rows = to_rows(codes, schema, folder, rng)
            others = list(_neighbours(codes, rows, schema, folder, rng))
            what, other = others[(rounds + position) % len(others)]
            tables = [rows, other] if rng.integers(2) else [other, rows]
            yield Pair(f"{kind}, {what}", *tables)
        rounds += 1


def _neighbours(
    codes: Codes, rows: Rows, schema: Schema, folder: Path, rng: np.random.Generator
) -> Iterator[tuple[str, Rows]]:
    """Neighbours of a table, by the kind of row that they have more or less."""
    sizes = schema.domain().sizes
    counts = [np.bincount(column, minlength=size) for column, size in zip(codes.T, sizes)]
    wanted = {
        "a typical row more": rng.choice(codes),
        "a row of first codes more": np.zeros_like(codes[0]),
        "the rarest values more": [_rarest(c[c > 0], np.flatnonzero(c), rng) for c in counts],
        "values never seen more": [_rarest(c, np.arange(len(c)), rng) for c in counts],
    }
    added = to_rows(np.array(list(wanted.values())), schema, folder, rng)
    yield from ((what, [*rows, row]) for what, row in zip(wanted, added))
    yield "text among numbers more", [*rows, [Verbatim(cell) for cell in rows[0]]]
    strange = [column.cell_of_other_type() for column in schema.columns]
    if any(cell is not None for cell in strange):
        yield "values of another type more", [*rows, _replaced(rows[0], strange)]
    outside = [column.undeclared_cell() for column in schema.columns]
    if any(cell is not None for cell in outside):
        yield "values outside the schema more", [*rows, _replaced(rows[0], outside)]
    missing = [column.missing[-1] if column.missing else None for column in schema.columns]
    if any(cell is not None for cell in missing):
        yield "missing values more", [*rows, _replaced(rows[0], missing)]
    less = rng.integers(len(rows))
    removed = [*rows[:less], *rows[less + 1 :]]
    yield ("a row less" if removed else "the only row less"), removed


def _rarest(counts: Codes, codes: Codes, rng: np.random.Generator) -> int:
    return int(rng.choice(codes[counts == counts.min()]))


def _replaced(row: list[str], cells: list[str | None]) -> list[str]:
    return [old if new is None else new for old, new in zip(row, cells)]


def stand_in(schema: Schema) -> Schema:
    """The schema with arbitrary bins and values where it leaves them open."""
    columns = tuple(column.stand_in() for column in schema.columns)
    return Schema(
        version=schema.version, columns=columns, ignore=schema.ignore, person=schema.person
    )


# Neighbours of other kinds: a person with all rows, and one unit in the place of another.

NEW = "the one who differs"
"""Names a person that only one of two tables has, or that has other rows there."""


def keyed(schema: Schema, key: str | None, pair: Pair) -> Schema:
    """The schema with a column of keys, those of both tables, as the last of its columns; itself
    where rows have no key."""
    if key is None:
        return schema
    keys = tuple(dict.fromkeys(row[-1] for rows in (pair.here, pair.there) for row in rows))
    column = CategoricalColumn(name=key, type="categorical", values=keys)
    return Schema(version=schema.version, columns=(*schema.columns, column))


def apart(pair: Pair) -> tuple[Rows, Rows, list[str]]:
    """The smaller and the larger of two tables, and the row that only the larger one has."""
    fewer, more = sorted((pair.here, pair.there), key=len)
    place = next((k for k, row in enumerate(fewer) if row != more[k]), len(fewer))
    return fewer, more, more[place]


def of_unit(pair: Pair, unit: Unit, rng: np.random.Generator) -> Pair:
    """Tables that differ by such a unit, made of two that differ by a row.

    Where the unit is a person, rows have one cell more, which says whose they are. Persons have
    from one row to many more than count, equal ones among them, and their rows are not next to
    each other. One table has a person more, or other rows of that person. Both are in an order of
    their own.
    """
    fewer, more, row = apart(pair)
    own = [row] * int(rng.integers(1, unit.rows + 2))
    if unit.person is None:
        own = own[:1]
    elif fewer:
        others = rng.integers(len(fewer), size=int(rng.integers(3 * unit.rows + 1)))
        own += [fewer[k] for k in others]
    tables = [[more[0]] * (unit.neighbours == "replace"), own]
    if unit.person is not None:
        holders = rng.integers(1 + len(fewer) // (2 * unit.rows), size=len(fewer)).tolist()
        fewer = [[*row, f"{holder}"] for row, holder in zip(fewer, holders)]
        tables = [[[*row, NEW] for row in rows] for rows in tables]
    every = ([*fewer, *rows] for rows in tables)
    mixed = [[rows[k] for k in rng.permutation(len(rows)).tolist()] for rows in every]
    here, there = mixed if len(pair.here) <= len(pair.there) else mixed[::-1]
    return Pair(f"{pair.name}, for {unit.rows} of a person", here, there)
