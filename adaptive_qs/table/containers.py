"""Tables inside other files: which one is read, rows of Python objects, and Excel workbooks.

A workbook is a zip archive of XML that others made. Parts are parsed piece by piece, and only what
a table needs of them is kept. So a workbook takes the memory of the texts that its cells share,
which count against a ceiling, and of one row.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from adaptive_qs.errors import DataError, InputError, ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, memory_bytes
from adaptive_qs.table.archive import DAMAGE, LONG_TEXT, MOST_RATIO, PIECE
from adaptive_qs.table.cells import object_cells
from adaptive_qs.table.read import Cells, Chunk, Reader, Source, unreadable
from adaptive_qs.table.text import ASCII_SPACE

# Rows of Python objects, as workbooks and SQLite have them.

OBJECT_ROWS, _MOST_CHARACTERS = 1 << 14, 1 << 24
"""Rows and characters of a block of rows that are held as Python objects, at most."""
Row = Sequence[Any]


def choose_table(
    path: Path,
    names: Sequence[str],
    requested: str | None,
    what: str,
    refused: Mapping[str, str] = {},
) -> str:
    """Return the name of the table to read. Names in the file can be private and are not quoted.

    Raises:
        DataError: If there is none, none of the requested name, or several and no name was given,
            or it is one of those ``refused``, with what to do.
    """
    if requested is not None:
        if requested in refused:
            raise DataError(
                f"{path}: {requested!r} is a {refused[requested]}. The unit of privacy is then a "
                "row of that result."
            )
        if requested not in names:
            raise DataError(f"{path}: has no {what} {requested!r}: check the name behind ::")
        return requested
    if not names:
        raise DataError(f"{path}: has no {what}: check the file")
    if len(names) > 1:
        raise DataError(
            f"{path}: has {len(names)} {what}s: name one, as {path}::NAME. For a set, propose a "
            'schema for each table, and join them by "tables".'
        )
    return names[0]


def chunk_objects(
    names: Sequence[str],
    rows: Iterator[Row],
    total: int,
    requested: Sequence[str],
    call: Callable[[Callable[[], Any]], Any] = lambda action: action(),
) -> Iterator[Chunk]:
    """Yield rows of Python objects, one for each name, as chunks of the requested columns.

    ``call`` runs each step. Warnings of a library, which can quote cells, are dropped.
    """
    places, done = [names.index(name) for name in requested], 0
    blocks = _blocks(rows)

    def following() -> tuple[int, tuple[Cells, ...]] | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (block := next(blocks, None)) is None:
                return None
            columns = []
            for place in places:
                objects = np.empty(len(block), dtype=object)
                objects[:] = [row[place] for row in block]
                columns.append(object_cells(objects))
            return len(block), tuple(columns)

    while (found := call(following)) is not None:
        done += found[0]
        yield Chunk(found[1], done, max(total, done))


def _blocks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in blocks of at most ``OBJECT_ROWS``, or fewer if their texts are long."""
    block: list[Row] = []
    length = 0
    for row in rows:
        block.append(row)
        length += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if len(block) == OBJECT_ROWS or length > _MOST_CHARACTERS:
            yield block
            block, length = [], 0
    if block:
        yield block


MOST_SHEET_ROWS, _MOST_COLUMNS = 2**20, 2**14
_MOST_CHARACTERS = 2**22
"""Most characters of a row of a sheet, as of one of CSV, and of a text that cells share."""
_MOST_LISTED, _MOST_DEPTH = 2**16, 64
"""Most sheets, relations and styles, and most nested elements: no workbook has as many."""
_BOOK_TYPE = re.compile(r"\.(sheet|template)(\.macroEnabled)?\.main\+xml$")
_TEXTS_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
_TEXTS = ("v", "t")
_STYLES, _XFS = "xl/styles.xml", "cellXfs"
_LONG = f"a row or text of more than {_MOST_CHARACTERS >> 20} MiB"


