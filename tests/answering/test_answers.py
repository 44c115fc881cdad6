"""The statement of a batch: what was charged, exactly, and the Gaussian DP that it implies."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from adaptive_qs.answering.api import AnswersManifest, group_charges, plan, state_answers
from adaptive_qs.answering.measure import answer_sets
from adaptive_qs.answering.plan import Batch, answers_limits
from adaptive_qs.audit.replay import AuditReport, Check, compare, record
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.budget import Budget, LedgerPosition
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, GaussianEvent, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.files import NOT_PRIVATE, PRIVATE
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import workload_digest

from .batches import SIZES, WORKLOADS, batch, pairs

SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "job", "type": "categorical", "values": ["a", "b", "c"]},
            {"name": "age", "type": "integer", "min": 0, "max": 39, "bins": 4},
            {"name": "flag", "type": "boolean", "missing": [""]},
        ],
    }
)
MECHANISMS = ("querysmasher", "residualplanner", "identity", "hdmm")


def run(mechanism="querysmasher", **target):
    """A plan, and every charge of measuring it on a small table."""
    limits = replace(answers_limits(SCHEMA.domain()), most_rows=100)
    budget = PrivacyTarget.of_answers(**(target or {"epsilon": 1.0}))
    planned = Batch(2, SCHEMA.domain(), budget, limits, mechanism).measurable
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, n, 50) for n in SCHEMA.domain().sizes]
    counter = MarginalCounter(CodedTable.from_codes(SCHEMA.domain(), codes))
    ledger = Budget(Fraction(planned.target.units, UNITS_PER_RHO))
    mechanisms = Mechanisms(ledger, InsecureSeed(1))
    for _ in answer_sets(
        planned.mechanism, mechanisms.table(counter), mechanisms, planned.target.units
    ):
        pass
    return planned, ledger.events


PLANNED = plan(SCHEMA, 1, epsilon=1.0)


def state(planned, events, **changes):
    given = {"stamp": PRIVATE, "confidence": 0.95} | changes
    return state_answers(planned, planned.target, SCHEMA, events, **given)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("target", [{"epsilon": 1.0}, {"rho": 0.25}, {"cost": 3.0, "delta": 1e-6}])
def test_the_statement_holds_for_every_mechanism_and_target(mechanism, target):
    planned, events = run(mechanism, **target)
    stated = state(planned, events)
    assert sum((c.cost for c in stated.charges), Cost()) == Cost.of(events)
    assert stated.accountant == "Gaussian DP"
    squared = 2 * sum(event.rho for event in events)
    assert squared <= Fraction(stated.mu) ** 2
    assert stated.mu == pytest.approx(math.sqrt(squared), rel=1e-9)
    assert (stated.cost, stated.rho) == (planned.target.cost, planned.target.rho)
    assert (stated.epsilon, stated.delta) == (planned.target.epsilon, planned.target.delta)
    assert stated.mechanism == mechanism
    assert stated.workload == workload_digest(planned.workload)
    assert stated.expected_rmse == planned.rmse
    assert stated.queries == planned.queries
    assert stated.mechanisms == ("exact discrete Gaussian",)
    (fact,) = (fact for fact in stated.facts if fact.basis == "paid for")
    assert fact.kind == "answers"
    assert AnswersManifest.model_validate_json(stated.to_json()) == stated


@settings(max_examples=80, deadline=None)
@given(
    budget=st.builds(dict, cost=st.floats(1e-10, 1e6) | st.sampled_from([1e-10, 1e6]))
    | st.builds(dict, epsilon=st.floats(1e-2, 100)),
    delta=st.floats(1e-20, 0.4),
)
def test_every_budget_that_a_batch_accepts_can_be_stated(budget, delta):
    """A statement that failed would fail after the budget was spent."""
    try:
        target = PrivacyTarget.of_answers(**budget, delta=delta)
    except InputError:
        return
    spent = GaussianEvent(Purpose.STRATEGY, ("job",), 1, Fraction(UNITS_PER_RHO, 2 * target.units))
    stated = state(replace(PLANNED, target=target), [spent])
    assert stated.guarantee
    assert Cost.of([spent]).rho_units == target.units


def test_the_statement_is_about_answers():
    planned, events = run()
    entry = LedgerPosition(ledger="ab", run=1, releases=7, hash="cd")
    stated = state(planned, events, ledger=entry)
    assert "mu-Gaussian DP" in stated.guarantee
    assert "every answer with its standard error and interval" in {f.fact for f in stated.facts}
    assert stated.ledger == entry
    assert stated == AnswersManifest.model_validate_json(stated.to_json())


def test_seeded_answers_are_stamped():
    stated = state(*run(), stamp=NOT_PRIVATE)
    assert stated.insecure
    assert stated.stamp.startswith("NOT PRIVATE")


def test_what_was_learnt_first_is_accounted_as_zcdp():
    """The (ε, δ) of a batch alone is smaller than zCDP gives for the same budget."""
    planned, events = run(rho=0.25)
    learnt = GaussianEvent(Purpose.BINS, ("age",), 1, 10**6)
    with pytest.raises(ValidationError):
        state(planned, [learnt, *events[1:]])


@pytest.mark.parametrize("edit", ["drop", "times", "more"])
def test_charges_that_do_not_add_up_are_refused(edit):
    planned, events = run()
    if edit == "more":
        with pytest.raises(ValidationError):
            state(planned, [*events, events[0]])
        return
    content = state(planned, events).model_dump()
    charges = [dict(charge) for charge in content["charges"]]
    if edit == "drop":
        charges.pop()
    else:
        charges[0]["times"] += 1
    with pytest.raises(ValidationError, match="charges do not add up"):
        AnswersManifest.model_validate(content | {"charges": charges})


def test_equal_charges_are_counted():
    events = [
        GaussianEvent(Purpose.STRATEGY, (name,), squared, variance)
        for name, squared, variance in [("a", 1, 2), ("b", 2, 2), ("c", 1, 2), ("d", 1, 3)]
    ]
    found = group_charges(events)
    assert [(c.times, c.charge.purpose, c.charge.columns) for c in found] == [
        (times, Purpose.STRATEGY, (name,)) for times, name in [(2, "a"), (1, "b"), (1, "d")]
    ]
    expected = Counter({(1, 2): 2, (2, 2): 1, (1, 3): 1})
    told = Counter()
    for c in found:
        event = c.charge
        told[event.squared_sensitivity, event.noise_variance] += c.times
    assert told == expected


# Measuring on neighbouring tables: the same calls, and inputs that differ by no more than stated.
#
# A second run on a neighbour gets the noisy outputs of the first. Everything that leaves, and every
# parameter of every call, must be the same to the last bit; only the exact inputs may differ, and
# their squared distance, in integers, by at most the squared sensitivity that was charged.

ROWS = [(i % 3, i * i % 4, 0) for i in range(60)]
TABLES = {
    "a typical row more": (ROWS, [*ROWS, ROWS[7]]),
    "the first cell more": (ROWS, [*ROWS, (0, 0, 0)]),
    "a combination never seen": (ROWS, [*ROWS, (2, 3, 1)]),
    "a row less": (ROWS, ROWS[1:]),
    "the only row": ([(1, 2, 1)], []),
}


def counter(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(SIZES)).T
    return MarginalCounter(CodedTable.from_codes(next(iter(WORKLOADS.values())).domain, columns))


def job(found, rows):
    def run(mechanisms):
        return {
            f"{o.part}, {o.index}, {o.clique}, {o.queries}": o.estimates.tobytes()
            + o.variances.tobytes()
            for o in found.run(mechanisms, counter(rows))
        }

    return run


@pytest.mark.parametrize("neighbours", TABLES)
@pytest.mark.parametrize(("asked", "name"), pairs())
@pytest.mark.one_in(7)
def test_neighbours_make_the_same_calls_and_answers(asked, name, neighbours):
    found = batch(asked, name)
    here, there = TABLES[neighbours]
    rho = Fraction(found.units, UNITS_PER_RHO)
    recorded = record(job(found, here), Budget(rho), InsecureSeed(5))
    replayed = record(job(found, there), Budget(rho), InsecureSeed(5), recorded)
    tally = AuditReport()
    compare(recorded, replayed, "answers", tally)
    assert tally.moved > 0  # the neighbour was seen
    assert tally.findings == []
    assert tally.made[Check.OUTPUTS] == len(found.sets)
