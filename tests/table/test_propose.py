"""Proposed schemas: shared values and medians survive, identifiers and bad files do not."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import uuid
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.table.bins import CROWDED, bins_for
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.propose import EQUAL_LIMITS, WIDER_LIMITS, Profile, propose
from adaptive_qs.table.review import answer, list_questions
from adaptive_qs.table.schema import Schema, open_topics
from adaptive_qs.table.spellings import FORMATS, in_natural_order
from adaptive_qs.table.text import PLAIN_TIMES, Spelling
from adaptive_qs.table.write import write_table

from . import helpers

CANARY = "c4n4ry"


def proposed(tmp_path, values, name="x"):
    """The proposed column, and the values after encoding and decoding by it."""
    path = tmp_path / "t.csv"
    pd.DataFrame({name: values}).to_csv(path, index=False)
    column, _, made = helpers.proposed(path)
    return column, made


def amounts(kind, n=4_000):
    rng = np.random.default_rng(7)
    heavy = np.exp(rng.normal(7, 1.5, n))
    return np.floor(heavy) + 1 if kind == "integers" else np.round(heavy, 2) + 0.01


@pytest.mark.parametrize("kind", ["integers", "two decimals", "no decimals"])
@pytest.mark.parametrize("atom", [0, 100, 999_999])
def test_a_shared_value_and_the_median_survive(tmp_path, kind, atom):
    values = amounts(kind)
    if kind == "no decimals":
        values = values / 3
    values = np.where(values > 99_999, 99_999, values)
    values[::10] = atom
    if kind == "integers":
        values = values.astype(int)
    column, made = proposed(tmp_path, values)
    assert column.num_values <= bins_for(len(values))
    assert (made == atom).sum() == pytest.approx((values == atom).sum(), abs=4)
    bulk, made_bulk = values[values != atom], made[made != atom]
    assert np.median(made_bulk) == pytest.approx(np.median(bulk), rel=0.1)
    for share in (0.1, 0.9):
        assert np.quantile(made_bulk, share) == pytest.approx(np.quantile(bulk, share), rel=0.25)
    ends = np.array(column.bin_starts if column.type == "integer" else column.bin_edges)
    width = bulk.max() - ends[ends < bulk.max()].max()
    assert made_bulk.max() <= bulk.max() + width / 2  # an end moves by half its bin at most


@pytest.mark.parametrize("end", ["first", "last"])
@pytest.mark.parametrize(("part", "own"), [(0.013, True), (0.003, True), (0.0015, False)])
def test_the_code_that_ends_a_scale_gets_a_bin_of_its_own(tmp_path, end, part, own):
    """A quarter of √rows is enough where there are bins to spare, 0.15 % of the rows is not."""
    values = np.random.default_rng(3).integers(10_000, 60_000, 25_000)
    code = 70_000 if end == "last" else 2_000
    values[: int(part * len(values))] = code
    column, made = proposed(tmp_path, values)
    assert column.num_values <= bins_for(len(values))
    assert ((made == code).sum() == (values == code).sum()) == own


@pytest.mark.parametrize("rows", [30, 300, 3_000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_no_column_gets_more_bins_than_its_rows_allow(tmp_path, rows):
    """Values that keep a code each may be twice as many; one more of them, and there are
    bins."""
    rng = np.random.default_rng(rows)
    amount = np.round(rng.lognormal(7, 2, rows), 2)
    values = np.arange(rows)
    codes = 2 * bins_for(rows)
    binned = {
        "normal": rng.normal(size=rows),
        "heavy": amount,
        "shared": np.where(rng.random(rows) < 0.5, 0, amount),
        "sentinels": np.where(rng.random(rows) < 0.2, rng.choice([-9, 999_999], rows), amount),
        "heaped": np.round(amount, -3) + rng.choice([0.0, 0.5], rows),
        "days": rng.integers(1, 180, rows),
        "one more": values % (codes + 1),
        "one more, apart": values % (codes + 1) * 100,
        "one more number": values % (codes + 1) / 10,
    }
    exact = {"as many": values % codes, "as many numbers": values % codes / 10}
    path = tmp_path / "t.csv"
    pd.DataFrame(binned | exact).to_csv(path, index=False)
    for column in propose(path).columns:
        if column.name == "heaped":  # empty bins between frequent values come on top
            found = np.unique(column.read(pa.array(binned["heaped"])))
            assert found.size <= bins_for(rows)
            continue
        most = bins_for(rows) if column.name in binned else codes
        assert column.num_values <= most, column.name


@pytest.mark.parametrize("rows", [2_000, 50_000])
@pytest.mark.parametrize("kind", ["ages", "decreasing", "even", "just below", "heaped"])
def test_no_bin_of_several_values_holds_much_more_than_the_others(tmp_path, kind, rows):
    """Between values with bins of their own are at most ``CROWDED`` averages a bin; a quarter of
    those bins may go to tails, and each ends up to one average late, at the end of a value."""
    most = (CROWDED * 4 / 3 + 1) * rows / bins_for(rows)
    rng = np.random.default_rng(3)
    values = {
        "ages": 17 + np.minimum(rng.gamma(2.5, 9, rows), 73).astype(int),
        "decreasing": rng.geometric(0.05, rows),
        "even": rng.integers(0, 90, rows),
        "just below": 10 * rng.poisson(40, rows) - (rng.random(rows) < 0.7),
        "heaped": np.where(rng.random(rows) < 0.3, 10, 1) * rng.integers(0, 100, rows),
    }[kind]
    column, _ = proposed(tmp_path, values)
    starts = np.array(column.bin_starts or range(column.min, column.max + 1))
    inside = np.searchsorted(starts, values, side="right") - 1
    for k, held in enumerate(np.bincount(inside, minlength=len(starts))):
        alone = len(np.unique(values[inside == k])) <= 1
        assert alone or held <= most, (starts[k], held)


def test_the_ends_of_a_range_are_round(tmp_path):
    values = np.random.default_rng(5).integers(11_234, 87_654, 5_000)
    column, _ = proposed(tmp_path, values)
    assert (column.min, column.max) == (11_000, 88_000)
    column, _ = proposed(tmp_path, values - 11_233)  # from 1, which may mean "at least one"
    assert column.min == 1
    column, _ = proposed(tmp_path, values - 11_200)
    assert column.min == 0


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (f"40,1.5,{CANARY}", 0), ("39,1e3,-7", 0), ("1,2", 0),
        ("country,2000,2001,2002", 4), ("0,1,2,3", 4), ("1,b", 2),
    ],
)  # fmt: skip
def test_a_first_line_of_data_is_refused_unquoted_and_counting_numbers_are_names(
    tmp_path, header, names
):
    path = tmp_path / "t.csv"
    row = ",".join("5" * names) if names else header
    path.write_text(f"{header}\n{row}\n")
    if names:
        assert len(propose(path).columns) == names
        return
    with pytest.raises(DataError) as caught:
        propose(path)
    assert str(caught.value) == f"{path}: the first line looks like data: add a header line"


@pytest.mark.parametrize("rows", [30, 300, 3_000, 30_000])
@pytest.mark.parametrize("days", [1, 40, 400, 4_000])
def test_dates_get_the_finest_period_of_which_there_are_few(tmp_path, rows, days):
    """Twice as many periods as bins at most; a day has 24 hours, and no step is greater."""
    rng = np.random.default_rng(days)
    hours = np.append(rng.integers(0, 24 * days, rows - 2), [0, 24 * days - 1])
    column, _ = proposed(tmp_path, pd.Timestamp("2021-03-01") + pd.to_timedelta(hours, "h"))
    most = max(24, 2 * bins_for(rows))
    assert most / 24 <= column.num_values <= most


# Proposed schemas: the true reason for a column left out, and what is read for all its looks.

N = 600
RNG = np.random.default_rng(11)
DAYS = pd.Timestamp("2018-01-01") + pd.to_timedelta(RNG.integers(0, 1_400, N), "D")
TIMES = DAYS + pd.to_timedelta(RNG.integers(0, 86_400, N), "s")
AMOUNTS = RNG.lognormal(6, 1, N)
"""Numbers of which nearly all are different."""


@pytest.fixture(params=["csv", "parquet", "frame"])
def doors(request, tmp_path, monkeypatch):
    """Propose a schema for columns by way of `schema init`, or from a data frame; the proposal
    fits the table in each case. Rules, which take long to find, are looked for elsewhere."""
    monkeypatch.setattr("adaptive_qs.evaluation.finding.propose_rules", lambda _, schema: schema)

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
            assert Schema.load(tmp_path / "p.json") == proposal
        read_table(path, proposal)
        return proposal

    return through


def written(pattern, values=AMOUNTS):
    return [pattern.format(value) for value in values]


COMMAS = str.maketrans(",.", ".,")
FORMS = {
    "0,5": ([t.translate(COMMAS) for t in written("{:.2f}", AMOUNTS)], {"decimal": ","}),
    "1.234,5": (
        [t.translate(COMMAS) for t in written("{:,.2f}", AMOUNTS * 10)],
        {"decimal": ",", "thousands": "."},
    ),
    "1 234,5": (
        [t.translate({44: 160, 46: 44}) for t in written("{:,.2f}", AMOUNTS * 10)],
        {"decimal": ",", "thousands": " "},
    ),
    "1,234.5": (written("{:,.2f}", AMOUNTS * 10), {"thousands": ","}),
    "1'234.5": (
        [t.replace(",", "'") for t in written("{:,.2f}", AMOUNTS * 10)], {"thousands": "'"}
    ),
    "1.234,50 €": (
        [f"{t.translate(COMMAS)} €" for t in written("{:,.2f}", AMOUNTS * 10)],
        {"decimal": ",", "thousands": ".", "suffix": " €"},
    ),
    "$1,234.5": (written("${:,.2f}", AMOUNTS * 10), {"thousands": ",", "prefix": "$"}),
    "61.5 %": (written("{:.1f} %", AMOUNTS / 10), {"suffix": " %"}),
    "180 kg": (written("{:.0f} kg"), {"suffix": " kg"}),
    "1.234.567": (
        [t.translate(COMMAS) for t in written("{:,.0f}", AMOUNTS**3 + 10**6)],
        {"decimal": ",", "thousands": "."},
    ),
}  # fmt: skip


def test_numbers_in_the_form_of_a_country_are_read_and_written_in_it(tmp_path, doors):
    """Their bins are those of the same numbers as the program writes them."""
    columns = {name: cells for name, (cells, _) in FORMS.items()}
    columns["few, with words"] = ["0,5", "1,0", "?", "1,5"] * 150
    for name, (cells, form) in FORMS.items():
        plain = [Spelling(**form).read(cell) for cell in cells]
        columns[f"{name} plain"] = [(int if "." not in text else float)(text) for text in plain]
    proposal = doors(columns)
    assert proposal.names == tuple(columns)
    for name, (_, form) in FORMS.items():
        column, plain = map(proposal.column, (name, f"{name} plain"))
        update = {"name": name, "fixed_decimals": column.fixed_decimals, "why": column.why, **form}
        assert column == plain.model_copy(update=update), name
        assert f'numbers with "{next(iter(form))}" ' in "; ".join(proposal.column(name).why)
    few = proposal.column("few, with words")
    assert (few.decimal, few.missing, few.num_values) == (",", ("?",), 3)


def test_numbers_with_two_signs_are_no_numbers(doors):
    cells = [["-$-5", "-$6", "$-7", "$8"][k % 4] for k in range(N)]
    assert doors({"amount": cells}).column("amount").type == "categorical"


@pytest.mark.parametrize("key", ["prefix", "suffix", "format"])
def test_no_cell_of_a_declared_form_is_a_formula(key):
    """A program that opens the file of a foreign release would run it."""
    form = "=cmd|' /C calc'!A"
    column = {"name": "v", "type": "integer", "min": -9, "max": 9, key: form}
    if key == "format":
        day = {"type": "date", "min": "2020-01-01", "max": "2020-12-31"}
        column = {"name": "v", **day, "format": f"{form}%Y-%m-%d"}
    Schema.parse({"version": 1, "columns": [json.loads(json.dumps(column).replace(form, "km "))]})
    with pytest.raises(SchemaError):
        Schema.parse({"version": 1, "columns": [column]})


def test_commas_that_may_mean_either_are_left_to_the_owner(doors):
    """Unless one cell tells, wherever it is."""
    cells = ["1,234", "2,500", "317", *(f"{k},{100 + k}" for k in range(1, N))]
    told = {"decimal": [*cells, "1,5"], "thousands": [*cells, "1,234,567"]}
    proposal = doors({"x": [*cells, "5"], **told})
    reason = helpers.left_out(proposal)["x"]
    assert reason.startswith("numbers whose commas can mean decimals or thousands: ")
    for key in told:
        assert proposal.column(key).spelling.fields == {key: ","}


def test_times_of_day_and_amounts_with_units_are_written_as_they_are_spelled(tmp_path):
    """Values drawn in the bins have the signs and digits of the true ones, in the same hours."""
    columns = {
        "time": [text[:5] for text in TIMES.strftime("%H:%M:%S")],
        "seconds": TIMES.strftime("%H:%M:%S"),
        "noon": TIMES.strftime("%I:%M %p"),
        "owed": ["12.00 kr", *written("-{:,.2f} kr", AMOUNTS[1:] * 10)],
    }
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    schema = propose(tmp_path / "t.csv")
    table = read_table(tmp_path / "t.csv", schema)
    drawn = decode(table, schema, np.random.default_rng(0))
    for column, values, true in zip(schema.columns, drawn, columns.values(), strict=True):
        made = column.csv_texts(values.combine_chunks()).to_pylist()
        assert {re.sub("[0-9]+", "0", cell) for cell in made} == {
            re.sub("[0-9]+", "0", cell) for cell in true
        }
        if column.name != "owed":
            assert (column.kind, column.topics, column.num_values) == ("times", (), 24)
            assert [cell[:2] for cell in made] == [cell[:2] for cell in true]
            assert column.value_labels()[8] == "08h"


SPELLED = {
    "two decimal signs": [*written("{:,.2f}", AMOUNTS[1:] * 10), "1.234,5"],
    "brackets": ["($12.50)", *written("${:.2f}", AMOUNTS[1:])],
}
WITH_SIGNS = "numbers with signs of a currency, percent signs, brackets or separators in"


DURATIONS = pd.to_timedelta(RNG.integers(0, 200_000, N), "s")
NEARLY_ALL = "an identifier or free text: nearly every value is different"
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

LEFT_OUT = {name: (cells, WITH_SIGNS, "such as 1234.5") for name, cells in SPELLED.items()}
LEFT_OUT |= {name: (cells, "an identifier", "") for name, cells in IDENTIFIERS.items()}
LEFT_OUT |= {
    f"durations {k}": (cells, words, "give them as a number of")
    for k, (cells, words) in enumerate([
        ([str(d) for d in DURATIONS], "durations, for"),
        ([str(d.to_pytimedelta()) for d in DURATIONS], "durations, for"),
        ([d.isoformat() for d in DURATIONS], "durations, for"),
        ([f"{s // 60}:{s % 60:02}" for s in range(N)], "durations or times of day"),
        (DURATIONS.astype("timedelta64[s]"), "durations, for which there is no type"),
    ])
}  # fmt: skip
LEFT_OUT |= {
    f"text {pattern}": (
        [pattern.format(100 + i % 155, 100 + i // 155) for i in range(N)], NEARLY_ALL, NEARLY_ALL
    )
    for pattern in ("{}a{}", "192.{}.10.{}", "{}-{}", "{} of {}", "{}.{}.2020x", "A{} B{}")
}  # fmt: skip
LEFT_OUT |= {
    f"dates but for {text}": (
        [text, *DAYS[1:].strftime("%d.%m.%Y")], "dates, except a few cells", ""
    )
    for text in ("31.02.2020", "2020")
}  # fmt: skip
LEFT_OUT |= {
    "nothing": ([""] * N, "empty", ""),
    "SEQN": (83_000 + np.sort(RNG.choice(8 * N, N, replace=False)), "an identifier", ""),
    "long": ([10**17 + i % 7 for i in range(N)], "an identifier: integers of more", ""),
    "numbers but for a text": (
        ["about 5", *map(str, AMOUNTS[1:])], "numbers, except a few cells", ""
    ),
}  # fmt: skip


def test_columns_are_left_out_with_the_reason_and_what_to_do(doors):
    cells = {name: cells for name, (cells, _, _) in LEFT_OUT.items()}
    for name in ("income", "large"):
        assert len(np.unique(MEASURES[name])) == N
    proposal = doors({**cells, **MEASURES})
    assert proposal.names == tuple(MEASURES)
    assert {column.name for column in proposal.generated} == set(LEFT_OUT)
    for name, (_, start, within) in LEFT_OUT.items():
        reason = helpers.left_out(proposal)[name]
        assert reason.startswith(start), (name, reason)
        assert within in reason, (name, reason)


SPAN = {"min": DAYS.min().date(), "max": DAYS.max().date(), "granularity": "month"}
NAN = np.where(np.arange(N) == 7, np.nan, AMOUNTS)
CODE = np.where(np.arange(N) < 3, 1e9, RNG.integers(0, 100, N) + 0.5)
AS_MISSING = "count as missing"
PROPOSED = {
    "day or month": (
        [f"{1 + i % 12:02}/{1 + i % 7:02}/2020" for i in range(N)],
        {"format": "%d/%m/%Y", "open": ("format", "limits")}, "day and month can be exchanged",
    ),
    "few in percent": (
        ["0.5%", "1.0%", "1.5%"] * 200, {"values": ("0.5%", "1.0%", "1.5%"), "ordered": True}, ""
    ),
    "not a number": (NAN, {"type": "numeric"}, ""),
    "words among few": (
        ["0", "1", "2", "many"] * 150, {"values": ("0", "1", "2", "many")}, ""
    ),
    "hours": ([f"{i % 24:02}:00" for i in range(N)], {"num_values": 24, "format": "%H:%M"}, ""),
    "grade": ([1, 2, 99] * 200, {"type": "categorical", "values": (1, 2, 99)}, ""),
    "gain": ([0, 700] * 100 + [*range(N - 200)], {"type": "integer"}, ""),
    "ok": (["True", "False", "?"] * 200, {"type": "boolean", "missing": ["?"]}, ""),
    "answer": (["Y", "N"] * 300, {"values": ("N", "Y"), "missing": []}, ""),
    "age": (["N"] * 3 + [*map(str, CODE[3:])], {"type": "numeric", "missing": ["N"]}, ""),
    "day": (DAYS.strftime("%Y-%m-%d"), {"type": "date", "format": None}, ""),
    "at": (TIMES.strftime("%Y-%m-%dT%H:%M:%S"), {"type": "datetime", "format": None}, ""),
    "soon": (["soon", *DAYS[1:].strftime("%d.%m.%Y")], {"missing": ["soon"]}, AS_MISSING),
    "code": (CODE, {"outside": "refuse"}, ""),  # three rows share it
    "tail": (np.round(1e3 * (RNG.pareto(1.2, N) + 1), 2), {"outside": "refuse"}, ""),
}  # fmt: skip
PROPOSED |= {
    "never": (
        np.where(np.arange(N) % 9, DAYS.strftime("%d.%m.%Y"), "31.12.9999"),
        {"missing": ["31.12.9999"], **SPAN}, "far from all others",
    ),
    "latitude": (
        np.where(np.arange(N) % 9, [f"52.{k:03}" for k in range(N)], "0"), {"missing": ["0"]},
        "missing value",
    ),
    "insurer": (["AOK", "TK", "999"] * 200, {"missing": ["999"]}, ""),
    "kg": (
        np.where(np.arange(N) % 9, [f"{60 + k / 10:.1f}" for k in range(N)], "-1"),
        {"missing": ["-1"], "fixed_decimals": 1}, "missing value",
    ),
    "violation_code": ([10, 21, 62] * 200, {"ordered": False}, ""),
}  # fmt: skip
PROPOSED |= {
    str(labels): (labels * (N // 2), {"values": tuple(labels)}, "")
    for labels in (["a,b", "c"], ["1-2", "3-4"], ["v1.2.3", "v1.2.4"], ["5 kg", "7 kg"],
                   ["12:x", "y"])
}  # fmt: skip
PROPOSED |= {
    way: (DAYS.strftime(way), {"type": "date", "format": way, **SPAN}, "")
    for way in ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d")
}
for way in ("%Y%m%d", "%y%m%d"):
    PROPOSED[way] = (DAYS.strftime(way).astype(int), {"type": "date", "format": way, **SPAN}, "")
for infinite in (["inf"], ["-inf"], ["inf", "-inf"]):
    for kind, numbers in (("integer", np.floor(AMOUNTS)), ("numeric", AMOUNTS)):
        cells = np.concatenate([[float(text) for text in infinite], numbers[len(infinite) :]])
        expected = {"type": kind, "missing": sorted(infinite)}
        PROPOSED[f"{kind} {infinite}"] = (cells, expected, "infinite")
for words in (["unknown"], ["-", "n.a."], ["#DIV/0!", "#REF!", "none"]):
    cells = [*words, *(f"{value:.2f}" for value in AMOUNTS[len(words) :])]
    PROPOSED[str(words)] = (cells, {"type": "numeric", "missing": sorted(words)}, AS_MISSING)


def test_columns_are_proposed_for_what_they_look_like_with_a_note_where_one_is_due(doors):
    proposal = doors({name: cells for name, (cells, _, _) in PROPOSED.items()})
    assert proposal.names == tuple(PROPOSED)
    for column, (_, expected, note) in zip(proposal.columns, PROPOSED.values()):
        for key, value in expected.items():
            found = getattr(column, key)
            assert (sorted(found) if key == "missing" else found) == value, (column.name, key)
        said = [why for why in column.why if why not in (EQUAL_LIMITS, WIDER_LIMITS)]
        assert any(note in why for why in said) if note else not said
    assert proposal.column("code").bin_edges[-2] == 1e9


COMPACT = ("%Y%m%d", "%y%m%d")
DATES = [way for way in (*PLAIN_TIMES, *FORMATS) if way not in (*COMPACT, "%d %B %Y", "%B %d, %Y")]


@pytest.mark.parametrize("way", DATES)
def test_dates_are_read_as_they_are_written(tmp_path, way):
    """Also where every day is followed by a time; the first days of months come last."""
    later = [moment.strftime(way) for moment in sorted(TIMES, key=lambda t: -t.day)]
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": [*later, ""]}).to_csv(path, index=False)
    schema = propose(path)
    column = schema.columns[0]
    assert (column.type, column.format) == ("datetime" if "M" in way[8:] else "date", way)
    read_table(path, schema)


def test_one_day_settles_the_order_even_if_it_comes_late(tmp_path):
    """In a later block of rows than the first."""
    profile = Profile()
    profile.update(pa.array([f"{1 + i % 12:02}/{1 + i % 7:02}/2020" for i in range(200)]))
    profile.update(pa.array(["12/31/2020"]))
    assert list(profile.spans) == ["%m/%d/%Y"]


def test_markers_are_found_behind_very_many_values():
    profile = Profile()
    profile.update(pa.array(np.arange(150_000) / 7))
    profile.update(pa.array([np.inf, None, 1.5]))
    assert profile.markers == ("inf",)
    texts = Profile()
    texts.update(pa.array([str(i / 7) for i in range(150_000)]))
    texts.update(pa.array(["?"]))
    assert texts.markers == ("?",)


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
    assert proposal.names == ("x",)
    reasons = {name: reason.split(",")[0] for name, reason in helpers.left_out(proposal).items()}
    assert reasons == {
        "duration": "durations",
        "time": "times of day",
        "list": "lists",
        "struct": "nested records",
        "bytes": "bytes",
        "nothing": "empty",
    }
    assert main(["schema", "init", str(path)]) == 0
    assert "durations, for which there is no type" in capsys.readouterr().out


def test_a_table_without_any_column_to_propose_says_why(tmp_path, capsys):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": SPELLED["brackets"]}).to_csv(path, index=False)
    assert main(["schema", "init", str(path)]) == 2
    assert f"({WITH_SIGNS}" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(5))
def test_measurements_of_small_tables_are_no_identifiers(seed):
    """In larger ones, as many rows share a value as chance makes; a code given twice stays one."""
    rng = np.random.default_rng(seed)
    columns = {
        "income": rng.choice(np.arange(20_000, 90_000), 50, replace=False),
        "normal": np.unique(rng.normal(50_000, 9_000, 60).astype(int))[:50],
        "growing": np.cumsum(rng.integers(1, 900, 50) ** 2),
        "year": rng.permutation(np.arange(1970, 2020)),
        "id": np.arange(50),
        "number": rng.choice(np.arange(20_000, 90_000), 50, replace=False),
    }
    assert set(helpers.left_out(propose(pd.DataFrame(columns)))) == {"id", "number"}
    large = {"x": rng.integers(0, 20_000, 2_000), "code": np.append(rng.permutation(1_999), 5)}
    assert helpers.left_out(propose(pd.DataFrame(large))) == {
        "code": "an identifier: nearly every integer is different"
    }


@pytest.mark.parametrize("whole", [False, True])
def test_an_absurd_value_is_clipped(doors, whole):
    columns = {}
    for absurd in (1e30, -1e30, 1e14, 99_999.0):
        values = RNG.integers(0, 100, N) + (0.0 if whole else 0.25)
        values[3] = absurd
        columns[f"x{absurd}"] = values.astype(int) if whole and abs(absurd) < 1e18 else values
    proposal = doors(columns)
    for column in proposal.columns:
        edges = column.bin_edges if column.type == "numeric" else (column.min, column.max)
        assert (edges[0], edges[-1]) == pytest.approx((0, 100), abs=1)
        assert column.outside == "clip"
        assert '"outside": "clip"' in "; ".join(column.why)
        if whole:
            assert column.type == "integer" or column.decimals == 0
    assert proposal.names == tuple(columns)


@pytest.mark.parametrize(
    ("first", "last", "rows", "step"),
    [(1842, 2023, rows, step) for rows, step in ((300, 10), (3_000, 5), (100_000, 5))]
    + [(1997, 2020, N, 1), (1961, 2020, N, 5), (1600, 2020, N, 20)],
)
def test_years_get_as_fine_steps_as_fit(first, last, rows, step):
    rng = np.random.default_rng(1)
    years = np.append(rng.integers(first, last + 1, rows - 2), [first, last])
    (column,) = propose(pd.DataFrame({"x": years})).columns
    starts = column.starts or tuple(range(column.min, column.max + 1))
    assert starts == tuple(range(first // step * step, last + 1, step))
    assert column.max == last


@pytest.mark.parametrize(
    ("low", "high", "rows_each", "step"), [(0, 100, 10, 5), (0, 180, 6, 10), (-400, 400, 2, 20)]
)
def test_even_integers_get_round_steps(low, high, rows_each, step):
    (column,) = propose(pd.DataFrame({"x": np.tile(np.arange(low, high), rows_each)})).columns
    inner = np.array(column.bin_starts[1:])
    assert set(np.diff(inner)) == {step}
    assert not (inner % step).any()
    assert column.min <= low < high - 1 <= column.max


def test_reasons_and_notes_name_no_value(tmp_path, capsys):
    """They go to stderr, and the reasons into the description of the schema."""
    columns = {**SPELLED, "inf": np.where(np.arange(N) == 3, np.inf, AMOUNTS)}
    columns |= {"word": ["c4n4ry", *map(str, AMOUNTS[1:])], "far": [7e55, *AMOUNTS[1:]]}
    path = tmp_path / "t.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    assert main(["schema", "init", str(path)]) == 0
    said = capsys.readouterr()
    content = json.loads(said.out)
    assert content["open"] == ["publish"]
    assert all(column["open"] for column in content["columns"])
    reasons = [column["why"] for key in ("columns", "generated") for column in content[key]]
    for value in ("c4n4ry", "7e+55", "12.50"):
        assert value not in said.err
        assert value not in str(reasons)


# Natural orders: found where all labels fit, and nowhere else.

ORDERS_ORDERED = [
    "Jan Feb Mar Dec", "january april DECEMBER", "Mon Tues Thu Sun", "Q1 Q2 Q4", "low medium high",
    "very_low low high", "Small Medium Large", "XS S M XL",
    "Strongly disagree|Disagree|Neutral|Agree|Strongly agree",
    "never rarely sometimes often always", "none one two ten", "A B C D E F G",
    "A B C D E", "A+ A A- B F",
    "A1 A2 B1 C5", "Dec-2017|Jan-2018|Feb-2018", "< 1 year|1 year|9 years|10+ years",
    "36 months|60 months", "under 18|18-24|25-34|65+", "17 and under|18 to 64|65 and over",
    "0|1-2|3-4|5 or more", "<=50K|>50K", "$1,000 to $9,999|$10,000 - $20,000|$20k+", "1st 2nd 10th",
    "5%|10%|100%", "9th grade|10th grade", "under 18 years|18 to 64 years|65 years and over",
    "<1|0-4|5-9", "none low medium high", "none mild moderate severe",
    "1 child|2 children|3 children", "1 class|2 classes", "1 to 4|5 to 9|10 and up", "1 m|5 m|30 m",
    "$900|$2 k|$3k", "Under 25k|25k-50k|50k-100k|Over 100k", "2 BR|3 BR",
]  # fmt: skip
UNORDERED = [
    "red green blue", "Jan Feb other", "low medium high unknown", "S M", "A B", "A B C", "B C D",
    "A B AB O",
    "F M", "yes no", "10 Main Street|2 Oak Avenue", "1 - Male|2 - Female", "12 hours|1 day",
    "7-Eleven|3M", "Jan", "3 years", "2 k|1 m|5 m", "900|1.5 m|20 m", "500k|1M|2M",
    "1 k - 2 m|3 k - 4 m", "9 am|10 am|11 am", "11 pm|12 pm", "9+|10", "0-10|5|20", "1-2|10-3",
    "5 kg|5 lb",
]  # fmt: skip


def parted(text):
    return text.split("|" if "|" in text else " ")


@pytest.mark.parametrize("text", ORDERS_ORDERED)
def test_an_order_is_found_from_any_other(text):
    labels = parted(text)
    for seed in range(5):
        shuffled = random.Random(seed).sample(labels, len(labels))
        assert in_natural_order(shuffled) == labels


@pytest.mark.parametrize("text", UNORDERED)
def test_other_labels_have_none(text):
    assert in_natural_order(parted(text)) is None


def test_frequent_values_inside_bins_are_asked_for():
    rng = np.random.default_rng(2)
    rows = 4000
    price = np.exp(rng.normal(4, 0.6, rows))
    heaped = np.where(rng.random(rows) < 0.6, np.round(price / 10) * 10, price)
    zeros = np.where(rng.random(rows) < 0.9, 0, np.round(price) * 100)
    frame = pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.6, np.floor(price) + 0.99, price).round(2),
            "rent": heaped.astype(int),
            "gain": zeros.astype(int),
            "smooth": price.round(2),
            "even": rng.integers(0, 5000, rows),
            "single": rng.integers(0, 9, rows),
        }
    )
    asked = {c.name: getattr(c, "private_heaps", None) for c in propose(frame).columns}
    assert asked == {
        "price": 50, "rent": None, "gain": None, "smooth": None, "even": None, "single": None,
    }  # fmt: skip
    assert propose(frame).column("gain").step == 100


def test_a_frequent_value_inside_a_bin_is_measured_with_the_other_columns(tmp_path):
    """Gains of 7,298 and 7,688 lie in one bin of a tail, and have opposite outcomes. Shares of the
    rows are off by some standard deviations of noise at most, which are below a row in 1,000."""
    rng = np.random.default_rng(1)
    rows = 10_000
    gain = np.where(rng.random(rows) < 0.9, 0, np.round(np.exp(rng.normal(8, 1.5, rows))))
    gain[:100], gain[100:200], gain[200:206] = 7_298, 7_688, 7_481
    outcome = np.where(gain == 7_298, "yes", np.where(gain == 7_688, "no", "yes"))
    other = rng.random(rows) < 0.5
    outcome[(gain != 7_298) & (gain != 7_688) & other] = "no"
    frame = pd.DataFrame({"gain": gain.astype(int), "outcome": outcome})
    schema = propose(frame)
    starts = schema.column("gain").bin_starts
    assert {7_298, 7_299, 7_688, 7_689} <= {*starts}
    assert 7_481 not in starts  # six rows are noise
    model = Synthesizer(epsilon=10, delta=1e-6, insecure_seed=1, unreviewed_schema=True)
    made = model.fit(frame, schema=schema).sample(seed=1)
    for value in (7_298, 7_688):
        assert (made.gain == value).sum() == pytest.approx(100, abs=10)
        true = frame.outcome[frame.gain == value]
        assert (made.outcome[made.gain == value] == true.iloc[0]).mean() > 0.9


def test_no_value_of_persons_is_singled_out():
    """A customer with many rows, or the last one, has no bin of his own; an amount has."""
    rng = np.random.default_rng(1)
    values = np.round(1 + rng.exponential(800, 5_000)).astype(int)
    for rows, name, own in ((50, "customer_id", 0), (900, "customer_id", 0), (50, "amount", 1)):
        values[:rows] = 1_234
        column = propose(pd.DataFrame({name: values, "x": values % 3})).column(name)
        assert (1_234 in column.bin_starts and 1_235 in column.bin_starts) == own
        assert own or np.diff([*column.bin_starts, column.max + 1]).min() > 1


@pytest.mark.parametrize("end", ["\n", ".0\n"])
def test_rounding_of_doubles_makes_no_other_values(tmp_path, end):
    """10.357019999999999 is 10.35702, in the proposal and for a run; 10.357 is another."""
    path = tmp_path / "t.csv"
    knots = [4.60312, 10.35702, 10.357, 11.5078, 0.1 + 0.2, 1234.56]
    dusty = [str(float(np.nextafter(value, np.inf))) for value in knots]
    assert any(len(text) > 15 for text in dusty)
    rows = [f"{text},{k % 2}{end}" for k in range(50) for text in (*map(str, knots), *dusty)]
    path.write_text("x,y\n" + "".join(rows))
    column, codes, made = helpers.proposed(path)
    assert (column.decimals, 0.3 in column.edges) == (5, True)
    assert (codes[:6] == codes[6:12]).all()
    assert len({*codes.tolist()}) == 6
    assert {*made.tolist()} == {*map(float, knots[:4]), 0.3, 1234.56}


def test_frequent_minutes_and_days_of_the_month_are_asked_for():
    """Full hours of times, and firsts of a month; not days or seconds that are even."""
    rng = np.random.default_rng(1)
    rows = 2_000
    minutes = rng.integers(0, 1_440, rows)
    full = np.where(rng.random(rows) < 0.3, minutes // 60 * 60, minutes)
    day = np.datetime64("2015-01-01") + rng.integers(0, 3_650, rows)
    first = np.where(rng.random(rows) < 0.3, day.astype("M8[M]").astype("M8[D]"), day)
    second = np.datetime64("2015-01-01T00:00:00") + rng.integers(0, 3_650 * 86_400, rows)
    frame = pd.DataFrame(
        {
            "full": [f"{m // 60:02}:{m % 60:02}" for m in full],
            "minute": [f"{m // 60:02}:{m % 60:02}" for m in minutes],
            "first": first.astype(str),
            "day": day.astype(str),
            "hour": second.astype("M8[h]").astype("M8[s]").astype(str),
            "second": second.astype(str),
        }
    )
    schema = propose(frame)
    asked = {c.name for c in schema.columns if getattr(c, "private_heaps", None)}
    assert asked == {"full", "first", "hour"}
    model = Synthesizer(epsilon=10, delta=1e-6, insecure_seed=1, unreviewed_schema=True)
    frame = frame[[*sorted(asked)]]
    made = model.fit(frame, schema=propose(frame)).sample(seed=1)
    assert (pd.to_datetime(made.full, format="%H:%M").dt.minute == 0).mean() > 0.25
    assert (pd.to_datetime(made["first"]).dt.day == 1).mean() > 0.25
    assert (pd.to_datetime(made.hour).dt.minute == 0).mean() > 0.99


def test_codes_keep_their_leading_zeros(tmp_path):
    """Digits of one length are text where one begins with a zero; without one they are numbers."""
    codes = ["01067", "01069", "10115", "80331"] * 50
    column, made = proposed(tmp_path, codes)
    assert column.type == "categorical"
    assert set(made) == set(codes)
    assert "0" not in {str(value)[0] for value in proposed(tmp_path, codes[2:4] * 50)[0].values}
    many = pd.DataFrame({"code": [f"{k:05d}" for k in range(2_000)] * 2, "n": [1, 2] * 2_000})
    assert "codes with leading zeros" in helpers.left_out(propose(many))["code"]
    counts = pd.DataFrame({"count": ["0", "7", "12", "007"] * 50, "n": ["1", "2"] * 100})
    assert propose(counts).column("count").kind == "numbers"


def test_a_column_that_tells_whose_a_row_is_is_pointed_out():
    """By its name, where rows share its values: as a column, and where it is left out anyway."""
    numbers = np.arange(3_000) % 1_200 + 1
    table = pd.DataFrame({"patient": numbers, "customer_id": [f"C{k}" for k in numbers],
                          "patient_age": numbers % 97, "id": np.arange(3_000) + 1})  # fmt: skip
    found = propose(table)
    assert open_topics(found)["person"] == ["patient", "customer_id"]
    reason = "1,200 values in 3,000 rows, and its name suggests persons"
    assert reason in found.column("patient").why
    districts = pd.DataFrame({"district_id": numbers, "x": numbers % 7})
    assert "person" not in open_topics(propose(districts))


def test_repeated_cells_that_are_written_as_identifiers_are_asked_about():
    """Of whatever name; not amounts, measures, codes, dates, weeks, durations and keys."""
    rng = np.random.default_rng(3)
    who, n = rng.integers(0, 1_200, 6_000), 6_000
    table = pd.DataFrame({
        "Mitglied": [f"M-{10_000 + k}" for k in who], "card": rng.permutation(8_000)[who] + 1_000,
        "holder": np.argsort(rng.permutation(1_200))[who] + 1,
        "price": rng.lognormal(3, 1, n).round(2), "spent": rng.exponential(500, n).astype(int) + 1,
        "height": rng.normal(1_500, 90, n).astype(int), "minute": rng.integers(0, 1_440, n),
        "plz": [f"{k:05}" for k in who], "land": rng.choice([*map("".join, product("ABCDE",
        repeat=3))], n), "made": pd.Timestamp("2020-01-01") + pd.to_timedelta(who, "D"),
        "key": np.arange(n), "took": [f"PT{100 + k}S" for k in who],
        "week": [f"{2000 + k // 52}-W{k % 52 + 1:02}" for k in who],
    })  # fmt: skip
    schema = propose(table)
    assert sorted(open_topics(schema)["person"]) == ["Mitglied", "card", "holder"]
    asked = {topic: (lines, text) for topic, lines, text in list_questions(schema)}
    lines, text = asked["person"]
    assert any("values in 6,000 rows, written as M-1{9999}" in line for line in lines)
    assert text == "-"
    assert answer(schema, "person", text).person is None
    assert answer(schema, "person", "Mitglied").person == "Mitglied"


@pytest.mark.parametrize("sign", ["", "-"])
def test_proposed_decimals_fit_the_larger_end_of_the_range(tmp_path, sign):
    path = tmp_path / "t.csv"
    path.write_text(f"x\n{sign}1000000000000.123456\n0.5\n7.25\n")
    column = propose(path).columns[0]
    assert (column.type, column.decimals) == ("numeric", None)
    path.write_text(f"x\n{sign}99999999.123456\n0.5\n7.25\n")
    assert propose(path).columns[0].decimals == 6


def test_what_comes_out_is_spelled_as_what_went_in(tmp_path):
    """Also numbers of which only a few are no multiples, and likely missing markers."""
    limits = RNG.integers(1, 80, N) * 10_000
    limits[7] = 12_345
    height = np.where(np.arange(N) % 50 == 0, -1, RNG.integers(150, 200, N))
    cells = {
        "price": written("{:.2f}", RNG.integers(100, 9_999, N) / 10),
        "float": written("{:.1f}", RNG.integers(0, 9_999, N)),
        "grade": RNG.choice([2.0, 2.33, 3.0, 3.7], N),
        "constant": 5,
        "flag": np.where(RNG.random(N) < 0.5, "FALSE", "TRUE"),
        "at": TIMES.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "limit": limits,
        "height": height,
        "answer": RNG.choice(["k.A.", "ja", "nein"], N),
    }
    path = tmp_path / "t.csv"
    pd.DataFrame(cells).to_csv(path)
    schema = propose(path)
    assert [*schema.written] == [*cells]  # without the column that has no name
    made = decode(read_table(path, schema), schema, np.random.default_rng(0))
    write_table(made, tmp_path / "o.csv", schema)
    before, after = (pd.read_csv(tmp_path / name, dtype=str) for name in ("t.csv", "o.csv"))
    for name, pattern in {"price": r"\d+\.\d\d", "float": r"\d+\.0", "grade": r"\d\.\d\d?",
                          "limit": r"\d+0000"}.items():  # fmt: skip
        assert after[name].str.fullmatch(pattern).all(), name
    for name in ("flag", "height", "answer"):
        assert set(after[name]) <= set(before[name]) | set(map(str, range(150, 200)))
    assert (after.height == "-1").sum() == (height == -1).sum()
    assert (schema.column("height").missing, schema.column("answer").missing) == (
        ("-1",),
        ("k.A.",),
    )
    at = [pd.to_datetime(frame["at"]) for frame in (before, after)]
    assert (at[0].dt.floor("D") - at[1].dt.floor("D")).abs().max() < pd.Timedelta(days=92)
    assert after["at"].str.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").all()
    frames = [pd.read_csv(tmp_path / name) for name in ("t.csv", "o.csv")]
    assert [*frames[0][[*frames[1]]].dtypes] == [*frames[1].dtypes]


def test_a_day_keeps_its_course(tmp_path):
    hours = RNG.choice(24, 20_000, p=np.arange(24) / 276)
    times = pd.Timestamp("2024-05-01") + pd.to_timedelta(
        24 * RNG.integers(0, 5, 20_000) + hours, "h"
    )
    column, _ = proposed(tmp_path, times)
    assert column.granularity == "hour"


def test_mixed_formats_of_dates_are_the_reason():
    mixed = [*DAYS[:300].strftime("%d.%m.%Y"), *DAYS[300:].strftime("%Y-%m-%d")]
    weeks = [f"2021-W{1 + k % 52:02}" for k in range(600)]  # no dates: they come back as weeks
    schema = propose(pd.DataFrame({"x": mixed, "week": weeks}))
    assert helpers.left_out(schema)["x"].startswith("dates in several formats")
    assert len(schema.column("week").values) == 52


@pytest.mark.parametrize("decimals", [1, 12])
def test_a_limit_in_a_bin_of_its_own_occurs_in_the_rows(decimals):
    amounts = np.random.default_rng(1).gamma(2, 20, 5_000).clip(0.5, 190).round(decimals)
    wider = propose(pd.DataFrame({"total": amounts})).column("total")
    amounts[:400] = 196.0
    equal = propose(pd.DataFrame({"total": amounts})).column("total")
    assert "own bin: 196" in equal.summary
    assert "limits occur in the rows" in equal.why
    assert ("limits occur in the rows" in wider.why) == (amounts[400:].max() in wider.span)
