"""Data dictionaries set types, values, ranges and missing markers of proposals."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.table.dictionary import Entry, read_dictionary
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema, open_topics
from tests.cli.small_inputs import write_book

N = 500
RNG = np.random.default_rng(5)
TABLE = {
    "race": RNG.choice(["1", "2", "9"], N),
    "size": RNG.choice(["1", "2", "3", "N"], N),
    "hours": RNG.choice(["N", *map(str, range(60))], N),
    "other": RNG.choice(["1", "7"], N),
    "code": RNG.choice(["01", "02"], N),
}
DICTIONARY = {
    "race": {"description": "Race", "values": {"1": "White", "2": "Black", "3": "Inuit", "9": "2"}},
    "size": {"values": {"3": "Small", "1": "Large", "2": "Medium", "N": "N/A (none)"}},
    "hours": {"values": {"min": 1, "max": 99, "0": "none", "N": "N/A"}},
    "other": {"values": {"1": "Yes", "2": "No"}},
    "code": {"values": {"01": "A", "02": "B", "03": "C"}},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["json", "csv", "xlsx"])
def test_a_dictionary_goes_before_the_rows(tmp_path, kind):
    table, path, out = tmp_path / "t.csv", tmp_path / f"d.{kind}", tmp_path / "p.json"
    pd.DataFrame(TABLE).to_csv(table, index=False)
    if kind == "json":
        path.write_text(json.dumps(DICTIONARY))
    else:
        rows = [(n, c, s) for n, e in DICTIONARY.items() for c, s in e["values"].items()]
        frame = pd.DataFrame(rows, columns=["Name", "Code", "Label"]).astype(str)
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_excel(path, index=False)
    words = ["schema", "init", str(table), "--dictionary", str(path), "--out", str(out)]
    assert main(words) == 0
    schema = Schema.load(out)
    race, size, hours, other, code = schema.columns
    assert (race.values, race.ordered, race.open) == ((1, 2, 3, 9), False, ())
    assert (size.values, size.ordered, size.missing) == ((3, 2, 1), True, ("N",))
    assert (hours.min, hours.max, hours.missing) == (0, 99, ("N",))
    assert other.listed != (1, 2)  # it has a value that the dictionary lacks
    assert code.values == ("01", "02", "03")
    assert race.description == ("Race" if kind == "json" else "")
    assert "values" not in open_topics(schema) or open_topics(schema)["values"] == ["other"]
    assert main(["schema", "check", str(out), str(table)]) == 0


def test_missing_markers_that_only_the_rows_have_are_asked_about():
    hours, race = [*TABLE["hours"][1:], "J. Smith"], [*TABLE["race"][1:], "NA"]
    known = {"hours": Entry(ends={"min": 0, "max": 99}), "race": Entry(labels={"9": "missing"})}
    known["race"].labels |= {"1": "a", "2": "b"}
    schema = propose(pd.DataFrame({"hours": hours, "race": race}), known)
    assert schema.column("hours").missing == ("N", "J. Smith")
    assert schema.column("race").missing == ("9", "NA")
    assert open_topics(schema)["missing"] == ["hours", "race"]


def test_what_is_no_dictionary_is_refused(tmp_path):
    for name, text in {"d.csv": "a,b\n1,2\n", "d.xlsx": "x", "none.json": None}.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(InputError):
            read_dictionary(tmp_path / name)
    with pytest.raises(InputError, match="no column that the data dictionary names"):
        propose(pd.DataFrame(TABLE), {"HOURS": Entry(labels={"1": "a"})})


def test_a_workbook_that_stands_for_much_is_refused(tmp_path):
    """By the limits of tables; 79 KB of empty cells took 3.8 GB."""
    rows = ["<row>", *["<c/>" * 100_000] * 200, "</row>"]
    write_book(tmp_path / "d.xlsx", rows, "xl/sharedStrings.xml", ())
    with pytest.raises(InputError):
        read_dictionary(tmp_path / "d.xlsx")


def test_long_lists_of_codes_take_time_in_proportion(tmp_path):
    codes = "".join(f"race,{k},code {k}\n" for k in range(20_000))
    (tmp_path / "d.csv").write_text(f"name,code,label\n{codes}")
    schema = propose(pd.DataFrame({"race": TABLE["race"]}), read_dictionary(tmp_path / "d.csv"))
    assert len(schema.columns[0].values) == 20_000
