"""A tree of counts over the cells of a grid: noisy once, then consistent by least squares.

A tree of branching b and height h has levels 1 .. h, level h being b^h cells. A row is in one node
of each level, so the squared sensitivity of all counts together is h, and at zCDP ρ every count has
noise of variance h/(2ρ). With A the matrix of all nodes, least squares estimates a sum p over cells
with variance p (AᵀA)⁻¹ pᵀ · h/(2ρ). The eigenspaces of AᵀA are the functions constant on the blocks
of level j with sum zero on those of level j−1, with eigenvalue (b^(h−j+1) − 1)/(b − 1), and the
constants, with that of j = 1. This gives the variance of every prefix in closed form, by which the
branching is chosen. (Hay, Rastogi, Miklau, Suciu 2010; Qardaji, Yang, Li 2013.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_BRANCHING = 64
MAX_SPREAD = 8
"""Leaves of a tree for each of its cells, at most."""

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tree:
    """The shape of a tree, public.

    Attributes:
        branching: b, children of each node.
        height: h, levels below the root, which is not measured.
    """

    branching: int
    height: int

    @classmethod
    def best(cls, cells: int) -> Tree:
        """The tree over at least so many cells whose prefixes have the least mean variance.

        A level more than the cells need can pay: it measures all of them together.
        """
        shapes = [
            cls(branching, height)
            for branching in range(2, MAX_BRANCHING + 1)
            for height in range(_height(branching, cells), _height(branching, cells) + 2)
            if branching**height <= MAX_SPREAD * cells
        ]
        return min(shapes, key=lambda tree: float(tree.prefix_variances(cells).mean()))

    @property
    def leaves(self) -> int:
        """Cells of the last level."""
        return self.branching**self.height

    def counts(self, leaves: Counts) -> Counts:
        """Counts of all nodes, level by level from the top; missing cells at the end are empty."""
        padded = np.zeros(self.leaves, dtype=np.int64)
        padded[: leaves.size] = leaves
        levels = [
            padded.reshape(self.branching**level, -1).sum(axis=1)
            for level in range(1, self.height + 1)
        ]
        return np.concatenate(levels)

    def consistent(self, noisy: Counts) -> Floats:
        """Least-squares estimates of the leaves from noisy counts of all nodes."""
        b, h = self.branching, self.height
        levels: list[Floats] = []
        start = 0
        for level in range(1, h + 1):
            levels.append(noisy[start : start + b**level].astype(np.float64))
            start += b**level
        for level in range(h - 1, 0, -1):  # from what lies below
            size = b ** (h - level + 1)
            own = (size - size // b) / (size - 1)
            below = levels[level].reshape(-1, b).sum(axis=1)
            levels[level - 1] = own * levels[level - 1] + (1 - own) * below
        for level in range(1, h):  # from what lies above
            children = levels[level].reshape(-1, b)
            gap = levels[level - 1] - children.sum(axis=1)
            levels[level] = (children + gap[:, None] / b).ravel()
        return levels[-1]

    def prefix_variances(self, cells: int) -> Floats:
        """Variance of the estimated sum of the first 1 .. cells leaves, for ρ = 1/2."""
        b, h = self.branching, self.height
        length = np.arange(1, cells + 1, dtype=np.float64)
        before = length**2 / b**h
        total = before * (b - 1) / (b**h - 1)
        for level in range(1, h + 1):
            block = float(b ** (h - level))
            full = np.floor(length / block)
            energy = block * (full + (length / block - full) ** 2)
            total += (energy - before) * (b - 1) / (b ** (h - level + 1) - 1)
            before = energy
        return h * total


def _height(branching: int, cells: int) -> int:
    height = 1
    while branching**height < cells:
        height += 1
    return height
