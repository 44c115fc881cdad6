"""How single cells are read, whatever type they arrive in."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import uuid
import zoneinfo
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.answering.api import answer
from adaptive_qs.errors import DataError
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table import read as readers
from adaptive_qs.table.cells import as_integers, object_cells
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import read_integer

from .helpers import schema_of


def codes(column, array):
    return read_table(pa.table({"a": array}), schema_of({"a": column})).columns[0].tolist()


INTEGER = {"type": "integer", "min": -10, "max": 50, "missing": ["?", "-99"]}
CLIP, MISSING = ({**INTEGER, "outside": way} for way in ("clip", "missing"))
LETTERS = {"type": "categorical", "values": ["1", "x"], "catch_all": "rest", "missing": [""]}
LISTED = {"type": "categorical", "values": [3, 1], "catch_all": -1}
DAYS = {"type": "date", "min": "2020-01-01", "max": "2020-01-09"}
HOURS = {"type": "datetime", "min": "1969-12-31T22:00:00", "max": "1970-01-01T02:00:00"}
BEYOND = ["51", "-11", "123456789012345678"]
LAST = [dt.datetime(2020, 1, 9, 23, 59)]
READ = [
    (CLIP, BEYOND, [60, 0, 60]),
    (MISSING, [*BEYOND, "x", "1.5", ""], [61] * 6),
    (MISSING, pa.array([2**64 - 1, 2**63, 7], pa.uint64()), [61, 61, 17]),
    (LETTERS, ["x ", "1", "y", "rest", "", None], [1, 0, 2, 2, 3, 3]),
    (LETTERS, [1.0, 7.0, None], [0, 2, 3]),
    ({"type": "categorical", "values": ["True", "False"]}, [False, True], [1, 0]),
    (LISTED, ["1.0", "3", "x", "-1", "0"], [1, 0, 2, 2, 2]),
    ({"type": "categorical", "values": [True, False]}, ["false", "T"], [1, 0]),
    (DAYS, ["2020-01-01", "2020-01-02T23:59:59", "2020-01-09 10:00", "20200103"], [0, 1, 8, 2]),
    (DAYS, [dt.date(2020, 1, 2)], [1]),
    *((DAYS, pa.array(LAST, pa.timestamp(unit)), [8]) for unit in ("s", "ms", "us", "ns")),
    (HOURS, ["1969-12-31T23:59:59.9", "1970-01-01T01:00:00+01:00"], [1, 2]),
    (HOURS, pa.array([dt.datetime(1970, 1, 1, 0, 30)], pa.timestamp("us", "Europe/Berlin")), [2]),
    ({**DAYS, "format": "%d.%m.%y"}, ["02.01.20"], [1]),
]


@pytest.mark.parametrize(("column", "cells", "expected"), READ)
def test_cells_have_these_codes(column, cells, expected):
    assert codes(column, cells) == expected


def test_csv_conventions(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(
        b'\xef\xbb\xbf b ,a,extra\r\n1,"x, ""y""",?\r\n\r\n2,"two\r\nlines",?\r\n3,  plain  ,'
    )
    a = {"type": "categorical", "values": ["plain", 'x, "y"', "two\r\nlines"]}
    schema = schema_of({"a": a, "b": {"type": "integer", "min": 1, "max": 3}})
    table = read_table(path, schema.model_copy(update={"ignore": ("extra", "absent")}))
    assert [column.tolist() for column in table.columns] == [[1, 2, 0], [0, 1, 2]]


def test_column_names_that_are_numbers():
    schema = Schema.parse({"0": 2, "1": 2})
    assert read_table(pd.DataFrame([[0, 1], [1, 1]]), schema).columns[0].tolist() == [0, 1]


