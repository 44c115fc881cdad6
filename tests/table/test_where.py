"""Conditions on rows: what they say, against Python's own logic, and what is no condition."""

from __future__ import annotations

import datetime as dt
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from adaptive_qs.errors import InputError
from adaptive_qs.release.drawing import Drawing, Where
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode

from .helpers import schema_of

SCHEMA = schema_of(
    {
        "sex": {"type": "categorical", "values": ["F", "M", "<=50K"]},
        "age": {"type": "integer", "min": 0, "max": 99, "bins": 10, "missing": ["", "?"]},
        "level": {
            "type": "categorical", "values": ["low", "mid", "high"], "ordered": True,
            "catch_all": "other",
        },
        "born": {"type": "date", "min": "2000-01-01", "max": "2003-12-31", "granularity": "year"},
        "price": {"type": "numeric", "min": 0, "max": 100, "bins": 5, "decimals": 2},
        "ok": {"type": "boolean"},
        "the end": {"type": "categorical", "values": [1, 5, 9]},
    }
)  # fmt: skip
PLACES = {"low": 0, "mid": 1, "high": 2, "other": None}
DAY = dt.date.fromisoformat


def known(value, says):
    """What a comparison says of a value: None of a missing one."""
    return None if value is None else says(value)


def both(*parts):
    return False if False in parts else None if None in parts else True


def either(*parts):
    return True if True in parts else None if None in parts else False


def contrary(part):
    return None if part is None else not part


CONDITIONS = {
    "sex = F and age >= 65": lambda r: both(r["sex"] == "F", known(r["age"], lambda a: a >= 65)),
    "sex = '<=50K' OR age < 3": lambda r: either(
        r["sex"] == "<=50K", known(r["age"], lambda a: a < 3)
    ),
    "not (age < 65 or age is missing)": lambda r: both(
        contrary(known(r["age"], lambda a: a < 65)), r["age"] is not None
    ),
    "not age >= 7": lambda r: contrary(known(r["age"], lambda a: a >= 7)),
    "age is not missing and age != 33": lambda r: both(
        r["age"] is not None, known(r["age"], lambda a: a != 33)
    ),
    "age in (3, 34, 35) or price > 99.5": lambda r: either(
        known(r["age"], lambda a: a in (3, 34, 35)), r["price"] > 99.5
    ),
    "age > 12 and age <= 17 and not price < 50": lambda r: both(
        known(r["age"], lambda a: 12 < a <= 17), not r["price"] < 50
    ),
    "level >= mid": lambda r: known(PLACES[r["level"]], lambda place: place >= 1),
    "level in (low, other)": lambda r: r["level"] in ("low", "other"),
    "level not in (low, mid)": lambda r: r["level"] not in ("low", "mid"),
    "born >= 2001-03-01 and born < 2001-05-01": lambda r: (
        DAY("2001-03-01") <= r["born"] < DAY("2001-05-01")
    ),
    "ok = yes and `the end` >= 5": lambda r: both(r["ok"], r["the end"] >= 5),
    "`the end`==9 or not ok=true and price<=20.01": lambda r: either(
        r["the end"] == 9, both(not r["ok"], r["price"] <= 20.01)
    ),
}


@pytest.fixture(scope="module")
def sample():
    """Rows with every code of every column as likely as any other: codes, and values as Python's.

    Of every code of a bin, the values are drawn anew.
    """
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(n, size=8_000) for n in SCHEMA.domain().sizes], axis=1)
    codes = CodedTable.from_parts(SCHEMA.domain(), [rows.astype(np.int32)], len(rows))
    return codes, decode(codes, SCHEMA, rng).to_pylist()


def chances(where, codes):
    """Of each row, with which chance one of its codes meets the condition."""
    total = np.zeros(codes.num_rows)
    for box in where.boxes:
        chance = np.ones(codes.num_rows)
        for place, taken in box.items():
            chance = chance * taken[codes.columns[place]]
        total += chance
    return total


def drawn(where, schema, codes, seed):
    """Values for codes, as they are drawn from a release."""
    rows = np.stack(codes.columns, axis=1)
    return pa.concat_tables(Drawing(schema, len(rows), [rows], seed, "", where=where).pages())


@pytest.mark.parametrize("text", CONDITIONS)
def test_boxes_take_the_rows_that_meet_it(text, sample):
    """Where a code tells it, exactly those; as many of the others as meet it. Values that are drawn
    again meet it, and keep their codes."""
    codes, rows = sample
    where, says = Where.from_text(text, SCHEMA.columns), CONDITIONS[text]
    met = np.array([says(row) is True for row in rows])
    chance = chances(where, codes)
    assert chance.max() <= 1 + 1e-9
    assert not met[chance == 0].any()
    assert met[chance > 1 - 1e-9].all()
    low, high = binom.interval(1 - 1e-6, len(met), chance.mean())
    assert low <= met.sum() <= high

    kept = np.flatnonzero(chance > 0)[:1_000]
    some = np.stack([column[kept] for column in codes.columns], axis=1).astype(np.int32)
    codes = CodedTable.from_parts(SCHEMA.domain(), [some], len(some))
    table = drawn(where, SCHEMA, codes, 1)
    assert all(says(row) is True for row in table.to_pylist())
    for place, column in enumerate(SCHEMA.columns):
        found = column.encode(normalise(table.column(place).combine_chunks()))
        np.testing.assert_array_equal(found, some[:, place])


