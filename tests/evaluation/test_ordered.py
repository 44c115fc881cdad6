"""Prefix and range errors against all prefixes and ranges, one by one."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.evaluation.ordered import ordered_errors
from adaptive_qs.evaluation.pair import TablePair

from .tables import table

DOMAIN = Domain(
    (Attribute("a", 7), Attribute("loose", 5, ordered=False), Attribute("b", 40), Attribute("c", 1))
)
PAIR = TablePair(table(DOMAIN, 30, 1), table(DOMAIN, 17, 2))


def shares(coded, i):
    return np.bincount(coded.columns[i], minlength=DOMAIN.sizes[i]) / coded.num_rows


def test_errors_are_those_of_every_prefix_and_range():
    found = ordered_errors(PAIR)
    assert [error.attribute for error in found] == ["a", "b", "c"]
    for error, i in zip(found, (0, 2, 3)):
        n = DOMAIN.sizes[i]
        difference = shares(PAIR.synthetic, i) - shares(PAIR.true, i)
        prefixes = np.array([difference[: k + 1].sum() for k in range(n)])
        ranges = np.array([difference[k : m + 1].sum() for k in range(n) for m in range(k, n)])
        assert error.prefix_rmse == pytest.approx(np.sqrt(np.square(prefixes).mean()), abs=1e-9)
        assert error.prefix_max == pytest.approx(np.abs(prefixes).max(), abs=1e-12)
        assert error.range_rmse == pytest.approx(np.sqrt(np.square(ranges).mean()), abs=1e-9)
        assert error.range_max == pytest.approx(np.abs(ranges).max(), abs=1e-12)
        ks = ks_2samp(PAIR.true.columns[i], PAIR.synthetic.columns[i]).statistic
        assert error.prefix_max == pytest.approx(ks, abs=1e-12)


def test_the_shift_is_in_standard_deviations_and_leaves_missing_values_out():
    (error, *_) = ordered_errors(PAIR, {"a": 6, "b": 40, "c": 1})
    true, made = (t.columns[0][t.columns[0] < 6].astype(float) for t in (PAIR.true, PAIR.synthetic))
    assert error.mean_shift == pytest.approx((made.mean() - true.mean()) / true.std())


def pair_of(true, synthetic, size):
    domain = Domain.from_sizes({"a": size})
    return TablePair(*(CodedTable.from_codes(domain, [np.array(c)]) for c in (true, synthetic)))


def test_the_shift_is_a_number_where_the_true_column_is_constant_or_missing():
    assert ordered_errors(pair_of([3, 3], [5], 9))[0].mean_shift == 2
    assert ordered_errors(pair_of([8, 8], [5], 9), {"a": 8})[0].mean_shift == 0


def test_equal_tables_have_no_error():
    for error in ordered_errors(TablePair(PAIR.true, PAIR.true)):
        assert (error.prefix_max, error.range_max, error.range_rmse, error.mean_shift) == (
            0,
            0,
            0,
            0,
        )


def test_an_attribute_of_more_codes_than_fit_memory():
    n = 2**31
    (error,) = ordered_errors(pair_of([0], [n - 1], n))
    # every prefix but the last is wrong by 1, and so is every range with one of the two ends
    assert error.prefix_rmse == pytest.approx(np.sqrt((n - 1) / n))
    assert error.range_rmse == pytest.approx(np.sqrt(2 * (n - 1) / (n * (n + 1) / 2)))
