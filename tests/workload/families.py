"""Small instances of every family of queries, and slow definitions of what they ask."""

import numpy as np

from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, FirstCells, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random
from adaptive_qs.workload.matrices import Custom, CustomAxis

SIZES = (1, 2, 3, 7)
PAIRS = ((1, 1), (1, 4), (3, 1), (2, 5), (4, 3))


def numbers(rows, cells, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, cells))


AXIS = [
    *(family(n) for family in (Marginal, Prefix, Range, Circular) for n in SIZES),
    *(FirstCells(n + more, Circular(n)) for n, more in ((1, 1), (3, 2))),
    CustomAxis(numbers(3, 5)),
    CustomAxis(numbers(9, 4)),
    CustomAxis([[1, -2, 0], [0, 3, 1]]),
    CustomAxis([[2.5]]),
    Random((6,), 0.4, 4, seed=3),
    Random((3,)),
]
JOINT = [
    *(family(*pair) for family in (Affine, AbsDiff) for pair in PAIRS),
    Custom(numbers(4, 6), (2, 3)),
    Custom(np.random.default_rng(1).integers(-3, 4, (11, 8)), (2, 2, 2)),
    Custom(numbers(5, 3), (3, 1)),
    Random((2, 3), 0.3, 4, seed=1),
    Random((2, 1, 3), 0.5, seed=2),
]


def identity_of(queries):
    size = str(queries.shape).replace(" ", "")
    return f"{type(queries).__name__}{size}x{queries.num_queries}"


def definition(queries):
    """The rows of Q from the words of the family, one coefficient at a time."""
    match queries:
        case Marginal(n):
            return [[x == c for x in range(n)] for c in range(n)]
        case Prefix(n):
            return [[x <= c for x in range(n)] for c in range(n)]
        case Range(n):
            return [[a <= x <= b for x in range(n)] for a in range(n) for b in range(a, n)]
        case Circular(n):
            return [
                [(x - start) % n < length for x in range(n)]
                for start in range(n)
                for length in range(1, n + 1)
            ]
        case FirstCells(n, inner):
            return [[*row, *[0] * (n - inner.size)] for row in definition(inner)]
        case Affine(n, m):
            return [[a + b <= c for a in range(n) for b in range(m)] for c in range(n + m - 1)]
        case AbsDiff(n, m):
            return [[abs(a - b) <= c for a in range(n) for b in range(m)] for c in range(max(n, m))]
        case _:
            return queries.coefficients
