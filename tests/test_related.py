"""Two related tables through `RelatedSynthesizer`: what is made, promised, charged and refused."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from adaptive_qs.evaluation.related import evaluate_related
from adaptive_qs.release.related import RelatedRelease
from adaptive_qs.run.related import RelatedJob
from adaptive_qs.table.related import RelatedSchema

from adaptive_qs import RelatedSynthesizer, Release, Synthesizer
from adaptive_qs.audit.replay import AuditReport, compare, record
from adaptive_qs.errors import AdaptiveQsError, BudgetExceeded, InputError, LedgerError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.budget import Budget, Part
from adaptive_qs.privacy.events import Cost, GaussianEvent, Purpose
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import Unit
from adaptive_qs.run import related
from adaptive_qs.run.options import SynthesizeOptions
from adaptive_qs.table.schema import TAKEN_FROM_DATA

from .family import SCHEMA, made, published, without

TABLES = made(200)
UNIT = "one parent with all children: all rows of both tables with the same 'home'"
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("quick_tables")]


def fitted(tables=TABLES, schema=SCHEMA, **options):
    options = {"rho": 50.0, "insecure_seed": 3, "beyond_limits": True, **options}
    return RelatedSynthesizer(**options).fit(*tables, schema=schema)


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_children_have_parents_and_new_keys(model):
    homes, persons = model.sample(seed=1)
    assert homes.columns.tolist() == ["home", "region", "income"]
    assert persons.columns.tolist() == ["home", "age", "sex"]
    assert homes["home"].tolist() == list(range(1, len(homes) + 1))
    assert persons["home"].is_monotonic_increasing
    assert set(persons["home"]) <= set(homes["home"])
    assert persons["home"].value_counts().max() <= 3
    assert abs(len(homes) - 200) < 5
    again = model.sample(seed=1)
    assert homes.equals(again[0])
    assert persons.equals(again[1])


def test_tables_have_what_the_true_ones_have(model):
    """With hardly any noise: numbers of children, and columns across both tables."""
    result = evaluate_related(TABLES, model.sample(seed=1), SCHEMA)
    true, synthetic = result.numbers
    assert sum(true.shares) == pytest.approx(1)
    assert sum(synthetic.shares) == pytest.approx(1)
    assert result.l1_of_numbers < 0.05
    assert true.children == len(TABLES[1]) > synthetic.children  # some above the number are lost
    # The rows that do not count are the children of large families: their columns are off by that.
    assert result.mean_l1_across < 0.15
    assert result.across[0].l1 == max(error.l1 for error in result.across)
    assert {len(error.attributes) for error in result.across} == {2}
    assert len(result.across) == 3 * 2
    joined = TABLES[1].merge(TABLES[0], on="home")
    homes, persons = model.sample(4_000, seed=2)
    drawn = persons.merge(homes, on="home")
    gap = joined["age"] - joined["income"]
    assert (drawn["age"] - drawn["income"]).abs().mean() < gap.abs().mean() + 0.1


def test_the_verdict_on_a_pair_sees_links_and_children_that_are_lost():
    """Two samples of one population, then with the links or all but one child of each lost."""
    true, (homes, persons) = made(3_000, seed=1), made(3_000, seed=2)
    strangers = persons.assign(home=np.random.default_rng(0).permutation(persons["home"]))
    only = persons.drop_duplicates("home")
    for children, across, numbers in (
        (persons, "good", "good"), (strangers, "poor", "good"), (only, "poor", "poor"),
    ):  # fmt: skip
        judged = evaluate_related(true, (homes, children), SCHEMA)
        assert [f.grade for f in judged.findings.values()] == [numbers, across]
        assert judged.overall.grade == across
        assert "parents and children" in judged.overall.text


def test_parents_of_a_condition_come_with_their_children(model):
    homes, persons = model.sample(40, seed=1, where="region = s and children >= 2")
    assert set(homes["region"]) == {"s"}
    assert len(homes) == 40
    assert persons["home"].value_counts().reindex(homes["home"]).min() >= 2
    homes, persons = model.sample(10, seed=1, where="children = 0")
    assert (len(homes), len(persons)) == (10, 0)
    assert persons.columns.tolist() == ["home", "age", "sex"]
    homes, _ = model.sample(40, seed=1, balance="income")
    assert homes["income"].value_counts().tolist() == [10] * 4


def test_tables_come_back_as_they_came():
    homes, persons = TABLES
    given = homes.astype({"region": "category"}), pa.Table.from_pandas(persons)
    model = fitted(given)
    first, second = model.sample(30, seed=1)
    assert first["region"].dtype == "category"
    assert isinstance(second, pa.Table)
    assert second.column_names == ["home", "age", "sex"]
    assert second.schema.field("home").type == pa.int64()
    assert b"NOT PRIVATE" in second.schema.metadata[b"adaptive_qs.stamp"]
    assert sklearn.clone(model).get_params() == model.get_params()


# What is promised and charged.


def test_one_budget_protects_a_parent_with_all_children(model):
    release = model.release_
    first, second = release.parents.manifest, release.children.manifest
    assert (first.unit, second.unit) == (UNIT, f"{UNIT}, of which at most 3 children count")
    assert first.neighbours == second.neighbours == "add or remove one parent with all children"
    assert "those of one parent and its children" in second.threat_model.protects_against[0]
    assert first.rho == second.rho == 50.0
    assert 0.24 < first.rho_spent / 50 <= 0.25
    assert 49 < release.rho_spent <= 50
    # A child is one of three rows: the same noise costs nine times as much.
    measured = [e for e in release.children.events if isinstance(e, GaussianEvent)]
    assert {e.squared_sensitivity % 9 for e in measured} == {0}
    assert all("home" not in e.columns for e in release.events)


@pytest.mark.parametrize(
    ("neighbours", "rhos", "places"),
    [("add-remove", (0.05, 20.0), (0, -1)), ("replace", (20.0,), (0,))],
)
def test_replays_on_neighbours_that_differ_by_a_parent_with_all_children(neighbours, rhos, places):
    """The noisy outputs of a run are handed out to that on the neighbour: all draws and charges
    are the same, counts and scores differ by no more than was charged, and so for the tables."""
    homes, persons = tables = made(60, seed=5, most=6)
    sizes = persons["home"].value_counts().reindex(homes["home"], fill_value=0).sort_values()
    unit, report = Unit("home", 1, neighbours, "parents"), AuditReport()
    for rho in rhos:

        def run(pair, *known, rho=rho):
            job = partial(published, pair, rho=rho, neighbours=neighbours)
            return record(job, Budget(rho, 0, True, unit), InsecureSeed(4), *known)

        recorded = run(tables)
        for place in places:  # the household of fewest persons, and of most
            key = sizes.index[-1 - place]
            neighbour = without(tables, key)
            if neighbours == "replace":  # another household, with other persons, in its place
                other = persons[persons["home"] == sizes.index[-2]].assign(home=5, age=4, sex="?")
                home = pd.DataFrame({"home": [5], "region": ["n"], "income": [3]})
                neighbour = pd.concat([neighbour[0], home]), pd.concat([neighbour[1], other])
            where = f"rho {rho}, household of {sizes[key]}"
            compare(recorded, run(neighbour, recorded), where, report)
    assert not report.findings, report.findings[:3]
    assert report.moved > 10
    assert report.draws > 20


def test_a_part_of_a_budget_charges_the_whole_and_refuses_what_does_not_fit():
    parents, children = Unit("k", 1, related="parents"), Unit("k", 3, related="children")
    for filtered in (False, True):
        whole = Budget(1.0, 0, filtered, parents)
        part = Part(whole, Cost.within(0.25), parents)
        event = GaussianEvent(Purpose.ROWS, (), 8, 32)
        assert event.rho == 1 / 8
        part.release([event], lambda: [np.zeros(1, np.int64)])
        assert whole.events == part.events == (event,)
        assert part.left.rho <= 1 / 8
        with pytest.raises(BudgetExceeded):
            part.release([event, event], lambda: [np.zeros(1, np.int64)] * 2)
        assert len(whole.events) == 1
        rest = Part(whole, whole.left, children)
        assert rest.unit.priced(event).squared_sensitivity == 72
        assert rest.left == whole.left
        assert rest.place is None
    for unit in (Unit("k", 3), Unit("other", 3, related="children"), Unit()):
        with pytest.raises(ValueError, match="protects what the whole does"):
            Part(whole, whole.left, unit)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"related": "parents"}, "without a key"),
        ({"person": "k", "rows": 2, "related": "parents"}, "a parent has one row"),
    ],
)
def test_units_that_are_none(fields, words):
    with pytest.raises(ValueError, match=words):
        Unit(**fields)


def test_a_bundle_holds_both_tables_and_is_checked_as_a_whole(model, tmp_path):
    path = tmp_path / "r.zip"
    model.save(path)
    again = RelatedSynthesizer.load(path)
    assert again.sample(50, seed=4)[1].equals(model.sample(50, seed=4)[1])
    assert again.release_.digests() == model.release_.digests()
    assert "NOT PRIVATE" in repr(again.release_)
    with pytest.raises(InputError, match="is a release of related tables"):
        Release.load(path)
    single = tmp_path / "single.zip"
    model.release_.parents.save(single)
    with pytest.raises(InputError, match="is a release of one table"):
        RelatedSynthesizer.load(single)
    parents, children, schema = model.release_.parents, model.release_.children, model.schema_
    wrong = [
        ((schema, children, parents), "parents' columns"),
        ((schema, parents, parents), "children's columns"),
        ((schema, fitted(rho=40.0).release_.parents, children), "promises of the two tables"),
        (
            (RelatedSchema.parse({**SCHEMA, "count": "n"}), parents, children),
            "parents' columns are not",
        ),
    ]
    greedy = fitted(parents_share=0.9).release_.parents
    wrong.append(((schema, greedy, children), "charges of both tables exceed"))
    for parts, words in wrong:
        with pytest.raises(ValueError, match=words):
            RelatedRelease(*parts)


def test_a_ledger_counts_both_tables_and_resumes_between_them(tmp_path, monkeypatch):
    path = tmp_path / "l.db"
    total, declared = Cost.within(10.0, 1e-9), {"rho": 10.0, "delta": 1e-8}
    LedgerBook.create(path, total, declared, unit=Unit("home", 1, related="parents")).close()
    whole = fitted(rho=2.0, insecure_seed=3)
    options = {"rho": 2.0, "insecure_seed": 3, "ledger": path}
    measure, done = related.measure, []

    def stopping(*arguments):
        if done:
            raise KeyboardInterrupt
        done.append(measure(*arguments))
        return done[0]

    with monkeypatch.context() as patch:
        patch.setattr(related, "measure", stopping)
        with pytest.raises(KeyboardInterrupt):
            fitted(**options)
    with pytest.raises(LedgerError, match="share"):
        fitted(**options, resume=True, parents_share=0.5)
    with pytest.raises(LedgerError, match="the private table is not the one"):
        fitted((TABLES[0], TABLES[1][:-1]), **options, resume=True)
    model = fitted(**options, resume=True)
    assert model.release_.events == whole.release_.events
    assert model.sample(20, seed=1)[1].equals(whole.sample(20, seed=1)[1])
    model.save(tmp_path / "r.zip")
    with closing(LedgerBook(path)) as book:
        (run,) = book.runs()
        assert (run.state, run.events) == ("finished", model.release_.events)
        assert float(run.spent.rho) == pytest.approx(model.release_.rho_spent)
    persons = {**SCHEMA["children"], "person": "home"}
    with pytest.raises(LedgerError, match="costs do not add up"):
        Synthesizer(rho=1, rows_per_person=3, ledger=path).fit(TABLES[1], schema=persons)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parents_share": 0}, "parents-share is 0: give a part"),
        ({"parents_share": 1.0}, "parents-share is 1.0"),
        ({"parents_share": "much"}, "parents-share is 'much'"),
        ({"rho": None}, "neither epsilon nor rho"),
        ({"neighbours": "none"}, "neighbours is 'none'"),
        ({"workload": {"version": 1, "parts": [{"attributes": [["age", "sex"]]}]}},
         "no marginal of parents"),
        ({"workload": {"version": 1, "parts": [{"attributes": [["region"]]}]}},
         "no marginal of children"),
        ({"workload": {"version": 1, "parts": [{"attributes": [["home"]]}]}}, "home"),
        ({"max_memory": "1MB"}, "max-memory"),
        ({"rho": 1e-10}, "nothing but noise"),
        ({"parents_share": 1e-13}, "for a row of parents, which is nothing but noise"),
        ({"parents_share": 1 - 1e-13}, "for a row of children, which is nothing but noise"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_spent(options, words, monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.job.Mechanisms", None)
    with pytest.raises(AdaptiveQsError, match=words):
        fitted(**options)


def test_tables_that_do_not_fit_are_refused_before_anything_is_spent(monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.job.Mechanisms", None)
    homes, persons = TABLES
    bad = persons.assign(age=[7, *persons["age"][1:]])
    for tables, words in (
        ((homes[:-1], persons), "has values that no row"),
        ((homes, bad), "column 'age'"),
        ((homes.assign(region="w"), persons), "column 'region'"),
        ((homes, persons[:0]), "children: no rows"),
    ):
        with pytest.raises(InputError, match=words):
            fitted(tables)


def test_options_of_one_table_are_refused():
    schema = RelatedSchema.parse(SCHEMA)
    for more, words in ({"rows_per_person": 2}, "rows-per-person"), ({"target": "age"}, "target"):
        with pytest.raises(InputError, match=words):
            RelatedJob.of(schema, SynthesizeOptions(rho=1.0, **more))


def test_options_reach_both_tables():
    options = SynthesizeOptions(rho=1.0, levels="off", max_candidates=3)
    job = RelatedJob.of(RelatedSchema.parse(SCHEMA), options)
    assert {table.work.levels for table in (job.parents, job.children)} == {"off"}
    assert job.children.work.left_out is not None


def test_delimiters_of_either_table_are_read_as_declared(tmp_path):
    schema, files = {**SCHEMA}, []
    for name, table, delimiter in zip(("parents", "children"), TABLES, (";", "|")):
        schema[name] = {**SCHEMA[name], "delimiter": delimiter}
        files.append(tmp_path / f"{name}.csv")
        table.to_csv(files[-1], sep=delimiter, index=False)
    homes, persons = fitted(files, schema).sample(30, seed=1)
    assert len(homes) == 30
    assert len(persons) > 9


@pytest.mark.parametrize("table", ["parents", "children"])
def test_an_unreviewed_table_is_covered_in_neither_release(table):
    schema = {**SCHEMA, table: {**SCHEMA[table], "description": TAKEN_FROM_DATA}}
    with pytest.raises(InputError, match="taken from the data"):
        fitted(schema=schema)
    release = fitted(schema=schema, rho=1.0, unreviewed_schema=True).release_
    for part in release.by_table.values():
        for fact in part.manifest.facts:
            if fact.basis == "declared public":
                own = {column["name"] for column in SCHEMA[table]["columns"]}
                assert own.isdisjoint(fact.columns)


def test_rules_of_either_table_hold():
    schema = {**SCHEMA}
    schema["parents"] = {**SCHEMA["parents"], "rules": ["income < 3 or region = s"]}
    schema["children"] = {**SCHEMA["children"], "rules": ["age < 4 or sex = m"]}
    homes, persons = fitted(schema=schema, rho=1.0).sample(300, seed=1)
    assert not ((homes["income"] == 3) & (homes["region"] != "s")).any()
    assert not ((persons["age"] == 4) & (persons["sex"] == "f")).any()
    assert set(persons["home"]) <= set(homes["home"])


def test_drawn_tables_are_compared_with_the_release(monkeypatch):
    """Children given their parents too: healthy pairs are not found, a shifted column is."""
    release = fitted(rho=2.0).release_
    for steered in ({}, {"where": "region = n"}):
        _, found = release.draw(seed=1, **steered)
        assert found == {"parents": (), "children": ()}
    linked = Release.linked

    def shifted(self, given, *args, **options):
        for rows in linked(self, given, *args, **options):
            rows = rows.copy()
            rows[:, given.shape[1] :] = 0
            yield rows

    monkeypatch.setattr(Release, "linked", shifted)
    _, found = release.draw(seed=1)
    assert not found["parents"]
    assert {"age", "sex"} & {name for each in found["children"] for name in each.columns}
