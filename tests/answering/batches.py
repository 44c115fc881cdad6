"""Small workloads of every kind, and releases taken apart: slow, obvious, for every mechanism."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, reduce
from itertools import combinations

import numpy as np

from adaptive_qs.answering.measure import answer_sets, divide_units, grid_bits
from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.strategy import MECHANISMS
from adaptive_qs.strategy.choose import choose_mechanism
from adaptive_qs.strategy.integer import table_estimate
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random
from adaptive_qs.workload.matrices import Custom, CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

from ..doors import measure_one

SIZES = (3, 4, 2)
CELLS = 24


def part(family, *sets, sizes=SIZES, weights=None):
    """One family on some sets: for each attribute, or for a whole set at once."""
    cliques = np.array(sets, dtype=np.int32)
    weights = np.ones(len(sets)) if weights is None else np.array(weights, dtype=float)
    if isinstance(family, dict):
        return QueryPart(cliques, family, None, weights)
    if family in (Marginal, Prefix, Range, Circular):
        return QueryPart(cliques, {i: family(n) for i, n in enumerate(sizes)}, None, weights)
    return QueryPart(cliques, {}, tuple(family(*(sizes[i] for i in row)) for row in sets), weights)


def ways(k):
    return list(combinations(range(len(SIZES)), k))


def custom(*shape):
    """Fewer queries than cells, none of them with integer coefficients."""
    return Custom(np.random.default_rng(1).normal(size=(2, int(np.prod(shape)))), shape)


def workload(*parts, sizes=SIZES):
    return QueryWorkload(Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)}), parts)


FEW = {0: CustomAxis([[1, 0.5, 0]]), 1: CustomAxis([[0, 1, 1, 0], [3, 0, 0, -1]]), 2: Marginal(2)}
CONTRAST = {0: CustomAxis([[0.1, 0.2, -0.3]]), 1: Prefix(4), 2: Range(2)}
RANDOM = {i: Random((n,), 0.4, n + 1, 3) for i, n in enumerate(SIZES)}
WORKLOADS = {
    "marginal": workload(part(Marginal, *ways(1)), part(Marginal, *ways(2))),
    "prefix": workload(part(Prefix, *ways(2), weights=[1, 5, 0.2])),
    "range": workload(part(Range, *ways(1)), part(Range, *ways(3), weights=[0.5])),
    "circular": workload(part(Circular, *ways(2))),
    "affine": workload(part(Prefix, *ways(1)), part(Affine, *ways(2))),
    "absdiff": workload(part(AbsDiff, *ways(2)), part(Affine, (0, 1), weights=[2])),
    "random": workload(part(RANDOM, *ways(2))),
    "random sets": workload(part(lambda *shape: Random(shape, 0.3, 9, 4), *ways(2))),
    "few queries": workload(part(FEW, *ways(2)), part(FEW, *ways(1), weights=[1, 2, 3])),
    "few on sets": workload(part(custom, *ways(2))),
    "contrast": workload(part(CONTRAST, *ways(2))),
    "several": workload(
        part(Marginal, *ways(1)), part(Range, (0, 1), weights=[3]), part(custom, (1, 2))
    ),
}
NAMES = tuple(MECHANISMS)


def pairs():
    """Every workload with every mechanism that can answer it: HDMM knows products only."""
    joint = {k for k, w in WORKLOADS.items() if any(p.joint is not None for p in w.parts)}
    return [(k, name) for k in WORKLOADS for name in NAMES if not (name == "hdmm" and k in joint)]


def table(sizes=SIZES, rows=500, seed=0):
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})
    return CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in sizes])


def onto(sizes, clique):
    """The 0/1 matrix that takes a table over all attributes to its marginal over a clique."""
    each = [np.eye(n) if i in clique else np.ones((1, n)) for i, n in enumerate(sizes)]
    return reduce(np.kron, each, np.eye(1))


def query_matrix(asked):
    """All queries as one matrix over the cells of the whole domain."""
    rows = []
    for one in asked.parts:
        for index, clique in enumerate(one.cliques.tolist()):
            q = reduce(np.kron, [f.matrix() for f in one.queries(index)], np.eye(1))
            rows.append(q @ onto(asked.domain.sizes, clique))
    return np.concatenate(rows)


def query_weights(asked):
    found = [
        np.full(int(np.prod([q.num_queries for q in one.queries(i)])), one.weights[i])
        for one in asked.parts
        for i in range(len(one))
    ]
    return np.concatenate(found)


class Scripted(Mechanisms):
    """Charges as usual, records the call, and hands out a given array instead of noisy values."""

    def __init__(self, ledger, output=None):
        super().__init__(ledger, InsecureSeed(0))
        self.calls, self._output = [], output

    def _draw_counts(self, event, values):
        self.calls.append((event, values))
        return values if self._output is None else self._output


def unlimited():
    return Budget(Fraction(10**12))


@dataclass(frozen=True)
class Batch:
    """A plan on the grid at a budget, and the linear map from releases to answers."""

    mechanism: object
    units: int

    @cached_property
    def costs(self):
        return divide_units(self.mechanism, self.units)

    def release(self, number, counter, output=None):
        """One measurement: the call it makes and what the mechanism keeps of it."""
        measurement = self.mechanism.measurement(number)
        script = Scripted(unlimited(), output)
        noisy = measure_one(counter, script, measurement, self.costs[number])
        return script.calls[0], table_estimate(measurement.strategy.factors, noisy)

    @cached_property
    def order(self):
        """Measurements in the order in which the sets first need them."""
        return list(dict.fromkeys(k for p, i in self.sets for k in self.mechanism.needed(p, i)))

    @property
    def sets(self):
        parts = self.mechanism.workload.parts
        return [(p, i) for p, part in enumerate(parts) for i in range(len(part))]

    @cached_property
    def inputs(self):
        """For each measurement its event and its integer answers to each single row, (m, cells)."""
        sizes = self.mechanism.workload.domain.sizes
        cells = int(np.prod(sizes))
        columns = {number: [] for number in self.order}
        for cell in range(cells):
            codes = np.unravel_index(cell, sizes)
            row = CodedTable.from_codes(self.mechanism.workload.domain, [[c] for c in codes])
            counter = MarginalCounter(row)
            for number in self.order:
                (event, values), _ = self.release(number, counter)
                columns[number].append((event, values.ravel()))
        return {
            number: (found[0][0], np.array([values for _, values in found], dtype=object).T)
            for number, found in columns.items()
        }

    @cached_property
    def map(self):
        """Answers (all sets, in order) to each unit release, by measurement: (answers, m)."""
        counter = MarginalCounter(table(self.mechanism.workload.domain.sizes, 1))
        kept = {k: self.release(k, counter)[1] for k in self.order}
        shapes = {k: self.release(k, counter)[0][1].shape for k in self.order}
        zero = {k: np.zeros_like(array) for k, array in kept.items()}
        found = {}
        for number in self.order:
            columns = []
            for j in range(int(np.prod(shapes[number]))):
                unit = np.zeros(shapes[number], dtype=np.int64)
                unit.flat[j] = 1
                kept = zero | {number: self.release(number, counter, unit)[1]}
                columns.append(self.answers(kept))
            found[number] = np.array(columns).T
        return found

    def answers(self, kept):
        return np.concatenate([self.mechanism.answers(p, i, kept) for p, i in self.sets])

    @cached_property
    def variances(self):
        """Reported variances of all answers (rows²)."""
        at_one = np.concatenate([self.mechanism.variances(p, i) for p, i in self.sets])
        return at_one * UNITS_PER_RHO / (2 * self.units)

    def run(self, mechanisms, counter):
        return list(answer_sets(self.mechanism, mechanisms.table(counter), mechanisms, self.units))


@cache
def batch(asked, name, cost=1.0):
    """The batch of a workload of :data:`WORKLOADS` by a mechanism, for a table of 500 rows."""
    units = PrivacyTarget.of_answers(cost=cost).units
    found = choose_mechanism(WORKLOADS[asked], name).mechanism
    return Batch(found.on_grid(grid_bits(found, units, 500)), units)
