"""Each made-up table has the dependence it promises."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score

from scripts.table_kinds import (
    END,
    KINDS,
    functional_dependence,
    long_tails,
    many_attributes,
    sequences,
    weak_dependence,
)


def shared_information(a, b):
    """Mutual information as a share of the smaller entropy: 1 where one determines the other."""
    entropies = (mutual_info_score(codes, codes) for codes in (a, b))
    return mutual_info_score(a, b) / max(min(entropies), 1e-12)


def determines(a, b):
    """Whether each value of ``a`` comes with one value of ``b`` only."""
    return ((pd.crosstab(a, b) > 0).sum(axis=1) <= 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_any_length_is_valid_reproducible_and_of_its_seed(kind):
    for rows in (0, 1, 1000):
        first, again, other = (KINDS[kind](rows=rows, seed=seed) for seed in (3, 3, 4))
        assert first.num_rows == other.num_rows == rows
        assert first.domain == again.domain
        for a, b in zip(first.columns, again.columns):
            np.testing.assert_array_equal(a, b)
    assert (first.columns[0] != other.columns[0]).any()
    assert all(np.unique(column).size > 1 for column in KINDS[kind](rows=2000).columns)


def dependent(columns):
    """The share of pairs whose dependence is no chance, and the most that a pair shares."""
    pairs = list(combinations(columns, 2))
    found = [chi2_contingency(pd.crosstab(a, b)).pvalue < 1e-6 for a, b in pairs]
    return np.mean(found), max(shared_information(a, b) for a, b in pairs)


def test_weak_dependence_is_there_and_weak():
    columns = weak_dependence(rows=20_000).columns
    # Chance alone shares about (n_a - 1)(n_b - 1) / (2 · rows) nats: compare shares with 10 %.
    assert max(shared_information(a, b) for a, b in combinations(columns, 2)) < 0.1
    assert dependent([column for column in columns if column.max() < 10])[0] > 0.8


@pytest.fixture(scope="module")
def functional():
    table = functional_dependence(rows=20_000)
    return {name: codes.astype(int) for name, codes in zip(table.domain.names, table.columns)}


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        ("district", "county"),
        ("county", "state"),
        ("job", "job_group"),
        ("school", "grade"),
        ("age", "age_band"),
        ("age_band_by_sex", "sex"),
        ("age_band_by_sex", "age_band"),
    ],
)
def test_fine_codes_determine_coarse_ones_and_not_the_other_way(functional, fine, coarse):
    assert determines(functional[fine], functional[coarse])
    assert not determines(functional[coarse], functional[fine])


def test_a_column_is_derived_from_two_others(functional):
    """Neither determines it: see above."""
    assert determines(2 * functional["age_band"] + functional["sex"], functional["age_band_by_sex"])


def test_sequences_end_for_good_and_depend_on_the_step_before():
    table = sequences(rows=20_000)
    assert len(table.columns) == 16
    assert set(table.domain.sizes) == {18}
    steps = np.stack(table.columns, axis=1)
    ended = steps == END
    assert (ended[:, 1:] >= ended[:, :-1]).all()
    lengths = (~ended).sum(axis=1)
    assert lengths.min() == 1
    assert lengths.max() == 16
    running = ~ended[:, 9]
    near = shared_information(steps[running, 8], steps[running, 9])
    far = shared_information(steps[running, 0], steps[running, 9])
    assert near > 0.3
    assert far < near / 3


def test_the_wide_table_has_many_attributes_few_rows_and_latent_classes():
    table = many_attributes()
    assert len(table.domain) == 110
    assert table.num_rows == 19_434
    share, most = dependent(table.columns[::10])
    assert share > 0.8
    assert most < 0.5


def test_long_tails_are_long_and_correlated():
    table = long_tails(rows=20_000)
    assert len(table.domain) == 30
    assert min(table.domain.sizes) >= 200
    for column, size in zip(table.columns, table.domain.sizes):
        shares = np.sort(np.bincount(column, minlength=size))[::-1] / 20_000
        assert shares[0] > 0.08
        assert shares[size // 2 :].sum() < 0.2
        assert 0.5 < -np.polyfit(np.log(np.arange(1, 51)), np.log(shares[:50]), 1)[0] < 1.8
    shuffled = np.random.default_rng(0).permutation
    for a, b in list(zip(table.columns, table.columns[1:]))[:5]:
        assert shared_information(a, b) > shared_information(a, shuffled(b)) + 0.05
