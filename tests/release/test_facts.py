"""Facts: every column once for each kind, every charge in one of them, exactly."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from adaptive_qs.privacy.events import Cost, GaussianEvent, Purpose, SelectionEvent
from adaptive_qs.release.facts import TABLES, Fact, list_facts, total_cost
from adaptive_qs.table.schema import Schema

from .examples import charges, schemas

PER_COLUMN = ("columns", "values", "missing", "other cells")
ONCE = ("rows", "single columns", "combinations", "selections", "answers")
FREE = ("declared public", "post-processing", "not revealed", "NOT COVERED")


@st.composite
def runs(draw):
    schema = draw(schemas())
    return schema, draw(charges(schema))


@settings(max_examples=50, deadline=None)
@given(run=runs())
def test_every_column_has_one_fact_of_each_kind(run):
    schema, events = run
    facts = list_facts(events, schema, TABLES)
    assert total_cost(facts) == Cost.of(events)
    assert all((fact.rho_units > 0) == (fact.basis == "paid for") for fact in facts)
    assert all(Fraction(f.rho) >= f.cost.rho and Fraction(f.delta) >= f.cost.delta for f in facts)
    covered = Counter((fact.kind, name) for fact in facts for name in fact.columns)
    assert set(covered.values()) == {1}
    for kind in PER_COLUMN:
        assert {name for k, name in covered if k == kind} == set(schema.names)
    constant = {column.name for column in schema.columns if column.size == 1}
    assert {name for kind, name in covered if kind == "constant"} == constant
    assert {name for kind, name in covered if kind == "ignored"} == set(schema.ignore)
    assert max(Counter(fact.kind for fact in facts if fact.kind in ONCE).values(), default=1) == 1
    assert len({(fact.kind, fact.fact, fact.basis) for fact in facts if not fact.columns}) == len(
        [fact for fact in facts if not fact.columns]
    )


@settings(max_examples=50, deadline=None)
@given(run=runs())
def test_what_was_learnt_is_paid_for_and_nothing_drafted_is_public(run):
    schema, events = run
    basis = {
        name: fact.basis
        for fact in list_facts(events, schema, TABLES)
        if fact.kind == "values"
        for name in fact.columns
    }
    learnt = {
        event.columns[0] for event in events if event.purpose in (Purpose.BINS, Purpose.VALUES)
    }
    drafted = bool(schema.open)
    for column in schema.columns:
        if column.name in learnt:
            assert basis[column.name] == "paid for"
        else:
            assert basis[column.name] == ("NOT COVERED" if drafted else "declared public")


SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a", "type": "categorical", "values": ["x"], "catch_all": "y"},
            {"name": "b", "type": "integer", "min": 0, "max": 9, "learnt": ["max", "bins"]},
            {"name": "a x b", "type": "boolean"},
        ],
    }
)


def facts(*events):
    found = list_facts(events, SCHEMA, TABLES)
    return [(f.kind, f.columns, f.rho_units) for f in found if f.basis == "paid for"]


def gaussian(purpose, rho, *columns):
    return GaussianEvent(purpose, columns, 1, 1 / (2 * Fraction(rho)))


def units(rho):
    return int(Fraction(rho) * 2**60)


def test_charges_are_grouped_by_what_they_paid_for():
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    assert facts(
        gaussian(Purpose.ROWS, half),
        gaussian(Purpose.BINS, quarter, "b"),
        gaussian(Purpose.RESIDUAL, half, "a"),
        SelectionEvent(Purpose.SELECTION, (), 2),
        gaussian(Purpose.RESIDUAL, quarter, "b"),
        gaussian(Purpose.ROWS, quarter),
        gaussian(Purpose.RESIDUAL, half, "a", "b"),
        gaussian(Purpose.BINS, half, "b"),
        gaussian(Purpose.RESIDUAL, quarter, "a x b"),
        gaussian(Purpose.STRATEGY, half),
        gaussian(Purpose.STRATEGY, half, "a"),
    ) == [
        ("rows", (), units(half + quarter)),
        ("values", ("b",), units(half + quarter)),
        ("single columns", ("a", "b", "a x b"), units(1)),
        ("selections", (), units(half)),
        ("combinations", (), units(half)),
        ("answers", (), units(1)),
    ]


@settings(max_examples=50, deadline=None)
@given(run=runs())
def test_every_charge_is_in_exactly_one_fact(run):
    """Counted charge by charge: one more charge changes one fact, by what it costs."""
    schema, events = run

    def paid(charged):
        found = list_facts(charged, schema, TABLES)
        return {
            (f.kind, f.columns if f.kind == "values" else ()): f.cost
            for f in found
            if f.basis == "paid for"
        }

    for k, event in enumerate(events):
        before, after = paid(events[:k]), paid(events[: k + 1])
        changed = [key for key in after if after[key] != before.get(key, Cost())]
        assert len(changed) == 1
        assert before.keys() <= after.keys()
        gained = before.get(changed[0], Cost()) + Cost.of([event])
        assert after[changed[0]] == gained


@pytest.mark.parametrize(
    "purpose", [Purpose.BINS, Purpose.VALUES, Purpose.RESIDUAL, Purpose.STRATEGY]
)
def test_charges_about_unknown_columns_are_refused(purpose):
    with pytest.raises(ValueError, match="a column that the schema does not have"):
        facts(gaussian(purpose, 1, "c"))


def test_what_was_learnt_elsewhere_is_said_to_be():
    (fact,) = (
        f for f in list_facts([], SCHEMA, TABLES) if f.columns == ("b",) and f.kind == "values"
    )
    assert fact.basis == "post-processing"
    assert "under another budget, as the schema states" in fact.fact
    assert "largest value and where the bins lie" in fact.fact
    assert "(the smallest value declared public)" in fact.fact


@pytest.mark.parametrize(
    "change",
    [
        {"rho": 0.4},
        {"rho_units": 2**59 + 2**30},
        {"delta": 0.1},
        {"delta_units": 1},
        {"basis": "declared public"},
        {"rho_units": -1},
        {"kind": "gossip"},
        {"note": "x"},
    ],
)
def test_facts_that_contradict_themselves_are_refused(change):
    fact = Fact.from_charges("rows", "the number of rows", [gaussian(Purpose.ROWS, Fraction(1, 2))])
    assert Fact.model_validate(fact.model_dump()) == fact
    with pytest.raises(ValidationError):
        Fact.model_validate(fact.model_dump() | change)


@pytest.mark.parametrize("basis", FREE)
def test_free_facts_cost_nothing(basis):
    fact = Fact(kind="derived", fact="f", basis=basis)
    assert fact.cost == Cost()
    with pytest.raises(ValidationError):
        Fact(kind="derived", fact="f", basis="paid for")
