"""The scores of candidates against their definition, and how far one row moves them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.cliques import downward_closure
from adaptive_qs.generate.targets import project_to_simplex
from adaptive_qs.loop.expected import ProjectedEstimates
from adaptive_qs.privacy import scores as select
from adaptive_qs.privacy.counts import open_private
from adaptive_qs.privacy.scores import CELL_BITS, grid_l1, grid_l1_of_occupied
from adaptive_qs.residual import ReferenceModel, uniform_reference

from ..doors import Selector
from .helpers import Recorder, centered, counter_of, domain_of, every_row, skewed_rows

DOMAIN = domain_of(2, 3, 4)
CANDIDATES = [c for k in (1, 2, 3) for c in combinations(range(3), k)]
WEIGHTS = [float(w) for w in np.linspace(0.3, 2.0, len(CANDIDATES))]
ALL = np.ones(len(CANDIDATES), dtype=bool)
NOTHING_EXPECTED = np.zeros(len(CANDIDATES))
COUNTER = counter_of(DOMAIN, skewed_rows(DOMAIN, 30, 0))

cliques = st.sets(st.integers(0, 2), max_size=3).map(lambda s: tuple(sorted(s)))


def random_model(seed, measured, scale=5.0):
    rng = np.random.default_rng(seed)
    reference = [rng.dirichlet(np.ones(n)) * 0.9 + 0.1 / n for n in DOMAIN.sizes]
    model = ReferenceModel(DOMAIN, reference)
    for tau in measured:
        values = centered(rng.normal(scale=scale, size=DOMAIN.shape(tau)))
        model.update(tau, values if tau else values + 30.0, 1.0)
    return model


def projected(model, candidates=CANDIDATES):
    """The public estimates of all candidates."""
    estimates = ProjectedEstimates(model.domain, candidates)
    estimates.refresh(model, np.ones(len(candidates), dtype=bool))
    return estimates


def projection(model, clique):
    """A marginal on the simplex; where the model has less than a row, clipped at zero."""
    cells = model.marginal(clique)
    if np.maximum(cells, 0).sum() <= max(model.total, 1.0):
        return np.maximum(cells, 0)
    return project_to_simplex(cells, max(model.total, 1.0))


def ready(table, model):
    """A selector on a list of rows or a counter that has seen this model."""
    counter = counter_of(DOMAIN, table) if isinstance(table, list) else table
    selector = Selector(counter, CANDIDATES, WEIGHTS)
    selector.refresh(projected(model), None, ALL)
    return selector


def scores_of(selector, expected=NOTHING_EXPECTED, offered=ALL, epsilon=1.0):
    """The private scores as they enter the exponential mechanism, and their sensitivity."""
    mechanisms = Recorder(rho=10.0)
    selector.select(mechanisms, expected, epsilon, offered)
    (call,) = mechanisms.calls
    return call.inputs.tolist(), call.score_sensitivity


@given(st.lists(cliques, max_size=6), st.integers(0, 2**32 - 1))
def test_the_grid_error_is_the_l1_distance_to_the_projected_rounded_estimate(measured, seed):
    model = random_model(seed, measured)
    thresholds = projected(model).thresholds
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 30, seed % 100))
    for clique, tau in zip(CANDIDATES, thresholds):
        estimate = model.marginal(clique)
        cells = np.floor(np.maximum(estimate - tau, 0.0) * 2**CELL_BITS + 0.5).astype(np.int64)
        exact = np.abs(counter.count(clique) * 2**CELL_BITS - cells).sum()
        (error,) = grid_l1(counter, model, [clique], np.array([tau]))
        assert error == exact
        # Rounding moves each cell by half a unit at most, the threshold's 1e-9 of the rows and
        # floating point by less.
        plain = np.abs(counter.count(clique) - projection(model, clique)).sum()
        assert abs(error / 2**CELL_BITS - plain) <= DOMAIN.size(clique) * 2.0**-CELL_BITS


def test_the_grid_error_of_more_attributes_than_three_and_of_many_cliques_is_the_same():
    domain = domain_of(2, 3, 4, 2, 70)
    rng = np.random.default_rng(0)
    model = ReferenceModel(
        domain, [rng.dirichlet(np.ones(n)) * 0.9 + 0.1 / n for n in domain.sizes]
    )
    for tau in [(), (0,), (4,), (1, 4), (0, 1, 3), (0, 1, 3, 4)]:
        model.update(tau, centered(rng.normal(scale=5, size=domain.shape(tau))), 1.0)
    counter = counter_of(domain, skewed_rows(domain, 40, 0))
    every = [c for k in range(1, 6) for c in combinations(range(5), k)]
    thresholds = projected(model, every).thresholds
    found = grid_l1(counter, model, every, thresholds).tolist()
    for clique, error, tau in zip(every, found, thresholds, strict=True):
        plain = np.abs(counter.count(clique) - projection(model, clique)).sum()
        assert abs(error / 2**CELL_BITS - plain) <= domain.size(clique) * 2.0**-CELL_BITS
        assert grid_l1(counter, model, [clique], np.array([tau])).tolist() == [error]


@given(st.lists(cliques, max_size=6), st.integers(0, 2**32 - 1))
def test_occupied_cells_give_the_grid_error_but_for_the_sum_of_the_estimate(measured, seed):
    model = random_model(seed, measured)
    thresholds = projected(model).thresholds
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 30, seed % 100))
    few = grid_l1_of_occupied(counter, model, CANDIDATES, thresholds)
    for clique, tau, error in zip(CANDIDATES, thresholds, few):
        estimate = np.maximum(model.marginal(clique) - tau, 0.0)
        (whole,) = grid_l1(counter, model, [clique], np.array([tau]))
        replaced = max(model.total, 1.0) - estimate.sum()
        units = 2 * DOMAIN.size(clique)  # each cell is rounded twice
        assert abs(error - (whole + replaced * 2**CELL_BITS)) <= units


@given(st.lists(cliques, min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_rescoring_stale_candidates_only_equals_rescoring_all(changes, seed):
    model = random_model(seed, [(), (0,), (1,), (0, 1)])
    lazy = Selector(COUNTER, CANDIDATES, WEIGHTS)
    assert lazy.refresh(projected(model), None, ALL) == len(CANDIDATES)
    rng = np.random.default_rng(seed)
    for tau in changes:
        model.update(tau, centered(rng.normal(scale=20, size=DOMAIN.shape(tau))), 2.0)
        stale = [c for c in CANDIDATES if set(tau) <= set(c)]
        assert lazy.refresh(projected(model), [tau], ALL) == len(stale)
        assert scores_of(lazy) == scores_of(ready(COUNTER, model))


def test_several_changes_at_once_leave_nothing_stale():
    model = random_model(0, [(), (0,), (1,), (2,)])
    lazy = ready(COUNTER, model)
    for tau in [(0,), (1, 2)]:
        model.update(tau, centered(np.arange(DOMAIN.size(tau)).reshape(DOMAIN.shape(tau))), 2)
    stale = [c for c in CANDIDATES if 0 in c or c == (1, 2)]
    assert lazy.refresh(projected(model), [(0,), (1, 2)], ALL) == len(stale)
    assert scores_of(lazy) == scores_of(ready(COUNTER, model))


def test_candidates_are_rescored_when_they_are_offered():
    first, second = (random_model(seed, [(), (0,), (1,), (2,)]) for seed in (0, 1))
    some = np.array([0 in c for c in CANDIDATES])
    lazy = Selector(COUNTER, CANDIDATES, WEIGHTS)
    assert lazy.refresh(projected(first), None, some) == some.sum()
    assert scores_of(lazy, offered=some) == scores_of(ready(COUNTER, first), offered=some)
    assert lazy.refresh(projected(second), [(0,)], ~some) == (~some).sum()
    with pytest.raises(RuntimeError, match="compared"):
        scores_of(lazy)
    assert lazy.refresh(projected(second), [], ALL) == some.sum()
    assert scores_of(lazy) == scores_of(ready(COUNTER, second))


def test_scores_are_the_weighted_improvement():
    """w (‖μ − μ̂‖₁ − expected), weights within 2⁻¹⁰ of the largest and never below it."""
    model = random_model(3, [(), (0,), (2,), (0, 2)])
    selector = ready(COUNTER, model)
    expected = np.linspace(0.5, 9.0, len(CANDIDATES))
    scores, sensitivity = scores_of(selector, expected)
    several, last = selector.errors.scores(expected, ALL, 2.5), -round(2.5 * sensitivity)
    assert open_private(several, several.owner).tolist() == [*scores, last]
    for score, clique, weight, offset in zip(scores, CANDIDATES, WEIGHTS, expected):
        error = np.abs(COUNTER.count(clique) - projection(model, clique)).sum()
        improvement = score * max(WEIGHTS) / sensitivity
        slack = 1e-3 * max(WEIGHTS) * abs(error - offset) + 1e-2
        assert improvement == pytest.approx(weight * (error - offset), abs=slack)


@pytest.mark.parametrize("rows", [16, 40])
def test_occupied_cells_are_compared_where_released_rows_are_few(rows, monkeypatch):
    """The released number decides, not that of the table."""
    monkeypatch.setattr(select, "LEAST_LISTED", 0)
    seen = {}
    for name in ("grid_l1", "grid_l1_of_occupied"):
        original = getattr(select, name)

        def spied(counter, model, cliques, thresholds, name=name, original=original):
            seen.setdefault(name, set()).update(cliques)
            return original(counter, model, cliques, thresholds)

        monkeypatch.setattr(select, name, spied)
    model = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    model.update((), np.array(float(rows)), 1.0)
    ready(skewed_rows(DOMAIN, 200, 0), model)
    few = {c for c in CANDIDATES if DOMAIN.size(c) > rows / select.ROWS_LISTED}
    assert seen.get("grid_l1_of_occupied") == few
    assert seen.get("grid_l1", set()) == set(CANDIDATES) - few


@pytest.mark.parametrize("most_formed", [select.MOST_FORMED, 3])
@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_moves_a_score_by_more_than_the_declared_sensitivity(
    rows, seed, most_formed, monkeypatch
):
    monkeypatch.setattr(select, "MOST_FORMED", most_formed)
    table = skewed_rows(DOMAIN, rows, seed)
    model = random_model(seed, downward_closure(CANDIDATES)[seed:], scale=1.0)

    def scored(table):
        return scores_of(ready(table, model), np.full(len(CANDIDATES), 0.7))

    before, sensitivity = scored(table)
    for row in every_row(DOMAIN):
        after, same = scored([*table, row])
        assert same == sensitivity
        assert max(abs(x - y) for x, y in zip(before, after)) <= sensitivity


def test_the_declared_sensitivity_is_attained():
    """Where the estimate is zero, a row moves the heaviest candidate's score by all of it."""
    empty = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    (before, sensitivity), (after, _) = (scores_of(ready(t, empty)) for t in ([], [(0, 0, 0)]))
    assert max(y - x for x, y in zip(before, after)) == sensitivity


