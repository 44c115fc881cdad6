"""Every solver and family on small domains: 2,000 runs against the reported answers and variances.

An answer is a linear function of what is released. The function is taken from the code that makes
answers, once per unit release, and checked against whole runs; then it is applied to 2,000 draws of
the release's own noise at once. The bounds leave 1e-9 false alarms for the whole file: every one of
fewer than 10⁵ comparisons gets 1e-14.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import discrete_gaussian
from adaptive_qs.strategy.mechanisms.residual_mechanism import ResidualMechanism

from .batches import (
    CELLS,
    WORKLOADS,
    Scripted,
    batch,
    pairs,
    query_matrix,
    query_weights,
    table,
    unlimited,
)

RUNS = 2_000
ALARM = 1e-14
# Sums of discrete Gaussians have the tails of a Gaussian of their parameter (Canonne, Kamath and
# Steinke 2020, Corollary 17), so a mean of runs passes z standard errors with 2exp(−z²/2) at most.
Z = math.sqrt(2 * math.log(2 / ALARM))
LOW, HIGH = chi2.ppf(ALARM / 2, RUNS) / RUNS, chi2.isf(ALARM / 2, RUNS) / RUNS
ROUNDING = 1e-7
"""Of a float64 inverse whose condition is up to 2²⁴; see the weight of completed rows."""


@pytest.fixture(scope="module")
def counter():
    return MarginalCounter(table())


@pytest.fixture(scope="module")
def truths():
    counts = MarginalCounter(table()).count((0, 1, 2)).ravel()
    return {name: query_matrix(asked) @ counts for name, asked in WORKLOADS.items()}


def close(found, expected, scale):
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * scale)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_answers_have_the_means_and_variances_reported(asked, name, counter, truths):
    found, truth = batch(asked, name), truths[asked]
    answers = np.zeros((len(truth), RUNS))
    for number in found.order:
        (event, values), _ = found.release(number, counter)
        entropy = InsecureSeed(1_000 + number)
        noise = discrete_gaussian(event.noise_variance, values.size * RUNS, entropy)
        answers += found.map[number] @ (values.reshape(-1, 1) + noise.reshape(-1, RUNS))
    deviations = answers - truth[:, None]
    std = np.sqrt(found.variances)
    assert (abs(deviations.mean(axis=1)) <= Z * std / math.sqrt(RUNS) + ROUNDING * 500).all()
    empirical = (deviations**2).mean(axis=1)
    assert (empirical <= HIGH * found.variances + ROUNDING).all()
    assert (empirical >= LOW * found.variances - ROUNDING).all()


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_whole_runs_are_the_linear_function(asked, name, counter):
    found, calls = batch(asked, name), []
    ledger = Budget(Fraction(found.units, UNITS_PER_RHO))
    out = found.run(Mechanisms(ledger, InsecureSeed(7), calls.append), counter)
    expected = sum(found.map[k] @ call.output.ravel() for k, call in zip(found.order, calls))
    close(np.concatenate([one.estimates for one in out]), expected, 500)
    close(np.concatenate([one.variances for one in out]), found.variances, found.variances.max())


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_without_noise_every_answer_is_the_truth(asked, name, counter, truths):
    found = batch(asked, name)
    out = found.run(Scripted(unlimited()), counter)
    close(np.concatenate([one.estimates for one in out]), truths[asked], 500)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_any_table_is_answered_without_bias(asked, name):
    """The map from releases to answers, after the map from cells to releases, is the queries."""
    found = batch(asked, name)
    total = sum(found.map[k] @ columns.astype(float) for k, (_, columns) in found.inputs.items())
    expected = query_matrix(WORKLOADS[asked])
    assert expected.shape[1] == CELLS
    close(total, expected, abs(expected).max())


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_variances_follow_from_the_noise(asked, name):
    """diag(A Σ Aᵀ) with A the map from releases to answers and Σ the noise of the releases."""
    found = batch(asked, name)
    exact = sum(
        float(found.inputs[k][0].noise_variance) * (found.map[k] ** 2).sum(axis=1)
        for k in found.order
    )
    np.testing.assert_allclose(exact, found.variances, rtol=ROUNDING)
    total = query_weights(WORKLOADS[asked]) @ exact
    assert found.mechanism.total_error == pytest.approx(total, rel=ROUNDING)
    top, is_exact = found.mechanism.largest_variance()
    assert is_exact
    assert top == pytest.approx(exact.max(), rel=ROUNDING)


def least_squares():
    """Mechanisms whose answers are the least-squares ones of all they measured."""
    return [(asked, name) for asked, name in pairs() if name not in ("gaussian", "hdmm")]


@pytest.mark.parametrize(("asked", "name"), least_squares())
def test_reconstruction_is_least_squares(asked, name):
    """diag(W (MᵀΣ⁻¹M)⁺ Wᵀ), M all measurements over the whole domain."""
    found, queries = batch(asked, name), query_matrix(WORKLOADS[asked])
    information = sum(
        columns.T.astype(float) @ columns.astype(float) / float(event.noise_variance)
        for event, columns in found.inputs.values()
    )
    # Completed rows have an information of 2⁻²⁴ of the others, and rounding one of 2⁻⁵⁰.
    covariance = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
    expected = np.einsum("qi,ij,qj->q", queries, covariance, queries)
    np.testing.assert_allclose(found.variances, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("asked", "name"), pairs())
def test_bounds_and_shares_belong_to_the_error(asked, name):
    mechanism = batch(asked, name).mechanism
    shares = [mechanism.measurement(k).share for k in range(mechanism.num_measurements)]
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    assert mechanism.lower_bound <= mechanism.total_error * (1 + ROUNDING)
    if isinstance(mechanism, ResidualMechanism) and name != "hdmm":
        # On the grid an error L moves by a little; the best shares were those before: second order.
        best = float(np.sqrt(mechanism.errors).sum() ** 2)
        assert mechanism.total_error == pytest.approx(best, rel=1e-9)
    if name in ("auto", "querysmasher") and asked != "few on sets":  # one is stopped there
        assert mechanism.total_error <= (1 + 1.01e-4) * mechanism.lower_bound
