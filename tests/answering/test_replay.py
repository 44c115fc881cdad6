"""Measuring on neighbouring tables: the same calls, and inputs that differ by no more than stated.

A second run on a neighbour gets the noisy outputs of the first. Everything that leaves, and every
parameter of every call, must be the same to the last bit; only the exact inputs may differ, and
their squared distance, in integers, by at most the squared sensitivity that was charged.
"""

from fractions import Fraction

import numpy as np
import pytest

from adaptive_qs.audit.compare import Check, Tally, compare
from adaptive_qs.audit.replay import record, replay
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.table import CodedTable
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import UNITS_PER_RHO

from .batches import SIZES, WORKLOADS, batch, pairs

ROWS = [(i % 3, i * i % 4, 0) for i in range(60)]
TABLES = {
    "a typical row more": (ROWS, [*ROWS, ROWS[7]]),
    "the first cell more": (ROWS, [*ROWS, (0, 0, 0)]),
    "a combination never seen": (ROWS, [*ROWS, (2, 3, 1)]),
    "a row less": (ROWS, ROWS[1:]),
    "the only row": ([(1, 2, 1)], []),
}


def counter(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(SIZES)).T
    return MarginalCounter(CodedTable.from_codes(next(iter(WORKLOADS.values())).domain, columns))


def job(found, rows):
    def run(mechanisms):
        return {
            f"{o.part}, {o.index}, {o.clique}, {o.queries}": o.estimates.tobytes()
            + o.variances.tobytes()
            for o in found.run(mechanisms, counter(rows))
        }

    return run


@pytest.mark.parametrize("neighbours", TABLES)
@pytest.mark.parametrize(("asked", "name"), pairs())
def test_neighbours_make_the_same_calls_and_answers(asked, name, neighbours):
    found = batch(asked, name)
    here, there = TABLES[neighbours]
    rho = Fraction(found.units, UNITS_PER_RHO)
    recorded = record(job(found, here), Budget(rho), InsecureSeed(5))
    replayed = replay(job(found, there), Budget(rho), InsecureSeed(5), recorded)
    tally = Tally()
    assert compare(recorded, replayed, "answers", tally) > 0  # the neighbour was seen
    assert tally.findings == []
    assert tally.made[Check.OUTPUTS] == len(found.sets)
