"""Optimal strategies for one subworkload, each with a bound that proves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import (
    is_product,
    known_eigenvalues,
    known_fourier_diagonal,
    svd_bound,
)
from adaptive_qs.strategy.fixed_basis import solve_fourier
from adaptive_qs.strategy.fixed_point import (
    Block,
    Outcome,
    SymmetricBlocks,
    gram_blocks,
    maximise_dual,
    row_blocks,
    symmetric_blocks,
)
from adaptive_qs.strategy.solution import (
    CenteringFactor,
    DenseFactor,
    Factor,
    Solution,
    SolverSettings,
    Status,
    Strategy,
)
from adaptive_qs.workload.axes import Marginal
from adaptive_qs.workload.residuals import CenteredAxis, CenteredQueries, Subworkload, Term

# Optimal strategies, with bounds that prove it, for any Gram matrix that fits in memory.
#
# He et al., equation 4: minimise tr(G V⁺) over V ⪰ 0 with diag V ≤ 1 and range(V) ⊇ range(G).

Array = NDArray[np.float64]


def solve_dense(
    gram: Array, shape: tuple[int, ...], settings: SolverSettings, start: Array | None = None
) -> Solution:
    """Optimal strategy for queries with Gram matrix G.

    Args:
        gram: G = WᵀDW, shape (N, N), symmetric positive semidefinite, of any rank from 1 to N.
        shape: sizes of the axes, N = Πshape; symmetries under their reversal and exchange are
            found and used.
        settings: gap asked for and iteration limit.
        start: dual vector y > 0, shape (N,), up to a scale; uniform by default.

    Returns:
        One dense factor. OPTIMAL within the gap, else STOPPED with the gap reached.

    Raises:
        ValueError: a matrix of another shape, not finite, not symmetric, or zero.
    """
    gram = np.asarray(gram, dtype=np.float64)
    cells = math.prod(shape)
    if gram.shape != (cells, cells):
        raise ValueError(f"a Gram matrix over shape {shape} has shape {gram.shape}")
    scale = float(np.abs(gram).max())
    if not math.isfinite(scale) or scale == 0:
        raise ValueError("the Gram matrix is zero or not finite: no strategy can be fitted to it")
    if not np.allclose(gram, gram.T, rtol=0, atol=1e-10 * scale):
        raise ValueError("the Gram matrix is not symmetric")
    symmetry = symmetric_blocks(lambda x: gram @ x, shape)
    blocks = [_symmetrised(basis.T @ (basis.T @ gram).T) for basis in symmetry.bases]
    return solve_blocks(gram_blocks(blocks), symmetry, shape, settings, start)


def solve_blocks(
    blocks: Sequence[Block | None],
    symmetry: SymmetricBlocks,
    shape: tuple[int, ...],
    settings: SolverSettings,
    start: Array | None,
) -> Solution:
    """Optimal strategy for a Gram matrix given by its blocks, None for a block that is zero."""
    outcome = _optimise(blocks, symmetry, settings, start)
    found, bases = [], []
    for block, orbits, basis in zip(blocks, symmetry.members, symmetry.bases):
        if block is not None:
            found.append(block.strategy(outcome.y[orbits]))
            bases.append(basis)
    matrix = np.concatenate([(q @ part.matrix.T).T for q, part in zip(bases, found)])
    inverse = None
    if 2 * len(matrix) >= matrix.shape[1]:  # a smaller matrix has its inverse on demand
        spread = np.concatenate([q @ part.inverse for q, part in zip(bases, found)], axis=1)
        inverse = spread @ spread.T
    sensitivity = float((matrix * matrix).sum(axis=0).max())
    objective = sensitivity * sum(part.objective for part in found)
    reached = objective <= outcome.lower_bound * (1 + settings.gap)
    return Solution(
        Strategy((DenseFactor(matrix, shape, inverse),)),
        objective,
        outcome.lower_bound,
        Status.OPTIMAL if reached else Status.STOPPED,
        outcome.iterations,
    )


def _optimise(
    blocks: Sequence[Block | None],
    symmetry: SymmetricBlocks,
    settings: SolverSettings,
    start: Array | None,
) -> Outcome:
    """The iteration over the blocks that are not zero, from a start over the cells."""
    pairs = [(block, m) for block, m in zip(blocks, symmetry.members) if block is not None]
    if start is not None:
        start = np.bincount(symmetry.orbit, start) / symmetry.sizes
    return maximise_dual(
        [block for block, _ in pairs], [m for _, m in pairs], symmetry.sizes, settings, start
    )


def _symmetrised(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2


# Optimal strategies for fewer queries than cells: all work is in matrices of their number.


def solve_rows(
    rows: Array, weights: Array, shape: tuple[int, ...], settings: SolverSettings
) -> Solution:
    """Optimal strategy for the queries W with weights D, without forming G = WᵀDW.

    With K = F Y Fᵀ, F independent rows with FᵀF = G, the candidate is V_y = Fᵀ K^{-½} F and the
    strategy K^{-¼} F: time and memory grow with m²N.

    Args:
        rows: W, shape (m, N); may be dependent.
        weights: diagonal of D, shape (m,), positive.
        shape: sizes of the axes, N = Πshape.
        settings: gap asked for and iteration limit.

    Returns:
        One dense factor with as many rows as W has rank.

    Raises:
        ValueError: another shape, weights that are not positive, or rows that are all zero.
    """
    rows = np.asarray(rows, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != math.prod(shape) or weights.shape != rows.shape[:1]:
        raise ValueError(f"{rows.shape} queries with {weights.shape} weights over shape {shape}")
    if not (np.isfinite(rows).all() and (weights > 0).all() and np.isfinite(weights).all()):
        raise ValueError("queries must be finite and their weights positive and finite")
    if not rows.any():
        raise ValueError("the queries are all zero: no strategy can be fitted to them")
    weighted = np.sqrt(weights)[:, None] * rows
    symmetry = symmetric_blocks(lambda x: weighted.T @ (weighted @ x), shape)
    blocks = row_blocks([(basis.T @ weighted.T).T for basis in symmetry.bases])
    return solve_blocks(blocks, symmetry, shape, settings, None)


# Products: the optimum of a Kronecker product is the product of the optima.
#
# Primal and dual both factor: if V_k is feasible for G_k with tr(G_k V_k⁺) = L_k, then ⊗V_k is
# feasible for ⊗G_k with ΠL_k, and lower bounds multiply likewise. A sum of products is a product
# wherever its terms differ along one axis only: A⊗B + A⊗C = A⊗(B + C).

_KEY_DIGITS = 12
"""Digits of relative weights that tell two problems apart."""

_COMPARED_CELLS = 64
"""Queries on larger axes are taken for marginal queries by their family only."""


@dataclass(frozen=True)
class Piece:
    """A Kronecker factor of a subworkload that is no product itself.

    Attributes:
        axes: ascending positions of its axes in the whole.
        subworkload: over those axes, the scales of its terms adding up to 1.
    """

    axes: tuple[int, ...]
    subworkload: Subworkload

    @property
    def key(self) -> frozenset[tuple[tuple[CenteredQueries, ...], float]]:
        """Equal for problems that are equal up to rounding and the order of their terms."""
        return frozenset(
            (t.factors, float(f"{t.scale:.{_KEY_DIGITS}g}")) for t in self.subworkload.terms
        )


def factorise(subworkload: Subworkload) -> tuple[float, tuple[Piece, ...]]:
    """Gram = scale · ⊗ pieces, as many pieces as the terms show.

    Args:
        subworkload: over at least one axis.

    Returns:
        The scale, and pieces ordered by their first axis.
    """
    axes = range(len(subworkload.shape))
    if not all(is_product(term, len(subworkload.shape)) for term in subworkload.terms):
        scale, terms = _normalised(subworkload.terms)
        return scale, (Piece(tuple(axes), Subworkload(subworkload.shape, terms)),)
    products = _merged([_product_of(term) for term in subworkload.terms])
    common = [k for k in axes if all(p.sums[k].key == products[0].sums[k].key for p in products)]
    shape = subworkload.shape
    pieces = [
        Piece((k,), Subworkload((shape[k],), _expanded(1.0, [products[0].sums[k]]))) for k in common
    ]
    scale = sum(p.scale for p in products)
    rest = tuple(k for k in axes if k not in common)
    if rest:
        expanded = [t for p in products for t in _expanded(p.scale, [p.sums[k] for k in rest])]
        scale, terms = _normalised(expanded)
        pieces.append(Piece(rest, Subworkload(tuple(shape[k] for k in rest), terms)))
    return scale, tuple(sorted(pieces, key=lambda piece: piece.axes))


def assemble(factors: Sequence[tuple[tuple[int, ...], Strategy]]) -> Strategy:
    """One strategy from the strategies of pieces, which may be interleaved.

    Args:
        factors: axes and strategy of each piece, ordered by first axis.
    """
    result: list[Factor] = []
    pending: list[tuple[tuple[int, ...], Strategy]] = []
    first = 0
    for axes, strategy in factors:
        pending.append((axes, strategy))
        covered = sorted(axis for some, _ in pending for axis in some)
        if covered == list(range(first, first + len(covered))):
            result += pending[0][1].factors if len(pending) == 1 else [_interleaved(pending)]
            first += len(covered)
            pending = []
    return Strategy(tuple(result))


def interleaved_cells(pieces: Sequence[Piece]) -> int:
    """Cells of the largest dense factor that :func:`assemble` must build; 0 if it builds none."""
    largest, pending, first = 0, list[Piece](), 0
    for piece in pieces:
        pending.append(piece)
        covered = sorted(axis for some in pending for axis in some.axes)
        if covered == list(range(first, first + len(covered))):
            if len(pending) > 1:
                largest = max(largest, math.prod(p.subworkload.cells for p in pending))
            first += len(covered)
            pending = []
    return largest


@dataclass(frozen=True)
class _AxisSum:
    """Σ share · factor.gram() along one axis; the shares add up to 1."""

    parts: tuple[tuple[float, CenteredQueries], ...]

    @cached_property
    def key(self) -> frozenset[tuple[CenteredQueries, float]]:
        return frozenset((q, float(f"{share:.{_KEY_DIGITS}g}")) for share, q in self.parts)


@dataclass(frozen=True)
class _Product:
    """scale · ⊗ sums."""

    scale: float
    sums: tuple[_AxisSum, ...]

    def plus(self, other: _Product) -> _Product | None:
        """The sum where it is a product: where the two differ along one axis at most."""
        differing = [k for k, (a, b) in enumerate(zip(self.sums, other.sums)) if a.key != b.key]
        total = self.scale + other.scale
        if len(differing) > 1:
            return None
        if not differing:
            return _Product(total, self.sums)
        k = differing[0]
        shares: dict[CenteredQueries, float] = {}
        for one in (self, other):
            for share, queries in one.sums[k].parts:
                shares[queries] = shares.get(queries, 0.0) + share * one.scale / total
        joined = _AxisSum(tuple((share, queries) for queries, share in shares.items()))
        return _Product(total, (*self.sums[:k], joined, *self.sums[k + 1 :]))


def _product_of(term: Term) -> _Product:
    scales, sums = [term.scale], []
    for factor in term.factors:
        scale, queries = _canonical(factor)
        scales.append(scale)
        sums.append(_AxisSum(((1.0, queries),)))
    return _Product(math.prod(scales), tuple(sums))


def _merged(products: list[_Product]) -> list[_Product]:
    """Add up what can be added until nothing can."""
    k = 0
    while k < len(products):
        for j in range(k):
            together = products[j].plus(products[k])
            if together is not None:
                products = [*products[:j], together, *products[j + 1 : k], *products[k + 1 :]]
                k = 0
                break
        else:
            k += 1
    return products


def _expanded(scale: float, sums: Sequence[_AxisSum]) -> tuple[Term, ...]:
    return tuple(
        Term(scale * math.prod(share for share, _ in choice), tuple(q for _, q in choice))
        for choice in product(*(one.parts for one in sums))
    )


def _normalised(terms: Sequence[Term]) -> tuple[float, tuple[Term, ...]]:
    """Equal terms added up; the total scale and the terms divided by it."""
    scales: dict[tuple[CenteredQueries, ...], float] = {}
    for term in terms:
        scales[term.factors] = scales.get(term.factors, 0.0) + term.scale
    total = sum(scales.values())
    return total, tuple(Term(scale / total, factors) for factors, scale in scales.items())


@lru_cache(maxsize=4_096)
def _canonical(queries: CenteredQueries) -> tuple[float, CenteredQueries]:
    """Queries as a scale times marginal queries where their Gram is a multiple of Π."""
    (size,) = queries.shape
    marginal = CenteredAxis(Marginal(size))
    if queries == marginal or size < 2 or size > _COMPARED_CELLS:
        return 1.0, queries
    gram = queries.gram()
    scale = float(np.trace(gram)) / (size - 1)
    if scale > 0 and np.allclose(gram, scale * marginal.gram(), rtol=0, atol=1e-13 * scale):
        return scale, marginal
    return 1.0, queries


def _interleaved(pieces: Sequence[tuple[tuple[int, ...], Strategy]]) -> DenseFactor:
    """⊗ pieces as one matrix, its columns in the order of the axes."""
    axes = [axis for some, _ in pieces for axis in some]
    sizes = [n for _, strategy in pieces for n in strategy.shape]
    order = np.argsort(axes)
    shape = tuple(sizes[k] for k in order)
    columns = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel()
    matrix: Array = np.ones((1, 1))
    covariance: Array = np.ones((1, 1))
    for factor in (factor for _, strategy in pieces for factor in strategy.factors):
        matrix = np.kron(matrix, factor.matrix).astype(np.float64, copy=False)
        covariance = np.kron(covariance, factor.covariance).astype(np.float64, copy=False)
    return DenseFactor(matrix[:, columns], shape, covariance[np.ix_(columns, columns)])


# Solutions by problem, shared by the threads and subworkloads of one plan.


class SolveCache:
    """Every problem is solved once, also when several threads ask for it at the same time."""

    def __init__(self) -> None:
        self._solutions: dict[Hashable, Solution] = {}
        self._locks: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """Problems solved so far."""
        return len(self._solutions)

    def get(self, key: Hashable, solve: Callable[[], Solution]) -> Solution:
        """The solution of a problem, solved now if it is new.

        Args:
            key: everything that the solution depends on.
            solve: called at most once for each key, unless it raises.
        """
        with self._lock:
            own = self._locks.setdefault(key, Lock())
        with own:
            if key not in self._solutions:
                self._solutions[key] = solve()
            return self._solutions[key]


# What the optimal solvers take on, in memory and in time, and how they refuse the rest.

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


# The automatic choice of a solver for one subworkload.

_AXIS_SHARE = 8
"""One-dimensional solves are cheap and shared: each may use up this fraction of the gap."""


def solve(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    cache: SolveCache | None = None,
) -> Solution:
    """Optimal strategy for the queries in one residual space, by the cheapest exact way.

    The total has nothing to choose; a product is solved factor by factor, each in closed form
    (marginal queries, circular queries) or by a one-dimensional solve that is done once; what is
    no product is solved from its queries where they are few, else from its Gram matrix.

    Args:
        subworkload: what to answer.
        settings: gap, iteration limit and memory ceiling.
        cache: of solutions, shared by the subworkloads of a plan.

    Returns:
        OPTIMAL within the gap asked for; STOPPED with a larger gap at the iteration limit.

    Raises:
        ResourceExceeded: too large for memory or time; nothing has been computed.
    """
    settings = settings or SolverSettings()
    cache = SolveCache() if cache is None else cache
    if not subworkload.shape:
        total = sum(term.scale for term in subworkload.terms)
        return Solution(Strategy(()), total, total, Status.OPTIMAL)
    scale, pieces = factorise(subworkload)
    check_interleaved(interleaved_cells(pieces), subworkload, settings)
    found = [_solve_piece(piece, goal, cache) for piece, goal in _with_gaps(pieces, settings)]
    objective = scale * math.prod(solution.objective for solution in found)
    bound = scale * math.prod(solution.lower_bound for solution in found)
    reached = objective <= bound * (1 + settings.gap)
    return Solution(
        assemble([(p.axes, solution.strategy) for p, solution in zip(pieces, found)]),
        objective,
        bound,
        Status.OPTIMAL if reached else Status.STOPPED,
        sum(solution.iterations for solution in found),
    )


def _with_gaps(
    pieces: Sequence[Piece], settings: SolverSettings
) -> list[tuple[Piece, SolverSettings]]:
    """Gaps whose product stays within the one asked for: Π(1 + g_k) ≤ exp(Σ g_k) = 1 + gap."""
    whole = math.log1p(settings.gap)
    single = whole / max(_AXIS_SHARE, 2 * len(pieces))
    rest = whole - single * sum(len(piece.axes) == 1 for piece in pieces)
    return [(p, replace(settings, gap=single if len(p.axes) == 1 else rest)) for p in pieces]


def _solve_piece(piece: Piece, settings: SolverSettings, cache: SolveCache) -> Solution:
    key = (piece.subworkload.shape, piece.key, settings)
    return cache.get(key, lambda: _solve_whole(piece.subworkload, settings))


def _solve_whole(subworkload: Subworkload, settings: SolverSettings) -> Solution:
    """A subworkload that is no product of others."""
    if all(_is_marginal(term) for term in subworkload.terms):
        return _solve_marginal(subworkload)
    if all(_is_circulant(term) for term in subworkload.terms):
        return solve_fourier(subworkload)
    waves = _solve_waves(subworkload, settings)
    if waves is not None:
        return waves
    cells = subworkload.cells
    rows = _few_rows(subworkload, settings)
    if rows is not None and (2 * len(rows) <= cells or cells > DENSE_CELLS):
        return solve_rows(rows, np.ones(len(rows)), subworkload.shape, settings)
    check_dense(subworkload.shape, settings, is_joint(subworkload))
    gram = subworkload.gram()
    if cells > DENSE_CELLS:
        blocks = symmetric_blocks(lambda x: gram @ x, subworkload.shape)
        check_blocks(blocks, subworkload, settings)
    return solve_dense(gram, subworkload.shape, settings)


def _is_marginal(term: Term) -> bool:
    return len(term.factors) == 1 and (
        isinstance(term.factors[0], CenteredAxis)
        and isinstance(term.factors[0].queries, Marginal)
        and term.factors[0].shape[0] > 1
    )


def _is_circulant(term: Term) -> bool:
    circulant = getattr(term.factors[0], "circulant", None)
    return len(term.factors) == 1 and circulant is not None and circulant() is not None


def _solve_marginal(subworkload: Subworkload) -> Solution:
    """tr(Π V⁺) = (n−1)²/n with B = √(n/(n−1)) Π: ResidualPlanner, which is optimal here."""
    (size,) = subworkload.shape
    objective = sum(term.scale for term in subworkload.terms) * (size - 1) ** 2 / size
    return Solution(Strategy((CenteringFactor(size),)), objective, objective, Status.OPTIMAL)


def _solve_waves(subworkload: Subworkload, settings: SolverSettings) -> Solution | None:
    """The Fourier strategy of one family with closed forms, where it is within the gap.

    It is so for ranges over thousands of values: a range far from both ends is an arc of a circle.
    """
    (term, *others) = subworkload.terms
    if others or len(term.factors) != 1 or known_fourier_diagonal(term.factors[0]) is None:
        return None
    found = solve_fourier(subworkload)
    reached = found.objective <= found.lower_bound * (1 + settings.gap)
    if not (reached and factor_fits(subworkload.cells, settings)):
        return None
    return replace(found, status=Status.OPTIMAL)


def _few_rows(subworkload: Subworkload, settings: SolverSettings) -> Array | None:
    """All queries, scaled, where they are fewer than the cells and not too many to work with."""
    cells = subworkload.cells
    blocks, count = [], 0
    # Terms of one axis each are small: look at them before a joint term makes its queries.
    for term in sorted(subworkload.terms, key=lambda term: -len(term.factors)):
        known = [_num_queries(factor) for factor in term.factors]
        if not few_rows(count + math.prod(known), cells, settings):
            return None
        factors = [factor.rows() for factor in term.factors]
        present = [rows for rows in factors if rows is not None]
        count += math.prod(map(len, present))
        if len(present) < len(factors) or not few_rows(count, cells, settings):
            return None
        blocks.append((math.sqrt(term.scale), present))
    rows = []
    for scale, present in blocks:
        product: Array = np.full((1, 1), scale)
        for factor in present:
            product = np.kron(product, factor).astype(np.float64, copy=False)
        rows.append(product)
    return np.concatenate(rows)


def _num_queries(part: CenteredQueries) -> int:
    """Rows that a part would make, as far as it says so beforehand; 1 otherwise."""
    return int(getattr(getattr(part, "queries", None), "num_queries", 1))


# A lower bound for a sum of queries from the optima of its terms.


def superadditive_bound(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    cache: SolveCache | None = None,
) -> float:
    """No strategy at privacy cost 1 has a smaller tr(G V⁺) (rows²).

    The optimum is superadditive: a V feasible for G₁ + G₂ is feasible for either, since its range
    holds theirs, so the least sum is at least the sum of the least. This bounds what is too large
    to solve as a whole, such as the sum of a product and of few joint queries.

    Args:
        subworkload: G.
        settings: of the solves of single terms; a term that is refused has its singular value
            bound instead.
        cache: of solutions.
    """
    cache = SolveCache() if cache is None else cache
    total = 0.0
    for term in subworkload.terms:
        alone = Subworkload(subworkload.shape, (term,))
        try:
            total += solve(alone, settings, cache).lower_bound
        except ResourceExceeded:
            total += svd_bound(alone)
    return total
