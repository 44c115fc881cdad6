"""Pairs of ordered columns that a copula fills: when, with what, and for how much ρ."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import multivariate_normal

from adaptive_qs import Synthesizer
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.generate.copula import Halves, fill_pairs
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.levels import find_halves
from adaptive_qs.loop.candidates import LOOK_SHARE, LOOK_STD, look_rho, pairs_of_halves
from adaptive_qs.loop.estimates import measurement_cost
from adaptive_qs.loop.expected import rho_to_fill
from adaptive_qs.residual import ReferenceModel, ResidualEstimate
from adaptive_qs.workload.workload import Workload

from ..audit.recompute import problems
from .test_loop import assert_replays

NAMES = "abcdef"
SCHEMA = {
    "version": 1,
    "columns": [{"name": n, "type": "integer", "min": 0, "max": 19} for n in NAMES],
}
SCALE = Domain(tuple(Attribute(n, 20) for n in NAMES))


def correlated(correlation, rows=4_000, seed=0):
    """Columns whose normal scores have one correlation; 20 codes of equal share each."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 1))
    scores = math.sqrt(correlation) * common
    scores = scores + math.sqrt(1 - correlation) * rng.normal(size=(rows, len(NAMES)))
    codes = np.argsort(np.argsort(scores, axis=0), axis=0) * 20 // rows
    return pd.DataFrame(codes, columns=[*NAMES])


@pytest.fixture(autouse=True)
def quick_tables(monkeypatch):
    """Fit tables with few rows."""
    few = partial(SynthesisSettings, fit_rows=4_000)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", few)


def fitted(frame, epsilon=0.2):
    run = Synthesizer(
        epsilon=epsilon, delta=1e-6, insecure_seed=1, workload=2, beyond_limits=True, workers=1
    )
    return run.fit(frame, schema=SCHEMA).release_


def test_columns_that_depend_strongly_stay_correlated(tmp_path):
    release = fitted(correlated(0.9))
    made = release.draw(seed=1).table().to_pandas().corr().to_numpy()
    off = made[np.triu_indices(len(NAMES), 1)]
    # The noise of ε = 0.2 hides the pairs of 20 x 20 codes, and even of 8 x 8 groups.
    assert off.mean() > 0.6
    assert off.min() > 0.3
    assert release.manifest.unconnected == ()
    model = release.model()
    assert {*model.fill} == {c for c in release.workload.closure if len(c) == 2}
    release.save(tmp_path / "r.zip")
    assert problems(tmp_path / "r.zip") == []
    again = type(release).load(tmp_path / "r.zip").model()
    for pair, inside in model.fill.items():
        np.testing.assert_array_equal(again.fill[pair], inside)


def test_columns_that_depend_weakly_are_left_alone(tmp_path):
    release = fitted(correlated(0.1))
    assert not release.model().fill
    assert [past.clique for past in release.rounds if not past.rho_selecting] == [()]
    release.save(tmp_path / "r.zip")
    assert problems(tmp_path / "r.zip") == []


def with_interactions(correlation, precision, beyond=0, names="xyz"):
    """A model of the halves of some columns with one correlation, and their shares."""
    attributes = [Attribute(n, 8 + beyond, beyond=beyond) for n in names]
    rng = np.random.default_rng(5)
    shares = [rng.dirichlet(np.ones(8 + beyond)) for _ in attributes]
    halves = tuple(find_halves(i, share) for i, share in enumerate(shares))
    domain = Domain(tuple(attributes), halves, halved=True)
    estimates = {(): ResidualEstimate(np.array(1000.0), 1.0)}
    for (i, first), (j, second) in [
        (a, b) for a in domain.medians.items() for b in domain.medians.items() if a < b
    ]:
        joint = oracle(domain, shares, (i, j), correlation)
        four = domain.summed(joint, (i, j), (first, second)) * 1000
        cell = (four[0, 0] + four[1, 1] - four[0, 1] - four[1, 0]) / 4
        values = np.array([[cell, -cell], [-cell, cell]])
        estimates[first, second] = ResidualEstimate(values, precision)
    return ReferenceModel(domain, shares, estimates), shares


def oracle(domain, shares, pair, correlation):
    """The joint shares of all codes, cell by cell from the bivariate normal distribution."""
    on = [domain.sizes[i] - domain.attributes[i].beyond for i in pair]
    scale = [shares[i][:n].sum() for i, n in zip(pair, on)]
    normal = multivariate_normal(cov=[[1, correlation], [correlation, 1]])
    up_to = [
        np.clip(ndtri(np.clip(np.append(0, np.cumsum(shares[i][:n])) / w, 0, 1)), -9, 9)
        for i, n, w in zip(pair, on, scale)
    ]
    cdf = np.array([[normal.cdf([x, y]) for y in up_to[1]] for x in up_to[0]])
    inside = np.diff(np.diff(cdf, axis=0), axis=1) * math.prod(scale)
    found = np.outer(shares[pair[0]], shares[pair[1]])
    found[: on[0], : on[1]] = inside
    return found


