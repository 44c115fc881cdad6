"""Texts that spreadsheet programs run as formulas: escaped in CSV, read back as they were."""

import csv
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs import Schema, Synthesizer
from adaptive_qs.cli import main
from adaptive_qs.data.decode import decode
from adaptive_qs.data.encode import encode_file, encode_table
from adaptive_qs.data.formulas import escaped
from adaptive_qs.data.review import AS_PROPOSED
from adaptive_qs.data.table import CodedTable
from adaptive_qs.data.writers import write_table

ATTACK = "=cmd|' /C calc'!A0"
FOUND = [ATTACK, "x;=1+1|A", "-5", "plain", "'=2+3"]
SIGNS = "=+-@＝＋－＠﹦﹢⁻"


def runs(cell):
    """Whether a program would run a cell: stricter than any does, numbers left out."""
    bare = cell.lstrip(' \t\r\n"`´\xa0\ufeff\u200b\u2019')
    if len(bare) < 2 or bare[0] not in SIGNS:
        return False
    try:
        return bool(pd.isna(float(bare.replace(",", ".", 1))))
    except ValueError:
        return not all(part.strip(" +-").replace(".", "").isdigit() for part in bare.split(","))


def sheets(text):
    """The cells of a line under every separator that a program may take."""
    for separator in ",;\t|":
        yield from itertools.chain(
            *csv.reader(io.StringIO(text, newline=None), delimiter=separator)
        )


@pytest.mark.parametrize(
    "text",
    [ATTACK, "+1+cmd|x", "-2+3", "@SUM(A1)", "＝1+1", "＋1+x", "－1+x", "＠SUM", "  =1+1", '"=1+1"',
     "'=1+1", "a;=1+1", "a,=1+1", "a\t=1+1", "a\n=1+1", "a\r=1+1", "a|=1+1", 'a;"=1+1', "\xa0=1+1",
     "-5,1+cmd|x", "-1;=2", "-5%+A1", "\u2060=1+1", "\u200d=1+1", "\xad=1+1", "\u202a=1+1",
     "\x01=cmd", "\u3164=1+1"],
)  # fmt: skip
def test_what_would_be_run_gets_an_apostrophe(text):
    safe = escaped(text)
    assert safe != text
    assert safe.replace("'", "") == text.replace("'", "")
    assert not any(runs(cell) for cell in sheets(safe))


@pytest.mark.parametrize(
    "text",
    ["", "-5", "+3.25", "-1e-5", "-.5", "52.5,-13.4", "1; -2", "-", "+", "<=50K", "a-b", "a=b",
     "k|v", "1-2", "United-States", "O'Neil", "x;y", "-5,1"],
)  # fmt: skip
def test_numbers_and_harmless_texts_stay(text):
    assert escaped(text) == text


@given(st.text(st.sampled_from("=+-@＝; ,\t|'\"a1\n"), max_size=8))
def test_no_separator_leaves_a_cell_that_runs(text):
    assert not any(runs(cell) for cell in sheets(escaped(text)))


def test_long_cells_take_time_in_proportion():
    assert escaped(";=a" * 200_000).count("'") == 200_000


def column_of(values, **more):
    return {"name": "c", "type": "categorical", "values": values, **more}


def schema_of(*columns, **more):
    return Schema.parse({"version": 1, "columns": [*columns], **more})


def written(schema, codes, tmp_path, name="t.csv", **how):
    table = CodedTable.from_codes(schema.domain(), [np.array(codes)])
    path = tmp_path / name
    write_table(decode(table, schema, np.random.default_rng(0)), path, schema, **how)
    return path


LEARNT = {"learnt": ["values"], "catch_all": "-other-", "missing": ["-none-"]}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
@pytest.mark.parametrize("how", ["escape-learnt", "escape", "keep"])
def test_every_file_reads_back_to_the_same_codes(tmp_path, name, how):
    """Also where an escaped form is itself a value."""
    schema = schema_of(column_of([*FOUND, "=2+3", "''=2+3"], **LEARNT))
    codes = [*range(schema.columns[0].size)] * 2
    path = written(schema, codes, tmp_path, name, formulas=how)
    assert encode_file(path, schema).columns[0].tolist() == codes


def lines(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)["c"].tolist()


def test_learnt_values_are_escaped_and_declared_words_stay(tmp_path):
    schema = schema_of(column_of(FOUND, **LEARNT))
    codes = [0, 1, 2, 3, 4, 5, 6]
    assert lines(written(schema, codes, tmp_path)) == [
        f"'{ATTACK}", "x;'=1+1|A", "-5", "plain", "''=2+3", "-other-", "-none-"
    ]  # fmt: skip
    assert lines(written(schema, codes, tmp_path, formulas="keep")) == [
        *FOUND, "-other-", "-none-"
    ]  # fmt: skip
    every = lines(written(schema, codes, tmp_path, formulas="escape"))
    assert every[5:] == ["'-other-", "'-none-"]
    declared = schema_of(column_of(FOUND))
    assert lines(written(declared, range(5), tmp_path)) == FOUND


