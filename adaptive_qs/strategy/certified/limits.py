"""What the certified solvers take on, in memory and in time, and how they refuse the rest."""

from __future__ import annotations

import math

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.certified.symmetry import SymmetricBlocks
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.spectra import known_eigenvalues
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload

DENSE_CELLS = 4_096
"""Largest eigenproblem taken on. One of this size takes about ten seconds on one core and a
solution about ten of them; time grows with the cube, so twice as many cells would take a quarter
of an hour. Symmetry can cut a larger Gram matrix into blocks within this size."""

TRIED_WORK = 1_536**3
"""Most work, in cubes of eigenproblems, for a problem that is solved only to see whether it has a
better optimum than the strategy in hand. An iteration at this size takes about a second on one
core, and five to fifteen are needed. Symmetry and few queries make larger tables this cheap."""

GATHERED_COST = 10
"""Multiply-adds that cost as much as gathering one entry of a Gram matrix from an attribute set."""

_DENSE_COPIES = 9
"""Matrices over all cells that the dense solver holds at once, G, B and V⁺ included."""

_ROW_COPIES = 6
"""Matrices of all queries over all cells that the solver for few rows holds at once."""

_INTERLEAVED_COPIES = 3
"""Matrices over all cells of an interleaved factor: B, V⁺ and one in another order."""

_MEASURED_COPIES = 6
"""Matrices over all its cells that a dense factor needs when it is rounded and measured."""

_QUERY_COPIES = 2
"""Matrices of all queries over all cells that are held at once to find a strategy's error."""


def few_rows(count: int, cells: int, settings: SolverSettings) -> bool:
    """Fewer queries than cells, within memory, and no more work than the largest eigenproblem."""
    fits = _ROW_COPIES * 8 * count * cells <= settings.max_bytes
    return count < cells and fits and count**2 * cells <= DENSE_CELLS**3


def factor_fits(cells: int, settings: SolverSettings) -> bool:
    """Whether a dense factor over so many cells can be measured within memory."""
    return _MEASURED_COPIES * 8 * cells**2 <= settings.max_bytes


def dense_fits(cells: int, settings: SolverSettings) -> bool:
    """Whether the dense solver has room for so many cells."""
    return _DENSE_COPIES * 8 * cells**2 <= settings.max_bytes


def eigen_work(blocks: SymmetricBlocks) -> int:
    """Summed cubes of the sizes of the blocks."""
    return sum(len(members) ** 3 for members in blocks.members)


def is_joint(subworkload: Subworkload) -> bool:
    """Whether some queries ask about several attributes at once."""
    return any(len(term.factors) < len(subworkload.shape) for term in subworkload.terms)


def check_queries(subworkload: Subworkload, settings: SolverSettings) -> None:
    """Before the error of any strategy is computed from the queries themselves.

    Raises:
        ResourceExceeded: even that does not fit; no solver is cheaper.
    """
    needed = max(
        (_query_bytes(part) for term in subworkload.terms for part in term.factors), default=0
    )
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"queries over attributes of {_sizes(subworkload.shape)} values "
            f"({subworkload.cells:,} cells) need {_bytes(needed)} to be looked at, above the "
            f"ceiling of {_bytes(settings.max_bytes)}: raise --max-memory, use fewer values, or "
            "--mechanism gaussian"
        )


def check_dense(shape: tuple[int, ...], settings: SolverSettings, joint: bool = False) -> None:
    """Before a Gram matrix is made.

    Args:
        shape: of its cells.
        settings: memory ceiling.
        joint: whether its queries are no products; it decides what is advised instead.

    Raises:
        ResourceExceeded: it does not fit, or no symmetry could make it small enough.
    """
    cells = math.prod(shape)
    advice = _advice(shape, joint, settings)
    _check_bytes(_DENSE_COPIES * 8 * cells**2, shape, settings, advice)
    if cells > DENSE_CELLS * 2 ** len(shape):
        raise _too_slow(shape, cells, advice)


def check_blocks(
    blocks: SymmetricBlocks, subworkload: Subworkload, settings: SolverSettings
) -> None:
    """Once the symmetries of a Gram matrix are known.

    Raises:
        ResourceExceeded: its largest block is too large.
    """
    if blocks.largest > DENSE_CELLS:
        advice = _advice(subworkload.shape, is_joint(subworkload), settings)
        raise _too_slow(subworkload.shape, blocks.largest, advice)


def check_interleaved(cells: int, subworkload: Subworkload, settings: SolverSettings) -> None:
    """Before a dense factor over several pieces is made.

    Args:
        cells: of that factor; 0 for none.
        subworkload: what it is for.
        settings: memory ceiling.

    Raises:
        ResourceExceeded: it does not fit.
    """
    advice = _advice(subworkload.shape, is_joint(subworkload), settings)
    _check_bytes(_INTERLEAVED_COPIES * 8 * cells**2, subworkload.shape, settings, advice)


def _advice(shape: tuple[int, ...], joint: bool, settings: SolverSettings) -> str:
    """A cheaper mechanism: its basis fits attributes that are small, Fourier queries the others."""
    if not joint and max(shape) <= DENSE_CELLS:
        mechanism = "residualplanner+"
    elif factor_fits(math.prod(shape) if joint else max(shape), settings):
        mechanism = "wff"
    else:
        mechanism = "auto"
    return f"use --mechanism {mechanism} or fewer values"


def _query_bytes(part: CenteredQueries) -> int:
    cells = math.prod(part.shape)
    if known_eigenvalues(part) is not None:
        return 0
    queries = getattr(getattr(part, "queries", None), "num_queries", cells)
    return _QUERY_COPIES * 8 * min(int(queries), cells) * cells


def _check_bytes(
    needed: int, shape: tuple[int, ...], settings: SolverSettings, advice: str
) -> None:
    if needed > settings.max_bytes:
        raise ResourceExceeded(
            f"queries over attributes of {_sizes(shape)} values ({math.prod(shape):,} cells) need "
            f"{_bytes(needed)}, above the ceiling of {_bytes(settings.max_bytes)}: {advice}"
        )


def _too_slow(shape: tuple[int, ...], largest: int, advice: str) -> ResourceExceeded:
    return ResourceExceeded(
        f"queries over attributes of {_sizes(shape)} values ({math.prod(shape):,} cells) need "
        f"eigenvectors of {largest:,} cells, above the limit of {DENSE_CELLS:,}: {advice}"
    )


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape)


def _bytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{math.ceil(count / 2**20):,} MB"
