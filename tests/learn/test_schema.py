"""Learning whole schemas: sources, budgets, refusals, and tables that fit what was learnt."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs.errors import BudgetExceeded, DataError, InputError, ResourceExceeded, SchemaError
from adaptive_qs.learn.gather import Gathered, gather
from adaptive_qs.learn.schema import column_costs, discovery_share, learn_schema, preprocessing_cost
from adaptive_qs.privacy.events import Cost, GaussianEvent, PartitionEvent
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.schema import Schema

from ..published import validate_schema
from .helpers import PLENTY, Recorder, Replay, resolve_private, resolved, schema_of
from .helpers import one as one_column

AGE = {"name": "age", "type": "integer", "private_bins": 5, "missing": [""]}
CITY = {"name": "city", "type": "categorical", "private_values": 3, "catch_all": "elsewhere"}
SIZE = {"name": "size", "type": "numeric", "private_bins": 4, "decimals": 1}
FLAG = {"name": "flag", "type": "boolean"}
SCHEMA = schema_of(AGE, CITY, FLAG, SIZE)
RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, 500).astype(str),
        "city": RNG.choice(["Bonn", "Kiel", "Trier", "Ulm"], 500, p=[0.4, 0.3, 0.2, 0.1]),
        "flag": RNG.choice(["yes", "no"], 500),
        "size": [f"{x:.1f}" for x in RNG.lognormal(1, 1, 500)],
    }
)  # fmt: skip
TIGHT = Cost.within(Fraction(1, 10**7), Fraction(1, 10**9))


def test_a_resolved_schema_says_what_was_learnt():
    schema = resolved(FRAME, SCHEMA)
    assert schema.private_columns == ()
    assert [getattr(column, "learnt", None) for column in schema.columns] == [
        ("min", "max", "bins"), ("values",), None, ("min", "max", "bins"),
    ]  # fmt: skip
    assert schema.column("city").labels == ("Bonn", "Kiel", "Trier", "elsewhere")
    assert schema.column("flag") == SCHEMA.column("flag")
    assert (schema.column("age").min, schema.column("age").max) == (18, 79)
    widest = SCHEMA.widest_domain()
    assert all(a.size <= b.size for a, b in zip(schema.domain().attributes, widest.attributes))
    assert schema.domain().names == widest.names


@pytest.mark.parametrize(("ends", "learnt"), [({}, ("max", "bins")), ({"max": 50}, ("bins",))])
def test_declared_ends_are_kept_and_not_said_to_be_learnt(ends, learnt):
    schema = one_column(type="integer", private_bins=4, min=0, **ends)
    column = resolved(pd.DataFrame({"a": [5, 6, 7, 8] * 50}), schema).columns[0]
    assert column.learnt == learnt
    assert column.min == 0
    assert column.max == ends.get("max", column.max)


def test_a_schema_without_private_columns_is_left_alone():
    schema = schema_of(FLAG)
    mechanisms = Recorder()
    assert learn_schema(schema, Gathered(), mechanisms, PLENTY) is schema
    assert mechanisms.calls == []


def test_what_was_gathered_is_all_that_learning_needs(tmp_path):
    path = tmp_path / "table.csv"
    FRAME.to_csv(path, index=False)
    gathered = gather(path, SCHEMA)
    path.unlink()
    learnt = learn_schema(SCHEMA, gathered, Recorder(), PLENTY)
    assert learnt == resolved(FRAME, SCHEMA)


def parquet_of(path):
    pq.write_table(pa.Table.from_pandas(FRAME).combine_chunks(), path, row_group_size=77)
    return path


FORMS = {
    "csv": lambda path: FRAME.to_csv(path, index=False) or path,
    "parquet": parquet_of,
    "pyarrow": lambda _: pa.concat_tables(
        pa.Table.from_pandas(FRAME[i : i + 99]) for i in range(0, 500, 99)
    ),
    "shuffled": lambda _: FRAME.sample(frac=1, random_state=1),
}


@pytest.mark.parametrize("form", FORMS)
def test_neither_the_form_of_the_table_nor_the_order_of_rows_matters(form, tmp_path):
    source = FORMS[form](tmp_path / f"t.{form}")
    cost = Cost.within(Fraction(1, 10), Fraction(1, 10**6))
    assert resolved(source, SCHEMA, cost) == resolved(FRAME, SCHEMA, cost)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cost", [PLENTY, TIGHT], ids=["plenty", "tight"])
@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ({"type": "integer", "private_bins": 9}, [2**63 - 1, -(2**63), 0, 7]),
        ({"type": "integer", "private_bins": 9}, ["0", "+5", " 7.0 ", "-999999999999999999"]),
        ({"type": "integer", "private_bins": 9, "missing": [""], "outside": "missing"},
         ["x", "", None, "12"]),
        ({"type": "integer", "private_bins": 2, "min": 3, "max": 4}, [-9, 3, 4, 100]),
        ({"type": "integer", "private_bins": 2, "max": -3}, [-3, -3, -3, 5]),
        ({"type": "numeric", "private_bins": 9}, [1e308, -1e308, 5e-324, -0.0]),
        ({"type": "numeric", "private_bins": 9}, ["1e-30", "0", ".5", "-3.25e2"]),
        ({"type": "numeric", "private_bins": 9, "missing": [""]}, [np.nan, 1.5, None, 2.5]),
        ({"type": "numeric", "private_bins": 9, "decimals": 9}, [1e300, 0.123456789, -7.0, 3.0]),
        ({"type": "numeric", "private_bins": 9, "min": 100, "decimals": 0}, [100, 100, 1, 100]),
        ({"type": "numeric", "private_bins": 9, "min": -0.5, "missing": ["-1"], "outside":
          "missing"}, ["-1", "-0.75", "nan", "12"]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o"}, ["", " a ", "a\0", None]),
        ({"type": "categorical", "private_values": 1, "catch_all": "b"}, ["b", "b", "a", "c"]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o", "missing": ["?"]},
         ["?", None, "1", "2"]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o"}, [True, False, True, True]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o"}, [1.0, 2.5, 1e20, -0.0]),
    ],
)  # fmt: skip
def test_every_row_fits_what_was_learnt(column, cells, cost, seed):
    frame = pd.DataFrame({"a": cells * 3})
    open_schema = one_column(**column)
    schema = resolved(frame, open_schema, cost, seed)
    coded = read_table(frame, schema)
    assert coded.num_rows == len(frame)
    assert schema.domain().sizes[0] <= open_schema.widest_domain().sizes[0]
    values = decode(coded, schema, np.random.default_rng(seed))
    assert np.array_equal(read_table(values, schema).columns[0], coded.columns[0])


def test_nothing_to_learn_from_is_an_answer():
    schema = schema_of({**AGE}, {**CITY, "missing": [""]})
    frame = pd.DataFrame({"age": [None] * 20, "city": [""] * 20}, dtype=object)
    learnt = resolved(frame, schema, TIGHT)
    assert learnt.column("city").labels == ("elsewhere",)
    assert read_table(frame, learnt).num_rows == 20


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"age": "x1y"}, "'age'"),
        ({"age": None, "city": None, "size": None}, "'size'"),
        ({"size": ""}, "'size'"),
        ({"flag": "x1y"}, "'flag'"),
    ],
)
def test_what_encoding_would_refuse_is_refused_before_there_is_a_budget(change, hint):
    frame = FRAME.astype(object)
    for name, cell in change.items():
        frame.loc[250, name] = cell
    with pytest.raises(DataError, match=hint) as caught:
        gather(frame, SCHEMA)
    assert "x1y" not in str(caught.value)


def too_many(rows):
    raise ResourceExceeded("too many")


@pytest.mark.parametrize(
    ("source", "options", "kind", "hint"),
    [
        (CodedTable.from_codes(SCHEMA.widest_domain(), [np.zeros(2, int)] * 4), {}, DataError,
         "coded"),
        (FRAME[:0], {}, DataError, "no rows"),
        (FRAME.drop(columns="age"), {}, DataError, "'age'"),
        (FRAME, {"most_bytes": 8800}, ResourceExceeded, "'size'"),
        (FRAME, {"check_rows": too_many}, ResourceExceeded, "too many"),
    ],
)  # fmt: skip
def test_what_cannot_be_learnt_from_is_refused_without_a_size(source, options, kind, hint):
    with pytest.raises(kind, match=hint) as caught:
        gather(source, SCHEMA, **options)
    assert "500" not in str(caught.value)


def test_the_cost_is_spent_and_not_exceeded():
    cost = Cost.within(Fraction(1, 7), Fraction(1, 1001))
    mechanisms = Recorder(cost)
    resolve_private(FRAME, SCHEMA, mechanisms, cost)
    spent = mechanisms.ledger.spent
    assert spent.fits(cost)
    assert cost.rho_units - spent.rho_units < 3
    assert cost.delta_units - spent.delta_units < 3
    labels = [event.label for event in mechanisms.ledger.events]
    assert labels == ["bins of age", "bins of size"] * 2 + ["values of city"]
    assert isinstance(mechanisms.ledger.events[-1], PartitionEvent)


def test_a_ledger_with_less_refuses():
    with pytest.raises(BudgetExceeded):
        resolve_private(FRAME, SCHEMA, Recorder(Cost(10**6, 10**6)), PLENTY)


def test_shares_are_public_and_equal():
    cost = Cost(90, 10)
    assert column_costs(SCHEMA, cost).values == {
        "age": Cost(30, 0), "city": Cost(30, 10), "size": Cost(30, 0),
    }  # fmt: skip
    assert column_costs(SCHEMA, cost).heaps == {}
    with pytest.raises(InputError, match="too little"):
        column_costs(SCHEMA, Cost(20, 10))
    with pytest.raises(InputError, match="delta"):
        column_costs(SCHEMA, Cost(90, 0))
    assert column_costs(schema_of(AGE), Cost(90, 0)).values == {"age": Cost(90, 0)}


def test_frequent_values_get_a_smaller_share():
    heaped = {"name": "price", "type": "integer", "min": 0, "max": 99, "bins": 9}
    heaped |= {"private_heaps": 5}
    both = column_costs(schema_of({**AGE, "private_heaps": 5}, heaped, CITY), Cost(1000, 10))
    assert both.values == {"age": Cost(400, 0), "city": Cost(400, 10)}
    assert both.heaps == {"age": Cost(100), "price": Cost(100)}
    budget = Cost(100_000)
    assert preprocessing_cost(schema_of(heaped, FLAG), budget) == Cost(1000)
    assert preprocessing_cost(schema_of(heaped, FLAG), budget, 0.005) == Cost(500)
    assert preprocessing_cost(schema_of(heaped, AGE), budget) == Cost(10_000)


def test_the_share_of_a_budget():
    budget = Cost(1000, 10)
    assert preprocessing_cost(SCHEMA, budget, 0.25) == Cost(250, 10)
    assert preprocessing_cost(schema_of(FLAG), budget) == Cost()
    assert discovery_share(SCHEMA) == Fraction(1, 2)
    assert discovery_share(schema_of(AGE)) == 0
    for share in (0, 1, -1, float("nan")):
        with pytest.raises(InputError, match="share"):
            preprocessing_cost(SCHEMA, budget, share)
    with pytest.raises(InputError, match="delta"):
        preprocessing_cost(SCHEMA, Cost(1000, 0))


# Schemas that leave bins or values open: syntax, the widest domain, and what they refuse.

OPEN = [
    {"name": "a", "type": "integer", "private_bins": 20},
    {"name": "b", "type": "numeric", "private_bins": 5, "min": 0, "decimals": 1, "missing": ["-1"]},
    {"name": "c", "type": "categorical", "private_values": 10, "catch_all": "other"},
    {"name": "d", "type": "boolean"},
]


def test_the_domain_is_known_by_its_upper_bound_only():
    schema = schema_of(*OPEN)
    assert schema.private_columns == ("a", "b", "c")
    assert schema.widest_domain().sizes == (20, 6, 11, 2)
    with pytest.raises(SchemaError, match="'a', 'b', 'c'"):
        schema.domain()
    declared = schema_of(OPEN[3])
    assert declared.private_columns == ()
    assert declared.widest_domain() == declared.domain()


@pytest.mark.parametrize("change", [{"private_bins": 19}, {"min": 0}, {"outside": "missing"}])
def test_the_fingerprint_covers_what_is_open(change):
    column = {"type": "integer", "private_bins": 20, "missing": ["?"]}
    assert one_column(**column).fingerprint != one_column(**{**column, **change}).fingerprint


def test_what_was_learnt_is_part_of_the_file():
    schema = schema_of(
        {"name": "a", "type": "integer", "min": 0, "max": 9, "learnt": ["max", "bins"]},
        {"name": "b", "type": "categorical", "values": ["x"], "learnt": ["values"]},
        {"name": "c", "type": "numeric", "edges": [0, 1]},
    )
    validate_schema(json.loads(schema.to_json()))
    assert Schema.parse(json.loads(schema.to_json())) == schema
    assert [column.learnt for column in schema.columns] == [("max", "bins"), ("values",), None]


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ({"type": "integer", "private_bins": 1}, "at least 2"),
        ({"type": "integer", "private_bins": 1001}, "at most 1000"),
        ({"type": "integer", "private_bins": True}, "whole number"),
        ({"type": "integer", "private_bins": 20, "bins": 3}, "bins"),
        ({"type": "integer", "private_bins": 20, "bin_starts": [0]}, "bin_starts"),
        ({"type": "integer", "private_bins": 20, "outside": "refuse"}, "clip"),
        ({"type": "integer", "private_bins": 20, "outside": "missing"}, "no missing marker"),
        ({"type": "integer", "private_bins": 20, "missing": ["999"]}, "may lie inside"),
        ({"type": "integer", "private_bins": 20, "min": 0, "missing": ["999"]}, "may lie inside"),
        ({"type": "integer", "private_bins": 9, "min": 5, "max": 4}, "not below"),
        ({"type": "integer", "private_bins": 9, "min": 0, "max": 7}, "more than the integers"),
        ({"type": "numeric", "private_bins": 9, "min": 1, "max": 1}, "not below"),
        ({"type": "numeric", "private_bins": 9, "min": 0.05, "decimals": 1}, "decimals"),
        ({"type": "numeric", "private_bins": 9, "max": 1e16, "decimals": 0}, "15 digits"),
        ({"type": "numeric", "private_bins": 9, "edges": [0, 1]}, "edges"),
        ({"type": "numeric", "private_bins": 9, "missing": ["1e3"]}, "may lie inside"),
        ({"type": "categorical", "private_values": 9}, "catch_all"),
        ({"type": "categorical", "private_values": 0, "catch_all": "x"}, "at least 1"),
        ({"type": "categorical", "private_values": 9, "catch_all": ""}, "catch_all"),
        ({"type": "categorical", "private_values": 9, "catch_all": "x", "values": ["a"]}, "values"),
        ({"type": "categorical", "private_values": 9, "catch_all": "x", "missing": ["x"]}, "'x'"),
        ({"type": "categorical", "private_values": 9, "catch_all": "x", "ordered": True},
         "ordered"),
        ({"type": "boolean", "private_values": 9}, "private_values"),
        ({"type": "integer", "min": 0, "max": 9, "learnt": []}, "learnt"),
        ({"type": "integer", "min": 0, "max": 9, "learnt": ["values"]}, "learnt"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(column, hint):
    with pytest.raises(SchemaError) as caught:
        one_column(**column)
    message = str(caught.value)
    assert "'a'" in message
    assert hint in message
    assert "\n" not in message


def test_markers_outside_the_declared_ends_are_welcome():
    assert one_column(type="integer", private_bins=5, min=0, missing=["-9", "?"]).widest_domain()
    assert one_column(type="numeric", private_bins=5, max=1, missing=["99"]).widest_domain()


# What a neighbouring table can change: the inputs by their sensitivity, and nothing else.

REPLAY_SCHEMA = schema_of(
    {"name": "age", "type": "integer", "private_bins": 8, "missing": ["?"]},
    {"name": "pay", "type": "numeric", "private_bins": 6, "min": 0, "decimals": 2,
     "missing": [""], "outside": "missing"},
    {"name": "score", "type": "numeric", "private_bins": 5, "min": -1, "max": 1},
    {"name": "city", "type": "categorical", "private_values": 3, "catch_all": "*",
     "missing": ["?"]},
    {"name": "flag", "type": "boolean"},
)  # fmt: skip
NAMES = list(REPLAY_SCHEMA.names)
COST = Cost.within(Fraction(1, 2), Fraction(1, 1000))
REPLAY_RNG = np.random.default_rng(7)
ROWS = [
    (str(20 + i % 50), f"{p:.2f}", f"{s:.6f}", ["Ulm", "Bonn", "Trier", "Kiel"][i % 7 % 4], "t")
    for i, (p, s) in enumerate(zip(REPLAY_RNG.lognormal(3, 1, 200), REPLAY_RNG.normal(0, 0.5, 200)))
]
EXTRA = {
    "a typical row": ROWS[0],
    "a new category": ("30", "5", "0", "Aachen", "f"),
    "extreme values": ("999999999999999999", "1e300", "-1e300", "Ulm", "f"),
    "extreme values below": ("-999999999999999999", "-1e300", "1e-300", "Ulm", "f"),
    "zeros": ("0", "0", "0", "0", "f"),
    "missing values": ("?", "", "0", "?", "f"),
    "blank and unlisted text": ("30", "5", "0", "", "f"),
}


def table(rows):
    return pd.DataFrame(rows, columns=NAMES, dtype=str)


def calls_on_both(rows, neighbour):
    """Both runs' calls and schemas, the second with the outputs of the first."""
    first = Recorder(COST)
    schema = resolve_private(table(rows), REPLAY_SCHEMA, first, COST)
    second = Replay(COST, first.calls)
    again = resolve_private(table(neighbour), REPLAY_SCHEMA, second, COST)
    assert first.ledger.events == second.ledger.events
    assert again == schema
    assert again.to_json() == schema.to_json()
    return first.calls, second.calls


