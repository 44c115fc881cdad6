"""Tables inside Excel workbooks and databases: read cell by cell, written as they were declared."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import zipfile

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import write_table

from .helpers import digest_of

CANARY = "c4n4ry"
ENDINGS = (".xlsx", ".db", ".duckdb")
COLUMNS = [
    {"name": "age", "type": "integer", "min": 0, "max": 99, "missing": ["?"]},
    {"name": "pay", "type": "numeric", "edges": [0, 10, 500.5], "decimals": 2, "decimal": ","},
    {"name": "town", "type": "categorical", "values": ["Bonn", "007", "=1+1", "#N/A", "a b"],
     "missing": ["", "none"]},
    {"name": "born", "type": "date", "min": "1880-01-01", "max": "2020-12-31",
     "granularity": "10 years", "format": "%d.%m.%Y", "missing": ["?"]},
    {"name": "seen", "type": "datetime", "min": "2020-01-01T00:00:00",
     "max": "2020-02-01T00:00:00"},
    {"name": "fit", "type": "boolean"},
    {"name": "level", "type": "categorical", "values": [1, 5, 30]},
]  # fmt: skip
SCHEMA = Schema.parse({"version": 1, "columns": COLUMNS})


def coded(rows=150, seed=0):
    rng = np.random.default_rng(seed)
    return CodedTable.from_codes(
        SCHEMA.domain(), [rng.integers(0, size, rows) for size in SCHEMA.domain().sizes]
    )


def assert_same(table, other):
    for one, two in zip(table.columns, other.columns):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("ending", [".db", ".sqlite"])
def test_what_is_written_comes_back_to_the_same_codes(tmp_path, ending):
    """Twice with the same bytes."""
    table = coded()
    paths = [tmp_path / f"{k}{ending}" for k in range(2)]
    for path in paths:
        write_table(decode(table, SCHEMA, np.random.default_rng(1)), path, SCHEMA)
        assert_same(read_table(path, SCHEMA), table)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def in_each(tmp_path, header, rows):
    """The same rows as a workbook and as databases."""
    made = [tmp_path / f"in{ending}" for ending in ENDINGS]
    for path in made:
        path.unlink(missing_ok=True)
    book = openpyxl.Workbook()
    for row in (header, *rows):
        book.active.append(row)
    book.save(made[0])
    with sqlite3.connect(made[1]) as database:
        places = ", ".join("?" * len(header))
        database.execute(f"CREATE TABLE people ({', '.join(header)})")
        database.executemany(f"INSERT INTO people VALUES ({places})", rows)
    database.close()
    frame = pd.DataFrame(rows, columns=header)
    with duckdb.connect(str(made[2])) as database:
        database.sql("CREATE TABLE people AS SELECT * FROM frame")
    assert len(frame)
    return made


ONE = {"version": 1, "columns": [
    {"name": "x", "type": "integer", "min": 0, "max": 9, "missing": [""]},
    {"name": "y", "type": "categorical", "values": ["a", "b"]},
]}  # fmt: skip


def test_every_command_takes_them(tmp_path, capsys):
    rng = np.random.default_rng(2)
    rows = [[int(x), "ab"[x % 2]] for x in rng.integers(0, 10, 300)]
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(ONE))
    expected = [tuple(row) for row in rows]
    for path, ending in zip(in_each(tmp_path, ["x", "y"], rows), (".db", None, None)):
        assert propose(path).names == ("x", "y")
        table = read_table(f"{path}", Schema.parse(ONE))
        assert [*zip(table.columns[0], ["ab"[k] for k in table.columns[1]])] == expected
        if ending is None:
            continue
        out = tmp_path / f"out{ending}"
        words = ["--schema", str(schema), "--rho", "5", "--out", str(out), "--workers", "1"]
        assert main(["synthesize", str(path), *words, "--insecure-seed", "1"]) == 0
        assert main(["schema", "check", str(schema), str(out)]) == 0
        assert f"{out}: fits the schema" in capsys.readouterr().out
        assert main(["schema", "check", str(path)]) == 2
        assert "is a table, not a schema" in capsys.readouterr().err


MIXED = [[7, "a"], ["7", "a"], [7.0, "a"], [None, "b"], [" 3 ", "b"], [0, "a"]]


@pytest.mark.parametrize("ending", [".xlsx", ".db"])
def test_a_cell_is_read_by_itself(tmp_path, ending):
    """Whatever the types of the others; in any order, and on its own."""
    schema, codes = Schema.parse(ONE), [7, 7, 7, 10, 3, 0]

    def read(rows):
        path = next(p for p in in_each(tmp_path, ["x", "y"], rows) if p.suffix == ending)
        return read_table(path, schema).columns[0].tolist()

    same = [[str(x), y] for x, y in MIXED[:3]]
    for rows, expected in ((MIXED, codes), (MIXED[::-1], codes[::-1])):
        path = tmp_path / f"in{ending}"
        write_mixed(path, rows)
        assert read_table(path, schema).columns[0].tolist() == expected
    assert read(same) == [7, 7, 7]
    for row, code in zip(MIXED, codes):
        write_mixed(path, [row])
        assert read_table(path, schema).columns[0].tolist() == [code]


def test_no_value_is_an_unknown_one_in_every_container(tmp_path):
    """Of a column with a catch-all and no missing marker, blank cells of CSV as null elsewhere."""
    columns = [ONE["columns"][0], ONE["columns"][1] | {"catch_all": "else"}]
    schema = Schema.parse({"version": 1, "columns": columns})
    rows = [[1, "a"], [2, None], [3, "b"], [4, "c"]]
    frame = pd.DataFrame(rows, columns=["x", "y"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    made = in_each(tmp_path, ["x", "y"], rows)
    for table in (frame, tmp_path / "t.csv", tmp_path / "t.parquet", *made):
        assert read_table(table, schema).columns[1].tolist() == [0, 2, 1, 2]


def write_mixed(path, rows):
    path.unlink(missing_ok=True)
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in (["x", "y"], *rows):
            book.active.append(row)
        book.save(path)
        return
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (x, y)")
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    database.close()


def test_one_of_several_tables_is_named(tmp_path):
    """And tells the file from the same file with another table in it."""
    book = openpyxl.Workbook()
    book.active.title = "first"
    for title, cell in (("first", 1), ("second", 2)):
        sheet = book["first"] if title == "first" else book.create_sheet(title)
        for row in (["x", "y"], [cell, "a"]):
            sheet.append(row)
    paths = [tmp_path / f"t{ending}" for ending in ENDINGS]
    book.save(paths[0])
    for path, connect in zip(paths[1:], (sqlite3.connect, duckdb.connect)):
        database = connect(str(path))
        for title, cell in (("first", 1), ("second", 2)):
            database.execute(f"CREATE TABLE \"{title}\" AS SELECT {cell} AS x, 'a' AS y")
        database.commit()
        database.close()
    for path in paths:
        for name, code in (("first", 1), ("second", 2)):
            assert read_table(f"{path}::{name}", Schema.parse(ONE)).columns[0].tolist() == [code]
        with pytest.raises(DataError, match=rf"has 2 (sheet|table)s. Name one, as {path}::NAME"):
            read_table(path, Schema.parse(ONE))
        with pytest.raises(DataError, match=r"has no (sheet|table) 'third'\. Check the name"):
            read_table(f"{path}::third", Schema.parse(ONE))
        one, two = (digest_of(f"{path}::{name}") for name in ("first", "second"))
        assert one != two
    plain = tmp_path / "t.csv"
    plain.write_text("x,y\n1,a\n")
    with pytest.raises(DataError, match=r"cannot hold several tables. Remove ::first"):
        read_table(f"{plain}::first", Schema.parse(ONE))


def refusal(path, schema=ONE):
    with pytest.raises((DataError, InputError)) as caught:
        read_table(path, Schema.parse(schema))
    said = str(caught.value)
    assert CANARY not in said
    assert "\n" not in said
    assert caught.value.__context__ is None
    return said


def test_bad_workbooks_are_refused_in_one_line(tmp_path):
    path = tmp_path / "t.xlsx"

    def refused(*rows):
        write = openpyxl.Workbook()
        for row in rows:
            write.active.append(row)
        write.save(path)
        return refusal(path)

    assert "no names of columns" in refused()
    assert "no names of columns" in refused([None, "y"], [1, "a"])
    assert "cells beyond the names" in refused(["x", "y"], [1, "a", CANARY])
    assert "column 'y' has a value that is not declared" in refused(["x", "y"], [1, CANARY])
    assert "column 'x' has objects of other types" in refused(["x", "y"], [dt.time(1, 2), "a"])
    assert "no rows" in refused(["x", "y"], [None, None])
    assert "0 of the 2 columns" in refused([CANARY, "1"], [CANARY, "2"])
    path.write_bytes(b"PK\x03\x04" + CANARY.encode())
    assert "is an Excel file that cannot be read" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", CANARY)
    assert "is an Excel file that cannot be read" in refusal(path)


SHEET = "xl/worksheets/sheet1.xml"


def workbook_of(path, rows, edit=lambda sheet: sheet, **more):
    """A workbook of these rows, its sheet edited, with ``more`` members."""
    book = openpyxl.Workbook()
    for cells in rows:
        book.active.append(cells)
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    members[SHEET] = edit(members[SHEET])
    for name, content in more.items():
        kind = f"application/vnd.openxmlformats-officedocument.spreadsheetml.{name}+xml"
        listed = f'<Override PartName="/xl/{name}.xml" ContentType="{kind}"/></Types>'
        place = "[Content_Types].xml"
        members[place] = members[place].replace("</Types>", listed)
        members[f"xl/{name}.xml"] = content
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def workbook_with(path, texts, row=3):
    """A workbook with these shared texts, and its last row at this place."""
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rows = [["x", "y"], [1, "a"], [2, "b"]]
    shared = f'<sst xmlns="{space}">{texts.decode()}</sst>'
    workbook_of(
        path, rows, lambda s: s.replace('<row r="3"', f'<row r="{row}"'), sharedStrings=shared
    )


FORMULAS = [
    ("A", "<f>MAX(A:A)</f>", "x"),
    ("A", '<f t="shared" ref="A2:A5" si="0">RANK(C2,C:C)</f>', "x"),
    ("B", '<f t="array" ref="A2:B41">SORT(A2:B41)</f>', "x"),  # fills column x as well
    ("C", '<f t="array" ref="B2:C41">SORT(A2:B41)</f>', "y"),
    ("C", "<f>MAX(B:B)</f>", None),
]


@pytest.mark.parametrize(("cell", "formula", "column"), FORMULAS)
def test_formulas_are_refused_in_columns_that_are_read(tmp_path, capsys, cell, formula, column):
    def edit(sheet):
        start = sheet.index("<v", sheet.index(f'r="{cell}2"'))
        return sheet[:start] + formula + sheet[start:]

    path, out, schema = (tmp_path / name for name in ("t.xlsx", "o.csv", "s.json"))
    schema.write_text(json.dumps({**ONE, "ignore": ["note"]}))
    workbook_of(path, [["x", "y", "note"], *([k % 10, "ab"[k % 2], 5] for k in range(40))], edit)
    words = ["answer", str(path), "--ways", "1", "--out", str(out), "--schema", str(schema)]
    assert main([*words, "--epsilon", "1"]) == (0 if column is None else 2)
    assert out.exists() == (column is None)
    if column is not None:
        said = capsys.readouterr().err
        assert f"column {column!r} has formulas, whose values can depend on other rows" in said
        assert len(said.splitlines()) == 1


def many_texts(number=1_700_000):
    return b"".join(b"</t></si><si><t>%d" % (k * 104729 % 10**6) for k in range(number))


def long_texts(number=15):
    """Of which every character takes two bytes, as one of them does."""
    digits = b"".join(b"%d" % (k * 104729 % 10**6) for k in range(600_000))
    return b"</t></si><si><t>".join(b"\xc4\x80%d" % k + digits for k in range(number))


@pytest.mark.slow
@pytest.mark.parametrize("texts", [long_texts, many_texts])
def test_texts_of_a_workbook_count_against_the_memory(tmp_path, capsys, texts):
    """Before anything is spent."""
    path, schema = tmp_path / "t.xlsx", tmp_path / "s.json"
    schema.write_text(json.dumps(ONE))
    words = ["synthesize", str(path), "--schema", str(schema), "--rho", "1", "--workers", "1"]
    words += ["--insecure-seed", "1", "--out", str(tmp_path / "o.csv"), "--max-memory", "600MB"]
    workbook_with(path, b"<si><t>%s</t></si>" % texts())
    assert main(words) == 4
    assert "its texts need more memory than the 100 MB" in capsys.readouterr().err
    assert not (tmp_path / "o.csv").exists()
    workbook_with(path, b"<si><t>%s</t></si>" % texts(2))
    assert main(words) == 0


def test_rows_end_where_a_sheet_does(tmp_path):
    """A file of few bytes can name a row that is never reached."""
    path = tmp_path / "t.xlsx"
    workbook_with(path, b"", row=10**15)
    assert "has rows beyond the last of a sheet" in refusal(path)
    workbook_with(path, b"", row=1000)
    assert len(read_table(path, Schema.parse(ONE)).columns[0]) == 2


@pytest.mark.parametrize("row", [2, 1])
def test_a_row_of_the_number_of_another_is_not_lost_in_silence(tmp_path, row):
    path = tmp_path / "t.xlsx"
    workbook_with(path, b"", row=row)
    assert "has two rows of one number, or out of order" in refusal(path)


def test_a_named_table_of_a_file_with_brackets_is_no_pattern(tmp_path):
    for path in in_each(tmp_path, ["x", "y"], [[1, "a"]]):
        name = "Sheet" if path.suffix == ".xlsx" else "people"
        bracketed = path.rename(tmp_path / f"of [2024]{path.suffix}")
        assert read_table(f"{bracketed}::{name}", Schema.parse(ONE)).columns[0].tolist() == [1]


VIEW = "CREATE VIEW v AS SELECT (SELECT max(x) FROM people) AS x, y FROM people"


def test_views_are_refused_with_what_to_do(tmp_path):
    """One row of the table below can change all rows of the view."""
    light, duck = in_each(tmp_path, ["x", "y"], [[1, "a"]])[1:]
    with sqlite3.connect(light) as database:
        database.execute(VIEW)
        database.execute("CREATE VIRTUAL TABLE virtual USING fts5(x, y)")
    database.close()
    with duckdb.connect(str(duck)) as database:
        database.execute(VIEW)
    result = "The unit of privacy is then a row of that result."
    depend = "whose rows can depend on each other"
    write = f"{depend}: write its rows to a table, and name that. {result}"
    assert refusal(f"{light}::v") == f"{light}: 'v' is a view, {write}"
    assert refusal(f"{light}::virtual") == f"{light}: 'virtual' is a virtual table, {write}"
    assert refusal(f"{duck}::v") == f"{duck}: 'v' is a view, {write}"
    with duckdb.connect(str(duck)) as database:
        database.execute("DROP VIEW v")
    with sqlite3.connect(light) as database:
        database.execute("DROP TABLE virtual")
        database.execute("DROP VIEW v")
    database.close()
    for path in (light, duck):
        assert read_table(path, Schema.parse(ONE)).columns[0].tolist() == [1]


def test_a_database_cannot_call_a_view_a_table(tmp_path):
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE people AS SELECT 1 AS x, 'a' AS y")
        database.execute(VIEW)
        database.execute("CREATE SCHEMA other")
        database.execute("CREATE TABLE other.v AS SELECT 1 AS x, 'a' AS y")
        database.execute("CREATE TABLE other.w AS SELECT 1 AS x, 'a' AS y")
        named = "'private' AS database_name, 'main' AS schema_name"
        for kind, name in (("table", "v"), ("view", "people")):
            database.execute(
                f"CREATE MACRO duckdb_{kind}s() AS TABLE SELECT {named}, '{name}' AS {kind}_name"
            )
    assert "'v' is a view" in refusal(f"{path}::v")
    assert "has no table 'w'" in refusal(f"{path}::w")
    assert read_table(path, Schema.parse(ONE)).columns[0].tolist() == [1]


def test_bad_databases_are_refused_in_one_line(tmp_path):
    for path in in_each(tmp_path, ["x", "y"], [[1, "a"], [2, CANARY]])[1:]:
        assert "column 'y' has a value that is not declared" in refusal(path)
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + CANARY.encode() * 200)
        assert refusal(path).startswith(f"{path} is not a")
        path.write_bytes(whole)
        log = path.with_name(path.name + ("-wal" if path.suffix == ".db" else ".wal"))
        log.write_text(CANARY)
        assert f"has changes in {log.name}. Close the program" in refusal(path)
    torn = tmp_path / "torn.db"
    with sqlite3.connect(torn) as database:
        database.execute("CREATE TABLE t (x, y)")
        database.execute("INSERT INTO t VALUES (1, CAST(? AS TEXT))", [CANARY.encode() + b"\xff"])
    database.close()
    assert "has text that is not UTF-8" in refusal(torn)
    empty = tmp_path / "none.db"
    database = sqlite3.connect(empty)
    database.execute("CREATE TABLE t (x)")
    database.execute("DROP TABLE t")
    database.commit()
    database.close()
    assert "has no table. Check the file" in refusal(empty)


def test_without_the_library_nothing_is_spent(tmp_path, monkeypatch, capsys):
    path, _, duck = in_each(tmp_path, ["x", "y"], [[1, "a"]])
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(ONE))
    for library in ("openpyxl", "duckdb"):
        monkeypatch.setitem(__import__("sys").modules, library, None)
    for source, missing in (
        (path, "openpyxl is not installed: pip install 'adaptive-qs[excel]'"),
        (duck, "DuckDB is not installed: pip install 'adaptive-qs[duckdb]'"),
    ):
        words = ["--schema", str(schema), "--rho", "1", "--out", str(tmp_path / "o.csv")]
        assert main(["synthesize", str(source), *words]) == 2
        said = capsys.readouterr().err
        assert missing in said
        assert "budget" not in said


def test_workbooks_are_not_written(tmp_path, capsys):
    """Before anything is spent; the message names what is written."""
    plain, schema = tmp_path / "t.csv", tmp_path / "s.json"
    plain.write_text("x,y\n1,a\n")
    schema.write_text(json.dumps(ONE))
    words = ["--schema", str(schema), "--rho", "1", "--out", str(tmp_path / "o.xlsx")]
    for verb in (["synthesize"], ["answer", "--ways", "1"]):
        assert main([*verb, str(plain), *words]) == 2
        said = capsys.readouterr().err
        assert "o.xlsx: unknown table format: end the name in .csv, " in said
        assert ".xlsx" not in said.partition("end the name")[2]


def test_a_named_table_is_not_written_over(tmp_path, capsys):
    path = in_each(tmp_path, ["x", "y"], [[1, "a"]])[1]
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(ONE))
    words = ["--schema", str(schema), "--rho", "1", "--out", str(path), "--force"]
    assert main(["synthesize", f"{path}::people", *words]) == 2
    assert "is also an input or another output" in capsys.readouterr().err
