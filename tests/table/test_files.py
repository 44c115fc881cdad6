"""The shipped sample, output files, coded tables, proposals and imports."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError, InputError, SchemaError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.files import atomic_writer, check_writable, sample_dataset
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import check_table_path, table_format, write_table

from .helpers import schema_of

ADULT = sample_dataset()


def test_adult_round_trip_and_progress(tmp_path):
    schema = Schema.load(ADULT.schema)
    seen = []
    table = read_table(ADULT.data, schema, lambda done, total: seen.append((done, total)))
    assert table.num_rows == 48_842
    assert len(table.columns) == 15
    assert seen[-1][0] <= seen[-1][1] == ADULT.data.stat().st_size
    decoded = decode(table, schema, np.random.default_rng(0))
    write_table(decoded, tmp_path / "t.csv", schema)
    again = read_table(tmp_path / "t.csv", schema)
    for a, b in zip(table.columns, again.columns):
        np.testing.assert_array_equal(a, b)
    true, made = pd.read_csv(ADULT.data), pd.read_csv(tmp_path / "t.csv")
    assert made.dtypes.tolist() == true.dtypes.tolist()
    exact = [c.name for c in schema.columns if getattr(c, "starts", None) is None]
    pd.testing.assert_frame_equal(made[exact], true[exact])
    assert made["fnlwgt"].between(0, 1_999_999).all()


def test_unknown_sample():
    with pytest.raises(InputError, match="not installed"):
        sample_dataset("none")


@pytest.mark.parametrize("sign", ["", "-"])
def test_proposed_decimals_fit_the_larger_end_of_the_range(tmp_path, sign):
    path = tmp_path / "t.csv"
    path.write_text(f"x\n{sign}1000000000000.123456\n0.5\n7.25\n")
    column = propose(path).schema.columns[0]
    assert (column.type, column.decimals) == ("numeric", None)
    path.write_text(f"x\n{sign}99999999.123456\n0.5\n7.25\n")
    assert propose(path).schema.columns[0].decimals == 6


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


def test_coded_table_is_checked():
    domain = Domain.from_sizes({"a": 2, "b": 300})
    good = [np.array([0, 1]), np.array([299, 0])]
    table = CodedTable.from_codes(domain, good)
    assert [c.dtype for c in table.columns] == [np.uint8, np.uint16]
    for bad in (
        [np.array([0, 2]), good[1]],
        [np.array([0, -1]), good[1]],
        [np.array([0.0, 1.0]), good[1]],
        [np.array([0]), good[1]],
        good[:1],
        [*good, good[0]],
    ):
        with pytest.raises(DataError):
            CodedTable.from_codes(domain, bad)
    with pytest.raises(DataError):
        CodedTable(domain, (np.array([2], np.uint8), np.array([0], np.uint16)))
    with pytest.raises(ValueError, match="read-only"):
        table.columns[0][0] = 1


def test_decode_needs_the_same_domain():
    schema = Schema.parse({"a": 3})
    table = CodedTable.from_codes(Domain.from_sizes({"a": 4}), [np.array([0])])
    with pytest.raises(SchemaError, match="different domains"):
        decode(table, schema, np.random.default_rng(0))


def test_decoded_values_fill_their_bins():
    """20,000 draws in a bin of 100 integers: every one drawn (missed with odds below 1e-80)."""
    days = {"type": "date", "min": "2020-02-10", "max": "2020-03-05", "granularity": "month"}
    schema = schema_of({"i": {"type": "integer", "min": 0, "max": 199, "bins": 2}, "d": days})
    codes = [np.zeros(20_000, int), np.zeros(20_000, int)]
    table = CodedTable.from_codes(schema.domain(), codes)
    decoded = decode(table, schema, np.random.default_rng(0))
    assert set(decoded["i"].to_pylist()) == set(range(100))
    assert {d.day for d in decoded["d"].to_pylist()} == set(range(10, 30))
    assert decoded.schema.types == [pa.int64(), pa.date32()]
