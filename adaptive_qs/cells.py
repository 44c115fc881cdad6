"""The cells of the estimates of many cliques at a time.

Up to three attributes they are formed cell by cell from what was measured, by the sums of
:meth:`~adaptive_qs.residual.ReferenceModel.marginal`; shorter cliques are taken for triples that
begin with attributes of one code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, subsets
from adaptive_qs.machine import njit
from adaptive_qs.residual import ReferenceModel

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_FORMED = 2**16
"""Most cells of a marginal that is formed only to be compared, where there are very many."""
BATCH_CELLS, BATCH_CLIQUES = 2**16, 512
"""Most cells, but for one clique, and most cliques that are handled by one call of a kernel."""
AXES = 3
"""Attributes of the cliques that kernels form."""


class Parts(NamedTuple):
    """What the estimates of some cliques are formed from, in flat arrays.

    Attributes:
        axes: (cliques, AXES) attributes, filled up in front with one of a single code.
        sizes: of every attribute.
        begin: where the reference distribution of each begins.
        starts: (cliques, 2**AXES) where the component of each subset begins.
        steps: (cliques, 2**AXES) 1, or 0 where it was not measured: the same zeros stand for all
            of it.
        values: the reference distributions one after the other, zeros, then c_τ of the measured
            residuals.
    """

    axes: Integers
    sizes: Integers
    begin: Integers
    starts: Integers
    steps: Integers
    values: Array

    @classmethod
    def of(cls, model: ReferenceModel, cliques: Sequence[Clique]) -> Parts:
        """The parts of cliques of one to three attributes."""
        positions = model.domain.positions
        sizes, reference, begin = model.flat_shares
        axes = np.full((len(cliques), AXES), positions)
        starts = np.full((len(cliques), 2**AXES), reference.size)
        values: list[Array] = [reference, np.zeros(sizes.max())]
        place: dict[Clique, int] = {}
        end = reference.size + values[1].size
        for row, clique in enumerate(cliques):
            axes[row, AXES - len(clique) :] = clique
            for slot, residual in zip(_SLOTS[len(clique)], subsets(clique)):
                start = place.get(residual)
                if start is None:
                    found = model.component(residual)
                    start = place[residual] = reference.size if found is None else end
                    if found is not None:
                        values.append(found.reshape(-1))
                        end += found.size
                starts[row, slot] = start
        steps = (starts > reference.size).astype(np.int64)
        return cls(axes, sizes, begin, starts, steps, np.concatenate(values))


_SLOTS = {
    degree: [sum(1 << (AXES - degree + i) for i in axes) for axes in subsets(tuple(range(degree)))]
    for degree in range(1, AXES + 1)
}
"""By number of attributes: the place of each subset among those of three, by which ones it has."""


@njit(cache=True, nogil=True)
def form_estimates(parts, cells):  # type: ignore[no-untyped-def]
    """Write the cells of all cliques, one clique after the other."""
    axes, sizes, begin, starts, steps, values = parts
    place = np.uint64(0)
    for row in range(axes.shape[0]):
        at, step = starts[row], steps[row]
        i, j, k = axes[row]
        n_j, n_k = sizes[j], sizes[k]
        third, single = np.uint64(begin[k]), np.uint64(at[4])
        for x in range(sizes[i]):
            q_x = values[begin[i] + x]
            alone = values[at[0]] * q_x + values[at[1] + step[1] * x]
            over_ik = np.uint64(at[5] + step[5] * x * n_k)
            for y in range(n_j):
                q_y, both = values[begin[j] + y], x * n_j + y
                within = values[at[2] + step[2] * y] * q_x + values[at[3] + step[3] * both]
                a, b = alone * q_y + within, q_x * q_y
                over_jk = np.uint64(at[6] + step[6] * y * n_k)
                over_all = np.uint64(at[7] + step[7] * both * n_k)
                for z in range(np.uint64(n_k)):
                    rest = q_x * values[over_jk + z] + values[over_all + z]
                    rest = q_y * values[over_ik + z] + rest
                    cells[place + z] = a * values[third + z] + b * values[single + z] + rest
                place += np.uint64(n_k)


def form_cells(model: ReferenceModel, cliques: Sequence[Clique]) -> tuple[Array, Integers]:
    """Return the cells of the estimates of cliques one after the other, and where each ends."""
    ends = np.cumsum([model.domain.size(clique) for clique in cliques])
    cells = np.empty(ends[-1])
    short = [row for row, clique in enumerate(cliques) if len(clique) <= AXES]
    if len(short) == len(cliques):
        form_estimates(Parts.of(model, cliques), cells)
        return cells, ends
    for row, clique in enumerate(cliques):
        begin = ends[row] - model.domain.size(clique)
        own = cells[begin : ends[row]]
        if len(clique) <= AXES:
            form_estimates(Parts.of(model, [clique]), own)
        else:
            own[:] = model.marginal(clique).reshape(-1)
    return cells, ends
