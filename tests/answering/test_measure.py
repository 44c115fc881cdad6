"""Measuring: exact integers, sensitivities over every row, costs, noise, and nothing that leaks."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest

from adaptive_qs.answering import measure as module
from adaptive_qs.answering.measure import MAX_ROWS, check_noise, grid_bits, measure
from adaptive_qs.answering.run import LEAST_UNITS, answer_sets, divide_units
from adaptive_qs.answering.target import MAX_COST, BatchTarget
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.strategy.mechanisms.choice import choose_mechanism
from adaptive_qs.strategy.mechanisms.direct import DirectMechanism
from adaptive_qs.strategy.mechanisms.mechanism import QueryMeasurement
from adaptive_qs.workload.axis_queries import Marginal, Prefix
from adaptive_qs.workload.matrix_queries import Custom, CustomAxis

from .batches import WORKLOADS, batch, pairs, part, table, workload

COSTS = (1e-6, 0.0331, 1.0, 400.0, MAX_COST)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_no_row_changes_a_release_by_more_than_is_declared(asked, name):
    found = batch(asked, name)
    for event, columns in found.inputs.values():
        effects = (columns * columns).sum(axis=0)
        assert effects.max() <= event.squared_sensitivity
    # All measurements together: one row's effect against the noise, exactly.
    costs = sum(
        np.array([Fraction(int(c)) for c in (columns * columns).sum(axis=0)])
        / (2 * event.noise_variance)
        for event, columns in found.inputs.values()
    )
    assert max(costs) <= Fraction(found.units, UNITS_PER_RHO)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_sensitivities_are_no_larger_than_they_must_be(asked, name):
    for event, columns in batch(asked, name).inputs.values():
        assert (columns * columns).sum(axis=0).max() == event.squared_sensitivity


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("name", ["querysmasher", "wff", "eigen", "identity", "gaussian", "auto"])
@pytest.mark.parametrize("asked", ["several", "few queries"])
def test_the_whole_budget_is_spent_and_no_more(asked, name, cost):
    found = batch(asked, name, cost)
    counter = MarginalCounter(table())
    ledger = Budget(Fraction(found.units, UNITS_PER_RHO))
    found.run(Mechanisms(ledger, InsecureSeed(0)), counter)
    spent = sum(
        Fraction(event.squared_sensitivity) / (2 * event.noise_variance) for event in ledger.events
    )
    assert spent == Fraction(found.units, UNITS_PER_RHO)
    assert len(ledger.events) == found.mechanism.num_measurements
    for number, event in zip(found.order, ledger.events):
        share = found.mechanism.measurement(number).share
        assert float(event.rho) == pytest.approx(share * found.units / UNITS_PER_RHO, rel=1e-3)
        assert event.noise_variance >= FINE_NOISE**2


def test_units_are_divided_by_share_to_the_last():
    found = batch("several", "querysmasher")
    for units in (found.units, found.units + 1, 10**9 + 7):
        costs = divide_units(found.mechanism, units)
        assert sum(costs) == units
        assert min(costs) >= LEAST_UNITS
    with pytest.raises(InputError, match="too small for 6 measurements"):
        divide_units(found.mechanism, 10**4)


def test_noise_is_as_wide_as_declared():
    """4,000 draws of each of four measurements, which share nothing."""
    asked = workload(
        part(Marginal, *[(i,) for i in range(4)], sizes=(4000,) * 4), sizes=(4000,) * 4
    )
    mechanism = choose_mechanism(asked, "gaussian").mechanism
    units = BatchTarget.of(cost=1.0).units
    calls = []
    mechanisms = Mechanisms(Budget(Fraction(units, UNITS_PER_RHO)), InsecureSeed(3), calls.append)
    list(answer_sets(mechanism, MarginalCounter(table((4000,) * 4)), mechanisms, units))
    noise = np.array([(call.output - call.inputs).astype(float) for call in calls])
    noise /= np.sqrt([[float(call.event.noise_variance)] for call in calls])
    # A mean of 4,000 squares has standard error √(2/4000); 7.5 of them are passed once in 10¹².
    assert abs((noise**2).mean(axis=1) - 1).max() < 7.5 * math.sqrt(2 / 4000)
    assert abs(noise.mean(axis=1)).max() < 7.5 / math.sqrt(4000)
    # Measurements are independent: their correlation over 4,000 pairs of draws.
    correlation = np.corrcoef(noise) - np.eye(4)
    assert abs(correlation).max() < 7.5 / math.sqrt(4000)


class FullCells:
    """Counts of a table whose rows are all in one cell, far more than fit in memory."""

    def __init__(self, domain, rows, cell):
        self.domain, self._rows, self._cell = domain, rows, cell

    def count(self, clique):
        counts = np.zeros(self.domain.shape(clique), dtype=np.int64)
        counts[tuple(self._cell[i] for i in clique)] = self._rows
        return counts


@pytest.mark.parametrize("cost", [1e-6, 1.0, MAX_COST])
@pytest.mark.parametrize(("asked", "name"), pairs())
def test_the_most_rows_in_one_cell_stay_exact(asked, name, cost):
    """Near 2⁶¹ at the largest tables and costs, against Python's integers."""
    units = BatchTarget.of(cost=cost).units
    small = batch(asked, name).mechanism if name == "gaussian" else choose(asked, name)
    mechanism = small.on_grid(grid_bits(small, units, MAX_ROWS))
    costs = divide_units(mechanism, units)
    for cell in [(0, 0, 0), (2, 3, 1)]:
        for number in range(mechanism.num_measurements):
            one, most = (
                released(
                    mechanism,
                    number,
                    costs[number],
                    FullCells(mechanism.workload.domain, rows, cell),
                )
                for rows in (1, MAX_ROWS)
            )
            expected = one.astype(object) * MAX_ROWS
            assert (most.astype(object) == expected).all()
            assert abs(expected).max() <= 2**62


