"""A planned mechanism: what to measure, how answers follow, and the variance of each."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.strategy.solution import (
    Array,
    Factor,
    Status,
    Strategy,
    kron,
    magnitude,
    may_cancel,
    root_squares,
)
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.workload import QueryWorkload

# Everything here is public and decided before any count is seen. Variances are at privacy cost
# β = 1; at another cost they are divided by β.


@dataclass(frozen=True, eq=False)
class StrategyMeasurement:
    """Noise on the answers of a strategy; kept is the least-squares table B⁺z.

    Attributes:
        clique: the attributes of the table measured.
        strategy: B over that table, normalised.
        share: part of the budget; noise of variance 1/(β · share) is added to each answer.
    """

    clique: Clique
    strategy: Strategy
    share: float


class Mechanism(Protocol):
    """Measurements whose shares add up to 1, and the answers that follow from them."""

    @property
    def workload(self) -> QueryWorkload:
        """Workload that is answered."""

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""

    @property
    def lower_bound(self) -> float:
        """Total error that no mechanism of the same kind beats."""

    @property
    def statuses(self) -> Counter[Status]:
        """Number of distinct optimisation problems by status."""

    @property
    def num_measurements(self) -> int:
        """Number of measurements."""

    def measurement(self, index: int) -> StrategyMeasurement:
        """Return the measurement with this number."""

    def needed(self, part: int, index: int) -> Sequence[int]:
        """Return the measurements that the answers to one attribute set of a part depend on."""

    def on_grid(self, grid_bits: int) -> Mechanism:
        """Return the mechanism with integer strategies, ready to be measured.

        Their coefficients have at most ``grid_bits`` bits together.

        Raises:
            ResourceExceeded: too many cells.
        """

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Return answers to all queries of one attribute set of a part, from the kept estimates.

        Shape (m,), in the order of the queries' products.
        """

    def variances(self, part: int, index: int) -> Array:
        """Return the variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""

    def largest_variance(self) -> tuple[float, bool]:
        """Return the largest variance of all queries at cost 1, and whether it is exact."""


class ArrayCache:
    """Arrays by key; the least recently used go when there are too many bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        """Hold at most ``max_bytes`` (a single larger array is made and not held)."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._arrays: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Return the array of a key; make it if it is not held."""
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
                return self._arrays[key]
        array = make()
        with self._lock:
            if key not in self._arrays and array.nbytes <= self._max_bytes:
                self._arrays[key] = array
                self._bytes += array.nbytes
                while self._bytes > self._max_bytes:
                    self._bytes -= self._arrays.popitem(last=False)[1].nbytes
        return array


def largest_bias(
    queries: Sequence[Queries], axes: tuple[int, ...], factors: Sequence[Factor]
) -> float:
    """Return max_q ‖q (I − V⁺V)‖ / ‖q‖, the bias of exact measurements, estimated on random tables.

    Zero where the strategy supports the queries and its covariance is its own: then V⁺Bᵀ estimates
    them without bias, and q V⁺ qᵀ is the variance of that estimate. A cell that no query asks about
    may have no variance at all. For the arguments see :func:`joint_squares`.
    """
    rng = np.random.Generator(np.random.PCG64(0))  # probes of a public matrix, not privacy noise
    shape = tuple(n for factor in factors for n in factor.shape)
    # Number of random tables on which estimates are compared with the truth. A query that a
    # strategy misses shows on each of them with probability 1.
    probes = 3
    tables = rng.standard_normal((*shape, probes))
    found = tables
    for factor in factors:
        block = factor.restored(found.reshape(math.prod(factor.shape), -1))
        block = block.reshape(*factor.shape, *found.shape[len(factor.shape) :])
        order = (*range(len(factor.shape), block.ndim), *range(len(factor.shape)))
        found = block.transpose(order)
    found = np.moveaxis(found, 0, -1)  # the probes, which came first once all axes had moved
    outside = tuple(axis for axis in range(len(shape)) if axis not in axes)
    truth, missed = (_answer_norms(queries, t.sum(axis=outside)) for t in (tables, tables - found))
    seen = truth > 0
    return float((missed[seen] / truth[seen]).max(initial=0.0))


def joint_squares(queries: Queries, axes: tuple[int, ...], factors: Sequence[Factor]) -> Array:
    """Return variances of queries over ascending ``axes`` of a table, the others summed out, (m,).

    The factors are the strategy on all axes of the table.
    """
    roots, covariances, start = [], [], 0
    for factor in factors:
        shape, degree = factor.shape, len(factor.shape)
        outside = tuple(k for k in range(degree) if start + k not in axes)
        start += degree
        root = factor.inverse.reshape(*shape, -1).sum(axis=outside)
        root = root.reshape(-1, root.shape[-1])
        roots.append(root)
        block = factor.covariance.reshape(shape + shape)
        block = block.sum(axis=outside + tuple(k + degree for k in outside))
        covariances.append(block.reshape(len(root), len(root)))
    summing = any(may_cancel(magnitude(of.covariance), sum(of.shape)) for of in factors)
    if not summing and not may_cancel(
        math.prod(map(magnitude, covariances)), math.prod(queries.shape)
    ):
        return queries.squares(kron(covariances))
    narrow = [np.asarray(np.linalg.qr(root.T, mode="r")).T for root in roots]  # of the same C
    return root_squares([queries], kron(narrow).reshape(*queries.shape, -1))


def _answer_norms(queries: Sequence[Queries], tables: Array) -> Array:
    """Return the norm of each query's answers to tables along the last axis."""
    for of in queries:
        tables = np.moveaxis(of.answer(tables), 0, -1)
    return np.asarray(np.linalg.norm(tables, axis=0), dtype=np.float64)
