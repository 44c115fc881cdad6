"""What every type of columns does: one contract, run with each type, as declared and in variations.

To hold a new type to it, give an example of it in ``scripts/make_reference.py`` and its cells in
``CELLS`` here.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pydantic import Field

from adaptive_qs.domain import BinLabel
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.table import cells as readers
from adaptive_qs.table.bin_density import build_drawers
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import MISSING, UNREADABLE
from adaptive_qs.table.columns.numeric import IntegerColumn
from adaptive_qs.table.columns.part import PartColumn
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.schema import Schema, bind_column_types
from adaptive_qs.table.write import write_table
from scripts.make_reference import COLUMNS

from ..extension.test_column_type import Grey
from ..published import validate_schema


class Cells(NamedTuple):
    """Cells that a column meets; those of private forms are for what stands in for them.

    Attributes:
        inside: declared values as text, among them both ends, with their codes, and the same values
            of other types.
        beyond: texts just below the least value and just above the greatest.
        other: a text that is no declared value, in no range.
    """

    inside: dict[str, tuple[int, tuple[Any, ...]]]
    beyond: tuple[str, ...]
    other: str


VALUES = {
    "text": {"type": "categorical", "values": ["b", "a", "a..b"]},
    "catch-all": {"type": "categorical", "values": ["b", "a"], "catch_all": "other"},
    "listed catch-all": {"type": "categorical", "values": ["b", "other", "a"], "catch_all": "b"},
    "numbers": {"type": "categorical", "values": [7, -3, 10]},
    "listed booleans": {"type": "categorical", "values": [True, False]},
    "integers": {"type": "integer", "min": -2, "max": 9},
    "boolean": {"type": "boolean"},
    "days": {"type": "date", "min": "2023-12-30", "max": "2024-03-01"},
    "minutes": {
        "type": "datetime", "granularity": "minute",
        "min": "2024-01-01T23:58:00", "max": "2024-01-02T00:03:00",
    },
}  # fmt: skip
BINS = {
    "bins": {"type": "integer", "min": -7, "max": 12, "bins": 6},
    "starts": {"type": "integer", "min": 0, "max": 999, "bin_starts": [0, 1, 10, 500]},
    "binned numbers": {"type": "numeric", "min": -1, "max": 2, "bins": 7},
    "edges": {"type": "numeric", "edges": [0, 0.1, 12.5, 1e22]},
    "weeks": {"type": "date", "granularity": "week", "min": "2024-01-01", "max": "2024-02-04"},
    "decades": {
        "type": "date",
        "granularity": "10 years",
        "min": "1890-01-01",
        "max": "2029-12-31",
    },
    "centuries": {
        "type": "date",
        "granularity": "100 years",
        "min": "1700-01-01",
        "max": "2099-12-31",
    },
}
SPELLED = {
    "days first": {
        "type": "date", "min": "2023-12-30", "max": "2024-03-01", "format": "%d.%m.%Y"
    },
    "months first": {
        "type": "date", "min": "2023-12-30", "max": "2024-03-01", "format": "%m/%d/%Y"
    },
    "decimal comma": {
        "type": "numeric", "edges": [-1000, 0, 0.5, 1234.5, 2e6], "decimals": 1,
        "decimal": ",", "thousands": ".",
    },
    "decimal comma, unrounded": {"type": "numeric", "edges": [1e-9, 1e22], "decimal": ","},
    "grouped by spaces": {
        "type": "integer", "min": -5000, "max": 1_999_999, "bin_starts": [-5000, 0, 1000, 20_000],
        "thousands": " ",
    },
}  # fmt: skip
PRIVATE = {
    "private values": {"type": "categorical", "private_values": 30, "catch_all": "other"},
    "private integers": {"type": "integer", "private_bins": 16, "min": 0},
    "private numbers": {"type": "numeric", "private_bins": 16, "decimals": 2, "outside": "clip"},
}
EXAMPLES: dict[str, dict[str, Any]] = {
    **COLUMNS,
    **{
        name: {"name": "x", **content}
        for name, content in (VALUES | BINS | SPELLED | PRIVATE).items()
    },
    "Grey": {"name": "paint", "type": "grey", "shades": 4},
}
CELLS = {
    "BooleanColumn": Cells({"No": (0, (False, 0, 0.0)), "true": (1, (True, 1, 1.0))}, (), "maybe"),
    "CategoricalColumn": Cells({"Bonn": (0, ()), "Ulm": (1, ()), "elsewhere": (2, ())}, (), "Rom"),
    "DateColumn": Cells(
        {
            "2019-01-01": (0, (dt.date(2019, 1, 1), dt.datetime(2019, 1, 1))),
            "2024-12-31": (71, (dt.date(2024, 12, 31), np.datetime64("2024-12-31", "s"))),
        },
        ("2018-12-31", "2025-01-01"),
        "soon",
    ),
    "DatetimeColumn": Cells(
        {
            "01.01.2024 00:00": (0, (dt.datetime(2024, 1, 1), pd.Timestamp(2024, 1, 1))),
            "31.12.2024 23:59": (8783, (dt.datetime(2024, 12, 31, 23, 59),)),
        },
        ("31.12.2023 23:59", "01.01.2025 00:00"),
        "soon",
    ),
    "IntegerColumn": Cells(
        {
            "0": (0, (0, 0.0, decimal.Decimal(0))),
            "14": (0, (14, np.int16(14))),
            "15.0": (1, (15, 15.0)),
            "240": (3, (240, 240.0)),
        },
        ("-1", "241"),
        "1.5",
    ),
    "NumericColumn": Cells(
        {
            "0": (0, (0, 0.0)),
            "4.9": (0, (4.9, np.float32(4.9), decimal.Decimal("4.9"))),
            "5": (1, (5, 5.0)),
            "250": (49, (250, 250.0)),
        },
        ("-0.1", "250.1"),
        "heavy",
    ),
    "private values": Cells({"value 0": (0, ()), "other": (8, ())}, (), "value 99"),
    "private integers": Cells({"0": (0, (0, 0.0)), "100": (15, (100,))}, ("-1", "101"), "1.5"),
    "private numbers": Cells({"0": (0, (0,)), "1e2": (15, (100.0,))}, ("-1", "101"), "tall"),
    "days first": Cells(
        {
            "30.12.2023": (0, (dt.date(2023, 12, 30),)),
            "1.3.2024": (62, (dt.date(2024, 3, 1), dt.datetime(2024, 3, 1, 12))),
        },
        ("29.12.2023", "02.03.2024"),
        "12/30/2023",
    ),
    "months first": Cells(
        {"12/30/2023": (0, (dt.date(2023, 12, 30),)), "3/1/2024": (62, ())},
        ("12/29/2023", "03/02/2024"),
        "30.12.2023",
    ),
    "decimal comma": Cells(
        {
            "-1.000,0": (0, (-1000, -1000.0)),
            "0,4": (1, (0.4, decimal.Decimal("0.4"))),
            ",5": (2, (0.5,)),
            "1234,4": (2, (np.float32(1234.4),)),
            "1.234,5": (3, (1234.5,)),
            "2.000.000": (3, (2_000_000, 2e6)),
            "2e6": (3, ()),
        },
        ("-1000,1", "2.000.000,5"),
        "0.4",
    ),
    "grouped by spaces": Cells(
        {
            "-5 000": (0, (-5000, -5000.0)),
            "999": (1, (999,)),
            "1\u00a0000": (2, (1000,)),
            "19\u202f999.0": (2, (19_999.0,)),
            "1 999 999": (3, (1_999_999,)),
        },
        ("-5 001", "2000000"),
        "19 99",
    ),
    "decades": Cells(
        {
            "1890-01-01": (0, (dt.date(1890, 1, 1),)),
            "1899-12-31": (0, ()),
            "1900-01-01": (1, ()),
            "2029-12-31": (13, (dt.date(2029, 12, 31),)),
        },
        ("1889-12-31", "2030-01-01"),
        "1890",
    ),
    "numbers": Cells({"7": (0, (7, 7.0)), "-3": (1, (-3,)), "10": (2, (10,))}, (), "8"),
    "listed booleans": Cells({"yes": (0, (True, 1)), "false": (1, (False, 0))}, (), "maybe"),
    "Grey": Cells({"#000000": (0, ()), "#404040": (1, ()), "#ffffff": (3, ())}, (), "#ff0000"),
}
MARKERS = ["-none-", ""]


@pytest.fixture(scope="module", autouse=True)
def toy():
    """The toy of tests/extension is held to the same."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(COLUMN_TYPES, "grey", Grey)
        bind_column_types()
        yield
    bind_column_types()


