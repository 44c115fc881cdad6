"""Control rows that were never held out are found, and honest ones are left in peace."""

import numpy as np
import pytest
from scipy.stats import binom

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.attack.overlap import FALSE_ALARM, check_control, find_overlap

WIDE = Domain.from_sizes({f"a{i}": 10 for i in range(8)})


def drawn(domain, rows, rng):
    return np.column_stack([rng.integers(0, n, rows) for n in domain.sizes])


def table(domain, rows):
    return CodedTable.from_codes(domain, rows.T)


def test_a_few_rows_of_the_true_table_are_found_and_counted():
    rng = np.random.default_rng(1)
    true, fresh = drawn(WIDE, 1_000, rng), drawn(WIDE, 180, rng)
    control = np.concatenate([fresh, true[:20]])
    overlap = find_overlap(table(WIDE, true), table(WIDE, control), 0)
    assert overlap.found
    assert 0.05 <= overlap.control <= 0.1  # the base lacks the rows that are compared with
    assert overlap.true == 0
    assert not overlap.complete
    assert find_overlap(table(WIDE, true), table(WIDE, true[:60]), 0).complete


@pytest.mark.parametrize("size", [2, 5])
def test_honest_rows_raise_an_alarm_as_rarely_as_stated(size):
    domain = Domain.from_sizes({f"a{i}": size for i in range(3)})
    rng = np.random.default_rng(2)
    runs = 1_000
    alarms = 0
    for seed in range(runs):
        rows = drawn(domain, 90, rng)
        alarms += find_overlap(table(domain, rows[:60]), table(domain, rows[60:]), seed).found
    assert alarms <= binom.isf(1e-6, runs, FALSE_ALARM)


def test_rows_of_which_there_are_few_kinds_occur_in_both_tables_without_alarm():
    domain = Domain.from_sizes({"a": 2, "b": 2})
    rng = np.random.default_rng(3)
    true, control = drawn(domain, 500, rng), drawn(domain, 200, rng)
    overlap = find_overlap(table(domain, true), table(domain, control), 0)
    assert overlap.complete
    assert (overlap.control, overlap.true, overlap.found) == (1, 1, False)


def test_the_true_rows_in_another_order_are_no_control():
    domain = Domain.from_sizes({"a": 2, "b": 2})  # by overlap alone it could not be told
    rng = np.random.default_rng(4)
    true = drawn(domain, 300, rng)
    with pytest.raises(DataError, match="the very rows of the true table"):
        check_control(table(domain, true), table(domain, rng.permutation(true)), 0)
    other = true.copy()
    other[0] = 1 - other[0]
    assert check_control(table(domain, true), table(domain, other), 0).complete
    assert check_control(table(domain, true), table(domain, true[:299]), 0).complete
