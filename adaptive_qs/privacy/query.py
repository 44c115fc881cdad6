"""Linear queries with integer coefficients, and their sensitivity.

A query is a Kronecker product of integer maps along the axes of a table of counts. Its sensitivity
follows from the maps: the columns of a Kronecker product are products of columns, and their largest
norms multiply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.levels import Groups
from adaptive_qs.privacy.events import Purpose

Integers = NDArray[np.int64]


class IntegerMap(Protocol):
    """A linear map with integer coefficients, along one axis or several that follow each other."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""

    @property
    def squared_norm(self) -> int:
        """Largest squared length of a column."""

    @property
    def largest(self) -> int:
        """Bound on the coefficients, and on every step of their application."""

    def answers(self, table: Integers) -> Integers:
        """Return the answers to counts of shape (Πshape, others), exactly."""


@dataclass(frozen=True)
class Identity:
    """The identity on cells.

    Attributes:
        size: Number of cells.
        histograms: Number of histograms of the cells; a row is in at most one cell of each.
    """

    size: int
    histograms: int = 1
    largest = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The one axis."""
        return (self.size,)

    @property
    def squared_norm(self) -> int:
        """The maximum number of cells of a row."""
        return self.histograms

    def answers(self, table: Integers) -> Integers:
        """Return the counts."""
        return table


@dataclass(frozen=True)
class Centering:
    """A map to n times each cell minus n/m, rounded, times the sum of its group of m cells.

    n is the largest m. The estimate removes what rounding leaves of the sums. No row changes the
    answers by more than n(n − 1) (L2, squared).
    """

    groups: Groups

    @property
    def shape(self) -> tuple[int, ...]:
        """The one axis."""
        return (self.groups.of.size,)

    @property
    def largest(self) -> int:
        """The largest number of cells of a group, n."""
        return self.groups.largest

    @property
    def squared_norm(self) -> int:
        """The largest squared length of a column, n(n − 1)."""
        return self.largest * (self.largest - 1)

    def answers(self, table: Integers) -> Integers:
        """Return the centered counts."""
        n, groups = self.largest, self.groups
        taken = (2 * n + groups.sizes) // (2 * groups.sizes)
        sums = groups.sums(table, 0) * taken[:, None]
        return n * table - groups.repeated(sums, 0)


@dataclass(frozen=True)
class LinearQuery:
    """A query with integer coefficients: a Kronecker product of integer maps.

    Attributes:
        purpose: The purpose of the charge.
        columns: The columns of the charge.
        maps: Maps along the axes of the counts, in order; none for a single count.
        diameter: Largest squared distance between the answers to two rows, divided by
            ``squared_sensitivity``; None if unknown.
        definition: Digest of what the purpose and the columns do not determine about the maps.

    Raises:
        TypeError: If a map has no integer coefficients.
    """

    purpose: Purpose
    columns: tuple[str, ...]
    maps: Sequence[IntegerMap] = ()
    diameter: Fraction | None = None
    definition: str = ""

    def __post_init__(self) -> None:
        """Raise TypeError if the answers of a map would be rounded."""
        if not all(isinstance(getattr(each, "squared_norm", None), int) for each in self.maps):
            raise TypeError("only maps with integer coefficients have exact answers")

    @property
    def squared_sensitivity(self) -> int:
        """Largest change of the answers by one row (L2, squared)."""
        return math.prod(each.squared_norm for each in self.maps)

    @property
    def histograms(self) -> int:
        """Maximum number of cells of a row: one, except for a map over several histograms."""
        found = [each.histograms for each in self.maps if isinstance(each, Identity)]
        return found[0] if len(self.maps) == len(found) == 1 else 1

    @property
    def largest(self) -> int:
        """Bound on the coefficients, and on every step of their application."""
        return math.prod(each.largest for each in self.maps)

    def answers(self, counts: Integers) -> Integers:
        """Return the exact answers, one axis for each map."""
        array: NDArray[Any] = counts
        for each in self.maps:
            others = array.shape[len(each.shape) :]
            block = each.answers(array.reshape(math.prod(each.shape), math.prod(others)))
            array = np.moveaxis(block.reshape(len(block), *others), 0, -1)
        return array
