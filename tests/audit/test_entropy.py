"""No random word is handed out twice: by threads, on both sides of a fork, or after an interrupt.

The runs are those that users start, with the entropy of the operating system. By chance two of
10⁵ words of 64 bits are equal with a probability below 10⁻⁹.
"""

import os
import threading
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.answering.api import answer
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.synthesizer import Synthesizer

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["x", "y", "z"]},
        {"name": "b", "type": "integer", "private_bins": 5, "min": 0},
        {"name": "c", "type": "boolean"},
    ],
}
K = np.arange(200)
ROWS = pd.DataFrame({"a": np.array(["x", "y", "z"])[K % 3], "b": K * K % 17, "c": K % 2 == 0})
BUDGET = {"rho": 0.2, "max_memory": "1GB"}


class Interrupted(Exception):
    """Stands for a crash."""


def drawn(run, stop_after=None):
    """Words that a run draws, and the threads that draw them; it may stop after some calls."""
    found, threads = [], set()

    def words(self, count):
        if stop_after is not None and len(found) == stop_after:
            raise Interrupted
        found.append(original(self, count))
        threads.add(threading.get_ident())
        return found[-1]

    original = SystemEntropy.words
    with mock.patch.object(SystemEntropy, "words", words):
        try:
            run()
        except Interrupted:
            assert stop_after is not None
    return np.concatenate(found), threads


def fit(**options):
    Synthesizer(**BUDGET, workload=3, workers=2, **options).fit(ROWS, schema=SCHEMA)


def answers(**options):
    answer(ROWS, SCHEMA, 2, **BUDGET, workers=2, **options).to_arrow()


def assert_fresh(*parts):
    every = np.concatenate(parts)
    assert all(part.size > 100 for part in parts)
    assert np.unique(every).size == every.size


@pytest.mark.parametrize("run", [fit, answers])
def test_one_thread_draws_whatever_the_number_of_workers(run):
    words, threads = drawn(run)
    assert_fresh(words)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("run", [fit, answers])
def test_words_are_fresh_on_both_sides_of_a_fork(run):
    before, _ = drawn(run)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(drawn(run)[0].tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    here, _ = drawn(run)
    with os.fdopen(reading, "rb") as pipe:
        there = np.frombuffer(pipe.read(), dtype=np.uint64)
    os.waitpid(child, 0)
    assert_fresh(before, here, there)


@pytest.mark.parametrize("run", [fit, answers])
def test_a_resumed_run_draws_fresh_words(run, tmp_path):
    path = tmp_path / "ledger"
    LedgerBook.create(path, Cost.within(1), {"rho": 1.0}).close()
    before, _ = drawn(lambda: run(ledger=path), stop_after=4)
    after, _ = drawn(lambda: run(ledger=path, resume=True))
    assert_fresh(before, after)
