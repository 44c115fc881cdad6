"""Counts of distinct texts, in memory of the distinct ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.learn import gather as module
from adaptive_qs.learn.gather import TextCounter

CHUNKS = st.lists(st.lists(st.text(max_size=2)))


@given(CHUNKS)
def test_counts_are_those_of_a_dictionary(chunks):
    counter, expected = TextCounter(), Counter()
    for chunk in chunks:
        counter.add(pa.array([*chunk, None], pa.string()), np.ones(len(chunk) + 1, np.int64))
        expected.update(text for text in chunk if text and "\0" not in text)
    texts, counts = counter.sorted()
    assert texts == sorted(expected)
    assert dict(zip(texts, counts.tolist())) == expected


def test_memory_follows_the_distinct_texts_and_not_the_rows(monkeypatch):
    monkeypatch.setattr(module, "_WAITING_ROWS", 1000)
    counter = TextCounter()
    names = pa.array([f"name {i:05d}" for i in range(1000)])
    size = names.nbytes + (8 + module.MERGING_BYTES) * len(names)
    for _ in range(200):
        counter.add(names, np.ones(1000, np.int64))
        assert counter.num_bytes <= 3 * size  # the merged ones, and up to twice as many waiting
    assert counter.sorted()[1].tolist() == [200] * 1000
