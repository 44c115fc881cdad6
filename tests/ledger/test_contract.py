"""One contract for the budget in memory and the run of a durable ledger."""

import math
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.ledger.entries import compute_digests, from_bytes, to_bytes
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import (
    UNITS_PER_DELTA,
    UNITS_PER_RHO,
    Cost,
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
)

from .helpers import INPUTS, REQUEST, crash, new_book

RHO, DELTA = Fraction(1, 2), Fraction(1, 10**9)
fractions = st.fractions(min_value=Fraction(1, 10**4), max_value=10**4)
shares = st.fractions(min_value=DELTA / 1_000, max_value=DELTA)
gaussians = st.builds(
    GaussianEvent,
    st.just(Purpose.STRATEGY),
    st.tuples(st.sampled_from(["a", "ü", "x" * 300])),
    fractions,
    fractions,
)
selections = st.builds(
    SelectionEvent,
    st.just(Purpose.SELECTION),
    st.just(()),
    st.one_of(fractions, st.floats(1e-9, 9)),
)
partitions = st.builds(
    PartitionEvent, st.just(Purpose.VALUES), st.just(("city",)), st.just(25), st.just(100), shares
)
releases = st.lists(st.lists(st.one_of(gaussians, selections, partitions), max_size=4), max_size=8)


@contextmanager
def in_memory():
    yield Budget(RHO, DELTA)


@contextmanager
def durable():
    with TemporaryDirectory() as folder:
        book = new_book(f"{folder}/ledger", 2 * UNITS_PER_RHO, UNITS_PER_DELTA)
        run = book.reserve(REQUEST, INPUTS, Cost.within(RHO, DELTA))
        yield run
        crash(run)


LEDGERS = pytest.mark.parametrize("ledger", [in_memory, durable])


def spent_by(event):
    """(rho, delta) straight from the definitions, apart from the code under test."""
    match event:
        case GaussianEvent():
            return Fraction(event.squared_sensitivity) / Fraction(event.noise_variance) / 2, 0
        case SelectionEvent():
            return Fraction(event.epsilon) * Fraction(event.epsilon) / 8, 0
    return 1 / Fraction(2 * event.noise_variance), event.delta


def units(events):
    costs = [spent_by(event) for event in events]
    return (
        sum(math.ceil(rho * UNITS_PER_RHO) for rho, _ in costs),
        sum(math.ceil(delta * UNITS_PER_DELTA) for _, delta in costs),
    )


class Drawn:
    """Counts how often it is drawn from."""

    times = 0

    def __call__(self, events):
        self.times += 1
        return [np.array([7, -len(events)], dtype=np.int64) for _ in events]


@LEDGERS
@given(attempts=releases)
def test_all_events_of_a_release_are_charged_or_none(ledger, attempts):
    with ledger() as budget:
        accepted = []
        for events in attempts:
            drawn = Drawn()
            rho, delta = units([*accepted, *events])
            fits = rho <= math.floor(RHO * UNITS_PER_RHO)
            fits = fits and delta <= math.floor(DELTA * UNITS_PER_DELTA)
            if fits:
                outputs = budget.release(events, partial(drawn, events))
                accepted += events
                assert [list(output) for output in outputs] == [[7, -len(events)]] * len(events)
            else:
                with pytest.raises(BudgetExceeded):
                    budget.release(events, partial(drawn, events))
            assert drawn.times == fits
            assert budget.events == tuple(accepted)
            assert (budget.spent.rho_units, budget.spent.delta_units) == units(accepted)
        assert sum(spent_by(event)[0] for event in accepted) <= RHO
        assert sum(spent_by(event)[1] for event in accepted) <= DELTA


@LEDGERS
def test_the_last_unit_can_be_spent_and_not_one_more(ledger):
    part = GaussianEvent(Purpose.STRATEGY, ("everything",), RHO / 2, 1)
    least = GaussianEvent(Purpose.STRATEGY, ("one unit",), 1, Fraction(UNITS_PER_RHO, 2))
    with ledger() as budget:
        for _ in range(4):
            budget.release([part], lambda: [1])
        assert budget.spent == Cost.within(0.5)
        assert budget.spent.rho == budget.limit.rho == RHO
        for event, said in (
            (part, r"everything: cost rho 0\.125 exceeds the remaining 0:"),
            (least, "one unit"),
        ):
            with pytest.raises(BudgetExceeded, match=said):
                budget.release([event], lambda: pytest.fail("drew what was refused"))


class Guess:
    """No event, with all that one says of itself."""

    label, rho, delta = "guess", Fraction(0), Fraction(0)


class CheaperEvent(GaussianEvent):
    """A guess at a price."""

    rho = Fraction(0)


@LEDGERS
@pytest.mark.parametrize(
    "event", [Guess(), "counts", None, CheaperEvent(Purpose.STRATEGY, ("counts",), 1, 1)]
)
def test_events_of_unknown_kind_are_refused_before_the_draw(ledger, event):
    with ledger() as budget:
        with pytest.raises(InputError, match=f"cannot price.*{type(event).__name__}"):
            budget.release([event], lambda: pytest.fail("drew what cannot be priced"))
        assert budget.events == ()


@LEDGERS
def test_what_a_failed_draw_leaves_never_exceeds_the_budget(ledger):
    half = GaussianEvent(Purpose.STRATEGY, ("half",), RHO, 1)

    def fail():
        raise RuntimeError

    with ledger() as budget:
        with pytest.raises(RuntimeError):
            budget.release([half], fail)
        with_failed = budget.spent.rho
        assert with_failed in (0, RHO / 2)
        for _ in range(3):
            with pytest.raises((BudgetExceeded, InputError)):
                budget.release([half, half], lambda: pytest.fail("drew"))


@given(st.lists(st.integers(-(2**62), 2**62)), st.lists(st.text()), st.integers(0, 2**60))
def test_outputs_come_back_as_they_were(counts, values, position):
    for output in (np.array(counts, dtype=np.int64), tuple(values), position):
        kind, data = to_bytes(output)
        back = from_bytes(kind, data)
        assert type(back) is type(output)
        assert np.array_equal(back, output)
        assert compute_digests([(kind, data)]) != compute_digests([(kind, data + b"0")])


@given(st.text().filter(lambda kind: kind not in ("counts", "choice", "values")))
def test_outputs_of_unknown_kind_are_refused(kind):
    with pytest.raises(ValueError):
        from_bytes(kind, b"[1]")
