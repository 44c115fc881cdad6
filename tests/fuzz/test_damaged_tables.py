"""Damaged tables: the documented result, or one line that names the column and the mend.

Every case goes through every command that reads a table, as CSV and gzipped, or as Parquet.
"""

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .conftest import VERBS
from .tables import CANARY, COLUMNS, GOOD, HEADER, ROW

FITS = None
"""Stands for the documented result that the table is read."""


def csv(*lines, end="\n"):
    return end.join([HEADER, *lines, ""]).encode()


def row(**cells):
    return ",".join({**{name: good[0] for name, good in GOOD.items()}, **cells}.values())


COLUMN_PROBLEMS = {
    "text for an integer": (csv(ROW, row(int=CANARY)), "column 'int' has a cell that cannot"),
    "1e400 for an integer": (csv(row(int="1e400")), "column 'int' has a cell that cannot"),
    "forty digits": (csv(row(int="9" * 40)), "column 'int' has a cell that cannot"),
    "integer out of domain": (csv(row(int="10")), "column 'int' has a value outside"),
    "1e400 for a number": (csv(row(num="1e400")), "column 'num' has a cell that cannot"),
    "NaN": (csv(row(num="NaN")), "column 'num' has a cell that cannot"),
    "inf": (csv(row(num="-inf")), "column 'num' has a cell that cannot"),
    "clipped": (csv(row(num="1e300")), FITS),
    "unknown category": (csv(row(cat=CANARY)), "column 'cat' has a value that is not declared"),
    "huge cell": (csv(row(cat="x" * 3_000_000)), "column 'cat' has a value that is not declared"),
    "enormous cell": (csv(row(cat="x" * 9_000_000)), "a row is longer than 4 MiB"),
    "no such code": (csv(row(code="3")), "column 'code' has a value that is not declared"),
    "no truth": (csv(row(flag="maybe")), "column 'flag' has a cell that cannot be read as boolean"),
    "no such day": (csv(row(day="2020-02-31")), "column 'day' has a cell that cannot be read"),
    "day out of range": (csv(row(day="9999-12-31")), "column 'day' has a value outside"),
    "year 0": (csv(row(day="0000-01-01")), "column 'day' has a cell that cannot be read as date"),
    "time before year 1": (csv(row(time="0001-01-01T00:00:00+14:00")), "column 'time' has a cell"),
    "time out of range": (csv(row(time="2020-01-02T00:00:01")), "column 'time' has a value out"),
    "other format": (csv(row(fmt="2020-03-02")), "column 'fmt' has a cell that cannot be read"),
    "empty cell": (csv(row(int="")), "column 'int' has empty cells: add \"\" to its missing"),
    "declared as missing": (csv(row(code="")), FITS),
}
STRUCTURE = {
    "empty file": (b"", "is empty. Use a CSV file"),
    "header only": (csv(), "no rows. It needs at least one"),
    "one row": (csv(ROW), FITS),
    "no end of the last line": (csv(ROW)[:-1], FITS),
    "truncated row": (csv(ROW, ROW)[:-20], "does not have the 8 cells of the header"),
    "truncated quotes": (csv(ROW, f'"{CANARY},a') + b"x", "quotation mark that is never closed"),
    "unbalanced quotes": (csv(ROW, row(cat='"a')), "quotation mark that is never closed"),
    "short row": (csv(ROW, f"{CANARY},1"), "does not have the 8 cells of the header"),
    "long row": (csv(ROW, f"{ROW},{CANARY}"), "does not have the 8 cells of the header"),
    "duplicate columns": (f"{HEADER},int\n{ROW},1\n".encode(), "column 'int' occurs twice"),
    "missing column": (b"cat,code\na,1\n", "has 2 of the 8 columns of the schema. Check"),
    "more columns": (f"{HEADER},x\n{ROW},1\n".encode(), "column 'x' is not in the schema"),
    "no header": (f"{ROW}\n{ROW}\n".encode(), "has 0 of the 8 columns of the schema"),
    "latin-1": (csv(row(cat="é")).decode().encode("latin-1"), "is not UTF-8 text: save it as"),
    "UTF-16": (csv(ROW).decode().encode("utf-16"), "is not UTF-8 text: save it as UTF-8"),
    "UTF-16 without mark": (csv(ROW).decode().encode("utf-16-le"), "has NUL bytes: save it as"),
    "byte order mark": (b"\xef\xbb\xbf" + csv(ROW), FITS),
    "NUL": (csv(ROW, row(cat="a\0")), "has NUL bytes: save it as plain UTF-8 CSV"),
    "CRLF": (csv(ROW, ROW, end="\r\n"), FITS),
    "CR": (csv(ROW, ROW, end="\r"), FITS),
    "blank lines": (csv(ROW, "", "", ROW), FITS),
    "semicolons": (csv(ROW).replace(b",", b";"), "cells are separated by ';'. Set"),
    "tabs": (csv(ROW).replace(b",", b"\t"), "cells are separated by tabs. Set"),
    "Excel": (b"PK\x03\x04" + csv(ROW), "is an Excel file that cannot be read: save it"),
}


