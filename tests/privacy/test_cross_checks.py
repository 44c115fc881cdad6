"""Accounting and noise against two independent libraries, dp-accounting and OpenDP.

Conversions are checked from both sides: ours never claim less than the others show to be true
(safety), and never more than rounding explains (tightness).
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.privacy.accounting import (
    compute_delta,
    compute_epsilon,
    compute_gaussian_delta,
    compute_gaussian_epsilon,
    compute_gaussian_mu,
    compute_rho,
)
from adaptive_qs.privacy.events import GaussianEvent, Purpose, SelectionEvent
from adaptive_qs.privacy.noise import SystemEntropy, discrete_gaussian

from . import oracles

dp = pytest.importorskip("opendp.prelude")
accounting = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")

dp.enable_features("contrib")

RHOS = [1e-6, 1e-3, 0.01497306, 0.3, 1.090786, 20.0]
MUS = [0.02, 0.1819748, 1.0, 1.537877, 5.0]
DELTAS = [1e-12, 1e-9, 1e-6, 1e-3]
EPSILONS = [0.01, 0.1, 1.0, 10.0]
COSTS = [(rho, delta) for rho in RHOS for delta in DELTAS]
TARGETS = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]

TABLE = [
    (1, 1e-9, "0.01497306", "0.1819748", "0.03311483"),
    (0.1, 1e-9, "0.0001771384", "0.01991642", "0.0003966639"),
    (10, 1e-9, "1.090786", "1.537877", "2.365067"),
    (1, 1e-6, "0.02435597", "0.2367044", "0.05602896"),
]
"""(ε, δ) and the values promised for it to seven digits: ρ, μ, β = μ²."""

DOUBLE = 2.0**-40
"""Relative error granted to OpenDP's doubles: ln δ is a sum of terms below 10³, so that δ errs by
at most 10³ times some ulp (2⁻⁵²), and ε by less."""
NORMAL = 2.0**-36
"""How far ε of Gaussian DP may lie above the exact one: both normal terms are raised by at most
2⁻⁴⁸ (1 + x)(16 + x + μ) < 2⁻⁴⁰ of themselves here, and dε = dδ / (second term), of which the
first is at most 15 times as large."""
SOLVER = 2e-12
"""Twice the absolute tolerance of dp-accounting's root finder."""
TRANSFORM = 1e-13
"""Absolute error of dp-accounting's Fourier transforms: their sums of probabilities are 1."""
FALSE_ALARM = 1e-10


def opendp_profile(rho):
    """OpenDP's (ε, δ) curve of a Gaussian mechanism of this zCDP cost."""
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    mechanism = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1.0))
    return mechanism.map(math.sqrt(2 * rho))


@pytest.mark.parametrize(("rho", "delta"), COSTS)
def test_zcdp_converts_as_in_opendp(rho, delta):
    """Both round the same infimum over all orders up, so only rounding parts them."""
    profile, epsilon = opendp_profile(rho), compute_epsilon(rho, delta)
    assert epsilon == pytest.approx(profile.epsilon(delta), rel=DOUBLE)
    if epsilon > 0:
        assert compute_delta(rho, epsilon) == pytest.approx(profile.delta(epsilon), rel=DOUBLE)


