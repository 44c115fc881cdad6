"""Noise of learnt bins and values, on the path from a schema with private columns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from adaptive_qs.learn.gather import Gathered
from adaptive_qs.learn.ranges import Magnitudes, Tree
from adaptive_qs.learn.schema import learn_schema
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, PrimitiveCall
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.table.schema import Schema

from . import oracles
from .recorded_noise import MEASUREMENTS, Discoveries, Noise

RHO = Fraction(1, 200)
"""Of each column."""
CELLS = 729
ROWS = 2000


def magnitudes(count: int) -> Noise:
    """The histograms from which integer columns without declared ends get them."""
    schema = _integers(1, {})
    cells = len(Magnitudes.from_column(schema.columns[0]).cells)
    columns = -(-count // (cells * MEASUREMENTS))
    drawn, variance = [], Fraction(0)
    for _ in range(MEASUREMENTS):
        first = _learn_integers(columns, {})[:columns]
        variance = Fraction(first[0].event.noise_variance)
        drawn.append(_added(first).ravel())
    noise = np.array(drawn)
    return Noise(noise, variance, noise / oracles.gaussian_std(variance))


def trees(count: int) -> Noise:
    """The trees of columns with declared ends; what returns are their leaves, made consistent.

    Leaves of a tree depend on each other: with C their covariance, the mean square of n of them is
    as exact as that of n tr(C)² / (leaves · tr(C²)) independent ones, 0.69 n here; so 1.5 times
    as many are drawn.
    """
    tree = Tree.best(CELLS)
    columns = -(-3 * count // (2 * tree.leaves * MEASUREMENTS))
    drawn, returned, variance = [], [], Fraction(0)
    for _ in range(MEASUREMENTS):
        calls = _learn_integers(columns, {"min": 0, "max": CELLS - 1})
        variance = Fraction(calls[0].event.noise_variance)
        added = _added(calls)
        drawn.append(added.ravel())
        returned.append(np.ravel([tree.consistent(row) for row in added]))
    leaf_std = (_leaf_variance(tree) * float(variance)) ** 0.5
    return Noise(np.array(drawn), variance, np.array(returned) / leaf_std)


def discovered(count: int) -> Discoveries:
    """Which values of counts around the threshold T pass: the law of the noise, integer by integer.

    A value of count c passes where the noise is at least T - c; c is within two deviations of T.
    """
    values = -(-count // MEASUREMENTS)
    delta = Fraction(1, 10**5)
    column = {"type": "categorical", "private_values": values, "catch_all": "other"}
    schema = Schema.parse({"version": 1, "columns": [{"name": "a", **column}]})
    names = [f"{i:06d}" for i in range(values)]
    learning = Cost.within(RHO, delta)

    def learn(counts: np.ndarray) -> PrimitiveCall:
        (call,) = _learn(schema, Gathered(texts={"a": (names, counts)}), learning)
        return call

    event = learn(np.ones(values, np.int64)).event
    sigma = float(event.noise_variance) ** 0.5
    reach = int(2 * sigma)
    counts = event.threshold + np.arange(values) % (2 * reach + 1) - reach
    outputs = [learn(counts).output for _ in range(MEASUREMENTS)]
    pmf = oracles.gaussian_pmf(float(event.noise_variance), int(12 * sigma))
    at_least = np.cumsum(pmf[::-1])[::-1]  # P[noise >= k - 12 sigma]
    probabilities = at_least[event.threshold - counts + int(12 * sigma)]
    return Discoveries(np.array([np.isin(names, output) for output in outputs]), probabilities)


def _learn_integers(columns: int, ends: dict[str, int]) -> list[PrimitiveCall]:
    schema = _integers(columns, ends)
    numbers = {name: np.full(ROWS, 7) for name in schema.names}
    return _learn(schema, Gathered(numbers=numbers), Cost.within(RHO * columns))


def _integers(columns: int, ends: dict[str, int]) -> Schema:
    column = {"type": "integer", "private_bins": 2, **ends}
    named = [{"name": f"a{i}", **column} for i in range(columns)]
    return Schema.parse({"version": 1, "columns": named})


def _learn(schema: Schema, gathered: Gathered, cost: Cost) -> list[PrimitiveCall]:
    calls: list[PrimitiveCall] = []
    budget = Budget(cost.rho, cost.delta)
    learn_schema(schema, gathered, Mechanisms(budget, SystemEntropy(), calls.append), cost)
    return calls


def _added(calls: list[PrimitiveCall]) -> np.ndarray:
    return np.array([call.output - call.inputs for call in calls])


def _leaf_variance(tree: Tree) -> float:
    """Mean variance of consistent leaves for noise of variance 1, by least squares as written."""
    b, h = tree.branching, tree.height
    nodes = [np.kron(np.eye(b**level), np.ones(b ** (h - level))) for level in range(1, h + 1)]
    matrix = np.vstack(nodes)
    return float(np.trace(np.linalg.inv(matrix.T @ matrix))) / tree.leaves
