"""Sets of tables through `Synthesizer`: what is made, promised, charged and refused."""

from __future__ import annotations

import json
import zipfile
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn

from adaptive_qs import Release, ReleaseSet, Synthesizer, TableSet
from adaptive_qs.audit.replay import AuditReport, compare, record
from adaptive_qs.errors import AdaptiveQsError, BudgetExceeded, InputError, LedgerError
from adaptive_qs.evaluation.keys import evaluate_set
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.budget import Budget, Part
from adaptive_qs.privacy.events import Cost, GaussianEvent, Purpose
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import SetMember, Unit
from adaptive_qs.run import tables as running
from adaptive_qs.run.options import SynthesizeOptions
from adaptive_qs.run.tables import check_tables, list_dropped

from .family import DEEP, DEEP_UNIT, SCHEMA, UNIT, made_deep, published, without

TABLES = made_deep(200)
PROTECTED = "one row of homes with all rows of persons and trips below it"
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("quick_tables")]


def fitted(tables=TABLES, schema=DEEP, **options):
    options = {"rho": 100.0, "insecure_seed": 3, "beyond_limits": True, **options}
    return Synthesizer(**options).fit(tables, schema=schema)


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_rows_have_parents_and_new_keys(model):
    homes, persons, trips = model.sample(seed=1).values()
    assert homes.columns.tolist() == ["home", "region", "income"]
    assert persons.columns.tolist() == ["id", "home", "age", "sex"]
    assert trips.columns.tolist() == ["person", "km"]
    for parent, key, child, column in (
        (homes, "home", persons, "home"),
        (persons, "id", trips, "person"),
    ):
        assert parent[key].tolist() == list(range(1, len(parent) + 1))
        assert child[column].is_monotonic_increasing
        assert set(child[column]) <= set(parent[key])
        assert child[column].value_counts().max() <= 2
    assert abs(len(homes) - 200) < 5
    again = model.sample(seed=1)
    assert all(again[name].equals(table) for name, table in model.sample(seed=1).items())


def test_tables_have_what_the_true_ones_have():
    """With hardly any noise and no row too many: numbers of children, and columns of two levels."""
    true = made_deep(400, most=2)
    true["trips"] = true["trips"].groupby("person").head(2)
    drawn = fitted(true).sample(4_000, seed=2)

    def measure_gap(tables, first, second):
        homes, persons, trips = tables.values()
        rows = persons.merge(homes, on="home")
        if first == "km":
            rows = trips.merge(rows, left_on="person", right_on="id")
        return (rows[first] - rows[second]).abs().mean()

    for pair in (("age", "income"), ("km", "age"), ("km", "income")):
        assert measure_gap(drawn, *pair) == pytest.approx(measure_gap(true, *pair), abs=0.07)

    def list_shares(tables, owner, key, child, column):
        numbers = tables[owner][key].map(tables[child][column].value_counts()).fillna(0)
        return numbers.value_counts(normalize=True).reindex(range(3), fill_value=0)

    for names in (("homes", "home", "persons", "home"), ("persons", "id", "trips", "person")):
        gaps = list_shares(true, *names) - list_shares(drawn, *names)
        assert gaps.abs().sum() < 0.1


def test_rows_of_a_condition_come_with_all_rows_below_them(model):
    homes, persons, trips = model.sample(40, seed=1, where="region = s and size >= 2").values()
    assert set(homes["region"]) == {"s"}
    assert len(homes) == 40
    assert persons["home"].value_counts().reindex(homes["home"]).min() >= 2
    assert len(trips) > 40
    homes, persons, trips = model.sample(10, seed=1, where="size = 0").values()
    assert (len(homes), len(persons), len(trips)) == (10, 0, 0)
    assert persons.columns.tolist() == ["id", "home", "age", "sex"]
    with pytest.raises(InputError, match=r"is not a column of homes, .* region, income, size"):
        model.sample(40, where="age >= 3")