# A cell of a data frame is read by itself: whatever stands in other rows, its code is the same.

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
CELLS = {
    "text": "unknown",
    "digits": "39",
    "half a pair": "a\ud800",
    "true": True,
    "numpy true": np.bool_(True),
    "integer": 1,
    "numpy integer": np.int16(1),
    "long integer": 10_000_000_000,
    "longer than 64 bits": 10**30,
    "whole number": 39.0,
    "long whole number": 1e10,
    "number": 0.7,
    "single precision": np.float32(0.7),
    "decimal": decimal.Decimal("39.00"),
    "date": dt.date(2020, 6, 15),
    "moment": dt.datetime(2020, 6, 15, 12),
    "midnight in Berlin": dt.datetime(2020, 6, 15, tzinfo=BERLIN),
    "midnight in Berlin, 1890": dt.datetime(1890, 6, 15, tzinfo=BERLIN),
    "midnight of pandas": pd.Timestamp("2020-06-15", tz="Asia/Kolkata"),
    "midnight, fixed offset": dt.datetime(
        2020, 6, 15, tzinfo=dt.timezone(dt.timedelta(hours=-9.5))
    ),
    "numpy moment": np.datetime64("2020-06-15"),
    "none": None,
    "nan": float("nan"),
    "NaT": pd.NaT,
    "NA": pd.NA,
    "decimal nan": decimal.Decimal("nan"),
}
COLUMNS = {
    "words": {
        "type": "categorical",
        "values": ["true", "39", "1", "10000000000", "2020-06-15"],
        "catch_all": "rest",
        "missing": ["?"],
    },
    "Python's words": {
        "type": "categorical", "values": ["True", "False"], "catch_all": "rest", "missing": ["?"]
    },
    "listed integers": {
        "type": "categorical", "values": [39, 1, 10**10], "catch_all": -1, "missing": ["?"]
    },
    "integer": {"type": "integer", "min": -5, "max": 50, "outside": "missing", "missing": ["?"]},
    "numeric": {"type": "numeric", "edges": [0, 0.7, 1, 50], "outside": "missing",
                "missing": ["?"]},
    "boolean": {"type": "boolean", "outside": "missing", "missing": ["?"]},
    "date": {"type": "date", "min": "1890-06-10", "max": "2020-12-31", "outside": "missing",
             "missing": ["?"]},
    "written date": {"type": "date", "min": "2020-01-01", "max": "2020-12-31",
                     "format": "%d.%m.%Y", "outside": "missing", "missing": ["?"]},
    "datetime": {"type": "datetime", "min": "1890-06-10T00:00:00", "max": "2020-12-31T00:00:00",
                 "outside": "missing", "missing": ["?"]},
}  # fmt: skip
SCHEMA = schema_of(COLUMNS)


def objects(cells):
    """Cells that numpy shall not look into."""
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def objects_codes(values):
    """The codes of the same cells under every column, shape (columns, rows)."""
    frame = pd.DataFrame(dict.fromkeys(COLUMNS, pd.Series(values)))
    return np.array(read_table(frame, SCHEMA).columns)


@pytest.fixture(scope="module")
def alone():
    """What every cell is read as in a table of its own."""
    return {
        name: objects_codes(pd.Series(objects([cell]), dtype=object))
        for name, cell in CELLS.items()
    }


@pytest.mark.parametrize("neighbour", CELLS)
@pytest.mark.one_in(3)
def test_a_cell_of_another_type_changes_no_other(alone, neighbour):
    names = [name for name in CELLS if name != neighbour]
    read = objects_codes(pd.Series(objects([CELLS[n] for n in (*names, neighbour)]), dtype=object))
    np.testing.assert_array_equal(read, np.hstack([alone[n] for n in (*names, neighbour)]))
    for name in names[list(CELLS).index(neighbour) :]:  # of each pair once: both orders come
        pair = objects_codes(pd.Series(objects([CELLS[name], CELLS[neighbour]] * 2), dtype=object))
        np.testing.assert_array_equal(pair, np.hstack([alone[name], alone[neighbour]] * 2))


@pytest.mark.slow
def test_categories_are_read_like_cells(alone):
    unusual = "half a pair", "longer than 64 bits"
    names = [n for n, cell in CELLS.items() if not pd.isna(cell) and n not in unusual]
    for name, other in itertools.product(names, ["text", "number", "midnight of pandas"]):
        index = pd.Index(objects([CELLS[name], CELLS[other]]), dtype=object)
        if index.is_unique:
            column = pd.Categorical.from_codes([0, 1, -1], index)
            expected = np.hstack([alone[name], alone[other], alone["none"]])
            np.testing.assert_array_equal(objects_codes(column), expected)


def test_categories_that_no_row_has_are_not_looked_at():
    index = pd.Index(objects([b"x", "39", 1]), dtype=object)
    read = objects_codes(pd.Series(pd.Categorical.from_codes([1, 2, -1], index)))
    np.testing.assert_array_equal(
        read, objects_codes(pd.Series(objects(["39", 1, None]), dtype=object))
    )


