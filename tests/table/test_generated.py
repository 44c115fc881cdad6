"""Columns that are not measured come back: keys anew, constants as they were, the rest empty."""

from __future__ import annotations

import uuid

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import SchemaError
from adaptive_qs.table.generated import GeneratedColumn, key_pattern
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema

BASE = {"version": 1, "columns": [{"name": "a", "type": "boolean"}]}
N = 300
RNG = np.random.default_rng(4)
UUIDS = [str(uuid.UUID(int=int(k) << 70)) for k in RNG.choice(10**6, N, replace=False)]
TABLE = pd.DataFrame(
    {
        "id": np.arange(N) + 700,
        "sex": RNG.choice(["f", "m"], N),
        "code": [f"P-{k:06}" for k in range(N)],
        "nothing": np.full(N, np.nan),
        "year": np.full(N, 2024),
        "uuid": UUIDS,
        "plate": [f"AB-{chr(65 + k % 26)}{chr(65 + k // 26)}-{k:03}" for k in range(N)],
        "note": [f"seen by {k} of {k % 7}" for k in range(N)],
        "age": RNG.integers(0, 90, N),
    }
)


def test_a_table_comes_back_with_all_its_columns_in_order_and_with_their_types(tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "o.csv"
    TABLE.to_csv(path, index=False)
    assert main(["schema", "init", str(path), "--out", str(tmp_path / "p.json")]) == 0
    words = ["--schema", str(tmp_path / "p.json"), "--rho", "1", "--unreviewed-schema"]
    assert main(["synthesize", str(path), *words, "--out", str(out)]) == 0
    before, after = pd.read_csv(path), pd.read_csv(out)
    assert [*after.columns] == [*before.columns]
    same = [name for name in before if name != "note"]  # text comes back empty
    assert [*after[same].dtypes] == [*before[same].dtypes]
    assert (after.year == 2024).all()
    assert after[["nothing", "note"]].isna().all(axis=None)
    patterns = {"id": r"\d+", "code": r"P-\d{6}", "plate": r"AB-[A-Z]{2}-\d{3}"}
    patterns["uuid"] = "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"
    for name, pattern in patterns.items():
        assert after[name].is_unique
        assert after[name].astype(str).str.fullmatch(pattern).all(), name
    assert not set(after.uuid) & set(UUIDS)


def test_frames_have_them_too_and_the_private_cells_are_not_read():
    schema = propose(TABLE)
    made = []
    for table in (TABLE, TABLE.assign(id="x", uuid="private", note=7)):
        fitted = Synthesizer(rho=1.0, insecure_seed=1, unreviewed_schema=True)
        made.append(fitted.fit(table, schema=schema).sample(seed=1))
    assert [*made[0].columns] == [*TABLE.columns]
    assert made[0].id.dtype == TABLE.id.dtype
    pd.testing.assert_frame_equal(*made)


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (["A-1", "A-22"], "A-{}"), (["x01y", "x99y"], "x{99}y"), (["ab", "cd"], "{aa}"),
        (["a1", "1a"], ""), (["tom", "bo"], ""), (["{1}", "{2}"], ""),
        ([u.upper() for u in UUIDS], "{FFFFFFFF}-{FFFF}-{FFFF}-{FFFF}-{FFFFFFFFFFFF}"),
    ],
)  # fmt: skip
def test_keys_have_the_pattern_of_the_original(values, pattern):
    assert key_pattern(values) == pattern


@pytest.mark.parametrize("pattern", ["{}", "k{9}", "{AA}", "{99}-{a}", "{ff}x", "{}-{99}"])
def test_keys_differ_over_pages_and_beyond_their_pattern(pattern):
    column = GeneratedColumn(name="k", type="key", place=0, pattern=pattern)
    found = [key for start in (0, 1_000) for key in column.cells(start, 1_000, (0,)).to_pylist()]
    assert len(set(found)) == 2_000


def test_lists_of_the_owner_are_drawn_from_and_wrong_ones_refused():
    column = {"name": "k", "type": "filled", "place": 0, "values": ["x", "y"]}
    assert set(GeneratedColumn(**column).cells(0, 99, (3,)).to_pylist()) == {"x", "y"}
    for wrong in ({"values": ["x", 1]}, {"type": "key"}, {"name": "a"}):
        with pytest.raises(SchemaError):
            Schema.parse({**BASE, "generated": [column | wrong]})


