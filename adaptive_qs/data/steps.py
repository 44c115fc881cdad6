"""The grid on which the numbers of a column lie: multiples of 0.01, of 0.05, of 0.5.

For `propose` only: the grid is as private as the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import NDArray

_USUAL = (1, 2, 5, 25, 125)
"""Digits of usual steps."""


@dataclass(frozen=True)
class Grid:
    """Multiples of a step, or all doubles.

    Attributes:
        decimals: decimal places of all numbers, or None for all doubles.
        multiple: the step in units of 10^-decimals.
    """

    decimals: int | None
    multiple: int = 1

    @property
    def step(self) -> float:
        """The smallest distance of two numbers."""
        return 0.0 if self.decimals is None else self.multiple / 10**self.decimals

    def after(self, value: float) -> float:
        """The smallest number above the value."""
        if self.decimals is None:
            return math.nextafter(value, math.inf)
        return self._number(self._steps(value, ROUND_FLOOR) + 1)

    def from_on(self, value: float) -> float:
        """The smallest number that is no less than the value."""
        return value if self.decimals is None else self._number(self._steps(value, ROUND_CEILING))

    def _steps(self, value: float, rounding: str) -> int:
        assert self.decimals is not None
        units = Decimal(repr(float(value))).scaleb(self.decimals)
        return int((units / self.multiple).to_integral_value(rounding))

    def _number(self, steps: int) -> float:
        assert self.decimals is not None
        return float(steps * self.multiple / 10**self.decimals)


def grid_of(values: NDArray[np.float64], decimals: int) -> Grid:
    """The widest grid for all values with a usual step, such as 0.05, 0.1, 0.125, 0.2 or 0.25.

    Args:
        values: distinct, shape (n,), below 2^53 in units of 10^-decimals.
        decimals: decimal places with which all of them are written.
    """
    units = np.rint(values * 10**decimals).astype(np.int64)
    common = int(np.gcd.reduce(units))
    if len(values) < 2 or common < 2:
        return Grid(decimals)
    digits = len(str(common))
    usual = (m * 10**k for k in range(digits) for m in _USUAL)
    multiple = max(step for step in usual if common % step == 0)
    while decimals and multiple % 10 == 0:
        multiple, decimals = multiple // 10, decimals - 1
    return Grid(decimals, multiple)
