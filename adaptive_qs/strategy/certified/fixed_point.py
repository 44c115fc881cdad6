"""The iteration behind every certified strategy: one dual vector carries primal and dual.

For y > 0 with Σy = 1 let M = Y^½ G Y^½, s = tr M^½ and V = Y^{-½} M^½ Y^{-½}. Then s² is a lower
bound on min tr(G V⁺), V / max_i V_ii is feasible with objective s·max_i V_ii, and Σ y_i V_ii = s:
at the optimum V_ii = s wherever y_i > 0. The multiplicative update y_i ← y_i (V_ii/s)^p is a fixed
point iteration in log y, which Anderson acceleration speeds up (Walker and Ni 2011, "Anderson
acceleration for fixed-point iterations").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.certified.blocks import Block
from adaptive_qs.strategy.settings import SolverSettings

Array = NDArray[np.float64]
Members = NDArray[np.int64]

EXPONENT = 3.0
"""p: diagonal problems converge at once with 2 and diverge at 4; most have slower modes, for which
3 took the fewest iterations of 1, 2, 3, 4 on range, prefix, affine and random workloads."""

MEMORY = 4
"""Earlier steps that Anderson acceleration combines."""

SLACK = 10.0
"""Most that s may fall below its best, relative to the gap: p = 1 never lowers s, so an iterate
that does is an extrapolation gone too far."""

_SMALLEST = 1e-12
"""Floor of y relative to the uniform vector: changes s by less than its rounding allowance."""

_STEP = 8.0
"""Most that log y may change in one step."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """Best primal and dual values seen, each from its own iterate.

    Attributes:
        y: shape (orbits,): dual weight of each cell of an orbit, for the best primal value.
        objective: s·max V_ii there.
        lower_bound: largest certain s² of all iterates.
        iterations: evaluations made.
    """

    y: Array
    objective: float
    lower_bound: float
    iterations: int


@dataclass
class _Anderson:
    """Extrapolates x ← x + f(x) from the last few pairs (x, f)."""

    points: list[Array] = field(default_factory=list)
    steps: list[Array] = field(default_factory=list)

    def next(self, x: Array, step: Array, weight: Array) -> Array:
        self.points = [*self.points[-MEMORY:], x]
        self.steps = [*self.steps[-MEMORY:], step]
        if len(self.points) == 1:
            return x + step
        dx = np.diff(np.array(self.points), axis=0).T
        df = np.diff(np.array(self.steps), axis=0).T
        mix, *_ = np.linalg.lstsq(weight[:, None] * df, weight * step, rcond=1e-8)
        return x + step - (dx + df) @ mix

    def forget(self) -> None:
        self.points.clear()
        self.steps.clear()


def maximise_dual(
    blocks: Sequence[Block],
    members: Sequence[Members],
    sizes: Array,
    settings: SolverSettings,
    start: Array | None = None,
) -> Outcome:
    """Iterate until objective / lower bound − 1 ≤ settings.gap, or settings.max_iterations.

    Args:
        blocks: of an invariant Gram matrix.
        members: for each block, the orbit of each of its coordinates.
        sizes: cells in each orbit, shape (orbits,).
        settings: gap and iteration limit.
        start: y > 0 up to a scale, shape (orbits,); uniform if None.
    """
    cells = sizes.sum()
    x = np.zeros(sizes.size) if start is None else np.log(np.maximum(start, 1e-300))
    best_y, best, bound = np.exp(x), np.inf, 0.0
    highest, kept = 0.0, (x, x)
    exponent, anderson = EXPONENT, _Anderson()
    iterations = 0
    while iterations < max(settings.max_iterations, 1):
        iterations += 1
        y = _normalise(x, sizes, cells)
        x = np.log(y)
        trace, certain, diagonal = _evaluate(blocks, members, sizes, y)
        ratio = diagonal / trace
        if trace * diagonal.max() < best:
            best, best_y = float(trace * diagonal.max()), y
        bound = max(bound, float(certain) ** 2)
        gap = best / bound - 1
        if gap <= settings.gap:
            break
        if trace < highest * (1 - SLACK * gap):  # overshot: a shorter plain step from the best
            anderson.forget()
            exponent = max(1.0, exponent / 1.5)
            x = kept[0] + _limited(exponent * kept[1])
            continue
        step = np.log(np.maximum(ratio, 1e-9))
        if trace > highest:
            highest, kept = trace, (x, step)
        proposal = anderson.next(x, exponent * step, np.sqrt(sizes * y))
        exponent = min(EXPONENT, exponent * 1.1)
        x = x + _limited(proposal - x)
    return Outcome(best_y, best, bound, iterations)


def _evaluate(
    blocks: Sequence[Block], members: Sequence[Members], sizes: Array, y: Array
) -> tuple[float, float, Array]:
    """s, what s certainly exceeds, and V_ii for a cell of each orbit."""
    trace = certain = 0.0
    diagonal = np.zeros(sizes.size)
    for block, orbits in zip(blocks, members):
        part = block.evaluate(y[orbits])
        trace += part.trace
        certain += part.certain
        diagonal[orbits] += part.diagonal
    rounding = 4 * np.finfo(np.float64).eps * sizes.sum()
    return trace, certain * (1 - rounding), diagonal / sizes


def _normalise(x: Array, sizes: Array, cells: float) -> Array:
    """y = e^x scaled to total 1 over all cells, and not below the floor."""
    y = np.exp(x - x.max())
    y /= sizes @ y
    y = np.maximum(y, _SMALLEST / cells)
    return y / (sizes @ y)


def _limited(step: Array) -> Array:
    return np.clip(np.nan_to_num(step), -_STEP, _STEP)