def test_tables_come_back_as_they_came(tmp_path):
    homes, persons, trips = TABLES.values()
    files = {"trips": tmp_path / "trips.csv"}
    trips.to_csv(files["trips"], index=False)
    given = {
        "trips": str(files["trips"]), "homes": homes.astype({"region": "category"}),
        "persons": pa.Table.from_pandas(persons),
    }  # fmt: skip
    model = fitted(given)
    first, second, third = model.sample(30, seed=1).values()
    assert isinstance(first, pd.DataFrame)
    assert isinstance(second, pa.Table)
    assert second.column_names == ["id", "home", "age", "sex"]
    assert second.schema.field("home").type == pa.int64()
    assert b"NOT PRIVATE" in second.schema.metadata[b"adaptive_qs.stamp"]
    assert isinstance(third, pd.DataFrame)
    assert sklearn.clone(model).get_params() == model.get_params()
    for name, table in TABLES.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    assert fitted(tmp_path).release_.digests() == model.release_.digests()


def test_trees_of_other_shapes_are_drawn():
    """Two children of the root, one of them with children of its own."""
    schema = TableSet.parse(
        {
            **DEEP,
            "tables": {**DEEP["tables"], "cars": {"version": 1, "columns": [
                {"name": "age", "type": "integer", "min": 0, "max": 3}]}},
            "keys": [*DEEP["keys"], {"child": "cars", "column": "home", "parent": "homes",
                                     "most": 2}],
        }
    )  # fmt: skip
    homes = TABLES["homes"]
    cars = pd.DataFrame({"home": homes["home"].repeat(homes["income"].clip(upper=2)), "age": 1})
    sample = fitted({**TABLES, "cars": cars}, schema).sample(200, seed=1)
    assert list(sample) == ["homes", "persons", "cars", "trips"]
    numbers = sample["homes"]["home"].map(sample["cars"]["home"].value_counts()).fillna(0)
    assert (numbers - sample["homes"]["income"].clip(upper=2)).abs().mean() < 0.1
    assert (sample["cars"]["age"] == 1).mean() > 0.9


# What is promised and charged.


def test_one_budget_protects_a_row_of_the_root_with_all_rows_below_it(model):
    release = model.release_
    manifests = [each.manifest for each in release.tables.values()]
    assert [each.unit for each in manifests] == [
        PROTECTED, f"{PROTECTED}, of which at most 2 rows of persons count",
        f"{PROTECTED}, of which at most 4 rows of trips count",
    ]  # fmt: skip
    assert release.unit == f"{PROTECTED}, at most 2 of persons and 4 of trips"
    both = "add or remove one row of homes with all rows below it"
    assert {each.neighbours for each in manifests} == {both}
    assert "those of one row of homes and below it" in manifests[1].threat_model.protects_against[0]
    shares = [each.rho_spent / 100 for each in manifests]
    assert shares == pytest.approx([1 / 4, 3 / 16, 9 / 16], rel=0.01)
    assert 99 < release.rho_spent <= 100
    assert model.rho_spent_ == release.rho_spent
    # A trip is one of four rows: the same noise costs sixteen times as much.
    for name, rows in (("persons", 2), ("trips", 4)):
        events = release.tables[name].events
        measured = [e for e in events if isinstance(e, GaussianEvent)]
        assert {e.squared_sensitivity % rows**2 for e in measured} == {0}
    assert all({"home", "id", "person"}.isdisjoint(e.columns) for e in release.events)


