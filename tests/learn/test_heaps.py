"""Counting frequent values: what is found, what it costs, and what a neighbour can change."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer, answer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.learn.schema import find_endings
from adaptive_qs.privacy.events import Cost, Purpose
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.schema import Schema

from .helpers import PLENTY, Recorder, Replay, resolve_private, resolved, schema_of

RNG = np.random.default_rng(5)
ROWS = 4000
PRICE = {"name": "price", "type": "numeric", "min": 0, "max": 200, "bins": 8, "decimals": 2}
RENT = {"name": "rent", "type": "integer", "min": 0, "max": 1999, "bin_starts": [0, 1, 500, 1200]}
DAY = {"name": "day", "type": "date", "min": "2019-07-01", "max": "2024-06-30",
       "granularity": "year", "missing": ["?"]}  # fmt: skip
FLAG = {"name": "flag", "type": "boolean"}
PRICES = np.where(RNG.random(ROWS) < 0.5, RNG.integers(0, 200, ROWS) + 0.99, RNG.random(ROWS) * 200)
RENTS = np.where(RNG.random(ROWS) < 0.3, 750, RNG.integers(0, 2000, ROWS))
DAYS = np.datetime64("2019-07-01") + RNG.integers(0, 1800, ROWS)
DAYS = np.where(RNG.random(ROWS) < 0.4, DAYS.astype("M8[M]").astype("M8[D]"), DAYS)
FRAME = pd.DataFrame({"price": PRICES.round(2), "rent": RENTS, "day": DAYS.astype(str)})
FRAME["flag"] = RNG.random(ROWS) < 0.5
FRAME.loc[:9, "day"] = "?"
FOUND = {"private_heaps": 20}
SCHEMA = schema_of({**PRICE, **FOUND}, {**RENT, **FOUND}, {**DAY, **FOUND}, FLAG)


def test_heaps_and_endings_are_found():
    learnt = resolved(FRAME, SCHEMA, Cost.within(Fraction(3, 100)))
    price, rent, day, _ = learnt.columns
    assert [(e.remainder, e.modulus) for e in price.counted.endings][-1] in ((99, 100), (9, 10))
    assert any(e.remainder == 99 and e.modulus == 100 for e in price.counted.endings)
    assert rent.heaps == (750,)
    assert rent.counted.rows[0] == pytest.approx((FRAME["rent"] == 750).sum(), abs=5 * 10)
    assert {(e.remainder, e.modulus) for e in day.counted.endings} == {(0, 31)}
    assert all(isinstance(value, dt.date) for value in day.heaps)
    assert Schema.parse(learnt.model_dump(mode="json")) == learnt
    assert learnt.domain() == SCHEMA.domain()
    assert learnt.open_columns == ()


def test_values_with_codes_of_their_own_are_no_heaps():
    frame = FRAME.assign(rent=np.where(RNG.random(ROWS) < 0.5, 0, FRAME["rent"]))
    assert 0 not in resolved(frame, SCHEMA).column("rent").heaps


def test_frequent_values_are_found_in_the_spelling_of_the_column(tmp_path):
    frame = pd.DataFrame({"rent": [f"{value:,}".replace(",", ".") + ",50 €" for value in RENTS]})
    rent = {**RENT, "type": "numeric", "max": 2001, "decimals": 2, "decimal": ",", **FOUND}
    rent |= {"bins": 40, "thousands": ".", "suffix": " €", "fixed_decimals": 2}
    rent = {name: value for name, value in rent.items() if name != "bin_starts"}
    learnt = resolved(frame, schema_of(rent), Cost.within(Fraction(3, 100)))
    assert learnt.column("rent").heaps == (750.5,)
    assert Schema.parse(learnt.model_dump(mode="json")) == learnt
    model = Synthesizer(epsilon=5, insecure_seed=1, workers=1)
    made = model.fit(frame, schema=schema_of(rent)).sample(seed=1)
    assert (made["rent"] == 750.5).mean() == pytest.approx(0.3, abs=0.05)
    files = [str(tmp_path / name) for name in ("t.csv", "s.json", "o.csv")]
    frame.to_csv(files[0], index=False)
    schema_of(rent).dump(tmp_path / "s.json")
    command = ["synthesize", files[0], "--schema", files[1], "--out", files[2], "--epsilon", "5"]
    assert main([*command, "--insecure-seed", "1", "--seed", "1"]) == 0
    made = pd.read_csv(files[2])
    assert (made["rent"] == "750,50 €").mean() == pytest.approx(0.3, abs=0.05)
    assert made["rent"].str.fullmatch(r"[0-9.]+,[0-9]+ €").all()


def test_declared_heaps_are_counted_and_nothing_else():
    price, rent = {**PRICE, "heaps": [100, 12.5]}, {**RENT, "heaps": [750]}
    recorder = Recorder()
    learnt = resolve_private(FRAME, schema_of(price, rent, DAY, FLAG), recorder, PLENTY)
    cents = np.rint(FRAME["price"].to_numpy() * 100).astype(int)
    counted = learnt.column("price").counted
    assert counted.rows == ((cents == 10_000).sum(), (cents == 1250).sum())
    assert learnt.column("rent").counted.rows == ((FRAME["rent"] == 750).sum(),)
    assert counted.endings == learnt.column("rent").counted.endings == ()
    events = [call.event for call in recorder.calls]
    assert [(e.purpose, e.columns) for e in events] == [
        (Purpose.HEAPS, ("price",)), (Purpose.HEAPS, ("rent",)),
    ]  # fmt: skip
    assert [e.squared_sensitivity for e in events] == [1, 1]


@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_noise_alone_makes_hardly_an_ending(noise):
    """Of 20 even histograms; each level exceeds its threshold with a chance of a quarter or so."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(20_000, np.full(1000, 0.001))
        noisy = np.rint(counts + rng.normal(0, noise, 1000)).astype(int)
        std = max(noise, np.sqrt(20.0))
        found += len(find_endings(noisy, (10, 100, 1000), std))
    assert found <= 40


