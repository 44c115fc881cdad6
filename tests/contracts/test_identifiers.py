"""Identifiers of persons: what every container of a table has to keep apart, or to refuse."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import sqlite3
import unicodedata
from contextlib import closing
from decimal import Decimal

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from adaptive_qs import Synthesizer, answer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.ledger.book import LedgerBook

SCHEMA = {
    "version": 1,
    "columns": [{"name": "a", "type": "categorical", "values": ["x", "y"]}],
    "person": "who",
}
EXACT = {"rho": 1e6, "beyond_limits": True}
"""With so little noise that a released number of rows is the number that was counted."""

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def counted(source):
    """How many rows count, with one of each person."""
    model = Synthesizer(workload=1, rows_per_person=1, **EXACT).fit(source, schema=SCHEMA)
    return model.release_.num_rows


def counted_or_refused(source):
    """The same; None where the table is refused."""
    try:
        return counted(source)
    except InputError:
        return None


# Containers: a table of some persons with a row each, or None where it cannot hold their cells.


def column(cells):
    values = pa.array(cells)
    check_apart(values.to_pylist(), cells)
    return pa.table({"who": values, "a": ["x"] * len(cells)})


def check_apart(values, cells):
    """A type that is inferred may not hold them: of a date and a time Arrow makes two dates."""
    assert len(set(map(repr, values))) == len(set(map(repr, cells)))


def as_csv(cells, folder):
    if not all(isinstance(cell, str) for cell in cells):
        return None
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("who", "a"), *((cell, "x") for cell in cells)])
    return folder / "t.csv"


def as_parquet(cells, folder):
    parquet.write_table(column(cells), folder / "t.parquet")
    return folder / "t.parquet"


def as_dictionary(cells, _):
    whole = column(cells)
    return whole.set_column(0, "who", whole["who"].dictionary_encode())


def as_objects(cells, _):
    return pd.DataFrame({"who": pd.Series(list(cells), dtype=object), "a": "x"})


def as_numpy(cells, _):
    return pd.DataFrame({"who": list(cells), "a": "x"})


def as_categories(cells, _):
    values = pd.Categorical(list(cells))
    check_apart(values, cells)
    return pd.DataFrame({"who": values, "a": "x"})


def as_nullable(cells, folder):
    frame = as_objects(cells, folder).convert_dtypes()
    check_apart(frame["who"], cells)
    return frame


def as_arrow_frame(cells, _):
    return column(cells).to_pandas(types_mapper=pd.ArrowDtype)


def as_polars(cells, _):
    series = pl.Series(list(cells))
    check_apart(series.cast(pl.String) if series.dtype.is_temporal() else series, cells)
    return pl.DataFrame({"who": series, "a": ["x"] * len(cells)})


def as_sqlite(cells, folder):
    with sqlite3.connect(folder / "t.sqlite") as database:
        database.execute("CREATE TABLE t (who, a)")
        database.executemany("INSERT INTO t VALUES (?, 'x')", [(cell,) for cell in cells])
        check_apart(database.execute("SELECT who FROM t").fetchall(), cells)
    database.close()
    return folder / "t.sqlite"


def as_duckdb(cells, folder):
    held = column(cells)
    with duckdb.connect(str(folder / "t.duckdb")) as database:
        database.register("held", held)
        database.execute("CREATE TABLE t AS SELECT * FROM held")
    return folder / "t.duckdb"


def as_workbook(cells, folder):
    book = openpyxl.Workbook()
    for row in [("who", "a"), *((cell, "x") for cell in cells)]:
        book.active.append(row)
    book.save(folder / "t.xlsx")
    held = openpyxl.load_workbook(folder / "t.xlsx").active
    same = [type(a.value) is type(b) and a.value == b for a, b in zip(held["A"][1:], cells)]
    return folder / "t.xlsx" if all(same) else None  # it rounds numbers, and takes some texts over


CONTAINERS = [
    as_csv, as_parquet, as_dictionary, as_objects, as_numpy, as_categories, as_nullable,
    as_arrow_frame, as_polars, as_sqlite, as_duckdb, as_workbook,
]  # fmt: skip


def held(container, cells, folder):
    """The table, or no example where the container cannot hold these cells."""
    for old in folder.iterdir():
        old.unlink()
    try:
        source = container(cells, folder)
    except Exception:  # noqa: BLE001  (each library has its own)
        source = None
    assume(source is not None)
    return source


# Pairs of cells that a container may tell apart, as little as they can differ.


def near_texts(text):
    """A text, and others that some programs take for it."""
    others = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC")]
    others += [text.swapcase(), f" {text}", f"{text}\n", f"{text}\u00a0", f"0{text}", f"{text}.0"]
    others += [f"{text}\udce8", f"{text}\udce9", f"{text}\x00", f"{text}0", f"+{text}"]
    return st.sampled_from(others).filter(lambda other: other != text).map(lambda o: (text, o))


TEXTS = st.text(st.sampled_from("aé\u0301ſK0172.-eE+\udce9\ufffd") | st.characters(), min_size=1)
INTEGERS = st.integers(-(2**64), 2**64) | st.integers(2**53 - 2, 2**53 + 2)
DOUBLES = st.floats(allow_nan=False) | st.integers(-(2**54), 2**54).map(float)
SINGLES = st.floats(width=32, allow_nan=False) | st.integers(0, 2**25).map(float)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20)
STEPS = st.integers(1, 20).map(lambda digits: Decimal(1).scaleb(-digits))
NANOSECONDS = st.integers(0, 2**60)
PAIRS = st.one_of(
    TEXTS.flatmap(near_texts),
    INTEGERS.map(lambda n: (n, n + 1)),
    DOUBLES.map(lambda x: (x, math.nextafter(x, math.inf))),
    DOUBLES.map(lambda x: (x, -x)),
    SINGLES.map(np.float32).map(lambda x: (x, np.nextafter(x, np.float32(np.inf)))),
    st.tuples(DECIMALS, STEPS).map(lambda d: (d[0], d[0] + d[1])),
    DECIMALS.map(lambda d: (d.to_integral_value(), d.to_integral_value() + Decimal("1e-20"))),
    st.tuples(DECIMALS, STEPS).map(lambda d: (d[0], float(d[0]))),
    NANOSECONDS.map(lambda n: (pd.Timestamp(n), pd.Timestamp(n + 1))),
    NANOSECONDS.map(lambda n: (np.datetime64(n, "ns"), np.datetime64(n + 1, "ns"))),
    st.dates().filter(lambda d: d < dt.date.max).map(lambda d: (d, d + dt.timedelta(1))),
    st.dates().map(lambda d: (d, dt.datetime(d.year, d.month, d.day, 1))),
    st.sampled_from([(True, False), (True, 1), (False, 0), (True, "True"), (b"a", b"b")]),
    st.binary(min_size=1).map(lambda b: (b, b + b"\0")),
)


def may_differ(pair):
    """Whether a table may hold two persons: a whole number and its digits are one."""
    one, other = pair
    if isinstance(one, bool) != isinstance(other, bool):
        return True
    return bool(one != other) or math.copysign(1, one) != math.copysign(1, other)


SLOW = (as_duckdb, as_workbook)


@pytest.mark.parametrize(
    "container",
    [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW else []) for c in CONTAINERS],
)
@settings(max_examples=30, suppress_health_check=[*HealthCheck], deadline=None)
@given(pair=PAIRS)
@example(pair=("Jos\udce9", "Jos\udce8"))
@example(pair=(Decimal("1001.10000000000000001"), Decimal("1001.10000000000000002")))
@example(pair=(Decimal("1001"), Decimal("1001.00000000000000001")))
@example(pair=(pd.Timestamp(1), pd.Timestamp(2)))
@example(pair=(np.float32(2**24), np.float32(2**24 + 2)))
@example(pair=(9007199254740992.0, 9007199254740994.0))
@example(pair=(0.0, -0.0))
@example(pair=("a", "a "))
@example(pair=("é", "e\u0301"))
@example(pair=("007", "7"))
@example(pair=(2**64, 2**64 + 1))
@pytest.mark.one_in(3)
def test_cells_that_differ_are_two_persons_or_refused(container, pair, tmp_path_factory):
    assume(may_differ(pair))
    folder = tmp_path_factory.getbasetemp() / f"identifiers-{container.__name__}"
    folder.mkdir(exist_ok=True)
    source = held(container, pair, folder)
    assert counted_or_refused(source) in (2, None)


# Forms of one value, in files of a folder.


def forms(number):
    """What stands for one whole number in some container, and texts that are written for it."""
    digits = str(number)
    yield from (digits, number, float(number), Decimal(number), Decimal(f"{number}.00"))
    yield from (np.float32(number), repr(float(number)), f"{number}.00", f"{Decimal(number):E}")
    yield from (pa.array([Decimal(number)], pa.decimal128(38, places)) for places in (0, 2, 10))
    yield from (pa.array([float(number)], kind) for kind in (pa.float32(), pa.float64()))
    yield from (pa.array([f"{float(number):.0e}"]), pa.array([digits]).dictionary_encode())


def written(folder, cells):
    """The folder with a file for each cell, text as CSV."""
    for old in folder.iterdir():
        old.unlink()
    for place, cell in enumerate(cells):
        values = cell if isinstance(cell, pa.Array) else pa.array([cell])
        whole = pa.table({"who": values, "a": ["x"]})
        if isinstance(cell, str):
            (folder / f"{place}.csv").write_text(f"who,a\n{cell},x\n")
        else:
            parquet.write_table(whole, folder / f"{place}.parquet")
    return folder


@settings(max_examples=60, suppress_health_check=[*HealthCheck], deadline=None)
@given(number=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 10**6), data=st.data())
def test_forms_of_one_number_are_one_person_or_refused(number, data, tmp_path_factory):
    found = [*forms(number)]
    one, other = (data.draw(st.sampled_from(range(len(found)))) for _ in range(2))
    exact = [float(found[k]) == number for k in (one, other) if isinstance(found[k], np.float32)]
    assume(all(exact) and (abs(number) < 2**53 or float(number) == number))
    folder = tmp_path_factory.getbasetemp() / "identifiers-forms"
    folder.mkdir(exist_ok=True)
    assert counted_or_refused(written(folder, [found[one], found[other]])) in (1, None)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string()])
@pytest.mark.parametrize("other", [pa.decimal128(9, 2), pa.large_string(), pa.int64()])
def test_common_forms_of_one_number_are_one_person(kind, other, tmp_path):
    cells = [pa.array(["70"]).cast(each) for each in (kind, other)]
    assert counted(written(tmp_path, [*cells, "70"])) == 1


@pytest.mark.parametrize(
    "forms",
    [
        (pa.array([1], pa.timestamp("us")), pa.array([1000], pa.timestamp("ns"))),
        (pa.array([0], pa.timestamp("s")), pa.array([0], pa.timestamp("s", "UTC")), "1970-01-01"),
        (pa.array([Decimal("7.50")]), "7.50"),
        (pa.array([Decimal("7.50")]), pa.array([7.5])),
        (pa.array([True]), "True"),
        (pa.array([True]), "1"),
        (pa.array(["Jos\ufffd"]), "Jos\ufffd"),
        (pa.array([1e15]), "1000000000000000.0"),
    ],
)
def test_cells_with_several_forms_are_refused(forms, tmp_path):
    with pytest.raises(DataError, match=r"'who' has .* which can confuse persons"):
        counted(written(tmp_path, forms))


def test_a_date_is_the_text_of_it(tmp_path):
    day = dt.date(2024, 2, 29)
    assert counted(written(tmp_path, ["2024-02-29", pa.array([day])])) == 1
    frame = as_objects([day, "2024-02-29", dt.date(2024, 2, 28)], None)
    assert counted(frame) == 2


# The promise, as users get it.


@pytest.mark.parametrize("one", ["Jos\udce9", Decimal("1001.10000000000000001"), pd.Timestamp(1)])
def test_what_was_merged_is_refused_by_all_entries_and_not_quoted(one, tmp_path):
    frame = as_objects([one], None)
    for run in (
        lambda: counted(frame),
        lambda: answer(frame, SCHEMA, 1, epsilon=1, rows_per_person=1),
        lambda: Synthesizer(epsilon=1, rows_per_person=2).fit(frame, schema=SCHEMA),
    ):
        with pytest.raises(DataError, match="which can confuse persons") as refused:
            run()
        assert "Jos" not in str(refused.value)
        assert "1001" not in str(refused.value)


def test_commands_refuse_before_anything_is_spent(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    as_parquet([np.float32(2**24)], tmp_path)
    assert main(["ledger", "create", "--ledger", "l", "--epsilon", "9", "--person", "who"]) == 0
    capfd.readouterr()
    for command in ("synthesize", "answer"):
        words = f"{command} t.parquet --schema s.json --ways 1 --epsilon 1 --out o.csv --ledger l"
        assert main([*words.split(), "--rows-per-person", "1"]) == 2
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert "over 7 digits, which can confuse persons. Store it as text or integers" in said
    with closing(LedgerBook(tmp_path / "l")) as book:
        assert all("released" not in row.body for row in book.rows())
