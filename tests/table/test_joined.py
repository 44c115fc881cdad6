"""Rows of sets of tables as they are measured, against joins by pandas, for trees of any shape."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from adaptive_qs.errors import DataError, ResourceExceeded
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.joined import join_tables
from adaptive_qs.table.tables import TableSet

from ..family import DEEP, SCHEMA, drawn_tree, made, made_deep, without

ENOUGH = 2**30
SHAPES = [[None, 0], [None, 0, 0], [None, 0, 1], [None, 0, 0, 1, 1], [None, 0, 1, 2, 1, 0]]


def read(schema, tables, bounded=True):
    """The measured tables as data frames of values, by name."""
    joined = join_tables(tables, schema, ENOUGH, bounded)
    found = {}
    for each in schema.measured():
        codes = read_table(joined[each.name], each.schema)
        found[each.name] = pd.DataFrame(dict(zip(each.schema.names, codes.columns)))
    return found


def merged(schema, tables):
    """All rows of each table behind the columns of their ancestors, by pandas."""
    numbered = {}
    for name, frame in tables.items():
        for key in schema.find_keys_below(name):
            sizes = tables[key.child][key.column].value_counts()
            number = frame[key.identifier].map(sizes).fillna(0).clip(upper=key.most).astype(int)
            frame = frame.assign(**{key.number: number})
        numbered[name] = frame
    found = {}
    for each in schema.measured():
        rows = numbered[each.name]
        for above in reversed(schema.list_path(each.name)[:-1]):
            key = next(k for k in schema.keys if k.parent == above and k.column in rows)
            own = numbered[above].rename(columns={key.identifier: key.column, "up": "up2"})
            rows = rows.merge(own, on=key.column, how="left").drop(columns=key.column)
            rows = rows.rename(columns={"up2": "up"}).drop(columns="key", errors="ignore")
        found[each.name] = rows[list(each.schema.names)]
    return found


def as_rows(frame):
    return sorted(map(tuple, frame.to_numpy().tolist()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.one_in(3)
def test_rows_have_their_ancestors_and_at_most_so_many_of_a_parent_are_kept(shape, seed):
    schema, tables = drawn_tree(shape, seed)
    whole, kept = merged(schema, tables), read(schema, tables)
    unbounded = read(schema, tables, bounded=False)
    for each in schema.measured():
        name = each.name
        assert as_rows(unbounded[name]) == as_rows(whole[name])
        assert set(as_rows(kept[name])) <= set(as_rows(whole[name]))
        key = schema.by_child.get(name)
        if key is None:
            assert len(kept[name]) == len(whole[name])
            continue
        above = f"i{key.parent[1:]}"
        sizes = kept[name][above].value_counts()
        wanted = kept[key.parent].set_index(above)[key.number]  # only of parents that are kept
        wanted = wanted[wanted > 0]
        assert sizes.sort_index().to_dict() == wanted.sort_index().to_dict()


@pytest.mark.parametrize("shape", SHAPES[2:])
def test_which_rows_are_kept_follows_from_their_family_alone(shape):
    """Neither other families nor the order of rows decide it."""
    schema, tables = drawn_tree(shape, 9)
    kept = read(schema, tables)
    shuffled = {n: t.sample(frac=1, random_state=3) for n, t in tables.items()}
    for name, frame in read(schema, shuffled).items():
        assert as_rows(frame) == as_rows(kept[name])
    gone = {"t0": {tables["t0"]["key"][0]}}
    fewer = {"t0": tables["t0"][1:]}
    for name in schema.names[1:]:
        key, frame = schema.by_child[name], tables[name]
        lost = frame["up"].isin(gone[key.parent])
        gone[name], fewer[name] = set(frame["key"][lost]), frame[~lost]
    root = tables["t0"]["i0"][0]
    for name, frame in read(schema, fewer).items():
        assert as_rows(frame) == as_rows(kept[name][kept[name]["i0"] != root])


def test_equal_rows_with_rows_below_them_are_told_apart_by_their_keys():
    """Two persons of a household who differ by their trips alone: the order does not matter."""
    schema = TableSet.parse({**DEEP, "keys": [{**DEEP["keys"][0], "most": 1}, DEEP["keys"][1]]})
    homes = pd.DataFrame({"home": [1], "region": ["n"], "income": [0]})
    persons = pd.DataFrame({"id": [5, 6], "home": 1, "age": 0, "sex": "f"})
    trips = pd.DataFrame({"person": [5, 6], "km": [1, 2]})
    found = [
        read(schema, {"homes": homes, "persons": persons[::step], "trips": trips[::step]})
        for step in (1, -1)
    ]
    assert as_rows(found[0]["trips"]) == as_rows(found[1]["trips"])
    assert len(found[0]["trips"]) == 1


def test_the_same_tables_in_other_forms_are_read_alike(tmp_path):
    """Each key and cell is read by itself: as numbers, as text, mixed, in files."""
    tables, schema = made_deep(80), TableSet.parse(DEEP)
    homes, persons, trips = tables.values()
    expected = read(schema, tables)
    mixed = homes.astype({"home": object})
    mixed.loc[::2, "home"] = mixed["home"][::2].astype(str)
    files = [tmp_path / "h.csv", tmp_path / "p.parquet"]
    homes.to_csv(files[0], index=False)
    persons.assign(home=persons["home"].astype(str)).to_parquet(files[1])
    forms = [
        (homes.astype({"home": str}), persons.astype({"id": str}), trips),
        (mixed, pa.Table.from_pandas(persons, preserve_index=False), trips),
        (*files, trips.astype({"person": str})),
    ]
    for form in forms:
        found = read(schema, dict(zip(tables, form)))
        for name, frame in found.items():
            pd.testing.assert_frame_equal(frame, expected[name])


def edited(**changes):
    """Changes of the tables, by name."""
    return lambda tables: {**tables, **{n: change(tables[n]) for n, change in changes.items()}}


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edited(persons=lambda t: t.assign(home=999)),
         "'home' has values that no row of homes has. Add the parents"),
        (edited(trips=lambda t: t.assign(person=9_999)),
         "'person' has values that no row of persons has"),
        (edited(homes=lambda t: pd.concat([t, t[:1]])), "'home' has a value in several rows"),
        (edited(persons=lambda t: t.assign(id=t.groupby("home").cumcount())),
         "'id' has a value in several .* combine 'id' and 'home' to one column"),
        (edited(homes=lambda t: t.assign(home=t["home"].where(t.index > 0))),
         "are empty"),
        (edited(persons=lambda t: t.assign(home=[None, *t["home"][1:]])),
         "are empty"),
        (edited(trips=lambda t: t.assign(person=[None, *t["person"][1:]])),
         "are empty"),
        (edited(homes=lambda t: t.assign(home=t["home"] + 1e16)), "can confuse rows of homes"),
        (edited(homes=lambda t: t.drop(columns="home")), "'home' of the schema is missing"),
        (edited(persons=lambda t: t.drop(columns="id")), "'id' of the schema is missing"),
        (edited(trips=lambda t: t.drop(columns="person")), "'person' of the schema is missing"),
        (edited(homes=lambda t: t.assign(other=1)), "column 'other' is not in the schema"),
        (edited(homes=lambda t: t.assign(region="999")), "^homes: column 'region' has a value"),
        (edited(persons=lambda t: t.assign(sex="999")), "^persons: column 'sex' has a value"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit_each_other_are_refused_and_no_key_is_named(edit, words):
    with pytest.raises(DataError, match=words) as error:
        join_tables(edit(made_deep(60)), TableSet.parse(DEEP), ENOUGH)
    assert "999" not in str(error.value)
    assert "\n" not in str(error.value)


def test_coded_tables_and_too_many_keys_are_refused():
    tables, schema = made(60), TableSet.parse(SCHEMA)
    domain = schema.tables["homes"].domain()
    codes = CodedTable.from_codes(domain, [np.zeros(3, int), np.zeros(3, int)])
    with pytest.raises(DataError, match="a coded table has no key 'home'"):
        join_tables({**tables, "homes": codes}, schema, ENOUGH)
    with pytest.raises(ResourceExceeded, match="keys of its rows do not fit"):
        join_tables(tables, schema, 1_000)


def test_a_household_is_taken_out_with_all_rows_below_it():
    """The helper of other tests does what it says."""
    tables = made_deep(50)
    key = tables["persons"]["home"][0]
    fewer = without(tables, key)
    assert len(fewer["homes"]) == 49
    assert key not in set(fewer["persons"]["home"])
    assert set(fewer["trips"]["person"]) <= set(fewer["persons"]["id"])
    join_tables(fewer, TableSet.parse(DEEP), ENOUGH)
