"""Proposed schemas: the true reason for a column left out, and what is read for all its looks."""

import datetime as dt
import json
import uuid
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs.cli import main
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.profile import Profile
from adaptive_qs.data.propose import propose
from adaptive_qs.data.review import AS_PROPOSED, TAKEN_FROM_DATA
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.spelling import FORMATS

N = 600
RNG = np.random.default_rng(11)
DAYS = pd.Timestamp("2018-01-01") + pd.to_timedelta(RNG.integers(0, 1_400, N), "D")
TIMES = DAYS + pd.to_timedelta(RNG.integers(0, 86_400, N), "s")
AMOUNTS = RNG.lognormal(6, 1, N)
"""Numbers of which nearly all are different."""


@pytest.fixture(params=["csv", "parquet", "frame"])
def doors(request, tmp_path):
    """Propose a schema for columns by way of `schema init`, or from a data frame; the proposal
    fits the table in each case."""

    def through(columns):
        frame = pd.DataFrame({name: pd.Series(cells) for name, cells in columns.items()})
        path = tmp_path / f"t.{request.param}"
        if request.param == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
        proposal = propose(frame if request.param == "frame" else path)
        if request.param != "frame":
            assert main(["schema", "init", str(path), "--out", str(tmp_path / "p.json")]) == 0
            assert Schema.load(tmp_path / "p.json") == proposal.schema
        encode_file(path, proposal.schema)
        return proposal

    return through


def written(pattern, values=AMOUNTS):
    return [pattern.format(value) for value in values]


SPELLED = {
    "a decimal comma": written("{:.2f}", AMOUNTS),
    "currency signs": written("${:.2f}"),
    "currency signs, after": written("{:.2f} €"),
    "currency signs, words": written("EUR {:.2f}"),
    "percent signs": written("{:.3f} %", AMOUNTS / 10),
    "thousands separators": written("{:,.2f}", AMOUNTS * 10),
    "currency signs and thousands separators": written("$ {:,.0f}", AMOUNTS * 100),
    "a decimal comma and thousands separators": [
        text.translate(str.maketrans(",.", ".,")) for text in written("{:,.2f}", AMOUNTS * 10)
    ],
    "thousands separators, of Switzerland": [
        text.replace(",", "'") for text in written("{:,.2f}", AMOUNTS * 10)
    ],
    "brackets for a minus and currency signs": ["($12.50)", *written("${:.2f}", AMOUNTS[1:])],
}
SPELLED["a decimal comma"] = [text.replace(".", ",") for text in SPELLED["a decimal comma"]]


