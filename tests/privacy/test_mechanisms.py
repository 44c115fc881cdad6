import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from adaptive_qs.audit.replay import Recorder, Replayer
from adaptive_qs.errors import BudgetExceeded, InputError
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import GaussianEvent, Purpose, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms, audited, auditing
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import ROWS

from ..doors import release_counts, select


def counting(squared_sensitivity, noise_variance, column="a"):
    return GaussianEvent(Purpose.STRATEGY, (column,), squared_sensitivity, noise_variance)


def choosing(epsilon):
    return SelectionEvent(Purpose.SELECTION, (), epsilon)


class Journal:
    """A ledger and an entropy source that write down the order in which they are used."""

    insecure, unit = True, ROWS

    def __init__(self, rho: float = 1.0) -> None:
        self.steps: list[str] = []
        self._budget = Budget(rho)
        self._seed = InsecureSeed(1)

    def release(self, events, draw, definition=""):
        self.steps.append("charge")
        return self._budget.release(events, draw)

    def begin(self, release) -> None:
        self._seed.begin(release)

    def words(self, count: int):
        self.steps.append("draw")
        return self._seed.words(count)


def uses(mechanisms: Mechanisms):
    yield lambda: release_counts(mechanisms, counting(1, 2), np.zeros(3, np.int64))
    yield lambda: select(mechanisms, choosing(1.0), [1, 2, 3], 1)


def test_every_draw_follows_its_charge():
    journal = Journal()
    for use in uses(Mechanisms(journal, journal)):
        journal.steps.clear()
        use()
        assert journal.steps[0] == "charge"
        assert journal.steps.count("charge") == 1
        assert "draw" in journal.steps


def test_a_refused_charge_draws_nothing():
    journal = Journal(rho=1e-3)
    for use in uses(Mechanisms(journal, journal)):
        journal.steps.clear()
        with pytest.raises(BudgetExceeded):
            use()
        assert journal.steps == ["charge"]


@pytest.mark.parametrize(
    ("values", "squared_sensitivity", "noise_variance"),
    [
        (np.zeros(2), 1, 1),
        (np.array([2**62 + 1]), 1, 1),
        (np.array([-(2**62) - 1]), 1, 1),
        (np.array([2**63], dtype=np.uint64), 1, 1),
        (np.zeros(2, np.int64), 1, 2**93),
        (np.zeros(2, np.int64), 1, 0.5),
        (np.zeros(2, np.int64), 0, 1),
    ],
)
def test_a_refused_release_charges_nothing(values, squared_sensitivity, noise_variance):
    journal = Journal()
    with pytest.raises(InputError):
        release_counts(
            Mechanisms(journal, journal), counting(squared_sensitivity, noise_variance), values
        )
    assert journal.steps == []


@pytest.mark.parametrize(
    ("scores", "sensitivity", "epsilon"), [([], 1, 1.0), ([1], 0, 1.0), ([1], 1, math.inf)]
)
def test_a_refused_selection_charges_nothing(scores, sensitivity, epsilon):
    journal = Journal()
    with pytest.raises(InputError):
        select(Mechanisms(journal, journal), choosing(epsilon), scores, sensitivity)
    assert journal.steps == []


def test_messages_hold_no_private_value():
    mechanisms = Mechanisms(Budget(1), InsecureSeed(0))
    secret = 2**62 + 987654321
    for use in (
        lambda: release_counts(mechanisms, counting(1, 1), np.array([secret])),
        lambda: select(mechanisms, choosing(1.0), [secret], 1),
    ):
        with pytest.raises(InputError) as caught:
            use()
        assert "987654321" not in str(caught.value)
        assert str(secret) not in str(caught.value)


def test_extreme_values_do_not_wrap():
    values = np.array([[2**62, -(2**62)]])
    noisy = release_counts(Mechanisms(Budget(1), InsecureSeed(4)), counting(1, 2**92), values)
    assert noisy.shape == values.shape
    assert noisy[0, 0] > 0 > noisy[0, 1]


def test_an_empty_release_is_empty():
    empty = np.zeros((0, 3), np.int64)
    mechanisms = Mechanisms(Budget(1), InsecureSeed(4))
    assert release_counts(mechanisms, counting(1, 1), empty).shape == (0, 3)


def test_released_values_do_not_share_memory_with_the_input():
    values = np.arange(5)
    release_counts(Mechanisms(Budget(1), InsecureSeed(4)), counting(1, 1), values)
    assert np.array_equal(values, np.arange(5))


def run(mechanisms: Mechanisms, table: np.ndarray) -> list:
    chosen = select(mechanisms, choosing(0.5), [int(c) for c in table], 1)
    return [chosen, release_counts(mechanisms, counting(1, 4), table + chosen).tolist()]


def test_a_replay_on_a_neighbour_repeats_the_record_and_draws_nothing():
    journal, here = Journal(), Recorder(Budget(1), InsecureSeed(5))
    output = run(here, np.array([5, 6, 7]))
    there = Replayer(Budget(1), journal, here.calls)
    assert run(there, np.array([5, 6, 8])) == output
    assert journal.steps == []
    for first, second in zip(here.calls, there.calls, strict=True):
        assert first.event == second.event
        change = first.inputs - second.inputs
        if isinstance(first.event, GaussianEvent):
            assert (change**2).sum() <= first.event.squared_sensitivity
        else:
            assert np.abs(change).max() <= first.score_sensitivity


def test_an_audit_concerns_its_own_block_and_thread_only():
    """Elsewhere a run would get what was recorded in place of noise."""
    budget = Budget(1)
    mechanisms = Mechanisms(budget, InsecureSeed(1))
    assert audited(budget) is None
    with auditing(mechanisms), ThreadPoolExecutor(1) as pool:
        assert audited(budget) is mechanisms
        assert pool.submit(audited, budget).result() is None
        with pytest.raises(RuntimeError, match="ledger"):
            audited(Journal())
    assert audited(budget) is None
    with pytest.raises(InputError), auditing(mechanisms):
        InsecureSeed(-1)
    assert audited(budget) is None
