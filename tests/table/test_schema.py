"""Schema files: what they accept, how they refuse, and the published JSON Schema."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from adaptive_qs.errors import SchemaError
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.propose import check_schema
from adaptive_qs.table.schema import Schema
from scripts.make_reference import PUBLISHED, render

from ..published import validate_schema
from .helpers import schema_of


def one(**column):
    return schema_of({"a": column})


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ({"type": "integr"}, "type"),
        ({"type": "integer", "min": 0}, "max"),
        ({"type": "integer", "min": "0", "max": 1}, "min"),
        ({"type": "integer", "min": 1, "max": 0}, "Swap or correct them"),
        ({"type": "integer", "min": 0, "max": 9, "bins": 11}, "more than"),
        ({"type": "integer", "min": 0, "max": 9, "bin_starts": [1, 2]}, "begin with min"),
        ({"type": "integer", "min": 0, "max": 9, "bin_starts": [0, 10]}, "up to max"),
        ({"type": "integer", "min": 0, "max": 9, "missing": ["9"]}, "also a declared value"),
        ({"type": "integer", "min": 0, "max": 9, "outside": "missing"}, "no missing marker"),
        ({"type": "integer", "min": 0, "max": 10**12}, "fewer bins"),
        ({"type": "integer", "min": 0, "max": 9, "colour": 1}, "colour"),
        ({"type": "numeric", "min": 0, "max": 1}, "bins"),
        ({"type": "numeric", "edges": [0]}, "ascend"),
        ({"type": "numeric", "edges": [0, 1], "min": 0}, "keep one"),
        ({"type": "numeric", "edges": [0, 0.1, 1], "decimals": 0, "missing": ["x"]}, None),
        ({"type": "numeric", "edges": [0, 0.1, 0.2, 1], "decimals": 0}, "holds no number"),
        ({"type": "numeric", "edges": [0, 0.5, 1], "step": 0.5}, "without decimals"),
        ({"type": "numeric", "edges": [0, 1], "decimals": 1, "step": 0.25}, "has more than 1 dec"),
        ({"type": "numeric", "edges": [0, 1], "decimals": 1, "step": 0}, "above 0"),
        ({"type": "numeric", "edges": [0, 0.1, 0.4, 1], "decimals": 1, "step": 0.5}, "multiple"),
        ({"type": "numeric", "edges": [0, 1], "decimal": ",", "thousands": ","}, "change one"),
        ({"type": "integer", "min": 0, "max": 9, "thousands": "."}, "change one"),
        ({"type": "integer", "min": 0, "max": 9, "thousands": "-"}, "thousands"),
        ({"type": "numeric", "edges": [0, 9], "decimal": ",", "missing": ["8,5"]}, "also a decl"),
        ({"type": "numeric", "edges": [0, 9], "decimal": ",", "missing": ["8.5"]}, None),
        ({"type": "numeric", "private_bins": 9, "thousands": "."}, "change one"),
        ({"type": "date", "min": "1900-01-01", "max": "2000-01-01", "granularity": "2 years"},
         "10 years"),
        ({"type": "categorical", "values": []}, "values"),
        ({"type": "categorical", "values": ["x", "x"]}, "twice"),
        ({"type": "categorical", "values": ["x", 1]}, "several types"),
        ({"type": "categorical", "values": ["x "]}, "white space"),
        ({"type": "categorical", "values": ["x"], "catch_all": 1}, "catch_all"),
        ({"type": "categorical", "values": ["x"], "missing": ["x"]}, "also a declared value"),
        ({"type": "categorical", "values": ["x", "y"], "groups": {"g": ["x"]}}, "is in no group"),
        ({"type": "categorical", "values": ["x"], "groups": {"g": ["x", "z"]}}, "is no value"),
        ({"type": "categorical", "values": ["x"], "groups": {"g": ["x"], "h": ["x"]}}, "twice"),
        (
            {"type": "categorical", "private_values": 3, "catch_all": "o", "groups": {"g": ["o"]}},
            "groups",
        ),
        ({"type": "boolean", "missing": ["N"]}, "also a declared value"),
        ({"type": "date", "min": "2020-02-31", "max": "2020-12-01"}, "min"),
        ({"type": "date", "min": "2020-01-01", "max": "2020-12-01", "format": "%Y"}, "format"),
        ({"type": "datetime", "min": "2020-01-01T00:00:00Z", "max": "2021-01-01T00:00:00Z"},
         "time zone"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(tmp_path, column, hint):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"version": 1, "columns": [{"name": "a", **column}]}))
    if hint is None:
        Schema.load(path)
        return
    with pytest.raises(SchemaError) as caught:
        Schema.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert "'a'" in message
    assert hint in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "not valid JSON"),
        ("{", "line 1"),
        ("[]", "object"),
        ('{"version": 1, "columns": []}', "columns"),
        ('{"version": 2, "columns": [{"name": "a", "type": "boolean"}]}', "version"),
        ('{"columns": [{"name": "a", "type": "boolean"}]}', "version"),
        ('{"version": 1, "columns": [7]}', "column number 1"),
        ('{"version": 1, "columns": [{"type": "boolean"}]}', "name"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": 0}', "version"),
        ('{"version": 1, "columns": [{"name": "a", "type": "numeric", "edges": [0, NaN]}]}', "NaN"),
        ("[" * 100_000, "nested"),
    ],
)
def test_files_that_are_no_schema(tmp_path, text, hint):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(SchemaError, match=hint):
        Schema.load(path)


def test_unreadable_files(tmp_path):
    with pytest.raises(SchemaError, match="check the path"):
        Schema.load(tmp_path / "none.json")
    (tmp_path / "s.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="UTF-8"):
        Schema.load(tmp_path / "s.json")


COUNTRIES = {"France": ["Lyon", "Paris"], "Italy": ["Turin", "Rome"]}
CITY = {"name": "city", "type": "categorical", "values": ["Lyon", "Turin", "Paris", "Rome"]}


def levels_of(city, rules=(), *others):
    schema = Schema.parse({"version": 1, "columns": [city, *others], "rules": [*rules]})
    return schema.domain().attributes[0].declared


def test_groups_of_values_are_a_level_of_the_codes():
    grouped = {**CITY, "groups": COUNTRIES}
    assert levels_of(CITY) == ()
    assert levels_of(grouped) == ((0, 1, 0, 1),)
    beyond = {**grouped, "catch_all": "other", "missing": [""]}
    assert levels_of(beyond) == ((0, 1, 0, 1, 2, 3),)
    inside = COUNTRIES | {"elsewhere": ["other"]}
    assert levels_of({**beyond, "groups": inside}) == ((0, 1, 0, 1, 2, 3),)
    assert levels_of({**CITY, "groups": {"all": CITY["values"]}}) == ()
    assert levels_of({**CITY, "groups": {city: [city] for city in CITY["values"]}}) == ()


def test_what_a_column_determines_by_a_table_is_a_level_of_it():
    """Nested ones only, from fine to coarse; cities that no table lists are one group."""
    table = [[city, country] for country, cities in COUNTRIES.items() for city in cities]
    rule = {"rule": "city determines country", "table": table}
    country = {"name": "country", "type": "categorical", "values": [*COUNTRIES]}
    assert levels_of({**CITY, "missing": ["-"]}, [rule], country) == ((0, 1, 0, 1, 2),)
    assert levels_of(CITY, [{**rule, "table": table[:1]}], country) == ((1, 0, 0, 0),)
    both = {"rule": "city, n determine country", "table": [["Lyon", "1", "France"]]}
    number = {"name": "n", "type": "integer", "min": 0, "max": 1}
    assert levels_of(CITY, [both], country, number) == ()
    finer = {
        **CITY,
        "groups": {"north": ["Lyon"], "middle": ["Turin", "Rome"], "capital": ["Paris"]},
    }
    assert levels_of(finer, [rule], country) == ((0, 1, 2, 1), (0, 1, 0, 1))
    across = {
        **CITY,
        "groups": {"north": ["Lyon", "Turin"], "south": ["Rome"], "capital": ["Paris"]},
    }
    assert levels_of(across, [rule], country) == ((0, 0, 2, 1),)


def test_groups_change_what_a_schema_means_and_come_back():
    schema = Schema.parse({"version": 1, "columns": [{**CITY, "groups": COUNTRIES}]})
    plain = Schema.parse({"version": 1, "columns": [CITY]})
    assert schema.fingerprint != plain.fingerprint
    again = Schema.parse(json.loads(schema.to_json()))
    assert again == schema
    assert again.domain().attributes[0].declared == schema.domain().attributes[0].declared


def test_mbi_domain_file(tmp_path):
    path = tmp_path / "domain.json"
    path.write_text('{"age": 85, "sex": 2}')
    schema = Schema.load(path)
    assert schema.domain().sizes == (85, 2)
    assert schema.column("age").declares("84")
    assert not schema.column("age").declares("85")


def test_a_version_alone_is_no_mbi_domain(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"version": 1}')
    with pytest.raises(SchemaError, match="columns: is required"):
        Schema.load(path)
    assert Schema.parse({"version": 3, "age": 2}).domain().sizes == (3, 2)


def test_dump_and_fingerprint(tmp_path):
    schema = Schema.load(sample_dataset().schema)
    schema.dump(tmp_path / "s.json")
    again = Schema.load(tmp_path / "s.json")
    assert again == schema
    assert again.fingerprint == schema.fingerprint
    bare = schema.model_copy(update={"description": "another"})
    assert bare.fingerprint == schema.fingerprint
    fewer = Schema(version=1, columns=schema.columns[1:])
    assert fewer.fingerprint != schema.fingerprint


def test_unknown_column():
    with pytest.raises(SchemaError, match="'b'"):
        one(type="boolean").column("b")


def test_published_json_schema_is_current():
    assert PUBLISHED["schema"].read_text() == render("schema"), (
        "run: python scripts/make_reference.py"
    )
    validate_schema(json.loads(sample_dataset().schema.read_text()))


def test_schema_imports_nothing_heavy():
    code = "import sys, adaptive_qs.table.schema; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pyarrow", "pandas", "narwhals"} & set(modules)


def test_check_schema_gives_advice():
    wide = {"type": "integer", "min": 0, "max": 99_999}
    columns = {
        "wide": wide,
        "wider": wide,
        "one": {"type": "categorical", "values": ["x"]},
        "case": {"type": "categorical", "values": ["Male", "male"]},
        "order": {"type": "categorical", "values": [2, 1], "ordered": True},
    }
    advice = check_schema(schema_of(columns))
    for hint in ("100000 codes", "together", "'one'", "'Male'", "'order'"):
        assert any(hint in line for line in advice)
    assert check_schema(Schema.load(sample_dataset().schema)) == ()
