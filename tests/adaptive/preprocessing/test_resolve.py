"""Learning whole schemas: sources, budgets, refusals, and tables that fit what was learnt."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs.adaptive.preprocessing.resolve import (
    gather_private,
    learn_schema,
    resolve_private,
)
from adaptive_qs.adaptive.preprocessing.shares import (
    column_costs,
    discovery_share,
    preprocessing_cost,
)
from adaptive_qs.data.decode import decode
from adaptive_qs.data.inputs import read_table
from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import BudgetExceeded, DataError, InputError, ResourceExceeded
from adaptive_qs.privacy.events import Cost, PartitionEvent

from .helpers import PLENTY, Recorder, one, resolved, schema_of

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


def test_declared_ends_are_kept_and_not_said_to_be_learnt():
    schema = one(type="integer", private_bins=4, min=0)
    column = resolved(pd.DataFrame({"a": [5, 6, 7, 8] * 50}), schema).columns[0]
    assert column.learnt == ("max", "bins")
    assert column.min == 0
    column = resolved(
        pd.DataFrame({"a": [5, 6, 7, 8] * 50}), one(type="integer", private_bins=4, min=0, max=50)
    ).columns[0]
    assert column.learnt == ("bins",)
    assert (column.min, column.max) == (0, 50)


def test_a_schema_without_private_columns_is_left_alone():
    schema = schema_of(FLAG)
    mechanisms = Recorder()
    assert resolve_private("no such file", schema, mechanisms, PLENTY) is schema
    assert mechanisms.calls == []


def test_what_was_gathered_is_all_that_learning_needs(tmp_path):
    path = tmp_path / "table.csv"
    FRAME.to_csv(path, index=False)
    gathered = gather_private(path, SCHEMA, PLENTY)
    path.unlink()
    learnt = learn_schema(SCHEMA, gathered, Recorder(), PLENTY)
    assert learnt == resolved(FRAME, SCHEMA)


@pytest.mark.parametrize("form", ["csv", "parquet", "pyarrow", "shuffled"])
def test_neither_the_form_of_the_table_nor_the_order_of_rows_matters(form, tmp_path):
    source = FRAME
    if form == "csv":
        source = tmp_path / "t.csv"
        FRAME.to_csv(source, index=False)
    elif form == "parquet":
        source = tmp_path / "t.parquet"
        pq.write_table(pa.Table.from_pandas(FRAME).combine_chunks(), source, row_group_size=77)
    elif form == "pyarrow":
        source = pa.concat_tables(
            pa.Table.from_pandas(FRAME[i : i + 99]) for i in range(0, 500, 99)
        )
    else:
        source = FRAME.sample(frac=1, random_state=1)
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
        ({"type": "categorical", "private_values": 9, "catch_all": "o"}, ["", " a ", "a\0", "b"]),
        ({"type": "categorical", "private_values": 1, "catch_all": "b"}, ["b", "b", "a", "c"]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o", "missing": ["?"]},
         ["?", None, "1", "2"]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o"}, [True, False, True, True]),
        ({"type": "categorical", "private_values": 9, "catch_all": "o"}, [1.0, 2.5, 1e20, -0.0]),
    ],
)  # fmt: skip
def test_every_row_fits_what_was_learnt(column, cells, cost, seed):
    frame = pd.DataFrame({"a": cells * 3})
    open_schema = one(**column)
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
        ({"age": None, "city": None}, "'city'"),
        ({"size": ""}, "'size'"),
        ({"flag": "x1y"}, "'flag'"),
    ],
)
def test_what_encoding_would_refuse_is_refused_before_there_is_a_budget(change, hint):
    frame = FRAME.astype(object)
    for name, cell in change.items():
        frame.loc[250, name] = cell
    with pytest.raises(DataError, match=hint) as caught:
        gather_private(frame, SCHEMA, PLENTY)
    assert "x1y" not in str(caught.value)


def test_other_sources_are_refused():
    for source, hint in [
        (CodedTable.from_codes(SCHEMA.widest_domain(), [np.zeros(2, int)] * 4), "coded"),
        (FRAME[:0], "no rows"),
        (FRAME.drop(columns="age"), "'age'"),
    ]:
        with pytest.raises(DataError, match=hint):
            gather_private(source, SCHEMA, PLENTY)


def test_memory_is_bounded_and_the_refusal_tells_no_size():
    with pytest.raises(ResourceExceeded, match="'size'") as caught:
        gather_private(FRAME, SCHEMA, PLENTY, most_bytes=8800)
    assert "500" not in str(caught.value)


def test_rows_are_reported_to_whoever_limits_them():
    def refuse(rows):
        raise ResourceExceeded("too many")

    with pytest.raises(ResourceExceeded, match="too many"):
        gather_private(FRAME, SCHEMA, PLENTY, check_rows=refuse)


def test_a_cost_too_small_to_divide_is_refused_before_the_table_is_read():
    with pytest.raises(InputError, match="too little"):
        gather_private("no such file", SCHEMA, Cost(7, 7))


def test_the_cost_is_spent_and_not_exceeded():
    cost = Cost.within(Fraction(1, 7), Fraction(1, 1001))
    mechanisms = Recorder(cost)
    resolve_private(FRAME, SCHEMA, mechanisms, cost)
    spent = mechanisms.ledger.spent
    assert spent.fits(cost)
    assert cost.rho_units - spent.rho_units < 3
    assert cost.delta_units - spent.delta_units < 3
    labels = [event.label for event in mechanisms.ledger.events]
    assert labels == [
        "bins of age",
        "bins of size",
        "bins of age",
        "bins of size",
        "values of city",
    ]
    assert isinstance(mechanisms.ledger.events[-1], PartitionEvent)


def test_a_ledger_with_less_refuses():
    with pytest.raises(BudgetExceeded):
        resolve_private(FRAME, SCHEMA, Recorder(Cost(10**6, 10**6)), PLENTY)


def test_shares_are_public_and_equal():
    cost = Cost(90, 10)
    assert column_costs(SCHEMA, cost) == {
        "age": Cost(30, 0), "city": Cost(30, 10), "size": Cost(30, 0),
    }  # fmt: skip
    with pytest.raises(InputError, match="too little"):
        column_costs(SCHEMA, Cost(20, 10))
    with pytest.raises(InputError, match="delta"):
        column_costs(SCHEMA, Cost(90, 0))
    assert column_costs(schema_of(AGE), Cost(90, 0)) == {"age": Cost(90, 0)}


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
