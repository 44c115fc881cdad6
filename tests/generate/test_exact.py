"""The exact fit against dense linear algebra and enumeration, and the rows drawn from it."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cliques import downward_closure
from adaptive_qs.generate import exact
from adaptive_qs.generate.exact import ExactChains, ExactFit, Joint, Residuals, can_fit, fit_exactly
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.residual import ReferenceModel, decompose, uniform_reference
from adaptive_qs.synthesizer import Synthesizer

from .helpers import domain_of, drawn_rows, histogram, margin, random_loglinear, residuals_of

DOMAIN = domain_of(3, 2, 4, 1, 2)
TRIPLE_AND_PAIRS = [(0, 1, 4), (1, 2), (2, 4)]


def measured_model(noise_std, cliques=TRIPLE_AND_PAIRS, rows=4000, seed=0):
    _, joint = random_loglinear(DOMAIN, [(0, 1, 4), (1, 2), (2, 4)], seed=3, spread=0.7)
    return joint, residuals_of(drawn_rows(joint, rows, seed), DOMAIN, cliques, noise_std)


def singles_of(model):
    return [np.maximum(model.marginal((i,)), 1.0) for i in range(len(model.domain))]


def fitted(model, cliques=TRIPLE_AND_PAIRS):
    return fit_exactly(model, cliques, singles_of(model))


@pytest.mark.parametrize("clique", [(), (0,), (2,), (0, 4), (1, 2, 4), (0, 1, 2, 3, 4)])
def test_marginals_and_their_transpose_are_those_of_numpy(clique):
    rng = np.random.default_rng(1)
    array = rng.normal(size=DOMAIN.sizes)
    joint = Joint(DOMAIN)
    np.testing.assert_allclose(joint.marginal(array.ravel(), clique), margin(array, clique))
    table = rng.normal(size=DOMAIN.shape(clique))
    added = array.ravel().copy()
    joint.add(added, table, clique)
    shape = [n if i in clique else 1 for i, n in enumerate(DOMAIN.sizes)]
    np.testing.assert_allclose(added, (array + table.reshape(shape)).ravel())


def test_residuals_are_those_of_the_algebra_and_the_transpose_is_theirs():
    _, model = measured_model(5.0)
    residuals = Residuals(Joint(DOMAIN), model, TRIPLE_AND_PAIRS)
    rng = np.random.default_rng(2)
    array = rng.normal(size=DOMAIN.sizes)
    wanted = sorted(
        (t for t in downward_closure(TRIPLE_AND_PAIRS) if t and 3 not in t),
        key=lambda t: (DOMAIN.shape(t), t),
    )
    dense = [decompose(margin(array, t), t, t).ravel() for t in wanted]
    np.testing.assert_allclose(residuals.apply(array.ravel()), np.concatenate(dense), atol=1e-12)
    values = [model.estimates[t].values.ravel() for t in wanted]
    np.testing.assert_array_equal(residuals.values, np.concatenate(values))
    theta = residuals.apply(rng.normal(size=array.size))
    spread = np.zeros(array.size)
    residuals.add_transposed(spread, theta)
    assert spread @ array.ravel() == pytest.approx(theta @ residuals.apply(array.ravel()))


def test_the_fit_meets_the_conditions_of_its_optimum(monkeypatch):
    """κ log(p/q) = n Rᵀ λ (z − n R p) but for a constant, within the tolerance of the fit."""
    monkeypatch.setattr(exact, "TOLERANCE", 1e-3)
    _, model = measured_model(20.0, cliques=[(0, 1), (1, 2), (2, 4)])
    cliques = [(0, 1), (1, 2), (2, 4)]
    fit, total = fitted(model, cliques), model.total
    residuals = Residuals(fit.joint, model, cliques)
    assert fit.probabilities.sum() == pytest.approx(1)
    assert fit.gap <= exact.TOLERANCE
    q = np.ones(())
    for single in singles_of(model):
        q = np.multiply.outer(q, np.maximum(single, 0.5) / np.maximum(single, 0.5).sum())
    misfit = residuals.values - total * residuals.apply(fit.probabilities)
    theta = total * residuals.precision * misfit / fit.prior_weight
    expected = np.zeros(fit.joint.cells)
    residuals.add_transposed(expected, theta)
    difference = np.log(fit.probabilities) - np.log(q).ravel() - expected
    # An entry of z − nRp off by TOLERANCE standard deviations moves θ by n √λ / κ times that; each
    # cell has one entry of each of the 7 residuals, and centering adds no more than as much again.
    most = 2 * 7 * exact.TOLERANCE * total * np.sqrt(residuals.precision.max()) / fit.prior_weight
    assert np.ptp(difference) <= 2 * most
    moved = np.ptp(np.log(fit.probabilities) - np.log(q).ravel())
    assert moved > 100 * np.ptp(difference)


def test_without_noise_the_fit_is_the_distribution_itself():
    joint, model = measured_model(0.0, rows=200_000)
    fit = fitted(model)
    for clique in TRIPLE_AND_PAIRS:
        wanted = np.maximum(model.marginal(clique), 0) / model.total
        np.testing.assert_allclose(fit.joint.marginal(fit.probabilities, clique), wanted, atol=2e-4)
    # Beyond what was measured it has no interaction, as the truth; 200,000 rows were drawn.
    assert np.abs(fit.probabilities - joint.ravel()).sum() < 3 * np.sqrt(joint.size / 200_000)


@pytest.mark.parametrize("noise_std", [30.0, 100.0, 300.0])
def test_the_fit_is_nearer_to_the_truth_than_what_was_measured_and_than_independence(noise_std):
    """In the mean over ten noises; the prior may cost nothing where noise is small."""
    fits, raw, alone = [], [], []
    for seed in range(10):
        joint, model = measured_model(0.0)
        rng = np.random.default_rng(seed)
        noisy = ReferenceModel(DOMAIN, model.reference)
        for tau, estimate in model.estimates.items():
            noise = decompose(rng.normal(scale=noise_std, size=DOMAIN.shape(tau)), tau, tau)
            noisy.update(tau, estimate.values + noise * (tau != ()), noise_std**-2.0)
        fit = fitted(noisy)
        for clique in TRIPLE_AND_PAIRS:
            true = margin(joint, clique)
            shares = [fit.joint.marginal(fit.probabilities, (i,)) for i in clique]
            product = np.ones(())
            for share in shares:
                product = np.multiply.outer(product, share)
            fits.append(np.abs(fit.joint.marginal(fit.probabilities, clique) - true).sum())
            raw.append(np.abs(noisy.marginal(clique) / noisy.total - true).sum())
            alone.append(np.abs(product - true).sum())
    assert np.mean(fits) < np.mean(raw)
    assert np.mean(fits) < np.mean(alone) or noise_std == 300.0


def test_pure_noise_leaves_columns_independent():
    """All residuals are noise of 100 rows in 2000: what is fitted of it is far below what it is."""
    domain = domain_of(2, 2, 2, 2)
    rng = np.random.default_rng(5)
    table = rng.integers(0, 2, (2000, 4)).astype(np.int32)
    pairs = list(combinations(range(4), 2))
    model = residuals_of(table, domain, pairs, 100.0, seed=8)
    fit = fit_exactly(model, pairs, singles_of(model))
    for pair in pairs:
        found = fit.joint.marginal(fit.probabilities, pair)
        signal = np.abs(decompose(found, pair, pair)).sum()
        measured = np.abs(decompose(model.marginal(pair), pair, pair)).sum() / model.total
        assert signal < measured + 1e-3


def test_a_model_without_estimates_gives_the_single_columns():
    domain = domain_of(3, 2)
    model = ReferenceModel(domain, uniform_reference(domain))
    fit = fit_exactly(model, [], [np.array([10.0, 20.0, 50.0]), np.array([30.0, 10.0])])
    assert fit.gap == 0
    found = fit.joint.marginal(fit.probabilities, (0,))
    np.testing.assert_allclose(found, np.array([1, 2, 5]) / 8)


def test_too_many_cells_or_parameters_are_left_to_the_chains(monkeypatch):
    assert can_fit(DOMAIN, TRIPLE_AND_PAIRS, 48)
    assert not can_fit(DOMAIN, TRIPLE_AND_PAIRS, 47)
    monkeypatch.setattr(exact, "MOST_PARAMETERS", 20)
    assert not can_fit(DOMAIN, TRIPLE_AND_PAIRS, 48)


def test_every_state_has_every_run_of_cells_to_within_a_row():
    joint = np.random.default_rng(3).dirichlet(np.full(24, 0.3)).reshape(2, 3, 4)
    domain = domain_of(*joint.shape)
    fit = ExactFit(Joint(domain), joint.ravel(), 1.0, 0.0)
    chains = ExactChains(fit, 1000, np.random.default_rng(0))
    states = [chains.advance(), *np.split(chains.advance(2), 2), chains.advance()]
    for state in states:
        off = np.cumsum(histogram(state, domain).ravel()) - 1000 * np.cumsum(joint.ravel())
        assert np.abs(off).max() <= 1
    assert any((states[0] != state).any() for state in states)


def test_a_fit_that_stays_far_from_its_optimum_gives_way_to_chains(monkeypatch, tmp_path):
    """A few steps of an exact fit do not reach what a release of hardly any noise says; from a
    frame and from a file alike."""
    monkeypatch.setattr(exact, "STEPS", 1)
    monkeypatch.setattr(exact, "ROUGH_STEPS", 1)
    quick = partial(SynthesisSettings, fit_rows=2_000)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", quick)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, 2_000)
    frame = pd.DataFrame(
        {"a": first, "b": first**2 % 6, "c": rng.integers(0, 6, 2_000) * first // 6}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    columns = [{"name": name, "type": "integer", "min": 0, "max": 5} for name in frame]
    for table in (frame, tmp_path / "t.csv"):
        model = Synthesizer(rho=50, workers=1, insecure_seed=1, beyond_limits=True)
        made = model.fit(table, schema={"version": 1, "columns": columns}).sample(2_000, seed=1)
        for pair in combinations("abc", 2):
            true, found = (each.value_counts(list(pair), normalize=True) for each in (frame, made))
            assert true.sub(found, fill_value=0).abs().sum() < 0.1
