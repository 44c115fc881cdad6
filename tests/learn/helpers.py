"""Schemas with private columns, runs that learn them, and mechanisms that record and replay."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from adaptive_qs.learn.gather import gather
from adaptive_qs.learn.schema import learn_schema
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.table.schema import Schema

PLENTY = Cost.within(Fraction(1000), Fraction(1, 10**9))
"""A budget with hardly any noise."""


def schema_of(*columns):
    return Schema.parse({"version": 1, "columns": [*columns]})


def one(**column):
    return schema_of({"name": "a", **column})


class Recorder(Mechanisms):
    """Mechanisms on a budget of exactly this cost that keep every call."""

    def __init__(self, cost=PLENTY, seed=0):
        self.calls = []
        super().__init__(Budget(cost.rho, cost.delta), InsecureSeed(seed), self.calls.append)


class Replay(Recorder):
    """Charges as usual, but returns what another run drew, as long as it did the same."""

    def __init__(self, cost, recorded):
        super().__init__(cost)
        self._recorded = iter(recorded)

    def _next_output(self, event):
        call = next(self._recorded)
        assert event == call.event, "the neighbour's run took another course"
        return call.output

    def _draw_counts(self, event, values):
        return self._next_output(event)

    def _draw_values(self, event, values, counts, at_most):
        return self._next_output(event)


def resolve_private(source, schema, mechanisms, cost):
    """The two steps of a run in a row."""
    return learn_schema(schema, gather(source, schema), mechanisms, cost)


def resolved(source, schema, cost=PLENTY, seed=0):
    return resolve_private(source, schema, Recorder(cost, seed), cost)


def masses(codes, size):
    return np.bincount(codes, minlength=size)