def test_values_of_a_bin_that_is_cut_are_as_likely_as_before():
    """Two bins of one row, of which 5 x 10 and 5 x 20 of 200 combinations meet it."""
    schema = schema_of(
        {
            "a": {"type": "integer", "min": 0, "max": 9, "bins": 1},
            "b": {"type": "integer", "min": 0, "max": 19, "bins": 1},
        }
    )
    where = Where.from_text("a < 5 and b < 10 or a >= 5", schema.columns)
    codes = CodedTable.from_parts(schema.domain(), [np.zeros((30_000, 2), np.int32)], 30_000)
    table = drawn(where, schema, codes, 0)
    counts = np.zeros((10, 20))
    np.add.at(counts, (table["a"].to_numpy(), table["b"].to_numpy()), 1)
    expected = np.ones((10, 20))
    expected[:5, 10:] = 0
    assert not counts[expected == 0].any()
    mean = 30_000 / 150
    assert np.abs(counts[expected > 0] - mean).max() < 6 * mean**0.5


def test_rare_values_inside_bins_are_found():
    """Even if either of two columns makes it true, as often by one as by the other."""
    schema = schema_of(
        {
            "a": {"type": "integer", "min": 0, "max": 9_999, "bins": 1},
            "b": {"type": "numeric", "min": 0, "max": 1, "bins": 1},
        }
    )
    where = Where.from_text("a = 77 or b >= 0.9999", schema.columns)
    codes = CodedTable.from_parts(schema.domain(), [np.zeros((5_000, 2), np.int32)], 5_000)
    table = drawn(where, schema, codes, 0)
    first = table["a"].to_numpy() == 77
    second = table["b"].to_numpy() >= 0.9999
    assert (first | second).all()
    assert abs(first.mean() - 0.5) < 5 * 0.5 / 5_000**0.5


def test_rare_values_are_found_under_rules():
    """A condition narrows the bins that the sampler of the rules draws from."""
    column = {"type": "integer", "min": 0, "max": 9_999, "bins": 1}
    schema = schema_of({"a": column, "b": column}).changed(rules=("a <= b",))
    where = Where.from_text("a = 7777 or a in (1, 2)", schema.columns)
    codes = CodedTable.from_parts(schema.domain(), [np.zeros((3_000, 2), np.int32)], 3_000)
    table = drawn(where, schema, codes, 0).to_pandas()
    assert (table["a"] <= table["b"]).all()
    assert set(table["a"]) == {1, 2, 7777}
    assert table["b"].nunique() > 1_000


@pytest.mark.parametrize(("condition", "said"), [
    ("", 'Cannot parse the condition \'\'. Write it such as "age >= 65'),
    ("sex = ", "Cannot parse the condition"),
    ("sex F", "at 'F'"),
    ("(sex = F", "Cannot parse the condition"),
    ("sex = 'F", "at \"'F\""),
    ("sex in ()", "Cannot parse the condition"),
    ("sexx = F", "did you mean 'sex'"),
    ("sex = X", "'X' is neither a column nor a value of 'sex' (F, M, <=50K"),
    ("sex < F", "'sex' has no order"),
    ("age = '?'", "write age is missing"),
    ("age >= old", "'old' is neither a column nor a value of 'age' (0 to 99 in 10"),
    ("sex is missing", "is never missing"),
    ("born > 2003-13-01", "'2003-13-01' is neither a column nor a value of 'born'"),
    ("sex = F and sex = M", "no row can meet the condition"),
    ("age > 200", "no row can meet the condition 'age > 200'; age has 0 to 99"),
    ("price = 3.14159", "no row can meet"),
    ("age >= born", "compares different kinds of values"),
    ("age >= price", "compares columns with each other: compare each with values"),
    ("age + price > 70", "compares columns with each other: compare each with values"),
    (3, "the condition is 3"),
    ("sex = F or " * 200 + "sex = F", "more than 2,000 characters"),
])  # fmt: skip
def test_what_is_no_condition_is_said_in_a_line(condition, said):
    with pytest.raises(InputError, match=r"\A[^\n]+\Z") as caught:
        Where.from_text(condition, SCHEMA.columns)
    assert said in str(caught.value)


def test_too_many_kinds_of_rows_are_refused():
    names = [f"c{i}" for i in range(7)]
    schema = schema_of({name: {"type": "integer", "min": 0, "max": 20} for name in names})
    text = " or ".join(f"{name} in (1, 3, 5, 7)" for name in names)
    with pytest.raises(InputError, match=r"distinguishes 4,782,969 kinds of rows"):
        Where.from_text(text, schema.columns)


def test_boxes_are_disjoint_and_few():
    schema = schema_of({name: {"type": "integer", "min": 0, "max": 3} for name in "abc"})
    where = Where.from_text("a = 1 or b = 1 or c = 1", schema.columns)
    assert len(where.boxes) == 3
    for row in product(range(4), repeat=3):
        taken = [all(chance[row[place]] for place, chance in box.items()) for box in where.boxes]
        assert sum(taken) == (1 in row)