class Workbook:
    """Sheets of a workbook, and the cells of each.

    All methods raise an exception of ``DAMAGE`` if a part is damaged, declares entities, or has
    more of something than any workbook.

    Attributes:
        sheets: Name of each, whether it is visible, and its part.
    """

    def __init__(self, path: Path, book: zipfile.ZipFile) -> None:
        """Find the parts by their content types and relations."""
        self._path, self._zip = path, book
        (listed,) = self._listed("[Content_Types].xml", "Override")
        types = {one["PartName"].lstrip("/"): one["ContentType"] for one in listed}
        main = next((p for p, kind in types.items() if _BOOK_TYPE.search(kind)), "xl/workbook.xml")
        self._texts = next((p for p, kind in types.items() if kind == _TEXTS_TYPE), None)
        folder, name = posixpath.split(main)
        sheets, options = self._listed(main, "sheet", "workbookPr")
        (related,) = self._listed(f"{folder}/_rels/{name}.rels", "Relationship")
        parts = {
            one["Id"]: posixpath.normpath(posixpath.join("/", folder, one["Target"]))[1:]
            for one in related
            if "chartsheet" not in one["Type"]
        }
        self._since_1904 = any(one.get("date1904") in ("1", "true") for one in options)
        self.sheets = [
            (one["name"], one.get("state", "visible") == "visible", parts[one["id"]])
            for one in sheets
            if one.get("id") in parts
        ]

    def texts(self, most_bytes: int) -> Iterator[str]:
        """Yield the texts that cells share.

        Raises:
            ResourceExceeded: If they need more memory; the message does not say how many came.
        """
        text, needed = "", 0
        spoken = False
        names = ("si", "rPh")
        for name, begun, content in () if self._texts is None else self._events(self._texts, names):
            if name == "rPh":
                spoken = begun is not None
            elif name == "t" and not spoken:
                text += content
                self._check(len(text) <= _MOST_CHARACTERS, _LONG)
            elif name == "si" and begun is None:
                text = text.replace("x005F_", "")
                needed += sys.getsizeof(text) + 8
                if needed > most_bytes:
                    raise ResourceExceeded(
                        f"{self._path}: its texts need more memory than the "
                        f"{max(most_bytes, 0) >> 20:,} MB there are for them: raise --max-memory, "
                        "or export it as CSV or Parquet"
                    )
                yield text
                text = ""

    def rows(
        self, part: str, most_bytes: int, names: Mapping[int, str] | None = None
    ) -> Iterator[tuple[int, dict[int, Any]]]:
        """Yield the number (from 1) and the values by column of each row that has a value.

        Args:
            part: The part of the sheet.
            most_bytes: Memory for the texts that cells share.
            names: Columns in which formulas are refused, by position.

        Raises:
            DataError: If rows or cells are out of order or too many, a row is too long, or a cell
                of these columns has a formula, whose value can depend on other rows.
            ResourceExceeded: As for :meth:`texts`.
        """
        from openpyxl.utils import column_index_from_string

        number_of, value = cache(column_index_from_string), self._reader(most_bytes)
        row = column = length = 0
        spoken = False
        text: str | None = None
        cell: dict[str, str] = {}
        cells: dict[int, Any] = {}
        for name, begun, content in self._events(part, ("row", "c", "is", "rPh", "f")):
            if name == "f":
                if begun is not None:
                    self._refuse_formula(begun, column, names or {})
            elif name == "c":
                if begun is not None:
                    cell, text, letters = begun, None, begun.get("r", "").rstrip("0123456789")
                    before, column = column, number_of(letters) if letters else column + 1
                    self._check(column > before, "two cells of one column, or out of order")
                    self._check(column <= _MOST_COLUMNS, "cells beyond the last column of a sheet")
                elif text is not None and (found := value(cell, text)) is not None:
                    cells[column - 1] = found
                    length += len(found) if isinstance(found, str) else 0
                    self._check(length <= _MOST_CHARACTERS, _LONG)
            elif name == "row":
                if begun is not None:
                    before, row = row, int(float(begun.get("r", row + 1)))
                    self._check(row > before, "two rows of one number, or out of order")
                    self._check(row <= MOST_SHEET_ROWS, "rows beyond the last of a sheet")
                    column, length, cells = 0, 0, {}
                elif cells:
                    yield row, cells
            elif name == "rPh":
                spoken = begun is not None
            elif (name == "v") != (cell.get("t") == "inlineStr") and not spoken:
                text = (text or "") + content
                self._check(len(text) <= _MOST_CHARACTERS, _LONG)

    def _refuse_formula(
        self, formula: Mapping[str, str], column: int, names: Mapping[int, str]
    ) -> None:
        from openpyxl.utils import range_boundaries

        first = last = column
        if "ref" in formula and formula.get("t") != "shared":  # of an array: it fills a range
            first, _, last, _ = range_boundaries(formula["ref"])
        filled = [name for k, name in names.items() if first <= k + 1 <= last]
        if filled:
            raise DataError(
                f"{self._path}: column {filled[0]!r} has formulas, whose values can depend on "
                "other rows: save the sheet with values only (copy, paste as values)"
            )

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            raise DataError(f"{self._path}: has {problem}: save it again, or export it as CSV")

    def _reader(self, most_bytes: int) -> Callable[[dict[str, str], str], Any]:
        """Return a function that makes a value of the attributes and the text of a cell.

        The format of its cell decides what a number is.
        """
        from openpyxl.styles import numbers
        from openpyxl.utils import datetime as excel

        texts = [*self.texts(most_bytes)]
        epoch = excel.CALENDAR_MAC_1904 if self._since_1904 else excel.WINDOWS_EPOCH
        has_styles = _STYLES in self._zip.namelist()
        formats, styles = self._listed(_STYLES, "numFmt", "xf") if has_styles else ([], [])
        codes = numbers.BUILTIN_FORMATS | {int(f["numFmtId"]): f["formatCode"] for f in formats}
        used = [codes.get(int(style.get("numFmtId", 0))) for style in styles]
        dates = {k for k, code in enumerate(used) if numbers.is_date_format(code)}
        durations = {k for k, code in enumerate(used) if numbers.is_timedelta_format(code)}

        def value(cell: dict[str, str], text: str) -> Any:
            kind, style = cell.get("t", "n"), int(cell.get("s", 0))
            if kind == "inlineStr" or not text:
                return text if kind == "inlineStr" else None
            if kind == "s":
                return texts[int(text)]
            if kind == "b":
                return bool(int(text))
            if kind != "n":
                return excel.from_ISO8601(text) if kind == "d" else text
            number = int(text) if {".", "e", "E"}.isdisjoint(text) else float(text)
            if style not in dates:
                return number
            try:
                return excel.from_excel(number, epoch, style in durations)
            except (OverflowError, ValueError):
                return "#VALUE!"

        return value

    def _listed(self, part: str, *names: str) -> list[list[dict[str, str]]]:
        found: dict[str, list[dict[str, str]]] = {name: [] for name in names}
        for name, begun, _ in self._events(part, (*names, _XFS)):
            if name == _XFS and begun is not None:
                found["xf"] = []  # what came before are not styles of cells
            elif begun is not None and name in found:
                found[name].append({key.rpartition(":")[2]: begun[key] for key in begun})
                if len(found[name]) > _MOST_LISTED:
                    raise ValueError("a workbook lists more than any")
        return [*found.values()]

    def _events(
        self, part: str, names: Collection[str]
    ) -> Iterator[tuple[str, dict[str, str] | None, str]]:
        """Yield beginnings of elements of these names, with attributes, and their ends.

        Texts and values come at their ends, with their content.
        """
        member = self._zip.getinfo(part)
        stored = min(member.compress_size, os.path.getsize(self._path))
        if member.file_size > max(LONG_TEXT, MOST_RATIO * stored):
            self._check(False, "a part that was compressed further than any of a workbook")
        ready: list[tuple[str, dict[str, str] | None, str]] = []
        texts: list[str] = []
        depth = length = 0

        def begin(name: str, attributes: dict[str, str]) -> None:
            nonlocal depth, length
            depth += 1
            if depth > _MOST_DEPTH:
                raise ValueError("elements are nested too deeply")
            name = name.rpartition(":")[2]
            if name in names:
                ready.append((name, attributes, ""))
            elif name in _TEXTS:
                length = 0
                parser.CharacterDataHandler = take

        def end(name: str) -> None:
            nonlocal depth
            depth -= 1
            name = name.rpartition(":")[2]
            if name in names:
                ready.append((name, None, ""))
            elif name in _TEXTS:
                ready.append((name, None, "".join(texts)))
                texts.clear()
                parser.CharacterDataHandler = None

        def take(text: str) -> None:
            nonlocal length
            length += len(text)
            self._check(length <= _MOST_CHARACTERS, _LONG)
            texts.append(text)

        def refuse(*_: Any) -> None:
            raise ValueError("a part declares entities")

        parser, fed = expat.ParserCreate(), 0
        parser.buffer_text, parser.StartDoctypeDeclHandler = True, refuse
        parser.StartElementHandler, parser.EndElementHandler = begin, end
        with self._zip.open(member) as file:
            while piece := file.read(PIECE):
                parser.Parse(piece)
                fed += len(piece)
                if fed - parser.CurrentByteIndex > LONG_TEXT:  # which is parsed with each piece
                    raise ValueError("a tag is longer than any of a workbook")
                yield from ready
                ready.clear()
        parser.Parse(b"", True)


