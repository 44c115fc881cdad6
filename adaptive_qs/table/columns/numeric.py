"""Columns with a declared range: integer and numeric."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.category import Integer64, integer_of

Outside = Literal["refuse", "clip", "missing"]
"""What happens to values outside the range: refuse the table, move them to the nearest end, or
count them as missing (then cells that cannot be read count as missing too)."""

Learnt = Literal["min", "max", "bins"]

BinCount = Annotated[int, Field(ge=1, le=2**24)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class RangeColumn(ColumnBase):
    """A column of ordered values between two public bounds."""

    ordered: bool = True
    """Whether the order of the values means something (for prefix and range queries)."""
    outside: Outside = "refuse"
    """What happens to values outside the range: "refuse" them, "clip" them to the nearest end,
    or count them, and cells that cannot be read, as "missing"."""

    def _check_values(self) -> None:
        if self.outside == "missing" and not self.missing:
            raise ValueError('outside is "missing" but no missing marker is declared: add one')


class IntegerColumn(RangeColumn):
    """Integers from min to max, one code each or grouped into bins."""

    type: Literal["integer"]
    min: Integer64
    """Smallest value."""
    max: Integer64
    """Largest value."""
    bins: BinCount | None = None
    """Number of bins of equal width (up to one)."""
    bin_starts: tuple[Integer64, ...] | None = None
    """First value of every bin, ascending, the first one being min."""
    learnt: Annotated[tuple[Learnt, ...], Field(min_length=1)] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    @cached_property
    def starts(self) -> tuple[int, ...] | None:
        """First value of every bin; None when every integer has its own code."""
        if self.bins is not None:
            width = self.max - self.min + 1
            return tuple(self.min + i * width // self.bins for i in range(self.bins))
        return self.bin_starts

    @property
    def num_values(self) -> int:
        """Number of bins, or of integers when there are none."""
        return self.max - self.min + 1 if self.starts is None else len(self.starts)

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is an integer in the range."""
        value = integer_of(text)
        return value is not None and self.min <= value <= self.max

    def _check_values(self) -> None:
        super()._check_values()
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: exchange them")
        if self.bins is not None and self.bin_starts is not None:
            raise ValueError("both bins and bin_starts are given: keep one")
        if self.bins is not None and self.bins > self.max - self.min + 1:
            raise ValueError(f"{self.bins} bins are more than the integers from min to max")
        if self.bin_starts is not None:
            starts = (*self.bin_starts, self.max + 1)
            if starts[0] != self.min or any(a >= b for a, b in pairwise(starts)):
                raise ValueError("bin_starts must begin with min and ascend up to max at most")


class NumericColumn(RangeColumn):
    """Real numbers in bins [edge, next edge), the last one closed."""

    type: Literal["numeric"]
    min: Finite | None = None
    """Smallest value (with max and bins, instead of edges)."""
    max: Finite | None = None
    """Largest value."""
    bins: BinCount | None = None
    """Number of bins of equal width."""
    edges: tuple[Finite, ...] | None = None
    """Ends of the bins, ascending: one more than there are bins."""
    decimals: Annotated[int, Field(ge=0, le=9)] | None = None
    """Decimal places of decoded values; unrounded when absent."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Decoded values are multiples of this number (0.5, 0.05); it needs decimals."""
    learnt: Annotated[tuple[Learnt, ...], Field(min_length=1)] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    @cached_property
    def bin_edges(self) -> tuple[float, ...]:
        """Ends of the bins, ascending: num_values + 1 of them."""
        if self.edges is not None:
            return self.edges
        assert self.min is not None
        assert self.max is not None
        assert self.bins is not None
        low, high, n = self.min, self.max, self.bins
        return (low, *(low * (1 - i / n) + high * (i / n) for i in range(1, n)), high)

    @cached_property
    def grid(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """First and last number that a bin decodes to, in units of 10^-decimals, for every bin.

        None without decimals. All are multiples of `units`.
        """
        if self.decimals is None:
            return None
        each = self.units
        scaled = [Decimal(repr(edge)).scaleb(self.decimals) / each for edge in self.bin_edges]
        first = [int(edge.to_integral_value(ROUND_CEILING)) for edge in scaled]
        last = [start - 1 for start in first[1:-1]] + [math.floor(scaled[-1])]
        return tuple(k * each for k in first[:-1]), tuple(k * each for k in last)

    @property
    def units(self) -> int:
        """The step in units of 10^-decimals; 1 without a step."""
        if self.step is None or self.decimals is None:
            return 1
        return int(Decimal(repr(self.step)).scaleb(self.decimals))

    @property
    def num_values(self) -> int:
        """Number of bins."""
        return len(self.bin_edges) - 1

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is a number in the range."""
        try:
            value = float(text)
        except ValueError:
            return False
        return self.bin_edges[0] <= value <= self.bin_edges[-1]

    def _check_values(self) -> None:
        super()._check_values()
        by_count = (self.min, self.max, self.bins)
        if self.edges is None and None in by_count:
            raise ValueError("give either edges, or min and max and bins")
        if self.edges is not None and by_count != (None, None, None):
            raise ValueError("both edges and min, max or bins are given: keep one")
        edges = self.bin_edges
        if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)):
            raise ValueError("the edges of the bins must be two or more and ascend")
        if self.step is not None:
            self._check_step(self.step)
        if self.decimals is not None and self.grid is not None:
            if max(abs(edges[0]), abs(edges[-1])) * 10**self.decimals >= 2**53:
                raise ValueError("the range with these decimals exceeds 15 digits: use fewer")
            if any(first > last for first, last in zip(*self.grid)):
                numbers = f"number with {self.decimals} decimals"
                if self.step is not None:
                    numbers = f"multiple of the step {self.step:.9g}"
                raise ValueError(f"a bin holds no {numbers}: use wider bins")

    def _check_step(self, step: float) -> None:
        if self.decimals is None:
            raise ValueError("step is given without decimals: give those of the step")
        if Decimal(repr(step)).scaleb(self.decimals) % 1:
            raise ValueError(f"step {step:.9g} has more than {self.decimals} decimals: give more")
