"""Workload error against a brute-force count of cells."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation import tables
from adaptive_qs.evaluation.marginals import workload_error
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
    assert workload_error(TRUE, TRUE, WORKLOAD).max_l1 == 0


def test_marginals_too_large_for_any_array_are_compared():
    domain = Domain.from_sizes({f"a{i}": 2**31 for i in range(4)})
    workload = Workload(domain, {(0, 1, 2, 3): 1.0, (0,): 1.0})
    true, synthetic = table(domain, 50, 3), table(domain, 50, 4)
    assert workload_error(true, true, workload).max_l1 == 0
    errors = [clique.l1 for clique in workload_error(true, synthetic, workload).per_clique]
    assert errors == pytest.approx([2, 2])
