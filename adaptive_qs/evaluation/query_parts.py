"""Errors of queries by part of the workload."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class PartError:
    """Root mean squared errors of some queries, in shares of the rows; owner only.

    Each is √(Σ weight · squared error / queries).

    Attributes:
        families: of the queries, such as ("prefix", "marginal").
        ways: attributes in each set.
        sets: of attributes.
        queries: their number, over all sets.
        weighted: whether some query counts more or less than once.
        rmse: of the synthetic table. It is the error that ``plan`` forecasts, divided by the rows.
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        deviation: standard deviation of the squared error of a fresh sample, or more.
    """

    families: tuple[str, ...]
    ways: int
    sets: int
    queries: int
    weighted: bool
    rmse: float
    fresh: float
    independent: float
    deviation: float = 0.0

    def chance(self, deviations: float) -> float:
        """How much further than ``fresh`` so many standard deviations take a fresh sample."""
        return math.sqrt(self.fresh**2 + deviations * self.deviation) - self.fresh

    @property
    def title(self) -> str:
        """Such as "prefix and marginal of 2 columns"."""
        columns = "single columns" if self.ways == 1 else f"{self.ways} columns"
        return f"{' and '.join(self.families)} of {columns}"


@dataclass(frozen=True)
class QueryError:
    """Of the answers from the synthetic table; owner only.

    Attributes:
        parts: one for each part of the workload and number of attributes, in its order.
    """

    parts: tuple[PartError, ...]

    @property
    def queries(self) -> int:
        """Queries of all parts."""
        return sum(part.queries for part in self.parts)

    @property
    def weighted(self) -> bool:
        """Whether some query counts more or less than once."""
        return any(part.weighted for part in self.parts)

    @property
    def joint(self) -> bool:
        """Whether some query is of several columns, so that independence says something."""
        return any(part.ways > 1 for part in self.parts)

    @property
    def rmse(self) -> float:
        """Of all queries."""
        return self._mean("rmse")

    @property
    def fresh(self) -> float:
        """The same expected of a fresh sample."""
        return self._mean("fresh")

    @property
    def independent(self) -> float:
        """The same expected of independent columns."""
        return self._mean("independent")

    def chance(self, deviations: float) -> float:
        """How much further than ``fresh`` so many standard deviations take a fresh sample.

        Parts may err together, so their deviations add up.
        """
        all_parts = math.fsum(part.queries * part.deviation for part in self.parts) / self.queries
        return math.sqrt(self.fresh**2 + deviations * all_parts) - self.fresh

    def _mean(self, name: str) -> float:
        squares = (part.queries * getattr(part, name) ** 2 for part in self.parts)
        return math.sqrt(math.fsum(squares) / self.queries)
