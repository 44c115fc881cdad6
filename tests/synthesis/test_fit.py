import numpy as np
import pytest

from adaptive_qs.synthesis.branches import BranchMoves
from adaptive_qs.synthesis.fit import FitSettings, fit_weights
from adaptive_qs.synthesis.loglinear import LogLinearModel
from adaptive_qs.synthesis.tables import count_rows
from adaptive_qs.synthesis.targets import Target
from adaptive_qs.synthesis.tree import dependence_tree

from .helpers import domain_of, histogram, marginal_of, random_loglinear

DOMAIN = domain_of(3, 4, 2)
CLIQUES = [(0, 1), (1, 2), (0, 2)]
ROWS = 20_000


def joint():
    return random_loglinear(DOMAIN, CLIQUES, seed=1, spread=1.0)[1]


def margin(table, clique):
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in clique))


def fitted(settings, watched=(), workers=1, noise_std=0.0):
    """A model fitted from independence to the exact marginals of a table without a tree shape."""
    table = ROWS * joint()
    targets = [Target(c, margin(table, c), noise_std) for c in [*CLIQUES, (0,), (1,), (2,)]]
    singles = [t.counts for t in targets[3:]]
    model = LogLinearModel(DOMAIN, CLIQUES, singles, workers)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.choice(s.size, ROWS, p=s / s.sum()) for s in singles], axis=1).astype(
        np.int32
    )
    start = rows.copy()
    tree = dependence_tree(DOMAIN, targets[:3], singles)
    branches = BranchMoves(model, tree, singles, workers)
    means = fit_weights(model, branches, rows, targets, watched, settings, rng, workers)
    return start, rows, means


def distance(rows):
    return np.abs(histogram(rows, DOMAIN) / ROWS - joint()).sum()


def test_the_chains_reach_the_table_whose_marginals_are_the_targets():
    """The joint is log-linear in the targets' cliques, so it is the only maximum of entropy.

    Sampling alone leaves an L1 distance of about sqrt(2 · 24 cells / (π · rows)) = 0.028.
    """
    start, rows, _ = fitted(FitSettings(sweeps=60, averaged=10))
    assert distance(start) > 0.2
    assert distance(rows) < 0.07


def test_the_averaged_marginals_are_closer_than_those_of_the_rows():
    watched = [(0, 1), (0, 1, 2)]
    _, rows, means = fitted(FitSettings(sweeps=200, averaged=30, step=0.3), watched)
    for clique, mean in zip(watched, means):
        wanted = ROWS * margin(joint(), clique)
        assert mean.shape == DOMAIN.shape(clique)
        assert mean.sum() == pytest.approx(ROWS, rel=1e-5)
        assert np.abs(mean - wanted).sum() < np.abs(count_rows(rows, DOMAIN, clique) - wanted).sum()


def test_with_one_averaged_sweep_the_mean_is_the_rows():
    watched = [(0, 1), (0, 1, 2), (2,)]
    _, rows, means = fitted(FitSettings(sweeps=3, averaged=1), watched)
    for clique, mean in zip(watched, means):
        np.testing.assert_array_equal(mean, marginal_of(rows, DOMAIN, clique))


def test_weights_hardly_follow_differences_below_the_noise():
    still = fitted(FitSettings(sweeps=20, averaged=1), noise_std=1e7)[1]
    moved = fitted(FitSettings(sweeps=20, averaged=1), noise_std=0.0)[1]
    assert distance(still) > 0.2
    assert distance(moved) < distance(still) / 2


def test_the_fit_does_not_depend_on_the_workers():
    settings = FitSettings(sweeps=5, averaged=2)
    first, second = (fitted(settings, [(0, 1)], workers) for workers in (1, 2))
    np.testing.assert_array_equal(first[1], second[1])
    np.testing.assert_array_equal(first[2][0], second[2][0])


@pytest.mark.parametrize(("sweeps", "averaged"), [(5, 6), (5, 0), (0, 0)])
def test_impossible_settings_are_refused(sweeps, averaged):
    with pytest.raises(ValueError, match="averaged"):
        FitSettings(sweeps=sweeps, averaged=averaged)