@pytest.mark.parametrize(
    ("neighbours", "rhos", "places"),
    [
        pytest.param("add-remove", (0.05, 20.0), (0, -1), marks=pytest.mark.slow),
        ("replace", (20.0,), (0,)),
    ],
)
def test_replays_on_neighbours_that_differ_by_a_family(neighbours, rhos, places):
    """The noisy outputs of a run are handed out to that on the neighbour: all draws and charges
    are the same, counts and scores differ by no more than was charged, and so for the tables."""
    tables = made_deep(60, seed=5, most=6)
    homes, persons, trips = tables.values()
    sizes = persons["home"].value_counts().reindex(homes["home"], fill_value=0).sort_values()
    unit, report = replace(DEEP_UNIT, neighbours=neighbours), AuditReport()
    for rho in rhos:

        def run(tables, *known, rho=rho):
            job = partial(published, tables, schema=DEEP, rho=rho, neighbours=neighbours)
            return record(job, Budget(rho, 0, True, unit), InsecureSeed(4), *known)

        recorded = run(tables)
        for place in places:  # the household of fewest persons, and of most
            key = sizes.index[-1 - place]
            neighbour = without(tables, key)
            if neighbours == "replace":  # another household, with other rows, in its place
                other = persons[persons["home"] == sizes.index[-2]]
                below = trips[trips["person"].isin(other["id"])]
                more = {
                    "homes": pd.DataFrame({"home": [5], "region": ["n"], "income": [3]}),
                    "persons": other.assign(id=other["id"] + 9_000, home=5, age=4, sex="?"),
                    "trips": below.assign(person=below["person"] + 9_000, km=3),
                }
                neighbour = {n: pd.concat([each, more[n]]) for n, each in neighbour.items()}
            where = f"rho {rho}, household of {sizes[key]}"
            compare(recorded, run(neighbour, recorded), where, report)
    assert not report.findings, report.findings[:3]
    assert report.moved > 10
    assert report.draws > 20


def test_parents_with_keys_alone_come_back_with_their_numbers_of_rows(tmp_path):
    """The root and a table in the middle: only how many rows are below each of theirs is measured.

    The replay has a neighbour without the household that has most persons.
    """
    bare = {**DEEP, "tables": {n: {**t, "columns": []} for n, t in DEEP["tables"].items()}}
    with pytest.raises(InputError, match="trips: columns: must not be empty"):
        TableSet.parse(bare)
    with pytest.raises(InputError, match="schema: columns: must not be empty"):
        Synthesizer(rho=1.0).fit(TABLES["homes"], schema={"version": 1, "columns": []})
    bare["tables"]["trips"] = DEEP["tables"]["trips"]
    tables = {n: t.drop(columns=["region", "income", "age", "sex"], errors="ignore")
              for n, t in TABLES.items()}  # fmt: skip
    model = fitted(tables, bare)
    model.save(tmp_path / "r.zip")
    homes, persons, trips = made = Synthesizer.load(tmp_path / "r.zip").sample(seed=1).values()
    assert all(a.equals(b) for a, b in zip(made, model.sample(seed=1).values()))
    assert [t.columns.tolist() for t in made] == [["home"], ["id", "home"], ["person", "km"]]
    for (_, true), parent, key, child, column in zip(
        tables.items(), (homes, persons), ("home", "id"), (persons, trips), ("home", "person")
    ):
        below = tables["persons" if key == "home" else "trips"][column].value_counts()
        mean = true[key].map(below).fillna(0).clip(upper=2).mean()
        drawn = parent[key].map(child[column].value_counts()).fillna(0)
        assert drawn.mean() == pytest.approx(mean, abs=0.1)
    compared = evaluate_set(tables, model.sample(seed=1), bare).tables["homes"]
    assert "over 1 marginal" in repr(compared)

    def run(some, *known):
        job = partial(published, some, schema=bare, rho=100)
        return record(job, Budget(100, 0, True, DEEP_UNIT), InsecureSeed(4), *known)

    report, recorded = AuditReport(), run(tables)
    most = tables["persons"]["home"].value_counts().index[0]
    compare(recorded, run(without(tables, most), recorded), "bare", report)
    assert report.moved
    assert not report.findings, report.findings[:3]


