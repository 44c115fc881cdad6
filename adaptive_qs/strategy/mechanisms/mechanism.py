"""A planned mechanism: what to measure, and how measurements answer a workload.

Everything here is public and decided before any count is seen. Variances are at privacy cost
β = 1; at another cost they are divided by β.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.strategy.matrix import Strategy
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryWorkload

Array = NDArray[np.float64]


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


@dataclass(frozen=True, eq=False)
class QueryMeasurement:
    """Noise on the queries themselves; kept are the noisy answers.

    Attributes:
        clique: the attributes of the table measured.
        queries: a product of families, or one joint family.
        squared_sensitivity: a bound on the squared norm of every column of the query matrix.
        share: part of the budget; noise of variance squared_sensitivity/(β · share) is added.
    """

    clique: Clique
    queries: tuple[Queries, ...]
    squared_sensitivity: float
    share: float


Measurement = StrategyMeasurement | QueryMeasurement


class Mechanism(Protocol):
    """Measurements whose shares add up to 1, and the answers that follow from them."""

    @property
    def workload(self) -> QueryWorkload:
        """What is answered."""

    @property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""

    @property
    def lower_bound(self) -> float:
        """No mechanism of the same kind has a smaller total error."""

    @property
    def statuses(self) -> Counter[Status]:
        """How the distinct optimisation problems ended."""

    @property
    def num_measurements(self) -> int:
        """How many measurements there are."""

    def measurement(self, index: int) -> Measurement:
        """One measurement."""

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The measurements that the answers to one attribute set of a part depend on."""

    def on_grid(self, grid_bits: int) -> Mechanism:
        """The same with integer strategies, ready to be measured.

        Args:
            grid_bits: bound on the bits of all coefficients of a strategy together.

        Raises:
            ResourceExceeded: a strategy has too many cells.
        """

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Answers to all queries of one attribute set.

        Args:
            part: the part of the workload.
            index: the attribute set in the part.
            kept: what each needed measurement kept.

        Returns:
            Shape (m,), in the order of the queries' products.
        """

    def variances(self, part: int, index: int) -> Array:
        """Variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""

    def largest_variance(self) -> tuple[float, bool]:
        """Largest variance of all queries at cost 1, and whether it is exact or a bound."""
