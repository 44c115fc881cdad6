"""Schemas of related tables, and two tables as they are measured, against joins by pandas."""

from __future__ import annotations

import copy
import json

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from adaptive_qs.errors import AdaptiveQsError, DataError, ResourceExceeded, SchemaError
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.persons import ContributionBound
from adaptive_qs.table.related import PUBLISHED, Family, FamilyRows, RelatedSchema, render

from ..family import SCHEMA, made, without

PARSED = RelatedSchema.parse(SCHEMA)
ENOUGH = 2**30


def family(tables, schema=PARSED):
    return Family.of(*tables, schema, ENOUGH)


def coded(tables, table, schema=PARSED):
    described = schema.joined if table == "children" else schema.counted
    read = read_table(FamilyRows(family(tables, schema), table), described)
    return pd.DataFrame(dict(zip(described.names, read.columns)))


def kept(tables, schema=PARSED):
    """Codes of the children that count, as sorted rows."""
    rows = FamilyRows(family(tables, schema), "children")
    few = ContributionBound.from_source(rows, schema.joined, schema.most_children, ENOUGH)
    return sorted(zip(*read_table(few, schema.joined).columns))


def changed(**fields):
    content = copy.deepcopy(SCHEMA)
    for path, value in fields.items():
        place, *keys = content, *path.split("__")
        for key in keys[:-1]:
            place = place[key]
        if value is None:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
    return content


def test_parents_have_the_number_of_their_children_that_count():
    homes, persons = tables = made()
    number = persons["home"].value_counts().reindex(homes["home"], fill_value=0).clip(upper=3)
    found = coded(tables, "parents")
    assert found["children"].tolist() == number.tolist()
    assert found["income"].tolist() == homes["income"].tolist()
    assert (number == 0).any()
    assert (persons["home"].value_counts() > 3).any()


def test_children_have_the_columns_of_their_parents():
    homes, persons = tables = made()
    joined = persons.merge(homes, on="home", how="left")
    found = coded(tables, "children")
    assert found["income"].tolist() == joined["income"].tolist()
    assert found["region"].tolist() == (joined["region"] == "s").astype(int).tolist()
    assert found["age"].tolist() == persons["age"].tolist()


def test_the_same_tables_in_other_forms_are_read_alike(tmp_path):
    """Each key and cell is read by itself: as numbers, as text, mixed, in files, in two columns."""
    tables = homes, persons = made(80)
    expected = coded(tables, "children")
    mixed = homes.astype({"home": object})
    mixed.loc[::2, "home"] = mixed["home"][::2].astype(str)
    files = [tmp_path / "h.csv", tmp_path / "p.parquet"]
    homes.to_csv(files[0], index=False)
    persons.assign(home=persons["home"].astype(str)).to_parquet(files[1])
    forms = [
        (homes.astype({"home": str}), persons),
        (mixed, pa.Table.from_pandas(persons, preserve_index=False)),
        tuple(files),
    ]
    for form in forms:
        pd.testing.assert_frame_equal(coded(form, "children"), expected)
    renamed = RelatedSchema.parse(changed(foreign_key="of"))
    named = (homes, persons.rename(columns={"home": "of"}))
    pd.testing.assert_frame_equal(coded(named, "children", renamed), expected)


