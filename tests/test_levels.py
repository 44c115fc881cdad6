"""Levels of attributes: groupings, and the algebra over them against dense matrices."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.levels import LEVEL_SIZES, Grouping, Groups, build_chain, nested_groupings
from adaptive_qs.residual import (
    ReferenceModel,
    ResidualEstimate,
    centered,
    is_measured,
    measured_variance,
    privacy_cost,
    variance_weight,
)

FINE_A, COARSE_A = (0, 0, 1, 2, 1, 3, 3), (0, 0, 1, 1, 1, 0, 0)  # groups out of order, nested
COARSE_B = (0, 0, 0, 1)
DOMAIN = Domain(
    tuple(Attribute(name, n) for name, n in (("a", 7), ("b", 4), ("c", 3))),
    (Grouping(0, FINE_A), Grouping(0, COARSE_A), Grouping(1, COARSE_B)),
)
CODES = (0, 1, 2)
# Positions: 3 and 4 are the levels of a, 5 that of b.
EVERY_CLIQUE = [c for part in product([None, 0, 3, 4], [None, 1, 5], [None, 2])
                for c in [tuple(i for i in part if i is not None)]]  # fmt: skip
RESIDUALS = list(DOMAIN.below(CODES))


def incidence(groups, count=None):
    """0/1 matrix that sums codes over groups, shape (groups, codes)."""
    return np.eye(max(groups) + 1)[list(groups)].T


def sums_of(position):
    """The same for a position of the domain."""
    grouping = {3: FINE_A, 4: COARSE_A, 5: COARSE_B}.get(position)
    return incidence(grouping) if grouping else np.eye(DOMAIN.sizes[position])


def projection(position, single):
    """What centers a table over the groups of a level, in the groups of the next coarser one."""
    coarser = None if single else {0: 3, 3: 4, 1: 5}.get(position)
    fine = sums_of(position)
    if coarser is None:
        return np.eye(len(fine)) - 1 / len(fine)
    inside = (sums_of(coarser) @ fine.T > 0).astype(float)  # (coarser groups, groups)
    return np.eye(len(fine)) - inside.T @ np.diag(1 / inside.sum(axis=1)) @ inside


def kron(matrices):
    found = np.ones((1, 1))
    for matrix in matrices:
        found = np.kron(found, matrix)
    return found


def total_to(clique):
    """Matrix from a flattened table of all codes to the flattened marginal over a clique."""
    held = dict(zip(DOMAIN.columns(clique), clique))
    return kron(sums_of(held[i]) if i in held else np.ones((1, DOMAIN.sizes[i])) for i in CODES)


def centering(residual):
    return kron(projection(i, len(residual) == 1) for i in residual)


def spreading(residual, reference):
    """Matrix from a flattened component to all codes: inside groups by the reference."""
    held = dict(zip(DOMAIN.columns(residual), residual))
    parts = []
    for i, q in enumerate(reference):
        sums = sums_of(held[i]) if i in held else np.ones((1, q.size))
        parts.append(np.diag(q) @ sums.T @ np.diag(1 / (sums @ q)))
    return kron(parts)


def dense_table(values, reference):
    """The estimate from its definition: each residual matched in turn, the coarsest first."""
    table = np.zeros(np.prod(DOMAIN.sizes))
    for tau in RESIDUALS[:4] + sorted(RESIDUALS[4:], key=fineness):
        if tau in values:
            known = centering(tau) @ total_to(tau) @ table
            table = table + spreading(tau, reference) @ (values[tau].ravel() - known)
    return table


def fineness(residual):
    """Larger for whatever has another residual below it."""
    return len(residual), np.prod(DOMAIN.shape(residual))


def random_reference(rng):
    return tuple(rng.dirichlet(np.ones(n)) * 0.9 + 0.1 / n for n in DOMAIN.sizes)


def random_values(rng, residual):
    noise = rng.normal(scale=100, size=int(np.prod(DOMAIN.shape(residual))))
    return (centering(residual) @ noise).reshape(DOMAIN.shape(residual))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-7)


@given(st.lists(st.sampled_from(RESIDUALS), max_size=12), st.integers(0, 2**32 - 1))
def test_every_marginal_at_every_level_is_that_of_the_dense_table(sequence, seed):
    """Residuals come in any order, some several times, and marginals are asked for in between."""
    rng = np.random.default_rng(seed)
    reference = random_reference(rng)
    model = ReferenceModel(DOMAIN, reference)
    values, precisions = {}, {}
    for tau in sequence:
        z, precision = random_values(rng, tau), rng.uniform(0.1, 10)
        model.update(tau, z, precision)
        model.marginal(EVERY_CLIQUE[rng.integers(len(EVERY_CLIQUE))])
        total = precisions.get(tau, 0) + precision
        values[tau] = values.get(tau, 0) + (z - values.get(tau, 0)) * precision / total
        precisions[tau] = total
    table = dense_table(values, reference)
    for clique in EVERY_CLIQUE:
        close(model.marginal(clique).ravel(), total_to(clique) @ table)
    for tau, wanted in values.items():
        close(centered(model.marginal(tau), DOMAIN, tau), wanted)
    estimates = {tau: ResidualEstimate(values[tau], precisions[tau]) for tau in reversed(values)}
    again = ReferenceModel(DOMAIN, reference, estimates)
    close(again.marginal(CODES), model.marginal(CODES))


def test_all_residuals_of_a_table_give_it_back():
    rng = np.random.default_rng(1)
    table = rng.integers(0, 50, DOMAIN.sizes).astype(float)
    model = ReferenceModel(DOMAIN, random_reference(rng))
    for tau in RESIDUALS:
        counts = (total_to(tau) @ table.ravel()).reshape(DOMAIN.shape(tau))
        model.update(tau, centered(counts, DOMAIN, tau), 1.0)
    assert is_measured(model.estimates, CODES, DOMAIN)
    close(model.marginal(CODES), table)


def test_residual_spaces_are_orthogonal_and_together_the_space_of_the_marginal():
    """Those of several attributes; a single column has one space for all its levels."""
    for clique in EVERY_CLIQUE:
        maps = {}
        for tau in DOMAIN.below(clique):
            held = dict(zip(DOMAIN.columns(tau), tau))
            parts = []
            for i in clique:
                (column,) = DOMAIN.columns((i,))
                level = held.get(column)
                if level is None:
                    parts.append(np.ones((1, DOMAIN.shape((i,))[0])))
                    continue
                level = i if len(tau) == 1 else level
                to_level = (sums_of(level) @ sums_of(i).T > 0).astype(float)
                parts.append(projection(level, len(tau) == 1) @ to_level)
            maps[tau] = kron(parts)
        ranks = [np.linalg.matrix_rank(m) for m in maps.values()]
        assert (
            sum(ranks) == DOMAIN.size(clique) == np.linalg.matrix_rank(np.vstack([*maps.values()]))
        )


@pytest.mark.parametrize("clique", EVERY_CLIQUE)
def test_the_variance_of_every_cell_is_that_of_the_linear_map(clique):
    """By the model's response to a unit of every residual; the total's weight is approximate."""
    rng = np.random.default_rng(2)
    reference = random_reference(rng)
    below = list(DOMAIN.below(clique))
    zero = {t: ResidualEstimate(np.zeros(DOMAIN.shape(t)), rng.uniform(0.5, 2)) for t in below}
    wanted = np.zeros(DOMAIN.shape(clique))
    for tau in below:
        added = np.zeros(DOMAIN.shape(clique))
        for unit in centering(tau).T:
            response = ResidualEstimate(unit.reshape(DOMAIN.shape(tau)), zero[tau].precision)
            model = ReferenceModel(DOMAIN, reference, zero | {tau: response})
            added += np.square(model.marginal(clique))
        wanted += added / zero[tau].precision
        if tau:
            assert variance_weight(DOMAIN, tau, clique) == pytest.approx(added.mean())
    found = measured_variance(ReferenceModel(DOMAIN, reference, zero), clique)
    close(np.broadcast_to(found, wanted.shape), wanted)


def test_the_cost_of_a_residual_is_that_of_the_largest_group():
    for tau in RESIDUALS:
        lengths = np.square(centering(tau)).sum(axis=0)
        assert privacy_cost(DOMAIN, tau) == pytest.approx(lengths.max())


# Groupings.

shares = st.lists(st.floats(1e-6, 1), min_size=1, max_size=150).map(
    lambda values: np.array(values) / np.sum(values)
)


@given(shares, st.booleans())
def test_groupings_are_nested_and_of_about_the_same_share(q, ordered):
    levels = nested_groupings(0, q, ordered)
    domain = Domain((Attribute("a", q.size),), tuple(levels))
    for grouping, most in zip(levels, [n for n in LEVEL_SIZES if 2 * n <= q.size]):
        held = Groups(grouping.groups).sums(q, 0)
        assert grouping.number == held.size <= most
        # A group of several codes holds less than what was left for each plus half a code.
        several = np.bincount(grouping.groups) > 1
        assert held[several].max(initial=0) <= 2 * q.sum() / most + q.max()
        if ordered:
            assert (np.diff(grouping.groups) >= 0).all()
    for finer, coarser in pairwise(domain.chain(0)):
        assert domain.groups(finer, coarser).sizes.sum() == domain.shape((finer,))[0]


@given(shares, st.booleans(), st.integers(0, 2**32 - 1))
def test_declared_levels_are_kept_and_made_ones_are_nested_in_them(q, ordered, seed):
    """The chain is one of nested partitions (or the domain refuses it), has every public level that
    is coarse enough, and between them made ones of no more groups than there are to be."""
    rng = np.random.default_rng(seed)
    fine = rng.integers(0, max(q.size // 3, 1), q.size)
    declared = build_chain([fine, rng.integers(0, 4, fine.max() + 1)[fine]])
    levels = nested_groupings(0, q, ordered, declared)
    domain = Domain((Attribute("a", q.size),), tuple(levels))
    for finer, coarser in pairwise(domain.chain(0)):
        (n,), (m,) = domain.shape((finer,)), domain.shape((coarser,))
        assert n >= 2 * m
        assert domain.groups(finer, coarser).sizes.sum() == n
    numbers = [grouping.number for grouping in levels]
    public = [max(level) + 1 for level in declared]
    if public and q.size >= 2 * public[0]:
        assert levels[numbers.index(public[0])].groups == declared[0]
    made = {g.number for g in levels if g.groups not in declared}
    assert len(made) <= len(LEVEL_SIZES)
    assert max(made, default=0) <= max(LEVEL_SIZES)


def test_made_levels_are_cut_inside_declared_groups_by_their_shares():
    """Three parents of 80, 15 and 5 %, by D'Hondt: 25, 5 and 2 of 32 groups, 6, 1 and 1 of 8."""
    parents = np.repeat([0, 1, 2], [60, 30, 10])
    q = np.repeat([0.8 / 60, 0.15 / 30, 0.05 / 10], [60, 30, 10])
    fine, middle, coarse = nested_groupings(0, q, True, build_chain([parents]))
    assert coarse.groups == tuple(parents)
    for level, runs in ((fine, [25, 5, 2]), (middle, [6, 1, 1])):
        assert [len({*np.array(level.groups)[parents == k]}) for k in range(3)] == runs


