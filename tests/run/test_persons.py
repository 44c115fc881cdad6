"""Persons through the ways that callers use: what is protected, what it costs, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer, answer
from adaptive_qs.answering.api import plan
from adaptive_qs.audit.audit import audit
from adaptive_qs.errors import AdaptiveQsError, InputError, LedgerError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.table.schema import Schema

from ..small import SCHEMA as BY_ROWS

PERSONS = {**BY_ROWS, "person": "who"}
LEARNING = {
    **PERSONS,
    "columns": [
        {"name": "a", "type": "integer", "private_bins": 3},
        {"name": "b", "type": "categorical", "private_values": 4, "catch_all": "(other)"},
        BY_ROWS["columns"][2],
    ],
}
RNG = np.random.default_rng(4)
FRAME = pd.DataFrame(
    {
        "who": np.repeat([f"p{k}" for k in range(300)], 3),
        "a": RNG.integers(0, 4, 900),
        "b": RNG.choice(["x", "y"], 900),
        "c": RNG.random(900) < 0.3,
    }
)
OPTIONS = {"insecure_seed": 7}
pytestmark = pytest.mark.filterwarnings("ignore")


def fitted(schema=PERSONS, frame=FRAME, **options):
    return Synthesizer(**OPTIONS, **options).fit(frame, schema=schema)


@pytest.mark.slow
def test_a_person_of_k_rows_gets_k_times_the_noise_of_a_row():
    """Where nobody has more than K rows, a budget for persons measures what 1/K² of it does for
    rows, and all charges are K² times as high."""
    rows = fitted(BY_ROWS, FRAME.drop(columns="who"), rho=0.5)
    persons = fitted(rho=4.5, rows_per_person=3)
    assert persons.release_.estimates.keys() == rows.release_.estimates.keys()
    for clique, estimate in rows.release_.estimates.items():
        assert np.array_equal(persons.release_.estimates[clique].values, estimate.values)
    assert persons.sample(50, seed=1).equals(rows.sample(50, seed=1))
    unit = Unit("who", 3)
    assert persons.release_.events == tuple(map(unit.priced, rows.release_.events))
    assert persons.rho_spent_ == pytest.approx(9 * rows.rho_spent_)
    assert [past.rho_selecting for past in persons.rounds_] == pytest.approx(
        [9 * past.rho_selecting for past in rows.rounds_]
    )


def test_the_statement_says_who_is_protected(tmp_path):
    model = fitted(rho=1, rows_per_person=2)
    manifest = model.release_.manifest
    assert manifest.unit == "one person: all rows with the same 'who', of which at most 2 count"
    assert manifest.neighbours == "add or remove one person with all rows"
    assert "all rows of all persons but one" in manifest.threat_model.protects_against[0]
    assert not any("several rows of one person" in text for text in manifest.threat_model.excluded)
    assert any(fact.columns == ("who",) for fact in manifest.facts)
    model.save(tmp_path / "r.zip")
    again = Synthesizer.load(tmp_path / "r.zip")
    assert again.release_.manifest == manifest
    assert again.schema_.person == "who"
    assert again.sample(5).columns.tolist() == ["a", "b", "c"]


def test_rows_above_the_number_are_left_out():
    few = fitted(rho=1e4, rows_per_person=1, beyond_limits=True)
    assert abs(few.release_.num_rows - 300) <= 2
    assert abs(fitted(rho=1e6, rows_per_person=9, beyond_limits=True).release_.num_rows - 900) <= 2


HEAPS = {"heaps": [7]}, {"private_heaps": 3}


@pytest.mark.parametrize("heaps", HEAPS, ids=str)
def test_which_rows_count_does_not_depend_on_their_order(heaps):
    """Also where rows have the same codes: what they have inside bins is counted as well. A
    database gives rows in an order that may change with any of them."""
    column = {"name": "x", "type": "integer", "min": 0, "max": 99, "bins": 2, **heaps}
    day = {"name": "day", "type": "date", "min": "2020-01-01", "max": "2021-12-31",
           "granularity": "year", "private_heaps": 2}  # fmt: skip
    schema = {"version": 1, "person": "who", "columns": [column, day]}
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(RNG.integers(0, 731, 900), "D")
    frame = FRAME[["who"]].assign(x=RNG.integers(0, 100, 900), day=days.strftime("%Y-%m-%d"))
    digests = [
        fitted(schema, table, rho=30.0, rows_per_person=1, workload=1).release_.digests()
        for table in (frame, frame[::-1], frame.assign(day=days))
    ]
    assert digests[0] == digests[1] == digests[2]


def test_answers_are_for_persons_too():
    for neighbours, group in {"add-remove": 3, "replace": 6}.items():
        asked = {"rho": 2.0, "neighbours": neighbours}
        planned = plan(PERSONS, 1, **asked, rows_per_person=3)
        answers = answer(FRAME, PERSONS, 1, **asked, rows_per_person=3, **OPTIONS)
        table = answers.to_pandas()
        rows = plan(BY_ROWS, 1, rho=2.0 / group**2)
        assert planned.rmse == pytest.approx(rows.rmse)
        assert (table.standard_error**2).mean() ** 0.5 == pytest.approx(rows.rmse, rel=1e-3)
        statement = answers.statement()
        assert (statement.unit, statement.rho) == (Unit("who", 3).name, 2.0)
        assert 2.0 * (1 - 1e-9) < answers.rho_spent <= 2.0
    assert planned.by_epsilon()[0][2] == pytest.approx(rows.by_epsilon()[0][2] * 6, rel=1e-9)


def test_a_row_may_be_replaced():
    added, replaced = (fitted(BY_ROWS, FRAME.drop(columns="who"), rho=1, **kind) for kind in (
        {}, {"neighbours": "replace"}))  # fmt: skip
    assert replaced.release_.manifest.neighbours == "replace one row"
    assert replaced.release_._total[1] == pytest.approx(2 * added.release_._total[1], rel=0.2)


@pytest.mark.parametrize("run", [fitted, lambda schema, **o: answer(FRAME, schema, 1, **o)])
@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (PERSONS, {}, "names the person column 'who'. Set --rows-per-person"),
        (BY_ROWS, {"rows_per_person": 2}, "needs a person column"),
        (PERSONS, {"rows_per_person": -1}, "rows-per-person is -1"),
        (PERSONS, {"rows_per_person": 2, "neighbours": "other"}, "neighbours is 'other'"),
        (PERSONS, {"rows_per_person": 10**6}, "leaves only noise"),
        ({**PERSONS, "person": "a"}, {"rows_per_person": 1}, "'a' is the person column. Remove"),
        ({**PERSONS, "person": "x"}, {"rows_per_person": 1}, "column 'x' of the schema is missing"),
    ],
)
def test_what_does_not_go_together_is_refused(run, schema, options, words):
    with pytest.raises(AdaptiveQsError, match=words):
        run(schema, rho=1, **options)


def ledger(tmp_path, unit, rho=10.0):
    path = tmp_path / "l.db"
    total = Cost.within(rho, 1e-9)
    LedgerBook.create(path, total, {"rho": rho, "delta": 1e-8}, unit=unit).close()
    return path


def test_a_ledger_counts_runs_that_protect_the_same(tmp_path):
    """Whatever number of rows counts in each."""
    path = ledger(tmp_path, Unit("who"))
    for rows in (2, 5):
        model = fitted(rho=1, rows_per_person=rows, ledger=path)
        model.save(tmp_path / f"{rows}.zip")
    answer(FRAME, PERSONS, 1, rho=1, rows_per_person=3, ledger=path, **OPTIONS).to_arrow()
    book = LedgerBook(path)
    spent = [run.spent for run in book.runs()]
    assert book.protected == Unit("who").protected
    assert all(0.98 < float(cost.rho) <= 1 for cost in spent)
    assert len(spent) == 3


@pytest.mark.parametrize(
    ("unit", "schema", "options"),
    [
        (ROWS, PERSONS, {"rows_per_person": 1}),
        (Unit("who"), {**BY_ROWS, "ignore": ["who"]}, {}),
        (Unit("someone"), PERSONS, {"rows_per_person": 1}),
        (Unit("who"), PERSONS, {"rows_per_person": 1, "neighbours": "replace"}),
        (Unit(None, 1, "replace"), {**BY_ROWS, "ignore": ["who"]}, {}),
    ],
)
def test_a_ledger_refuses_runs_that_protect_something_else(tmp_path, unit, schema, options):
    path = ledger(tmp_path, unit)
    with pytest.raises(LedgerError, match="costs do not add up"):
        fitted(schema, rho=1, ledger=path, **options)
    with pytest.raises(LedgerError, match="costs do not add up"):
        answer(FRAME, schema, 1, rho=1, ledger=path, **options)
    assert LedgerBook(path).held == Cost()


def test_another_number_of_rows_is_another_run(tmp_path):
    path = ledger(tmp_path, Unit("who"))
    fitted(rho=1, rows_per_person=2, ledger=path)  # not saved: interrupted
    with pytest.raises(LedgerError, match="started with another unit"):
        fitted(rho=1, rows_per_person=3, ledger=path, resume=True)
    model = fitted(rho=1, rows_per_person=2, ledger=path, resume=True)
    model.save(tmp_path / "r.zip")
    assert [run.state for run in LedgerBook(path).runs()] == ["finished"]


def test_nothing_is_spent_where_a_row_has_no_person(tmp_path):
    path = ledger(tmp_path, Unit("who"))
    torn = FRAME.assign(who=FRAME.who.where(FRAME.index != 5, None))
    for schema in (PERSONS, LEARNING):
        with pytest.raises(InputError, match="person column 'who' are empty"):
            fitted(schema, torn, rho=1, rows_per_person=2, ledger=path)
    assert LedgerBook(path).held == Cost()


@pytest.mark.parametrize(
    ("schema", "rows", "neighbours", "pairs"),
    [
        (PERSONS, 1, "add-remove", 2),
        (PERSONS, 3, "replace", 2),
        (LEARNING, 2, "add-remove", 3),
        (LEARNING, 2, "replace", 1),
        (BY_ROWS, None, "replace", 2),
    ],
)
@pytest.mark.one_in(2)
def test_neighbours_by_a_person_cannot_be_told_apart(schema, rows, neighbours, pairs):
    report = audit(
        Schema.parse(schema), 2, pairs, 7, rhos=(2.0,), sample_every=10**6,
        rows_per_person=rows, neighbours=neighbours,
    )  # fmt: skip
    assert report.findings == []
    assert report.moved > 5 * pairs