def schemas(name: str) -> Iterator[Schema]:
    """An example as declared, with missing markers, and with each choice of what is outside."""
    content = EXAMPLES[name]
    field = type(parsed(content).columns[0]).model_fields.get("outside")
    yield parsed(content)
    yield parsed(content | {"missing": MARKERS})
    learnt = "refuse" if name in PRIVATE else None  # ends that are learnt refuse no cell
    for choice in set(() if field is None else get_args(field.annotation)) - {learnt}:
        yield parsed(content | {"missing": MARKERS, "outside": choice})


def parsed(content: dict[str, Any]) -> Schema:
    return Schema.parse({"version": 1, "columns": [content]})


def ready(schema: Schema) -> Schema:
    """The schema with something in the place of what a run would learn."""
    return schema.model_copy(update={"columns": tuple(c.stand_in() for c in schema.columns)})


def codes_of(schema: Schema, cells: Any) -> list[int]:
    """The codes of an Arrow array, or of Python objects of any types."""
    name = schema.names[0]
    if not isinstance(cells, pa.Array):
        column = np.empty(len(cells), dtype=object)
        column[:] = cells
        return read_table(pd.DataFrame({name: column}), schema).columns[0].tolist()
    return read_table(pa.table({name: cells}), schema).columns[0].tolist()


