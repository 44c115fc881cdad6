"""Private bounds of a column: between which magnitudes its values lie.

The public grid holds 0 and ±{1, 2, 5}·10^e. Its cells are {0} and, on either side, the intervals
between neighbouring numbers, each with its outer end; the outermost take everything beyond them.
One histogram over the cells, of squared sensitivity 1, is measured with noise of standard
deviation σ.

Bounds are the ends of the run of cells that maximises Σ (noisy count − 1.5 σ). An end of the run
lies m empty cells too far out with probability at most Φ(−1.5 √m), in all below 0.1, and m cells
at an end are lost only if they hold fewer than about 1.5 σ m rows. A run of pure noise anywhere on
the grid of c cells sums to more than x with probability at most about c·exp(−3x/σ), so a column
that spans m cells needs about (1.5 m + 4) σ rows for its bounds to mean anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.private import PrivateIntegerColumn, PrivateNumericColumn

RangeColumn = PrivateIntegerColumn | PrivateNumericColumn
Number = int | float

PENALTY = 1.5
"""Rows that a cell has to hold to belong to the range, in standard deviations of the noise."""

_DIGITS = (1, 2, 5)
_NUMERIC_EXPONENTS = range(-12, 18)
_EXACT_DIGITS = 15


@dataclass(frozen=True)
class Magnitudes:
    """The part of the public grid that a column's declared ends leave.

    Attributes:
        steps: the positive numbers of the grid, ascending.
        low: declared smallest value, or None.
        high: declared largest value, or None.
    """

    steps: tuple[Number, ...]
    low: Number | None
    high: Number | None

    @classmethod
    def of(cls, column: RangeColumn) -> Magnitudes:
        """The grid for values of this column."""
        if isinstance(column, PrivateIntegerColumn):
            whole = tuple(digit * 10**e for e in range(18) for digit in _DIGITS)
            return cls(whole, column.min, column.max)
        exponents = _NUMERIC_EXPONENTS
        if column.decimals is not None:
            exponents = range(-column.decimals, _EXACT_DIGITS + 1 - column.decimals)
        steps = tuple(float(f"{digit}e{e}") for e in exponents for digit in _DIGITS)
        return cls(steps, column.min, column.max)

    @property
    def cells(self) -> range:
        """The cells that a value between the declared ends may lie in; 0 is the cell {0}."""
        first = -len(self.steps) if self.low is None else self._cell(self.low)
        last = len(self.steps) if self.high is None else self._cell(self.high)
        return range(first, last + 1)

    def counts(self, values: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.int64]:
        """Values in each of the cells; all of them lie between the declared ends."""
        steps = np.array(self.steps, dtype=values.dtype)
        places = np.minimum(np.searchsorted(steps, np.abs(values)), len(steps) - 1) + 1
        cells = np.sign(values).astype(np.int64) * places
        return np.bincount(cells - self.cells.start, minlength=len(self.cells))

    def bounds(
        self, noisy: NDArray[np.int64], noise_variance: Fraction | int
    ) -> tuple[Number, Number]:
        """Ends of the run of cells with more rows than noise; declared ends stay."""
        gain = noisy - PENALTY * math.sqrt(noise_variance)
        before = np.concatenate([[0.0], np.cumsum(gain)])
        sums = before[None, 1:] - before[:-1, None]  # (first cell, last cell)
        sums[np.tril_indices_from(sums, -1)] = -np.inf
        if self.low is not None:
            sums[1:] = -np.inf
        if self.high is not None:
            sums[:, :-1] = -np.inf
        first, last = np.unravel_index(np.argmax(sums), sums.shape)
        low = self._ends(self.cells[int(first)])[0] if self.low is None else self.low
        high = self._ends(self.cells[int(last)])[1] if self.high is None else self.high
        if self.high is not None:
            low = min(low, self.high)
        return low, high if self.low is None else max(high, self.low)

    def _cell(self, value: Number) -> int:
        place = min(int(np.searchsorted(self.steps, abs(value))), len(self.steps) - 1) + 1
        return place * ((value > 0) - (value < 0))

    def _ends(self, cell: int) -> tuple[Number, Number]:
        if cell == 0:
            return 0, 0
        outer = self.steps[abs(cell) - 1]
        inner = self.steps[abs(cell) - 2] if abs(cell) > 1 else 0
        return (inner, outer) if cell > 0 else (-outer, -inner)