def test_a_parent_with_all_children_changes_nothing_else():
    """Which children of others count does not depend on it, nor on the order of the rows."""
    tables = made(120)
    homes, persons = tables
    all_kept = kept(tables)
    shuffled = homes.sample(frac=1, random_state=1), persons.sample(frac=1, random_state=2)
    assert kept(shuffled) == all_kept
    sizes = persons["home"].value_counts()
    for key in (sizes.index[0], sizes.index[-1]):
        others = kept(without(tables, key))
        gone = list(all_kept)
        for row in others:
            gone.remove(row)
        assert len(gone) == min(sizes[key], 3)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda h, p: (h, p.assign(home=999)), "'home' has values that no row of parents has"),
        (lambda h, p: (pd.concat([h, h[:1]]), p), "'home' has a value in several rows"),
        (
            lambda h, p: (h.assign(home=h["home"].where(h.index > 0)), p),
            "cells of the parent column",
        ),
        (lambda h, p: (h, p.assign(home=[None, *p["home"][1:]])), "cells of the parent column"),
        (lambda h, p: (h.assign(home=h["home"] + 1e16), p), "which can confuse parents"),
        (lambda h, p: (h.drop(columns="home"), p), "column 'home' of the schema is missing"),
        (lambda h, p: (h, p.drop(columns="home")), "column 'home' of the schema is missing"),
        (lambda h, p: (h.assign(other=1), p), "column 'other' is not in the schema"),
    ],
)
def test_tables_that_do_not_fit_each_other_are_refused_and_no_key_is_named(edit, words):
    with pytest.raises(DataError, match=words) as error:
        family(edit(*made(60)))
    assert "999" not in str(error.value)
    assert "\n" not in str(error.value)


def test_coded_tables_and_too_many_keys_are_refused():
    homes, persons = made(60)
    codes = CodedTable.from_codes(PARSED.parents.domain(), [np.zeros(3, int), np.zeros(3, int)])
    with pytest.raises(DataError, match="a coded table has no key 'home'"):
        family((codes, persons))
    with pytest.raises(ResourceExceeded, match="keys of its rows do not fit"):
        Family.of(homes, persons, PARSED, 1_000)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"version": 1, "columns": []}, "describes one table"),
        ("nothing", "must be an object"),
        (changed(most_children=None), "most_children: is required"),
        (changed(most_children=0), "most_children: "),
        (changed(key=None), "key: is required"),
        (changed(extra=1), "extra"),
        (changed(parents=3), "parents"),
        (changed(parents__columns=[]), "schema: parents: columns"),
        (changed(children__columns=[{"name": "x", "type": "?"}]), "schema: children: column 'x'"),
        (changed(key="region"), "parents: column 'region' is the key"),
        (changed(key="id"), "children: column 'id' is the key"),
        (changed(children__person="who"), 'children: has "person"'),
        (changed(count="age"), "'age' has a name that occurs twice"),
        (changed(parents__columns=SCHEMA["children"]["columns"]), "occurs twice"),
        (
            changed(parents__columns=[{"name": "r", "type": "categorical", "private_values": 3,
                                       "catch_all": "o"}]),
            "parents: column 'r': has \"private_values\", which is learnt .*: declare the bins",
        ),
        (
            changed(children__columns=[{"name": "x", "type": "integer", "min": 0, "max": 99,
                                        "bins": 9, "private_heaps": 5}]),
            "children: column 'x': has \"private_heaps\", .* leave it out",
        ),
    ],
)  # fmt: skip
def test_what_is_no_schema_of_related_tables_is_refused_in_one_line(content, words):
    with pytest.raises(SchemaError, match=words) as error:
        RelatedSchema.parse(content)
    assert "\n" not in str(error.value)
    with pytest.raises(AdaptiveQsError):
        RelatedSchema.of(content if isinstance(content, dict) else 3)


def test_the_fingerprint_is_of_what_a_schema_means():
    assert RelatedSchema.parse(SCHEMA).fingerprint == PARSED.fingerprint
    for other in (changed(most_children=4), changed(count="n"), changed(foreign_key="of")):
        assert RelatedSchema.parse(other).fingerprint != PARSED.fingerprint
    assert hash(PARSED) == hash(RelatedSchema.parse(SCHEMA))


def test_the_published_json_schema_is_current():
    assert PUBLISHED.read_text() == render(), "run: python scripts/make_reference.py"
    jsonschema.validate(SCHEMA, json.loads(render()))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(most_children=0), json.loads(render()))