def assert_refused(schema: Schema, cell: str | None) -> None:
    """In one line that names the column and quotes no cell, nor leads back to one."""
    with pytest.raises(DataError) as caught:
        codes_of(schema, pa.array([cell], pa.string()))
    said = str(caught.value)
    assert said.startswith(f"table: column {schema.names[0]!r} has ")
    assert ": " in said.removeprefix("table: ")
    assert "\n" not in said
    assert not cell or cell not in said
    assert caught.value.__context__ is None


# The contract: each of these holds for every schema of one column.


def codes_come_back(schema, cells, folder):
    """Values drawn for a code have that code, evenly or by a density: in memory, in CSV and in
    Parquet."""
    domain = schema.domain()
    codes = np.resize(np.arange(domain.sizes[0]), max(domain.sizes[0], 300))
    table = CodedTable.from_codes(domain, [codes])
    counts = np.random.default_rng(1).exponential(size=domain.sizes[0])
    for drawers in (build_drawers(schema.columns, lambda _: counts), {}):
        decoded = decode(table, schema, np.random.default_rng(0), drawers)
        np.testing.assert_array_equal(read_table(decoded, schema).columns[0], codes)
    for suffix in ("csv", "parquet"):
        path = folder / f"table.{suffix}"
        write_table(decoded, path, schema)
        np.testing.assert_array_equal(read_table(path, schema).columns[0], codes)


def every_code_has_a_label(schema, cells, folder):
    """Distinct ones, unknown and missing values last."""
    (column,) = schema.columns
    labels = column.labels_of_codes()
    assert len(set(labels)) == len(labels) == column.size == schema.domain().sizes[0]
    assert all(labels)
    assert (labels[-1].strip("()") == MISSING.strip("()")) == bool(column.missing)
    extra = column.size - column.num_values - bool(column.missing)
    assert extra == (column.catch_all_code == column.num_values)


