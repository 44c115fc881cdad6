"""Workload error against a brute-force count of cells."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation import marginals
from adaptive_qs.evaluation.marginals import sparse_difference, workload_error
from adaptive_qs.workload.workload import Workload

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 300, "one": 1})


def table(rows, seed, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    return CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in domain.sizes])


def brute_l1(true, synthetic, clique):
    shares = []
    for t in (true, synthetic):
        cells = Counter(zip(*(t.columns[i].tolist() for i in clique)))
        shares.append({cell: count / t.num_rows for cell, count in cells.items()})
    domain = true.domain
    return sum(
        abs(shares[0].get(cell, 0) - shares[1].get(cell, 0))
        for cell in product(*(range(n) for n in domain.shape(clique)))
    )


TRUE, SYNTHETIC = table(70, 1), table(110, 2)
WORKLOAD = Workload(DOMAIN, {(0,): 1.0, (0, 1): 2.0, (0, 2, 3): 3.0, (3,): 1.0})


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("most_cells", [marginals.MAX_DENSE_CELLS, 0])
def test_error_is_the_brute_force_distance(workers, most_cells, monkeypatch):
    monkeypatch.setattr(marginals, "MAX_DENSE_CELLS", most_cells)
    seen = []
    result = workload_error(
        TRUE, SYNTHETIC, WORKLOAD, workers, lambda done, total: seen.append((done, total))
    )
    expected = [brute_l1(TRUE, SYNTHETIC, clique) for clique in WORKLOAD.cliques]
    np.testing.assert_allclose([clique.l1 for clique in result.per_clique], expected, atol=1e-12)
    assert result.per_clique[2].attributes == ("a", "c", "one")
    assert result.max_l1 == max(clique.l1 for clique in result.per_clique)
    assert result.mean_l1 == pytest.approx(np.average(expected, weights=[1, 2, 3, 1]))
    assert seen == [(i, 4) for i in (1, 2, 3, 4)]


def test_sparse_count_of_a_marginal_too_large_for_any_array():
    domain = Domain.from_sizes({f"a{i}": 2**31 for i in range(4)})
    clique = (0, 1, 2, 3)
    true, synthetic = table(50, 3, domain), table(50, 4, domain)
    assert np.abs(sparse_difference(true, true, clique)).sum() == 0
    assert np.abs(sparse_difference(true, synthetic, clique)).sum() == pytest.approx(2)


def test_equal_tables_have_no_error():
    assert workload_error(TRUE, TRUE, WORKLOAD).max_l1 == 0


def test_tables_of_different_domains_are_refused():
    with pytest.raises(DataError, match="different attributes"):
        workload_error(TRUE, table(5, 1, Domain.from_sizes({"a": 2})), WORKLOAD)


def test_tables_without_rows_are_refused():
    with pytest.raises(DataError, match="no rows"):
        workload_error(TRUE, table(0, 1), WORKLOAD)
