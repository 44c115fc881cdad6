"""Schemas of sets of tables: what they describe, what is refused, and where tables are found."""

from __future__ import annotations

import copy
import json
from fractions import Fraction

import jsonschema
import pytest

from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.table.joined import locate_tables, name_tables
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import LONE, MOST_TABLES, TableSet
from scripts.make_reference import PUBLISHED, render

from ..family import DEEP, HOMES, SCHEMA

TREE = {
    "version": 1,
    "tables": {**DEEP["tables"], "cars": {"version": 1, "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 3}]}},
    "keys": [*DEEP["keys"], {"child": "cars", "column": "home", "parent": "homes", "most": 5}],
}  # fmt: skip


def edited(change, content=TREE):
    """The parsed JSON with changes, made in place."""
    content = copy.deepcopy(content)
    change(content)
    return content


def test_tables_are_measured_behind_their_ancestors_with_numbers_of_children():
    """Breadth first; of the budget, a quarter of what it and all below it have goes to a parent,
    the rest evenly to its children."""
    measured = TableSet.parse(TREE).measured()
    homes = ("region", "income", "size", "cars")
    assert [table.schema.names for table in measured] == [
        homes, (*homes, "age", "sex", "trips"), (*homes, "age"),
        (*homes, "age", "sex", "trips", "km"),
    ]  # fmt: skip
    assert [table.name for table in measured] == ["homes", "persons", "cars", "trips"]
    assert [table.given for table in measured] == [0, 4, 4, 7]
    assert [table.rows_per_unit for table in measured] == [1, 2, 5, 4]
    assert [table.schema.person for table in measured] == [None, "home", "home", "person"]
    quarters = [Fraction(8, 32), Fraction(3, 32), Fraction(12, 32), Fraction(9, 32)]
    assert [table.share for table in measured] == quarters
    assert measured[0].schema.by_name["cars"].size == 6
    two = TableSet.parse(SCHEMA).measured()
    assert [table.share for table in two] == [Fraction(1, 4), Fraction(3, 4)]


def test_synthetic_tables_have_their_keys_first():
    schema, rows = TableSet.parse(TREE), {"homes": 3, "persons": 9, "cars": 1, "trips": 20}
    names = {name: schema.written(name, rows).names for name in schema.names}
    assert names == {
        "homes": ("home", "region", "income"), "persons": ("id", "home", "age", "sex"),
        "cars": ("home", "age"), "trips": ("person", "km"),
    }  # fmt: skip
    assert schema.written("trips", rows).by_name["person"].limits[1] == 9


def test_one_table_is_a_set_with_one_member():
    schema = Schema.parse(HOMES)
    found = TableSet.parse(HOMES)
    assert not found.is_set
    assert found == TableSet.of_one(schema) == TableSet.resolve(schema) == TableSet.resolve(HOMES)
    assert found.fingerprint == schema.fingerprint
    assert found.to_json() == schema.to_json()
    (table,) = found.measured()
    assert table == (LONE, schema, 0, 1, 1)
    with pytest.raises(SchemaError, match=r'describes a set of tables, .*"columns"'):
        Schema.parse(SCHEMA)


def set_key(number, **fields):
    return lambda content: content["keys"][number].update(fields)


def set_column(table, name):
    return lambda content: content["tables"][table]["columns"][0].update(name=name)


def set_table(table, **fields):
    return lambda content: content["tables"][table].update(fields)


LEARNT = {"name": "r", "type": "categorical", "private_values": 3, "catch_all": "o"}
HEAPS = {"name": "r", "type": "integer", "min": 0, "max": 99, "bins": 9, "private_heaps": 5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_key(0, column=["home", "id"]), "key number 1: column: is a list, and a key has one"),
        (set_key(1, parent_column=["home", "id"]), "key number 2: parent_column: is a list"),
        (set_key(0, parent="x"), "a key names the table 'x': there are homes"),
        (set_key(0, parent="persons"), "persons: column 'home' names rows of the table itself"),
        (lambda c: c["keys"].pop(), "homes and cars have no parent.* one ledger"),
        (lambda c: c["keys"].append({**c["keys"][1], "parent": "cars"}),
         "trips: has two parents, persons and cars"),
        (set_key(0, parent="trips"), "persons: belongs to its own descendants"),
        (lambda c: c["keys"].append({**c["keys"][2], "child": "homes", "parent": "cars"}),
         "homes: belongs to its own descendants"),
        (set_column("trips", "age"), "trips: 'age' names two columns or"),
        (set_column("trips", "size"), "trips: 'size' names two columns or"),
        (set_key(2, count="region"), "homes: 'region' names two columns or"),
        (set_column("trips", "person"), "trips: column 'person' is a key"),
        (set_column("homes", "home"), "homes: column 'home' is a key"),
        (set_table("persons", ignore=["id"]), "persons: column 'id' is a key"),
        (set_key(1, parent_column="home"), "persons: column 'home' names a row and its parent"),
        (set_key(2, parent_column="other"), "homes: its children name its rows by several col"),
        (set_table("trips", person="who"), 'trips: has "person": remove it, since one row of h'),
        (set_table("trips", columns=[LEARNT]), "'r' has \"private_values\", .*: declare the bins"),
        (set_table("trips", columns=[HEAPS]), "'r' has \"private_heaps\", .* leave it out"),
        (set_key(0, most=0), "key number 1: most: must be at least 1"),
        (set_key(0, most=9_999), "key number 1: most: must be at most 4096"),
        (lambda c: c["keys"][0].pop("most"), "key number 1: most: is required"),
        (lambda c: [key.update(most=4_000) for key in c["keys"]], "16,000,000 rows can be below"),
        (lambda c: c["tables"].update({"my table": HOMES}), "'my table' cannot be the name of"),
        (lambda c: c["tables"].update({"aux": HOMES}), "'aux' cannot be the name of a table"),
        (lambda c: c["tables"].update({"SQLite_x": HOMES}), "'SQLite_x' cannot be the name of a t"),
        (lambda c: c["tables"].update({"Homes": HOMES}), "two tables have the same names"),
        (set_table("trips", file="Persons"), "two tables have the same files"),
        (set_table("trips", file="../trips.csv"), "is not a file name"),
        (set_table("trips", columns=[]), "schema: trips: columns: must not be empty"),
        (lambda c: c["tables"].update(trips=3), "tables.trips: must be an object"),
        (lambda c: c.update(keys=3), "keys: must be a list"),
        (lambda c: c.update(extra=3), "extra"),
        (lambda c: c.update(tables={f"t{n}": HOMES for n in range(MOST_TABLES + 1)}), "too long"),
    ],
)  # fmt: skip
def test_what_is_no_set_of_tables_is_refused_in_one_line(change, words):
    with pytest.raises(SchemaError, match=words) as error:
        TableSet.parse(edited(change))
    assert "\n" not in str(error.value)


