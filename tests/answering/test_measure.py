"""Measuring: exact integers, sensitivities over every row, costs, noise, and nothing that leaks."""

from __future__ import annotations

import gc
import inspect
import math
import time
import weakref
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from scipy.stats import chi2

from adaptive_qs.answering import measure as module
from adaptive_qs.answering.measure import (
    LEAST_UNITS,
    MAX_ROWS,
    SETS_AHEAD,
    answer_sets,
    divide_units,
    grid_bits,
)
from adaptive_qs.errors import BudgetExceeded, InputError, ResourceExceeded
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO, format_label
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, discrete_gaussian
from adaptive_qs.run.budget import MAX_COST, PrivacyTarget
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.residual_mechanism import ResidualMechanism
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.workload.axes import Marginal
from adaptive_qs.workload.matrices import CustomAxis

from ..doors import measure_one
from .batches import (
    CELLS,
    WORKLOADS,
    Scripted,
    batch,
    pairs,
    part,
    query_matrix,
    query_weights,
    table,
    unlimited,
    workload,
)

COSTS = (1e-6, 0.0331, 1.0, 400.0, MAX_COST)


@pytest.mark.parametrize(("asked", "name"), pairs())
@pytest.mark.one_in(5)
def test_rows_change_a_release_by_as_much_as_is_declared_and_no_more(asked, name):
    found = batch(asked, name)
    for event, columns in found.inputs.values():
        assert (columns * columns).sum(axis=0).max() == event.squared_sensitivity
    # All measurements together: one row's effect against the noise, exactly.
    costs = sum(
        np.array([Fraction(int(c)) for c in (columns * columns).sum(axis=0)])
        / (2 * event.noise_variance)
        for event, columns in found.inputs.values()
    )
    assert max(costs) <= Fraction(found.units, UNITS_PER_RHO)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("name", ["querysmasher", "wff", "identity", "auto"])
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
    mechanism = choose_mechanism(asked, "residualplanner").mechanism.on_grid(20)
    units = PrivacyTarget.of_answers(cost=1.0).units
    calls = []
    mechanisms = Mechanisms(Budget(Fraction(units, UNITS_PER_RHO)), InsecureSeed(3), calls.append)
    list(
        answer_sets(
            mechanism, mechanisms.table(MarginalCounter(table((4000,) * 4))), mechanisms, units
        )
    )
    calls = [call for call in calls if call.output.size == 4000]
    assert len(calls) == 4
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

    def prepare(self, cliques):
        pass

    def count(self, clique):
        counts = np.zeros(self.domain.shape(clique), dtype=np.int64)
        counts[tuple(self._cell[i] for i in clique)] = self._rows
        return counts


@pytest.mark.parametrize("cost", [1e-6, 1.0, MAX_COST])
@pytest.mark.parametrize(("asked", "name"), pairs())
@pytest.mark.one_in(7)
def test_the_most_rows_in_one_cell_stay_exact(asked, name, cost):
    """Near 2⁶¹ at the largest tables and costs, against Python's integers."""
    units = PrivacyTarget.of_answers(cost=cost).units
    small = choose(asked, name)
    mechanism = small.on_grid(grid_bits(small, units, MAX_ROWS))
    costs = divide_units(mechanism, units)
    for cell in [(0, 0, 0), (2, 3, 1)]:
        for number in range(mechanism.num_measurements):
            full = partial(FullCells, mechanism.workload.domain, cell=cell)
            one, most = (
                released(mechanism, number, costs[number], full(rows)) for rows in (1, MAX_ROWS)
            )
            expected = one.astype(object) * MAX_ROWS
            assert (most.astype(object) == expected).all()
            assert abs(expected).max() <= 2**62


@cache
def choose(asked, name):
    return choose_mechanism(WORKLOADS[asked], name).mechanism


def released(mechanism, number, units, counter):
    """The exact integers of one measurement."""
    calls = []
    mechanisms = Mechanisms(Budget(Fraction(10**12)), InsecureSeed(0), calls.append)
    measure_one(counter, mechanisms, mechanism.measurement(number), units)
    return calls[0].inputs.ravel()


