"""CSV files in blocks of whole rows, on threads that Python knows."""

from __future__ import annotations

import csv
import gzip
import random
import shlex
import threading
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from adaptive_qs import Synthesizer, answer, plan
from adaptive_qs.errors import DataError, InputError, SchemaError
from adaptive_qs.table import formats
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.formats import CheckedText, end_of_rows, one_ahead, row_blocks
from adaptive_qs.table.propose import propose
from adaptive_qs.table.read import open_file
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import write_table

from .helpers import left_out, schema_of


def cells(path, block, monkeypatch):
    monkeypatch.setattr(formats, "BLOCK_BYTES", block)
    with open_file(path) as source:
        chunks = list(source.read(source.names))
    assert [chunk.done for chunk in chunks] == sorted(chunk.done for chunk in chunks)
    return [[cell for c in chunks for cell in c.columns[i].to_pylist()] for i in range(2)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("seed", range(10))
def test_the_size_of_a_block_changes_no_cell(end, seed, tmp_path, monkeypatch):
    draw = random.Random(seed)
    texts = ["a", "", "\ufeffb", '5" pipe', 'x"y"', '"q,r"', f'"s{end}t"', '"u""v"', '"w"x', '""']
    lines = ["", *(f"{draw.choice(texts)},{draw.choice(texts)}" for _ in range(300))]
    lines += ["z,z"] if sum(line.count('"') for line in lines) % 2 == 0 else ['5" z,z']
    path = tmp_path / "t.csv"
    path.write_bytes((end.join(["a,b", *lines]) + end).encode())
    whole = cells(path, 1 << 20, monkeypatch)
    assert len(whole[0]) == 301
    assert {cells(path, size, monkeypatch) == whole for size in (60, 61, 200, 1_000)} == {True}


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"1,2\n3", 4), (b"1,2\r3", 4), (b"1,2\r\n3", 5), (b"1,2\r", 0), (b"12", 0), (b"", 0),
        (b'"1\n', 0), (b'"1\n",2\n3', 7), (b'1"\n2"\n3', 6), (b'"1"2"\n3', 6), (b'"1""\n', 0),
        (b'1,"\r\n"\r', 0), (b'"1"\r\n2', 5),
    ],
)  # fmt: skip
def test_rows_end_outside_quoted_cells(text, end):
    assert end_of_rows(text) == end


def test_a_row_may_be_longer_than_what_is_read_at_once():
    text = iter([b"aaaa", b"aaa\n", b"bb\nc", b"\n", b""])
    assert list(row_blocks(lambda _: next(text), 4)) == [b"aaaaaaa\n", b"bb\n", b"c\n"]


