import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.adaptive import measure
from adaptive_qs.adaptive.measure import is_scaled, measure_residual, measurement_cost
from adaptive_qs.data.counts import MAX_ROWS

from .helpers import Recorder, counter_of, domain_of, every_row, skewed_rows

DOMAIN = domain_of(2, 3, 4, 1)
RESIDUALS = [(), (0,), (1,), (0, 1), (1, 2), (0, 1, 2)]


@pytest.fixture(params=["scaled", "plain"])
def form(request, monkeypatch):
    """Both ways to release a residual; the plain one is forced by a scale limit of zero."""
    if request.param == "plain":
        monkeypatch.setattr(measure, "MAX_SCALE", 0)
    return request.param


def exact_cost(domain, residual, form):
    if form == "plain":
        return Fraction(1)
    return math.prod((Fraction(n - 1, n) for n in domain.shape(residual)), start=Fraction(1))


def projection(shape):
    """⊗Π_i as one matrix."""
    return reduce(np.kron, [np.eye(n) - 1 / n for n in shape], np.ones((1, 1)))


@pytest.mark.parametrize("residual", RESIDUALS)
def test_the_charge_is_exactly_the_cost_over_twice_the_variance(form, residual):
    mechanisms = Recorder(rho=1.0)
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 20, 0))
    variance = 12.34
    measure_residual(counter, mechanisms, residual, variance)
    (event,) = mechanisms.budget.events
    assert event.rho == exact_cost(DOMAIN, residual, form) / (2 * Fraction(variance))
    assert measurement_cost(DOMAIN, residual) == pytest.approx(
        float(exact_cost(DOMAIN, residual, form)), rel=1e-14
    )


@pytest.mark.parametrize("residual", RESIDUALS)
def test_no_row_moves_the_input_by_more_than_the_declared_sensitivity(form, residual):
    """Every possible row is added in turn; scaled inputs move by exactly the sensitivity."""
    rows = skewed_rows(DOMAIN, 5, 1)

    def call(rows):
        mechanisms = Recorder(rho=1.0)
        measure_residual(counter_of(DOMAIN, rows), mechanisms, residual, 1e6)
        return mechanisms.calls[0]

    before = call(rows)
    for row in every_row(DOMAIN):
        after = call([*rows, row])
        moved = (after.inputs - before.inputs).ravel().tolist()
        assert sum(x * x for x in moved) == before.event.squared_sensitivity
        assert after.event == before.event


@pytest.mark.parametrize("residual", [(), (0,), (1, 2), (0, 1, 2)])
def test_noise_has_covariance_variance_times_projection(form, residual):
    """Sample covariances of n draws err by sqrt((S_ii S_jj + S_ij²)/n) and means by sqrt(S_ii/n).

    At most 24·25/2 + 24 = 324 comparisons in each of 8 cases, each at 5.5 standard errors:
    false alarm below 8 · 324 · 4e-8 = 1e-4, once, since the seed is fixed.
    """
    n, variance = 3000, 20.25
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 40, 2))
    mechanisms = Recorder(rho=10 * n / variance, seed=3)
    draws = np.array(
        [measure_residual(counter, mechanisms, residual, variance).ravel() for _ in range(n)]
    )
    expected = variance * projection(DOMAIN.shape(residual))
    truth = projection(DOMAIN.shape(residual)) @ counter.count(residual).ravel()
    noise = draws - truth
    spread = np.sqrt(np.maximum(np.diag(expected), 1e-12))
    assert (np.abs(noise.mean(axis=0)) <= 5.5 * spread / math.sqrt(n)).all()
    error = np.abs(noise.T @ noise / n - expected)
    assert (error <= 5.5 * np.sqrt((np.outer(spread, spread) ** 2 + expected**2) / n)).all()


@pytest.mark.parametrize("residual", RESIDUALS[1:])
def test_a_residual_sums_to_zero_along_every_axis(form, residual):
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 40, 2))
    values = measure_residual(counter, Recorder(1.0), residual, 50.0)
    assert values.shape == DOMAIN.shape(residual)
    for axis in range(values.ndim):
        np.testing.assert_allclose(values.sum(axis=axis), 0, atol=1e-9)


def test_the_form_depends_on_public_sizes_alone():
    assert is_scaled(domain_of(1024, 1024), (0, 1))
    assert not is_scaled(domain_of(1024, 1025), (0, 1))
    assert measurement_cost(domain_of(1024, 1025), (0, 1)) == 1.0


class OneCell:
    """As many rows as are allowed at all, all in one cell."""

    domain = domain_of(1024, 1024)

    def count(self, clique):
        counts = np.zeros(self.domain.shape(clique), dtype=np.int64)
        counts[5, 7] = MAX_ROWS
        return counts


def test_the_largest_table_at_the_largest_scale_stays_exact():
    mechanisms = Recorder(rho=1.0)
    measure_residual(OneCell(), mechanisms, (0, 1), 1e3)
    inputs = mechanisms.calls[0].inputs
    assert int(inputs[5, 7]) == MAX_ROWS * 1023 * 1023
    assert int(inputs[5, 8]) == -MAX_ROWS * 1023
    assert int(inputs[0, 0]) == MAX_ROWS
    assert not inputs.sum(axis=0).any()


def test_labels_name_the_attributes_and_nothing_else():
    mechanisms = Recorder(rho=1.0)
    counter = counter_of(DOMAIN, skewed_rows(DOMAIN, 40, 2))
    for residual in [(), (0, 2)]:
        measure_residual(counter, mechanisms, residual, 50.0)
    assert [e.label for e in mechanisms.budget.events] == ["total", "residual a0 x a2"]
