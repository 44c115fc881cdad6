"""How single cells are read, whatever type they arrive in."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from adaptive_qs.data.encode import encode_file, encode_table
from adaptive_qs.data.schema import Schema


def codes(column, array):
    schema = Schema.parse({"version": 1, "columns": [{"name": "a", **column}]})
    return encode_table(pa.table({"a": array}), schema).columns[0].tolist()


INTEGER = {"type": "integer", "min": -10, "max": 50, "missing": ["?", "-99"]}


def test_integers():
    texts = ["39", "39.0", " +39\t", "0039", "-10", "-0", "?", "-99", "-99.0", None]
    assert codes(INTEGER, texts) == [49, 49, 49, 49, 0, 10, 61, 61, 61, 61]
    assert codes(INTEGER, [39.0, float("nan"), None, -99.0]) == [49, 61, 61, 61]
    assert codes(INTEGER, pa.array([0, 50], pa.uint64())) == [10, 60]
    assert codes(INTEGER, pa.array([decimal.Decimal("39.00")])) == [49]


def test_integers_outside():
    clip = {**INTEGER, "outside": "clip"}
    texts = ["51", "-11", "123456789012345678"]
    assert codes(clip, texts) == [60, 0, 60]
    missing = {**INTEGER, "outside": "missing"}
    assert codes(missing, [*texts, "x", "1.5", ""]) == [61] * 6


def test_uneven_bins():
    column = {"type": "integer", "min": 0, "max": 9, "bin_starts": [0, 1, 9]}
    assert codes(column, [0, 1, 8, 9]) == [0, 1, 1, 2]
    column = {"type": "numeric", "edges": [0, 0.7, 1]}
    assert codes(column, ["0", ".69", "0.7", "7e-1", "1", "1."]) == [0, 0, 1, 1, 1, 1]
    assert codes(column, pa.array([0.7, 1.0], pa.float32())) == [1, 1]
    assert codes({**column, "outside": "clip"}, [-5.0, 1.5]) == [0, 1]


def test_booleans():
    words = ["true", "FALSE", "T", "f", "Yes", "no", "1", "0", "1.0"[:1]]
    assert codes({"type": "boolean"}, words) == [1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert codes({"type": "boolean"}, [True, False]) == [1, 0]
    assert codes({"type": "boolean"}, [1.0, 0.0]) == [1, 0]
    assert codes({"type": "boolean", "missing": ["?"], "outside": "missing"}, ["x"]) == [2]


def test_categories():
    column = {"type": "categorical", "values": ["1", "x"], "catch_all": "rest", "missing": [""]}
    assert codes(column, ["x ", "1", "y", "rest", "", None]) == [1, 0, 2, 2, 3, 3]
    assert codes(column, [1.0, 7.0, None]) == [0, 2, 3]
    assert codes({"type": "categorical", "values": ["True", "False"]}, [False, True]) == [1, 0]
    numbers = {"type": "categorical", "values": [3, 1], "catch_all": -1}
    assert codes(numbers, ["1.0", "3", "x", "-1", "0"]) == [1, 0, 2, 2, 2]
    assert codes({"type": "categorical", "values": [True, False]}, ["false", "T"]) == [1, 0]


def test_unused_dictionary_values_do_not_count():
    column = {"type": "categorical", "values": ["x"]}
    assert codes(column, pa.DictionaryArray.from_arrays([0, 0], ["x", "secret"])) == [0, 0]


def test_dates_and_times():
    day = {"type": "date", "min": "2020-01-01", "max": "2020-01-09"}
    texts = ["2020-01-01", "2020-01-02T23:59:59", "2020-01-09 10:00", "20200103"]
    assert codes(day, texts) == [0, 1, 8, 2]
    assert codes(day, [dt.date(2020, 1, 2)]) == [1]
    for unit in ("s", "ms", "us", "ns"):
        stamps = pa.array([dt.datetime(2020, 1, 9, 23, 59)], pa.timestamp(unit))
        assert codes(day, stamps) == [8]
    hour = {"type": "datetime", "min": "1969-12-31T22:00:00", "max": "1970-01-01T02:00:00"}
    assert codes(hour, ["1969-12-31T23:59:59.9", "1970-01-01T01:00:00+01:00"]) == [1, 2]
    zoned = pa.array([dt.datetime(1970, 1, 1, 0, 30)], pa.timestamp("us", "Europe/Berlin"))
    assert codes(hour, zoned) == [2]
    written = {**day, "format": "%d.%m.%y"}
    assert codes(written, ["02.01.20"]) == [1]


def test_csv_conventions(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(
        b'\xef\xbb\xbf b ,a,extra\r\n1,"x, ""y""",?\r\n\r\n2,"two\r\nlines",?\r\n3,  plain  ,'
    )
    schema = Schema.parse(
        {
            "version": 1,
            "columns": [
                {"name": "a", "type": "categorical",
                 "values": ["plain", 'x, "y"', "two\r\nlines"]},
                {"name": "b", "type": "integer", "min": 1, "max": 3},
            ],
            "ignore": ["extra", "absent"],
        }
    )  # fmt: skip
    table = encode_file(path, schema)
    assert [column.tolist() for column in table.columns] == [[1, 2, 0], [0, 1, 2]]


@pytest.mark.parametrize("size", [1, 256, 257, 1_000, 100_000])
def test_many_categories(tmp_path, size):
    values = [f"v{i}" for i in range(size)]
    schema = Schema.parse(
        {"version": 1, "columns": [{"name": "a", "type": "categorical", "values": values}]}
    )
    path = tmp_path / "t.csv"
    pd.DataFrame({"a": values}).to_csv(path, index=False)
    column = encode_file(path, schema).columns[0]
    np.testing.assert_array_equal(column, np.arange(size))
    assert column.dtype == np.min_scalar_type(size - 1)
    assert not column.flags.writeable


def test_column_names_that_are_numbers():
    schema = Schema.parse({"0": 2, "1": 2})
    assert encode_table(pd.DataFrame([[0, 1], [1, 1]]), schema).columns[0].tolist() == [0, 1]


def test_categories_of_pandas_with_128_levels():
    schema = Schema.parse(
        {"version": 1, "columns": [{"name": "a", "type": "integer", "min": 0, "max": 127}]}
    )
    frame = pd.DataFrame({"a": pd.Categorical(range(128))})
    assert encode_table(frame, schema).columns[0].tolist() == list(range(128))