def test_a_part_of_a_budget_charges_the_whole_and_refuses_what_does_not_fit():
    below = replace(UNIT, rows=3, related=replace(UNIT.related, table="persons"))
    for filtered in (False, True):
        whole = Budget(1.0, 0, filtered, UNIT)
        part = Part(whole, Cost.within(0.25), UNIT)
        event = GaussianEvent(Purpose.ROWS, (), 8, 32)
        assert event.rho == 1 / 8
        part.release([event], lambda: [np.zeros(1, np.int64)])
        assert whole.events == part.events == (event,)
        assert part.left.rho <= 1 / 8
        with pytest.raises(BudgetExceeded):
            part.release([event, event], lambda: [np.zeros(1, np.int64)] * 2)
        assert len(whole.events) == 1
        rest = Part(whole, whole.left, below)
        assert rest.unit.priced(event).squared_sensitivity == 72
        assert rest.left == whole.left
        assert rest.place is None
    others = replace(UNIT, related=replace(UNIT.related, keys=("persons.'x' = homes.'home'",)))
    for unit in (Unit("k", 3), DEEP_UNIT, Unit(), others):
        with pytest.raises(ValueError, match="protects what the whole does"):
            Part(whole, whole.left, unit)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"person": "k"}, "a person column in a set"),
        ({"rows": 2}, "several rows for one of the root"),
        ({"related": SetMember(("homes", "persons"), "x")}, "no table of the set"),
    ],
)
def test_units_that_are_none(fields, words):
    with pytest.raises(ValueError, match=words):
        replace(UNIT, **fields)


def test_a_bundle_holds_all_tables_and_is_checked_as_a_whole(model, tmp_path):
    path = tmp_path / "r.zip"
    model.save(path)
    again = Synthesizer.load(path)
    assert again.sample(50, seed=4)["trips"].equals(model.sample(50, seed=4)["trips"])
    assert again.release_.digests() == model.release_.digests()
    assert "NOT PRIVATE" in repr(again.release_)
    assert TableSet.load(path) == model.schema_
    with pytest.raises(InputError, match="is the release of a set of tables"):
        Release.load(path)
    single = tmp_path / "single.zip"
    model.release_.root.save(single)
    with pytest.raises(InputError, match="is the release of one table of a set"):
        Synthesizer.load(single)
    forged = tmp_path / "forged.zip"
    with zipfile.ZipFile(path) as members, zipfile.ZipFile(forged, "w") as other:
        for each in members.infolist():
            text = members.read(each)
            if each.filename == "trips/manifest.json":
                text = json.dumps({**json.loads(text), "epsilon": 0.001})
            other.writestr(each, text)
    with pytest.raises(InputError, match=r"^[^\n]* is not a release bundle[^\n]*$"):
        Synthesizer.load(forged)
    schema, tables = model.schema_, dict(model.release_.tables)
    keys = DEEP["keys"]
    wrong = [
        (schema, {**tables, "persons": tables["trips"]}, "columns of persons are not"),
        (schema, {"homes": tables["homes"]}, "tables are not those of the schema"),
        (schema, {**tables, "homes": fitted(rho=40.0).release_.root}, "promises of the tables"),
        (TableSet.parse({**DEEP, "keys": [{**keys[0], "count": "n"}, keys[1]]}), tables,
         "columns of homes are not"),
    ]  # fmt: skip
    many = [{**keys[0], "most": 3, "count": "size"}, keys[1]]
    assert TableSet.parse({**DEEP, "keys": many}).measured()[1].rows_per_unit == 3
    for described, parts, words in wrong:
        with pytest.raises(ValueError, match=words):
            ReleaseSet(described, parts)


def test_charges_of_all_tables_together_keep_the_budget(model, monkeypatch):
    """Each table's are below the budget; those of the first are so many that the sum is not."""
    greedy = [*TableSet.parse(DEEP).measured()]
    greedy[0] = greedy[0]._replace(share=greedy[0].share * 3)
    monkeypatch.setattr(TableSet, "measured", lambda _: tuple(greedy))
    first = fitted().release_.root
    monkeypatch.undo()
    with pytest.raises(ValueError, match="charges of all tables exceed"):
        ReleaseSet(model.schema_, {**model.release_.tables, "homes": first})


