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
from adaptive_qs.errors import InputError
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.generate.shape import Halves
from adaptive_qs.generate.targets import find_misfit, make_target
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.candidates import LOOK_SHARE, LOOK_STD, look_rho, pairs_to_look_at
from adaptive_qs.loop.estimates import halves_query
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
EVERY = Workload.all_ways(SCALE, 2)


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
    assert off.mean() > 0.8
    assert off.min() > 0.7
    assert release.manifest.unconnected == ()
    model = release.model()
    assert {*model.copula} == {c for c in release.workload.closure if len(c) == 2}
    release.save(tmp_path / "r.zip")
    assert problems(tmp_path / "r.zip") == []
    again = type(release).load(tmp_path / "r.zip").model()
    for pair, ratio in model.copula.items():
        np.testing.assert_array_equal(again.copula[pair], ratio)
    looks = [past for past in release.rounds if not past.clique]
    three = [(("a", "b", "c"), (20,) * 3, 1.0), (("d", "e", "f"), (20,) * 3, 1.0)] * 8
    for number, measured in enumerate([(), tuple(three[:15])]):
        forged = (looks[0].model_copy(update={"noise_variances": measured}),)
        object.__setattr__(release, "rounds", forged + release.rounds[1:])
        release.save(tmp_path / f"{number}.zip")
        with pytest.raises(InputError, match="damaged"):
            type(release).load(tmp_path / f"{number}.zip")


def test_columns_that_depend_weakly_are_left_alone(tmp_path):
    release = fitted(correlated(0.1))
    assert not release.model().copula
    assert [past.clique for past in release.rounds if not past.rho_selecting][:1] == [()]
    release.save(tmp_path / "r.zip")
    assert problems(tmp_path / "r.zip") == []


def oracle(shares, beyond, correlation):
    """The joint shares of all codes, cell by cell from the bivariate normal distribution."""
    on = [share.size - beyond for share in shares]
    scale = [share[:n].sum() for share, n in zip(shares, on)]
    normal = multivariate_normal(cov=[[1, correlation], [correlation, 1]])
    up_to = [
        np.clip(ndtri(np.clip(np.append(0, np.cumsum(share[:n])) / w, 0, 1)), -9, 9)
        for share, n, w in zip(shares, on, scale)
    ]
    cdf = np.array([[normal.cdf([x, y]) for y in up_to[1]] for x in up_to[0]])
    found = np.outer(*shares)
    found[: on[0], : on[1]] = np.diff(np.diff(cdf, axis=0), axis=1) * math.prod(scale)
    return found


def with_halves(correlation, precision, beyond=0, names="xyz"):
    """Halves of columns with one correlation, what is held of them, and joint shares by pair."""
    attributes = [Attribute(n, 8 + beyond, beyond=beyond) for n in names]
    rng = np.random.default_rng(5)
    shares = [rng.dirichlet(np.ones(8 + beyond)) for _ in attributes]
    estimates = {(): ResidualEstimate(np.array(1000.0), 1.0)}
    model = ReferenceModel(Domain(tuple(attributes)), shares, estimates)
    pairs = [(i, j) for j in range(len(names)) for i in range(j)]
    halves = Halves(model, pairs)
    joint = {(i, j): oracle([shares[i], shares[j]], beyond, correlation) for i, j in pairs}
    sums = [1000 * halves.signs[i] @ joint[i, j] @ halves.signs[j] for i, j in pairs]
    return halves, ResidualEstimate(np.array(sums), precision), joint, shares


@pytest.mark.parametrize(
    ("correlation", "beyond", "names"), [(0.6, 0, "xyz"), (-0.4, 0, "xyz"), (0.6, 2, "xyz")]
)
def test_pairs_are_filled_by_the_normal_copula_of_their_halves(correlation, beyond, names):
    halves, held, joint, shares = with_halves(correlation, 1e12, beyond, names)
    for (i, j), ratio in halves.ratios(held).items():
        found = ratio * np.outer(shares[i], shares[j])
        np.testing.assert_allclose(found, joint[i, j], atol=4e-3)
        np.testing.assert_allclose(found.sum(axis=0), shares[j], atol=1e-3)
        np.testing.assert_allclose(found.sum(axis=1), shares[i], atol=1e-9)


