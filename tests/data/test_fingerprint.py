"""A table is recognised by what is in it, not by how it lies in memory."""

import hashlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from adaptive_qs.data.fingerprint import table_bytes, unchanged
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError

TABLE = pa.table(
    {
        "x": pa.array([1, None, 3]),
        "s": pa.array(["a", None, "ccc"]),
        "b": pa.array([True, None, False]),
    }
)


def digest(source):
    return hashlib.sha256(b"".join(table_bytes(source))).hexdigest()


def under_missing_values():
    """The same table with something else in the places that do not count."""
    missing = TABLE["x"].chunk(0).buffers()[0]
    values = pa.array([1, 99, 3]).buffers()[1]
    return TABLE.set_column(0, "x", pa.Array.from_buffers(pa.int64(), 3, [missing, values]))


@pytest.mark.parametrize(
    "same",
    [
        under_missing_values(),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        pa.concat_tables([TABLE, TABLE]).slice(3),
    ],
)
def test_equal_tables_have_equal_bytes(same):
    assert same.equals(TABLE)
    assert digest(same) == digest(TABLE)


def test_frames_are_recognised():
    frame = pl.DataFrame({"x": [1, None, 3], "s": ["a", None, "c"]})
    assert digest(pl.concat([frame[:1], frame[1:]])) == digest(frame)
    frame = pd.DataFrame({"x": [1.0, np.nan], "c": pd.Categorical(["a", "b"])})
    assert digest(frame.copy()) == digest(frame)
    mixed = pd.DataFrame({"m": ["a", True, None, 3, "a"]})
    assert digest(mixed.copy()) == digest(mixed)
    for place, other in enumerate(["b", False, "a", 4, 3]):
        changed = mixed.copy()
        changed.loc[place, "m"] = other
        assert digest(changed) != digest(mixed)


@pytest.mark.parametrize(
    "other",
    [
        TABLE.slice(1),
        TABLE.rename_columns(["x", "s", "c"]),
        TABLE.set_column(0, "x", pa.array([1, None, 4])),
        TABLE.set_column(0, "x", pa.array([1, 2, 3])),
        TABLE.set_column(0, "x", pa.array([None, 1, 3])),
        TABLE.set_column(1, "s", pa.array(["ac", None, "cc"])),
        TABLE.set_column(2, "b", pa.array([True, None, True])),
    ],
)
def test_other_tables_have_other_bytes(other):
    assert digest(other) != digest(TABLE)


def test_files_are_recognised_by_their_bytes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a\n1\n")
    assert b"".join(table_bytes(path)) == b"a\n1\n"
    with pytest.raises(DataError, match="check the path"):
        b"".join(table_bytes(tmp_path / "none"))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")

    def change():
        with unchanged(path):
            path.write_text("a\n1\n2\n")

    with pytest.raises(DataError, match="changed while it was read"):
        change()


def test_coded_tables_are_recognised():
    domain = Domain.from_sizes({"a": 3, "b": 2})
    one, other = (
        CodedTable.from_codes(domain, [[0, 1, 2], last]) for last in ([0, 1, 1], [0, 1, 0])
    )
    assert digest(one) == digest(CodedTable.from_codes(domain, [[0, 1, 2], [0, 1, 1]]))
    assert digest(one) != digest(other)


def test_what_is_no_table_is_refused_without_a_word_of_it():
    with pytest.raises(DataError) as caught:
        digest(object())
    assert caught.value.__context__ is None
