"""Queries without any structure, drawn at random: a public choice of what is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import WorkloadError
from adaptive_qs.workload.matrix_queries import BLOCK, MatrixQueries, check_size, name_of_one

RANDOM_QUERIES_PER_CELL = 3
"""Random queries on N cells where their number is not given: with it the numbers of queries of
He et al., table 4, come out."""


@dataclass(frozen=True)
class Random(MatrixQueries):
    """Queries whose coefficients are 1 with some probability and 0 otherwise.

    He et al., section 8.1. They are drawn from the seed and the shape alone, so every set of
    attributes of one shape is asked the same. This randomness is public: it decides what is
    asked, not what is answered.

    Args:
        shape: sizes of the attributes covered, in order.
        probability: of a one, in (0, 1].
        count: number of queries; None for ``RANDOM_QUERIES_PER_CELL`` times the cells.
        seed: not negative.

    Raises:
        WorkloadError: a parameter out of its range.
        ResourceExceeded: more than ``MAX_COEFFICIENTS`` coefficients.
    """

    shape: tuple[int, ...]
    probability: float = 0.3
    count: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise WorkloadError(f"p is {self.probability!r}: give a number above 0 and at most 1")
        if self.seed < 0:
            raise WorkloadError(f"seed is {self.seed}: give a number that is not negative")
        if self.count is None:
            object.__setattr__(self, "count", RANDOM_QUERIES_PER_CELL * self.size)
        if self.num_queries < 1:
            raise WorkloadError(f"count is {self.count}: give a positive number of queries")
        check_size(self.num_queries, self.size, "ask for fewer with count")

    @property
    def num_queries(self) -> int:
        """The count."""
        return self.count or 0

    @property
    def integral(self) -> bool:
        """Every coefficient is 0 or 1."""
        return True

    @property
    def _largest(self) -> float:
        return 1.0

    @property
    def coefficients(self) -> NDArray[Any]:
        """Zeros and ones, shape (m, N), one byte each; drawn when first needed."""
        return _draw(self.shape, self.probability, self.num_queries, self.seed)

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Such as "random query 7 of seed 0", from 1; on one attribute with its name before."""
        of, seed = name_of_one(names), self.seed
        return (f"{of}random query {row + 1} of seed {seed}" for row in range(self.num_queries))


@lru_cache(maxsize=2)
def _draw(shape: tuple[int, ...], probability: float, count: int, seed: int) -> NDArray[np.uint8]:
    """The matrices in use; drawing one again takes about as long as applying it."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, *shape))))
    cells = math.prod(shape)
    matrix = np.empty((count, cells), np.uint8)
    step = max(1, BLOCK // cells)
    for first in range(0, count, step):
        block = matrix[first : first + step]
        block[...] = generator.random(block.shape) < probability
    matrix.flags.writeable = False
    return matrix