def test_only_offered_candidates_are_chosen_and_weighed():
    selector = ready(COUNTER, random_model(0, [()]))
    offered = np.zeros(len(CANDIDATES), dtype=bool)
    offered[[1, 4]] = True
    mechanisms = Recorder(rho=10.0)
    chosen = {selector.select(mechanisms, NOTHING_EXPECTED, 0.01, offered) for _ in range(200)}
    # At ε = 0.01 both are near even: one never drawn has probability about 2 · 0.55^200.
    assert chosen == {CANDIDATES[1], CANDIDATES[4]}
    all_scores, largest = scores_of(selector)
    scores, sensitivity = scores_of(selector, offered=offered)
    assert scores == [all_scores[1], all_scores[4]]
    assert sensitivity < largest
    assert sensitivity / largest == pytest.approx(WEIGHTS[4] / max(WEIGHTS), abs=2**-9)


def test_the_best_candidate_wins_at_a_large_epsilon_and_an_eighth_of_its_square_is_charged():
    selector = Selector(COUNTER, CANDIDATES, [1.0] * len(CANDIDATES))
    model = random_model(5, downward_closure(CANDIDATES))
    selector.refresh(projected(model), None, ALL)
    errors = [np.abs(COUNTER.count(c) - projection(model, c)).sum() for c in CANDIDATES]
    chosen = selector.select(Recorder(rho=1e9), NOTHING_EXPECTED, 1e4, ALL)
    assert chosen == CANDIDATES[int(np.argmax(errors))]
    mechanisms = Recorder(rho=1.0)
    selector.select(mechanisms, NOTHING_EXPECTED, 0.25, ALL)
    assert [event.rho for event in mechanisms.budget.events] == [0.25**2 / 8]