@pytest.mark.parametrize("last", ["1", '"1', "1,2"])
def test_no_thread_of_arrow_sees_anything_of_python(last, tmp_path, monkeypatch):
    """One that does aborts the process if the interpreter shuts down meanwhile."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 5_000 + last)
    strangers, buffers = [], []
    read, parse = CheckedText.read, pacsv.read_csv

    def spied_read(self, size):
        strangers.append(isinstance(threading.current_thread(), threading._DummyThread))
        return read(self, size)

    def spied_parse(source, **options):
        buffers.append(source.read_buffer().parent)
        source.seek(0)
        return parse(source, **options)

    monkeypatch.setattr(CheckedText, "read", spied_read)
    monkeypatch.setattr(formats.pacsv, "read_csv", spied_parse)
    try:
        cells(path, 5_000, monkeypatch)
    except DataError:
        assert last != "1,2"
    assert len(strangers) > 1
    assert not any(strangers)
    assert buffers
    assert all(buffer.is_mutable for buffer in buffers)  # Python's bytes are not


@pytest.mark.parametrize("stop", ["error", "close", "end"])
def test_the_thread_that_reads_ahead_ends_with_its_reader(stop):
    def items():
        yield from "ab"
        if stop == "error":
            raise ValueError("damaged")

    before = threading.active_count()
    ahead = one_ahead(items())
    assert next(ahead) == "a"
    assert threading.active_count() == before + 1
    if stop == "close":
        ahead.close()
    elif stop == "end":
        assert list(ahead) == ["b"]
    else:
        assert next(ahead) == "b"
        with pytest.raises(ValueError, match="damaged"):
            next(ahead)
    assert threading.active_count() == before


# Bad tables: one line that names the file, the column and the mend, and never a cell.

CANARY = "c4n4ry"
COLUMNS = {
    "cat": {"type": "categorical", "values": ["a", "b"]},
    "code": {"type": "categorical", "values": [1, 2]},
    "flag": {"type": "boolean"},
    "int": {"type": "integer", "min": 0, "max": 9},
    "num": {"type": "numeric", "edges": [0, 1, 2]},
    "day": {"type": "date", "min": "2020-01-01", "max": "2020-12-31"},
    "time": {"type": "datetime", "min": "2020-01-01T00:00:00", "max": "2020-12-31T00:00:00"},
    "fmt": {"type": "date", "min": "2020-01-01", "max": "2020-12-31", "format": "%d/%m/%Y"},
}
GOOD = {
    "cat": "a", "code": "1", "flag": "true", "int": "3", "num": "0.5", "day": "2020-02-03",
    "time": "2020-02-03T04:05:06", "fmt": "03/02/2020",
}  # fmt: skip
SCHEMA = schema_of(COLUMNS)
AB = schema_of({"a": COLUMNS["int"], "b": COLUMNS["cat"]})


def refusal(action, *hints):
    """The message of the DataError, after looking for the canary in everything it leads to."""
    with pytest.raises(DataError) as caught:
        action()
    error = caught.value
    assert error.exit_code == 2
    message = str(error)
    assert "\n" not in message
    for hint in hints:
        assert hint in message
    while error is not None:
        assert CANARY not in repr(error)
        assert CANARY not in str(error)
        error = error.__cause__ or error.__context__
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return message


@pytest.mark.parametrize("name", list(GOOD))
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "parquet"])
@pytest.mark.parametrize("cell", [CANARY, None], ids="ab")
def test_bad_cell_in_frames(tmp_path, name, library, cell):
    table = pa.table({n: [good, cell if n == name else good] for n, good in GOOD.items()})
    if library == "parquet":
        path = tmp_path / "t.parquet"
        pq.write_table(table, path)
        refusal(lambda: read_table(path, SCHEMA), str(path), repr(name))
        return
    frame = {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table)}.get(library)
    refusal(lambda: read_table(frame() if frame else table, SCHEMA), repr(name))


def test_mixed_objects_in_pandas():
    frame = pd.DataFrame({"a": [1, CANARY, {"x": 2}, None, b"q"], "b": ["a"] * 5}, dtype=object)
    refusal(lambda: read_table(frame, AB), "'a'")
    frame["a"] = pd.Series([1, "2", 3.0, "4.0", np.int8(5)], dtype=object)
    assert read_table(frame, AB).columns[0].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"a,b", "no rows"),
        (b"\n\n", "has 0 of the 2 columns"),
        (b"a\xff,b\n1,a\n", "not UTF-8"),
        (b"a\n1\n", "'b' of the schema is missing"),
        (b"a;b\n1;a\n", """separated by ';'. Set "delimiter": ";" in the schema"""),
        (b"a\tb\n1\ta\n", 'separated by tabs. Set "delimiter"'),
        (b"a|b\n1|a\n", """separated by '|'. Set "delimiter": "|" in the schema"""),
        (b"\xd0\xcf\x11\xe0\xa1\xb1c4n4ry", "is an Excel file"),
        (b"\x1f\x8b\x08\x00garbage", "gzip"),
        (b"PAR1garbage", "Parquet"),
        (b"PK\x03\x04c4n4ry", "zip archive: unpack it"),
        (b"c4n4ry,c4n4ry\n1,a\n", "header line"),
        (b'a,b\n1,a\n2,"' + b"c4n4ry" * 10**6 + b'"\n', ""),  # longer than a block
    ],
    ids=range(13),
)
def test_damaged_file(tmp_path, content, hint):
    path = tmp_path / ("t.zip" if "zip" in hint else "t.csv")
    path.write_bytes(content)
    refusal(lambda: read_table(path, AB), str(path), hint)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        *((content, "") for content in (b"", b"a,b\n", b"a,b\n1\n", b"a,a\n1,2\n")),
        (b"c4n4ry,Bob,c4n4ry\n40,Eve,41\n", "columns 1 and 3 have the same name"),
    ],
    ids=range(5),
)
def test_proposing_from_a_damaged_file(tmp_path, content, hint):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    refusal(lambda: propose(path), str(path), hint)


@pytest.mark.parametrize("name", ["r.zip", "my r"])
def test_a_release_bundle_in_the_place_of_a_table(tmp_path, name):
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        for member in ("manifest.json", "residuals.npy"):
            archive.writestr(member, CANARY)
    hint = f"sample {shlex.quote(str(path))} --out table.csv"
    refusal(lambda: read_table(path, AB), str(path), "is a release bundle", hint)


def test_missing_file_and_folder(tmp_path):
    refusal(lambda: read_table(tmp_path / "none.csv", AB), "none.csv", "check the path")
    refusal(lambda: read_table(tmp_path, AB), "folder")


def test_a_flipped_bit_of_parquet_with_checksums_is_seen(tmp_path):
    path = tmp_path / "t.parquet"
    codes = pa.table({"a": pa.array([1] * 99, pa.int8()), "b": ["a"] * 99})
    pq.write_table(codes, path, write_page_checksum=True, compression="none", use_dictionary=False)
    whole = bytearray(path.read_bytes())
    whole[pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset + 99] ^= 2
    path.write_bytes(whole)
    refusal(lambda: read_table(path, AB), str(path), "Parquet")


def test_parquet_without_rows_or_of_nested_type(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), path)
    refusal(lambda: read_table(path, AB), "no rows")
    pq.write_table(pa.table({"a": [[1]], "b": ["a"]}), path)
    refusal(lambda: read_table(path, AB), "'a'")


@pytest.mark.parametrize("table", [{"a": [1]}, [1], None, pl.LazyFrame({"a": [1], "b": ["a"]})])
def test_no_table(table):
    refusal(lambda: read_table(table, AB), "convert it")


def test_empty_frames_and_wrong_columns():
    refusal(lambda: read_table(pd.DataFrame({"a": [], "b": []}), AB), "no rows")
    refusal(lambda: read_table(pa.table({"a": [1]}), AB), "'b'")
    twice = pd.DataFrame([[1, "a", 2]], columns=["a", "b", "a"])
    refusal(lambda: read_table(twice, AB))


@pytest.mark.parametrize("cell", [2**52, -(2**52)])
def test_a_proposal_leaves_years_that_no_schema_can_name_as_text(tmp_path, cell):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array([cell, 0], pa.timestamp("ms"))}), path)
    schema = propose(path)
    assert schema.columns[0].type == "categorical"
    assert read_table(path, schema).num_rows == 2


@pytest.mark.parametrize("cells", [[1.7e308, -1.7e308, 1.0, 2.5], [1.7976931348623157e308]])
def test_a_proposal_leaves_out_numbers_too_large_to_bin(tmp_path, cells):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": cells, "b": ["a", "b", "b", "b"][: len(cells)]}), path)
    assert "too large to bin" in left_out(propose(path))["a"]
    pq.write_table(pa.table({"a": [f"{CANARY}\0", "x"]}), path)
    refusal(lambda: propose(path), str(path))


def test_a_format_that_names_a_directive_twice():
    with pytest.raises(SchemaError, match="does not bring back"):
        schema_of({"a": {**COLUMNS["fmt"], "format": "%d/%d"}})


SEPARATED = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a, b", "type": "categorical", "values": ["x;y", "x,y", 'x"y', "x\ty", "x|y"]},
            {"name": "n", "type": "numeric", "edges": [0, 5, 10], "decimals": 1, "decimal": ","},
            {"name": "m", "type": "integer", "min": 0, "max": 4},
        ],
    }
)
CODES = [np.arange(5), np.array([0, 1, 0, 1, 0]), np.arange(5)]


@pytest.mark.parametrize("delimiter", [None, ",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".tsv.gz"])
def test_what_separates_cells_is_declared_or_told_by_the_ending(tmp_path, delimiter, ending):
    """Against the reader of the standard library; and ``schema init`` finds it again."""
    schema = SEPARATED.model_copy(update={"delimiter": delimiter})
    path = tmp_path / f"t{ending}"
    codes = CodedTable.from_codes(schema.domain(), CODES)
    write_table(decode(codes, schema, np.random.default_rng(0)), path, schema)
    used = "\t" if "tsv" in ending else delimiter or ","
    text = gzip.decompress(path.read_bytes()) if ending.endswith("gz") else path.read_bytes()
    rows = list(csv.reader(text.decode().splitlines(), delimiter=used))
    assert rows[0] == ["a, b", "n", "m"]
    assert [row[0] for row in rows[1:]] == list(schema.columns[0].values)
    for read, column in zip(read_table(path, schema).columns, CODES, strict=True):
        np.testing.assert_array_equal(read, column)
    proposed = propose(path)
    assert set(proposed.names) | set(proposed.ignore) == {"a, b", "n", "m"}
    assert proposed.delimiter == (None if used == "," or "tsv" in ending else used)


def test_files_of_one_table_have_one_separator(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("a;b\n1;a\n")
    assert read_table(tmp_path, AB.model_copy(update={"delimiter": ";"})).num_rows == 2
    refusal(lambda: read_table(tmp_path, AB), str(tmp_path), "cells are separated by ';'")


def test_a_quoted_cell_with_separators_is_none(tmp_path):
    (tmp_path / "t.csv").write_text('a,"x;y;z"\n1,2\n')
    proposed = propose(tmp_path / "t.csv")
    assert proposed.delimiter is None
    assert {*proposed.names, *proposed.ignore} == {"a", "x;y;z"}


def test_a_file_and_its_compressed_form_in_one_folder_are_refused(tmp_path):
    rows = b"a,b\n" + b"1,a\n" * 30
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(rows)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows))
    refusal(lambda: read_table(tmp_path, AB), "has a.csv and a.csv.gz: remove one")
    (tmp_path / "a.csv").unlink()
    assert read_table(tmp_path, AB).num_rows == 60


# The content of a table in the place of a path or another parameter is not quoted.

CELLS = f"a,b\n1,a\n2,{CANARY} Mr Miller\n"


@pytest.mark.parametrize("text", [CELLS, CELLS * 9_000, CANARY * 60, "d/" * 3_000 + CANARY])
def test_a_table_in_the_place_of_a_path_is_not_quoted(text):
    calls = (
        lambda: answer(text, AB, workload=1, epsilon=1),
        lambda: Synthesizer(epsilon=1).fit(text, schema=AB),
        lambda: Synthesizer(epsilon=1).fit("t.csv", schema=text),
        lambda: answer("t.csv", AB, workload=text, epsilon=1),
        lambda: plan(AB, workload=text, epsilon=1),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"is a text of .* characters, not a path") as caught:
            call()
        assert CANARY not in str(caught.value)


@pytest.mark.parametrize("name", ["epsilon", "max_memory", "engine", "ledger", "temp_folder"])
def test_nor_is_it_in_the_place_of_another_parameter(name):
    with pytest.raises(InputError) as caught:
        Synthesizer(**{"epsilon": 1, name: CELLS}).fit("t.csv", schema=AB)
    assert CANARY not in str(caught.value)