def test_misfit_is_what_measured_pairs_are_off_beyond_noise():
    domain, ones = Domain.from_sizes({"a": 2, "b": 2}), {(0, 1): np.ones((2, 2))}
    off = np.array([[30.0, -30.0], [-30.0, 30.0]])  # rows beyond 100 in each cell
    known = {(): ResidualEstimate(np.array(400.0), 1e6), (0, 1): ResidualEstimate(off, 0.01)}
    model = ReferenceModel(domain, [np.full(2, 0.5)] * 2, known)
    pair = make_target(model, (0, 1))
    # Its noise of 100 rows² keeps a quarter when both margins are removed.
    assert find_misfit(model, ones, [pair]) == pytest.approx(math.sqrt(0.3**2 - 0.05**2), rel=1e-3)
    assert find_misfit(model, {(0, 1): 1 + off / 100}, [pair]) == 0
    assert find_misfit(model, {}, [pair]) == 0
    assert pair.times(ones[0, 1], 0.3).noise_std == pytest.approx(30)


def test_noise_alone_is_shrunk_to_independence():
    halves, held, *_ = with_halves(0.0, 1e-4, names="abcdefghij")
    noisy = held.values + np.random.default_rng(0).normal(0, 100.0, held.values.size)
    held = ResidualEstimate(noisy, held.precision)
    covariances, variance = halves.covariances(held)
    off = covariances[np.triu_indices(10, 1)]
    np.testing.assert_allclose(off.std(), math.sqrt(variance), rtol=0.3)
    assert rho_to_fill(covariances, variance, 9.0, 1000.0, 1e-4) == 0
    off = [abs(ratio - 1).mean() for ratio in halves.ratios(held).values()]
    assert np.mean(off) < 0.5 * np.abs(covariances).mean()


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


def test_a_row_counts_once_for_each_pair():
    """The sensitivity of a sum of signs is one, and replacing a row moves it by two."""
    signs = {i: np.repeat([1, -1], [7, 13]) for i in range(6)}
    query = halves_query(SCALE, (0, 3), signs)
    assert query.squared_sensitivity == 1
    assert query.diameter == 4
    table = np.zeros((20, 20), dtype=np.int64)
    table[3, 4], table[10, 2] = 5, 3
    assert query.answers(table).item() == 2
    every = Workload.all_ways(SCALE, 2).closure
    assert not pairs_to_look_at(SCALE, every)  # no levels


@pytest.mark.parametrize(
    ("covariance", "measured", "pays"), [(0.6, 1.0, True), (0.6, 0.3, False), (0.1, 1.0, False)]
)
def test_pairs_are_filled_where_that_leaves_least(covariance, measured, pays):
    """Not where the loop measures all pairs, where dependence is weak, or may be noise."""
    every = np.full((10, 10), covariance) - covariance * np.eye(10)
    found = rho_to_fill(every, 0.01, measured, 20_000.0, 1e-5)
    assert 0 < found < 1e-5 if pays else found == 0
    assert rho_to_fill(every, 4 * covariance**2, measured, 20_000.0, 1e-5) == 0


@pytest.mark.slow
def test_a_loop_that_measures_halves_replays_on_a_neighbour():
    rows = [*map(tuple, correlated(0.9, rows=400).to_numpy().tolist())]
    result = assert_replays(rows, rows[1:], EVERY, 0.05, None)
    assert len(result.halves) == 15
    assert [past.clique for past in result.rounds[:2]] == [(), ()]
    few = LoopSettings(measured_cells=15 * 400 - 1)  # the filled pairs would not fit the memory
    assert all(past.clique for past in assert_replays(rows, rows[1:], EVERY, 0.05, few).rounds)