@pytest.mark.parametrize("encoding", ["cp1252", "utf_16"])
def test_other_encodings_are_found_declared_and_written(tmp_path, encoding):
    towns = ["Köln", "München", "Bonn"]
    path, out = tmp_path / "t.csv", tmp_path / "o.csv"
    frame = pd.DataFrame({"town": RNG.choice(towns, N), "age": TABLE.age})
    frame.to_csv(path, index=False, encoding=encoding)
    assert main(["schema", "init", str(path), "--out", str(tmp_path / "p.json")]) == 0
    assert Schema.load(tmp_path / "p.json").encoding == encoding
    words = ["--schema", str(tmp_path / "p.json"), "--rho", "1", "--unreviewed-schema"]
    assert main(["synthesize", str(path), *words, "--out", str(out)]) == 0
    assert set(pd.read_csv(out, encoding=encoding).town) == set(towns)


@pytest.mark.parametrize(
    "encoding", ["iso2022_jp", "hz", "UTF-7", "punycode", "idna", "unicode_escape", "hex", "none"]
)
def test_encodings_in_which_a_row_changes_others_are_refused(encoding):
    """In the first one, a row of ESC $ B turns the cells "ab" of all later rows into others."""
    with pytest.raises(SchemaError, match="is unknown or has shifts"):
        Schema.parse({**BASE, "encoding": encoding})


def test_what_is_wrong_with_a_file_has_its_line_in_schema_init_alone(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 7 + "1,2,3\n")
    assert main(["schema", "init", str(path)]) == 2
    assert "row 9 of the file does not have the 2 cells" in capsys.readouterr().err
    unknown = tmp_path / "u.csv"
    unknown.write_bytes(b"a,b\n" + b"1,x\n" * 7 + b"1,\x81\x8d\xff\xfe\x00\n")
    assert main(["schema", "init", str(unknown)]) == 2
    assert "is not UTF-8 text in line 9" in capsys.readouterr().err
    schema = tmp_path / "s.json"
    columns = [{"name": "a", "type": "integer", "min": 0, "max": 9}]
    columns.append({"name": "b", "type": "categorical", "values": ["x"]})
    Schema.parse({"version": 1, "columns": columns}).dump(schema)
    for file, said in ((path, ": a row does not have"), (unknown, ": is not UTF-8 text: save")):
        assert main(["schema", "check", str(schema), str(file)]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "made",
    [
        {"type": "key", "pattern": "{" + "9" * 300_000 + "}"},
        {"type": "key", "pattern": "{f}" * 300},
        {"type": "key", "place": 10**40},
        {"type": "filled", "values": ["x" * 10**6]},
        {"type": "filled", "values": [10**400]},
    ],
    ids=["digits", "letters", "place", "text", "number"],
)
def test_what_no_table_can_hold_is_refused_before_anything_is_spent(made):
    with pytest.raises(SchemaError, match=r"^schema: generated.0\..*(too long|below|must be)"):
        Schema.parse({**BASE, "generated": [{"name": "k", "place": 0, **made}]})


def test_long_constants_and_identifiers_come_back_empty():
    frame = pd.DataFrame({"a": [True, False] * 20, "long": ["x" * 2000] * 40})
    frame["id"] = [f"{'y' * 300}{k:02}" for k in range(40)]
    made = propose(frame).generated
    assert [(column.type, column.values) for column in made] == [("filled", ())] * 2


def test_long_texts_are_written_in_parts_that_fit_into_memory():
    """A thousand rows, each of which can have a megabyte, are no gigabyte at a time."""
    schema = Schema.parse(
        {
            "version": 1,
            "columns": [{"name": "z", "type": "categorical", "values": ["x" * 2**20, "b"]}],
        }
    )
    run = Synthesizer(epsilon=10, insecure_seed=1).fit(
        pd.DataFrame({"z": ["b"] * 9}), schema=schema
    )
    assert [len(page) for page in run.release_.draw(300, seed=1).pages()] == [128, 128, 44]
