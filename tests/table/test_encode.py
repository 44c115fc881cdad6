"""Any schema: decoded codes encode to the same codes, through files and frames, as by hand."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError, InputError, SchemaError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.columns.base import MISSING
from adaptive_qs.table.columns.category import BooleanColumn, CategoricalColumn
from adaptive_qs.table.columns.moment import DateColumn, DatetimeColumn
from adaptive_qs.table.columns.numeric import IntegerColumn, NumericColumn
from adaptive_qs.table.encode import coded_bytes, decode, read_table, unchanged
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import write_table
from adaptive_qs.workload.axes import Circular, Prefix, Range

from ..published import validate_schema
from .helpers import digest_of, schema_of

texts = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
    .map(lambda text: text.strip(" \t\r\n\x0b\x0c"))
)  # fmt: skip
outside = st.sampled_from(["refuse", "clip"])


def _missing(draw):
    return draw(st.sampled_from([(), ("",), ("?", ""), ("<none>",), ('a "b", c', "?")]))


@st.composite
def categorical(draw, name):
    missing = _missing(draw)
    if draw(st.booleans()):
        values = draw(
            st.lists(st.integers(1 - 10**18, 10**18 - 1), min_size=1, max_size=6, unique=True)
        )
        catch_all = draw(st.none() | st.integers(-5, 5) | st.sampled_from(values))
    else:
        free = texts.filter(lambda text: text not in missing)
        values = draw(st.lists(free, min_size=1, max_size=6, unique=True))
        catch_all = draw(st.none() | free | st.sampled_from(values))
    return CategoricalColumn(
        name=name, type="categorical", values=values, catch_all=catch_all, missing=missing
    )


@st.composite
def integer(draw, name):
    low = draw(st.integers(-(2**40), 2**40))
    width = draw(st.integers(1, 300) | st.just(2**33))
    starts = bins = None
    if width > 300 or draw(st.booleans()):
        bins = draw(st.integers(1, min(width, 50)))
    elif draw(st.booleans()):
        inner = draw(st.sets(st.integers(low, low + width - 1), max_size=8))
        starts = sorted({low, *inner})
    return IntegerColumn(
        name=name, type="integer", min=low, max=low + width - 1, bins=bins, bin_starts=starts,
        missing=_missing(draw), outside=draw(outside),
    )  # fmt: skip


@st.composite
def numeric(draw, name):
    finite = st.floats(-1e9, 1e9)
    if draw(st.booleans()):
        edges = sorted(draw(st.sets(finite, min_size=2, max_size=8)))
        ends = {"edges": edges}
    else:
        low = draw(st.integers(-100, 100)) / 10
        ends = {"min": low, "max": low + draw(st.integers(1, 99)), "bins": draw(st.integers(1, 9))}
        ends["decimals"] = draw(st.none() | st.integers(2, 6))
        if ends["decimals"] is not None:
            ends["step"] = draw(st.sampled_from([None, 0.01, 0.04, 0.1]))  # less than any bin
    return NumericColumn(
        name=name, type="numeric", missing=_missing(draw), outside=draw(outside), **ends
    )


@st.composite
def date(draw, name):
    days = st.dates(dt.date(1890, 1, 1), dt.date(2150, 1, 1))
    low, high = sorted([draw(days), draw(days)])
    grain = draw(
        st.sampled_from(["day", "week", "month", "quarter", "year", "5 years", "10 years"])
    )
    return DateColumn(
        name=name, type="date", min=low, max=high, granularity=grain, missing=_missing(draw),
        format=draw(st.sampled_from([None, "%d/%m/%Y", "%d %b %Y"])),
    )  # fmt: skip


@st.composite
def moment(draw, name):
    low = draw(st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2090, 1, 1)))
    low = low.replace(microsecond=0)
    high = low + dt.timedelta(seconds=draw(st.integers(0, 10**7)))
    units = ["minute", "hour", "day", "week", "month", "quarter", "year", "10 years", "100 years"]
    grain = draw(st.sampled_from(units))
    return DatetimeColumn(
        name=name, type="datetime", min=low, max=high, granularity=grain, missing=_missing(draw),
        format=draw(st.sampled_from([None, "%d/%m/%Y %H:%M:%S"])),
    )  # fmt: skip


@st.composite
def boolean(draw, name):
    return BooleanColumn(name=name, type="boolean", missing=_missing(draw))


@st.composite
def coded_tables(draw):
    kinds = st.sampled_from([categorical, integer, numeric, date, moment, boolean])
    chosen = draw(st.lists(kinds, min_size=1, max_size=4))
    names = draw(st.lists(texts.filter(bool), min_size=4, max_size=4, unique=True))
    schema = Schema(version=1, columns=[draw(k(name)) for k, name in zip(chosen, names)])
    rows = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = schema.domain().sizes
    columns = [rng.integers(0, size, rows) for size in sizes]
    return schema, CodedTable.from_codes(schema.domain(), columns)


def slow_code(column, cell):
    """The code of one CSV cell, column by column type, by the plainest means."""
    cell = cell.strip(" \t\r\n\x0b\x0c")
    if cell in column.missing:
        return column.size - 1
    match column:
        case CategoricalColumn():
            for code, label in enumerate(column.labels):
                if (int(cell) if isinstance(label, int) else cell) == label:
                    return code
            return column.labels.index(column.catch_all)
        case BooleanColumn():
            return ["false", "true"].index(cell)
        case IntegerColumn():
            starts = column.starts or range(column.min, column.max + 1)
            return sum(1 for start in starts if start <= int(cell)) - 1
        case NumericColumn():
            inner = column.bin_edges[1:-1]
            return sum(1 for edge in inner if edge <= float(cell))
    parse = dt.datetime.fromisoformat
    value = parse(cell) if column.format is None else dt.datetime.strptime(cell, column.format)
    first = dt.datetime(column.min.year, column.min.month, column.min.day)
    if isinstance(column, DatetimeColumn):
        first = column.min
    match column.granularity:
        case "year":
            return value.year - first.year
        case "5 years" | "10 years" | "100 years":
            length = int(column.granularity.removesuffix(" years"))
            return sum(year % length == 0 for year in range(first.year + 1, value.year + 1))
        case "quarter":
            return (value.year - first.year) * 4 + (value.month - 1) // 3 - (first.month - 1) // 3
        case "month":
            return (value.year - first.year) * 12 + value.month - first.month
        case "week":
            monday = first.date() - dt.timedelta(days=first.weekday())
            return (value.date() - monday).days // 7
        case "day":
            return (value.date() - first.date()).days
    unit = {"hour": 3600, "minute": 60}[column.granularity]
    origin = first.replace(second=0, minute=0 if unit == 3600 else first.minute)
    return math.floor((value - origin).total_seconds() / unit)


def assert_same(a, b):
    assert a.domain == b.domain
    for x, y in zip(a.columns, b.columns):
        np.testing.assert_array_equal(x, y)


common = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(common, max_examples=40)
@given(coded_tables(), st.integers(0, 9))
def test_files_and_oracle(case, seed):
    schema, table = case
    content = json.loads(schema.to_json())
    validate_schema(content)
    assert (Schema.parse(content), Schema.parse(content).fingerprint) == (
        schema,
        schema.fingerprint,
    )
    decoded = decode(table, schema, np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("csv", "parquet"):
            path = Path(folder) / f"table.{suffix}"
            write_table(decoded, path, schema)
            assert_same(read_table(path, schema), table)
        with (Path(folder) / "table.csv").open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert header == list(schema.names)
        for row, codes in zip(rows, zip(*table.columns), strict=True):
            assert [slow_code(c, cell) for c, cell in zip(schema.columns, row)] == list(codes)


@settings(common, max_examples=50)
@given(coded_tables(), st.integers(0, 9))
def test_frames(case, seed):
    schema, table = case
    decoded = decode(table, schema, np.random.default_rng(seed))
    assert_same(read_table(decoded, schema), table)
    assert_same(read_table(pl.from_arrow(decoded), schema), table)
    if not any(isinstance(c, IntegerColumn | CategoricalColumn) and c.missing
               for c in schema.columns):  # fmt: skip
        assert_same(read_table(decoded.to_pandas(), schema), table)
    nullable = decoded.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    assert_same(read_table(nullable, schema), table)


# A table is recognised by its rows, in any order and container, and by nothing else.

CELLS = {
    "x": st.sampled_from([None, 0, 1, 13, -13]),
    "s": st.sampled_from([None, "a", "ac", "c"]),
    "b": st.sampled_from([None, True, False]),
    "m": st.sampled_from([None, "a", True, 3, 0.5, dt.date(2020, 1, 2)]),
}
ROWS = st.lists(st.tuples(*CELLS.values()), min_size=1, max_size=3)


def digests(rows):
    """The digests of some rows in every container that can hold them."""
    columns = {name: [row[k] for row in rows] for k, name in enumerate(CELLS)}
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
    yield digest_of(frame)
    yield digest_of(frame[list(CELLS)[::-1]])
    typed = {"x": pl.Int64, "s": pl.String, "b": pl.Boolean, "m": pl.Object}
    yield digest_of(pl.DataFrame([pl.Series(n, c, dtype=typed[n]) for n, c in columns.items()]))


@settings(common, max_examples=60)
@given(ROWS, ROWS, st.randoms())
def test_tables_have_one_digest_if_they_have_the_same_rows(one, other, rng):
    (first,) = set(digests(rng.sample(one, len(one))))
    assert set(digests(one)) == {first}
    same = Counter(map(repr, one)) == Counter(map(repr, other))
    assert (set(digests(other)) == {first}) == same


TABLE = pa.table({"x": [1, None, 3], "s": ["a", None, "ccc"], "b": [True, None, False]})


def under_missing_values():
    """The same table with something else in the places that do not count."""
    missing = TABLE["x"].chunk(0).buffers()[0]
    values = pa.array([1, 99, 3]).buffers()[1]
    return TABLE.set_column(0, "x", pa.Array.from_buffers(pa.int64(), 3, [missing, values]))


def test_memory_layout_and_names_of_files_change_no_digest(tmp_path):
    parted = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    doubled = pa.concat_tables([TABLE, TABLE])
    for same in (under_missing_values(), parted, doubled.slice(3)):
        assert same.equals(TABLE)
        assert digest_of(same) == digest_of(TABLE)
    assert digest_of(TABLE.rename_columns(["x", "s", "c"])) != digest_of(TABLE)
    path, other = tmp_path / "t.csv", tmp_path / "t.parquet"
    path.write_text("b,a\nx,1\ny,2\nx,1\n")
    pq.write_table(pa.table({"a": [2, 1, 1], "b": ["y", "x", "x"]}), other)
    assert digest_of(path) == digest_of(other) == digest_of(pd.read_csv(path))
    with pytest.raises(DataError) as caught:
        digest_of(object())
    assert caught.value.__context__ is None


def test_coded_tables_are_recognised():
    domain = Domain.from_sizes({"a": 3, "b": 2})
    found = [
        b"".join(coded_bytes(CodedTable.from_codes(domain, [[0, 1, 2], last])))
        for last in ([0, 1, 1], [0, 1, 1], [0, 1, 0])
    ]
    assert found[0] == found[1] != found[2]


def test_files_that_change_while_they_are_read_are_refused(tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    path = folder / "1.csv"
    path.write_text("a\n1\n")
    for table, changed in ((path, path), (folder, folder / "2.csv"), (folder, path)):
        with pytest.raises(DataError, match="changed while it was read"), unchanged(table):
            changed.write_text(f"a\n{len(list(folder.iterdir()))}{changed}\n")
    with unchanged(folder):
        (folder / "notes.txt").write_text("no table")


# The label of a code says which values have that code.


def labels_of(**column):
    return schema_of({"x": column}).columns[0].labels_of_codes()


@pytest.mark.parametrize("granularity", ["month", "quarter", "year", "hour"])
def test_periods_have_their_names(granularity):
    """pandas knows calendars on its own."""
    first, last = pd.Timestamp("1968-11-30T05:30"), pd.Timestamp("1970-02-03T01:00")
    labels = labels_of(
        type="datetime", granularity=granularity, min=first.isoformat(), max=last.isoformat()
    )
    frequency = {"month": "M", "quarter": "Q", "year": "Y", "hour": "h"}[granularity]
    periods = pd.period_range(first, last, freq=frequency)
    written = {"month": "%Y-%m", "quarter": "%Y-Q%q", "year": "%Y", "hour": "%Y-%m-%dT%Hh"}
    assert list(labels) == [period.strftime(written[granularity]) for period in periods]


def test_unknown_and_missing_values_come_last():
    assert labels_of(type="categorical", values=["a"], catch_all="else", missing=["?"]) == (
        "a", "else", MISSING,
    )  # fmt: skip
    assert labels_of(type="boolean", missing=[""]) == ("false", "true", "(missing)")
    assert labels_of(type="categorical", values=[MISSING], missing=[""]) == (
        MISSING, f"({MISSING})",
    )  # fmt: skip


AGES = {"type": "integer", "min": 20, "max": 39, "bins": 2, "missing": ["?"]}
THIRDS = {"type": "numeric", "edges": [0, 1, 2, 3]}
WEIGHTS = {"type": "numeric", "edges": [0, 1.5, 3]}


@pytest.mark.parametrize(
    ("column", "queries", "expected"),
    [
        (AGES, Prefix(3), ["x <= 29", "x <= 39", "x <= (missing)"]),
        (AGES, Range(3), [
            "x in [20, 29]", "x in [20, 39]", "x in [20, (missing)]",
            "x in [30, 39]", "x in [30, (missing)]", "x in [(missing), (missing)]",
        ]),
        (WEIGHTS, Prefix(2), ["x < 1.5", "x <= 3"]),
        (WEIGHTS, Range(2), ["x in [0, 1.5)", "x in [0, 3]", "x in [1.5, 3]"]),
        (WEIGHTS, Circular(2), [
            "x in [0, 1.5)", "x anywhere", "x in [1.5, 3]", "x anywhere",
        ]),
        (THIRDS, Circular(3), [
            "x in [0, 1)", "x in [0, 2)", "x anywhere", "x in [1, 2)", "x in [1, 3]", "x anywhere",
            "x in [2, 3]", "x from 2 to below 1, around the end", "x anywhere",
        ]),
    ],
)  # fmt: skip
def test_comparisons_of_bins_speak_of_their_ends(column, queries, expected):
    assert list(queries.labels(("x",), (labels_of(**column),))) == expected


def test_adult_round_trip_and_progress(tmp_path):
    adult = sample_dataset()
    schema = Schema.load(adult.schema)
    seen = []
    table = read_table(adult.data, schema, lambda done, total: seen.append((done, total)))
    assert table.num_rows == 48_842
    assert len(table.columns) == 15
    assert seen[-1][0] <= seen[-1][1] == adult.data.stat().st_size
    decoded = decode(table, schema, np.random.default_rng(0))
    write_table(decoded, tmp_path / "t.csv", schema)
    again = read_table(tmp_path / "t.csv", schema)
    for a, b in zip(table.columns, again.columns):
        np.testing.assert_array_equal(a, b)
    true, made = pd.read_csv(adult.data), pd.read_csv(tmp_path / "t.csv")
    assert made.dtypes.tolist() == true.dtypes.tolist()
    exact = [c.name for c in schema.columns if getattr(c, "starts", None) is None]
    pd.testing.assert_frame_equal(made[exact], true[exact])
    assert made["fnlwgt"].between(0, 1_999_999).all()


def test_unknown_sample():
    with pytest.raises(InputError, match="not installed"):
        sample_dataset("none")


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