def missing_cells_have_their_code(schema, cells, folder):
    """Null and every marker, in text and among objects; without a marker null is unknown."""
    (column,) = schema.columns
    if not column.missing:
        assert column.missing_code is None
        if column.other_code is None:
            assert_refused(schema, None)
        else:
            assert codes_of(schema, [None, "", float("nan")]) == [column.other_code] * 3
        return
    assert column.missing_code == column.size - 1
    meant = [None, *column.missing, f" {column.missing[0]}\t"]
    expected = [column.size - 1] * len(meant)
    assert codes_of(schema, pa.array(meant, pa.string())) == expected
    assert codes_of(schema, [*meant, float("nan"), pd.NA]) == [*expected, *expected[:2]]


def cells_have_their_codes(schema, cells, folder):
    """Both ends are inside; what is not declared is clipped, counted as missing or unknown, or
    refused, as the schema says."""
    (column,) = schema.columns
    inside = {text: code for text, (code, _) in cells.inside.items()}
    assert codes_of(schema, pa.array(inside)) == [*inside.values()]
    assert all(column.declares(text) or code == column.catch_all_code
               for text, code in inside.items())  # fmt: skip
    ends = 0, column.num_values - 1
    clips = getattr(column, "outside", "") == "clip"
    for text, end in [*zip(cells.beyond, ends), (cells.other, None)]:
        assert not column.declares(text)
        code = end if clips and end is not None else column.other_code
        if code is None:
            assert_refused(schema, text)
        else:
            assert codes_of(schema, pa.array([text])) == [code]


def a_cell_is_read_by_itself(schema, cells, folder):
    """A value has the same code as text, in an Arrow type and as an object among others."""
    every: list[tuple[Any, int]] = []
    for text, (code, others) in cells.inside.items():
        for value in (text, f"\t{text} ", *others):
            assert codes_of(schema, pa.array([value])) == [code]
            assert codes_of(schema, [value]) == [code]
            every.append((value, code))
    values, codes = zip(*every)
    assert codes_of(schema, values) == [*codes]
    assert codes_of(schema, values[::-1]) == [*codes[::-1]]