@pytest.mark.parametrize(
    ("names", "dtypes"),
    [
        (["text", "digits"], ["str", "string", "category"]),
        (["true", "true"], [bool, "boolean", "category"]),
        (["integer", "long integer"], ["int64", "Int64", float, "Float64", "category"]),
        (["whole number", "number"], ["float64", "Float64", "category"]),
        (["date", "date"], ["datetime64[s]", "datetime64[ns]"]),
        (["moment", "date"], ["datetime64[ms]"]),
        (["midnight in Berlin"], ["datetime64[ns, Europe/Berlin]"]),
        (["midnight, fixed offset"], ["datetime64[us, UTC-09:30]"]),
    ],
)
def test_a_column_of_one_type_is_read_like_its_cells(alone, names, dtypes):
    cells = [CELLS[name] for name in names]
    for dtype in dtypes:
        column = pd.Series(cells, dtype=dtype)
        expected = np.hstack([alone[name] for name in names])
        np.testing.assert_array_equal(objects_codes(column), expected)
        if dtype not in (bool, "int64"):
            expected = np.hstack([expected, alone["none"]])
            np.testing.assert_array_equal(
                objects_codes(pd.Series([*cells, None], dtype=dtype)), expected
            )


def test_what_the_cells_are_read_as(alone):
    def read(column, *names):
        row = list(COLUMNS).index(column)
        return [int(alone[name][row, 0]) for name in names]

    assert read("words", "true", "numpy true", "digits", "whole number", "decimal") == [
        0, 0, 1, 1, 1
    ]  # fmt: skip
    assert read("words", "integer", "long integer", "long whole number") == [2, 3, 3]
    assert read("words", "date", "numpy moment", "moment", "text", "none") == [4, 4, 5, 5, 6]
    assert read("Python's words", "true", "text") == [0, 2]
    assert read("listed integers", "digits", "integer", "long whole number", "text") == [0, 1, 2, 3]
    assert read("integer", "integer", "decimal", "number", "nan", "NA") == [6, 44, 56, 56, 56]
    assert read("numeric", "single precision", "number", "digits", "NaT") == [1, 1, 2, 3]
    assert read("boolean", "true", "integer", "text", "decimal nan") == [1, 1, 2, 2]
    assert read("integer", "longer than 64 bits") == [56]
    day = (dt.date(2020, 6, 15) - dt.date(1890, 6, 10)).days
    names = [name for name in CELLS if name.startswith(("midnight", "date", "moment"))]
    expected = [5 if name.endswith("1890") else day for name in names]
    assert read("date", *names) == expected
    assert read("written date", "date", "midnight in Berlin") == [166, 166]
    hours = read("datetime", "date", "midnight in Berlin", "midnight, fixed offset")
    assert np.diff(hours).tolist() == [-2, 11]


@pytest.mark.parametrize("cell", [b"x", ["x"], {"x": 1}, uuid.UUID(int=7), dt.timedelta(1),
                                  np.timedelta64(1, "s"), dt.time(1), 1j])  # fmt: skip
def test_other_objects_are_refused_and_not_quoted(cell):
    for values in ([cell], ["a", cell, 1]):
        frame = pd.DataFrame({"words": pd.Series(objects(values), dtype=object)})
        with pytest.raises(DataError) as caught:
            read_table(frame, schema_of({"words": COLUMNS["words"]}))
        assert str(caught.value) == (
            "table: column 'words' has objects of other types: "
            "convert it to text, numbers, booleans, dates, or dates with times"
        )


def test_objects_of_polars(alone):
    names = ["text", "integer", "none", "midnight in Berlin"]
    column = pl.Series("x", [CELLS[name] for name in names], dtype=pl.Object)
    frame = pl.DataFrame(dict.fromkeys(COLUMNS, column))
    read = np.array(read_table(frame, SCHEMA).columns)
    np.testing.assert_array_equal(read, np.hstack([alone[name] for name in names]))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_blocks_of_frames(alone, monkeypatch, rows):
    monkeypatch.setattr(readers, "FRAME_ROWS", rows)
    read = objects_codes(pd.Series(objects(list(CELLS.values())), dtype=object))
    np.testing.assert_array_equal(read, np.hstack([alone[name] for name in CELLS]))


def test_text_alone_and_beside_others_is_the_same_array():
    texts = ["b", "a", None, "b", float("nan"), pd.NA]
    plain = object_cells(objects(texts))
    mixed = object_cells(objects([*texts, 1]))
    (strings, _) = mixed.parts
    assert [None if i < 0 else strings[i].as_py() for i in mixed.indices[:-1]] == plain.to_pylist()


def listed(values, **more):
    column = {"name": "flag", "type": "categorical", "values": values, "catch_all": "other"}
    return {"version": 1, "columns": [{**column, **more}]}


