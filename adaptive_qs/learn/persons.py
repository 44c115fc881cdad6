"""How many rows of a person count, learnt with noise from how many rows persons have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from adaptive_qs.errors import InputError
from adaptive_qs.learn.ranges import Tree
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, GaussianEvent, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.unit import MOST_LEARNT, OpenUnit

# With K rows of a person the noise is K times that of one row. Dropping the rows above K costs no
# more rows of error than are dropped, Σ max(k_p − K, 0) over persons p of k_p rows, and the noise
# costs K·T, where T is the error (L1, rows) that a marginal has from it for K = 1. The sum of both
# is least where one row more of each person brings back T rows: at the K that about T persons
# exceed (Amin, Kulesza, Muñoz Medina, Vassilvitskii 2019, Bounding user contributions). T follows
# from the budget and the sizes of the columns, which are public; here it is that of one-way
# marginals, each of which gets an equal part of the budget.
#
# How many persons exceed each number of the grid comes from a tree of noisy counts over its cells,
# the largest numbers first, so that these sums are prefixes. A person is in one cell, whatever
# other rows there are, and so in one node of each level: the squared sensitivity is the height, for
# a person added or removed, without any factor for rows. K is the least number of the grid that no
# more persons exceed, after noise, than T, or than noise alone would show.
#
# Proof: docs/proofs.md, section 11.

Counts = NDArray[np.int64]

GRID = (
    *range(1, 9), 10, 12, 15, 20, 25, 30, 40, 50, 60, 80,
    100, 120, 150, 200, 250, 300, 400, 500, 600, 800, MOST_LEARNT,
)  # fmt: skip
"""The numbers that are tried."""
SHARE = Fraction(1, 50)
"""Part of ρ for it."""
MOST_RHO = Fraction(1, 2**7)
"""Most ρ for it: the noise is a few persons then, and wide enough for exact accounting."""
FEWEST_UNITS = 8
"""Units of ρ that are left of it at least for one person, where persons are replaced."""
STANDS_OUT = 2.0
"""Standard deviations of noise below which nobody is taken to be there."""


def counting_cost(budget: Cost) -> Cost:
    """What learning the number of rows costs, of the budget of a run.

    Raises:
        InputError: that is nothing.
    """
    cost = Cost(min(int(budget.rho_units * SHARE), int(MOST_RHO * UNITS_PER_RHO)))
    if cost.rho_units < FEWEST_UNITS:
        raise InputError(
            f"rho {float(budget.rho):.3g} is too little to learn how many rows of a person count: "
            "give more, or say how many"
        )
    return cost


def tolerated(sizes: Sequence[int], rho: float) -> float:
    """How many persons may have more rows than count: T above.

    Args:
        sizes: codes of each column.
        rho: zCDP that measurements may cost for one row.
    """
    noise_std = math.sqrt(len(sizes) / (2 * rho))
    return math.sqrt(2 / math.pi) * noise_std * sum(sizes) / len(sizes)


def learn_rows(
    unit: OpenUnit, rows: Counts, mechanisms: Mechanisms, cost: Cost, few: float, most: int
) -> int:
    """The number of rows of a person that count; the ledger protects persons with it from then on.

    Args:
        unit: whom the run protects.
        rows: shape (persons,), private: how many each has.
        mechanisms: charges ``cost``, then draws.
        cost: :func:`counting_cost`, as it is for one person added or removed.
        few: how many persons may have more; see :func:`tolerated`.
        most: largest number that is taken, public.

    Raises:
        BudgetExceeded: the ledger behind ``mechanisms`` holds less.
    """
    grid = np.array([number for number in GRID if number <= max(most, 1)])
    cells = grid.size + 1
    tree = Tree.best(cells)
    leaves = np.bincount(grid.size - np.searchsorted(grid, rows), minlength=cells)
    variance = Fraction(tree.height * UNITS_PER_RHO, 2 * cost.rho_units)
    event = GaussianEvent(Purpose.PERSONS, (str(unit.person),), tree.height, variance)
    noisy = mechanisms.release_counts(event, tree.counts(leaves))
    exceeding = isotonic_regression(np.cumsum(tree.consistent(noisy)[:cells])).x[-2::-1]
    # Prefix j of the leaves has the persons above grid[-1 - j].
    stds = np.sqrt(tree.prefix_variances(cells) / tree.height * float(variance))[-2::-1]
    enough = np.flatnonzero(exceeding <= np.maximum(few, STANDS_OUT * stds))
    learnt = int(grid[enough[0]] if enough.size else grid[-1])
    mechanisms.ledger.settle(unit.known(learnt))
    return learnt
