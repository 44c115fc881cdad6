"""A type of columns that the package does not know: one class, one entry, and all of it works."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from adaptive_qs import answer
from adaptive_qs.audit.audit import audit
from adaptive_qs.cli.entry import main
from adaptive_qs.domain import BinLabel
from adaptive_qs.errors import SchemaError
from adaptive_qs.table import cells
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import OUTSIDE, UNREADABLE, ColumnBase, Draft
from adaptive_qs.table.schema import Schema, bind_column_types
from scripts.make_reference import render

_HEX = re.compile(r"#[0-9a-f]{6}")


class Grey(ColumnBase):
    """Grey levels such as "#4f4f4f", from black to white in so many shades."""

    type: Literal["grey"]
    shades: int
    """How many codes: a divisor of 256."""
    ordered: bool = True

    @property
    def num_values(self):
        return self.shades

    def declares(self, text):
        return self._code(text) >= 0

    def _check_values(self):
        if self.shades < 1 or 256 % self.shades:
            raise ValueError(f"{self.shades} shades do not part 256 levels. Use a power of two")

    @property
    def _width(self):
        return 256 // self.shades

    def read(self, values):
        texts = cells.as_text(values).to_pylist()
        return np.array([self._code(text or "") for text in texts], dtype=np.int64)

    def _code(self, text):
        if not _HEX.fullmatch(text):
            return UNREADABLE
        if len({text[1:3], text[3:5], text[5:]}) > 1:
            return OUTSIDE
        return int(text[1:3], 16) // self._width

    def draw(self, codes, rng):
        levels = codes * self._width + rng.integers(0, self._width, len(codes))
        return pa.array(["#" + f"{level:02x}" * 3 for level in levels.tolist()], pa.string())

    def value_labels(self):
        ends = [(k * self._width, (k + 1) * self._width - 1) for k in range(self.shades)]
        return [BinLabel(f"grey {a}..{b}", str(a), str(b)) for a, b in ends]

    @classmethod
    def draft(cls, name, profile):
        if not profile.values or not all(map(_HEX.fullmatch, profile.values)):
            return None
        return Draft({"type": "grey", "shades": 8})


@pytest.fixture(autouse=True)
def grey(monkeypatch):
    monkeypatch.setitem(COLUMN_TYPES, "grey", Grey)
    bind_column_types()
    yield
    monkeypatch.undo()
    bind_column_types()


SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "paint", "type": "grey", "shades": 4, "missing": [""]},
        {"name": "sold", "type": "integer", "min": 0, "max": 9},
    ],
}
LEVELS = [0, 63, 64, 130, 200, 255]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    paint = ["#" + f"{level:02x}" * 3 for level in rng.choice(LEVELS, 300)]
    frame = pd.DataFrame({"paint": paint, "sold": rng.integers(0, 10, 300)})
    frame.loc[:20, "paint"] = ""
    path = tmp_path / "paint.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.json"
    Schema.parse(SCHEMA).dump(path)
    return path


def test_the_schema_is_read_written_published_and_checked(table, schema, capsys):
    assert Schema.load(schema) == Schema.parse(SCHEMA)
    columns = json.loads(render("schema"))["properties"]["columns"]
    assert columns["items"]["discriminator"]["mapping"]["grey"]
    assert main(["schema", "check", str(schema), str(table)]) == 0
    assert "15 codes in total" in capsys.readouterr().out
    with pytest.raises(SchemaError, match="column 'paint': 3 shades do not part 256 levels"):
        Schema.parse({"version": 1, "columns": [{"name": "paint", "type": "grey", "shades": 3}]})
    with pytest.raises(SchemaError, match=r"use one of .*'grey'"):
        Schema.parse({"version": 1, "columns": [{"name": "paint", "type": "gray"}]})


def test_it_is_proposed(table, tmp_path, capsys):
    out = tmp_path / "proposed.json"
    assert main(["schema", "init", str(table), "--out", str(out)]) == 0
    assert Schema.load(out).column("paint").type == "grey"
    assert re.search(r"paint +grey +8 values; missing: empty cell +9", capsys.readouterr().out)


def test_synthesize_gives_a_table_of_the_same_kind(table, schema, tmp_path):
    out = tmp_path / "synthetic.csv"
    command = ["synthesize", str(table), "--schema", str(schema), "--out", str(out)]
    assert main([*command, "--rho", "20", "--delta", "1e-9", "--seed", "1"]) == 0
    made = pd.read_csv(out, keep_default_na=False)
    domain = Schema.load(schema).domain()
    assert domain.sizes == (5, 10)
    true = pd.read_csv(table, keep_default_na=False)
    shades = [
        Counter("" if text == "" else int(text[1:3], 16) // 64 for text in frame["paint"])
        for frame in (made, true)
    ]
    assert shades[0].keys() == shades[1].keys()
    # Noise of less than 1 at this budget, and less than 1 by rounding to whole rows.
    assert all(abs(shades[0][k] - shades[1][k]) <= 6 for k in shades[1])


@pytest.mark.filterwarnings("ignore:epsilon")
def test_answer_names_its_queries(table, schema):
    workload = {"version": 1, "parts": [{"attributes": [["paint"]], "queries": "prefix"}]}
    answers = answer(str(table), str(schema), workload, rho=1e5, beyond_limits=True).to_pandas()
    true = pd.read_csv(table, keep_default_na=False)["paint"]
    levels = true[true != ""].map(lambda text: int(text[1:3], 16))
    found = dict(zip(answers["query"], answers["estimate"]))
    for end in (63, 127, 191, 255):
        assert round(found[f"paint <= {end}"]) == (levels <= end).sum()


def test_the_audit_tries_it():
    report = audit(Schema.parse(SCHEMA), 2, pairs=4, seed=1)
    assert report.clean
    assert report.pairs == 4