@pytest.mark.parametrize("where", ["column", "schema"])
def test_values_proposed_from_the_rows_count_as_learnt_until_reviewed(tmp_path, where):
    if where == "column":
        schema = schema_of(column_of([ATTACK, "b"], description=AS_PROPOSED))
    else:
        said = "Taken from the data: review, not private."
        schema = schema_of(column_of([ATTACK, "b"]), description=said)
    assert lines(written(schema, [0, 1], tmp_path)) == [f"'{ATTACK}", "b"]


def test_numbers_and_other_types_are_never_escaped(tmp_path):
    schema = schema_of({"name": "c", "type": "integer", "min": -9, "max": -1, "missing": ["-x-"]})
    path = written(schema, [0, 8, 9], tmp_path)
    assert lines(path) == ["-9", "-1", "-x-"]
    path = written(schema, [0, 8, 9], tmp_path, formulas="escape")
    assert lines(path) == ["-9", "-1", "'-x-"]
    assert encode_file(path, schema).columns[0].tolist() == [0, 8, 9]


def test_an_escaped_cell_is_read_by_itself():
    """What one cell is read as depends on no other cell."""
    schema = schema_of(column_of(["=1+1", "b"], catch_all="other"))
    for cells in (["'=1+1", "b"], ["'=1+1", "=1+1"], ["'=1+1", "''=1+1"]):
        codes = encode_table(pd.DataFrame({"c": cells}), schema).columns[0].tolist()
        assert codes[0] == 0
    assert codes[1] == 2


@pytest.fixture
def private(tmp_path, monkeypatch):
    """A table whose values are discovered, one of them an attack, and its schema."""
    monkeypatch.chdir(tmp_path)
    values = np.array([ATTACK, "-5", "plain"])[np.arange(3000) % 3]
    frame = pd.DataFrame({"c": values, "d": np.arange(3000) % 2})
    frame.to_csv("t.csv", index=False)
    open_column = {"name": "c", "type": "categorical", "private_values": 5, "catch_all": "other"}
    content = {
        "version": 1,
        "columns": [open_column, {"name": "d", "type": "integer", "min": 0, "max": 1}],
    }
    (tmp_path / "s.json").write_text(json.dumps(content))
    return frame


RUN = ["--schema", "s.json", "--epsilon", "5", "--delta", "1e-6", "--insecure-seed", "1"]


def test_commands_write_discovered_formulas_escaped_and_evaluate_reads_them(private, capsys):
    assert main(["synthesize", "t.csv", *RUN, "--out", "o.csv", "--release", "r.zip"]) == 0
    assert set(lines("o.csv")) == {f"'{ATTACK}", "-5", "plain"}
    assert main(["sample", "r.zip", "--out", "k.csv", "--formulas", "keep"]) == 0
    assert set(lines("k.csv")) == {ATTACK, "-5", "plain"}
    assert main(["sample", "r.zip", "--out", "p.parquet"]) == 0
    assert set(pd.read_parquet("p.parquet")["c"]) == {ATTACK, "-5", "plain"}
    capsys.readouterr()
    for table in ("o.csv", "k.csv", "p.parquet"):
        assert main(["evaluate", "t.csv", table, "--schema", "r.zip", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["workload_error"]["mean_l1"] < 0.2
    sampling = json.loads(Path("k.csv.manifest.json").read_text())["sampling"]
    assert sampling["formulas"] == "keep"


def test_answers_escape_behind_separators_too(private, tmp_path):
    text = "x;=1+1|A"
    pd.DataFrame({"c": [text, "b"] * 1500, "d": [0, 1] * 1500}).to_csv("t.csv", index=False)
    for name, kind, words in [
        ("a.csv", [], "c = x;'=1+1|A"),
        ("k.csv", ["--formulas", "keep"], f"c = {text}"),
        ("a.parquet", [], f"c = {text}"),
    ]:
        assert main(["answer", "t.csv", *RUN, "--ways", "1", "--out", name, *kind]) == 0
        read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
        assert words in set(read(tmp_path / name)["query"])


def test_frames_come_back_as_they_are(private):
    model = Synthesizer(epsilon=5.0, delta=1e-6, insecure_seed=1)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        model.fit(private, schema="s.json")
    assert set(model.sample(200, seed=1)["c"]) == {ATTACK, "-5", "plain"}


def test_another_kind_is_refused(private, capsys):
    assert main(["synthesize", "t.csv", *RUN, "--out", "o.csv", "--formulas", "all"]) == 2
    said = capsys.readouterr().err
    assert "formulas is 'all': give one of escape-learnt, escape, keep" in said