def test_a_fine_ending_is_not_taken_for_its_coarser_ones():
    counts = np.full(1000, 10)
    counts[99::100] += 500
    counts[0::10] += 90
    found = find_endings(counts, (10, 100, 1000), 1.0)
    assert [(e.remainder, e.modulus, e.rows) for e in found] == [
        (99, 100, 5100), (0, 10, 10_000), (9, 10, 900),
    ]  # fmt: skip


NEIGHBOURS = {
    "typical": {"price": 49.99, "rent": 750, "day": "2020-02-01", "flag": True},
    "ends": {"price": 200.0, "rent": 0, "day": "2024-06-30", "flag": False},
    "missing": {"price": 0.0, "rent": 1999, "day": "?", "flag": True},
}


@pytest.mark.parametrize("row", NEIGHBOURS.values(), ids=NEIGHBOURS)
@pytest.mark.parametrize("declared", [False, True])
def test_a_neighbour_changes_the_counts_by_their_sensitivity_and_nothing_else(row, declared):
    schema = SCHEMA
    if declared:
        price = {**PRICE, "heaps": [49.99]}
        schema = schema_of(price, {**RENT, "heaps": [750]}, {**DAY, "heaps": ["2020-02-01"]}, FLAG)
    cost = Cost.within(Fraction(1, 100))
    first = Recorder(cost)
    learnt = resolve_private(FRAME, schema, first, cost)
    second = Replay(cost, first.calls)
    neighbour = pd.concat([FRAME, pd.DataFrame([row])], ignore_index=True)
    assert resolve_private(neighbour, schema, second, cost) == learnt
    for one, other in zip(first.calls, second.calls, strict=True):
        change = int(((one.inputs - other.inputs) ** 2).sum())
        assert change <= one.event.squared_sensitivity
    if row is NEIGHBOURS["typical"] and not declared:
        assert change == one.event.squared_sensitivity == 2


@pytest.fixture(scope="module")
def fitted():
    run = Synthesizer(rho=1.0, insecure_seed=3, beyond_limits=True)
    return run.fit(FRAME, schema=SCHEMA)


def test_a_table_keeps_them(fitted):
    table = fitted.sample(20_000, seed=1)
    cents = np.rint(table["price"] * 100).astype(int)
    days = pd.to_datetime(table["day"].dropna())
    true = pd.to_datetime(FRAME.loc[10:, "day"])
    assert (cents % 100 == 99).mean() == pytest.approx(
        (FRAME["price"] * 100 % 100).round().eq(99).mean(), abs=0.03
    )
    assert (table["rent"] == 750).mean() == pytest.approx((FRAME["rent"] == 750).mean(), abs=0.03)
    assert (days.dt.day == 1).mean() == pytest.approx((true.dt.day == 1).mean(), abs=0.03)


