"""What the format of a file cannot hold is refused before a run, and formulas in what is read."""

import gzip
import json
import random
import zipfile

import openpyxl
import pytest

import adaptive_qs
from adaptive_qs import Schema, Synthesizer
from adaptive_qs.cli import main
from adaptive_qs.errors import InputError
from adaptive_qs.table.write import check_format

SCHEMA = """{"version": 1, "columns": [
    {"name": "a", "type": "categorical", "values": ["x", "y"]},
    {"name": "n", "type": "integer", "min": 0, "max": 9}], "ignore": ["note"]}"""


def workbook(path, formula, first=2):
    """A sheet of 40 rows, some cells of whose column n have a formula beside the value."""
    book = openpyxl.Workbook()
    book.active.append(["a", "n", "note"])
    rng = random.Random(1)
    for _ in range(40):
        book.active.append([rng.choice("xy"), rng.randrange(10), 5])
    book.save(path)
    with zipfile.ZipFile(path) as given:
        members = {name: given.read(name) for name in given.namelist()}
    sheet = members["xl/worksheets/sheet1.xml"].decode()
    cell = formula[0]
    start = sheet.index("<v", sheet.index(f'r="{cell}{first}"'))
    members["xl/worksheets/sheet1.xml"] = (sheet[:start] + formula[1] + sheet[start:]).encode()
    with zipfile.ZipFile(path, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)


def run(tmp_path, capsys, *args):
    (tmp_path / "s.json").write_text(SCHEMA)
    code = main([*map(str, args), "--schema", str(tmp_path / "s.json"), "--epsilon", "1"])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "formula",
    [
        ("B", "<f>MAX(B:B)</f>"),
        ("B", '<f t="shared" ref="B2:B5" si="0">RANK(C2,C:C)</f>'),
        ("A", '<f t="array" ref="A2:B41">SORT(A2:B41)</f>'),  # fills column n as well
        ("C", '<f t="array" ref="B2:C41">SORT(A2:B41)</f>'),
    ],
)
def test_formulas_of_a_sheet_are_refused_in_columns_that_are_read(tmp_path, capsys, formula):
    table = tmp_path / "t.xlsx"
    workbook(table, formula)
    out = tmp_path / "o.csv"
    code, said = run(tmp_path, capsys, "answer", table, "--ways", 1, "--out", out)
    assert code == 2
    assert "has formulas, whose values can depend on other rows" in said
    assert len(said.splitlines()) == 1
    assert not out.exists()


def test_formulas_of_other_columns_are_no_matter(tmp_path, capsys):
    table = tmp_path / "t.xlsx"
    workbook(table, ("C", "<f>MAX(B:B)</f>"))
    code, _ = run(tmp_path, capsys, "answer", table, "--ways", 1, "--out", tmp_path / "o.csv")
    assert code == 0


@pytest.mark.parametrize("ending", [".sqlite", ".db", ".duckdb"])
def test_databases_do_not_hold_names_that_differ_by_case(tmp_path, capsys, ending):
    (tmp_path / "ci.csv").write_text("a,A\n" + "true,false\n" * 50)
    schema = tmp_path / "ci.json"
    schema.write_text(
        '{"version": 1, "columns": [{"name": "a", "type": "boolean"},'
        ' {"name": "A", "type": "boolean"}]}'
    )
    out, ledger = tmp_path / f"o{ending}", tmp_path / "l.ledger"
    assert main(["ledger", "create", "--ledger", str(ledger), "--rho", "1"]) == 0
    args = ["synthesize", str(tmp_path / "ci.csv"), "--schema", str(schema), "--epsilon", "1"]
    assert main([*args, "--ledger", str(ledger), "--out", str(out)]) == 2
    assert "cannot hold both 'a' and 'A'" in capsys.readouterr().err
    assert main([*args, "--ledger", str(ledger), "--out", str(tmp_path / "o.csv")]) == 0


def test_limits_of_formats():
    names = [f"c{k}" for k in range(2_001)]
    check_format("t.csv", names)
    with pytest.raises(InputError, match="2,000 columns at most"):
        check_format("t.db", names)


CELLS = "a,n\nx,1\ny,SECRET Mr Miller\n"


@pytest.mark.parametrize("text", [CELLS, CELLS * 9_000, "SECRET" * 60, "d/" * 3_000 + "SECRET"])
def test_the_content_of_a_table_in_the_place_of_a_path_is_not_quoted(text):
    schema = Schema.parse(json.loads(SCHEMA))
    calls = (
        lambda: adaptive_qs.answer(text, schema, workload=1, epsilon=1),
        lambda: Synthesizer(epsilon=1).fit(text, schema=schema),
        lambda: Synthesizer(epsilon=1).fit("t.csv", schema=text),
        lambda: adaptive_qs.answer("t.csv", schema, workload=text, epsilon=1),
        lambda: adaptive_qs.plan(schema, workload=text, epsilon=1),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"is a text of .* characters, not a path") as caught:
            call()
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("name", ["epsilon", "max_memory", "engine", "ledger", "temp_folder"])
def test_nor_is_it_in_the_place_of_another_parameter(name):
    schema = Schema.parse(json.loads(SCHEMA))
    with pytest.raises(InputError) as caught:
        Synthesizer(**{"epsilon": 1, name: CELLS}).fit("t.csv", schema=schema)
    assert "SECRET" not in str(caught.value)


def test_a_file_and_its_compressed_form_in_one_folder_are_refused(tmp_path, capsys):
    folder = tmp_path / "d"
    folder.mkdir()
    rows = b"a,n\n" + b"x,1\n" * 30
    (folder / "a.csv").write_bytes(rows)
    (folder / "b.csv").write_bytes(rows)
    args = ("answer", folder, "--ways", 1, "--out", tmp_path / "o.csv")
    (folder / "a.csv.gz").write_bytes(gzip.compress(rows))
    code, said = run(tmp_path, capsys, *args)
    assert code == 2
    assert "has a.csv and a.csv.gz: leave one out" in said
    (folder / "a.csv").unlink()
    assert run(tmp_path, capsys, *args)[0] == 0
