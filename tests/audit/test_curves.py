"""Trade-off curves: every kind of release keeps its claim, and the audit could have found more.

Bounds are wrong with a probability of 0.001 for all games of a test together. Of noise that is all
Gaussian, μ is known to 0.02 from 20,000 draws at μ = 3, so that 0.9 of it is 15 of these below.
"""

from itertools import chain, combinations

import numpy as np
import pytest

from adaptive_qs.privacy.accounting import compute_gaussian_delta
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import PartitionEvent, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy

from . import curves
from .curves import KINDS, THRESHOLDS, Claim, Curve, audit_game
from .game import log_ratio
from .recompute import passing_chance

pytestmark = pytest.mark.slow

FEW = ("persons of K = 3 rows", "answers, residuals")


@pytest.mark.parametrize(
    "kind", [k if k in FEW else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_no_kind_of_release_is_told_apart_better_than_claimed(kind):
    found = audit_game(kind, 3.0, 2, 20_000, 2, len(KINDS), np.random.default_rng(1))
    assert not found["steps"]["breaks the claim"]
    assert not found["whole runs"]["breaks the claim"]
    assert not found["whole runs"]["noise"]["too small"]
    assert found["mu of the worst pair"] <= 3.0
    assert found["steps"]["mu"] >= curves.POWER * 3.0


@pytest.mark.slow
@pytest.mark.parametrize("mu", curves.MUS[:2])
@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_is_told_apart_better_at_small_budgets(kind, mu):
    found = audit_game(kind, mu, 2, 20_000, 2, len(KINDS), np.random.default_rng(2))
    assert not found["steps"]["breaks the claim"]
    assert found["mu of the worst pair"] >= 0.9 * mu


def curve(mu, claimed, draws=100_000, seed=0):
    """Of a mechanism that is Gaussian DP with μ and claims less or more."""
    normal = np.random.default_rng(seed).normal(size=(2, draws))
    ratios = [mu * normal[0] - mu**2 / 2, mu * normal[1] + mu**2 / 2]
    return Curve.of(ratios, claimed, 1)


@pytest.mark.parametrize("mu", curves.MUS)
def test_bounds_enclose_mu(mu):
    found = curve(mu, mu)
    lower, upper = found.bounds()
    assert lower < mu < upper
    assert found.estimate() == pytest.approx(mu, abs=0.04)
    assert not found.breaks(Claim(mu, 0.0, True))
    # The bounds are narrow enough to see a tenth.
    assert curve(1.1 * mu, mu).breaks(Claim(mu, 0.0, True))


def test_every_threshold_is_judged():
    """A mechanism that gives itself away rarely is found by a threshold far from the middle."""
    mu, rare = 1.0, 0.02
    first = np.random.default_rng(0).normal(-0.02, 0.2, 100_000)
    second = np.where(np.random.default_rng(1).random(100_000) < rare, 9.0, -first)
    found = Curve.of([first, second], mu, 1)
    assert found.estimate() < 0.3
    assert found.breaks(Claim(mu, 0.0, True))
    assert len(found.errors) == len(THRESHOLDS)


def test_noise_that_is_too_narrow_is_found():
    noise = np.random.default_rng(0).normal(size=4_000)
    assert not curves.spread(noise, 1e-4)["too small"]
    assert curves.spread(0.9 * noise, 1e-4)["too small"]


@pytest.mark.parametrize("mu", curves.MUS)
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.3, 0.9])
def test_claims_of_zcdp_are_below_those_of_gaussian_dp_and_delta_lowers_both(mu, alpha):
    gaussian, zcdp = (Claim(mu, 0.0, exact).least_error(alpha) for exact in (True, False))
    assert 0 <= zcdp <= gaussian
    for exact, error in ((True, gaussian), (False, zcdp)):
        lower = Claim(mu, 0.01, exact).least_error(alpha)
        assert lower < error or error == 0
    # The curve is that of all (ε, δ) together.
    epsilon = np.linspace(0.001, 12, 4_000)
    delta = np.array([compute_gaussian_delta(mu, e) for e in epsilon])
    lines = np.maximum(1 - delta - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - delta - alpha))
    assert gaussian == pytest.approx(float(lines.max()), abs=1e-3)


@pytest.fixture(scope="module")
def runs():
    """A recorded run and its replay on the neighbour, of each kind that chooses or discovers."""
    kinds = ("one table, choices", "one table, private values")
    return {kind: KINDS[kind](np.random.default_rng(3), 1.0).courses(0) for kind in kinds}


def test_losses_of_steps_add_up_to_the_log_ratio_of_the_game(runs):
    one, other = runs["one table, choices"]
    assert any(isinstance(call.event, SelectionEvent) for call in one)
    steps = sum(curves._step(a, b).loss() for a, b in zip(one, other))
    assert steps == pytest.approx(log_ratio(one, other), rel=1e-9)


def test_chances_of_discoveries_are_those_of_two_laws(runs):
    """Over all sets of values that can be found, both laws have the mass 1."""
    one, other = runs["one table, private values"]
    (step,) = (
        curves._step(a, b) for a, b in zip(one, other) if isinstance(a.event, PartitionEvent)
    )
    values = list(step.chances)
    total, others = 0.0, 0.0
    for found in chain.from_iterable(combinations(values, n) for n in range(len(values) + 1)):
        chance = np.prod([p if value in found else 1 - p for value, (p, _) in step.chances.items()])
        total += chance
        others += chance * np.exp(step._loss(found)) if chance else 0.0
    assert total == pytest.approx(1)
    assert others == pytest.approx(1)


def test_steps_that_are_drawn_again_have_the_law_of_the_run(runs):
    """Means of log ratios are minus the relative entropy, within five of their standard errors."""
    mechanisms = Mechanisms(Budget(10**15, 10**6), SystemEntropy())
    for one, other in runs.values():
        for a, b in zip(one, other):
            step = curves._step(a, b)
            losses = step.losses(300, mechanisms)
            error = losses.std() / np.sqrt(losses.size) + 1e-12
            assert abs(losses.mean() + step.relative_entropy) < 5 * error + 1e-9


def test_chances_of_passing_sum_the_discrete_gaussian():
    for threshold in (1, 5, 31):
        expected = passing_chance(100, threshold, rows=0)
        assert curves._passing(100, threshold) == pytest.approx(expected, rel=1e-9)
    assert curves._passing(100, 0) + curves._passing(100, 1) == pytest.approx(1)