def test_scores_do_not_depend_on_the_number_of_workers():
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 100, 0))
    model = random_model(1, downward_closure(CANDIDATES))
    single, double = (Selector(counter, CANDIDATES, WEIGHTS, workers) for workers in (1, 2))
    for selector in (single, double):
        assert selector.refresh(projected(model), None, ALL) == len(CANDIDATES)
    assert scores_of(single) == scores_of(double)


@pytest.mark.parametrize("huge", [1e12, 1e18, 1e300, np.inf])
def test_enormous_expected_errors_do_not_wrap_around(huge):
    """A wrapped product would turn the worst candidate into the best, and break the sensitivity."""
    selector = ready(COUNTER, random_model(0, [()]))
    expected = np.zeros(len(CANDIDATES))
    expected[-1] = huge
    scores, _ = scores_of(selector, expected)
    assert scores[-1] < 0
    assert scores[-1] == min(scores)


def test_enormous_estimates_do_not_wrap_around():
    """Low budgets on large marginals give estimates of this size from noise alone."""
    model = random_model(0, [(0, 1, 2)], scale=1e13)
    scores, sensitivity = scores_of(ready([(0, 0, 0)], model))
    assert min(scores) >= 0
    after, _ = scores_of(ready([(0, 0, 0), (1, 2, 3)], model))
    assert max(abs(x - y) for x, y in zip(scores, after)) <= sensitivity
