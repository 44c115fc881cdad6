"""Every solver of the unrestricted problem, on every small problem, against slow definitions."""

from dataclasses import dataclass

import numpy as np
import pytest

from adaptive_qs.strategy.certified.conic import solve_conic
from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.certified.lowrank import solve_rows
from adaptive_qs.strategy.certified.solve import solve
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.subworkload import Subworkload, Term

from .oracles import PROBLEMS, optimum, strategy_matrix, total_error, unanswered

CLARABEL = 2e-6
"""Relative error of the oracle: Clarabel stops at 1e-8 of the scaled problem, and its optimum is
approached from either side; the worst disagreement with the certified bounds was 4e-7."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """Queries by their matrix, as a solver sees them."""

    queries: np.ndarray
    shape: tuple[int, ...]

    def gram(self):
        return self.queries.T @ self.queries

    def rows(self):
        return self.queries if len(self.queries) < self.queries.shape[1] else None


def dense(rows, shape, settings):
    return solve_dense(rows.T @ rows, shape, settings)


def by_rows(rows, shape, settings):
    return solve_rows(rows, np.ones(len(rows)), shape, settings)


def weighted_rows(rows, shape, settings):
    return solve_rows(rows / 2, np.full(len(rows), 4.0), shape, settings)


def conic(rows, shape, settings):
    return solve_conic(rows.T @ rows, shape, settings)


def automatic(rows, shape, settings):
    return solve(Subworkload(shape, (Term(1.0, (Matrix(rows, shape),)),)), settings)


ITERATIVE = [dense, by_rows, weighted_rows, automatic]


@pytest.fixture(params=PROBLEMS)
def name(request):
    return request.param


@pytest.mark.parametrize("solver", [*ITERATIVE, conic])
def test_solution_is_feasible_and_its_evidence_is_true(solver, name):
    rows, shape = PROBLEMS[name]
    settings = SolverSettings(gap=1e-4)
    solution = solver(rows, shape, settings)
    gram = rows.T @ rows
    matrix = strategy_matrix(solution.strategy)
    assert solution.strategy.shape == shape
    assert (matrix * matrix).sum(axis=0).max() == pytest.approx(1, abs=1e-9)
    assert unanswered(gram, matrix) < 1e-8
    assert solution.objective == pytest.approx(total_error(gram, matrix), rel=1e-7)
    assert solution.status == Status.OPTIMAL
    assert 0 <= solution.gap <= settings.gap
    best = optimum(name)
    assert solution.lower_bound <= best * (1 + CLARABEL)
    assert solution.objective >= best * (1 - CLARABEL)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_one_iteration_stops_with_an_honest_gap(solver, name):
    rows, shape = PROBLEMS[name]
    settings = SolverSettings(gap=1e-9, max_iterations=1)
    solution = solver(rows, shape, settings)
    matrix = strategy_matrix(solution.strategy)
    best = optimum(name)
    assert solution.iterations == 1
    assert solution.status == Status.STOPPED
    assert solution.gap > settings.gap
    assert solution.objective == pytest.approx(total_error(rows.T @ rows, matrix), rel=1e-7)
    assert solution.lower_bound <= best * (1 + CLARABEL)
    assert solution.objective >= best * (1 - CLARABEL)


@pytest.mark.parametrize("solver", [*ITERATIVE, conic])
def test_inverse_and_covariance_belong_to_the_matrix(solver, name):
    rows, shape = PROBLEMS[name]
    (factor,) = solver(rows, shape, SolverSettings()).strategy.factors
    inverse = np.linalg.pinv(factor.matrix, rcond=1e-12)
    scale = np.abs(inverse).max()
    np.testing.assert_allclose(factor.inverse, inverse, rtol=0, atol=1e-7 * scale)
    np.testing.assert_allclose(factor.covariance, inverse @ inverse.T, rtol=0, atol=1e-7 * scale**2)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_a_tighter_gap_is_reached_when_asked_for(solver):
    rows, shape = PROBLEMS["centered prefix"]
    solution = solver(rows, shape, SolverSettings(gap=1e-7))
    assert solution.status == Status.OPTIMAL
    assert solution.gap <= 1e-7
