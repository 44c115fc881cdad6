"""Generated rows under a schema, in every form of table, and neighbours that differ by one."""

import csv
import gzip
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
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
from adaptive_qs.table.columns.category import listed_column
from adaptive_qs.table.encode import decode
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet
from adaptive_qs.table.text import COMMA, FALSE_WORDS, TRUE_WORDS
from adaptive_qs.table.write import write_table

Codes = NDArray[np.int64]
Cell = str | bool | int | float | date | None
Rows = list[list[str]]
"""Rows of cells, as a CSV file has them."""

MOST_ROWS = 300
"""Maximum number of rows of a generated table: enough for structure, and one row still matters."""


def _uniform(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    return rng.integers(0, sizes, (rng.integers(50, MOST_ROWS), len(sizes)))


def _dependent(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """Draw skewed columns that all follow one hidden level."""
    rows = rng.integers(50, MOST_ROWS)
    level = rng.beta(0.6, 1.2, (rows, 1)) + rng.normal(0, 0.1, (rows, len(sizes)))
    return np.clip((level * sizes).astype(np.int64), 0, np.array(sizes) - 1)


def _balanced(sizes: Sequence[int], rng: np.random.Generator) -> Codes:
    """Draw every value equally often, so that one row decides which is the most frequent."""
    rows = min(math.lcm(*sizes) * 4, MOST_ROWS)
    return np.stack([rng.permutation(np.arange(rows) % size) for size in sizes], axis=1)


KINDS: Mapping[str, Callable[[Sequence[int], np.random.Generator], Codes]] = {
    "uniform": _uniform,
    "dependent": _dependent,
    "one combination": lambda sizes, rng: np.tile(
        rng.integers(0, sizes), (int(rng.integers(2, MOST_ROWS)), 1)
    ),
    # The upper half of the codes of each column never occurs.
    "low codes": lambda sizes, rng: _uniform([(size + 1) // 2 for size in sizes], rng),
    "balanced": _balanced,
    "few rows": lambda sizes, rng: rng.integers(0, sizes, (3, len(sizes))),
    "one row": lambda sizes, rng: rng.integers(0, sizes, (1, len(sizes))),
}
"""Makers of codes, shape (rows, columns), for column sizes, by kind of table."""


def to_rows(codes: Codes, schema: Schema, folder: Path, rng: np.random.Generator) -> Rows:
    """Decode codes to cells of a CSV file; values are drawn inside their bins."""
    path = folder / "decoded.csv"
    coded = CodedTable.from_codes(schema.domain(), codes.T)
    write_table(decode(coded, schema, rng), path, schema)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=schema.delimiter or COMMA))[1:]


class Verbatim(str):
    """A cell that is text also in data frames of Python objects."""

    __slots__ = ()


def write_rows(
    rows: Rows,
    names: Sequence[str],
    folder: Path,
    name: str = "rows.csv",
    delimiter: str | None = None,
) -> Path:
    """Write the rows to a CSV file, compressed if its name ends in ".gz", and return its path."""
    path = folder / name
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter or COMMA, lineterminator="\n")
        writer.writerows([names, *rows])
    return path


Form = Callable[[Rows, "Types", Path], Any]
"""Makes a table of rows with columns of these types: a file in the folder, or a data frame."""


class Types:
    """The types of the columns of two neighbouring tables in data frames and Parquet.

    The owner of a table chooses them before any row is known, so they hold every cell of both
    tables. A column with a cell that has no other type is text.
    """

    def __init__(self, schema: Schema, *tables: Rows) -> None:
        """Find the types for the columns of a schema with these rows."""
        self._columns, self.delimiter = schema.own_columns, schema.delimiter
        self.names = [column.name for column in self._columns]
        self._common = [
            _common_type(column, {row[i] for rows in tables for row in rows} - {*column.missing})
            for i, column in enumerate(self._columns)
        ]

    def arrow(self, rows: Rows) -> pa.Table:
        """Return the rows with one type for each column; text is dictionary encoded."""
        columns = {}
        for i, (column, (kind, read)) in enumerate(zip(self._columns, self._common)):
            values = [None if row[i] in column.missing else read(row[i]) for row in rows]
            cells = pa.array(values, kind)
            columns[column.name] = cells.dictionary_encode() if kind == pa.string() else cells
        return pa.table(columns)

    def objects(self, rows: Rows) -> pd.DataFrame:
        """Return the rows as Python objects; the type of each cell follows from the cell alone."""

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
"""Rows of a row group or chunk; most tables have several groups."""


def _chunked(rows: Rows, types: Types, folder: Path) -> pa.Table:
    """Return a table of several chunks, each with its own dictionary."""
    parts = [rows[k : k + GROUP_ROWS] for k in range(0, len(rows), GROUP_ROWS)]
    return pa.concat_tables(map(types.arrow, parts))


def _parquet(rows: Rows, types: Types, folder: Path) -> Path:
    path = folder / "rows.parquet"
    pq.write_table(types.arrow(rows), path, row_group_size=GROUP_ROWS)
    return path


def _polars(rows: Rows, types: Types, folder: Path) -> Any:
    return nw.from_arrow(types.arrow(rows), backend="polars").to_native()


def _excel(rows: Rows, types: Types, folder: Path) -> Path:
    """Write typed cells to a workbook; rows of missing values, which do not count, get texts."""
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
    """Write untyped columns whose values keep the types of Python objects; moments are texts."""
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


FORMS: Mapping[str, Form] = {
    "CSV": lambda rows, types, folder: _csv(rows, types, folder, "rows.csv"),
    "pandas objects": lambda rows, types, _: types.objects(rows),
    "Parquet": _parquet,
    # Nullable integers, numbers and booleans, datetime64 and category.
    "pandas": lambda rows, types, _: types.arrow(rows).to_pandas(
        types_mapper=_NULLABLE.get, date_as_object=False
    ),
    "pyarrow": _chunked,
    "CSV.gz": lambda rows, types, folder: _csv(rows, types, folder, "rows.csv.gz"),
    "SQLite": _sqlite,
    **({"Excel": _excel} if find_spec("openpyxl") else {}),
    **({"polars": _polars} if find_spec("polars") else {}),
}
"""Makers of a table in every form, by name; Excel and polars if their libraries are installed."""


def _common_type(
    column: ColumnBase, cells: Iterable[str]
) -> tuple[pa.DataType, Callable[[str], Cell]]:
    """Return the first type that all cells can have, and a parser of their texts."""
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
    """Accept only texts that equal the written value in lower case."""

    def parse(text: str) -> Cell:
        value = read(text)
        if str(value).lower() != text:
            raise ValueError("written in another way")
        return value

    return parse


_PARSERS: Mapping[CellType, tuple[Callable[[str], Cell], pa.DataType]] = {
    "integer": (_integer, pa.int64()),
    "number": (float, pa.float64()),
    "boolean": (_boolean, pa.bool_()),
    "digits": (_plain(_integer), pa.int64()),
    "true or false": (_plain(_boolean), pa.bool_()),
    "date": (date.fromisoformat, pa.date32()),
    "datetime": (datetime.fromisoformat, pa.timestamp("s")),
}
"""Parser of the cells of each type, and the Arrow type that holds them."""


MOST_BARE = 50
"""Rows below which a table without columns has some."""


@dataclass(frozen=True)
class Pair:
    """Two tables of text cells that differ by one unit; the name tells the kinds of both."""

    name: str
    here: Rows
    there: Rows


def neighbour_pairs(schema: Schema, folder: Path, rng: np.random.Generator) -> Iterator[Pair]:
    """Yield tables that differ by a row, without end: every kind of table with every kind of row.

    No bins or values of the schema are open. If it accepts unknown or missing values, rows have
    some. The generator also decides which of the two tables comes first.
    """
    while not schema.columns:  # of a table of a set, which has keys besides
        rows: Rows = [[]] * int(rng.integers(1, MOST_BARE))
        yield Pair("rows of keys alone, a row more", rows, [*rows, []])
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
    """Yield neighbours of a table, each with the kind of the row that is added or removed."""
    sizes = schema.domain().sizes
    counts = [np.bincount(column, minlength=size) for column, size in zip(codes.T, sizes)]
    drawn = {
        "a typical row more": rng.choice(codes),
        "a row of first codes more": np.zeros_like(codes[0]),
        "the rarest values more": [_rarest(c[c > 0], np.flatnonzero(c), rng) for c in counts],
        "values never seen more": [_rarest(c, np.arange(len(c)), rng) for c in counts],
    }
    added = to_rows(np.array(list(drawn.values())), schema, folder, rng)
    yield from ((what, [*rows, row]) for what, row in zip(drawn, added))
    yield "text among numbers more", [*rows, [Verbatim(cell) for cell in rows[0]]]
    strange = [column.cell_of_other_type() for column in schema.own_columns]
    if any(cell is not None for cell in strange):
        yield "values of another type more", [*rows, _replaced(rows[0], strange)]
    outside = [column.undeclared_cell() for column in schema.own_columns]
    if any(cell is not None for cell in outside):
        yield "values outside the schema more", [*rows, _replaced(rows[0], outside)]
    missing = [column.missing[-1] if column.missing else None for column in schema.own_columns]
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
    """Return the schema with arbitrary bins and values in place of open ones."""
    columns = tuple(column.stand_in() for column in schema.columns)
    return Schema(
        version=schema.version, columns=columns, ignore=schema.ignore, person=schema.person
    )


NEW = "the one who differs"
"""Key of the person or root row that only one side has, or that has other rows on each side."""
MOST_BELOW = 2_000
"""Maximum number of rows of a table below the root row that differs."""


def keyed(schema: Schema, keys: Sequence[str], pair: Pair) -> Schema:
    """Return the schema with the columns of keys that follow the other cells of the rows."""
    columns = list(schema.own_columns)
    for place, key in enumerate(keys, start=len(columns)):
        values = tuple(dict.fromkeys(row[place] for row in (*pair.here, *pair.there)))
        columns.append(listed_column(key, values))
    return Schema(version=schema.version, columns=tuple(columns), delimiter=schema.delimiter)


def _split(pair: Pair) -> tuple[Rows, Rows, list[str]]:
    """Return the smaller and the larger table, and the row that only the larger one has."""
    fewer, more = sorted((pair.here, pair.there), key=len)
    place = next((k for k, row in enumerate(fewer) if row != more[k]), len(fewer))
    return fewer, more, more[place]


def _shuffled(rows: Rows, rng: np.random.Generator) -> Rows:
    return [rows[k] for k in rng.permutation(len(rows)).tolist()]


def unit_pair(pair: Pair, unit: Unit, rng: np.random.Generator) -> Pair:
    """Turn tables that differ by a row into tables that differ by a unit.

    If the unit is a person, rows have one more cell, the person. Persons have from one row to many
    more than count, equal rows among them, in any order. One table has an additional person, or
    other rows of that person. Each table is shuffled.
    """
    fewer, more, row = _split(pair)
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
    mixed = [_shuffled([*fewer, *rows], rng) for rows in tables]
    here, there = mixed if len(pair.here) <= len(pair.there) else mixed[::-1]
    return Pair(f"{pair.name}, for {unit.rows} of a person", here, there)


def set_pairs(
    schema: TableSet, replace: bool, folder: Path, rng: np.random.Generator
) -> Iterator[tuple[str, dict[str, Pair]]]:
    """Yield a name and the tables of two sets that differ by a root row with everything below it.

    Rows have from none to many more rows below them than count, on every level; so has the root row
    that only one side has, or if ``replace``, that differs. What is odd about its rows (the rarest
    values, missing ones, values outside the schema) changes from pair to pair. The last cells of a
    row are the values of ``schema.key_columns``.
    """
    each = {
        name: islice(neighbour_pairs(schema.tables[name], folder, rng), 3 * place, None)
        for place, name in enumerate(schema.names)  # other kinds of rows than in the table before
    }
    while True:
        drawn = {name: next(pairs) for name, pairs in each.items()}
        parts = {name: _split(pair) for name, pair in drawn.items()}
        if not all(fewer for fewer, _, _ in parts.values()):
            continue  # tables without rows are refused
        common = _common_rows(schema, {name: fewer for name, (fewer, _, _) in parts.items()}, rng)
        new = _rows_below(schema, {name: row for name, (_, _, row) in parts.items()}, rng)
        other = _rows_below(schema, {name: more[0] for name, (_, more, _) in parts.items()}, rng)
        sides = [new, other if replace else dict.fromkeys(new, Rows())]
        if rng.integers(2):
            sides.reverse()
        pairs = {
            name: Pair(name, *(_shuffled([*common[name], *side[name]], rng) for side in sides))
            for name in schema.names
        }
        yield "; ".join(f"{name}: {pair.name}" for name, pair in drawn.items()), pairs


def _common_rows(
    schema: TableSet, rows: Mapping[str, Rows], rng: np.random.Generator
) -> dict[str, Rows]:
    """Return the rows of both sides with their keys; many parents have more rows than count."""
    found: dict[str, Rows] = {}
    for name in schema.names:
        own = rows[name]
        owners: list[list[str]] = [[]] * len(own)
        if (key := schema.by_child.get(name)) is not None:
            # The first row is the only one of its parent: it counts, so no table is without rows.
            first, *known = _list_keys(schema, key.parent, found[key.parent])
            known = known[: 1 + len(own) // (2 * key.most)]
            drawn = rng.integers(len(known), size=len(own) - 1).tolist() if known else []
            owners = [[first], *([known[k]] for k in drawn)]
        found[name] = _add_keys(schema, name, own[: len(owners)], "", owners)
    return found


def _rows_below(
    schema: TableSet, rows: Mapping[str, list[str]], rng: np.random.Generator
) -> dict[str, Rows]:
    """Return a root row and all rows below it, equal ones in each table, with their keys."""
    found: dict[str, Rows] = {}
    for name in schema.names:
        owners: list[list[str]] = [[]]
        if (key := schema.by_child.get(name)) is not None:
            above, full = _list_keys(schema, key.parent, found[key.parent]), key.most + 2
            drawn = rng.integers(2 * full, size=len(above))  # one half have all
            often = np.minimum(drawn, full).tolist()
            owners = [[owner] for owner, times in zip(above, often) for _ in range(times)]
        owners = owners[:MOST_BELOW]
        found[name] = _add_keys(schema, name, [rows[name]] * len(owners), f"{NEW} ", owners)
    return found


def _add_keys(
    schema: TableSet, name: str, rows: Rows, prefix: str, owners: Sequence[list[str]]
) -> Rows:
    """Return rows with the values of their key columns: their own, then their parent's."""
    own = schema.own_key(name) is not None
    return [
        [*row, *[f"{prefix}{k}"] * own, *owner] for k, (row, owner) in enumerate(zip(rows, owners))
    ]


def _list_keys(schema: TableSet, name: str, rows: Rows) -> list[str]:
    return [row[len(schema.tables[name].own_columns)] for row in rows]
