"""How much noise marginals hold, against draws of pure noise."""

import numpy as np
import pytest

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.residual import (
    ReferenceModel,
    ResidualEstimate,
    decompose,
    expected_l1,
    group_variance,
    is_measured,
    known_noise_l1,
    measured_variance,
)

SIZES = {"a": 3, "b": 4, "c": 2}
VARIANCES = {(): 4.0, (0,): 9.0, (1,): 1.0, (2,): 2.0, (0, 1): 5.0, (1, 2): 3.0}
TOTAL = 1_000.0
DRAWS = 4_000


@pytest.fixture(scope="module")
def noisy():
    """A model of a table without rows, and draws of pure noise around it."""
    domain = Domain.from_sizes(SIZES)
    rng = np.random.default_rng(11)
    reference = tuple(rng.dirichlet([2.0] * n) for n in domain.sizes)

    def model(scale):
        estimates = {}
        for tau, variance in VARIANCES.items():
            noise = np.asarray(rng.normal(0, scale * np.sqrt(variance), domain.shape(tau)))
            estimates[tau] = ResidualEstimate(decompose(noise, tau, tau), 1 / variance)
        return ReferenceModel(domain, reference, estimates)

    return model(0.0), [model(1.0) for _ in range(DRAWS)]


def within_five_errors(samples, wanted):
    """A true mean leaves five standard errors once in 1.7 million."""
    error = np.std(samples) / np.sqrt(len(samples))
    assert np.mean(samples) == pytest.approx(wanted, abs=5 * error)


@pytest.mark.parametrize("clique", [(0,), (0, 1), (1, 2)])
def test_the_error_of_measured_marginals_is_that_of_their_noise(noisy, clique):
    model, draws = noisy
    assert is_measured(model.estimates, clique, model.domain)
    found = [draw.marginal(clique) for draw in draws]
    within_five_errors([np.abs(f).sum() / TOTAL for f in found], expected_l1(model, clique, TOTAL))
    squares = [float(np.square(f).mean()) for f in found]
    within_five_errors(squares, measured_variance(model, clique))
    assert known_noise_l1(model, clique, TOTAL) == pytest.approx(expected_l1(model, clique, TOTAL))


@pytest.mark.parametrize("clique", [(0, 2), (0, 1, 2)])
def test_the_noise_of_what_is_not_measured_is_that_of_its_parts(noisy, clique):
    model, draws = noisy
    assert not is_measured(model.estimates, clique, model.domain)
    found = [np.abs(draw.marginal(clique)).sum() / TOTAL for draw in draws]
    within_five_errors(found, known_noise_l1(model, clique, TOTAL))


@pytest.mark.parametrize("codes", [1, 2, 4])
def test_the_variance_of_several_cells_together(noisy, codes):
    model, draws = noisy
    squares = [float(draw.marginal((1,))[:codes].sum() ** 2) for draw in draws]
    within_five_errors(squares, group_variance(model, 1, codes))


def test_columns_of_one_value_need_no_measurement():
    domain = Domain.from_sizes({"a": 3, "one": 1})
    estimates = {tau: ResidualEstimate(np.zeros(domain.shape(tau)), 1.0) for tau in ((), (0,))}
    assert is_measured(estimates, (0, 1), domain)
    assert list(subsets((0, 1)))[-1] not in estimates