@pytest.mark.parametrize(
    ("correlation", "beyond", "names"), [(0.8, 0, "xyz"), (-0.8, 0, "xy"), (0.8, 2, "xyz")]
)
def test_pairs_are_filled_by_the_normal_copula_of_their_halves(correlation, beyond, names):
    model, shares = with_interactions(correlation, 1e12, beyond, names)
    halves = Halves(model)
    scores = halves.scores()
    np.testing.assert_allclose(scores[np.triu_indices(len(names), 1)], correlation, atol=0.01)
    for pair, inside in fill_pairs(model).items():
        expected = oracle(model.domain, shares, pair, correlation)
        product = np.outer(shares[pair[0]], shares[pair[1]])
        np.testing.assert_allclose(inside + product, expected, atol=4e-3)
        np.testing.assert_allclose(inside.sum(axis=0), 0, atol=1e-3)
        np.testing.assert_allclose(inside.sum(axis=1), 0, atol=1e-9)


def test_noise_alone_is_shrunk_to_independence():
    model, _ = with_interactions(0.0, 1.0, names="abcdefghij")
    rng, noisy = np.random.default_rng(0), {}
    for clique, estimate in model.estimates.items():
        cell = rng.normal(0, 50.0)
        values = np.array([[cell, -cell], [-cell, cell]]) if clique else estimate.values
        noisy[clique] = ResidualEstimate(values, 1e-4 if clique else 1.0)
    halves = Halves(ReferenceModel(model.domain, model.reference, noisy))
    at = np.triu_indices(10, 1)
    raw, shrunk = halves.correlations[at], halves.scores()[at]
    np.testing.assert_allclose(raw.std(), np.sqrt(halves.variances[at]).mean(), rtol=0.3)
    assert np.square(shrunk).mean() < 0.1 * np.square(raw).mean()


def test_a_filled_pair_follows_its_measurement_once_there_is_one():
    model, shares = with_interactions(0.8, 1e12)
    pair, domain = (0, 1), model.domain
    filled = ReferenceModel(domain, shares, model.estimates, fill=fill_pairs(model))
    expected = 1000 * (filled.fill[pair] + np.outer(shares[0], shares[1]))
    np.testing.assert_allclose(filled.marginal(pair), expected, atol=1e-9)
    assert pair in filled.filled
    filled.update(pair, np.zeros(domain.shape(pair)), 1.0)
    model.update(pair, np.zeros(domain.shape(pair)), 1.0)
    assert pair not in filled.filled
    np.testing.assert_allclose(filled.marginal(pair), model.marginal(pair))
    assert (0, 2) in filled.filled


@pytest.mark.parametrize("pairs", [1, 45, 6_000])
def test_the_look_costs_little_or_nothing(pairs):
    rho, rows = 1e-3, 20_000.0
    found = look_rho(pairs, rows, rho)
    assert 0 <= found <= LOOK_SHARE * rho
    if found:
        std = math.sqrt(pairs / (2 * found)) / rows
        assert LOOK_STD * (1 - 1e-9) <= std <= 1
    else:
        assert math.sqrt(pairs / (2 * LOOK_SHARE * rho)) / rows > 1
    halves = tuple(find_halves(i, np.full(20, 0.05)) for i in range(6))
    domain = Domain(SCALE.attributes, halves, halved=True)
    assert len(pairs_of_halves(domain, Workload.all_ways(SCALE, 2).closure)) == 15
    assert measurement_cost(domain, (domain.medians[0], domain.medians[1])) == 0.25


@pytest.mark.parametrize(
    ("correlation", "rho", "pays"), [(0.6, 1e-5, True), (0.6, 1e-2, False), (0.1, 1e-5, False)]
)
def test_pairs_are_filled_where_that_leaves_least(correlation, rho, pays):
    """With much budget all pairs are measured, and weak dependence is not worth it."""
    found = rho_to_fill(correlation**2, 0.01, 45, 20_000.0, rho)
    assert 0 < found < rho if pays else found == 0
    assert rho_to_fill(correlation**2, correlation**2, 45, 20_000.0, rho) == 0  # may be noise


def test_a_loop_that_measures_halves_replays_on_a_neighbour():
    rows = [*map(tuple, correlated(0.9, rows=400).to_numpy().tolist())]
    result = assert_replays(rows, rows[1:], Workload.all_ways(SCALE, 2), 0.05, None)
    assert len(result.model.fill) == 15
    assert [past.clique for past in result.rounds[:2]] == [(), ()]
