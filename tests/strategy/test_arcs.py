"""Arcs of a circle of cells beside others: matrices, the optimum, and integers."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.arcs import solve_arcs
from adaptive_qs.strategy.bounds import known_eigenvalues
from adaptive_qs.strategy.fixed_point import solve_dense
from adaptive_qs.strategy.mechanism import block_figures, block_squares, largest_bias, run_squares
from adaptive_qs.strategy.solution import SolverSettings
from adaptive_qs.workload.axes import Circular, FirstCells, Marginal, Prefix
from adaptive_qs.workload.residuals import CenteredAxis

SIZES = [(2, 1), (5, 1), (8, 3), (33, 2), (6, 9)]


def arcs(cells, beside):
    return FirstCells(cells + beside, Circular(cells))


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize(("cells", "beside"), SIZES)
@pytest.mark.parametrize("bits", [None, 14, 24])
def test_a_factor_is_its_matrix(cells, beside, centered, bits):
    queries = arcs(cells, beside)
    factor, objective = solve_arcs(queries, centered)
    if bits is not None:
        factor = factor.in_integers(bits)
    matrix = factor.matrix
    assert (matrix**2).sum(axis=0).max() == pytest.approx(1)
    if centered:
        np.testing.assert_allclose(matrix.sum(axis=1), 0, atol=1e-12)
    inverse = np.linalg.pinv(matrix, rcond=1e-9)
    covariance = inverse @ inverse.T
    np.testing.assert_allclose(factor.inverse, inverse, atol=1e-7)
    np.testing.assert_allclose(factor.covariance, covariance, atol=1e-7)
    expected = queries.squares(covariance)
    np.testing.assert_allclose(factor.variances(queries), expected, rtol=1e-7)
    np.testing.assert_allclose(block_squares([queries], factor), expected, rtol=1e-7)
    figures = expected.sum(), expected.max(), True
    assert block_figures([queries], factor, lambda: expected) == pytest.approx(figures)
    some = run_squares(queries, factor, 1, 2, lambda: expected)
    np.testing.assert_allclose(some, expected[queries.in_runs(1, 2)], rtol=1e-7)
    assert factor.total(queries) == pytest.approx(objective, rel=1e-7 if bits is None else 0.1)
    others = FirstCells(queries.size, Prefix(cells))
    np.testing.assert_allclose(factor.variances(others), others.squares(covariance), atol=1e-7)
    if not centered:
        assert largest_bias([queries], (0,), [factor]) < 1e-9
        assert largest_bias([Marginal(queries.size)], (0,), [factor]) == 1


@pytest.mark.parametrize(("cells", "beside"), SIZES)
def test_no_solver_finds_a_better_strategy(cells, beside):
    queries, settings = arcs(cells, beside), SolverSettings(gap=1e-6)
    for centered, gram in ((True, CenteredAxis(queries).gram()), (False, queries.gram())):
        if not centered:  # a dense solver knows no cells that nobody asks about
            gram = gram[:cells, :cells]
        _, objective = solve_arcs(queries, centered)
        optimum = solve_dense(gram, (len(gram),), settings)
        assert optimum.lower_bound * (1 - 1e-9) <= objective <= optimum.objective * (1 + 1e-9)
    values = np.linalg.eigvalsh(CenteredAxis(queries).gram())[1:]
    found = known_eigenvalues(CenteredAxis(queries))
    np.testing.assert_allclose(np.sort(found), values, atol=1e-8 * values.max())


@pytest.mark.parametrize("centered", [False, True])
def test_integers_are_exact_and_near(centered):
    queries = arcs(2_000, 3)
    factor, objective = solve_arcs(queries, centered)
    found = factor.in_integers(24)
    matrix = found.answers(np.eye(found.size, dtype=np.int64))
    assert int(abs(matrix).max()) <= found.largest < 2**28
    assert int((matrix.astype(object) ** 2).sum(axis=0).max()) == found.squared_norm
    if centered:
        assert not matrix.sum(axis=1).any()
    assert 1 - 1e-9 < found.total(queries) / objective < 1.01
    assert found.digest != solve_arcs(arcs(2_000, 2), centered)[0].in_integers(24).digest
    table = np.zeros((found.size, 2), dtype=np.int64)
    table[3, 0] = table[-1, 1] = 2**30
    assert (found.answers(table) == matrix @ table).all()


def test_other_queries_and_too_few_bits():
    assert solve_arcs(Circular(9), True) is None
    assert solve_arcs(FirstCells(9, Prefix(8)), True) is None
    with pytest.raises(ResourceExceeded, match="5,001 ordered values"):
        solve_arcs(arcs(5_000, 1), True)[0].in_integers(9)
