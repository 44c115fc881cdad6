"""What the certified solvers take on, in memory and in time, and how they refuse the rest."""

from __future__ import annotations

import math

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.certified.symmetry import SymmetricBlocks
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.subworkload import Subworkload

DENSE_CELLS = 4_096
"""Largest eigenproblem taken on. One of this size takes about ten seconds on one core and a
solution about ten of them; time grows with the cube, so twice as many cells would take a quarter
of an hour. Symmetry can cut a larger Gram matrix into blocks within this size."""

_DENSE_COPIES = 9
"""Matrices over all cells that the dense solver holds at once, G, B and V⁺ included."""

_ROW_COPIES = 6
"""Matrices of all queries over all cells that the solver for few rows holds at once."""

_INTERLEAVED_COPIES = 3
"""Matrices over all cells of an interleaved factor: B, V⁺ and one in another order."""

_ADVICE = "use --mechanism residualplanner+ or fewer values"


def few_rows(count: int, cells: int, settings: SolverSettings) -> bool:
    """Fewer queries than cells, within memory, and no more work than the largest eigenproblem."""
    fits = _ROW_COPIES * 8 * count * cells <= settings.max_bytes
    return count < cells and fits and count**2 * cells <= DENSE_CELLS**3


def check_dense(shape: tuple[int, ...], settings: SolverSettings) -> None:
    """Before a Gram matrix is made.

    Raises:
        ResourceExceeded: it does not fit, or no symmetry could make it small enough.
    """
    cells = math.prod(shape)
    _check_bytes(_DENSE_COPIES * 8 * cells**2, shape, settings)
    if cells > DENSE_CELLS * 2 ** len(shape):
        raise _too_slow(shape, cells)


def check_blocks(blocks: SymmetricBlocks, subworkload: Subworkload) -> None:
    """Once the symmetries of a Gram matrix are known.

    Raises:
        ResourceExceeded: its largest block is too large.
    """
    if blocks.largest > DENSE_CELLS:
        raise _too_slow(subworkload.shape, blocks.largest)


def check_interleaved(cells: int, subworkload: Subworkload, settings: SolverSettings) -> None:
    """Before a dense factor over several pieces is made.

    Args:
        cells: of that factor; 0 for none.
        subworkload: what it is for.
        settings: memory ceiling.

    Raises:
        ResourceExceeded: it does not fit.
    """
    _check_bytes(_INTERLEAVED_COPIES * 8 * cells**2, subworkload.shape, settings)


def _check_bytes(needed: int, shape: tuple[int, ...], settings: SolverSettings) -> None:
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"queries over attributes of {_sizes(shape)} values ({math.prod(shape):,} cells) need "
            f"{_gib(needed)}, above the ceiling of {_gib(settings.max_bytes)}: {_ADVICE}"
        )


def _too_slow(shape: tuple[int, ...], largest: int) -> ResourceExceeded:
    return ResourceExceeded(
        f"queries over attributes of {_sizes(shape)} values ({math.prod(shape):,} cells) need "
        f"eigenvectors of {largest:,} cells, above the limit of {DENSE_CELLS:,}: {_ADVICE}"
    )


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape)


def _gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
