"""Tables as files that appear whole or not at all, and as data frames of the caller's kind."""

import codecs
import gzip
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.errors import InputError
from adaptive_qs.table import files
from adaptive_qs.table.cells import to_arrow
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.generated import GeneratedColumn
from adaptive_qs.table.schema import Schema, discovered_values
from adaptive_qs.table.text import COMMA, Formulas, escaped, escapes

_ROWS = 1 << 16

AsText = Callable[[pa.Array], pa.Array]
"""A function that returns the values of a column as texts."""
Sealed = Callable[[str], None] | None
"""A function that is called with the SHA-256 of a whole file before it has its name."""


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, with texts instead of indices into a dictionary."""
    return pa.schema(
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    )


class OutputFormat(ABC):
    """A format of files with one table, which is written whole or batch by batch."""

    is_text: ClassVar[bool]
    """Whether cells are bare text: formulas are escaped, and missing values have markers."""
    holds_sets: ClassVar[bool] = False
    """Whether a file holds several tables, by name (``write_set``)."""
    most_columns: ClassVar[int] = 2**31
    """Most columns of such a file."""

    @staticmethod
    def fold(name: str) -> str:
        """Return the form of a column name that such files compare."""
        return name

    def declared(self, schema: Schema) -> Self:
        """Return the format as a schema declares it."""
        return self

    @abstractmethod
    def write(self, tables: Iterable[pa.Table], texts: Sequence[AsText], file: BinaryIO) -> None:
        """Write the rows of tables with the same columns, or the texts of their cells."""

    @abstractmethod
    def batch_writer(
        self, schema: pa.Schema, dictionaries: Sequence[str], file: BinaryIO
    ) -> AbstractContextManager[Callable[[pa.RecordBatch], None]]:
        """Yield a function that writes batches of the schema, until the block ends.

        Columns in ``dictionaries`` repeat few values. Text keeps no metadata.
        """


@dataclass(frozen=True)
class Csv(OutputFormat):
    """UTF-8 text, compressed by gzip or not; the schema can name the delimiter."""

    compressed: bool = False
    delimiter: str | None = None
    encoding: str | None = None
    is_text = True

    def declared(self, schema: Schema) -> Self:
        """Return the format with the schema's delimiter, unless the ending decides it."""
        return replace(self, delimiter=self.delimiter or schema.delimiter, encoding=schema.encoding)

    def write(self, tables: Iterable[pa.Table], texts: Sequence[AsText], file: BinaryIO) -> None:
        """Write a header and one line for each row, with quotation marks if they are needed."""
        alone, header, sign = len(texts) == 1, True, self.delimiter or COMMA
        with self._opened(file) as target:
            for table in tables:
                if header:
                    names = [_quoted(to_arrow([n]), alone, sign) for n in table.column_names]
                    target.write(_lines(names, sign))
                    header = False
                for batch in table.to_batches(max_chunksize=_ROWS):
                    written = (partial(_quoted_text, as_text, alone, sign) for as_text in texts)
                    cells = [_each_once(text, v) for text, v in zip(written, batch.columns)]
                    target.write(_lines(cells, sign))

    @contextmanager
    def batch_writer(
        self, schema: pa.Schema, dictionaries: Sequence[str], file: BinaryIO
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that writes batches with every text in quotation marks."""
        plain = without_dictionaries(schema)
        options = pacsv.WriteOptions(delimiter=self.delimiter or COMMA)
        with (
            self._opened(file) as target,
            pacsv.CSVWriter(target, plain, write_options=options) as writer,
        ):
            yield lambda batch: writer.write_batch(batch.cast(plain))

    @contextmanager
    def _opened(self, file: BinaryIO) -> Iterator[Any]:
        packed: AbstractContextManager[Any] = nullcontext(file)
        if self.compressed:
            packed = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        with packed as target:
            yield (
                target
                if self.encoding is None
                else codecs.EncodedFile(target, "utf-8", self.encoding, "replace")
            )


class Parquet(OutputFormat):
    """Apache Parquet: values of the declared types, null if missing."""

    is_text = False

    def write(self, tables: Iterable[pa.Table], texts: Sequence[AsText], file: BinaryIO) -> None:
        """Write every text unchanged."""
        with ExitStack() as stack:
            writer = None
            for table in tables:
                writer = writer or stack.enter_context(pq.ParquetWriter(file, table.schema))
                writer.write_table(table)

    @contextmanager
    def batch_writer(
        self, schema: pa.Schema, dictionaries: Sequence[str], file: BinaryIO
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that writes each batch as a row group."""
        with pq.ParquetWriter(
            file, schema, use_dictionary=list(dictionaries), write_statistics=False
        ) as writer:
            yield writer.write_batch


CSV, CSV_BY_GZIP, PARQUET = Csv(), Csv(compressed=True), Parquet()
TSV, TSV_BY_GZIP = Csv(delimiter="\t"), Csv(compressed=True, delimiter="\t")


def table_format(path: str | Path) -> OutputFormat:
    """Return the format of a file name by its ending; raise InputError if there is none."""
    name = Path(path).name.lower()
    for suffix in files.FORMATS:
        if name.endswith(suffix):
            return files.FORMATS[suffix]
    if os.path.isdir(path):  # never raises, unlike Path.is_dir
        raise files.is_folder(path)
    raise InputError(f"{path}: unknown table format: end the name in {', '.join(files.FORMATS)}")


def check_table_path(path: str | Path) -> None:
    """Raise InputError, before any work is done, unless `write_table` can write `path`."""
    table_format(path)
    files.check_writable(path)


def check_format(path: str | Path, names: Sequence[str]) -> None:
    """Raise InputError, before any work is done, if such a file cannot hold these columns."""
    kind, other = table_format(path), "write CSV or Parquet"
    if len(names) > kind.most_columns:
        raise InputError(f"{path}: holds {kind.most_columns:,} columns at most: {other}")
    first: dict[str, str] = {}
    for name in names:
        if first.setdefault(kind.fold(name), name) != name:
            raise InputError(
                f"{path}: cannot hold both {first[kind.fold(name)]!r} and {name!r}, since it "
                f"ignores case: rename one, or {other}"
            )


def write_table(
    table: pa.Table | Iterable[pa.Table],
    path: str | Path,
    schema: Schema,
    formulas: Formulas = "escape-learnt",
    sealed: Sealed = None,
    replace_file: bool = True,
) -> None:
    """Write a decoded table, or its pages as they come, in the format of the path's suffix.

    In CSV a missing value is the first missing marker of its column, moments are written in the
    column's format, and texts that a spreadsheet program would run are escaped as requested. In
    Parquet a missing value is null and every text is unchanged. The same table gives the same
    bytes.

    Raises:
        InputError: If the suffix is unknown or the file cannot be written.
        SchemaError: If the table has a column that the schema lacks.
    """
    check_format(path, [*schema.written])
    kind = table_format(path)
    pages = iter([table] if isinstance(table, pa.Table) else table)
    with _sealing(path, sealed, replace_file) as file:
        first = next(pages)
        texts = _columns_as_text(schema, first.column_names, formulas)
        rest: Iterable[pa.Table] = chain([first], pages)
        if kind.is_text:  # other formats keep the metadata of tables, which renaming would lose
            names = escaped_names(first.column_names, formulas)
            rest = (page.rename_columns(names) for page in rest)
        kind.declared(schema).write(rest, texts, file)


def write_set(
    tables: Iterable[tuple[str, Iterable[pa.Table], Schema]],
    path: str | Path,
    sealed: Sealed = None,
    replace_file: bool = True,
) -> None:
    """Write the pages of several tables, by name, to one file that holds them.

    Arguments and errors are as for :func:`write_table`. The pages of a table have the columns of
    its schema, in that order.
    """
    kind = table_format(path)
    named = (
        (name, pages, _columns_as_text(schema, [*schema.written], "keep"))
        for name, pages, schema in tables
    )
    with _sealing(path, sealed, replace_file) as file:
        kind.write_set(named, file)  # type: ignore[attr-defined]


def _columns_as_text(schema: Schema, names: Sequence[str], formulas: Formulas) -> list[AsText]:
    columns = [schema.written[name] for name in names]
    return [
        partial(_escaped_keys, c)
        if isinstance(c, GeneratedColumn) and c.escapes_keys(formulas, bool(schema.open or c.open))
        else partial(_texts, c, find_escapes(c, schema, formulas))
        for c in columns
    ]


def escaped_names(names: Sequence[str], formulas: Formulas) -> list[str]:
    """Return the names of columns as CSV has them."""
    written = escapes(names) if formulas == "escape" else {}
    return [written.get(name, name) for name in names]


def find_escapes(
    column: ColumnBase | GeneratedColumn, schema: Schema, formulas: Formulas
) -> Mapping[str, str]:
    """Return the texts of a column that CSV escapes, and their escaped forms."""
    if formulas == "keep" or not column.escapes:
        return {}
    if formulas == "escape":
        return column.escapes
    found = discovered_values(schema, column)
    return {text: written for text, written in column.escapes.items() if text in found}


def _lines(columns: list[pa.Array], delimiter: str) -> bytes:
    """Return rows of cells, joined by delimiters and closed by line feeds, as UTF-8."""
    rows = pc.binary_join_element_wise(*columns, *to_arrow([delimiter]))
    whole = pa.ListArray.from_arrays(to_arrow(np.array([0, len(rows)], np.int32)), rows)
    return (pc.binary_join(whole, *to_arrow(["\n"]))[0].as_py() + "\n").encode()


def _texts(
    column: ColumnBase | GeneratedColumn, replaced: Mapping[str, str], values: pa.Array
) -> pa.Array:
    """Return the values of a column as CSV has them, with markers and escapes."""
    texts = column.csv_texts(values)
    texts = texts.fill_null(*to_arrow(column.missing[:1])) if column.missing else texts
    if not replaced:
        return texts
    place = pc.index_in(texts, value_set=pa.array([*replaced], pa.string()))
    return pc.coalesce(pa.array([*replaced.values()], pa.string()).take(place), texts)


def _escaped_keys(column: GeneratedColumn, values: pa.Array) -> pa.Array:
    """Return keys as CSV has them; text around their digits can be what a program would run."""
    return pa.array(map(escaped, column.csv_texts(values).to_pylist()), pa.string())


def _each_once(written: AsText, values: pa.Array) -> pa.Array:
    """Return the texts of cells, of which each distinct one is written once."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    encoded = values.dictionary_encode("encode")
    return written(encoded.dictionary).take(encoded.indices)


def _quoted_text(as_text: AsText, alone: bool, delimiter: str, values: pa.Array) -> pa.Array:
    return _quoted(as_text(values), alone, delimiter)


def _quoted(texts: pa.Array, alone: bool, delimiter: str) -> pa.Array:
    """Return cells with the quotation marks that CSV needs.

    An empty line would be no row, and a byte order mark at the start of the first name would be
    read as that of the file.
    """
    quote, empty = to_arrow(['"', ""])
    special = pc.match_substring_regex(texts, f'["{delimiter}\r\n]|^\ufeff')
    if alone:
        special = pc.or_(special, pc.equal(texts, empty))
    escaped = pc.replace_substring(texts, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise(quote, escaped, quote, empty), texts)


def write_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    path: str | Path,
    dictionaries: tuple[str, ...] = (),
    sealed: Sealed = None,
    replace_file: bool = True,
) -> int:
    """Write batches as they come, and return the number of rows.

    The file appears after the last one. Columns in ``dictionaries`` repeat few values, for Parquet
    to encode. Raises InputError if the suffix is unknown or the file cannot be written.
    """
    kind, rows = table_format(path), 0
    sealing = _sealing(path, sealed, replace_file)
    with sealing as file, kind.batch_writer(schema, dictionaries, file) as write:
        for batch in batches:
            write(batch)
            rows += batch.num_rows
    return rows


@contextmanager
def _sealing(path: str | Path, sealed: Sealed, replace_file: bool) -> Iterator[BinaryIO]:
    with files.atomic_writer(path, replace_file) as file:
        yield file
        if sealed is not None:
            sealed(files.sealed_digest(file))


# Sampled tables as data frames. Which types a frame has can depend on its rows: one row without a
# value turns a column of int64 of pandas into float64. So only the library is that of the private
# frame; all types follow from the schema.

Library = Literal["pandas", "polars", "pyarrow", "codes"]
"""The data frame library of a table."""


def find_library(table: Any) -> Library:
    """Return the library of a given table; files and everything unknown count as pandas."""
    if isinstance(table, CodedTable):
        return "codes"
    import narwhals as nw  # files need none

    native = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(native, nw.DataFrame):
        return "pandas"
    if native.implementation.is_pyarrow():
        return "pyarrow"
    return "polars" if native.implementation.is_polars() else "pandas"


def to_frame(table: pa.Table, library: Library, schema: Schema) -> Any:
    """Return the decoded table as a data frame of that library.

    Columns of pandas with missing values are Int64 and boolean, so that integers stay integers,
    unless the schema writes them as floats. A stamp that says that a table is not private is copied
    to ``attrs``.
    """
    for place, name in enumerate(table.column_names):
        if getattr(schema.written[name], "is_float", False):
            table = table.set_column(place, name, table[name].cast(pa.float64(), safe=False))
    if library == "pyarrow":
        return table
    if library == "polars":
        import narwhals as nw

        return nw.from_arrow(table, backend="polars").to_native()
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # slow to import

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns):
        if column.null_count and column.type in nullable:
            frame[name] = column.to_pandas(types_mapper=nullable.get)
    stamp = (table.schema.metadata or {}).get(files.STAMP_KEY, b"").decode()
    if stamp not in ("", files.PRIVATE):
        frame.attrs[files.STAMP_KEY.decode()] = stamp
    return frame
