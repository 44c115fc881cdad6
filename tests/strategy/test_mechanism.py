"""Arcs under circulant noise: equal to the covariance matrix, without it."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.strategy import solution as squares
from adaptive_qs.strategy.bounds import FourierFactor
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.mechanism import joint_squares, solve_full
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    IdentityFactor,
    SolverSettings,
)
from adaptive_qs.workload.axes import Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random, squares_product
from adaptive_qs.workload.matrices import Custom, CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

FAMILIES = [Marginal, Prefix, Range, Circular]


def fourier(n):
    f = np.minimum(np.arange(n), n - np.arange(n))
    h = np.where(f > 0, 1 / np.maximum(f, 1), 0.0)
    return FourierFactor((n,), h * n / h.sum())


@pytest.mark.parametrize("make", [CenteringFactor, fourier])
@pytest.mark.parametrize("n", [2, 3, 8, 13])
@pytest.mark.parametrize("family", FAMILIES)
def test_variances_by_length_are_those_of_the_covariance(family, n, make):
    queries, factor = family(n), make(n)
    by_length = factor.arc_variances(Range(factor.shape[0]))
    expected = queries.squares(factor.covariance)
    found = by_length[queries.sums().astype(int)]
    np.testing.assert_allclose(found, expected, atol=1e-12 * expected.max())
    assert set(queries.arc_lengths().tolist()) == set(queries.sums().astype(int).tolist())


def test_other_families_and_covariances_are_left_alone():
    assert Random((5,), seed=1).arc_lengths() is None
    assert DenseFactor(np.eye(4), (4,)).arc_variances(Range(4)) is None
    assert FourierFactor((2, 2), np.array([[0.0, 0.0], [0.0, 4.0]])).arc_variances(Range(2)) is None


def test_a_large_axis_takes_no_matrix():
    by_length = fourier(100_000).arc_variances(Range(100_000))
    assert by_length.shape == (100_001,)
    assert by_length[0] == 0
    assert by_length[-1] < 1e-9 * by_length.max()  # the whole circle is the total: no residual


# Variances of queries: exact where the covariance is ill-conditioned, and fast elsewhere.

RNG = np.random.default_rng(0)
NEARLY_SINGULAR = np.tril(np.ones((12, 12))) * 10.0 ** np.arange(-11, 1)[:, None]
"""Short prefixes measured with factors from 1e-11: (BᵀB)⁻¹ has entries to 1e22, totals do not."""
SQUARES_FAMILIES = {
    "prefix": (Prefix(12),),
    "range": (Range(12),),
    "circular": (Circular(12),),
    "custom": (CustomAxis(RNG.normal(size=(5, 12))),),
    "pair": (Prefix(3), Range(4)),
    "sum": (None, Range(4)),
    "custom pair": (CustomAxis(RNG.normal(size=(5, 3))), CustomAxis(RNG.normal(size=(2, 4)))),
}


def rows_of(queries, shape):
    each = [np.ones((1, n)) if q is None else q.matrix() for q, n in zip(queries, shape)]
    return reduce(np.kron, each)


def exact_inverse(matrix):
    """Of a square matrix, in fractions by Gauss and Jordan."""
    n = len(matrix)
    rows = [
        [Fraction(x) for x in row] + [Fraction(int(i == j)) for j in range(n)]
        for i, row in enumerate(matrix.tolist())
    ]
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(n):
            if i != k and rows[i][k]:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k])]
    return [row[n:] for row in rows]


def exact_squares(rows, inverse):
    found = []
    for row in rows.tolist():
        image = [sum(Fraction(q) * b[j] for q, b in zip(row, inverse)) for j in range(len(inverse))]
        found.append(float(sum(x * x for x in image)))
    return np.array(found)


@pytest.mark.parametrize("case", SQUARES_FAMILIES)
@pytest.mark.parametrize("strategy", ["easy", "hard"])
def test_factors_of_any_condition(case, strategy):
    """Against fractions; the inverse of a triangle is as exact as the strategy itself."""
    queries = SQUARES_FAMILIES[case]
    shape = (12,) if len(queries) == 1 else (3, 4)
    matrix = NEARLY_SINGULAR if strategy == "hard" else np.tril(np.ones((12, 12)))
    factor = DenseFactor(matrix, shape)
    exact = exact_inverse(factor.matrix)
    inverse = np.array(exact, dtype=float)
    # Singular values are exact to 1e-16 of the largest only: hand the exact inverse over.
    factor.__dict__["inverse"] = inverse
    found = factor.variances(queries).reshape(-1)
    rows = rows_of(queries, shape)
    np.testing.assert_allclose(found, exact_squares(rows, exact), rtol=1e-9)
    fast = squares_product(queries, factor.covariance.reshape(shape + shape)).reshape(-1)
    if strategy == "hard" and case in ("prefix", "range"):
        assert not np.allclose(fast, found, rtol=1e-3)  # what this is for


@pytest.mark.parametrize("step", [1, 7, 2**23])
@pytest.mark.parametrize("family", [Custom(RNG.normal(size=(6, 8)), (2, 4)), Affine(2, 4)])
@pytest.mark.parametrize("hard", [False, True])
def test_joint_families_on_any_axes(family, step, hard, monkeypatch):
    monkeypatch.setattr(squares, "BLOCK", step)
    scale = 10.0 ** -np.arange(6) if hard else np.ones(6)
    factors = [
        DenseFactor(np.tril(np.ones((6, 6))) * scale[:, None], (2, 3)),
        DenseFactor(np.eye(4) + 0.1, (4,)),
        IdentityFactor(5),
    ]
    found = joint_squares(family, (0, 2), factors)
    inverse = reduce(np.kron, [factor.inverse for factor in factors])
    rows = np.einsum("qac,b,d->qabcd", family.matrix().reshape(-1, 2, 4), np.ones(3), np.ones(5))
    exact = ((rows.reshape(len(rows), -1) @ inverse) ** 2).sum(axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-6 if hard else 1e-10)


@pytest.mark.parametrize("cells", [64, 1024])
def test_ordinary_strategies_take_the_fast_way(cells, monkeypatch):
    monkeypatch.setattr(squares, "root_squares", None)
    tree = np.vstack([np.kron(np.eye(2**k), np.ones(cells >> k)) for k in range(7)])
    factor = DenseFactor(np.vstack([tree, np.eye(cells)]), (cells,))
    for family in (Prefix(cells), Range(cells)):
        assert factor.variances((family,)).min() >= 1


@pytest.mark.parametrize("tiny", [1e-9, 1e-3, 1])
@pytest.mark.parametrize("bits", [10, 20, 30])
def test_custom_queries_of_any_size_have_a_noise(tiny, bits):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = rng.uniform(-1, 1, size=(3, 10)) * np.array([[1e9], [tiny], [tiny]])
        part = QueryPart(np.array([[0]], np.int32), {0: CustomAxis(rows)}, None, np.ones(1))
        workload = QueryWorkload(Domain.from_sizes({"a": 10}), (part,))
        planned = [solve_full(workload, SolverSettings())]
        planned += [choose_mechanism(workload, name).mechanism for name in ("identity", "hdmm")]
        for mechanism in planned:
            for found in (mechanism, mechanism.on_grid(bits)):
                variances = found.variances(0, 0)
                assert np.isfinite(variances).all()
                assert (variances > 0).all()
                assert found.total_error == pytest.approx(variances.sum(), rel=1e-9)
