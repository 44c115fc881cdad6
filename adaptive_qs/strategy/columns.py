"""Strategies for single columns of a table whose workload needs more of them than cells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from adaptive_qs.machine import linear_algebra
from adaptive_qs.strategy.integer import GridFactor, Integers, on_grid, table_estimate
from adaptive_qs.strategy.solution import Array, CenteringFactor
from adaptive_qs.workload.axes import Marginal
from adaptive_qs.workload.families import find_family
from adaptive_qs.workload.residuals import CenteredAxis, Subworkload, Term, decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

# The residual of a single column is what both kinds of its uses need: prefixes and ranges of it,
# and of every pair that it is in, have most of their error from there; and the cells of every
# marginal that holds it. Of a hundred codes, a strategy that is optimal for prefixes alone makes
# cells half as noisy again as they need be, and one for cells prefixes twice as noisy. So a column
# gets the strategy that is best for both together, each error relative to the least that it can be:
#
#     minimise tr(G V⁺) / L_G + tr(Π V⁺) / L_Π     with G the Gram matrix of the subworkload
#
# of its residual space (He et al., section 6.2) and L the optima by themselves, so that no constant
# says how much cells count. Sizes and the workload decide, no row.


MOST_CODES = 512
"""Most codes of a column that gets a strategy, whose matrix is a part of the release."""
LARGEST = 2**20
"""Largest coefficient of a strategy: answers to 2⁴⁰ rows stay below 2⁶²."""


@dataclass(frozen=True, eq=False)
class ColumnStrategy:
    """Integer queries that determine the residual of one column.

    Attributes:
        factor: M, shape (queries, codes); every row sums to zero.

    Raises:
        ValueError: M is larger than it may be, does not sum to zero, or leaves something open.
    """

    factor: GridFactor

    def __post_init__(self) -> None:
        rows = self.factor.integers
        known = rows.size and abs(rows).max() <= LARGEST and not rows.sum(axis=1).any()
        if not (known and self.factor.is_full and self.factor.is_determined):
            raise ValueError("the strategy does not determine the residual of its column")

    @classmethod
    def of_integers(cls, rows: Integers) -> ColumnStrategy:
        """Build the strategy with this M; errors are those of the class."""
        return cls(GridFactor(rows, (True,), rows.shape[1:]))

    @property
    def integers(self) -> Integers:
        """M."""
        return self.factor.integers

    @property
    def squared_sensitivity(self) -> int:
        """Largest squared column norm of M: the most that one row moves the answers."""
        return self.factor.squared_norm

    @cached_property
    def squared_diameter(self) -> int:
        """Largest squared distance of two columns of M, the most that replacing a row changes."""
        products = self.integers.T @ self.integers
        norms = products.diagonal()
        return int((norms[:, None] + norms - 2 * products).max())

    @cached_property
    def cost(self) -> float:
        """Privacy cost p: measured at an equivalent variance of σ² it costs ρ = p / (2σ²).

        The equivalent noise is independent noise in each cell that leaves as much variance in the
        residual: answers with noise of variance v leave v (MᵀM)⁺, of trace σ² (n − 1). For the
        cells themselves p is (n − 1)/n.
        """
        return float(np.trace(self.factor.covariance)) / (self.factor.shape[0] - 1)

    @cached_property
    def noise(self) -> Array:
        """Covariance of the estimated residual at an equivalent variance of 1, shape (n, n).

        It has the trace of I − 11ᵀ/n, the covariance of a residual from counted cells.
        """
        return self.factor.covariance / self.cost

    @property
    def cell_noise(self) -> float:
        """RMS standard error of the cells, relative to that of counting the cells at the same ρ."""
        n = self.factor.shape[0]
        return math.sqrt(self.cost * n / (n - 1))

    @property
    def digest(self) -> str:
        """SHA-256 of M, in hexadecimal digits."""
        return self.factor.digest

    def estimate(self, answers: Array) -> Array:
        """Return M⁺a, the unbiased residual in centered form from noisy answers."""
        return table_estimate((self.factor,), answers)


def column_strategies(workload: QueryWorkload) -> dict[int, ColumnStrategy]:
    """Return the strategy of each column that has a better one than counting its cells.

    Args:
        workload: queries that tables are to answer. Parts of cells alone need no strategy.

    Raises:
        ResourceExceeded: a part has too many sets, or queries that are too large to look at.
    """
    parts = tuple(part for part in workload.parts if not _asks_for_cells(part))
    if not parts:
        return {}
    found = {}
    decomposition = decompose_workload(replace(workload, parts=parts))
    for residual, number in zip(decomposition.residuals, decomposition.class_of.tolist()):
        if len(residual) == 1 and 1 < workload.domain.sizes[residual[0]] <= MOST_CODES:
            with linear_algebra().limit(limits=1):  # the same integers for any number of threads
                strategy = _strategy_for(decomposition.subworkloads[number])
            if strategy is not None:
                found[residual[0]] = strategy
    return found


def _asks_for_cells(part: QueryPart) -> bool:
    requested = part.axis.values() if part.joint is None else part.joint
    return all(find_family(queries) == "marginal" for queries in requested)


def _strategy_for(requested: Subworkload) -> ColumnStrategy | None:
    """Return the best strategy for a subworkload and cells; None if it counts the cells."""
    from adaptive_qs.strategy.optimal import solve  # most workloads need no solver

    (size,) = requested.shape
    cells = Subworkload(requested.shape, (Term(1.0, (CenteredAxis(Marginal(size)),)),))
    terms: list[Term] = []
    for one in (requested, cells):
        least = solve(one).objective
        terms += [replace(term, scale=term.scale / least) for term in one.terms]
    best = solve(Subworkload(requested.shape, tuple(terms))).strategy
    # Bits of the coefficients: they change the error by a ten-thousandth and leave room for noise
    # of at most 2⁴⁶, for a budget that leaves cells with 2³⁰ rows of noise
    grid_bits = 16
    (factor,) = on_grid(best, grid_bits, of_residual=True).factors
    if isinstance(factor, CenteringFactor):
        return None
    assert isinstance(factor, GridFactor)
    return ColumnStrategy(factor)


def noise_by_attribute(strategies: Mapping[int, ColumnStrategy]) -> dict[int, Array]:
    """Return noise covariances by column, for :class:`~adaptive_qs.residual.ReferenceModel`."""
    return {attribute: strategy.noise for attribute, strategy in strategies.items()}