@pytest.mark.parametrize(("rho", "delta"), COSTS)
def test_zcdp_converts_as_in_dp_accounting_at_its_best_order(rho, delta):
    """Each order α = 1 + a bounds ε; ours is the least bound, theirs the least on a grid.

    Between steps h of ln a the bound rises by at most h²/8 times its second derivative in ln a,
    and that is below aρ + ln(1/δ)/a + 1.
    """
    step = 2e-3
    orders = 1 + np.exp(np.arange(math.log(0.02), math.log(1e5), step))
    accountant = accounting.rdp.RdpAccountant(orders=orders.tolist())
    accountant.compose(accounting.ZCDpEvent(rho))
    theirs, order = accountant.get_epsilon_and_optimal_order(delta)
    a = order - 1
    tolerance = (a * rho + math.log(1 / delta) / a + 1) * step**2 / 6
    ours = compute_epsilon(rho, delta)
    assert theirs - tolerance <= ours <= theirs + DOUBLE * (1 + theirs)


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_opendp_finds_the_largest_rho_safe_and_a_larger_one_unsafe(epsilon, delta):
    rho = compute_rho(epsilon, delta)
    assert opendp_profile(rho).delta(epsilon) <= delta * (1 + DOUBLE)
    assert opendp_profile(rho * (1 + 1e-6)).delta(epsilon) > delta


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("mu", MUS)
def test_the_gaussian_epsilon_is_the_exact_one_rounded_up(mu, delta):
    exact = accounting.get_epsilon_gaussian(1 / mu, delta)
    assert exact - SOLVER <= compute_gaussian_epsilon(mu, delta) <= exact + SOLVER + NORMAL


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_the_gaussian_mu_is_the_exact_one_rounded_down(epsilon, delta):
    """The allowance is below 2⁻³⁹ of the first term, which is below φ(x)/x: as dδ/dμ = φ(x), it
    moves μ by a share of at most 2⁻³⁹/(xμ), and xμ > ε/2 on the grid."""
    exact = 1 / accounting.get_sigma_gaussian(epsilon, delta)
    moved = (NORMAL + SOLVER) / epsilon + SOLVER * exact
    assert (
        exact * (1 - moved) <= compute_gaussian_mu(epsilon, delta) <= exact * (1 + SOLVER * exact)
    )


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
@pytest.mark.parametrize("mu", MUS[1:])
def test_releases_of_several_precisions_compose_to_the_root_of_their_sum(mu, delta):
    """Privacy loss distributions of three releases, with shares of μ², enclose our δ."""
    epsilon = compute_gaussian_epsilon(mu, delta)

    def composed(pessimistic):
        parts = [
            pld.from_gaussian_mechanism(
                1 / (mu * math.sqrt(share)),
                pessimistic_estimate=pessimistic,
                value_discretization_interval=1e-3,
                use_connect_dots=pessimistic,
            )
            for share in (0.5, 0.3, 0.2)
        ]
        return parts[0].compose(parts[1]).compose(parts[2]).get_delta_for_epsilon(epsilon)

    ours = compute_gaussian_delta(mu, epsilon)
    assert composed(False) - TRANSFORM <= ours <= composed(True) + TRANSFORM
    assert ours == pytest.approx(delta, rel=1e-6)


def true_discrete_gaussian(sigma, sensitivity, count):
    """A lower bound on the privacy loss of discrete Gaussian releases of one integer."""
    one = pld.from_discrete_gaussian_mechanism(
        sigma,
        sensitivity,
        truncation_bound=math.ceil(14 * sigma) + sensitivity,
        pessimistic_estimate=False,
        value_discretization_interval=1e-3,
    )
    return one.self_compose(count)


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
@pytest.mark.parametrize(
    ("sigma", "sensitivity", "count"), [(1.0, 1, 1), (3.5, 2, 10), (50.0, 3, 10), (0.7, 1, 5)]
)
def test_discrete_noise_costs_no_more_than_is_charged(sigma, sensitivity, count, delta):
    true = true_discrete_gaussian(sigma, sensitivity, count)
    rho = (
        float(GaussianEvent(Purpose.STRATEGY, ("x",), sensitivity**2, Fraction(sigma) ** 2).rho)
        * count
    )
    epsilon = compute_epsilon(rho, delta)
    assert true.get_delta_for_epsilon(epsilon) <= delta
    # Half the charge, as noise too small by √2 would have it, is refuted.
    assert true.get_delta_for_epsilon(compute_epsilon(rho / 2, delta)) > delta


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
@pytest.mark.parametrize(("epsilon", "rivals"), [(0.3, 1), (0.3, 20), (1.5, 3)])
def test_selection_costs_no_more_than_is_charged(epsilon, rivals, delta):
    """A neighbour that lifts one candidate by the sensitivity and lowers all others, 100 times."""
    scores = np.zeros(1 + rivals)
    moved = np.r_[1.0, -np.ones(rivals)]
    first, second = (
        dict(enumerate(np.log(exact_probabilities(s, epsilon)))) for s in (scores, moved)
    )
    true = pld.from_two_probability_mass_functions(
        first, second, pessimistic_estimate=False, value_discretization_interval=1e-3
    ).self_compose(100)
    rho = 100 * float(SelectionEvent(Purpose.SELECTION, (), epsilon).rho)
    assert true.get_delta_for_epsilon(compute_epsilon(rho, delta)) <= delta
    if rivals == 1:  # evenly matched, the worst case: a quarter of the charge is refuted
        assert true.get_delta_for_epsilon(compute_epsilon(rho / 4, delta)) > delta


