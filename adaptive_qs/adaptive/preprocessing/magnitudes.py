"""Private bounds of a column: between which magnitudes its values lie.

The public grid holds 0 and ±{1, 2, 5}·10^e. Its cells are {0} and, on either side, the intervals
between neighbouring numbers, each with its outer end; the outermost take everything beyond them.
One histogram over the cells, of squared sensitivity 1, is measured with noise of standard
deviation σ.

The line has three parts: the negative numbers, 0, and the positive ones. In each of them the run of
cells that maximises Σ (noisy count − 1.5 σ) is found, and it stands out if that sum is above 4 σ.
Bounds are the outermost ends of the runs that stand out, so that the many empty cells near 0 cost
nothing, and a declared end, which only limits the grid, need not be reached.

An end of a run lies m empty cells too far out with probability at most Φ(−1.5 √m), in all below
0.1, and m cells at an end are lost only if they hold fewer than about 1.5 σ m rows. A run of pure
noise anywhere on the grid of c cells sums to more than x with probability at most about
c·exp(−3x/σ), below 0.002 for 4 σ, so a column that spans m cells of a part needs about
(1.5 m + 4) σ rows there. Where nothing stands out the bounds are public: see
:meth:`Magnitudes.default`.
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
LEAST_SUM = 4.0
"""Sum above which a run of cells stands out, in standard deviations of the noise."""
DEFAULT_REACH = 100
"""Bounds on either side of 0 of a column where nothing stands out."""

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
        """Ends of the cells with more rows than noise, between the declared ends."""
        sigma = math.sqrt(noise_variance)
        gain = np.asarray(noisy - PENALTY * sigma, dtype=np.float64)
        cells = np.array(self.cells)
        ends: list[Number] = []
        for sign in (-1, 0, 1):
            part = np.flatnonzero(np.sign(cells) == sign)
            total, first, last = _best_run(gain[part])
            if total > LEAST_SUM * sigma:
                ends += self._ends(int(cells[part[first]]))
                ends += self._ends(int(cells[part[last]]))
        if not ends:
            return self.default
        return self._between(min(ends)), self._between(max(ends))

    @property
    def default(self) -> tuple[Number, Number]:
        """Public bounds for a column with too few rows: around 0, or next to its declared end."""
        low, high = self._between(-DEFAULT_REACH), self._between(DEFAULT_REACH)
        if low < high:
            return low, high
        reach = min(max(DEFAULT_REACH, abs(low)), self.steps[-1])
        return (low, low + reach) if low > 0 else (high - reach, high)

    def _between(self, value: Number) -> Number:
        value = value if self.low is None else max(value, self.low)
        return value if self.high is None else min(value, self.high)

    def _cell(self, value: Number) -> int:
        place = min(int(np.searchsorted(self.steps, abs(value))), len(self.steps) - 1) + 1
        return place * ((value > 0) - (value < 0))

    def _ends(self, cell: int) -> tuple[Number, Number]:
        if cell == 0:
            return 0, 0
        outer = self.steps[abs(cell) - 1]
        inner = self.steps[abs(cell) - 2] if abs(cell) > 1 else 0
        return (inner, outer) if cell > 0 else (-outer, -inner)


def _best_run(gain: NDArray[np.float64]) -> tuple[float, int, int]:
    """The largest sum of neighbouring gains, and the positions of its first and last."""
    best, total, first = (-math.inf, 0, 0), 0.0, 0
    for position, value in enumerate(gain.tolist()):
        if total <= 0:
            total, first = 0.0, position
        total += value
        best = max(best, (total, first, position), key=lambda run: run[0])
    return best