def choose(asked, name, made={}):  # noqa: B006
    if (asked, name) not in made:
        made[asked, name] = choose_mechanism(WORKLOADS[asked], name).mechanism
    return made[asked, name]


def released(mechanism, number, units, counter):
    """The exact integers of one measurement."""
    calls = []
    mechanisms = Mechanisms(Budget(Fraction(10**12)), InsecureSeed(0), calls.append)
    measure(counter, mechanisms, [mechanism.measurement(number)], [units])
    return calls[0].inputs.ravel()


def test_coefficients_depend_on_public_bounds_alone():
    """Neither grid_bits nor the plan it belongs to is given anything that holds rows."""
    assert list(inspect.signature(grid_bits).parameters) == ["mechanism", "units", "most_rows"]
    mechanism = choose("affine", "querysmasher")
    units = BatchTarget.of(cost=1.0).units
    bits = [grid_bits(mechanism, units, 2**k - 1) for k in range(1, 32)]
    assert bits == sorted(bits, reverse=True)
    assert all(b <= 61 - k for k, b in enumerate(bits, start=1))
    assert grid_bits(mechanism, units // 2**20, 1000) < grid_bits(mechanism, units, 1000)


def test_fine_noise_leaves_room_for_the_largest_table_and_cost():
    """Values are multiplied until σ ≥ FINE_NOISE; a coefficient is at most Δ = σ√β."""
    assert MAX_ROWS * 2 * FINE_NOISE * math.sqrt(MAX_COST) < 2**61


def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_spent():
    tiny, large = Custom([[0.01] * 3], (3,)), CustomAxis([[1e3, 0, 0, 0]])
    asked = workload(part(lambda _: tiny, (0,)), part({1: large}, (1,)))
    mechanism = choose_mechanism(asked, "gaussian").mechanism
    units = BatchTarget.of(cost=1.0).units
    ledger = Budget(Fraction(units, UNITS_PER_RHO))
    with pytest.raises(ResourceExceeded, match="noise on queries a0 is too large"):
        next(
            answer_sets(
                mechanism, MarginalCounter(table()), Mechanisms(ledger, InsecureSeed(0)), units
            )
        )
    assert not ledger.events
    check_noise(choose_mechanism(workload(part(Prefix, (0,))), "gaussian").mechanism, units)


def test_no_private_count_is_in_any_refusal():
    """Queries that refuse a table say so without a figure; measuring never asks them to."""
    huge = CustomAxis([[10**9, 10**9]])
    with pytest.raises(ResourceExceeded) as caught:
        huge.answer(np.array([2**40 + 12345, 7]))
    assert not any(char.isdigit() for char in str(caught.value).replace("int64", ""))
    with pytest.raises(ResourceExceeded, match="too large for exact integers"):
        DirectMechanism(workload(part({1: CustomAxis([[10**9] * 4]), 2: huge}, (1, 2))), 1.0)


def test_labels_are_public_words():
    mechanism = batch("several", "querysmasher").mechanism
    for number in range(mechanism.num_measurements):
        measurement = mechanism.measurement(number)
        label = module._label(WORKLOADS["several"].domain, measurement)
        names = [f"a{i}" for i in measurement.clique]
        assert label == f"strategy {' x '.join(names) or 'total'}"
    direct = choose("several", "gaussian").measurement(0)
    assert isinstance(direct, QueryMeasurement)
    assert module._label(WORKLOADS["several"].domain, direct) == "queries a0"