def exact_probabilities(scores, epsilon):
    weights = np.exp(epsilon * scores / 2)
    return weights / weights.sum()


@pytest.mark.parametrize("sigma", [0.5, 2.5, 1e6])
@pytest.mark.parametrize("sensitivity", [1, 3, 1000])
def test_charges_are_those_of_opendp(sigma, sensitivity):
    """Its doubles are rounded up: not below our exact cost, and above it by a few ulp."""
    numbers = dp.vector_domain(dp.atom_domain(T="i64"))
    gaussian = dp.m.make_gaussian(numbers, dp.l2_distance(T=float), scale=sigma)
    selection = dp.m.make_noisy_max(
        numbers, dp.linf_distance(T="i64"), dp.zero_concentrated_divergence(), scale=sigma
    )
    epsilon = 2 * sensitivity / Fraction(sigma)  # scale = 2Δ/ε
    for event, cost in (
        (
            GaussianEvent(Purpose.STRATEGY, ("x",), sensitivity**2, Fraction(sigma) ** 2),
            gaussian.map(float(sensitivity)),
        ),
        (SelectionEvent(Purpose.SELECTION, (), epsilon), selection.map(sensitivity)),
    ):
        assert event.rho <= Fraction(cost) <= event.rho * (1 + Fraction(1, 2**48))


@pytest.mark.parametrize(("epsilon", "delta", "rho", "mu", "beta"), TABLE)
def test_promised_values_are_met_and_never_exceeded(epsilon, delta, rho, mu, beta):
    """To seven digits, and confirmed by the other libraries, which refuse the eighth."""
    found, exact = compute_rho(epsilon, delta), compute_gaussian_mu(epsilon, delta)
    assert [f"{x:.7g}" for x in (found, exact, exact**2)] == [rho, mu, beta]
    assert opendp_profile(found).delta(epsilon) <= delta * (1 + DOUBLE)
    assert accounting.get_epsilon_gaussian(1 / exact, delta) <= epsilon + SOLVER
    assert opendp_profile(found * (1 + 1e-7)).delta(epsilon) > delta
    assert accounting.get_epsilon_gaussian(1 / (exact * (1 + 1e-7)), delta) > epsilon + SOLVER


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 2.5, 40.25, 3000.0])
def test_noise_is_that_of_opendp(sigma):
    """Two samples with the operating system's entropy: one law, by a chi-square of their counts.

    Cells of equal counts hold some thousand draws, so that the statistic's law is close to its
    limit; a false alarm comes once in FALSE_ALARM⁻¹ runs.
    """
    n = 60_000
    sampler = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), scale=sigma
    )
    theirs = np.array(sampler([0] * n))
    ours = discrete_gaussian(Fraction(sigma) ** 2, n, SystemEntropy())
    edges, probabilities = oracles.gaussian_cells(Fraction(sigma) ** 2, 24)
    counts = [
        np.bincount(np.searchsorted(edges, x, "right"), minlength=probabilities.size)
        for x in (ours, theirs)
    ]
    assert stats.chi2_contingency(np.array(counts)).pvalue > FALSE_ALARM
    for observed in counts:
        assert stats.chisquare(observed, n * probabilities).pvalue > FALSE_ALARM
