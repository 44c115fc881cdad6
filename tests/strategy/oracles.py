"""Slow, obvious definitions that every solver is held against."""

from __future__ import annotations

from functools import lru_cache

import cvxpy as cp
import numpy as np


def center(n):
    return np.eye(n) - 1 / n


def prefix(n):
    return np.tril(np.ones((n, n)))


def ranges(n):
    return np.array(
        [(np.arange(n) >= a) & (np.arange(n) <= b) for a in range(n) for b in range(a, n)]
    )


def levels(n, value):
    """Rows value(a, b) ≤ c over an n × n table, for every c that occurs."""
    table = value(*np.indices((n, n))).ravel()
    return np.array([table <= c for c in np.unique(table)])


def affine(n):
    return levels(n, lambda a, b: a + b)


def absdiff(n):
    return levels(n, lambda a, b: abs(a - b))


def centered(rows, *sizes):
    """Rows without their means along every axis."""
    projection = np.ones((1, 1))
    for n in sizes:
        projection = np.kron(projection, center(n))
    return rows.astype(float) @ projection


def problems():
    """Queries W (m, N) and a shape, by name: of full rank and not, symmetric and not."""
    rng = np.random.default_rng(20)
    product = np.kron(centered(prefix(4), 4), centered(prefix(4), 4))
    unused = rng.normal(size=(9, 8))
    unused[:, 3] = 0
    return {
        "random": (rng.normal(size=(14, 9)), (9,)),
        "random few rows": (rng.normal(size=(4, 12)), (12,)),
        "random 0/1": ((rng.random((6, 12)) < 0.3).astype(float), (3, 4)),
        "unequal weights": (10 ** rng.uniform(-2, 2, (10, 1)) * rng.normal(size=(10, 8)), (8,)),
        "a cell in no query": (unused, (8,)),
        "dependent rows": (np.repeat(rng.normal(size=(3, 8)), 2, axis=0), (2, 4)),
        "prefix": (prefix(10), (10,)),
        "range": (ranges(8).astype(float), (8,)),
        "centered prefix": (centered(prefix(10), 10), (10,)),
        "centered range": (centered(ranges(9), 9), (9,)),
        "affine": (centered(affine(5), 5, 5), (5, 5)),
        "absdiff": (centered(absdiff(5), 5, 5), (5, 5)),
        "affine and prefix": (np.concatenate([centered(affine(4), 4, 4), product]), (4, 4)),
        "one query": (np.array([[1.0, 1.0, 0.0, 2.0]]), (4,)),
    }


PROBLEMS = problems()


def strategy_matrix(strategy):
    matrix = np.ones((1, 1))
    for factor in strategy.factors:
        matrix = np.kron(matrix, factor.matrix)
    return matrix


def total_error(gram, matrix):
    """tr(G V⁺) by the singular value decomposition of the strategy alone."""
    inverse = np.linalg.pinv(matrix, rcond=1e-12)
    return float(np.trace(gram @ inverse @ inverse.T))


def unanswered(gram, matrix):
    """‖G − G V⁺V‖ / ‖G‖: what of the queries lies outside the strategy's range."""
    projector = np.linalg.pinv(matrix, rcond=1e-12) @ matrix
    return np.linalg.norm(gram - gram @ projector) / np.linalg.norm(gram)


@lru_cache
def optimum(name):
    """min tr(G V⁺) of a problem, by Clarabel on tr(W V⁺ Wᵀ) itself, V within the rows' space."""
    rows, _ = PROBLEMS[name]
    singular, vectors = np.linalg.svd(rows, full_matrices=False)[1:]
    keep = singular > 1e-10 * singular[0]
    basis, scale = vectors[keep].T, singular[0]
    inner = np.diag(singular[keep] / scale)
    z, a = (cp.Variable(inner.shape, symmetric=True) for _ in range(2))
    block = cp.bmat([[z, inner], [inner.T, a]])
    constraints = [block >> 0, cp.diag(basis @ a @ basis.T) <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(z)), constraints)
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return float(problem.value) * scale**2
