"""The singular value bound and the closed forms of spectra against dense matrices."""

import cvxpy as cp
import numpy as np
import pytest

from adaptive_qs.strategy import bounds
from adaptive_qs.strategy.bounds import (
    gram_trace,
    known_eigenvalues,
    known_fourier_diagonal,
    known_gram_eigenvalues,
    svd_bound,
)
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.residuals import Subworkload

from .problems import ALL, JOINTS, PRODUCTS, axis

FAMILIES = (Marginal, Prefix, Range, Circular)


def dense_bound(subworkload):
    eigenvalues = np.linalg.eigvalsh(subworkload.gram())
    return np.sqrt(eigenvalues[eigenvalues > 1e-10]).sum() ** 2 / subworkload.cells


@pytest.mark.parametrize("name", ALL)
def test_the_bound_is_that_of_the_dense_matrix(name):
    assert svd_bound(ALL[name]) == pytest.approx(dense_bound(ALL[name]), rel=1e-9)


def test_terms_are_bounded_one_by_one_where_the_sum_is_too_large(monkeypatch):
    subworkload = JOINTS["joint and product"]
    whole = svd_bound(subworkload)
    monkeypatch.setattr(bounds, "DENSE_CELLS", 8)
    parts = [svd_bound(Subworkload(subworkload.shape, (term,))) for term in subworkload.terms]
    assert svd_bound(subworkload) == pytest.approx(sum(parts), rel=1e-12)
    assert 0.5 * whole < sum(parts) < whole


@pytest.mark.parametrize("name", ["prefix", "custom", "range x prefix"])
def test_no_strategy_beats_the_bound(name):
    """The optimum by CVXPY: tr(G V⁻¹) as the trace of a Schur complement."""
    gram = PRODUCTS[name].gram()
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-10
    q, root = vectors[:, kept], np.sqrt(values[kept])
    inner = cp.Variable((len(root), len(root)), symmetric=True)  # V = q inner qᵀ
    errors = cp.Variable((len(root), len(root)), symmetric=True)
    block = cp.bmat([[errors, np.diag(root)], [np.diag(root), inner]])
    problem = cp.Problem(cp.Minimize(cp.trace(errors)), [block >> 0, cp.diag(q @ inner @ q.T) <= 1])
    problem.solve(solver=cp.CLARABEL)
    bound = svd_bound(PRODUCTS[name])
    assert 0.7 * problem.value < bound < problem.value * (1 + 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10])
def test_closed_forms_of_centered_spectra(family, size):
    part = axis(family, size)
    gram = part.gram()
    scale = max(1.0, np.abs(gram).max())
    expected = np.linalg.eigvalsh(gram)[1:]
    np.testing.assert_allclose(np.sort(known_eigenvalues(part)), expected, atol=1e-12 * scale)
    waves = np.fft.fft(np.eye(size)) / np.sqrt(size)
    diagonal = np.diag(waves.conj().T @ gram @ waves).real
    np.testing.assert_allclose(known_fourier_diagonal(part), diagonal, atol=1e-12 * scale)
    assert gram_trace(part) == pytest.approx(np.trace(gram), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10])
def test_closed_forms_of_spectra(family, size):
    expected = np.linalg.eigvalsh(family(size).gram())
    found = np.sort(known_gram_eigenvalues(family(size)))
    np.testing.assert_allclose(found, expected, atol=1e-12 * expected[-1])
