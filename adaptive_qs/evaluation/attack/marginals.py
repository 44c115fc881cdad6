"""Attack by marginals: cells that the synthetic rows fill more than the population does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.attack.tables import Stack
from adaptive_qs.progress import StepProgress

MAX_SETS = 500
"""Sets of each size that are looked at; of more, an even sample."""
WAYS = (1, 2, 3)


def marginal_scores(
    stack: Stack, seed: int, workers: int = 1, progress: StepProgress | None = None
) -> NDArray[np.float64]:
    """Mean log-likelihood ratio of each target's cells in the 1-, 2- and 3-way marginals.

    For a cell with s of S synthetic and r of R reference rows it is ln((s/S + a) / (r/R + a)),
    with a = 1 / min(S, R): one row of the smaller table, which keeps empty cells finite. Rows of
    the table push the counts of their own cells up, and so score higher. DOMIAS (van Breugel et
    al. 2023) with the densities that synthesisers of marginals leak, as in MAMA-MIA (Golob et al.
    2024), but without knowing which marginals were measured.

    Returns:
        Shape (targets,).
    """
    chosen = attribute_sets(len(stack.columns), seed)
    floor = 1 / min(stack.rows[:2])

    def ratio(attributes: Sequence[int]) -> NDArray[np.float64]:
        synthetic, reference, targets = stack.part(stack.keys(attributes))
        cells = 1 + max(int(part.max()) for part in (synthetic, reference, targets))
        shares = [
            np.bincount(part, minlength=cells)[targets] / len(part) + floor
            for part in (synthetic, reference)
        ]
        result: NDArray[np.float64] = np.log(shares[0] / shares[1])
        return result

    total = np.zeros(sum(stack.rows[2:]))
    with ThreadPoolExecutor(workers) as pool:
        for done, found in enumerate(pool.map(ratio, chosen), 1):
            total += found
            if progress is not None:
                progress(done, len(chosen))
    return total / len(chosen)


def attribute_sets(attributes: int, seed: int) -> list[tuple[int, ...]]:
    """All sets of one, two and three attributes, or 500 of each size where there are more."""
    rng = np.random.default_rng(seed)
    sets: list[tuple[int, ...]] = []
    for ways in WAYS:
        if math.comb(attributes, ways) <= MAX_SETS:
            sets.extend(combinations(range(attributes), ways))
            continue
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < MAX_SETS:
            some = sorted(rng.integers(attributes, size=ways).tolist())
            if len(set(some)) == ways:
                drawn.add(tuple(some))
        sets.extend(sorted(drawn))
    return sets
