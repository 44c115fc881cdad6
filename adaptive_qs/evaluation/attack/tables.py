"""Codes of several tables side by side, as whole numbers that mean the same in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.table import CodedTable
from adaptive_qs.evaluation.contingency import ranked, row_numbers

MAX_KEYS = 2**22
"""More cells are numbered by those that are occupied."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows of what the attacker sees and of what is attacked.

    Attributes:
        columns: one array for each attribute, over all rows: the synthetic ones, the reference
            rows, the members, the non-members. Codes in use are numbered 0, 1, ...
        sizes: codes in use, by attribute.
        rows: numbers of synthetic, reference, member and non-member rows.
    """

    columns: tuple[Codes, ...]
    sizes: tuple[int, ...]
    rows: tuple[int, int, int, int]

    @classmethod
    def of(cls, parts: Sequence[tuple[CodedTable, Codes]]) -> Stack:
        """The chosen rows of four tables."""
        columns = []
        for i in range(len(parts[0][0].domain)):
            codes = np.concatenate([table.columns[i][rows] for table, rows in parts])
            columns.append(np.unique(codes, return_inverse=True)[1])
        synthetic, reference, members, non_members = (len(rows) for _, rows in parts)
        sizes = tuple(int(column.max()) + 1 for column in columns)
        return cls(tuple(columns), sizes, (synthetic, reference, members, non_members))

    def part(self, values: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Values of all rows as those of the synthetic rows, the reference and the targets."""
        first, second, third = np.split(values, np.cumsum(self.rows[:2]))
        return first, second, third

    def split_targets(self, scores: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Scores of the targets as those of members and of non-members."""
        return scores[: self.rows[2]], scores[self.rows[2] :]

    def keys(self, clique: Sequence[int]) -> Codes:
        """A number for each row, equal where rows agree on these attributes; below 2^22 + rows."""
        keys, bound = row_numbers(
            [self.columns[i] for i in clique], [self.sizes[i] for i in clique]
        )
        return ranked(keys)[0] if bound > MAX_KEYS else keys
