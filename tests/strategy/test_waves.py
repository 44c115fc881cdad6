"""Strategies by convolutions: their matrices, exact in integers, near the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.fixed_basis import solve_waves
from adaptive_qs.strategy.waves import ConvolutionFactor, frequencies, integer_wave, make_wave
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random
from adaptive_qs.workload.residuals import CenteredAxis, Subworkload, Term

both = pytest.mark.parametrize("reflected", [False, True])


def make_factor(size, reflected, bits=None):
    where, period = frequencies(size, reflected)
    waves = np.sin(np.pi * np.maximum(where, 0.2) / period)
    factor = make_wave(size, waves**-0.5, reflected)
    return factor if bits is None else integer_wave(factor, bits)


def one_axis(*queries):
    terms = tuple(Term(1.0, (CenteredAxis(asked),)) for asked in queries)
    return Subworkload(queries[0].shape, terms)


@both
@pytest.mark.parametrize("size", [5, 8, 33])
@pytest.mark.parametrize("bits", [None, 22, 40])
def test_a_factor_is_its_matrix(reflected, size, bits):
    factor = make_factor(size, reflected, bits)
    matrix = factor.matrix
    norms = (matrix**2).sum(axis=0)
    assert norms.max() == pytest.approx(1)
    if bits is None and size > 8:
        assert norms.min() > 0.995  # the privacy cost is the same for all cells
    inverse = np.linalg.pinv(matrix, rcond=1e-8)
    inverse -= inverse.mean(axis=0)
    np.testing.assert_allclose(inverse @ matrix, np.eye(size) - 1 / size, atol=1e-7)
    covariance = inverse @ inverse.T
    near = {"rtol": 1e-6, "atol": 1e-7 * abs(covariance).max()}
    np.testing.assert_allclose(factor.covariance, covariance, **near)
    np.testing.assert_allclose(factor.inverse, inverse, atol=1e-6)
    for queries in (Marginal(size), Prefix(size), Range(size), Circular(size), Random((size,))):
        expected = queries.squares(covariance)
        near["atol"] = 1e-6 * expected.max()
        np.testing.assert_allclose(factor.variances([queries]), expected, **near)
        assert factor.total(queries) == pytest.approx(expected.sum(), rel=1e-6)
        assert factor.largest_variance([queries]) == pytest.approx(expected.max())
        some = factor.run_variances(queries, 1, 4, lambda known=expected: known)
        np.testing.assert_allclose(some, expected[queries.in_runs(1, 4)], **near)


@pytest.mark.parametrize("bits", [14, 24])
def test_the_total_is_no_help_and_costs_next_to_nothing(bits):
    """Compare with a measurement of mean-free tables alone, with the same kernel and weights.

    τ is the length of the direction in which M sees the mean of a table. Halves of a unit lost to
    rounding, √n/2 in all, move the cost by at most √n/Δ. Each of them is mistaken for the total:
    (1/12)/τ² of the variances are expected, and at most 3 times that.
    """
    size = 60
    factor = make_factor(size, True, bits)
    matrix = factor.answers(np.eye(size, dtype=np.int64)).astype(float)
    mean = matrix.mean(axis=1, keepdims=True)
    alone, seen = matrix - mean, float((mean**2).sum())
    cost = float(factor.squared_norm) / float((alone**2).sum(axis=0).max())
    assert 2**-20 < seen / float(factor.squared_norm) < 2**-16
    assert abs(cost - 1) < 2**-16 + np.sqrt(size / float(factor.squared_norm))
    prefixes = Prefix(size)
    least = prefixes.squares(np.linalg.pinv(alone.T @ alone, rcond=1e-10, hermitian=True))
    found = factor.variances([prefixes]) / float(factor.squared_norm)
    assert (found[:-1] >= least[:-1] * (1 - 1e-7)).all()  # the last one is the total
    assert found.sum() < least.sum() * (1 + 1e-7 + 0.25 / seen)


@both
def test_integers_are_exact_up_to_the_last_row(reflected):
    """Against Python's integers, with as many rows in a cell as the bits leave room for."""
    factor = make_factor(20, reflected, 31)
    matrix = factor.answers(np.eye(20, dtype=np.int64)).astype(object)
    assert int(abs(matrix).max()) <= factor.largest <= 2**31
    assert int((matrix**2).sum(axis=0).max()) == factor.squared_norm
    counts = np.zeros((20, 2), dtype=np.int64)
    counts[3, 0] = counts[19, 1] = 2**30 - 1
    counts[0, 1] = 1
    assert (factor.answers(counts) == matrix @ counts.astype(object)).all()


def test_a_long_convolution_is_exact():
    """With kernel and counts of all their bits, at places that are added up by hand."""
    rng = np.random.default_rng(0)
    size, some = 100_000, [0, 1, 54_321, 99_999]
    factor = make_factor(size, True, 34)
    counts = rng.integers(0, 2**14, size)
    found = factor.answers(counts)
    whole = np.concatenate([factor.kernel, factor.kernel[-2:0:-1]])
    cells = np.arange(size)
    for place in some:
        row = whole[(place - cells) % (2 * size)] + whole[(place + cells + 1) % (2 * size)]
        row = (row * factor.scales - factor.offset[place]).astype(object)
        assert found[place] == int(row @ counts.astype(object))


def test_too_few_bits_are_refused():
    with pytest.raises(ResourceExceeded, match="5,000 ordered values"):
        make_factor(5_000, True, 8)


@pytest.mark.parametrize("size", [1_600, 10_000])
def test_long_axes_are_near_the_singular_value_bound(size):
    for queries, most in ((Prefix(size), 1.02), (Range(size), 1.0001)):
        found = solve_waves(one_axis(queries))
        assert found.lower_bound <= found.objective < most * found.lower_bound
    mixed = solve_waves(one_axis(Prefix(size), Marginal(size)))
    assert isinstance(mixed.strategy.factors[0], ConvolutionFactor)
    assert mixed.gap < 0.2  # against the sum of two optima


def test_short_axes_and_other_queries_are_left_to_the_solvers():
    assert solve_waves(one_axis(Prefix(1_000))) is None
    assert solve_waves(one_axis(Random((2_000,), count=3))) is None