def expect(outcome, hint, table, before):
    """The hint in one line with exit code 2 and nothing written, or success."""
    if hint is FITS:
        assert outcome.code == 0, outcome
        return
    assert outcome.code == 2, outcome
    *advice, line = outcome.err.splitlines()
    assert line.startswith((f"error: {table}: ", f"error: {table} ")), outcome.err
    assert all(other.startswith("warning: column") for other in advice)
    assert hint in line, line
    assert CANARY not in outcome.err
    assert sorted(Path.cwd().iterdir()) == before


def through_every_command(run, table, content, hint, verbs=VERBS):
    """Only a table of unusual shape is worth the seconds of a whole `synthesize`."""
    Path("good.csv").write_bytes(csv(ROW))
    Path(table).write_bytes(content)
    before = sorted(Path.cwd().iterdir())
    for verb in [v for v in verbs if v != "synthesize" or hint is not FITS]:
        expect(run(verb, table, *(["--force"] if verb == "answer" else [])), hint, table, before)
    proposed = run("schema init", table)
    assert proposed.code in (0, 2), proposed
    if proposed.code:
        assert proposed.err.startswith((f"error: {table}: ", f"error: {table} "))
        assert proposed.err.count("\n") == 1


@pytest.mark.parametrize("case", [*COLUMN_PROBLEMS, *STRUCTURE])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.one_in(7)
def test_csv(case, packed, run):
    content, hint = {**COLUMN_PROBLEMS, **STRUCTURE}[case]
    if packed and case == "Excel":
        hint = "is missing from the data"
    if packed:
        through_every_command(run, "t.csv", gzip.compress(content), hint, ["check", "synthetic"])
    else:
        through_every_command(run, "t.csv", content, hint)


PACKED = gzip.compress(csv(*[ROW] * 99), mtime=0)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (PACKED[:-9], "is a damaged or truncated gzip file: copy it again"),
        (PACKED[:12], "is a damaged or truncated gzip file"),
        (PACKED[:40] + bytes([PACKED[40] ^ 4]) + PACKED[41:], "is a damaged or truncated gzip"),
        (PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], "is a damaged or truncated gzip file"),
        (PACKED + b"more", "is a damaged or truncated gzip file"),
        (PACKED + PACKED[:20], "is a damaged or truncated gzip file"),
        (PACKED + gzip.compress(ROW.encode()), FITS),
    ],
    ids=["end", "start", "flip", "checksum", "junk", "second", "two members"],
)
def test_gzip(content, hint, run):
    through_every_command(run, "t.csv.gz", content, hint)


def frame(rows=1, **columns):
    return pa.table({name: columns.get(name, [GOOD[name][0]] * rows) for name in COLUMNS})


def parquet(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


WHOLE = parquet(frame(9))
TEXT = frame().append_column("x", pa.array([CANARY]))
PARQUET = {
    "whole": (WHOLE, FITS),
    "truncated": (WHOLE[:-5], "is not a readable Parquet file: copy or write it again"),
    "truncated footer": (WHOLE[: len(WHOLE) // 2], "is not a readable Parquet file"),
    "four bytes": (b"PAR1", "is not a readable Parquet file"),
    "flipped length": (WHOLE[:-5] + b"\xff" + WHOLE[-4:], "is not a readable Parquet file"),
    "no rows": (parquet(frame(0)), "no rows. It needs at least one"),
    "more columns": (parquet(TEXT), "column 'x' is not in the schema"),
    "null": (parquet(frame(int=pa.array([None], pa.int64()))), "column 'int' has empty cells"),
    "NaN": (parquet(frame(num=pa.array([float("nan")]))), "column 'num' has empty cells"),
    "inf": (parquet(frame(num=pa.array([float("inf")]))), "column 'num' has a cell that cannot"),
    "nested": (parquet(frame(cat=pa.array([[CANARY]]))), "column 'cat'"),
    "structure": (parquet(frame(cat=pa.array([{"x": CANARY}]))), "column 'cat'"),
    "bytes": (parquet(frame(cat=pa.array([b"c4"]))), "column 'cat' has the type binary: convert"),
    "NUL": (parquet(frame(cat=pa.array([f"{CANARY}\0"]))), "column 'cat' has a value that is not"),
    "number for a date": (parquet(frame(day=pa.array([83047561]))), "column 'day' has a cell"),
    "year 100000": (
        parquet(frame(day=pa.array([2**52], pa.timestamp("ms")))),
        "column 'day' has a value outside",
    ),
}


@pytest.mark.parametrize("case", PARQUET)
def test_parquet(case, run):
    through_every_command(run, "t.parquet", *PARQUET[case])


def test_empty_stretches_of_a_file_end_nothing(run):
    """A block of blank lines, and a row group without rows."""
    from adaptive_qs.table.encode import read_table

    from .tables import SCHEMA

    Path("t.csv").write_bytes(csv(ROW) + b"\n" * (9 << 20) + ROW.encode())
    assert read_table("t.csv", SCHEMA).num_rows == 2
    with pq.ParquetWriter("t.parquet", frame().schema) as writer:
        for rows in (1, 0, 2):
            writer.write_table(frame(2).slice(0, rows))
    assert read_table("t.parquet", SCHEMA).num_rows == 3
