"""Schemas that leave bins or values open: syntax, the widest domain, and what they refuse."""

import json

import jsonschema
import pytest

from adaptive_qs.data.json_schema import schema_json
from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import SchemaError

from .helpers import one, schema_of

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


def test_files_keep_what_is_open_and_the_published_schema_knows_it():
    schema = schema_of(*OPEN)
    content = json.loads(schema.to_json())
    jsonschema.validate(content, schema_json())
    again = Schema.parse(content)
    assert again == schema
    assert again.fingerprint == schema.fingerprint


@pytest.mark.parametrize("change", [{"private_bins": 19}, {"min": 0}, {"outside": "missing"}])
def test_the_fingerprint_covers_what_is_open(change):
    column = {"type": "integer", "private_bins": 20, "missing": ["?"]}
    assert one(**column).fingerprint != one(**{**column, **change}).fingerprint


def test_what_was_learnt_is_part_of_the_file():
    columns = [
        {"name": "a", "type": "integer", "min": 0, "max": 9, "learnt": ["max", "bins"]},
        {"name": "b", "type": "categorical", "values": ["x"], "learnt": ["values"]},
        {"name": "c", "type": "numeric", "edges": [0, 1]},
    ]
    schema = schema_of(*columns)
    jsonschema.validate(json.loads(schema.to_json()), schema_json())
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
        one(**column)
    message = str(caught.value)
    assert "'a'" in message
    assert hint in message
    assert "\n" not in message


def test_markers_outside_the_declared_ends_are_welcome():
    assert one(type="integer", private_bins=5, min=0, missing=["-9", "?"]).widest_domain()
    assert one(type="numeric", private_bins=5, max=1, missing=["99"]).widest_domain()
