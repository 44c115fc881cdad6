"""Codes of a table and their exact counts, against a count row by row; what is kept of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

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


@given(tables(), st.integers(1, 3), st.sampled_from([0, 10, 10**6]), st.booleans())
def test_counts_equal_a_row_by_row_count(table, workers, most_cells, prepared):
    counter = MarginalCounter(table, most_cells, workers)
    cliques = list(subsets(tuple(range(min(len(table.domain), 3)))))
    if prepared:
        counter.prepare(cliques)
    for clique in [*cliques, *cliques]:  # what is kept is the same again
        found = counter.count(clique)
        assert found.dtype == np.int64
        assert found.shape == table.domain.shape(clique)
        np.testing.assert_array_equal(found, expected := slow_count(table, clique))
        found += 1  # and is not what the caller holds
        if clique:
            ((cells, counts),) = counter.occupied([clique])
            listed = np.zeros(expected.size, dtype=int)
            listed[cells] = counts
            assert counts.all()
            assert len(set(cells.tolist())) == cells.size
            np.testing.assert_array_equal(listed, expected.ravel())


class Asked:
    """An engine that remembers what it was asked for."""

    domain = Domain.from_sizes({"a": 3, "b": 4, "c": 50})

    def __init__(self):
        self.calls = []

    def count_rows(self):
        return 7

    def count_all(self, cliques):
        self.calls.append(list(cliques))
        return [np.zeros(self.domain.shape(c), dtype=np.int64) for c in cliques]


def test_marginals_are_counted_once_where_they_fit_and_together_where_prepared():
    engine = Asked()
    counter = MarginalCounter(engine, most_cells=20)
    counter.prepare([(0,), (0, 2), (0, 1), (), (0,), (1,)])
    assert engine.calls == [[(0,), (0, 1), (1,)]]  # 3 + 12 + 4 cells; (0, 2) does not fit
    for clique in [(0,), (0, 1), (1,), ()]:
        counter.count(clique)
    counter.prepare([(0,), (0, 1)])
    assert len(engine.calls) == 1
    for _ in range(2):
        counter.count((0, 2))
    assert engine.calls[1:] == [[(0, 2)]] * 2


def test_more_marginals_are_kept_where_there_is_more_room():
    domain = Domain.from_sizes({"a": 3, "b": 4, "c": 5})
    table = CodedTable.from_codes(domain, [np.arange(60) % n for n in domain.sizes])
    counter = MarginalCounter(table, most_cells=3)
    seen = []
    original = counter._engine.count_all
    counter._engine.count_all = lambda cliques: seen.extend(cliques) or original(cliques)
    for room, missing in ((2, 2), (15, 1), (15, 0)):
        counter.keep_up_to(room)
        seen.clear()
        for _ in range(2):
            counter.count_all([(0, 1)])
        assert len(seen) == missing


def test_threads_may_ask_at_the_same_time():
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({f"a{i}": 4 for i in range(12)})
    table = CodedTable.from_codes(domain, [rng.integers(0, 4, 500) for _ in range(12)])
    counter = MarginalCounter(table, most_cells=200)
    pairs = list(combinations(range(12), 2)) * 4
    with ThreadPoolExecutor(8) as pool:
        for clique, found in zip(pairs, pool.map(counter.count, pairs), strict=True):
            np.testing.assert_array_equal(found, slow_count(table, clique))


def test_more_rows_than_the_public_bound_are_refused_without_telling_how_many(monkeypatch):
    monkeypatch.setattr(count, "MAX_ROWS", 1_000)
    domain = Domain.from_sizes({"a": 2})
    MarginalCounter(CodedTable.from_codes(domain, [np.zeros(1_000, int)]))
    with pytest.raises(DataError, match=r"more than 1,000 rows") as caught:
        MarginalCounter(CodedTable.from_codes(domain, [np.zeros(1_234, int)]))
    assert "234" not in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        [], [[[0, 0]]], [[[0, 0]] * 3], [[[0, 0]] * 2, [[0, 0]]], [[[0], [0]]], [[0, 0]],
        [[[0, 2], [0, 0]]], [[[300, 0]] * 2], [[[-1, 0]] * 2],
    ],
    ids=["none", "fewer", "more", "a further part", "narrow", "flat", "above", "wrapping", "below"],
)  # fmt: skip
def test_parts_that_are_not_the_rows_are_refused(parts):
    domain = Domain.from_sizes({"a": 300, "b": 2})
    with pytest.raises(DataError, match="not 2 rows"):
        CodedTable.from_parts(domain, map(np.array, parts), 2)


def test_occupied_cells_are_listed_once_where_they_fit():
    domain = Domain.from_sizes({"a": 3, "b": 4, "c": 5})
    table = CodedTable.from_codes(domain, [np.arange(60) % n for n in domain.sizes])
    counter = MarginalCounter(table, most_cells=15)
    seen = []
    original = counter._engine.occupied
    counter._engine.occupied = lambda cliques: seen.append(cliques) or original(cliques)
    for _ in range(2):
        counter.occupied([(0, 1), (0, 2)])  # 12 and 15 cells have rows
        counter.occupied([(0, 1)])
    assert seen == [[(0, 1), (0, 2)], [(0, 2)]]


def test_coded_table_is_checked():
    domain = Domain.from_sizes({"a": 2, "b": 300})
    good = [np.array([0, 1]), np.array([299, 0])]
    table = CodedTable.from_codes(domain, good)
    assert [c.dtype for c in table.columns] == [np.uint8, np.uint16]
    for bad in (
        [np.array([0, 2]), good[1]],
        [np.array([0, -1]), good[1]],
        [np.array([0.0, 1.0]), good[1]],
        [np.array([0]), good[1]],
        good[:1],
        [*good, good[0]],
    ):
        with pytest.raises(DataError):
            CodedTable.from_codes(domain, bad)
    with pytest.raises(DataError):
        CodedTable(domain, (np.array([2], np.uint8), np.array([0], np.uint16)))
    with pytest.raises(ValueError, match="read-only"):
        table.columns[0][0] = 1
