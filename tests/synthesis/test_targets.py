import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq

from adaptive_qs.residual.model import ReferenceModel, uniform_reference
from adaptive_qs.residual.variance import variance_weight
from adaptive_qs.synthesis.targets import make_target, maximal_cliques, project_to_simplex

from .helpers import domain_of

arrays = hnp.arrays(float, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e4, 1e4))
cliques = st.sets(st.integers(0, 5), max_size=4).map(lambda s: tuple(sorted(s)))


def slow_projection(array, total):
    """max(x − t, 0) with t found by bisection; the optimality condition of the projection."""
    low, high = array.min() - total - 1, array.max()
    t = brentq(lambda t: np.maximum(array - t, 0).sum() - total, low, high, xtol=1e-12)
    return np.maximum(array - t, 0)


@given(arrays, st.floats(0.01, 1e5))
def test_the_projection_equals_bisection(array, total):
    found = project_to_simplex(array, total)
    assert found.shape == array.shape
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total)
    np.testing.assert_allclose(found, slow_projection(array, total), atol=1e-6 * (1 + total))


@given(arrays, st.floats(1, 1e4), st.integers(0, 2**32 - 1))
def test_no_random_table_is_nearer_than_the_projection(array, total, seed):
    nearest = np.linalg.norm(project_to_simplex(array, total) - array)
    rng = np.random.default_rng(seed)
    for concentration in (0.1, 1.0, 10.0):
        other = total * rng.dirichlet(np.full(array.size, concentration)).reshape(array.shape)
        assert nearest <= np.linalg.norm(other - array) + 1e-6


@given(arrays.filter(lambda a: np.abs(a).sum() > 0.1))
def test_a_table_of_the_right_total_is_its_own_projection(array):
    table = np.abs(array)
    np.testing.assert_allclose(project_to_simplex(table, table.sum()), table, atol=1e-6)


@given(st.lists(cliques, max_size=8))
def test_maximal_cliques_are_those_inside_no_other(some):
    slow = {c for c in some if not any(set(c) < set(d) for d in some)}
    found = maximal_cliques(some)
    assert set(found) == slow
    assert len(found) == len(slow)
    assert maximal_cliques(reversed(some)) == found


def test_the_noise_of_a_target_is_that_of_its_measured_residuals():
    """Fuentes et al., Proposition 4.4; an unmeasured residual adds none."""
    domain = domain_of(2, 3, 4)
    model = ReferenceModel(domain, uniform_reference(domain))
    model.update((), np.array(100.0), 0.5)
    for tau, precision in {(0,): 2.0, (1,): 1.0, (0, 1): 0.25, (1, 2): 8.0}.items():
        model.update(tau, np.zeros(domain.shape(tau)), precision)
    for clique in [(0,), (0, 1), (1, 2), (0, 1, 2)]:
        inside = [t for t in model.estimates if set(t) <= set(clique)]
        variance = sum(variance_weight(domain, t, clique) / model.precision(t) for t in inside)
        assert make_target(model, clique).noise_std == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize("total", [-50.0, 0.0, 0.3, 100.0])
def test_a_target_is_a_table_of_the_models_total_but_at_least_one_row(total):
    domain = domain_of(3, 4)
    model = ReferenceModel(domain, uniform_reference(domain))
    model.update((), np.array(total), 1.0)
    rng = np.random.default_rng(0)
    for tau in [(0,), (1,), (0, 1)]:
        values = rng.normal(scale=30, size=domain.shape(tau))
        for axis in range(values.ndim):
            values -= values.mean(axis=axis, keepdims=True)
        model.update(tau, values, 1.0)
    for clique in [c for k in (1, 2) for c in combinations(range(2), k)]:
        target = make_target(model, clique)
        assert target.counts.shape == domain.shape(clique)
        assert (target.counts >= 0).all()
        assert target.counts.sum() == pytest.approx(max(total, 1.0))


def test_scaling_a_target_scales_counts_and_noise():
    domain = domain_of(2, 2)
    model = ReferenceModel(domain, uniform_reference(domain))
    model.update((), np.array(10.0), 4.0)
    target = make_target(model, (0, 1))
    scaled = target.scaled(3.0)
    np.testing.assert_allclose(scaled.counts, 3 * target.counts)
    assert scaled.noise_std == 3 * target.noise_std
    assert scaled.clique == target.clique


@pytest.mark.parametrize("scale", [1e10, 1e16, 1e30])
def test_the_projection_holds_its_total_however_large_the_entries(scale):
    projected = project_to_simplex(scale * np.array([1.0, -1.0, 0.5, 1.0]), 5.0)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(5.0)