def test_the_fingerprint_is_of_what_a_schema_means():
    schema = TableSet.parse(TREE)
    assert TableSet.parse(json.loads(schema.to_json())) == schema
    assert hash(TableSet.parse(edited(set_table("cars", file="c.csv")))) == hash(schema)
    for change in (set_key(0, most=4), set_key(0, count="n"), set_column("cars", "years")):
        assert TableSet.parse(edited(change)).fingerprint != schema.fingerprint
    titled = schema.changed({"homes": schema.tables["homes"].changed(about={"title": "T"})})
    assert {table.schema.about["title"] for table in titled.measured()} == {"T"}


def test_the_published_json_schema_is_current():
    assert PUBLISHED["tables"].read_text() == render("tables"), (
        "run: python scripts/make_reference.py"
    )
    jsonschema.validate(TREE, json.loads(render("tables")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(edited(set_key(0, most=0)), json.loads(render("tables")))


def test_tables_are_found_by_their_names(tmp_path):
    """In a folder with any ending, or as the schema says; in a database behind its path."""
    schema = TableSet.parse(edited(set_table("persons", file="people.csv"), DEEP))
    for name in ("homes.parquet", "people.csv", "trips.tsv", "other.csv"):
        (tmp_path / name).touch()
    found = locate_tables(tmp_path, schema)
    assert [path.name for path in found.values()] == ["homes.parquet", "people.csv", "trips.tsv"]
    assert name_tables(str(tmp_path), schema) == found
    (tmp_path / "d.db").touch()
    inside = locate_tables(tmp_path / "d.db", schema)
    assert [path.name for path in inside.values()] == [
        "d.db::homes", "d.db::people.csv", "d.db::trips"
    ]  # fmt: skip
    with pytest.raises(DataError, match="nowhere: no such folder or database"):
        locate_tables(tmp_path / "nowhere", schema)
    with pytest.raises(DataError, match=r"other.csv is one table, and the schema describes 3"):
        locate_tables(tmp_path / "other.csv", schema)
    (tmp_path / "homes.csv").touch()
    with pytest.raises(DataError, match=r"has homes.csv and homes.parquet: remove one"):
        locate_tables(tmp_path, schema)
    (tmp_path / "people.csv").unlink()
    (tmp_path / "homes.csv").unlink()
    with pytest.raises(DataError, match=r"has no table persons: name its file people.csv"):
        locate_tables(tmp_path, schema)
    with pytest.raises(DataError, match="the tables lack 'trips'"):
        name_tables({"homes": 1, "persons": 2}, schema)
    with pytest.raises(DataError, match="the schema lacks 'x'"):
        name_tables({"homes": 1, "persons": 2, "trips": 3, "x": 4}, schema)
    with pytest.raises(DataError, match="Use a mapping with homes, persons, trips"):
        name_tables(3, schema)