FLAGS = listed(["true", "false"])
LONG = listed(["10000000000", "20000000000"], missing=["?"])
BILLIONS = [10_000_000_000, 20_000_000_000]


def nearly_exact(frame, schema):
    """Answers with next to no noise."""
    return answer(frame, schema, 1, cost=1e4, insecure_seed=1, beyond_limits=True)


@pytest.mark.parametrize(
    ("schema", "cells", "more"),
    [
        *((FLAGS, [True, False], more) for more in ("unknown", 1, 0.5, dt.date(2020, 1, 1))),
        (FLAGS, ["true", "false"], 2),
        *((LONG, BILLIONS, more) for more in (None, "x", 0.5)),
    ],
)
def test_one_row_moves_one_count(schema, cells, more, tmp_path):
    """Through both doors, with next to no noise: a single row must not re-code the others."""
    for values in ([*cells * 1000], [*cells * 1000, more]):
        frame = pd.DataFrame({"flag": values})
        with pytest.warns(UserWarning, match="insecure_seed"):
            answers = nearly_exact(frame, schema)
        estimates = answers.to_pandas()["estimate"]
        added = len(values) - 2000
        assert np.round(estimates[:2]).tolist() == [1000, 1000]
        assert np.round(estimates[2:].sum()) == added
    with pytest.warns(UserWarning, match="insecure_seed"):
        model = Synthesizer(
            rho=100.0, workload=1, insecure_seed=1, workers=1, beyond_limits=True
        ).fit(frame, schema=schema)
    counts = model.sample(seed=1)["flag"].astype(str).value_counts()
    assert np.abs(counts[schema["columns"][0]["values"]] - 1000).max() <= 2  # what fitting rounds


@pytest.mark.parametrize("kind", ["pandas", "text"])
def test_dates_with_a_time_zone_stay_on_their_day(kind):
    moments = pd.Series(["2020-06-15 00:00", "2020-01-01 23:59"]).astype("datetime64[ns]")
    zoned = moments.dt.tz_localize("Europe/Berlin")
    column = zoned if kind == "pandas" else zoned.map(lambda moment: moment.isoformat())
    day = {"name": "d", "type": "date", "min": "2020-01-01", "max": "2020-12-31"}
    schema = {"version": 1, "columns": [day]}
    frame = pd.DataFrame({"d": pd.concat([column] * 1500)})
    with pytest.warns(UserWarning, match="insecure_seed"):
        answers = nearly_exact(frame, schema).to_pandas()
    filled = answers[np.round(answers["estimate"]) > 0]
    assert filled["query"].tolist() == ["d = 2020-01-01", "d = 2020-06-15"]
    assert np.round(filled["estimate"]).tolist() == [1500, 1500]


@pytest.mark.parametrize("form", ["objects", "arrow"])
def test_decimals_that_no_double_holds_keep_their_digits(form):
    """Two identifiers that are one double; other decimals are the numbers that they were."""
    ids = ["12345678901234567890", "12345678901234567891", "5", "0.5"]
    found = [decimal.Decimal(text) for text in (*ids[::-1], "5.00")]
    cells = pd.DataFrame({"id": pd.Series([*found, None], dtype=object)})
    if form == "arrow":
        cells = pa.table({"id": pa.array([*found, None], pa.decimal128(30, 2))})
    schema = Schema.parse({"version": 1, "columns": [
        {"name": "id", "type": "categorical", "values": ids, "missing": [""]},
    ]})  # fmt: skip
    assert read_table(cells, schema).columns[0].tolist() == [3, 2, 1, 0, 2, 4]
    wide = Schema.parse({"version": 1, "columns": [
        {"name": "id", "type": "numeric", "edges": [0, 10, 1e30], "outside": "clip"},
    ]})  # fmt: skip
    large = [decimal.Decimal(text) for text in ("1e25", "3")]
    codes = read_table(pd.DataFrame({"id": pd.Series(large, dtype=object)}), wide).columns[0]
    assert codes.tolist() == [1, 0]


@given(st.from_regex(r"[+-]?[0-9]{1,3}(\.[0-9]{0,3})?([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_whole_numbers_are_integers_in_any_spelling(text):
    exact = Fraction(text.replace(".e", "e").replace(".E", "E").rstrip("."))
    whole = exact.denominator == 1 and abs(exact) < 10**18
    values, readable = as_integers(pa.array([text]))
    assert (readable[0], values[0]) == (whole, exact if whole else 0)
    assert read_integer(text) == (exact if whole else None)
