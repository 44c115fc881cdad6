""""""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.errors import DataError
from adaptive_qs.table import coded as count
from adaptive_qs.table.coded import CodedTable, MarginalCounter


@st.composite
def tables(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 5, 300]), min_size=1, max_size=4))
    rows = draw(st.integers(0, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})
    return CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in sizes])


def slow_count(table, clique):
    """One dictionary entry per distinct row."""
    counts = np.zeros(table.domain.shape(clique), dtype=int)
    for row in range(table.num_rows):
        counts[tuple(int(table.columns[i][row]) for i in clique)] += 1
    return counts


@given(tables())
def test_counts_equal_a_row_by_row_count(table):
    counter = MarginalCounter(table)
    for clique in subsets(tuple(range(min(len(table.domain), 3)))):
        found = counter.count(clique)
        assert found.dtype == np.int64
        assert found.shape == table.domain.shape(clique)
        np.testing.assert_array_equal(found, slow_count(table, clique))


def test_counts_equal_numpy_unique():
    rng = np.random.default_rng(0)
    sizes = (7, 11, 5)
    codes = [rng.integers(0, n, 10_000) for n in sizes]
    domain = Domain.from_sizes(dict(zip("abc", sizes)))
    counted = MarginalCounter(CodedTable.from_codes(domain, codes)).count((0, 1, 2))
    cells, numbers = np.unique(np.ravel_multi_index(codes, sizes), return_counts=True)
    np.testing.assert_array_equal(np.flatnonzero(counted), cells)
    np.testing.assert_array_equal(counted.ravel()[cells], numbers)


@pytest.mark.parametrize("size", [2**8, 2**8 + 1, 2**16, 2**16 + 1, 2**17])
def test_the_first_and_last_code_of_any_width_are_counted(size):
    domain = Domain.from_sizes({"a": size, "b": 2})
    codes = [np.array([0, size - 1, size - 1]), np.array([0, 1, 1])]
    counted = MarginalCounter(CodedTable.from_codes(domain, codes)).count((0, 1))
    assert counted[0, 0] == 1
    assert counted[size - 1, 1] == 2
    assert counted.sum() == 3


def test_a_count_is_fresh_each_time():
    domain = Domain.from_sizes({"a": 2})
    counter = MarginalCounter(CodedTable.from_codes(domain, [np.array([0, 1, 1])]))
    counter.count((0,))[...] = -1
    counter.count(())[...] = -1
    np.testing.assert_array_equal(counter.count((0,)), [1, 2])
    assert counter.count(()) == 3


def test_more_rows_than_the_public_bound_are_refused_without_telling_how_many(monkeypatch):
    monkeypatch.setattr(count, "MAX_ROWS", 1_000)
    domain = Domain.from_sizes({"a": 2})
    MarginalCounter(CodedTable.from_codes(domain, [np.zeros(1_000, int)]))
    with pytest.raises(DataError, match=r"more than 1,000 rows") as caught:
        MarginalCounter(CodedTable.from_codes(domain, [np.zeros(1_234, int)]))
    assert "234" not in str(caught.value)


def test_parts_make_the_table_of_all_their_rows():
    domain = Domain.from_sizes({"a": 300, "b": 2})
    rows = np.stack([np.arange(300), np.arange(300) % 2], axis=1)
    table = CodedTable.from_parts(domain, (rows[k : k + 70] for k in range(0, 300, 70)), 300)
    for column, whole in zip(table.columns, rows.T, strict=True):
        np.testing.assert_array_equal(column, whole)


@pytest.mark.parametrize(
    "parts",
    [[], [[[0, 0]]], [[[0, 0]] * 3], [[[0], [0]]], [[0, 0]], [[[0, 2], [0, 0]]], [[[300, 0]] * 2],
     [[[-1, 0]] * 2]],
    ids=["none", "fewer", "more", "narrow", "flat", "above", "wrapping", "below"],
)  # fmt: skip
def test_parts_that_are_not_the_rows_are_refused(parts):
    domain = Domain.from_sizes({"a": 300, "b": 2})
    with pytest.raises(DataError, match="not 2 rows"):
        CodedTable.from_parts(domain, map(np.array, parts), 2)
