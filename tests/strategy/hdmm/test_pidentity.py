"""OPT_0 for Laplace noise against dense inverses, finite differences and published errors."""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from adaptive_qs.strategy.hdmm import pidentity
from adaptive_qs.strategy.hdmm.noise import Noise
from adaptive_qs.strategy.hdmm.pidentity import (
    PIdentity,
    default_rows,
    error_and_gradient,
    optimize_p_identity,
)
from adaptive_qs.workload.axis_queries import Prefix, Range


@pytest.mark.parametrize(("rows", "cells"), [(1, 1), (1, 6), (3, 6), (7, 5)])
def test_the_woodbury_error_is_the_trace_of_the_dense_inverse(rows, cells):
    rng = np.random.default_rng(rows)
    strategy = PIdentity(rng.random((rows, cells)) * rng.integers(0, 2, (rows, cells)))
    queries = rng.normal(size=(9, cells))
    a = strategy.matrix
    inverse = np.linalg.inv(a.T @ a)
    assert a.shape == (cells + rows, cells)
    np.testing.assert_allclose(np.abs(a).sum(axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(strategy.covariance, inverse, rtol=1e-9, atol=1e-9)
    error, _ = error_and_gradient(strategy.weights, queries.T @ queries)
    assert error == pytest.approx(np.trace(queries.T @ queries @ inverse), rel=1e-12)


@pytest.mark.parametrize(("rows", "cells"), [(1, 4), (3, 8)])
def test_the_gradient_is_the_slope_of_the_error(rows, cells):
    gram = Prefix(cells).gram()

    def error(flat):
        return error_and_gradient(flat.reshape(rows, cells), gram)[0]

    def gradient(flat):
        return error_and_gradient(flat.reshape(rows, cells), gram)[1].ravel()

    point = np.random.default_rng(0).random(rows * cells)
    # Forward differences of step h err by about h |f''| / 2 per entry; h = 1.5e-8, f'' < 1e3.
    assert check_grad(error, gradient, point) < 1e-3
    assert np.abs(gradient(point)).max() > 0.1


@pytest.mark.parametrize(
    ("queries", "published"), [(Range(64), 5.55), (Prefix(64), 5.32)], ids=["range", "prefix"]
)
def test_published_errors_are_reached_from_any_seed(queries, published):
    rows = default_rows(queries.size)
    found = optimize_p_identity(queries.gram(), rows, np.random.default_rng(3), restarts=2)
    error = Noise.LAPLACE.unit_variance * np.vdot(queries.gram(), found.covariance)
    assert math.sqrt(error / queries.num_queries) < 1.01 * published
    assert (found.weights >= 0).all()


def test_a_search_from_a_good_start_does_not_end_above_it():
    gram = Range(20).gram()
    good = optimize_p_identity(gram, 2, np.random.default_rng(0), restarts=3)
    poor = optimize_p_identity(gram, 2, np.random.default_rng(1), 1, 1, start=good.weights)
    assert np.vdot(gram, poor.covariance) <= np.vdot(gram, good.covariance) * (1 + 1e-12)


def test_a_coarse_start_saves_iterations(monkeypatch):
    monkeypatch.setattr(pidentity, "COARSE_FROM", 400)
    gram, rows = Prefix(403).gram(), default_rows(403)
    coarse, _ = pidentity.first_weights(gram, rows, np.random.default_rng(0), 300)
    plain = pidentity.windows(rows, 403, np.random.default_rng(0))
    assert coarse.shape == plain.shape
    assert coarse.min() >= 0
    errors = [
        np.vdot(gram, optimize_p_identity(gram, rows, None, 0, 20, start).covariance)
        for start in (coarse, plain)
    ]
    assert errors[0] < 0.95 * errors[1]


def test_more_rows_than_cells_and_a_single_cell_work():
    found = optimize_p_identity(np.array([[3.0]]), 2, np.random.default_rng(0))
    # One cell: everything measures it; A has L1 norm 1 and L2 norm ≤ 1, best where one row has all.
    assert 1 <= found.covariance[0, 0] < 1.01