def test_of_public_groupings_nested_ones_are_levels():
    fine, coarse, across = (0, 0, 1, 1, 2, 2), (5, 5, 5, 5, 3, 3), (0, 1, 0, 1, 0, 1)
    assert build_chain([coarse, fine]) == (fine, (1, 1, 1, 1, 0, 0))
    assert build_chain([across, fine]) == (fine,)
    assert build_chain([fine, fine]) == (fine,)
    assert build_chain([range(6), (0,) * 6]) == ()


def test_rare_codes_of_no_order_come_together():
    q = np.tile([0.04, 0.001], 20) / 0.82
    (level,) = nested_groupings(3, q, ordered=False)
    assert level.attribute == 3
    assert level.number == 8
    rare = {level.groups[i] for i in range(1, 40, 2)}
    assert len(rare) <= 2


def test_frequent_codes_are_groups_of_their_own():
    q = np.full(64, 0.2 / 62)
    q[[10, 40]] = 0.4
    fine, coarse = nested_groupings(0, q, ordered=True)
    for level in (fine, coarse):
        assert {level.groups.count(level.groups[i]) for i in (10, 40)} == {1}
    assert (fine.number, coarse.number) == LEVEL_SIZES


def test_few_codes_have_no_levels():
    assert nested_groupings(0, np.full(15, 1 / 15), ordered=True) == []


