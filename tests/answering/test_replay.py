"""Measuring on neighbouring tables: the same calls, and inputs that differ by no more than stated.

A second run on a neighbour gets the noisy outputs of the first. Everything that leaves, and every
parameter of every call, must be the same to the last bit; only the exact inputs may differ, and
their squared distance, in integers, by at most the squared sensitivity that was charged.
"""

from fractions import Fraction

import numpy as np
import pytest

from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.table import CodedTable
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms

from .batches import SIZES, WORKLOADS, batch, pairs

ROWS = [(i % 3, i * i % 4, 0) for i in range(60)]
TABLES = {
    "a typical row more": (ROWS, [*ROWS, ROWS[7]]),
    "the first cell more": (ROWS, [*ROWS, (0, 0, 0)]),
    "a combination never seen": (ROWS, [*ROWS, (2, 3, 1)]),
    "a row less": (ROWS, ROWS[1:]),
    "the only row": ([(1, 2, 1)], []),
}


class Replay(Mechanisms):
    """Records inputs and outputs, or hands the recorded outputs out again."""

    def __init__(self, units, outputs=None):
        super().__init__(Budget(Fraction(units, UNITS_PER_RHO)), InsecureSeed(5))
        self.events, self.inputs, self.outputs = [], [], []
        self._frozen = outputs

    def _draw_counts(self, event, values):
        self.events.append(event)
        self.inputs.append(values.copy())
        if self._frozen is None:
            self.outputs.append(super()._draw_counts(event, values))
        else:
            self.outputs.append(self._frozen[len(self.outputs)])
        return self.outputs[-1]


def counter(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(SIZES)).T
    return MarginalCounter(CodedTable.from_codes(next(iter(WORKLOADS.values())).domain, columns))


def bytes_of(answers):
    return [
        (o.part, o.index, o.clique, o.queries, o.estimates.tobytes(), o.variances.tobytes())
        for o in answers
    ]


@pytest.mark.parametrize("neighbours", TABLES)
@pytest.mark.parametrize(("asked", "name"), pairs())
def test_neighbours_make_the_same_calls_and_answers(asked, name, neighbours):
    found = batch(asked, name)
    here, there = TABLES[neighbours]
    first = Replay(found.units)
    answers = found.run(first, counter(here))
    second = Replay(found.units, first.outputs)
    assert bytes_of(found.run(second, counter(there))) == bytes_of(answers)
    assert second.events == first.events
    moved = 0
    for event, one, other in zip(first.events, first.inputs, second.inputs):
        assert one.shape == other.shape
        difference = one.ravel().astype(object) - other.ravel().astype(object)
        distance = int((difference * difference).sum())
        assert distance <= event.squared_sensitivity
        moved += distance
    assert moved > 0  # the neighbour was seen
