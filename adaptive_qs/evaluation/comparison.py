"""Rules that compare two columns, such as "start <= end"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.column import ColumnBase
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.value_order import Values, by_day, values_of

OPERATORS = ("<=", ">=", "==", "!=", "<", ">")
_SWAPPED = {">": "<", ">=": "<="}


@dataclass(frozen=True)
class Comparison:
    """A comparison of two columns of the same kind.

    The codes of the tables tell the bin of a value, not the value. So a row breaks the rule where
    no two values of its two bins keep it, and rows within one bin that might keep it count as
    keeping it. Rows with a missing or unknown value break no comparison.

    Attributes:
        left, right: positions of the columns.
        operator: one of ``OPERATORS``.
        columns: how the two are declared.
    """

    left: int
    right: int
    operator: str
    columns: tuple[ColumnBase, ColumnBase]

    @property
    def text(self) -> str:
        """Such as "start <= end"."""
        return f"{self.columns[0].name} {self.operator} {self.columns[1].name}"

    def shares(self, joint: JointCodes) -> tuple[float, float, float]:
        """Rows that break it: of the true table, of the synthetic, and of independent columns."""
        true, synthetic = joint.pair.true, joint.pair.synthetic
        broken = (
            float(np.mean(self._broken(*self._values(t.columns[self.left], t.columns[self.right]))))
            for t in (true, synthetic)
        )
        seen = (np.unique(true.columns[i], return_counts=True) for i in (self.left, self.right))
        (a_codes, a_counts), (b_codes, b_counts) = seen
        a, b = self._values(a_codes, b_codes)
        parts = a_counts / true.num_rows, b_counts / true.num_rows
        return (*broken, self._expected(a, parts[0], b, parts[1]))  # type: ignore[return-value]

    def _values(self, left: NDArray, right: NDArray) -> tuple[Values, Values]:
        days = by_day(*self.columns)
        return values_of(self.columns[0], left, days), values_of(self.columns[1], right, days)

    def _broken(self, a: Values, b: Values) -> NDArray[np.bool_]:
        if self.operator in _SWAPPED:
            a, b = b, a
        match _SWAPPED.get(self.operator, self.operator):
            case "<=":
                broken = a.low > b.high
            case "<":
                broken = a.low >= b.high
            case "==":
                broken = (a.low > b.high) | (b.low > a.high)
            case _:
                broken = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
        return broken & a.known & b.known

    def _expected(self, a: Values, of_a: NDArray, b: Values, of_b: NDArray) -> float:
        """Chance that independent draws break it, from the shares of the codes that occur."""
        of_a, of_b = of_a * a.known, of_b * b.known
        if self.operator in _SWAPPED:
            a, b, of_a, of_b = b, a, of_b, of_a
        match _SWAPPED.get(self.operator, self.operator):
            case "<=":
                return _chance(a.low, of_a, b.high, of_b, "left")
            case "<":
                return _chance(a.low, of_a, b.high, of_b, "right")
            case "==":
                above = _chance(a.low, of_a, b.high, of_b, "left")
                return above + _chance(b.low, of_b, a.high, of_a, "left")
        points_a, points_b = of_a * (a.low == a.high), of_b * (b.low == b.high)
        up_to = _chance(a.low, points_a, b.low, points_b, "right")
        return up_to - _chance(a.low, points_a, b.low, points_b, "left")


def _chance(x: NDArray, of_x: NDArray, y: NDArray, of_y: NDArray, side: Any) -> float:
    """P(x > y) of independent draws, or P(x >= y) for the side "right"."""
    order = np.argsort(y, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(of_y[order])])
    return float((of_x * below[np.searchsorted(y[order], x, side)]).sum())
