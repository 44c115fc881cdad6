"""Sampled tables are kept as the fitted one was, and tell nothing of its rows by that."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from adaptive_qs.synthesizer import Synthesizer

pytestmark = pytest.mark.usefixtures("quick_tables")

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "grade", "type": "categorical", "values": ["low", "mid", "high"], "ordered": True},
        {"name": "city", "type": "categorical", "values": ["Ulm", "Bonn"], "catch_all": "else"},
        {"name": "code", "type": "categorical", "values": [30, 10, 20], "missing": [""]},
        {"name": "age", "type": "integer", "min": 0, "max": 99, "bins": 10, "missing": [""]},
        {"name": "pay", "type": "numeric", "min": 0, "max": 1, "bins": 4, "decimals": 2},
        {"name": "flag", "type": "boolean", "missing": [""]},
        {"name": "day", "type": "date", "min": "2020-01-01", "max": "2020-01-09"},
    ],
}
LISTED = {
    "grade": ["low", "mid", "high"],
    "city": ["Ulm", "Bonn", "else"],
    "code": [30, 10, 20],
    "flag": [False, True],
}


def made(rows=240):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "grade": rng.choice(["high", "low"], rows),
            "city": rng.choice(["Bonn", "Kiel"], rows),
            "code": rng.choice([10, 20, 30], rows),
            "age": rng.integers(0, 100, rows),
            "pay": rng.integers(0, 100, rows) / 100,
            "flag": rng.integers(0, 2, rows) == 1,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9, rows), "D"),
        }
    )


def sampled(frame, rows=60, schema=SCHEMA):
    model = Synthesizer(rho=20, workload=1, workers=1, insecure_seed=1).fit(frame, schema=schema)
    table = model.sample(rows, seed=1)
    again = pickle.loads(pickle.dumps(model)).sample(rows, seed=1)  # noqa: S301
    assert str(again.dtypes if hasattr(again, "dtypes") else again.schema) == str(
        table.dtypes if hasattr(table, "dtypes") else table.schema
    )
    return table


@pytest.mark.parametrize("missing", [False, True])
def test_categories_come_back_as_those_of_the_schema_in_its_order(missing):
    frame = made()
    columns = list(LISTED)
    frame[columns] = frame[columns].astype("category")
    if missing:
        frame.loc[::3, ["code", "flag"]] = None
    table = sampled(frame)
    for name, values in LISTED.items():
        assert list(table[name].cat.categories) == values
        assert table[name].cat.ordered == (name == "grade")
        assert table[name].isna().any() == (missing and name in ("code", "flag"))
    assert table.grade.min() == "low"
    assert set(table.city.dropna()) == {"Bonn", "else"}
    assert set(table.code.dropna()) == {10, 20, 30}
    Synthesizer(rho=1, workers=1).fit(table, schema=SCHEMA)


def test_the_categories_of_the_private_frame_do_not_come_back():
    frame = made()
    seen = pd.CategoricalDtype(["high", "canary", "low"], ordered=True)
    other = frame.assign(grade=frame.grade.astype(seen))
    frame["grade"] = frame.grade.astype("category")
    one, two = (sampled(table).grade.dtype for table in (frame, other))
    assert one == two == pd.CategoricalDtype(["low", "mid", "high"], ordered=True)


def test_categories_of_columns_whose_values_are_not_listed_come_back_plain():
    frame = made()
    frame[["age", "pay", "day"]] = frame[["age", "pay", "day"]].astype("category")
    table = sampled(frame)
    assert [table[name].dtype.kind for name in ("age", "pay", "day")] == ["i", "f", "M"]


def test_discovered_values_are_the_categories():
    learnt = {"name": "city", "type": "categorical", "private_values": 5, "catch_all": "else"}
    schema = {"version": 1, "columns": [learnt]}
    frame = made(600)[["city"]].astype("category")
    table = sampled(frame, schema=schema)
    assert set(table.city.cat.categories) == {"Bonn", "Kiel", "else"}


NULLABLE = {
    "code": "Int16", "age": "UInt8", "pay": "Float64", "flag": "boolean", "city": "string",
}  # fmt: skip


@pytest.mark.parametrize("missing", [False, True])
def test_nullable_types_come_back(missing):
    frame = made().astype(NULLABLE)
    if missing:
        frame.loc[::3, ["code", "age", "flag"]] = pd.NA
    table = sampled(frame)
    wide = NULLABLE | {"code": "Int64", "age": "Int64"}
    assert {name: str(table[name].dtype) for name in NULLABLE} == wide
    for name in ("code", "age", "flag"):
        assert table[name].isna().any() == missing
    assert set(table.code.dropna()) == {10, 20, 30}
    assert table.flag.dropna().isin([True, False]).all()
    Synthesizer(rho=1, workers=1).fit(table, schema=SCHEMA)


def test_types_of_arrow_in_pandas_come_back():
    frame = made().convert_dtypes(dtype_backend="pyarrow")
    table = sampled(frame)
    assert all(isinstance(dtype, pd.ArrowDtype) for dtype in table.dtypes)
    assert str(table.day.dtype) == "date32[day][pyarrow]"


def test_plain_types_say_nothing_of_the_private_frame():
    """One row makes pandas keep a whole column in another plain type: nothing of it comes back."""
    frame = made()
    more = frame.iloc[:1].astype(object).assign(code="", age=np.nan, city=7, flag=None)
    one = pd.concat([frame.assign(flag=frame.flag.astype(object)), more])
    changed = [name for name in frame if one[name].dtype != frame[name].dtype]
    assert {"code", "age", "flag"} <= set(changed)  # and city, if pandas has a type for text
    text = str(pd.Series(["a"]).dtype)
    for table in (sampled(frame), sampled(one)):
        holes = table.isna().any()
        declared = {
            "grade": text,
            "city": text,
            "code": "Int64" if holes.code else "int64",
            "age": "Int64" if holes.age else "int64",
            "pay": "float64",
            "flag": "boolean" if holes.flag else "bool",
            "day": "datetime64[ms]",
        }
        assert table.dtypes.astype(str).to_dict() == declared


def test_what_inference_makes_of_a_nullable_column_does_not_come_back():
    """A column read by dtype_backend="numpy_nullable" is Int64, Float64 or string by its cells."""
    frame = made()
    kept = [
        str(sampled(frame.assign(age=frame.age.astype(dtype))).age.dtype)
        for dtype in ("Int64", "Float64", "string")
    ]
    assert kept == ["Int64"] * 3


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(["high", "mid", "canary", "low"])])
def test_categories_of_polars_come_back_as_those_of_the_schema(dtype):
    frame = pl.from_pandas(made()).with_columns(pl.col("grade").cast(dtype))
    table = sampled(frame)
    assert table.schema["grade"] == pl.Enum(LISTED["grade"])
    assert table.schema["city"] == pl.String()
    assert set(table["grade"]) <= set(LISTED["grade"])
    Synthesizer(rho=1, workers=1).fit(table, schema=SCHEMA)


def test_dictionaries_of_pyarrow_come_back_as_those_of_the_schema():
    frame = made().astype({"grade": "category", "code": "category"})
    frame.loc[::3, "code"] = None
    table = sampled(pa.Table.from_pandas(frame))
    assert table["grade"].type == pa.dictionary(pa.int32(), pa.string(), ordered=True)
    assert table["grade"].combine_chunks().dictionary.to_pylist() == LISTED["grade"]
    assert table["code"].type == pa.dictionary(pa.int32(), pa.int64())
    assert table["code"].null_count
    assert table["city"].type == pa.string()
    assert b"adaptive_qs.stamp" in table.schema.metadata
