"""Workload error against a brute-force count of cells."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import ks_2samp

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation import marginals, tables
from adaptive_qs.evaluation.marginals import (
    drawn_sets,
    marginal_distances,
    ordered_errors,
    total_variation,
    workload_error,
)
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload

from .tables import table

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 300, "one": 1})


def brute_differences(true, synthetic, clique):
    shares = []
    for t in (true, synthetic):
        cells = Counter(zip(*(t.columns[i].tolist() for i in clique)))
        shares.append({cell: count / t.num_rows for cell, count in cells.items()})
    cells = product(*(range(n) for n in true.domain.shape(clique)))
    return np.array([shares[0].get(cell, 0) - shares[1].get(cell, 0) for cell in cells])


TRUE, SYNTHETIC = table(DOMAIN, 70, 1), table(DOMAIN, 110, 2)
WORKLOAD = Workload(DOMAIN, {(0,): 1.0, (0, 1): 2.0, (0, 2, 3): 3.0, (3,): 1.0})


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("most_cells", [tables.MAX_DENSE_CELLS, 200, 0])
def test_error_is_the_brute_force_distance(workers, most_cells, monkeypatch):
    monkeypatch.setattr(tables, "MAX_DENSE_CELLS", most_cells)
    monkeypatch.setattr(tables, "BATCH", 3)
    seen = []
    result = workload_error(
        TRUE, SYNTHETIC, WORKLOAD, workers, lambda done, total: seen.append((done, total))
    )
    found = [brute_differences(TRUE, SYNTHETIC, clique) for clique in WORKLOAD.cliques]
    expected = [np.abs(differences).sum() for differences in found]
    np.testing.assert_allclose([clique.l1 for clique in result.per_clique], expected, atol=1e-12)
    assert result.per_clique[2].attributes == ("a", "c", "one")
    assert result.max_l1 == max(clique.l1 for clique in result.per_clique)
    assert result.mean_l1 == pytest.approx(np.average(expected, weights=[1, 2, 3, 1]))
    rmse = [np.sqrt(np.square(differences).mean()) for differences in found]
    np.testing.assert_allclose([clique.rmse for clique in result.per_clique], rmse, atol=1e-12)
    weighted = sum(w * np.square(d).sum() for w, d in zip([1, 2, 3, 1], found))
    assert result.rmse == pytest.approx(np.sqrt(weighted / sum(map(len, found))))
    assert seen == [(3, 4), (4, 4)]


def test_marginals_too_large_for_any_array_are_compared():
    domain = Domain.from_sizes({f"a{i}": 2**31 for i in range(4)})
    workload = Workload(domain, {(0, 1, 2, 3): 1.0, (0,): 1.0})
    true, synthetic = table(domain, 50, 3), table(domain, 50, 4)
    assert workload_error(true, true, workload).max_l1 == 0
    errors = [clique.l1 for clique in workload_error(true, synthetic, workload).per_clique]
    assert errors == pytest.approx([2, 2])


def test_total_variation_is_half_the_distance_over_all_marginals():
    pair = TablePair(TRUE, SYNTHETIC)
    for ways in (1, 2, 3):
        cliques = list(combinations(range(4), ways))
        errors = [
            np.abs(brute_differences(TRUE, SYNTHETIC, clique)).sum() / 2 for clique in cliques
        ]
        part = total_variation(DOMAIN, cliques, marginal_distances(JointCodes(pair), cliques))
        assert (part.marginals, part.compared) == (len(cliques), len(cliques))
        assert part.mean == pytest.approx(np.mean(errors))
        assert part.max == pytest.approx(max(errors))
        assert part.worst == DOMAIN.clique_names(cliques[int(np.argmax(errors))])


def test_a_draw_of_many_marginals_is_even_and_always_the_same(monkeypatch):
    assert len(drawn_sets(30, 3)) == 4060
    monkeypatch.setattr(marginals, "MAX_COMPARED", 1000)
    drawn = drawn_sets(30, 3)
    assert drawn == drawn_sets(30, 3)
    assert len(set(drawn)) == 1000
    assert set(drawn) <= set(combinations(range(30), 3))
    # An attribute lies in a tenth of the sets: hypergeometric, mean 100, standard deviation 8.2;
    # five of those, for 30 attributes, leave 2e-5 to chance, and the seed is fixed.
    times = Counter(i for clique in drawn for i in clique)
    assert all(abs(times[i] - 100) < 41 for i in range(30))


def test_the_marginals_of_wide_tables_are_drawn_without_listing_them_all():
    assert len(drawn_sets(110, 2)) == 5995
    drawn = drawn_sets(110, 3)
    assert len(set(drawn)) == marginals.MAX_COMPARED
    assert all(0 <= i < j < k < 110 for i, j, k in drawn)


def test_equal_tables_have_no_error():
    assert workload_error(TRUE, TRUE, WORKLOAD).max_l1 == 0


def test_tables_of_different_domains_are_refused():
    with pytest.raises(DataError, match="different attributes"):
        workload_error(TRUE, table(Domain.from_sizes({"a": 2}), 5, 1), WORKLOAD)


def test_tables_without_rows_are_refused():
    with pytest.raises(DataError, match="no rows"):
        workload_error(TRUE, table(DOMAIN, 0, 1), WORKLOAD)


# Prefix and range errors against all prefixes and ranges, one by one.

ORDERED_DOMAIN = Domain(
    (Attribute("a", 7), Attribute("loose", 5, ordered=False), Attribute("b", 40), Attribute("c", 1))
)
PAIR = TablePair(table(ORDERED_DOMAIN, 30, 1), table(ORDERED_DOMAIN, 17, 2))


def shares(coded, i):
    return np.bincount(coded.columns[i], minlength=ORDERED_DOMAIN.sizes[i]) / coded.num_rows


def test_errors_are_those_of_every_prefix_and_range():
    found = ordered_errors(PAIR)
    assert [error.attribute for error in found] == ["a", "b", "c"]
    for error, i in zip(found, (0, 2, 3)):
        n = ORDERED_DOMAIN.sizes[i]
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


def test_equal_tables_have_no_error_of_ordered():
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
