"""Neighbouring tables of any schema write the same bytes when the noise is the same."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.audit.neighbours import neighbour_pairs
from adaptive_qs.audit.tables import KINDS, write_rows
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.schema import Schema

from .pairs import replay_pairs
from .schemas import schemas


def test_neighbours_cannot_be_told_apart():
    done = replay_pairs(pairs=60, num_schemas=10)
    assert done.findings == ()
    assert done.pairs == 60
    assert done.runs == 4 * done.pairs
    assert done.draws > 5 * done.runs


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


@pytest.mark.parametrize("kind", KINDS)
def test_tables_stay_inside_the_domain(kind):
    rng = np.random.default_rng(0)
    for sizes in [(1,), (2, 1, 7), (300, 2)]:
        codes = KINDS[kind](sizes, rng)
        assert codes.shape[1] == len(sizes)
        assert (codes >= 0).all()
        assert (codes < np.array(sizes)).all()
