"""The best weights for a given set of design queries: Li and Miklau, Program 1.

A strategy weights fixed orthogonal directions, V = Σ_i u_i D_i with D_i ⪰ 0. Its error is
Σ σ_i/u_i and its privacy cost the largest entry of Aᵀu, row i of A being the diagonal of D_i. For
y ≥ 0 with Σy = 1 and a = Ay, every feasible u obeys

    (Σ √(σ_i a_i))² ≤ (Σ σ_i/u_i)(Σ u_i a_i) ≤ Σ σ_i/u_i,

so s² with s = Σ√(σ_i a_i) is a lower bound on the family. With u_i = √(σ_i/a_i) and g = Aᵀu,
u/max g is feasible with objective s·max g, and y·g = s: the relative gap is max g / s − 1. The
iteration y ← y (g/s)^p, renormalised, is that of the certified optimum with vectors in place of
matrices: O(designs × cells) a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.settings import SolverSettings

Array = NDArray[np.float64]

POWERS = (1.0, 16.0)
"""Least and most power p of a step."""


@dataclass(frozen=True, eq=False)
class DesignWeights:
    """Weights of design queries at privacy cost 1, with what bounds them.

    Attributes:
        weights: u, shape (designs,); the largest entry of Aᵀu is 1.
        objective: Σ σ_i/u_i.
        lower_bound: no weights of the same designs have a smaller objective.
        iterations: steps taken.
    """

    weights: Array
    objective: float
    lower_bound: float
    iterations: int


def best_weights(costs: Array, importance: Array, settings: SolverSettings) -> DesignWeights:
    """Minimise Σ importance/u subject to costsᵀu ≤ 1.

    Args:
        costs: A, shape (designs, cells), non-negative: what a unit of weight adds to the privacy
            cost at each cell.
        importance: σ, shape (designs,), positive.
        settings: the gap to reach and the most steps to take.
    """
    y = np.full(costs.shape[1], 1 / costs.shape[1])
    best_bound, best = 0.0, (np.inf, np.empty(0))
    power, previous = 2.0, 0.0
    iteration = 0
    for iteration in range(settings.max_iterations + 1):  # noqa: B007
        a = costs @ y
        u = np.sqrt(importance / a)
        s = float(np.sqrt(importance * a).sum())
        g = u @ costs
        objective = s * float(g.max())
        best_bound = max(best_bound, s * s)
        if objective < best[0]:
            best = (objective, u / g.max())
        if best[0] <= best_bound * (1 + settings.gap):
            break
        # A longer step while the bound rises, a shorter one once it falls.
        power = min(power * 1.1, POWERS[1]) if s >= previous else max(power / 2, POWERS[0])
        previous = s
        y = y * (g / s) ** power
        y /= y.sum()
    return DesignWeights(best[1], best[0], min(best_bound, best[0]), iteration)
