"""Whole rows against sets, lists and every way to halve a table."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.rows import row_checks

from .tables import joint, rows_of, table

SIZES = {"a": 3, "b": 2, "c": 3}
DOMAIN = Domain.from_sizes(SIZES)


def test_shares_are_those_of_brute_force():
    pair = TablePair(table(DOMAIN, 13, 1), table(DOMAIN, 31, 2))
    true, made = rows_of(pair.true), rows_of(pair.synthetic)
    times, made_times = Counter(true), Counter(made)
    found = row_checks(JointCodes(pair))
    assert 0 < found.exact_matches < 1
    assert found.exact_matches == pytest.approx(np.mean([row in times for row in made]))
    assert found.unique_matches == pytest.approx(np.mean([times[row] == 1 for row in made]))
    assert found.repeated == pytest.approx(np.mean([made_times[row] > 1 for row in made]))
    assert found.true_repeated == pytest.approx(np.mean([times[row] > 1 for row in true]))
    shares = [Counter(column) for column in zip(*true)]
    chance = sum(np.prod([s[v] / 13 for s, v in zip(shares, row)]) for row in times)
    assert found.expected_if_independent == pytest.approx(chance)


@pytest.mark.parametrize("rows", [2, 5, 8])
def test_the_redrawn_share_is_the_mean_over_all_halves(rows):
    pair = TablePair(table(DOMAIN, rows, rows), table(DOMAIN, 4, 2))
    doubled = rows_of(pair.true)[: rows // 2] * 2 + rows_of(pair.true)[: rows - 2 * (rows // 2)]
    matches = []
    for half in combinations(range(rows), rows // 2):
        rest = {doubled[k] for k in range(rows) if k not in half}
        matches.append(np.mean([doubled[k] in rest for k in half]))
    found = row_checks(joint(doubled, doubled[:1], SIZES))
    assert found.expected_if_redrawn == pytest.approx(np.mean(matches))


def test_one_row_repeated_and_one_row_alone():
    same = row_checks(joint([(1, 1, 1)] * 9, [(1, 1, 1)], SIZES))
    assert (same.exact_matches, same.expected_if_independent, same.expected_if_redrawn) == (1, 1, 1)
    alone = row_checks(joint([(1, 1, 1)], [(0, 1, 1)], SIZES))
    assert (alone.exact_matches, alone.expected_if_redrawn, alone.true_repeated) == (0, 0, 0)


def test_the_same_rows_are_seen_in_any_order():
    rows = [(0, 1, 2), (1, 1, 1), (1, 1, 1), (2, 0, 0)]
    assert row_checks(joint(rows, rows[::-1], SIZES)).same
    assert not row_checks(joint(rows, [*rows[:2], *rows[3:], rows[0]], SIZES)).same
    assert not row_checks(joint(rows, rows * 2, SIZES)).same


def test_rows_of_many_columns_with_more_combinations_than_integers():
    domain = Domain.from_sizes({f"a{i}": 1000 for i in range(110)})
    pair = TablePair(table(domain, 40, 1), table(domain, 40, 1))
    assert row_checks(JointCodes(pair)).exact_matches == 1
    other = TablePair(pair.true, table(domain, 40, 2))
    assert row_checks(JointCodes(other)).exact_matches == 0
