"""Sampled tables are of the library of the fitted one, and tell nothing of its rows by that."""

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


@pytest.mark.parametrize("dtype", ["category", "Int16", "string", "int64[pyarrow]"])
def test_types_of_the_private_frame_do_not_come_back(dtype):
    table = sampled(made().assign(code=lambda frame: frame.code.astype(dtype)))
    assert str(table.code.dtype) == "int64"


def test_tables_of_polars_and_pyarrow_come_back():
    text, made_so = pl.Categorical(), pl.from_pandas(made())
    table = sampled(made_so.with_columns(pl.col("grade").cast(text)))
    assert (table.schema["grade"], table.schema["age"]) == (pl.String(), pl.Int64())
    table = sampled(pa.Table.from_pandas(made().astype({"grade": "category"})))
    assert (table["grade"].type, table["age"].type) == (pa.string(), pa.int64())
    assert b"adaptive_qs.stamp" in table.schema.metadata