def test_coefficients_depend_on_public_bounds_alone():
    """Neither grid_bits nor the plan it belongs to is given anything that holds rows."""
    assert list(inspect.signature(grid_bits).parameters) == ["mechanism", "units", "most_rows"]
    mechanism = choose("affine", "querysmasher")
    units = PrivacyTarget.of_answers(cost=1.0).units
    bits = [grid_bits(mechanism, units, 2**k - 1) for k in range(1, 32)]
    assert bits == sorted(bits, reverse=True)
    assert all(b <= 61 - k for k, b in enumerate(bits, start=1))
    assert grid_bits(mechanism, units // 2**20, 1000) < grid_bits(mechanism, units, 1000)


def test_fine_noise_leaves_room_for_the_largest_table_and_cost():
    """Values are multiplied until σ ≥ FINE_NOISE; a coefficient is at most Δ = σ√β."""
    assert MAX_ROWS * 2 * FINE_NOISE * math.sqrt(MAX_COST) < 2**61


def test_no_private_count_is_in_any_refusal():
    """Queries that refuse a table say so without a figure; measuring never asks them to."""
    huge = CustomAxis([[10**9, 10**9]])
    with pytest.raises(ResourceExceeded) as caught:
        huge.answer(np.array([2**40 + 12345, 7]))
    assert not any(char.isdigit() for char in str(caught.value).replace("int64", ""))


def test_labels_are_public_words():
    mechanism = batch("several", "querysmasher").mechanism
    for number in range(mechanism.num_measurements):
        measurement = mechanism.measurement(number)
        query = module._query(WORKLOADS["several"].domain, measurement)
        label = format_label(query.purpose, query.columns)
        names = [f"a{i}" for i in measurement.clique]
        assert label == f"strategy {' x '.join(names) or 'total'}"


# Running a plan: order, determinism, memory, and what happens when something goes wrong.

NAMES = [pair for pair in pairs() if pair[0] in ("several", "range")]


@pytest.fixture(scope="module")
def counter():
    return MarginalCounter(table())


def ledger_of(found):
    return Budget(Fraction(found.units, UNITS_PER_RHO))


@pytest.mark.parametrize(("asked", "name"), NAMES)
def test_sets_come_in_order_and_measurements_once_when_first_needed(asked, name, counter):
    found, calls = batch(asked, name), []
    out = found.run(Mechanisms(ledger_of(found), InsecureSeed(0), calls.append), counter)
    measured = [found.mechanism.measurement(k).clique for k in found.order]
    names = WORKLOADS[asked].domain.clique_names
    assert [c.event.columns for c in calls] == [names(clique) for clique in measured]
    assert sorted(found.order) == list(range(found.mechanism.num_measurements))
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


def test_releases_are_forgotten_after_their_last_use(counter, monkeypatch):
    found, alive = batch("range", "querysmasher"), []
    estimate = module.table_estimate

    class Table(np.ndarray):
        """An array that can be referred to weakly."""

    def watched(factors, noisy):
        kept = np.asarray(estimate(factors, noisy)).view(Table)
        alive.append((len(alive), weakref.ref(kept)))
        return kept

    monkeypatch.setattr(module, "table_estimate", watched)
    last = {
        k: max(n for n, s in enumerate(found.sets) if k in found.mechanism.needed(*s))
        for k in found.order
    }
    mechanisms = Mechanisms(ledger_of(found), InsecureSeed(0))
    for position, _ in enumerate(
        answer_sets(found.mechanism, mechanisms.table(counter), mechanisms, found.units)
    ):
        for _ in range(200):  # a thread that measures ahead lets go of its last one in its own time
            gc.collect()
            held = {found.order[number] for number, reference in alive if reference() is not None}
            if late := [number for number in held if last[number] <= position]:
                time.sleep(0.01)
            else:
                break
        assert late == []
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
    found = batch("range", "querysmasher")
    ledger = ledger_of(found)
    broken = Failing(found.mechanism, found.sets[1])
    mechanisms = Mechanisms(ledger, InsecureSeed(0))
    run = answer_sets(broken, mechanisms.table(counter), mechanisms, found.units)
    assert not ledger.events  # nothing is charged before the first answer is asked for
    next(run)
    with pytest.raises(MemoryError, match="no room for answers"):
        next(run)
    charged = len(ledger.events)
    assert charged <= len(needed_by(found, found.sets[: 2 + SETS_AHEAD])) + 1
    assert next(run, None) is None
    assert len(ledger.events) == charged


def test_closing_early_stops_the_spending(counter, monkeypatch):
    monkeypatch.setattr(module, "GROUP_MEASUREMENTS", 1)
    found = batch("marginal", "querysmasher")
    ledger = ledger_of(found)
    mechanisms = Mechanisms(ledger, InsecureSeed(0))
    run = answer_sets(found.mechanism, mechanisms.table(counter), mechanisms, found.units)
    next(run)
    run.close()
    charged = len(ledger.events)
    assert charged == len(needed_by(found, found.sets[: 1 + SETS_AHEAD])) < len(found.sets)
    gc.collect()
    assert len(ledger.events) == charged


@pytest.mark.parametrize("group", [1, 256])
def test_a_budget_that_is_too_small_ends_the_run_without_a_draw(counter, group, monkeypatch):
    monkeypatch.setattr(module, "GROUP_MEASUREMENTS", group)
    found = batch("range", "querysmasher")
    calls = []
    ledger = Budget(Fraction(found.units - 1, UNITS_PER_RHO))
    with pytest.raises(BudgetExceeded):
        found.run(Mechanisms(ledger, InsecureSeed(0), calls.append), counter)
    before = needed_by(found, found.sets[:-1]) if group == 1 else set()
    assert len(calls) == len(ledger.events) == len(before) < len(found.order)


# Every solver and family on small domains: 2,000 runs against the reported answers and variances.
#
# An answer is a linear function of what is released. The function is taken from the code that makes
# answers, once per unit release, and checked against whole runs; then it is applied to 2,000 draws
# of the release's own noise at once. The bounds leave 1e-9 false alarms for the whole file: every
# one of fewer than 10⁵ comparisons gets 1e-14.

RUNS = 2_000
ALARM = 1e-14
# Sums of discrete Gaussians have the tails of a Gaussian of their parameter (Canonne, Kamath and
# Steinke 2020, Corollary 17), so a mean of runs passes z standard errors with 2exp(−z²/2) at most.
Z = math.sqrt(2 * math.log(2 / ALARM))
LOW, HIGH = chi2.ppf(ALARM / 2, RUNS) / RUNS, chi2.isf(ALARM / 2, RUNS) / RUNS
ROUNDING = 1e-7
"""Of a float64 inverse whose condition is up to 2²⁴; see the weight of completed rows."""


@pytest.fixture(scope="module")
def truths():
    counts = MarginalCounter(table()).count((0, 1, 2)).ravel()
    return {name: query_matrix(asked) @ counts for name, asked in WORKLOADS.items()}


def close(found, expected, scale):
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * scale)


