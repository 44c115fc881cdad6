"""Move single values of a table so that its marginals come closer to given ones.

A sampled table carries sampling noise in every marginal. Each proposal replaces one value of
one row by a draw from the model's conditional and is kept if it lowers Σ_γ ‖table_γ − mean_γ‖₁.
The proposals keep rows plausible beyond the watched marginals; the rule only ever descends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.progress import StepProgress
from adaptive_qs.synthesis.adjacency import build_adjacency
from adaptive_qs.synthesis.loglinear import LogLinearModel
from adaptive_qs.synthesis.tables import Rows, count_rows


def refine_rows(
    model: LogLinearModel,
    rows: Rows,
    watched: Sequence[Clique],
    means: Sequence[NDArray[np.float32]],
    passes: int,
    rng: np.random.Generator,
    progress: StepProgress | None = None,
) -> float:
    """Descend on the distance between the rows' marginals and the wanted ones, in place.

    Args:
        model: proposes values from its conditionals.
        rows: the table.
        watched: cliques to match.
        means: their wanted marginals for ``len(rows)`` rows.
        passes: each proposes once for every value of the table.
        rng: order and proposals.
        progress: called after each pass.

    Returns:
        The mean over watched cliques of ‖table_γ − mean_γ‖₁ / rows at the end.
    """
    a = build_adjacency(model.domain, watched, copy_per_axis=False)
    excess = np.empty(a.cells, dtype=np.float32)
    for position, clique, mean in zip(a.position, watched, means):
        difference = count_rows(rows, model.domain, clique) - mean
        excess[position : position + mean.size] = difference.ravel()
    for k in range(passes):
        proposals = rows.copy()
        model.sweep(proposals, int(rng.integers(2**63)))
        row_order = rng.permutation(len(rows))
        attribute_order = rng.permutation(rows.shape[1])
        _descend(
            rows, proposals, row_order, attribute_order, excess,
            a.start, a.offset, a.other, a.stride, a.own_stride,
        )  # fmt: skip
        if progress:
            progress(k + 1, passes)
    return float(np.abs(excess).sum(dtype=np.float64)) / len(rows) / max(len(watched), 1)


@njit(cache=True, nogil=True)
def _descend(  # type: ignore[no-untyped-def]
    rows, proposals, row_order, attribute_order, excess, start, offset, other, stride, own_stride
):
    leave = np.empty(start[-1], dtype=np.int64)
    enter = np.empty(start[-1], dtype=np.int64)
    for r in row_order:
        for i in attribute_order:
            old, new = rows[r, i], proposals[r, i]
            if old == new:
                continue
            change = 0.0
            for e in range(start[i], start[i + 1]):
                cell = offset[e]
                for k in range(other.shape[1]):
                    cell += rows[r, other[e, k]] * stride[e, k]
                leave[e] = cell + old * own_stride[e]
                enter[e] = cell + new * own_stride[e]
                x, y = excess[leave[e]], excess[enter[e]]
                change += abs(x - 1.0) - abs(x) + abs(y + 1.0) - abs(y)
            if change < 0.0:
                for e in range(start[i], start[i + 1]):
                    excess[leave[e]] -= 1.0
                    excess[enter[e]] += 1.0
                rows[r, i] = new
