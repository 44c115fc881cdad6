"""Each made-up table has the dependence it promises."""

import numpy as np
import pytest

from scripts.table_kinds import KINDS


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
