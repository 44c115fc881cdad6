from itertools import combinations

import numpy as np

from adaptive_qs.synthesis.tables import count_rows

from .helpers import domain_of, marginal_of


def test_counts_equal_a_bincount():
    domain = domain_of(3, 1, 4, 7)
    rng = np.random.default_rng(0)
    for count in (0, 1, 500):
        rows = rng.integers(0, domain.sizes, (count, 4)).astype(np.int32)
        for clique in [c for k in (1, 2, 3, 4) for c in combinations(range(4), k)]:
            found = count_rows(rows, domain, clique)
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, marginal_of(rows, domain, clique))


def test_counts_do_not_saturate_beyond_the_precision_of_single_floats():
    rows = np.broadcast_to(np.zeros((1, 1), dtype=np.int32), (2**24 + 6, 1))
    assert count_rows(rows, domain_of(3), (0,)).tolist() == [2**24 + 6, 0, 0]
