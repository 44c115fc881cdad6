"""Projected estimates and the errors expected of measuring them, against simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from adaptive_qs.generate.targets import project_to_simplex
from adaptive_qs.loop import expected as module
from adaptive_qs.loop.estimates import projected_distance
from adaptive_qs.loop.expected import CellSizeHistogram, ErrorCurves, ProjectedEstimates
from adaptive_qs.residual import ReferenceModel, decompose

from .helpers import centered, counter_of, domain_of, skewed_rows

ROWS = 50_000.0


def zipf(cells, exponent=1.2):
    share = np.arange(1.0, cells + 1) ** -exponent
    return ROWS * share / share.sum()


TRUTHS = {
    "even": np.full(400, ROWS / 400),
    "long tail": zipf(4000),
    "mostly empty": np.concatenate([zipf(60), np.zeros(3000)]),
    "one cell has all": np.concatenate([[ROWS], np.zeros(99)]),
    "two cells": np.array([0.3 * ROWS, 0.7 * ROWS]),
}


def simulated(truth, std, runs=40):
    """Mean L1 distance after noise and projection, and its standard error."""
    rng = np.random.default_rng(0)
    total = truth.sum()
    found = [
        np.abs(project_to_simplex(truth + rng.normal(scale=std, size=truth.size), total) - truth)
        for _ in range(runs)
    ]
    errors = [float(distance.sum()) for distance in found]
    return np.mean(errors), np.std(errors) / np.sqrt(runs)


def expected(truth, std):
    """By the curve of a candidate whose current estimate is the truth."""
    curves = ErrorCurves(1, ROWS)
    row = np.array([0])
    curves.take(row, CellSizeHistogram.of(truth).errors(ROWS, curves.stds)[None])
    return float(curves.at(np.array([std]), row)[0])


@pytest.mark.parametrize("std", [1.0, 11.0, 130.0, 1500.0, 10_000.0])
@pytest.mark.parametrize("name", ["even", "long tail", "mostly empty"])
def test_the_expected_error_is_that_of_a_simulation(name, std):
    """Within 1 % for sizes in half octaves, 1 % for noise between octaves, and four standard
    errors of the simulation (false alarm 6e-5 each); half a per cent for the fluctuation of the
    threshold, which the formula takes at its mean."""
    found, error = simulated(TRUTHS[name], std)
    assert expected(TRUTHS[name], std) == pytest.approx(found, rel=0.025, abs=4 * error)


@pytest.mark.parametrize("std", [1.0, 200.0])
@pytest.mark.parametrize("name", ["one cell has all", "two cells"])
def test_of_few_cells_it_is_right_within_a_factor(name, std):
    """A threshold of few cells follows their noise, so its mean says less: √2 for two cells."""
    found, _ = simulated(TRUTHS[name], std, 2000)
    assert found / 1.5 < expected(TRUTHS[name], std) < 1.5 * found


def test_it_is_far_below_the_error_without_projection_where_most_cells_are_empty():
    truth = TRUTHS["mostly empty"]
    assert expected(truth, 100.0) < 0.2 * np.sqrt(2 / np.pi) * 100.0 * truth.size


def test_it_grows_with_the_noise_up_to_twice_the_rows():
    for truth in TRUTHS.values():
        errors = [expected(truth, std) for std in 2.0 ** np.arange(-20, 40)]
        assert errors == sorted(errors)
        assert 0 < errors[0] < 1e-2
        assert errors[-1] <= 2 * ROWS * (1 + 1e-6)
    assert expected(truth, 0.0) == 0


DOMAIN = domain_of(3, 4, 2, 6, 1)
CANDIDATES = [c for k in (1, 2, 3, 4) for c in combinations(range(4), k)]


def noisy_model(seed, measured, scale=40.0):
    """Residuals of a table, measured with noise; reference and total are those of the table."""
    rng = np.random.default_rng(seed)
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 500, seed))
    reference = [rng.dirichlet(np.ones(n)) * 0.9 + 0.1 / n for n in DOMAIN.sizes]
    model = ReferenceModel(DOMAIN, reference)
    for tau in measured:
        noise = centered(rng.normal(scale=scale, size=DOMAIN.shape(tau)))
        model.update(tau, decompose(counter.count(tau), tau, tau) + noise, scale**-2)
    return model


MEASURED = [(), (0,), (1,), (3,), (0, 1), (1, 3), (0, 1, 3), (0, 1, 2, 3)]
EVERY = np.ones(len(CANDIDATES), dtype=bool)


@pytest.mark.parametrize("seed", range(4))
def test_thresholds_are_those_of_the_projection_onto_the_simplex(seed):
    model = noisy_model(seed, MEASURED[: 2 * seed + 2])
    estimates = ProjectedEstimates(DOMAIN, CANDIDATES)
    estimates.refresh(model, EVERY)
    for clique, threshold in zip(CANDIDATES, estimates.thresholds):
        cells = model.marginal(clique)
        projected = project_to_simplex(cells, model.total)
        np.testing.assert_allclose(np.maximum(cells - threshold, 0), projected, atol=1e-5)


def test_errors_of_formed_candidates_are_those_of_their_projected_cells():
    model = noisy_model(1, MEASURED)
    estimates = ProjectedEstimates(DOMAIN, CANDIDATES)
    estimates.refresh(model, EVERY)
    for row, clique in enumerate(CANDIDATES):
        cells = project_to_simplex(model.marginal(clique), model.total)
        stds = estimates.curves.stds
        found = estimates.curves.at(stds, np.full(stds.size, row))
        # Mantissas are cut at 1.5 here and at √2 there, so that cells are grouped differently.
        np.testing.assert_allclose(
            found, CellSizeHistogram.of(cells).errors(model.total, stds), rtol=0.02
        )


def test_only_stale_candidates_change_and_they_change_as_if_all_did():
    first, second = noisy_model(1, MEASURED[:4]), noisy_model(1, MEASURED)
    estimates, fresh = (ProjectedEstimates(DOMAIN, CANDIDATES, workers) for workers in (1, 2))
    estimates.refresh(first, EVERY)
    before = estimates.thresholds.copy()
    stale = np.array([len(c) > 1 for c in CANDIDATES])
    estimates.refresh(second, stale)
    fresh.refresh(second, EVERY)
    np.testing.assert_array_equal(estimates.thresholds[stale], fresh.thresholds[stale])
    np.testing.assert_array_equal(estimates.thresholds[~stale], before[~stale])
    std, rows = np.full(stale.sum(), 3.0), np.flatnonzero(stale)
    np.testing.assert_array_equal(estimates.curves.at(std, rows), fresh.curves.at(std, rows))


def test_large_unmeasured_candidates_take_the_sizes_of_a_product(monkeypatch):
    """Of independent columns, and of a measured pair and a column, the sizes are exact."""
    model = noisy_model(0, MEASURED[:6], scale=0.01)
    exact = ProjectedEstimates(DOMAIN, CANDIDATES)
    exact.refresh(model, EVERY)
    monkeypatch.setattr(module, "ALL_FORMED", 1)
    monkeypatch.setattr(module, "MOST_FORMED", 1)
    monkeypatch.setattr(module, "MOST_OF_PAIR", 1)
    product = ProjectedEstimates(DOMAIN, CANDIDATES)
    product.refresh(model, EVERY)
    for clique in [(0, 2), (2, 3), (0, 3), (0, 1, 2)]:
        row = np.array([CANDIDATES.index(clique)])
        assert product.thresholds[row] == 0
        for std in (0.5, 8.0, 100.0):
            first, second = (e.curves.at(np.array([std]), row)[0] for e in (exact, product))
            assert second == pytest.approx(first, rel=0.15)
    measured = CANDIDATES.index((0, 1))
    assert product.thresholds[measured] == exact.thresholds[measured]


def test_the_distance_of_two_estimates_is_that_of_their_projections():
    first, second = np.array([9.0, 3.0, -4.0]), np.array([2.0, 2.0, 4.0])
    assert projected_distance(first, second, 8.0) == pytest.approx(
        np.abs(np.array([7.0, 1.0, 0.0]) - second).sum()
    )