@pytest.mark.parametrize(
    "groupings",
    [
        [Grouping(0, (0, 1))],
        [Grouping(0, (0, 0, 2))],
        [Grouping(0, (0, 1, 1)), Grouping(0, (0, 0, 1))],
    ],
    ids=["too short", "an empty group", "not nested"],
)
def test_groupings_that_are_no_levels_are_refused(groupings):
    with pytest.raises(ValueError, match="group"):
        Domain((Attribute("a", 3),), tuple(groupings))


def test_what_is_below_a_clique():
    for clique in EVERY_CLIQUE:
        below = list(DOMAIN.below(clique))
        assert len(set(below)) == len(below)
        assert set(below) == {t for t in RESIDUALS if DOMAIN.is_below(t, clique)}
    plain = Domain(DOMAIN.attributes)
    assert list(plain.below(CODES)) == [c for k in range(4) for c in combinations(CODES, k)]


def test_a_clique_is_named_by_its_columns_and_their_numbers_of_groups():
    for clique in EVERY_CLIQUE:
        assert DOMAIN.clique_at(DOMAIN.clique_names(clique), DOMAIN.shape(clique)) == clique
    for names, groups in ((("a", "b"), (5, 4)), (("b", "a"), (4, 7))):
        with pytest.raises(ValueError, match=r"level|order"):
            DOMAIN.clique_at(names, groups)