def change(one, other):
    """Squared L2 distance of the inputs of two calls."""
    if isinstance(one.event, GaussianEvent):
        return int(((one.inputs - other.inputs) ** 2).sum())
    before, after = (dict(zip(c.values, c.inputs.tolist())) for c in (one, other))
    return sum((before.get(v, 0) - after.get(v, 0)) ** 2 for v in before.keys() | after.keys())


def allowed(call):
    return call.event.squared_sensitivity if isinstance(call.event, GaussianEvent) else 1


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["many rows", "one row"])
@pytest.mark.parametrize("direction", [1, -1], ids=["added", "removed"])
def test_a_row_changes_inputs_by_their_sensitivity_and_nothing_else(extra, rows, direction):
    first, second = calls_on_both(*[rows, [*rows, EXTRA[extra]]][::direction])
    assert len(first) == len(second) == 2 + 3 + 1  # bounds, bins, values
    assert all(change(one, other) <= allowed(one) for one, other in zip(first, second))


def test_the_sensitivity_is_reached():
    first, second = calls_on_both(ROWS, [*ROWS, ROWS[0]])
    assert all(change(one, other) == allowed(one) for one, other in zip(first, second))


def test_a_missing_value_changes_nothing():
    first, second = calls_on_both(ROWS, [*ROWS, EXTRA["missing values"]])
    changes = {one.event.label: change(one, other) for one, other in zip(first, second)}
    assert changes["bins of age"] == changes["bins of pay"] == changes["values of city"] == 0
    assert changes["bins of score"] > 0
