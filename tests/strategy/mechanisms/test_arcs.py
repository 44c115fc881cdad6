"""Arcs under circulant noise: equal to the covariance matrix, without it."""

import numpy as np
import pytest

from adaptive_qs.strategy.matrix import CenteringFactor, DenseFactor
from adaptive_qs.strategy.mechanisms.arcs import arc_lengths, arc_variances
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.random_queries import Random

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
    by_length = arc_variances(factor)
    expected = queries.squares(factor.covariance)
    found = by_length[queries.sums().astype(int)]
    np.testing.assert_allclose(found, expected, atol=1e-12 * expected.max())
    assert set(arc_lengths(queries).tolist()) == set(queries.sums().astype(int).tolist())


def test_other_families_and_covariances_are_left_alone():
    assert arc_lengths(Random((5,), seed=1)) is None
    assert arc_variances(DenseFactor(np.eye(4), (4,))) is None
    assert arc_variances(FourierFactor((2, 2), np.array([[0.0, 0.0], [0.0, 4.0]]))) is None


def test_a_large_axis_takes_no_matrix():
    by_length = arc_variances(fourier(100_000))
    assert by_length.shape == (100_001,)
    assert by_length[0] == 0
    assert by_length[-1] < 1e-9 * by_length.max()  # the whole circle is the total: no residual