def test_the_statement_says_what_they_cost(fitted):
    facts = fitted.release_.manifest.facts
    found = [fact for fact in facts if fact.kind == "heaps"]
    assert [fact.columns for fact in found] == [("price",), ("rent",), ("day",)]
    assert all(fact.basis == "paid for" and fact.rho <= 0.0101 for fact in found)
    bounds = next(fact for fact in facts if fact.kind == "values" and "price" in fact.columns)
    assert bounds.basis == "declared public"


def test_a_learnt_schema_costs_nothing_more(fitted):
    again = Synthesizer(rho=1.0, insecure_seed=3, beyond_limits=True)
    again.fit(FRAME, schema=fitted.release_.schema)
    assert Purpose.HEAPS not in {event.purpose for event in again.release_.events}
    facts = [fact for fact in again.release_.manifest.facts if fact.kind == "heaps"]
    assert {fact.basis for fact in facts} == {"post-processing"}


def test_answers_count_no_frequent_values():
    answers = answer(FRAME, SCHEMA, 1, rho=1.0, insecure_seed=0, beyond_limits=True)
    assert len(answers.to_arrow()) == sum(SCHEMA.domain().sizes)
    assert {event.purpose for event in answers.ledger}.isdisjoint({Purpose.HEAPS})


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ({**PRICE, "private_heaps": 9, "heaps": [5]}, "Keep one"),
        ({**PRICE, "heaps": [500]}, "outside the range"),
        ({**PRICE, "heaps": [5, 5.0]}, "listed twice"),
        ({**PRICE, "decimals": None, "private_heaps": 9}, "need decimals"),
        (
            {**PRICE, "decimals": None, "private_bins": 4, "bins": None, "heaps": [9]},
            "need decimals",
        ),
        ({**DAY, "heaps": ["2030-01-01"]}, "outside the range"),
        ({**RENT, "heaps": [5], "counted": {"rows": [1, 2]}}, "Remove it"),
    ],
)
def test_what_contradicts_itself_is_refused(column, hint):
    column = {key: value for key, value in column.items() if value is not None}
    with pytest.raises(SchemaError, match=hint):
        schema_of({key: v for key, v in column.items() if "private_bins" not in column or
                   key not in ("min", "max")})  # fmt: skip


def test_learnt_bins_have_heaps_too():
    schema = schema_of({"name": "rent", "type": "integer", "private_bins": 6, "heaps": [750]})
    learnt = resolved(FRAME[["rent"]], schema, Cost.within(Fraction(1, 10))).columns[0]
    assert learnt.counted.rows[0] == pytest.approx((FRAME["rent"] == 750).sum(), abs=5 * 5)


def test_codes_have_no_values_to_count():
    schema = schema_of({**RENT, **FOUND})
    coded = CodedTable.from_codes(schema.domain(), [np.zeros(9, int)])
    with pytest.raises(DataError, match="coded table"):
        Synthesizer(rho=1, insecure_seed=0, beyond_limits=True).fit(coded, schema=schema)


@pytest.mark.parametrize("heaps", [{"heaps": [5]}, {"private_heaps": 3}])
@pytest.mark.filterwarnings("ignore")
def test_numbers_whose_bins_are_learnt_too_have_frequent_values(heaps):
    column = {"name": "x", "type": "numeric", "private_bins": 4, "decimals": 0, **heaps}
    frame = pd.DataFrame({"x": np.where(RNG.random(2_000) < 0.5, 5.0, RNG.integers(0, 100, 2_000))})
    fitted = Synthesizer(rho=5, workload=1).fit(frame, schema=schema_of(column))
    made = fitted.sample(2_000, seed=1)
    # The share has a standard deviation of 0.011 in either table.
    assert (made.x == 5).mean() == pytest.approx((frame.x == 5).mean(), abs=0.08)


@pytest.mark.parametrize("heap", [5_000_000, -5_000_000, 100])
def test_a_declared_heap_outside_the_learnt_range_spoils_no_draw(heap):
    rng = np.random.default_rng(4)
    column = {
        "name": "x",
        "type": "integer",
        "private_bins": 10,
        "outside": "clip",
        "heaps": [heap],
    }
    frame = pd.DataFrame({"x": rng.integers(-50, 1_500, 3_000)})
    schema = {"version": 1, "columns": [column]}
    model = Synthesizer(epsilon=5, workload=1, insecure_seed=1, workers=1)
    drawn = model.fit(frame, schema=schema).sample(200, seed=1)["x"]
    assert drawn.between(-60_000, 60_000).all()
