"""Each score against a slow, obvious computation."""

from itertools import combinations
from math import comb, log

import numpy as np
import pytest

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.attack import closeness, marginals, tables
from adaptive_qs.evaluation.attack.tables import Stack

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 300, "d": 2})


def table(rows, seed):
    rng = np.random.default_rng(seed)
    return CodedTable.from_codes(DOMAIN, [rng.integers(0, n, rows) for n in DOMAIN.sizes])


PARTS = [(table(rows, seed), np.arange(rows)) for seed, rows in enumerate((60, 40, 9, 7))]
STACK = Stack.of(PARTS)
ROWS = [list(zip(*(column.tolist() for column in part.columns))) for part, _ in PARTS]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("most_keys", [tables.MAX_KEYS, 1])
def test_marginal_scores_are_mean_log_ratios_of_cell_shares(workers, most_keys, monkeypatch):
    monkeypatch.setattr(tables, "MAX_KEYS", most_keys)
    sets = [s for ways in (1, 2, 3) for s in combinations(range(4), ways)]

    def share(rows, row, attributes):
        equal = sum(all(r[i] == row[i] for i in attributes) for r in rows)
        return equal / len(rows) + 1 / 40

    expected = [
        np.mean([log(share(ROWS[0], row, s) / share(ROWS[1], row, s)) for s in sets])
        for row in ROWS[2] + ROWS[3]
    ]
    found = marginals.marginal_scores(STACK, 0, workers)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    members, others = STACK.split_targets(found)
    assert (len(members), len(others)) == (9, 7)


def test_closeness_is_the_log_ratio_of_kernel_densities():
    def density(rows, row):
        return np.mean([0.03 ** sum(a != b for a, b in zip(row, other)) for other in rows])

    expected = [log(density(ROWS[0], row) / density(ROWS[1], row)) for row in ROWS[2] + ROWS[3]]
    np.testing.assert_allclose(closeness.closeness_scores(STACK, 2), expected, atol=1e-9)


def test_of_many_attributes_an_even_sample_of_sets_is_looked_at():
    few = marginals.attribute_sets(10, 0)
    assert len(few) == len(set(few)) == 10 + comb(10, 2) + comb(10, 3)
    many = marginals.attribute_sets(600, 0)
    assert [sum(len(s) == ways for s in many) for ways in (1, 2, 3)] == [500, 500, 500]
    assert len(set(many)) == 1_500
    assert all(list(s) == sorted(set(s)) and s[-1] < 600 for s in many)
    assert many == marginals.attribute_sets(600, 0) != marginals.attribute_sets(600, 1)


def test_rows_that_differ_in_very_many_columns_have_a_density():
    domain = Domain.from_sizes({f"a{i}": 2 for i in range(300)})
    parts = []
    for others, share in ((0, 0.5), (0, 0.25), (1, 1.0), (1, 0.0)):  # 0.03^299 is 0 as a number
        codes = np.full((300, 40), others)
        codes[0] = np.arange(40) < share * 40
        parts.append((CodedTable.from_codes(domain, codes), np.arange(40)))
    stack = Stack.of(parts)
    members, non_members = stack.split_targets(closeness.closeness_scores(stack))
    kernel = 0.03
    member = log((0.5 + 0.5 * kernel) / (0.25 + 0.75 * kernel))
    np.testing.assert_allclose(members, member, atol=1e-9)
    non_member = log((0.5 + 0.5 * kernel) / (0.75 + 0.25 * kernel))
    np.testing.assert_allclose(non_members, non_member, atol=1e-9)


def test_time_is_bounded_for_many_columns():
    assert closeness.rows_compared(14) == closeness.MAX_ROWS
    for columns in (17, 300, 10**7):
        assert closeness.rows_compared(columns) * columns <= max(closeness.MAX_CELLS, columns)
