"""Running a plan: order, determinism, memory, and what happens when something goes wrong."""

import gc
import weakref
from fractions import Fraction

import numpy as np
import pytest

from adaptive_qs.answering import run as module
from adaptive_qs.answering.run import SETS_AHEAD, answer_sets
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms

from .batches import WORKLOADS, batch, pairs, table

NAMES = [pair for pair in pairs() if pair[0] in ("several", "range")]


@pytest.fixture(scope="module")
def counter():
    return MarginalCounter(table())


def ledger_of(found):
    return Budget(Fraction(found.units, UNITS_PER_RHO))


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_sets_come_in_the_order_of_the_workload(asked, name, counter):
    found = batch(asked, name)
    out = found.run(Mechanisms(ledger_of(found), InsecureSeed(0)), counter)
    assert [(one.part, one.index) for one in out] == found.sets
    for one in out:
        part = WORKLOADS[asked].parts[one.part]
        assert one.clique == tuple(part.cliques[one.index].tolist())
        assert one.queries == part.queries(one.index)
        size = int(np.prod([q.num_queries for q in one.queries]))
        assert one.estimates.shape == one.variances.shape == (size,)


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_a_seed_gives_the_same_answers_to_the_last_bit(asked, name, counter):
    found = batch(asked, name)
    first, again, other = (
        np.concatenate(
            [o.estimates for o in found.run(Mechanisms(ledger_of(found), InsecureSeed(s)), counter)]
        )
        for s in (1, 1, 2)
    )
    assert first.tobytes() == again.tobytes()
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_measurements_are_made_once_when_first_needed(asked, name, counter):
    found, calls = batch(asked, name), []
    found.run(Mechanisms(ledger_of(found), InsecureSeed(0), calls.append), counter)
    measured = [found.mechanism.measurement(k).clique for k in found.order]
    names = WORKLOADS[asked].domain.clique_names
    assert [c.event.label.split(" ", 1)[1] for c in calls] == [
        " x ".join(names(clique)) or "total" for clique in measured
    ]
    assert sorted(found.order) == list(range(found.mechanism.num_measurements))


def test_releases_are_forgotten_after_their_last_use(counter, monkeypatch):
    found, alive = batch("range", "querysmasher"), []
    estimate = module.estimate

    class Table(np.ndarray):
        """An array that can be referred to weakly."""

    def watched(measurement, noisy):
        kept = np.asarray(estimate(measurement, noisy)).view(Table)
        alive.append((len(alive), weakref.ref(kept)))
        return kept

    monkeypatch.setattr(module, "estimate", watched)
    last = {
        k: max(n for n, s in enumerate(found.sets) if k in found.mechanism.needed(*s))
        for k in found.order
    }
    mechanisms = Mechanisms(ledger_of(found), InsecureSeed(0))
    for position, _ in enumerate(answer_sets(found.mechanism, counter, mechanisms, found.units)):
        gc.collect()
        held = {found.order[number] for number, reference in alive if reference() is not None}
        assert all(last[number] > position for number in held)
    assert len(alive) == found.mechanism.num_measurements
    assert not held


class Failing:
    """A mechanism whose answers to one set cannot be made."""

    def __init__(self, mechanism, at):
        self._mechanism, self._at = mechanism, at

    def __getattr__(self, name):
        return getattr(self._mechanism, name)

    def answers(self, part, index, kept):
        if (part, index) == self._at:
            raise MemoryError("no room for answers")
        return self._mechanism.answers(part, index, kept)


def needed_by(found, sets):
    return {k for s in sets for k in found.mechanism.needed(*s)}


def test_an_error_while_answering_reaches_the_caller_and_stops_the_spending(counter):
    found = batch("range", "gaussian")
    ledger = ledger_of(found)
    run = answer_sets(
        Failing(found.mechanism, found.sets[1]),
        counter,
        Mechanisms(ledger, InsecureSeed(0)),
        found.units,
    )
    next(run)
    with pytest.raises(MemoryError, match="no room for answers"):
        next(run)
    charged = len(ledger.events)
    assert charged <= len(needed_by(found, found.sets[: 2 + SETS_AHEAD])) + 1
    assert next(run, None) is None
    assert len(ledger.events) == charged


def test_nothing_is_charged_before_the_first_answer_is_asked_for(counter):
    found = batch("range", "gaussian")
    ledger = ledger_of(found)
    answer_sets(found.mechanism, counter, Mechanisms(ledger, InsecureSeed(0)), found.units)
    assert not ledger.events


def test_closing_early_stops_the_spending(counter, monkeypatch):
    monkeypatch.setattr(module, "GROUP_MEASUREMENTS", 1)
    found = batch("marginal", "gaussian")
    ledger = ledger_of(found)
    run = answer_sets(found.mechanism, counter, Mechanisms(ledger, InsecureSeed(0)), found.units)
    next(run)
    run.close()
    charged = len(ledger.events)
    assert charged == len(needed_by(found, found.sets[: 1 + SETS_AHEAD])) < len(found.sets)
    gc.collect()
    assert len(ledger.events) == charged


@pytest.mark.parametrize(("group", "left_out"), [(1, 1), (256, 4)])
def test_a_budget_that_is_too_small_ends_the_run_without_a_draw(
    counter, group, left_out, monkeypatch
):
    monkeypatch.setattr(module, "GROUP_MEASUREMENTS", group)
    found = batch("range", "gaussian")
    calls = []
    ledger = Budget(Fraction(found.units - 1, UNITS_PER_RHO))
    with pytest.raises(BudgetExceeded):
        found.run(Mechanisms(ledger, InsecureSeed(0), calls.append), counter)
    assert len(found.order) == 4
    assert len(calls) == len(ledger.events) == 4 - left_out