def test_numbers_in_other_spellings_are_left_out_with_what_to_do(doors):
    proposal = doors({**SPELLED, "x": [1, 2] * (N // 2)})
    assert proposal.schema.names == ("x",)
    for name in SPELLED:
        reason = proposal.left_out[name]
        assert reason.startswith(f"numbers with {name.split(', ')[0]}: "), (name, reason)
        assert "such as 1234.5" in reason


def test_few_numbers_in_another_spelling_stay_categories_with_a_note(doors):
    proposal = doors({"x": ["0,5", "1,0", "1,5"] * 200})
    assert proposal.schema.columns[0].values == ("0,5", "1,0", "1,5")
    assert "a decimal comma" in proposal.notes["x"]


@pytest.mark.parametrize(
    "labels", [["a,b", "c"], ["1-2", "3-4"], ["v1.2.3", "v1.2.4"], ["5 kg", "7 kg"], ["12:x", "y"]]
)
def test_other_labels_have_no_note(doors, labels):
    proposal = doors({"x": labels * 50})
    assert sorted(proposal.schema.columns[0].values) == labels
    assert proposal.notes == {}


DATES = [way for way in FORMATS if way not in ("%Y%m%d", "%d %B %Y", "%B %d, %Y")]


@pytest.mark.parametrize("way", DATES)
def test_dates_are_read_as_they_are_written(tmp_path, way):
    """Also where every day is followed by a time; the first days of months come last."""
    later = [moment.strftime(way) for moment in sorted(TIMES, key=lambda t: -t.day)]
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": [*later, ""]}).to_csv(path, index=False)
    schema = propose(path).schema
    column = schema.columns[0]
    assert (column.type, column.format) == ("datetime" if "M" in way[8:] else "date", way)
    encode_file(path, schema)


@pytest.mark.parametrize("way", ["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%Y%m%d"])
def test_dates_through_every_door(doors, way):
    texts = pd.Series([day.strftime(way) for day in DAYS])
    column = doors({"x": texts.astype(int) if way == "%Y%m%d" else texts}).schema.columns[0]
    assert (column.type, column.format) == ("date", way)
    assert (column.min, column.max) == (DAYS.min().date(), DAYS.max().date())
    assert column.granularity == "quarter"


def test_day_and_month_that_nobody_can_tell_are_said_to_be_so(doors):
    texts = [f"{1 + i % 12:02}/{1 + i % 7:02}/2020" for i in range(N)]
    reason = doors({"x": texts, "y": [1, 2] * (N // 2)}).left_out["x"]
    assert "%d/%m/%Y or %m/%d/%Y" in reason


def test_one_day_settles_the_order_even_if_it_comes_late(tmp_path):
    """In a later block of rows than the first."""
    profile = Profile()
    profile.update(pa.array([f"{1 + i % 12:02}/{1 + i % 7:02}/2020" for i in range(200)]))
    profile.update(pa.array(["12/31/2020"]))
    assert list(profile.spans) == ["%m/%d/%Y"]


@pytest.mark.parametrize("text", ["31.02.2020", "soon", "2020"])
def test_dates_but_for_a_cell(doors, text):
    """A word may stand for a missing date; a date that does not exist is a mistake."""
    proposal = doors({"x": [text, *DAYS[1:].strftime("%d.%m.%Y")], "y": [1, 2] * (N // 2)})
    if text == "soon":
        assert proposal.schema.columns[0].missing == ("soon",)
        assert "count as missing" in proposal.notes["x"]
    else:
        assert proposal.left_out["x"].startswith("dates, but for a few cells")


@pytest.mark.parametrize("infinite", [["inf"], ["-inf"], ["inf", "-inf"]])
@pytest.mark.parametrize("whole", [False, True])
def test_infinite_cells_count_as_missing(doors, infinite, whole):
    numbers = np.floor(AMOUNTS) if whole else AMOUNTS
    values = np.concatenate([[float(text) for text in infinite], numbers[len(infinite) :]])
    proposal = doors({"x": values})
    column = proposal.schema.columns[0]
    assert column.type == ("integer" if whole else "numeric")
    assert sorted(column.missing) == sorted(infinite)
    assert "infinite" in proposal.notes["x"]


def test_not_a_number_is_missing_without_a_word(doors):
    values = AMOUNTS.copy()
    values[7] = np.nan
    proposal = doors({"x": values})
    assert proposal.schema.columns[0].type == "numeric"
    assert proposal.notes == {}


@pytest.mark.parametrize("words", [["unknown"], ["-", "n.a."], ["#DIV/0!", "#REF!", "none"]])
def test_a_few_words_among_numbers_count_as_missing(doors, words):
    texts = [*words, *(f"{value:.2f}" for value in AMOUNTS[len(words) :])]
    proposal = doors({"x": texts})
    column = proposal.schema.columns[0]
    assert (column.type, sorted(column.missing)) == ("numeric", sorted(words))
    assert "count as missing" in proposal.notes["x"]


def test_words_among_few_numbers_are_labels(doors):
    proposal = doors({"x": ["0", "1", "2", "many"] * 150})
    assert proposal.schema.columns[0].values == ("0", "1", "2", "many")


def test_numbers_but_for_a_text_are_no_free_text(doors):
    proposal = doors({"x": ["about 5", *map(str, AMOUNTS[1:])], "y": [1, 2] * (N // 2)})
    assert proposal.left_out["x"].startswith("numbers, but for a few cells")


def test_markers_are_found_behind_very_many_values():
    profile = Profile()
    profile.update(pa.array(np.arange(150_000) / 7))
    profile.update(pa.array([np.inf, None, 1.5]))
    assert profile.markers == ("inf",)
    texts = Profile()
    texts.update(pa.array([str(i / 7) for i in range(150_000)]))
    texts.update(pa.array(["?"]))
    assert texts.markers == ("?",)


DURATIONS = pd.to_timedelta(RNG.integers(0, 200_000, N), "s")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([str(d) for d in DURATIONS], "durations, for"),
        ([str(d.to_pytimedelta()) for d in DURATIONS], "durations, for"),
        ([d.isoformat() for d in DURATIONS], "durations, for"),
        ([f"{s // 60}:{s % 60:02}" for s in range(N)], "durations or times of day"),
        (TIMES.strftime("%H:%M:%S"), "durations or times of day"),
    ],
)
def test_durations_as_text(doors, texts, words):
    proposal = doors({"x": texts, "y": [1, 2] * (N // 2)})
    assert proposal.left_out["x"].startswith(words)
    assert "give them as a number of" in proposal.left_out["x"]


@pytest.mark.parametrize("pattern", ["{:.1f} °C", "{:.0f} cm", "{:.0f}kg", "{:.2f} mg/l"])
def test_many_numbers_with_a_unit(doors, pattern):
    proposal = doors({"x": written(pattern), "y": [1, 2] * (N // 2)})
    assert proposal.left_out["x"].startswith("numbers with a unit: ")


def test_hours_of_a_day_are_few(doors):
    proposal = doors({"x": [f"{i % 24:02}:00" for i in range(N)]})
    assert len(proposal.schema.columns[0].values) == 24
    assert "times of day" in proposal.notes["x"]


@pytest.mark.parametrize(
    "pattern", ["{}a{}", "192.{}.10.{}", "{}-{}", "{} of {}", "{}.{}.2020x", "A{} B{}"]
)
def test_other_texts_are_not_taken_for_numbers(doors, pattern):
    texts = [pattern.format(100 + i % 155, 100 + i // 155) for i in range(N)]
    reason = doors({"x": texts, "y": [1, 2] * (N // 2)}).left_out["x"]
    assert reason == "an identifier or free text: nearly every value is different"


def test_durations_of_a_frame_are_not_empty(doors):
    proposal = doors({"x": DURATIONS.astype("timedelta64[s]"), "y": [1, 2] * (N // 2)})
    assert proposal.left_out["x"].startswith("durations, for which there is no type")


@pytest.mark.parametrize("kind", ["parquet", "pyarrow"])
def test_types_that_no_column_takes_are_named(tmp_path, capsys, kind):
    columns = {
        "duration": pa.array([1, None, 3], pa.duration("s")),
        "time": pa.array([dt.time(1, 2), dt.time(3), None]),
        "list": pa.array([[1, 2], [], None]),
        "struct": pa.array([{"a": 1}, None, {"a": 2}]),
        "bytes": pa.array([b"a", b"b", None]),
        "nothing": pa.nulls(3),
        "x": pa.array([1, 2, 3]),
    }
    table = pa.table(columns)
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    proposal = propose({"parquet": path, "pyarrow": table}[kind])
    assert proposal.schema.names == ("x",)
    reasons = {name: reason.split(",")[0] for name, reason in proposal.left_out.items()}
    assert reasons == {
        "duration": "durations",
        "time": "times of day",
        "list": "lists",
        "struct": "nested records",
        "bytes": "of the type binary",
        "nothing": "empty",
    }
    assert main(["schema", "init", str(path)]) == 0
    assert "'duration' (durations, for which there is no type" in capsys.readouterr().err


def test_a_table_without_any_column_to_propose_says_why(tmp_path, capsys):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": SPELLED["currency signs"]}).to_csv(path, index=False)
    assert main(["schema", "init", str(path)]) == 2
    assert "(numbers with currency signs: write them" in capsys.readouterr().err


IDENTIFIERS = {
    "consecutive": np.arange(1_000, 1_000 + N),
    "shuffled": RNG.permutation(N),
    "dense": np.sort(RNG.choice(4 * N, N, replace=False)),
    "spread": RNG.choice(10**6, N, replace=False),
    "long numbers": 10**8 + RNG.choice(10**9, N, replace=False),
    "blocks": RNG.permutation(np.concatenate([np.arange(N // 2), 10**6 + np.arange(N // 2)])),
    "patient_id": np.unique((1000 * RNG.lognormal(9, 1, 2 * N)).astype(int))[:N],
    "customerNo": np.unique((1000 * RNG.lognormal(9, 1, 2 * N)).astype(int))[:N],
    "uuid": [str(uuid.UUID(int=int(i) << 60)) for i in RNG.choice(10**6, N, replace=False)],
    "key": [f"P-{i:06}" for i in range(N)],
}
MEASURES = {
    "income": (1000 * RNG.lognormal(10, 0.5, 3 * N)).astype(int),
    "large": np.unique((1e6 * RNG.lognormal(10, 1, 2 * N)).astype(np.int64))[:N],
    "floats": RNG.permutation(N) + 0.5,
    "seconds": RNG.uniform(0, 100, N),
    "age": RNG.integers(0, 100, N),
}
MEASURES["income"] = RNG.permutation(np.unique(MEASURES["income"]))[:N]
MEASURES["large"] = RNG.permutation(MEASURES["large"])


def test_identifiers_are_told_from_measurements(doors):
    for name in ("income", "large"):
        assert len(np.unique(MEASURES[name])) == N
    proposal = doors({**IDENTIFIERS, **MEASURES})
    assert {n: proposal.left_out.get(n, "proposed")[:13] for n in IDENTIFIERS} == dict.fromkeys(
        IDENTIFIERS, "an identifier"
    )
    assert proposal.schema.names == tuple(MEASURES)
    assert set(proposal.schema.ignore) == set(IDENTIFIERS)


@pytest.mark.parametrize("seed", range(5))
def test_measurements_of_small_tables_are_no_identifiers(doors, seed):
    rng = np.random.default_rng(seed)
    columns = {
        "income": rng.choice(np.arange(20_000, 90_000), 50, replace=False),
        "normal": np.unique(rng.normal(50_000, 9_000, 60).astype(int))[:50],
        "growing": np.cumsum(rng.integers(1, 900, 50) ** 2),
        "year": rng.permutation(np.arange(1970, 2020)),
        "id": np.arange(50),
        "number": rng.choice(np.arange(20_000, 90_000), 50, replace=False),
    }
    proposal = doors(columns)
    assert set(proposal.left_out) == {"id", "number"}


@pytest.mark.parametrize("rows", [10, 12])
def test_a_dozen_different_ages_are_ages(doors, rows):
    ages = np.random.default_rng(rows).choice(np.arange(18, 80), rows, replace=False)
    assert doors({"age": ages}).schema.names == ("age",)


def test_coincidences_are_no_identifier(doors):
    """As many rows share a value as chance makes; a code that is given twice stays one."""
    values = RNG.integers(0, 20_000, 2_000)
    codes = np.append(RNG.permutation(1_999), 5)
    proposal = doors({"x": values, "code": codes})
    assert proposal.schema.names == ("x",)
    assert proposal.left_out["code"] == "an identifier: nearly every integer is different"


@pytest.mark.parametrize("absurd", [1e30, -1e30, 1e14, 99_999.0])
@pytest.mark.parametrize("whole", [False, True])
def test_an_absurd_value_is_clipped(doors, absurd, whole):
    values = RNG.integers(0, 100, N) + (0.0 if whole else 0.25)
    values[3] = absurd
    proposal = doors({"x": values.astype(int) if whole and abs(absurd) < 1e18 else values})
    column = proposal.schema.columns[0]
    edges = column.bin_edges if column.type == "numeric" else (column.min, column.max)
    assert (edges[0], edges[-1]) == pytest.approx((0, 100), abs=1)
    assert column.outside == "clip"
    assert '"outside": "clip"' in proposal.notes["x"]
    if whole:
        assert column.type == "integer" or column.decimals == 0


def test_codes_and_tails_are_not_absurd(doors):
    """Three rows share a code; a heavy tail is not far from the values before it."""
    code = RNG.integers(0, 100, N).astype(float) + 0.5
    code[:3] = 1e9
    tail = np.round(1e3 * (RNG.pareto(1.2, N) + 1), 2)
    proposal = doors({"code": code, "tail": tail})
    assert proposal.notes == {}
    assert all(column.outside == "refuse" for column in proposal.schema.columns)
    assert proposal.schema.columns[0].bin_edges[-2] == 1e9


def test_a_range_of_many_orders_of_magnitude_is_called_one(tmp_path, capsys):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": 10 ** RNG.uniform(0, 30, N)}).to_csv(path, index=False)
    proposal = propose(path)
    edges = np.array(proposal.schema.columns[0].bin_edges)
    assert (np.diff(np.log10(edges[1:-1])) > 1).all()  # each bin reaches ten times as far
    assert "many orders of magnitude" in proposal.notes["x"]
    assert main(["schema", "init", str(path), "--out", str(tmp_path / "p.json")]) == 0
    said = capsys.readouterr()
    assert " orders of magnitude, in 10 bins" in said.out
    assert "e+" not in said.err
    assert "warning: check: 'x' (" in said.err


@pytest.mark.parametrize("rows", [300, 3_000, 100_000])
def test_182_years_are_decades(doors, rows):
    years = np.append(RNG.integers(1842, 2024, rows - 2), [1842, 2023])
    column = doors({"x": years}).schema.columns[0]
    assert column.bin_starts == tuple(range(1840, 2024, 10))
    assert (column.min, column.max) == (1840, 2023)


@pytest.mark.parametrize(
    ("first", "last", "step"), [(1997, 2020, 1), (1961, 2020, 5), (1600, 2020, 20)]
)
def test_years_get_as_fine_steps_as_fit(doors, first, last, step):
    years = np.append(RNG.integers(first, last + 1, N), [first, last])
    column = doors({"x": years}).schema.columns[0]
    starts = column.starts or tuple(range(column.min, column.max + 1))
    assert set(np.diff(starts)) == {step}
    assert starts[0] == first // step * step
    assert column.max == last


def test_a_code_among_years_and_a_year_of_many_rows_have_bins_of_their_own(doors):
    years = RNG.integers(1842, 2024, N)
    years[:40], years[40:140] = 9999, 1900
    column = doors({"x": years}).schema.columns[0]
    starts = (*column.bin_starts, column.max + 1)
    own = {a for a, b in pairwise(starts) if b == a + 1}
    assert own == {1900, 9999}
    assert {*range(1840, 2021, 10), 1901, 2024} <= set(starts)


@pytest.mark.parametrize(
    ("low", "high", "rows_each", "step"), [(0, 100, 10, 10), (1, 181, 6, 20), (-400, 400, 2, 100)]
)
def test_even_integers_get_round_steps(doors, low, high, rows_each, step):
    values = np.tile(np.arange(low, high), rows_each)
    column = doors({"x": values}).schema.columns[0]
    inner = column.bin_starts[1:]
    assert set(np.diff(inner)) == {step}
    assert all(start % step == 0 for start in inner)
    assert column.min <= low
    assert column.max >= high - 1


def test_reasons_and_notes_name_no_value(tmp_path, capsys):
    """They go to stderr, and the reasons into the description of the schema."""
    columns = {**SPELLED, "inf": np.where(np.arange(N) == 3, np.inf, AMOUNTS)}
    columns |= {"word": ["c4n4ry", *map(str, AMOUNTS[1:])], "far": [7e55, *AMOUNTS[1:]]}
    path = tmp_path / "t.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    assert main(["schema", "init", str(path)]) == 0
    said = capsys.readouterr()
    content = json.loads(said.out)
    assert content["description"].startswith(TAKEN_FROM_DATA)
    assert {column["description"] for column in content["columns"]} == {AS_PROPOSED}
    for value in ("c4n4ry", "7e+55", "12.50"):
        assert value not in said.err
        assert value not in content["description"]
