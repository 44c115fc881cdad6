"""How much noise marginals hold, against draws of pure noise."""

from dataclasses import replace

import numpy as np
import pytest

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.levels import Grouping
from adaptive_qs.residual import (
    ReferenceModel,
    ResidualEstimate,
    decompose,
    expected_l1,
    group_variance,
    is_measured,
    measured_variance,
)

SIZES = {"a": 3, "b": 4, "c": 2}
VARIANCES = {(): 4.0, (0,): 9.0, (1,): 1.0, (2,): 2.0, (0, 1): 5.0, (1, 2): 3.0}
TOTAL = 1_000.0
DRAWS = 4_000


def shaped(n):
    """A covariance of noise that sums to zero, of trace n − 1, and a root of it."""
    rows = np.random.default_rng(2).normal(size=(n, n))
    rows -= rows.mean(axis=1, keepdims=True)
    rows *= np.sqrt((n - 1) / np.square(rows).sum())
    return rows.T @ rows, rows.T


@pytest.fixture(scope="module", params=[(), (1,), (0, 1)], ids=["cells", "b", "a and b"])
def noisy(request):
    """A model of a table without rows, and draws of pure noise around it; the noise of some single
    columns is that of a strategy."""
    domain = Domain.from_sizes(SIZES)
    strategies = {i: shaped(domain.sizes[i]) for i in request.param}
    column_noise = {i: covariance for i, (covariance, _) in strategies.items()}
    rng = np.random.default_rng(11)
    reference = tuple(rng.dirichlet([2.0] * n) for n in domain.sizes)

    def model(scale):
        estimates = {}
        for tau, variance in VARIANCES.items():
            noise = np.asarray(rng.normal(0, scale * np.sqrt(variance), domain.shape(tau)))
            if len(tau) == 1 and tau[0] in strategies:
                noise = strategies[tau[0]][1] @ noise
            estimates[tau] = ResidualEstimate(decompose(noise, tau, tau), 1 / variance)
        return ReferenceModel(domain, reference, estimates, column_noise)

    return model(0.0), [model(1.0) for _ in range(DRAWS)]


def within_five_errors(samples, wanted):
    """A true mean leaves five standard errors once in 1.7 million."""
    error = np.std(samples) / np.sqrt(len(samples))
    assert np.mean(samples) == pytest.approx(wanted, abs=5 * error)


@pytest.mark.slow
@pytest.mark.parametrize("clique", [(0,), (0, 1), (1, 2)])
def test_the_error_of_measured_marginals_is_that_of_their_noise(noisy, clique):
    model, draws = noisy
    assert is_measured(model.estimates, clique, model.domain)
    found = [draw.marginal(clique) for draw in draws]
    lengths = [np.abs(f).sum() / TOTAL for f in found]
    within_five_errors(lengths, expected_l1(model, clique, TOTAL))
    squares = [float(np.square(f).mean()) for f in found]
    within_five_errors(squares, measured_variance(model, clique).mean())


@pytest.mark.parametrize("codes", [1, 2, 4])
def test_the_variance_of_several_cells_together(noisy, codes):
    model, draws = noisy
    squares = [float(draw.marginal((1,))[:codes].sum() ** 2) for draw in draws]
    within_five_errors(squares, group_variance(model, 1, range(codes)))


def test_noise_of_a_strategy_in_groups_of_codes_is_that_of_their_sums():
    levels = (Grouping(0, (0, 1, 1, 0, 2)),)
    domain = replace(Domain.from_sizes({"a": 5, "b": 2}), groupings=levels)
    covariance, _ = shaped(5)
    estimates = {
        tau: ResidualEstimate(np.zeros(domain.shape(tau)), 1 / variance)
        for tau, variance in {(): 4.0, (0,): 9.0}.items()
    }
    reference = tuple(np.full(n, 1 / n) for n in domain.sizes)
    model = ReferenceModel(domain, reference, estimates, {0: covariance})
    groups = np.array([[1, 0, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 1]])
    within = np.diag(groups @ covariance @ groups.T) * 9.0
    total = 4.0 * (groups.sum(axis=1) / 5) ** 2
    np.testing.assert_allclose(measured_variance(model, (2,)), within + total)


def test_columns_of_one_value_need_no_measurement():
    domain = Domain.from_sizes({"a": 3, "one": 1})
    estimates = {tau: ResidualEstimate(np.zeros(domain.shape(tau)), 1.0) for tau in ((), (0,))}
    assert is_measured(estimates, (0, 1), domain)
    assert list(subsets((0, 1)))[-1] not in estimates
