"""Neighbouring tables of any schema write the same bytes when the noise is the same."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.audit.jobs import Synthesis
from adaptive_qs.audit.neighbours import neighbour_pairs
from adaptive_qs.audit.run import audit
from adaptive_qs.audit.stand_in import stand_in
from adaptive_qs.audit.tables import FORMS, KINDS, Types, write_rows
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.inputs import read_table
from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.synthesizer.resources import plan_run

from .pairs import replay_pairs
from .schemas import schemas


def test_neighbours_cannot_be_told_apart():
    done = replay_pairs(pairs=60, num_schemas=10)
    assert done.findings == ()
    assert done.pairs == 60
    assert done.runs == 4 * done.pairs
    assert done.draws > 5 * done.runs


PRIVATE = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "age", "type": "integer", "private_bins": 6, "missing": ["?"]},
            {"name": "pay", "type": "numeric", "private_bins": 5, "min": 0, "decimals": 2},
            {"name": "city", "type": "categorical", "private_values": 3, "catch_all": "*"},
            {"name": "flag", "type": "boolean"},
        ],
    }
)


def test_bins_and_values_are_learnt_alike():
    report = audit(PRIVATE, [1, 2], pairs=14, rhos=(0.5,), sample_every=7)
    assert report.clean
    assert report.draws > 14 * 2 * 6  # bounds, bins and values come first in both commands


@pytest.mark.parametrize("schema", [PRIVATE, "decimals", "narrow", "one end"])
def test_rows_can_be_generated_for_whatever_is_to_be_learnt(schema):
    columns = {
        "decimals": {"type": "numeric", "private_bins": 9, "min": 0, "max": 0.3, "decimals": 1},
        "narrow": {"type": "integer", "private_bins": 2, "min": 7, "max": 8},
        "one end": {"type": "integer", "private_bins": 9, "max": -(10**17)},
    }
    if isinstance(schema, str):
        schema = Schema.parse({"version": 1, "columns": [{"name": "a", **columns[schema]}]})
    ready = stand_in(schema)
    assert ready.names == schema.names
    assert not ready.private_columns
    assert all(size >= 2 for size in ready.domain().sizes)


EVERYTHING = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a", "type": "categorical", "values": ["x", "y"], "catch_all": "other"},
            {"name": "b", "type": "integer", "min": 0, "max": 9, "outside": "clip"},
            {"name": "c", "type": "date", "min": "2020-01-01", "max": "2022-01-01",
             "outside": "missing", "missing": ["?"]},
        ],
    }
)  # fmt: skip


@settings(max_examples=15)
@given(schemas(), st.integers(0, 2**32 - 1))
def test_pairs_are_neighbours(tmp_path_factory, schema, seed):
    folder = tmp_path_factory.mktemp("pairs")
    for pair in islice(neighbour_pairs(schema, folder, np.random.default_rng(seed)), 12):
        short, long = sorted([pair.here, pair.there], key=len)
        assert len(long) == len(short) + 1
        rest = list(long)
        for row in short:
            rest.remove(row)
        assert len(rest) == 1
        for rows in (short, long):
            if rows:
                path = write_rows(rows, schema.names, folder)
                assert encode_file(path, schema).num_rows == len(rows)


def test_every_kind_of_table_and_row_occurs(tmp_path):
    pairs = islice(neighbour_pairs(EVERYTHING, tmp_path, np.random.default_rng(0)), 7 * len(KINDS))
    names = {pair.name for pair in pairs}
    assert len(names) == 7 * len(KINDS)
    assert {name.partition(", ")[0] for name in names} == set(KINDS)
    assert any("the only row less" in name for name in names)
    assert any("outside the schema" in name for name in names)


MIXED = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a", "type": "categorical", "values": ["true", "false"], "catch_all": "*"},
            {"name": "b", "type": "categorical", "values": ["1", "2", "3"], "catch_all": "*"},
            {"name": "c", "type": "date", "min": "2020-01-01", "max": "2020-12-31",
             "granularity": "month"},
        ],
    }
)  # fmt: skip


def test_a_row_of_another_type_recodes_no_other_row():
    """In a frame of Python objects, where one type for a whole column would do so."""
    report = audit(MIXED, 1, pairs=35, rhos=(0.1,), sample_every=10**6)
    assert report.findings == ()
    assert report.pairs == 35


@settings(max_examples=10)
@given(schemas(), st.integers(0, 2**32 - 1))
def test_every_form_of_a_table_holds_the_same_rows(tmp_path_factory, schema, seed):
    folder = tmp_path_factory.mktemp("forms")
    for pair in islice(neighbour_pairs(schema, folder, np.random.default_rng(seed)), 6):
        if pair.here and pair.there:
            types = Types(schema, pair.here, pair.there)
            whole = encode_file(write_rows(pair.here, schema.names, folder, "whole.csv"), schema)
            for form, make in FORMS.items():
                table = read_table(make(pair.here, types, folder), schema)
                for one, other in zip(whole.columns, table.columns):
                    assert np.array_equal(one, other), form


def test_the_ceiling_is_the_least_memory_that_can_be_planned_for():
    tight = Synthesis.of(EVERYTHING, 2, 1.0).at_ceiling()
    domain = EVERYTHING.widest_domain()
    assert plan_run(domain, tight.marginals, tight.plan.max_memory_bytes, 1) == tight.plan
    with pytest.raises(ResourceExceeded):
        plan_run(domain, tight.marginals, tight.plan.max_memory_bytes - 1, 1)
    largest = max(map(domain.size, tight.marginals.cliques))
    assert tight.plan.measured_cells == largest


@pytest.mark.parametrize("kind", KINDS)
def test_tables_stay_inside_the_domain(kind):
    rng = np.random.default_rng(0)
    for sizes in [(1,), (2, 1, 7), (300, 2)]:
        codes = KINDS[kind](sizes, rng)
        assert codes.shape[1] == len(sizes)
        assert (codes >= 0).all()
        assert (codes < np.array(sizes)).all()
