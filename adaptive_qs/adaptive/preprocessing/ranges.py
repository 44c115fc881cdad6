"""Bounds and bins of integer and numeric columns, learnt with noise.

A column's part of ρ goes to one histogram of magnitudes where an end is not declared
(:mod:`.magnitudes`, squared sensitivity 1), and to one tree of counts over the grid between the
bounds (:mod:`.tree`, squared sensitivity its height). A row adds one to one cell of the histogram
and to one node of each level, or nothing where its value is missing or outside the bounds that were
found and counts as missing. Grid, tree and their noise follow from the schema and from bounds
already released; the edges follow from the noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from adaptive_qs.adaptive.preprocessing.gather import Numbers
from adaptive_qs.adaptive.preprocessing.grid import declared_points
from adaptive_qs.adaptive.preprocessing.magnitudes import Magnitudes, Number, RangeColumn
from adaptive_qs.adaptive.preprocessing.quantile_edges import quantile_edges
from adaptive_qs.adaptive.preprocessing.tree import Counts, Tree
from adaptive_qs.data.private import PrivateIntegerColumn
from adaptive_qs.data.ranges import IntegerColumn, NumericColumn
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost
from adaptive_qs.privacy.labels import Purpose, column_label
from adaptive_qs.privacy.mechanisms import CountsRequest, Mechanisms

BOUNDS_SHARE = Fraction(1, 4)
"""Part of a column's ρ for the bounds, where an end is not declared."""


def learn_ranges(
    columns: list[RangeColumn],
    numbers: Mapping[str, Numbers],
    mechanisms: Mechanisms,
    costs: Mapping[str, Cost],
) -> dict[str, IntegerColumn | NumericColumn]:
    """Columns with bins, by name.

    Args:
        columns: what is to be learnt.
        numbers: the private values of each, inside its declared ends; missing ones left out.
        mechanisms: charges ``costs``, then draws.
        costs: most that each column may cost.

    Raises:
        BudgetExceeded: the ledger behind ``mechanisms`` holds less.
    """
    plans = [_Plan.of(column, costs[column.name].rho_units) for column in columns]
    open_ended = [plan for plan in plans if plan.bounds_units]
    histograms = _released(
        mechanisms, [plan.magnitude_request(numbers[plan.column.name]) for plan in open_ended]
    )
    bounds = {plan.column.name: plan.declared for plan in plans if not plan.bounds_units}
    for plan, noisy in zip(open_ended, histograms):
        magnitudes = Magnitudes.of(plan.column)
        bounds[plan.column.name] = magnitudes.bounds(noisy, _variance(1, plan.bounds_units))
    grids = [_Grid.of(plan, *bounds[plan.column.name]) for plan in plans]
    trees = _released(mechanisms, [grid.request(numbers[grid.plan.column.name]) for grid in grids])
    return {grid.plan.column.name: grid.column(noisy) for grid, noisy in zip(grids, trees)}


_BLOCK = 1 << 20


@dataclass(frozen=True)
class _Plan:
    """A column and the units of ρ for its bounds and its bins."""

    column: RangeColumn
    bounds_units: int
    bins_units: int

    @classmethod
    def of(cls, column: RangeColumn, units: int) -> _Plan:
        declared = column.min is not None and column.max is not None
        for_bounds = 0 if declared else math.floor(units * BOUNDS_SHARE)
        return cls(column, for_bounds, units - for_bounds)

    @property
    def label(self) -> str:
        return column_label(Purpose.BINS, self.column.name)

    @property
    def declared(self) -> tuple[Number, Number]:
        return self.column.span

    def magnitude_request(self, values: Numbers) -> CountsRequest:
        counts = _counted(Magnitudes.of(self.column).counts, values)
        return CountsRequest(self.label, counts, 1, _variance(1, self.bounds_units))


@dataclass(frozen=True)
class _Grid:
    """The public cells between the ends of a column, and the tree over them.

    Attributes:
        fixed: positions of points that are edges in any case: a bound that was found, where it is
            farther from the declared end than from the other bound.
    """

    plan: _Plan
    points: Numbers
    tree: Tree
    fixed: tuple[int, ...]

    @classmethod
    def of(cls, plan: _Plan, low: Number, high: Number) -> _Grid:
        points = declared_points(plan.column, low, high)
        past = high + isinstance(plan.column, PrivateIntegerColumn)
        far = [low] if low - points[0] > past - low else []
        far += [past] if points[-1] - past > past - low else []
        fixed = tuple(np.searchsorted(points, far).tolist())
        return cls(plan, points, Tree.best(points.size - 1), fixed)

    def request(self, values: Numbers) -> CountsRequest:
        counts = self.tree.counts(_counted(self._cell_counts, values))
        height = self.tree.height
        return CountsRequest(self.plan.label, counts, height, self._noise_variance)

    def column(self, noisy: Counts) -> IntegerColumn | NumericColumn:
        column, cells = self.plan.column, self.points.size - 1
        unit = self.tree.prefix_variances(cells).mean() / self.tree.height
        edges = quantile_edges(
            self.tree.consistent(noisy)[:cells],
            math.sqrt(unit * self._noise_variance),
            column.private_bins,
            (column.min is None, column.max is None),
            self.fixed,
        )
        return column.resolved(self.points[edges].tolist())

    @property
    def _noise_variance(self) -> Fraction:
        return _variance(self.tree.height, self.plan.bins_units)

    def _cell_counts(self, values: Numbers) -> Counts:
        first, last = self.points[0], self.points[-1]
        if isinstance(self.plan.column, PrivateIntegerColumn):
            last = last - 1
        if self.plan.column.outside == "missing":
            values = values[(first <= values) & (values <= last)]
        cells = np.searchsorted(self.points[:-1], np.clip(values, first, last), side="right") - 1
        return np.bincount(cells, minlength=self.points.size - 1)


def _counted(count: Callable[[Numbers], Counts], values: Numbers) -> Counts:
    """Counts of all values, with temporary arrays of a block only."""
    total = count(values[:_BLOCK])
    for start in range(_BLOCK, values.size, _BLOCK):
        total += count(values[start : start + _BLOCK])
    return total


def _released(mechanisms: Mechanisms, requests: list[CountsRequest]) -> list[Counts]:
    return mechanisms.release_together(requests) if requests else []


def _variance(squared_sensitivity: int, rho_units: int) -> Fraction:
    """Noise with which counts of this sensitivity cost exactly so many units."""
    return Fraction(squared_sensitivity * UNITS_PER_RHO, 2 * rho_units)
