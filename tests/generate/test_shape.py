"""Weights over groups of codes, spread along the order of a column."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import ndtri

from adaptive_qs import Synthesizer
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.generate import shape
from adaptive_qs.generate.shape import (
    drifts,
    estimate_pair,
    find_shapes,
    hold_singles,
    interpolate,
    likely_counts,
    spread,
)
from adaptive_qs.generate.targets import Target, project_to_simplex
from adaptive_qs.levels import Grouping
from adaptive_qs.table.coded import CodedTable

GROUPS = tuple(np.repeat(range(8), [3, 2, 4, 2, 3, 2, 2, 2]).tolist())


def two_columns(beyond=0):
    attributes = (Attribute("a", 20, beyond=beyond), Attribute("b", 20), Attribute("c", 3, False))
    return Domain(attributes, (Grouping(0, GROUPS), Grouping(1, GROUPS)))


def scores(counts):
    shares = counts / counts.sum()
    return ndtri(np.cumsum(shares) - shares / 2)


def knots(counts):
    held = np.bincount(GROUPS, counts)
    return np.bincount(GROUPS, counts * scores(counts)) / held


def test_a_gaussian_copula_is_spread_exactly():
    rng, domain = np.random.default_rng(1), two_columns()
    one, other = rng.integers(5, 50, (2, 20)).astype(float)
    shapes = {3: interpolate(one, np.array(GROUPS), 0), 4: interpolate(other, np.array(GROUPS), 0)}
    found = spread(np.exp(0.7 * np.outer(knots(one), knots(other))), (3, 4), domain, shapes)
    np.testing.assert_allclose(found, np.exp(0.7 * np.outer(scores(one), scores(other))))


def test_codes_off_the_scale_follow_their_group():
    found = interpolate(np.ones(20), np.array(GROUPS), 2)
    np.testing.assert_array_equal(found[18:, :7], 0.0)
    np.testing.assert_array_equal(found[18:, 7], 1.0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert interpolate(np.ones(20), np.array(GROUPS[::-1]), 0) is None
    assert interpolate(np.ones(20), np.array(GROUPS), 18) is None


def normal_counts(rows=50_000, correlation=0.8):
    z = np.random.default_rng(2).multivariate_normal(
        [0, 0], [[1, correlation], [correlation, 1]], rows
    )
    codes = np.searchsorted(ndtri(np.arange(1, 20) / 20), z)
    return codes, np.histogram2d(*codes.T, bins=[range(21)] * 2)[0]


def test_the_order_is_followed_where_it_is_nearer(monkeypatch):
    monkeypatch.setattr(shape, "LEAST_CODES", 2)
    domain, (_, counts) = two_columns(), normal_counts()
    groups = domain.summed(counts, (0, 1), (3, 4))
    singles = [Target((i,), counts.sum(axis=1 - i), 50.0) for i in range(2)]
    singles.append(Target((2,), np.ones(3), 50.0))
    found = find_shapes(domain, [Target((3, 4), groups, 20.0)], singles, ())
    assert found.keys() == {3, 4}
    at_codes = Target((0, 2), np.ones((20, 3)), 20.0)  # its pair of groups says no more by that
    over = [Target((3, 4), groups, 20.0), at_codes]
    assert find_shapes(domain, over, singles, ()).keys() == {3, 4}
    assert not find_shapes(domain, [Target((3, 4), groups, 20.0)], singles, (0, 1))
    # Noise, groups without order, and a marginal that noise could have made are left flat.
    shuffled = groups[[4, 0, 5, 1, 6, 2, 7, 3]]
    assert not find_shapes(domain, [Target((3, 4), shuffled, 20.0)], singles, (1,))
    assert not find_shapes(domain, [Target((3, 4), groups, 20_000.0)], singles, ())


def test_drifts_are_those_of_a_loop():
    rng, domain = np.random.default_rng(4), two_columns()
    shapes = {3: interpolate(rng.random(20) + 1, np.array(GROUPS), 0)}
    ratio, counts = rng.random((8, 3)) + 0.5, rng.integers(0, 9, (20, 3)).astype(float)
    found = dict(drifts(ratio, counts, (3, 2), domain, shapes))
    logs = np.log(ratio)
    for code in range(20):
        flat = sum(counts[code, k] * ratio[GROUPS[code], k] for k in range(3))
        shaped = sum(
            counts[code, k] * np.exp(sum(shapes[3][code, g] * logs[g, k] for g in range(8)))
            for k in range(3)
        )
        assert found[0][code] == pytest.approx((shaped + 2) / (flat + 2))
    assert drifts(ratio, counts, (3, 2), domain, {}) == []


def test_single_columns_are_held():
    rng = np.random.default_rng(5)
    means = [rng.random((4, 5)).astype(np.float32), rng.random((6, 7)).astype(np.float32)]
    before = means[1].copy()
    singles = [Target((i,), rng.random(n), 1.0) for i, n in enumerate((4, 5, 6))]
    singles = [Target(t.clique, t.counts / t.counts.sum(), 1.0) for t in singles]
    hold_singles(means, [(0, 1), (2, 3)], singles, (0, 1))
    np.testing.assert_allclose(means[0].sum(axis=0), singles[1].counts, rtol=1e-2)
    np.testing.assert_allclose(means[0].sum(axis=1), singles[0].counts, rtol=1e-2)
    np.testing.assert_array_equal(means[1], before)


@pytest.mark.slow
def test_a_table_is_nearer_than_groups_without_noise():
    """Tables with independent codes inside groups are off by more than this oracle, on average."""
    rng = np.random.default_rng(6)
    common = rng.standard_normal((8_000, 1))
    values = 0.95 * common + np.sqrt(1 - 0.95**2) * rng.standard_normal((8_000, 3))
    codes = np.searchsorted(ndtri(np.arange(1, 72) / 72), values)
    domain = Domain.from_sizes(dict.fromkeys("abc", 72))
    table = CodedTable.from_codes(domain, codes.T)
    run = Synthesizer(epsilon=0.25, delta=1e-9, workload=2, insecure_seed=1, workers=1).fit(table)
    model = run.release_.model()
    measured = [t for t in model.estimates if len(t) == 2]
    assert measured
    assert all(i >= 3 and model.domain.shape((i,)) == (8,) for t in measured for i in t)
    made = run.release_.draw(seed=1).coded()
    at = [model.domain.groups(i, model.domain.chain(i)[-1]).of for i in range(3)]
    off = flat_off = 0.0
    for i, j in combinations(range(3), 2):
        true, found = (
            np.histogram2d(t[i], t[j], bins=[range(73)] * 2)[0] for t in (codes.T, made.columns)
        )
        sums = np.zeros((8, 8))
        np.add.at(sums, (at[i][:, None], at[j][None, :]), true)
        one, other = true.sum(axis=1), true.sum(axis=0)
        flat = sums[at[i]][:, at[j]] * np.outer(
            one / np.bincount(at[i], one)[at[i]], other / np.bincount(at[j], other)[at[j]]
        )
        off += np.abs(true / true.sum() - found / found.sum()).sum()
        flat_off += np.abs(true - flat).sum() / true.sum()
    assert off < flat_off


def test_pairs_are_estimated_from_all_their_tables_nearer_than_by_a_projection():
    """Groups of both columns and codes of one are measured; inside groups the order is followed."""
    (domain, rng), (_, true) = (two_columns(), np.random.default_rng(5)), normal_counts()
    singles, gains = [true.sum(axis=1), true.sum(axis=0)], []
    shapes = {3 + i: interpolate(singles[i], np.array(GROUPS), 0) for i in range(2)}
    for _ in range(5):
        tables = list[tuple[tuple[int, int], np.ndarray, float]]()
        for levels in ((3, 4), (0, 4)):
            exact = domain.summed(true, (0, 1), levels)
            noisy = exact + 40 * rng.standard_normal(exact.shape)
            tables.append((levels, project_to_simplex(noisy, true.sum()), 40.0))
        found = estimate_pair(tables, singles, domain, shapes)
        np.testing.assert_allclose(found.sum(axis=0), singles[1], rtol=1e-6)
        flat = estimate_pair(tables[1:], singles, domain, {})
        projected = domain.repeated(tables[1][1], (0, 4), (0, 1))
        projected *= singles[1] / domain.repeated(domain.summed(singles[1], (1,), (4,)), (4,), (1,))
        gains.append([np.abs(x - true).sum() for x in (found, flat, projected)])
    shaped, flat, projected = np.array(gains).T
    assert (shaped < 0.8 * flat).all()
    assert (flat < projected).all()


def test_cells_are_what_is_likely_given_noise_and_what_was_known():
    rng = np.random.default_rng(6)
    known = np.full((60, 60), 100.0)
    true = known * np.where(rng.random(known.shape) < 0.5, 0.0, rng.gamma(4.0, 0.5, known.shape))
    noisy = np.maximum(true + 20 * rng.standard_normal(true.shape), 0.0)
    found = likely_counts(noisy, known, 20.0)
    assert np.square(found - true).mean() < 0.8 * np.square(noisy - true).mean()
    assert found[true == 0].mean() < 0.5 * noisy[true == 0].mean()
    np.testing.assert_allclose(likely_counts(true, known, 1e-3), true, atol=0.5)
    same = known + 20 * rng.standard_normal(known.shape)
    assert (
        np.abs(likely_counts(same, known, 20.0) - known).mean() < 0.5 * np.abs(same - known).mean()
    )
