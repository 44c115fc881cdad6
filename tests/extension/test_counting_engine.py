"""An engine that counts in another way: the same counts, so the same releases."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer, answer
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import ENGINES

from ..small import SCHEMA

FRAME = pd.DataFrame(
    {"a": np.arange(120) % 4, "b": np.array(["x", "y", "y"] * 40), "c": np.arange(120) % 5 < 2}
)


class Scattered:
    """Adds one for each row, by numpy."""

    asked: list[tuple[int, ...]] = []  # noqa: RUF012

    def __init__(self, table):
        self.domain = table.domain
        self._columns = table.columns
        self._rows = table.num_rows

    def count_rows(self):
        return self._rows

    def count_all(self, cliques):
        self.asked.extend(cliques)
        return list(map(self._count, cliques))

    def _count(self, clique):
        counts = np.zeros(self.domain.shape(clique), dtype=np.int64)
        np.add.at(counts, tuple(self._columns[i] for i in clique), 1)
        return counts


@contextmanager
def open_scattered(source, schema, options, progress):
    yield Scattered(read_table(source, schema, progress, options.check_rows))


def released(engine):
    options = {"rho": 1, "insecure_seed": 3, "engine": engine}
    model = Synthesizer(workload=2, workers=1, **options).fit(FRAME, schema=SCHEMA)
    answers = answer(FRAME, SCHEMA, 2, **options).to_arrow()
    return model.sample(seed=1), answers


@pytest.mark.filterwarnings("ignore")
def test_both_jobs_count_with_it_and_release_the_same(monkeypatch):
    monkeypatch.setitem(ENGINES, "scattered", open_scattered)
    table, answers = released("memory")
    assert not Scattered.asked
    same_table, same_answers = released("scattered")
    assert Scattered.asked
    pd.testing.assert_frame_equal(table, same_table)
    assert answers.equals(same_answers)