@pytest.mark.parametrize(("asked", "name"), pairs())
@pytest.mark.one_in(5)
def test_answers_have_the_means_and_variances_reported(asked, name, counter, truths):
    found, truth = batch(asked, name), truths[asked]
    answers = np.zeros((len(truth), RUNS))
    for number in found.order:
        (event, values), _ = found.release(number, counter)
        entropy = InsecureSeed(1_000 + number)
        noise = discrete_gaussian(event.noise_variance, values.size * RUNS, entropy)
        answers += found.map[number] @ (values.reshape(-1, 1) + noise.reshape(-1, RUNS))
    deviations = answers - truth[:, None]
    std = np.sqrt(found.variances)
    assert (abs(deviations.mean(axis=1)) <= Z * std / math.sqrt(RUNS) + ROUNDING * 500).all()
    empirical = (deviations**2).mean(axis=1)
    assert (empirical <= HIGH * found.variances + ROUNDING).all()
    assert (empirical >= LOW * found.variances - ROUNDING).all()


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_whole_runs_are_the_linear_function_and_without_noise_the_truth(
    asked, name, counter, truths
):
    found, calls = batch(asked, name), []
    ledger = Budget(Fraction(found.units, UNITS_PER_RHO))
    out = found.run(Mechanisms(ledger, InsecureSeed(7), calls.append), counter)
    expected = sum(found.map[k] @ call.output.ravel() for k, call in zip(found.order, calls))
    close(np.concatenate([one.estimates for one in out]), expected, 500)
    close(np.concatenate([one.variances for one in out]), found.variances, found.variances.max())
    out = found.run(Scripted(unlimited()), counter)
    close(np.concatenate([one.estimates for one in out]), truths[asked], 500)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_any_table_is_answered_without_bias_and_with_the_variances_of_the_noise(asked, name):
    """With A the map from releases to answers and M that from cells to releases, AM is the queries.

    The variances are diag(A Σ Aᵀ), Σ the noise of the releases, and where answers are the
    least-squares ones of all that was measured diag(W (MᵀΣ⁻¹M)⁺ Wᵀ).
    """
    found, queries = batch(asked, name), query_matrix(WORKLOADS[asked])
    inputs = {k: (float(e.noise_variance), m.astype(float)) for k, (e, m) in found.inputs.items()}
    assert queries.shape[1] == CELLS
    total = sum(found.map[k] @ columns for k, (_, columns) in inputs.items())
    close(total, queries, abs(queries).max())

    exact = sum(inputs[k][0] * (found.map[k] ** 2).sum(axis=1) for k in found.order)
    np.testing.assert_allclose(exact, found.variances, rtol=ROUNDING)
    error = query_weights(WORKLOADS[asked]) @ exact
    assert found.mechanism.total_error == pytest.approx(error, rel=ROUNDING)
    top, is_exact = found.mechanism.largest_variance()
    assert is_exact
    assert top == pytest.approx(exact.max(), rel=ROUNDING)

    if name == "hdmm":
        return
    information = sum(columns.T @ columns / variance for variance, columns in inputs.values())
    # Completed rows have an information of 2⁻²⁴ of the others, and rounding one of 2⁻⁵⁰.
    covariance = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    expected = np.einsum("qi,ij,qj->q", queries, covariance, queries)
    np.testing.assert_allclose(found.variances, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_bounds_and_shares_belong_to_the_error(asked, name):
    mechanism = batch(asked, name).mechanism
    shares = [mechanism.measurement(k).share for k in range(mechanism.num_measurements)]
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    assert mechanism.lower_bound <= mechanism.total_error * (1 + ROUNDING)
    if isinstance(mechanism, ResidualMechanism) and name != "hdmm":
        # On the grid an error L moves by a little; the best shares were those before: second order.
        best = float(np.sqrt(mechanism.errors).sum() ** 2)
        assert mechanism.total_error == pytest.approx(best, rel=1e-9)
    if name in ("auto", "querysmasher") and asked != "few on sets":  # one is stopped there
        assert mechanism.total_error <= (1 + 1.01e-4) * mechanism.lower_bound
