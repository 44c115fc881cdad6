"""Files that Python callers write: what exists is replaced only with force, as on the command line;
and how the public objects show themselves.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaptive_qs
from adaptive_qs.cli.entry import main
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.release.bundle import manifest_path
from adaptive_qs.run.states import SpendingRun
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.files import atomic_writer, check_writable
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import escaped
from adaptive_qs.table.write import check_format, check_table_path, table_format, write_table

SCHEMA = Schema.parse({"age": 77, "height": 2})
FRAME = pd.DataFrame({"age": [30, 41, 52] * 40, "height": [0, 1] * 60})
REFUSED = r"already exists\. Use .*force=True\)? to replace it, or choose another path\.$"


def fitted(**options):
    return Synthesizer(rho=1, workers=1, **options).fit(FRAME, schema=SCHEMA)


SAVERS = {
    "model": lambda _: fitted().save,
    "release": lambda _: fitted().release_.save,
    "loaded": lambda folder: Synthesizer.load(saved(folder)).save,
    "schema": lambda _: SCHEMA.dump,
    "answers": lambda _: adaptive_qs.answer(FRAME, SCHEMA, 1, rho=1).write,
}


def saved(folder):
    fitted().save(folder / "r.zip")
    return folder / "r.zip"


@pytest.mark.parametrize("name", SAVERS)
def test_a_file_is_replaced_only_when_told(name, tmp_path, tmp_path_factory):
    path = tmp_path / {"schema": "s.json", "answers": "a.csv"}.get(name, "r.zip")
    path.write_text("mine")
    save = SAVERS[name](tmp_path_factory.mktemp("saved"))
    with pytest.raises(InputError, match=REFUSED):
        save(str(path))
    assert path.read_text() == "mine"
    if path.suffix == ".zip":
        with pytest.raises(InputError, match="a release is a zip archive"):
            save(tmp_path / "r.txt")
    assert [*tmp_path.iterdir()] == [path]
    save(path, force=True)
    assert path.read_bytes() != b"mine"


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "l.ledger"
    assert main(["ledger", "create", "--ledger", str(path), "--rho", "9"]) == 0
    return path


def test_a_refused_save_leaves_the_run_open_in_its_ledger(ledger, tmp_path):
    path = tmp_path / "r.zip"
    path.write_text("mine")
    model = fitted(ledger=ledger)
    with pytest.raises(InputError, match=REFUSED):
        model.save(path)
    model._run.leave()
    again = fitted(ledger=ledger, resume=True)
    assert again.release_.events == model.release_.events
    with pytest.raises(InputError, match=REFUSED):
        again.save(path)
    again.save(tmp_path / "other.zip")


def test_a_resumed_run_replaces_what_it_had_written_itself(ledger, tmp_path, monkeypatch):
    def interrupted(run):
        run.leave()
        raise KeyboardInterrupt

    def answers(**options):
        return adaptive_qs.answer(FRAME, SCHEMA, 1, rho=1, ledger=ledger, **options)

    with monkeypatch.context() as patched:
        patched.setattr(SpendingRun, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(ledger=ledger).save(tmp_path / "r.zip")
        with pytest.raises(KeyboardInterrupt):
            answers().write(tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv")) == 79
    fitted(ledger=ledger, resume=True).save(tmp_path / "r.zip")
    answers(resume=True).write(tmp_path / "a.csv")
    with pytest.raises(InputError, match=REFUSED):
        fitted(ledger=ledger).save(tmp_path / "r.zip")


def test_files_next_to_answers_are_not_replaced_either_and_nothing_is_spent(tmp_path):
    path = tmp_path / "a.csv"
    manifest_path(path).write_text("mine")
    answers = adaptive_qs.answer(FRAME, SCHEMA, 1, rho=1)
    with pytest.raises(InputError, match=REFUSED):
        answers.write(path)
    assert answers.rho_spent == 0
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]
    assert answers.write(path, force=True) == 79


def test_public_objects_show_their_budget_and_no_cell_nor_number_of_rows():
    answers = adaptive_qs.answer(FRAME, SCHEMA, 1, epsilon=1)
    assert repr(answers).endswith("reading them spends the budget, once>")
    assert "epsilon 1, delta 1e-09" in repr(answers)
    assert answers.rho_spent == 0
    answers.to_arrow()
    domain = Domain.from_sizes({"a": 90, "b": 2})
    table = CodedTable.from_codes(domain, [np.full(71, 83), np.zeros(71, dtype=int)])
    release = fitted().release_
    shown = {
        "<Release: 2 columns, ": release,
        "<Answers to 79 queries by ": answers,
        "<BatchPlan of 79 queries by ": adaptive_qs.plan(SCHEMA, 1, epsilon=1),
        "<CodedTable of 2 columns>": table,
        "TablePair(true=<CodedTable of 2 columns>": adaptive_qs.TablePair(table, table),
        "": adaptive_qs.evaluate(table, table),
    }
    for start, each in shown.items():
        assert repr(each).startswith(start)
        assert len(repr(each)) < 150
        assert not {"age", "83", "71"} & set(re.findall(r"\w+", repr(each)))
    assert repr(answers).endswith(": read>")
    # What the filter takes for choices is no part of the sum.
    assert 0.99 < float(re.search("rho (.*) spent", repr(release))[1]) <= 1
    assert "NOT PRIVATE" in repr(fitted(insecure_seed=1).release_)
    assert "owner only" in repr(shown[""])


# Texts that spreadsheet programs run as formulas: escaped in CSV, read back as they were.

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


HARMLESS = ["", "-5", "+3.25", "-1e-5", "-.5", "52.5,-13.4", "1; -2", "-", "+", "<=50K", "a-b"]
HARMLESS += ["a=b", "k|v", "1-2", "United-States", "O'Neil", "x;y", "-5,1"]


@pytest.mark.parametrize("text", HARMLESS)
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
    assert read_table(path, schema).columns[0].tolist() == codes


@pytest.mark.parametrize(("name", "end"), [("\ufeff", "csv"), ("\ufeffage", "csv.gz")])
def test_a_table_whose_first_name_begins_with_a_byte_order_mark_comes_back(tmp_path, name, end):
    sizes = {name: 5, "other": 2}
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(sizes))
    frame = pd.DataFrame({name: [0, 4] * 30, "other": [1, 0] * 30})
    frame.to_parquet(tmp_path / "t.parquet")
    words = ["--schema", str(schema), "--rho", "1", "--workers", "1", "--rows", "60"]
    made = str(tmp_path / f"o.{end}")
    assert main(["synthesize", str(tmp_path / "t.parquet"), *words, "--out", made]) == 0
    assert main(["schema", "check", str(schema), made]) == 0
    assert read_table(made, Schema.parse(sizes)).num_rows == 60


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
        schema = schema_of(column_of([ATTACK, "b"], open=["values"]))
    else:
        schema = schema_of(column_of([ATTACK, "b"]), open=["publish"])
    assert lines(written(schema, [0, 1], tmp_path)) == [f"'{ATTACK}", "b"]


def test_numbers_and_other_types_are_never_escaped(tmp_path):
    schema = schema_of({"name": "c", "type": "integer", "min": -9, "max": -1, "missing": ["-x-"]})
    path = written(schema, [0, 8, 9], tmp_path)
    assert lines(path) == ["-9", "-1", "-x-"]
    path = written(schema, [0, 8, 9], tmp_path, formulas="escape")
    assert lines(path) == ["-9", "-1", "'-x-"]
    assert read_table(path, schema).columns[0].tolist() == [0, 8, 9]


def test_an_escaped_cell_is_read_by_itself():
    """What one cell is read as depends on no other cell."""
    schema = schema_of(column_of(["=1+1", "b"], catch_all="other"))
    for cells in (["'=1+1", "b"], ["'=1+1", "=1+1"], ["'=1+1", "''=1+1"]):
        codes = read_table(pd.DataFrame({"c": cells}), schema).columns[0].tolist()
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
    assert main(["sample", "r.zip", "--out", "k.csv", "--formulas", "keep", "--seed", "1"]) == 0
    assert set(lines("k.csv")) == {ATTACK, "-5", "plain"}
    assert main(["sample", "r.zip", "--out", "p.parquet", "--seed", "1"]) == 0
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


LINK = '=HYPERLINK("http://example.org/";"click")'
NAME = "@SUM(1+1)|cmd"


@pytest.fixture
def theirs(private):
    """The release of somebody else, whose schema declares formulas: a value, a name, keys."""
    columns = [
        {"name": NAME, "type": "categorical", "values": [LINK, "b"], "missing": ["-x"]},
        {"name": "n", "type": "integer", "min": 0, "max": 3},
    ]
    made = [{"name": "key", "type": "key", "place": 2, "pattern": LINK + "{999}"}]
    Path("s2.json").write_text(json.dumps({"version": 1, "columns": columns, "generated": made}))
    frame = pd.DataFrame({NAME: [LINK, "b", "-x", "b"] * 300, "n": [0, 1, 2, 3] * 300})
    frame.to_csv("t2.csv", index=False)
    run = [*RUN[2:], "--schema", "s2.json", "--release", "r2.zip", "--out", "own.csv"]
    assert main(["synthesize", "t2.csv", *run]) == 0
    return "r2.zip"


def runs_as_formula(path):
    """Cells of a file, header and all, at which a spreadsheet program would begin a formula."""
    with open(path, newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    parts = [(cell, part.strip(' "')) for cell in cells for part in re.split(r"[,;|\t\n]", cell)]
    return [cell for cell, part in parts if re.match(r"[=+@]|-[^0-9]", part)]


def test_texts_of_the_release_of_somebody_else_are_escaped_by_default(theirs, capsys):
    """Names of columns too, wherever they stand."""
    for command in (
        ["sample", theirs, "--rows", "50", "--out", "o.csv"],
        ["sample", theirs, "--rows", "50", "--where", "n >= 1", "--out", "w.csv.gz"],
        ["marginals", theirs, "--columns", f"{NAME},n", "--out", "m.csv"],
        ["synthesize", "t2.csv", *RUN[2:], "--schema", theirs, "--out", "y.csv"],
        ["answer", "t2.csv", *RUN[2:], "--schema", theirs, "--ways", "1,2", "--out", "a.csv"],
    ):
        assert main(command) == 0, capsys.readouterr().err
        path = Path(command[-1])
        if path.suffix == ".gz":
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path = path.with_suffix("")
        assert f"'{NAME}" in path.read_text().replace("|'", "|")
        assert runs_as_formula(path) == [], command


def test_texts_of_the_own_schema_and_what_is_to_be_kept_stay_as_they_are(theirs):
    assert runs_as_formula("own.csv")
    keep = ["--formulas", "keep"]
    assert main(["sample", theirs, "--rows", "50", "--out", "k.csv", *keep]) == 0
    assert main(["sample", theirs, "--rows", "50", "--out", "p.parquet"]) == 0
    assert [*pd.read_csv("k.csv")] == [NAME, "n", "key"] == [*pd.read_parquet("p.parquet")]
    assert pd.read_csv("k.csv")["key"][0] == f"{LINK}001"
    assert LINK in set(pd.read_csv("k.csv")[NAME]) & set(pd.read_parquet("p.parquet")[NAME])
    answers = ["answer", "t2.csv", *RUN[2:], "--schema", "s2.json", "--ways", "1", "--out"]
    assert main([*answers, "a.csv"]) == 0
    assert NAME in set(pd.read_csv("a.csv")["attributes"])
    assert main([*answers, "e.csv", "--formulas", "escape"]) == 0
    assert runs_as_formula("e.csv") == []


def test_frames_come_back_as_they_are(private):
    model = Synthesizer(epsilon=5.0, delta=1e-6, insecure_seed=1)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        model.fit(private, schema="s.json")
    assert set(model.sample(200, seed=1)["c"]) == {ATTACK, "-5", "plain"}


def test_another_kind_is_refused(private, capsys):
    assert main(["synthesize", "t.csv", *RUN, "--out", "o.csv", "--formulas", "all"]) == 2
    said = capsys.readouterr().err
    assert "formulas is 'all'. Use one of escape-learnt, escape, keep" in said


def test_numbers_in_the_form_of_a_country_go_in_and_come_out_in_it(tmp_path, capsys):
    """Declared and learnt columns, from CSV to CSV; another form is refused without its cell."""
    rng = np.random.default_rng(4)
    columns = [
        {"name": "pay", "type": "numeric", "edges": [-500, 0, 1000, 5000], "decimals": 2,
         "decimal": ",", "thousands": "."},
        {"name": "sold", "type": "integer", "private_bins": 4, "min": 0, "max": 90_000,
         "thousands": " "},
    ]  # fmt: skip
    schema, table, out = (tmp_path / name for name in ("s.json", "t.csv", "o.csv"))
    schema.write_text(json.dumps({"version": 1, "columns": columns}))
    pay, sold = rng.uniform(-500, 5000, 300), rng.integers(0, 90_000, 300)
    swapped = str.maketrans(",.", ".,")
    cells = [[f"{p:,.2f}".translate(swapped), f"{s:,}".replace(",", " ")]
             for p, s in zip(pay, sold)]  # fmt: skip
    pd.DataFrame(cells, columns=["pay", "sold"]).to_csv(table, index=False)
    words = ["--schema", str(schema), "--rho", "50", "--beyond-limits", "--insecure-seed", "1"]
    assert main(["synthesize", str(table), *words, "--out", str(out), "--workers", "1"]) == 0
    made = pd.read_csv(out, dtype=str)
    assert made.pay.str.fullmatch(r"-?\d{1,3}(\.\d{3})?(,\d\d?)?").all()
    assert made.sold.str.fullmatch(r"\d{1,3}( \d{3})?").all()
    read = pd.read_csv(out, decimal=",", thousands=".").pay
    assert ((read > 1000).mean(), (read < 0).mean()) == pytest.approx(
        ((pay > 1000).mean(), (pay < 0).mean()), abs=0.02
    )
    assert np.median(made.sold.str.replace(" ", "").astype(int)) == pytest.approx(45_000, rel=0.1)
    capsys.readouterr()
    for cell in ("1234.56", "12.34", "1,234.5"):
        pd.DataFrame([*cells, [cell, "7"]], columns=["pay", "sold"]).to_csv(table, index=False)
        assert main(["synthesize", str(table), *words, "--out", str(out), "--force"]) == 2
        said = capsys.readouterr().err
        assert "column 'pay' has a cell that cannot be read as numeric" in said
        assert cell not in said


def test_output_paths(tmp_path):
    check_table_path(tmp_path / "t.csv")
    assert not list(tmp_path.iterdir())
    for bad in (tmp_path, tmp_path / "none" / "t.csv", "/dev/null"):
        with pytest.raises(InputError):
            check_writable(bad)
    with pytest.raises(InputError, match="format"):
        table_format(tmp_path / "t.xls")


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("old")

    def fail():
        with atomic_writer(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["t.csv"]
    with atomic_writer(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("ending", [".sqlite", ".db"])
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