def test_a_ledger_counts_all_tables_and_resumes_between_them(tmp_path, monkeypatch):
    path = tmp_path / "l.db"
    total, declared = Cost.within(10.0, 1e-9), {"rho": 10.0, "delta": 1e-8}
    LedgerBook.create(path, total, declared, unit=DEEP_UNIT).close()
    whole = fitted(rho=4.0, insecure_seed=3)
    options = {"rho": 4.0, "insecure_seed": 3, "ledger": path}
    measure, done = running.measure, []

    def stopping(*arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(measure(*arguments))
        return done[-1]

    with monkeypatch.context() as patch:
        patch.setattr(running, "measure", stopping)
        with pytest.raises(KeyboardInterrupt):
            fitted(**options)
    other = {**DEEP, "keys": [DEEP["keys"][0], {**DEEP["keys"][1], "most": 3}]}
    with pytest.raises(LedgerError, match="tables"):
        fitted(schema=other, **options, resume=True)
    with pytest.raises(LedgerError, match="the private table is not the one"):
        fitted({**TABLES, "trips": TABLES["trips"][:-1]}, **options, resume=True)
    model = fitted(**options, resume=True)
    assert model.release_.events == whole.release_.events
    assert model.sample(20, seed=1)["trips"].equals(whole.sample(20, seed=1)["trips"])
    model.save(tmp_path / "r.zip")
    with closing(LedgerBook(path)) as book:
        (run,) = book.runs()
        assert (run.state, run.events) == ("finished", model.release_.events)
        assert float(run.spent.rho) == pytest.approx(model.release_.rho_spent)
    persons = {**SCHEMA["tables"]["persons"], "person": "home"}
    with pytest.raises(LedgerError, match="costs do not add up"):
        Synthesizer(rho=1, rows_per_person=3, ledger=path).fit(TABLES["persons"], schema=persons)


def asks_for(*attributes, **more):
    return {"workload": {"version": 1, "parts": [{"attributes": attributes, **more}]}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rho": None}, "No privacy budget is set"),
        ({"neighbours": "none"}, "neighbours is 'none'"),
        (asks_for(["age", "sex"]), "no marginal of homes"),
        (asks_for(["region"], ["km"]), "no marginal of persons"),
        (asks_for(["home"]), "no table has all of 'home'"),
        (asks_for(["region"], queries="range"), 'leave out "queries"'),
        ({"max_memory": "1MB"}, "max-memory"),
        ({"rho": 1e-10}, "for a row of .*, which is only noise"),
        ({"rows_per_person": 2}, "rows-per-person is for one table"),
        ({"target": "age"}, "target is for one table"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(options, words, monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", None)
    with pytest.raises(AdaptiveQsError, match=words):
        fitted(**options)


def test_marginals_are_measured_in_the_tables_that_have_their_columns():
    asked = asks_for(["region", "size"], ["income", "sex"], ["km"], ["region", "km"])["workload"]
    checked = check_tables(TableSet.parse(DEEP), SynthesizeOptions(rho=1.0, workload=asked))
    found = {
        name: [each.work.workload.domain.clique_names(c) for c in each.work.workload.cliques]
        for name, each in checked.members.items()
    }
    assert found == {
        "homes": [("region", "size")], "persons": [("income", "sex")],
        "trips": [("km",), ("region", "km")],
    }  # fmt: skip


def test_tables_that_do_not_fit_are_refused_before_anything_is_spent(monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", None)
    homes, persons, trips = TABLES.values()
    for changed, words in (
        ({"homes": homes[:-1]}, "has values that no row"),
        ({"persons": persons.assign(age=[7, *persons["age"][1:]])}, "column 'age'"),
        ({"homes": homes.assign(region="w")}, "column 'region'"),
        ({"trips": trips.assign(km=9)}, "column 'km'"),
        ({"trips": trips[:0]}, "trips has no rows"),
    ):
        with pytest.raises(InputError, match=words):
            fitted({**TABLES, **changed})


def test_options_reach_all_tables():
    options = SynthesizeOptions(rho=1.0, levels="off", max_candidates=3)
    checked = check_tables(TableSet.parse(DEEP), options)
    assert {table.work.levels for table in checked.members.values()} == {"off"}
    assert [text.split(":")[0] for text in list_dropped(checked)] == ["persons", "trips"]


def with_table(name, **fields):
    return {**DEEP, "tables": {**DEEP["tables"], name: {**DEEP["tables"][name], **fields}}}


def test_delimiters_of_each_table_are_read_as_declared(tmp_path):
    schema = with_table("trips", delimiter=";")
    for name, table in TABLES.items():
        table.to_csv(tmp_path / f"{name}.csv", sep=";" if name == "trips" else ",", index=False)
    assert [len(table) > 9 for table in fitted(tmp_path, schema).sample(30, seed=1).values()]


@pytest.mark.parametrize("table", ["homes", "persons", "trips"])
def test_an_unreviewed_table_is_covered_in_no_release(table):
    schema = with_table(table, open=["publish"])
    with pytest.raises(InputError, match="taken from the data"):
        fitted(schema=schema)
    release = fitted(schema=schema, rho=4.0, unreviewed_schema=True).release_
    for part in release.tables.values():
        for fact in part.manifest.facts:
            if fact.basis == "declared public":
                own = {column["name"] for column in DEEP["tables"][table]["columns"]}
                assert own.isdisjoint(fact.columns)


@pytest.mark.slow
def test_rules_of_each_table_hold():
    """Also between values inside of bins, which are drawn last."""
    bins = {"type": "integer", "min": 0, "max": 99, "bins": 4}
    columns = [{"name": "from", **bins}, {"name": "to", **bins}]
    trips = TABLES["trips"].assign(**{"from": TABLES["trips"]["km"] * 20, "to": 70})
    schema = with_table("trips", columns=columns, rules=["from <= to"])
    persons = {**DEEP["tables"]["persons"], "rules": ["age < 4 or sex = m"]}
    homes = {**DEEP["tables"]["homes"], "rules": ["income < 3 or region = s"]}
    schema["tables"] |= {"persons": persons, "homes": homes}
    tables = {**TABLES, "trips": trips[["person", "from", "to"]]}
    sample = fitted(tables, schema, rho=4.0).sample(300, seed=1)
    assert not ((sample["homes"]["income"] == 3) & (sample["homes"]["region"] != "s")).any()
    assert not ((sample["persons"]["age"] == 4) & (sample["persons"]["sex"] == "f")).any()
    assert (sample["trips"]["from"] <= sample["trips"]["to"]).all()


def test_drawn_tables_are_compared_with_the_release(monkeypatch):
    """Rows given their ancestors too: healthy tables are not found, a shifted column is."""
    release = fitted(rho=8.0).release_

    def contradictions(**steered):
        found = {}
        for table in release.draw(seed=1, **steered):
            _ = [*table.pages]
            found[table.name] = table.contradictions
        return found

    for steered in ({}, {"where": "region = n"}):
        assert not any(contradictions(**steered).values())
    linked = Release.linked

    def shifted(self, given, *args, **options):
        for rows in linked(self, given, *args, **options):
            if "km" in self.schema.names:
                rows = rows.copy()
                rows[:, given.shape[1] :] = 0
            yield rows

    monkeypatch.setattr(Release, "linked", shifted)
    found = contradictions()
    assert not found["homes"]
    assert not found["persons"]
    assert "km" in {name for each in found["trips"] for name in each.columns}


def test_a_ledger_refuses_the_same_tables_that_other_keys_relate(tmp_path):
    """Other rows belong to a home then, and what two runs cost protects no family of either."""
    path = tmp_path / "l.db"
    LedgerBook.create(path, Cost.within(10.0), {"rho": 10.0, "delta": 1e-8}, unit=DEEP_UNIT).close()
    homes, persons, trips = TABLES.values()
    owners = {**TABLES, "persons": persons.rename(columns={"home": "owner"})}
    first, second = DEEP["keys"]
    changed = [{**first, "column": "owner", "parent_column": "home"}, second]
    direct = {**TABLES, "trips": trips.assign(home=homes["home"].iloc[0]).drop(columns="person")}
    flat = [first, {"child": "trips", "column": "home", "parent": "homes", "most": 2}]
    people = {**DEEP["tables"]["persons"], "ignore": ["id"]}
    for tables, keys, ignoring in ((owners, changed, {}), (direct, flat, {"persons": people})):
        schema = {**DEEP, "tables": {**DEEP["tables"], **ignoring}, "keys": keys}
        with pytest.raises(LedgerError, match=r"related by .* costs do not add up"):
            fitted(tables, schema, rho=1.0, ledger=path)
    with closing(LedgerBook(path)) as book:
        assert not book.runs()