def _check_header(path: Path, number: int, cells: Mapping[int, Any]) -> tuple[str, ...]:
    """Return the names of columns in the first row that is not empty, or refuse it."""
    names = [str(cells.get(k, "")).strip(ASCII_SPACE) for k in range(max(cells, default=-1) + 1)]
    while names and not names[-1]:
        names.pop()
    if number > 1 or not names or "" in names:
        raise DataError(f"{path}: the first row has no names of columns: write them there")
    return tuple(names)


def _fill_rows(
    path: Path, rows: Iterator[tuple[int, dict[int, Any]]], width: int
) -> Iterator[Sequence[Any]]:
    """Yield rows with a cell for every name."""
    for _, cells in rows:
        if max(cells) >= width:
            raise DataError(
                f"{path}: a row has cells beyond the names in the first row: name all columns"
            )
        yield [*map(cells.get, range(width))]


# Sheets of Excel workbooks (.xlsx).


def openpyxl() -> Any:
    """Import the library; raise InputError if it is not installed."""
    try:
        import openpyxl as library
    except ImportError:
        raise InputError(
            "openpyxl is not installed: pip install 'adaptive-qs[excel]', or take CSV or Parquet"
        ) from None
    return library


@contextmanager
def open_workbook(path: Path, name: str | None = None) -> Iterator[Source]:
    """Yield a sheet as a source: names in its first row; rows without any value are skipped.

    Dates and numbers count by the kind of each cell. Formulas are refused in the columns that are
    read: the value of one can depend on all rows, as a row of a view can. No column takes times of
    day and durations.

    Raises:
        DataError: If it is no workbook, or lacks the sheet or names. Also raised while reading.
        ResourceExceeded: If its texts, or formats of rows, do not fit the machine.
    """
    openpyxl()
    most_bytes = memory_bytes(None) - PROCESS_BYTES
    with zipfile.ZipFile(path) as archive:
        book = Workbook(path, archive)
        titles = [title for title, is_visible, _ in book.sheets if is_visible or name is not None]
        title = choose_table(path, titles, name, "sheet")
        part = next(part for other, _, part in book.sheets if other == title)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = next(book.rows(part, most_bytes), (1, {}))
        names = _check_header(path, *first)

        def read(requested: Sequence[str]) -> Iterator[Chunk]:
            values_only = {names.index(name): name for name in requested}
            cells = islice(book.rows(part, most_bytes, values_only), 1, None)
            yield from chunk_objects(names, _fill_rows(path, cells, len(names)), 0, requested)

        yield Source(str(path), names, read)


def _explain_workbook(path: Path, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError | PermissionError):
        return unreadable(path, error)
    return DataError(
        f"{path}: is an Excel file that cannot be read: save it again as .xlsx, or export it as "
        "CSV or Parquet"
    )


def _check_held(path: Path, names: Collection[str], most_bytes: int) -> None:
    """Raise ResourceExceeded if the texts that cells share need more memory than this."""
    with suppress(*DAMAGE), zipfile.ZipFile(path) as book:  # what opens it explains them
        for _ in Workbook(path, book).texts(most_bytes):
            pass


EXCEL = Reader(open_workbook, _explain_workbook, _check_held)
