"""At most so many rows of each person, against persons looked at one by one."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.persons import ContributionBound
from adaptive_qs.table.schema import Schema

COLUMNS = [
    {"name": "a", "type": "integer", "min": 0, "max": 3},
    {"name": "b", "type": "categorical", "values": ["x", "y"], "missing": ["?"]},
]
SCHEMA = Schema.parse({"version": 1, "person": "who", "columns": COLUMNS, "ignore": ["note"]})
MEMORY = 2**24


def table(rows):
    """A data frame of (person, a, b)."""
    return pd.DataFrame(rows, columns=["who", "a", "b"], dtype=object)


def kept(source, most=2, schema=SCHEMA):
    """The rows that are kept, as codes, and how often each is."""
    few = read_table(ContributionBound.from_source(source, schema, most, MEMORY), schema)
    return Counter(zip(*(column.tolist() for column in few.columns)))


PEOPLE = st.dictionaries(
    st.sampled_from(["p", "q", "7", "07", "r s"]),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", "?"])), max_size=7),
    min_size=1,
).filter(lambda people: any(people.values()))


@settings(max_examples=15, deadline=None)
@given(PEOPLE, st.integers(1, 4), st.randoms(use_true_random=False))
def test_kept_rows_are_those_of_each_person_alone(people, most, random):
    """Any table in any order is the sum of the tables of its persons, each of at most K rows."""
    rows = [(who, *row) for who, theirs in people.items() for row in theirs]
    random.shuffle(rows)
    alone = Counter()
    for who, theirs in people.items():
        if theirs:
            own = kept(table([(who, *row) for row in theirs]), most)
            assert own.total() == min(most, len(theirs))
            everything = kept(table([(who, *row) for row in theirs]), len(theirs))
            assert own <= everything
            alone += own
    assert kept(table(rows), most) == alone


def test_rows_are_kept_without_preference():
    """One of ten rows of 2,000 persons each, of which one is another: five standard deviations."""
    rows = [(f"p{k}", 0 if place else 1, "x") for k in range(2_000) for place in range(10)]
    found = kept(table(rows), 1)
    assert found.total() == 2_000
    assert abs(found[1, 0] / 2_000 - 0.1) < 5 * math.sqrt(0.1 * 0.9 / 2_000)


def forms(frame, folder):
    """The rows as files and frames, in other orders and chunks."""
    frame.to_csv(folder / "t.csv", index=False)
    frame[::-1].to_parquet(folder / "t.parquet", row_group_size=7)
    parts = folder / "parts"
    parts.mkdir()
    frame[:20][["b", "who", "a"]].to_csv(parts / "0.csv", index=False)
    frame[20:].to_parquet(parts / "1.parquet")
    yield from (folder / "t.csv", folder / "t.parquet", parts)
    yield from (frame.astype({"a": object}), frame.astype({"who": "category"}))


def test_every_form_of_a_table_keeps_the_same_rows(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": rng.integers(0, 12, 60), "a": rng.integers(0, 4, 60)})
    frame["b"] = rng.choice(["x", "y"], 60)
    expected = kept(frame)
    assert expected.total() == frame.who.value_counts().clip(upper=2).sum()
    for source in forms(frame, tmp_path):
        assert kept(source) == expected


def test_columns_still_to_be_learnt_tell_rows_apart():
    columns = [{"name": "a", "type": "integer", "private_bins": 2}, COLUMNS[1]]
    schema = Schema.parse({"version": 1, "person": "who", "columns": columns})
    rows = [("p", k, "x") for k in range(9)]
    few = ContributionBound.from_source(table(rows), schema, 3, MEMORY)
    with few.open() as source:
        found = [v for chunk in source.read(("a",)) for v in chunk.columns[0].parts[0].to_pylist()]
    assert len(set(found)) == 9  # the distinct cells; which rows have them is in the places
    shuffled = ContributionBound.from_source(table(rows[::-1]), schema, 3, MEMORY)
    assert values(few, "a") == values(shuffled, "a")
    assert len(values(few, "a")) == 3


def values(few, name):
    with few.open() as source:
        chunks = [chunk.columns[0] for chunk in source.read((name,))]
    return sorted(part.parts[0][int(k)].as_py() for part in chunks for k in part.indices)


@pytest.mark.parametrize("nobody", [None, "", "  ", float("nan"), pd.NA])
def test_a_row_of_nobody_is_refused(nobody):
    with pytest.raises(DataError, match="person column 'who' are empty") as refused:
        kept(table([("secret", 1, "x"), (nobody, 1, "y")]))
    assert "secret" not in str(refused.value)


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(DataError, match="column 'who' of the schema is missing"):
        kept(table([("p", 1, "x")]).drop(columns="who"))
    with pytest.raises(DataError, match="column 'who' has cells of another type"):
        kept(table([(("secret",), 1, "x")]))
    with pytest.raises(DataError, match="coded table has no person column 'who'"):
        ContributionBound.from_source(
            CodedTable.from_codes(SCHEMA.domain(), [[0], [0]]), SCHEMA, 1, MEMORY
        )


@pytest.mark.parametrize("people", [1, 500], ids=["one with many rows", "many"])
def test_more_than_fits_the_memory_is_refused(people):
    rows = table([(f"p{k % people}", 1, "x") for k in range(1_000)])
    with pytest.raises(ResourceExceeded, match="raise --max-memory"):
        ContributionBound.from_source(rows, SCHEMA, 1, 50_000)


def test_rows_that_change_between_two_readings_are_refused():
    few = ContributionBound.from_source(
        first := table([("p", k % 4, "x") for k in range(5)]), SCHEMA, 2, MEMORY
    )
    first["a"] = [3, 3, 3, 3, 3]
    first["b"] = "y"
    with pytest.raises(DataError, match="changed while it was read"):
        read_table(few, SCHEMA)


BIG = 2**60


@pytest.mark.parametrize(
    "persons",
    [
        pa.array([Decimal(BIG), Decimal(BIG + 1)], pa.decimal128(38, 0)),
        pa.array([Decimal(BIG), Decimal(BIG + 1)], pa.decimal256(60, 2)).dictionary_encode(),
        pa.array([BIG, BIG + 1], pa.int64()),
        pa.array([2**63, 2**63 + 1], pa.uint64()),
    ],
    ids=["decimals", "dictionary", "integers", "unsigned"],
)
def test_long_numbers_are_persons_of_their_own(persons):
    a = [0, 0, 0, 1, 1, 1]
    source = pa.table({"who": persons.take([0, 0, 0, 1, 1, 1]), "a": a, "b": ["x"] * 6})
    assert kept(source) == {(0, 0): 2, (1, 0): 2}


def test_a_person_is_the_same_as_integer_and_as_decimal(tmp_path):
    kinds = [pa.int64(), pa.decimal128(9, 2), pa.decimal128(38, 0), pa.float64(), pa.string()]
    for k, kind in enumerate(kinds):
        who = pa.array([Decimal(70)], pa.decimal128(9, 0)).cast(kind)
        parquet.write_table(pa.table({"who": who, "a": [1], "b": ["x"]}), tmp_path / f"{k}.parquet")
    assert kept(tmp_path) == {(1, 0): 2}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (float(BIG), "floating-point numbers that are not whole, or have over 15 digits"),
        (Decimal(BIG) + Decimal("0.5"), "floating-point numbers that are not whole"),
        (-(2.0**53), "floating-point numbers that are not whole"),
        (math.inf, "floating-point numbers that are not whole"),
        (-0.0, "floating-point numbers that are not whole"),
        (np.float32(2**24), "floating-point numbers that are not whole, or have over 7 digits"),
        (Decimal("1.00000000000000000001"), "floating-point numbers that are not whole"),
        (np.longdouble(1) + np.finfo(np.longdouble).eps, "floating-point numbers that are not"),
        (True, r"cells of another type than text, whole numbers and dates \(bool\)"),
        (pd.Timestamp("2024-01-01"), "cells of another type than text, whole numbers and dates"),
        ("p\udce9", "texts with white space at an end, characters that could not be decoded"),
        ("p\ufffd", "texts with white space at an end, characters that could not be decoded"),  # noqa: PT014
        ("p\n", "texts with white space at an end, characters that could not be decoded"),
        ("115.00", "texts with white space at an end, .* numbers written as floating-point ones"),
        ("1.5e+15", "texts with white space at an end, .* numbers written as floating-point ones"),
    ],
)
def test_a_cell_that_may_stand_for_several_persons_is_refused(cell, words):
    with pytest.raises(DataError, match=f"'who' has {words}.*can confuse persons") as refused:
        kept(table([(1, 1, "x"), (cell, 1, "y")]))
    assert "115" not in str(refused.value)
