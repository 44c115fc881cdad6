"""Tables inside other files: which one is read, rows of Python objects, and Excel workbooks."""

import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.parsers import expat

import numpy as np

from adaptive_qs.errors import DataError, InputError, ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, memory_bytes
from adaptive_qs.table.archive import DAMAGE
from adaptive_qs.table.cells import object_cells
from adaptive_qs.table.read import Cells, Chunk, Reader, Source, unreadable
from adaptive_qs.table.text import ASCII_SPACE

# Rows of Python objects, as workbooks and SQLite have them.

OBJECT_ROWS = 1 << 14
"""Rows of a block that are held as Python objects, at most."""
Row = Sequence[Any]


def choose_table(
    path: Path,
    names: Sequence[str],
    requested: str | None,
    what: str,
    refused: Mapping[str, str] = {},
) -> str:
    """Return the name of the table to read. Names in the file can be private and are not quoted.

    Raise DataError if there is none, none of the requested name, or several and no name was given,
    or it is one of those ``refused``, with what to do.
    """
    if requested is not None:
        if requested in refused:
            raise DataError(
                f"{path}: {requested!r} is a {refused[requested]}. The unit of privacy is then a "
                "row of that result."
            )
        if requested not in names:
            raise DataError(f"{path} has no {what} {requested!r}. Check the name behind ::")
        return requested
    if not names:
        raise DataError(f"{path} has no {what}. Check the file.")
    if len(names) > 1:
        raise DataError(
            f"{path} has {len(names)} {what}s. Name one, as {path}::NAME. For a set, propose a "
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
    """Yield rows in blocks of at most ``OBJECT_ROWS``, or fewer if they exceed 2^24 characters."""
    block: list[Row] = []
    length = 0
    for row in rows:
        block.append(row)
        length += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if len(block) == OBJECT_ROWS or length > 1 << 24:
            yield block
            block, length = [], 0
    if block:
        yield block


# Sheets of Excel workbooks (.xlsx).


class _Parts(zipfile.ZipFile):
    """The parts of a workbook, checked for size and for XML entities before they are parsed."""

    unread = 0  # bytes of a sheet that were read since its last row

    def open(self, name: Any, *options: Any, **more: Any) -> Any:
        """Open a part; raise ValueError if it begins with a document type."""

        def refuse(*_: Any) -> None:
            raise ValueError("a part declares entities")

        started: list[str] = []
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = refuse
        parser.StartElementHandler = lambda name, _: started.append(name)
        with super().open(name) as part:
            parser.Parse(part.read(2**16))
        if not started:
            raise ValueError("a part has no element among its first bytes")
        return super().open(name, *options, **more)

    def read(self, name: Any, pwd: bytes | None = None) -> bytes:
        """Return a whole part; raise ValueError if it is larger than in any workbook."""
        content = b"" if self.getinfo(name).file_size > 2**23 else super().read(name, pwd)
        if not content or content.count(b"<") > 2**18:
            raise ValueError("a part is empty, too large, or has too many elements")
        return content


class Workbook:
    """The sheets of a workbook (part and visibility by name), which openpyxl parses row by row."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Find the sheets and shared texts; ResourceExceeded if these exceed ``most_bytes``."""
        from openpyxl.styles.stylesheet import apply_stylesheet

        self._path, self._reader = path, _read_manifest(path, most_bytes)
        self._reader.read_strings()
        self._reader.read_workbook()
        apply_stylesheet(self._reader.archive, self._reader.wb)
        self.sheets = {
            sheet.name: (related.target, sheet.state == "visible")
            for sheet, related in self._reader.parser.find_sheets()
            if "chartsheet" not in related.Type and related.target in self._reader.valid_files
        }

    def close(self) -> None:
        """Close the file."""
        self._reader.archive.close()

    def rows(
        self, name: str, values_only: Mapping[int, str] | None = None
    ) -> Iterator[tuple[int, dict[int, Any]]]:
        """Yield the number (from 1) and the values by column of each row that has a value.

        ``values_only`` names, by position, the columns in which formulas are refused: their values
        can depend on other rows. Raise DataError if rows or cells are out of order or too many, or
        a row is too long.
        """
        from openpyxl.worksheet._reader import WorkSheetParser

        archive, book, row = self._reader.archive, self._reader.wb, 0

        def read(size: int) -> bytes:
            archive.unread += size
            self._check(archive.unread <= 2**22, "a row of more than 4 MiB")
            return part.read(size)

        with archive.open(self.sheets[name][0]) as part:
            archive.unread = 0
            parser = WorkSheetParser(
                SimpleNamespace(read=read), self._reader.shared_strings, epoch=book.epoch,
                date_formats=book._date_formats, timedelta_formats=book._timedelta_formats,
            )  # fmt: skip
            for number, cells in parser.parse():
                parser.row_dimensions.clear()
                archive.unread = 0
                self._check(number > row, "two rows of one number, or out of order")
                self._check(number <= 2**20, "rows beyond the last of a sheet")
                row, places = number, [cell["column"] for cell in cells]
                in_order = all(first < second for first, second in pairwise(places))
                self._check(in_order, "two cells of one column, or out of order")
                for cell in cells:
                    if cell["data_type"] == "f":
                        self._refuse_formula(cell, values_only or {})
                found = {c["column"] - 1: c["value"] for c in cells if c["value"] is not None}
                if found:
                    yield number, found

    def _refuse_formula(self, cell: Mapping[str, Any], names: Mapping[int, str]) -> None:
        from openpyxl.utils import range_boundaries

        first = last = cell["column"]
        if (filled := getattr(cell["value"], "ref", None)) is not None:  # an array fills a range
            first, _, last, _ = range_boundaries(filled)
        for place in range(first - 1, last):
            if place in names:
                raise DataError(
                    f"{self._path}: column {names[place]!r} has formulas, whose values can depend "
                    "on other rows: save the sheet with values only (copy, paste as values)"
                )

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            raise DataError(f"{self._path}: has {problem}: save it again, or export it as CSV")


def _read_manifest(path: Path, most_bytes: int) -> Any:
    """Return a reader of a workbook; raise ResourceExceeded if its shared texts are too large.

    A text takes up to 12 times the memory of its part while it is parsed.
    """
    from openpyxl.reader.excel import SHARED_STRINGS, ExcelReader

    reader = ExcelReader(path, read_only=True, keep_links=False)
    reader.archive.close()
    reader.archive = _Parts(path)
    reader.read_manifest()
    texts = reader.package.find(SHARED_STRINGS)
    if texts is not None and 12 * reader.archive.getinfo(texts.PartName[1:]).file_size > most_bytes:
        reader.archive.close()
        raise ResourceExceeded(
            f"{path}: its texts need more memory than the {max(most_bytes, 0) >> 20:,} MB there "
            "are for them: raise --max-memory, or export it as CSV or Parquet"
        )
    return reader


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
                f"{path}: a row has cells beyond the names in the first row: name all columns, and "
                "remove titles above the names"
            )
        yield [*map(cells.get, range(width))]


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
    read. No column takes times of day and durations.

    Raises:
        DataError: If it is no workbook, or lacks the sheet or names. Also raised while reading.
        ResourceExceeded: If its texts do not fit the machine.
    """
    openpyxl()
    with warnings.catch_warnings(action="ignore"):
        book = Workbook(path, memory_bytes(None) - PROCESS_BYTES)
    with closing(book):
        titles = [title for title, (_, shown) in book.sheets.items() if shown or name is not None]
        title = choose_table(path, titles, name, "sheet")
        with warnings.catch_warnings(action="ignore"):
            names = _check_header(path, *next(book.rows(title), (1, {})))

        def read(requested: Sequence[str]) -> Iterator[Chunk]:
            values_only = {names.index(name): name for name in requested}
            cells = islice(book.rows(title, values_only), 1, None)
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
    openpyxl()
    with suppress(*DAMAGE):  # what opens it explains them
        _read_manifest(path, most_bytes).archive.close()


EXCEL = Reader(open_workbook, _explain_workbook, _check_held)