def json_comes_back(schema, cells, folder):
    """As a file, by the published JSON Schema too; a key that nobody knows is refused by both."""
    schema.dump(folder / "schema.json", force=True)
    again = Schema.load(folder / "schema.json")
    assert again == schema
    assert again.fingerprint == schema.fingerprint
    content = json.loads(schema.to_json())
    validate_schema(content)
    content["columns"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        validate_schema(content)
    with pytest.raises(SchemaError, match="colour"):
        Schema.parse(content)


CONTRACT = (codes_come_back, every_code_has_a_label, missing_cells_have_their_code, json_comes_back)
WITH_CELLS = (cells_have_their_codes, a_cell_is_read_by_itself)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("check", CONTRACT)
def test_every_type(check, name, tmp_path):
    for schema in schemas(name):
        check(ready(schema), None, tmp_path)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("check", WITH_CELLS)
def test_the_cells_of_every_type(check, name, tmp_path):
    for schema in schemas(name):
        check(ready(schema), CELLS[name], tmp_path)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_form_refuses_and_misses_what_its_column_will(name, tmp_path):
    for schema in schemas(name):
        json_comes_back(schema, None, tmp_path)
        (column,) = schema.columns
        (later,) = ready(schema).columns
        probe = column.probe
        probing = schema.model_copy(update={"columns": (probe,)})
        inside = pa.array([*CELLS[name].inside])
        assert codes_of(probing, inside) == [0] * len(inside)
        assert (column.name, column.missing) == (later.name, later.missing)
        assert later.num_values <= column.num_values
        missing_cells_have_their_code(probing, None, tmp_path)
        other = CELLS[name].other
        if later.other_code is None:
            assert_refused(probing, other)
        else:
            missed = later.other_code == later.missing_code
            assert codes_of(probing, pa.array([other])) == [probe.missing_code if missed else 0]


def test_every_registered_type_has_an_example_with_cells():
    types = {*COLUMN_TYPES.values()}
    shown = {type(parsed(EXAMPLES[name]).columns[0]) for name in CELLS}
    types -= {PartColumn}  # has no cells of its own: tests/table/test_parts.py
    assert types - shown == set(), "give an example in scripts/make_reference.py, and cells here"


# The label of a code says which values have that code.


@pytest.mark.parametrize("kind", VALUES)
def test_the_label_of_a_value_is_the_value(kind):
    schema = parsed(EXAMPLES[kind])
    labels = schema.columns[0].labels_of_codes()
    assert not any(isinstance(label, BinLabel) for label in labels)
    assert codes_of(schema, labels) == list(range(len(labels)))


@pytest.mark.parametrize("kind", BINS)
def test_the_ends_of_a_bin_have_its_code(kind):
    schema = parsed(EXAMPLES[kind])
    for code, label in enumerate(schema.columns[0].labels_of_codes()):
        if not isinstance(label, BinLabel):
            assert codes_of(schema, [label]) == [code]
        elif label.open:
            assert codes_of(schema, [label.first, label.last]) == [code, code + 1]
            assert label == f"[{label.first}, {label.last})"
        else:
            assert codes_of(schema, [label.first, label.last]) == [code, code]
            assert label in (f"{label.first}..{label.last}", f"[{label.first}, {label.last}]")


# The contract finds what a type gets wrong.


class NextCode(IntegerColumn):
    def draw(self, codes, rng):
        return super().draw((codes + 1) % self.num_values, rng)


class OtherText(IntegerColumn):
    def csv_texts(self, values):
        return pa.array(["240"] * len(values))


class SameLabels(IntegerColumn):
    def value_labels(self):
        return ["some"] * self.num_values


class FirstIsMissing(IntegerColumn):
    @property
    def missing_code(self):
        return 0 if self.missing else None


class AlwaysClips(IntegerColumn):
    def _refused(self, codes, readable, inside):
        return np.where(readable, codes, UNREADABLE)


class NoEnd(IntegerColumn):
    def read(self, values):
        codes = super().read(values)
        return np.where(readers.as_integers(values)[0] == self.max, UNREADABLE, codes)


class Quotes(IntegerColumn):
    def read(self, values):
        codes = super().read(values)
        for cell in values.filter(pa.array(codes < 0)).drop_null():
            raise DataError(f"table: column {self.name!r} has {cell}: remove it")
        return codes


class TextOnly(IntegerColumn):
    def read(self, values):
        return np.where(pa.types.is_string(values.type), super().read(values), UNREADABLE)


class SeesItsNeighbours(IntegerColumn):
    def read(self, values):
        codes = super().read(values)
        return np.where((codes == 0) & (codes == 3).any(), 1, codes)


class ForgetsItsBins(IntegerColumn):
    bin_starts: tuple[int, ...] | None = Field(default=None, exclude=True)


@pytest.fixture
def registered(monkeypatch):
    """Puts a class in the place of the one for integers."""

    def register(column_type):
        monkeypatch.setitem(COLUMN_TYPES, "integer", column_type)
        bind_column_types()

    yield register
    monkeypatch.undo()
    bind_column_types()


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (NextCode, codes_come_back),
        (OtherText, codes_come_back),
        (SameLabels, every_code_has_a_label),
        (FirstIsMissing, missing_cells_have_their_code),
        (AlwaysClips, cells_have_their_codes),
        (NoEnd, cells_have_their_codes),
        (Quotes, cells_have_their_codes),
        (TextOnly, a_cell_is_read_by_itself),
        (SeesItsNeighbours, a_cell_is_read_by_itself),
        (ForgetsItsBins, json_comes_back),
    ],
)
def test_a_planted_error_is_found(broken, check, registered, tmp_path):
    content = COLUMNS["IntegerColumn"] | {"missing": MARKERS, "outside": "refuse"}
    check(parsed(content), CELLS["IntegerColumn"], tmp_path)
    registered(broken)
    with pytest.raises((AssertionError, DataError, pytest.fail.Exception)):
        check(parsed(content), CELLS["IntegerColumn"], tmp_path)
