"""Optimal strategies for one subworkload: products, the choice of a solver, and its limits."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from threading import Lock
from typing import Any

import numpy as np

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy import bounds
from adaptive_qs.strategy.fixed_point import solve_dense, solve_rows, symmetric_blocks
from adaptive_qs.strategy.solution import Array, Solution, SolverSettings, Status, Strategy, kron
from adaptive_qs.workload.axes import Marginal
from adaptive_qs.workload.residuals import CenteredAxis, CenteredQueries, Subworkload, Term

# Products: the optimum of a Kronecker product is the product of the optima.
# Primal and dual both factor: if V_k is feasible for G_k with tr(G_k V_k⁺) = L_k, then ⊗V_k is
# feasible for ⊗G_k with ΠL_k, and lower bounds multiply likewise. A sum of products is a product
# wherever its terms differ along one axis only: A⊗B + A⊗C = A⊗(B + C).


@dataclass(frozen=True)
class Piece:
    """A Kronecker factor of a subworkload that is no product itself."""

    axes: tuple[int, ...]  # positions of its axes in the whole, consecutive
    subworkload: Subworkload  # over those axes, the scales of its terms adding up to 1

    @property
    def key(self) -> "frozenset[tuple[Factors, float]]":
        """Key of the problem up to rounding and the order of its terms."""
        return _key({t.factors: t.scale for t in self.subworkload.terms})


def factorise(subworkload: Subworkload) -> tuple[float, tuple[Piece, ...]]:
    """Return a scale and pieces whose Kronecker product is the Gram matrix, by first axis."""
    shape, terms = subworkload.shape, subworkload.terms
    axes = tuple(range(len(shape)))
    if not all(bounds.is_product(term, len(shape)) for term in terms):
        scale, piece = _piece(axes, shape, [(t.scale, t.factors) for t in terms])
        return scale, (piece,)
    products: list[_Product] = []
    for term in terms:
        scales, queries = zip(*map(_canonical, term.factors))
        products.append((math.prod([term.scale, *scales]), tuple({each: 1.0} for each in queries)))
    products = _merged(products)
    _, first = products[0]
    differing = [k for k in axes if any(_key(sums[k]) != _key(first[k]) for _, sums in products)]
    joint = tuple(range(differing[0], differing[-1] + 1)) if differing else ()
    scale = sum(scale for scale, _ in products)
    pieces = [_piece((k,), shape, _expanded(1.0, (first[k],)))[1] for k in axes if k not in joint]
    if joint:
        spread = [
            term for scale, sums in products for term in _expanded(scale, [sums[k] for k in joint])
        ]
        scale, piece = _piece(joint, shape, spread)
        pieces.append(piece)
    return scale, tuple(sorted(pieces, key=lambda piece: piece.axes))


Factors = tuple[CenteredQueries, ...]
_AxisSum = dict[CenteredQueries, float]
"""Σ share · queries.gram() along one axis; the shares add up to 1."""
_Product = tuple[float, tuple[_AxisSum, ...]]
"""scale · ⊗ sums."""


def _key(shares: Mapping[Any, float]) -> frozenset[tuple[Any, float]]:
    digits = 12  # digits of relative weights by which two problems differ
    return frozenset((of, float(f"{share:.{digits}g}")) for of, share in shares.items())


def _piece(
    axes: tuple[int, ...], shape: tuple[int, ...], terms: Iterable[tuple[float, Factors]]
) -> tuple[float, Piece]:
    """Add up equal terms; return the total scale, and the piece with its terms divided by it."""
    scales: dict[Factors, float] = {}
    for scale, factors in terms:
        scales[factors] = scales.get(factors, 0.0) + scale
    total = sum(scales.values())
    kept = tuple(Term(scale / total, factors) for factors, scale in scales.items())
    return total, Piece(axes, Subworkload(tuple(shape[k] for k in axes), kept))


def _merged(products: list[_Product]) -> list[_Product]:
    k = 0
    while k < len(products):
        for j in range(k):
            together = _plus(products[j], products[k])
            if together is not None:
                products = [*products[:j], together, *products[j + 1 : k], *products[k + 1 :]]
                k = 0
                break
        else:
            k += 1
    return products


def _plus(one: _Product, other: _Product) -> _Product | None:
    """Return the sum if it is a product: if the two differ along one axis at most."""
    (first, sums), (second, others) = one, other
    differing = [k for k, (a, b) in enumerate(zip(sums, others)) if _key(a) != _key(b)]
    total = first + second
    if len(differing) > 1:
        return None
    if not differing:
        return total, sums
    (k,) = differing
    shares = {queries: share * first / total for queries, share in sums[k].items()}
    for queries, share in others[k].items():
        shares[queries] = shares.get(queries, 0.0) + share * second / total
    return total, (*sums[:k], shares, *sums[k + 1 :])


def _expanded(scale: float, sums: Sequence[_AxisSum]) -> Iterator[tuple[float, Factors]]:
    for choice in product(*(one.items() for one in sums)):
        yield scale * math.prod(share for _, share in choice), tuple(q for q, _ in choice)


@lru_cache(maxsize=4_096)
def _canonical(queries: CenteredQueries) -> tuple[float, CenteredQueries]:
    """Return queries as a scale times marginal queries if their Gram is a multiple of Π."""
    (size,) = queries.shape
    marginal = CenteredAxis(Marginal(size))
    # Most cells of an axis whose queries are compared with marginal queries by their Gram
    most_cells = 64
    if queries == marginal or size < 2 or size > most_cells:
        return 1.0, queries
    gram = queries.gram()
    scale = float(np.trace(gram)) / (size - 1)
    if scale > 0 and np.allclose(gram, scale * marginal.gram(), rtol=0, atol=1e-13 * scale):
        return scale, marginal
    return 1.0, queries


# Solutions by problem, shared by the threads and subworkloads of one plan.


class SolveCache:
    """Solutions by problem; each is solved once, also if several threads need it together."""

    def __init__(self) -> None:
        self._solutions: dict[Hashable, Solution] = {}
        self._locks: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._solutions)

    def get(self, key: Hashable, solve: Callable[[], Solution]) -> Solution:
        """Return a solution; solve once, unless that raises, for a key of all it depends on."""
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

LARGE_AXIS = 1_536
"""Cells of an axis above which it gets Fourier queries: a dense optimum takes minutes."""

TRIED_WORK = 1_536**3
"""Most work, in cubes of eigenproblems, for a problem that is solved only to see whether it has a
better optimum than the strategy in hand. An iteration at this size takes about a second on one
core, and five to fifteen are needed. Symmetry and few queries make larger tables this cheap."""

GATHERED_COST = 10
"""Multiply-adds that cost as much as gathering one entry of a Gram matrix from an attribute set."""

DENSE_COPIES = 9
"""Number of matrices over all cells that the dense solver holds in memory."""


def few_rows(count: int, cells: int, settings: SolverSettings) -> bool:
    """Return whether queries are fewer than cells, fit in memory and take little enough work."""
    copies = 6  # of the queries over all cells, in memory together
    fits = copies * 8 * count * cells <= settings.max_bytes
    return count < cells and fits and count**2 * cells <= DENSE_CELLS**3


def check_queries(subworkload: Subworkload, settings: SolverSettings) -> None:
    """Refuse (ResourceExceeded) queries too large to find the error of any strategy from."""
    parts = (part for term in subworkload.terms for part in term.factors)
    needed = max(map(_query_bytes, parts), default=0)
    if needed > settings.max_bytes:
        needs = f"{_bytes(needed)} to be looked at, above the ceiling of "
        advice = "raise --max-memory, or use fewer values"
        raise _refused(subworkload.shape, needs + _bytes(settings.max_bytes), advice)


def check_dense(shape: tuple[int, ...], settings: SolverSettings) -> None:
    """Refuse (ResourceExceeded) a Gram matrix to be made that does not fit even with symmetries."""
    cells = math.prod(shape)
    needed = DENSE_COPIES * 8 * cells**2
    if needed > settings.max_bytes:
        needs = f"{_bytes(needed)}, above the ceiling of {_bytes(settings.max_bytes)}"
        raise _refused(shape, needs)
    _check_eigenvectors(cells, DENSE_CELLS * 2 ** len(shape), shape)


def _check_eigenvectors(cells: int, most: int, shape: tuple[int, ...]) -> None:
    if cells > most:
        needs = f"eigenvectors of {cells:,} cells, above the limit of {DENSE_CELLS:,}"
        raise _refused(shape, needs)


def _refused(
    shape: tuple[int, ...], needs: str, advice: str = "use --mechanism auto or fewer values"
) -> ResourceExceeded:
    sizes, cells = " x ".join(f"{n:,}" for n in shape), math.prod(shape)
    return ResourceExceeded(
        f"queries over attributes of {sizes} values ({cells:,} cells) need {needs}: {advice}"
    )


def _query_bytes(part: CenteredQueries) -> int:
    cells = math.prod(part.shape)
    if bounds.known_eigenvalues(part) is not None:
        return 0
    copies = 2  # of the queries or their Gram matrix, to find the error of a strategy
    return copies * 8 * min(_num_queries(part, cells), cells) * cells


def _bytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{math.ceil(count / 2**20):,} MB"


def solve(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    cache: SolveCache | None = None,
) -> Solution:
    """Return the optimal strategy for the queries in one residual space, by the cheapest exact way.

    The total has nothing to choose; a product is solved factor by factor, each in closed form
    (marginal queries, circular queries) or by a one-dimensional solve that is done once; what is
    no product is solved from its queries where they are few, else from its Gram matrix. The
    subworkloads of a plan share a cache.

    Returns:
        OPTIMAL within the requested gap; STOPPED with a larger gap at the iteration limit;
        RESTRICTED where a long axis has Fourier queries.

    Raises:
        ResourceExceeded: too large for memory or time; nothing has been computed.
    """
    settings = settings or SolverSettings()
    cache = SolveCache() if cache is None else cache
    if not subworkload.shape:
        total = sum(term.scale for term in subworkload.terms)
        return Solution(Strategy(()), total, total, Status.OPTIMAL)
    scale, pieces = factorise(subworkload)
    found = []
    for piece, goal in _with_gaps(pieces, settings):
        key = (piece.subworkload.shape, piece.key, goal)
        found.append(cache.get(key, partial(_solve_whole, piece.subworkload, goal)))
    objective = scale * math.prod(solution.objective for solution in found)
    bound = scale * math.prod(solution.lower_bound for solution in found)
    status = Status.OPTIMAL
    if objective > bound * (1 + settings.gap):
        restricted = any(solution.status is Status.RESTRICTED for solution in found)
        status = Status.RESTRICTED if restricted else Status.STOPPED
    return Solution(
        Strategy(tuple(factor for solution in found for factor in solution.strategy.factors)),
        objective, bound, status, sum(solution.iterations for solution in found),
    )  # fmt: skip


def _with_gaps(
    pieces: Sequence[Piece], settings: SolverSettings
) -> list[tuple[Piece, SolverSettings]]:
    """Divide the requested gap among the pieces: Π(1 + g_k) ≤ exp(Σ g_k) = 1 + gap."""
    whole = math.log1p(settings.gap)
    axis_share = 8  # divisor of the gap for each one-dimensional solve, which is cheap and shared
    single = whole / max(axis_share, 2 * len(pieces))
    rest = whole - single * sum(len(piece.axes) == 1 for piece in pieces)
    return [(p, replace(settings, gap=single if len(p.axes) == 1 else rest)) for p in pieces]


def _solve_whole(subworkload: Subworkload, settings: SolverSettings) -> Solution:
    if all(_is_marginal(term) for term in subworkload.terms):
        return bounds.solve_residual_planner(subworkload)
    cells = subworkload.cells
    long_axis = len(subworkload.shape) == 1 and cells > LARGE_AXIS
    if not long_axis and all(_is_circulant(term) for term in subworkload.terms):
        return bounds.solve_fourier(subworkload)
    rows = _few_rows(subworkload, settings)
    if rows is not None and (2 * len(rows) <= cells or cells > DENSE_CELLS):
        return solve_rows(rows, subworkload.shape, settings)
    if long_axis:
        if not settings.can_measure(cells):
            raise _refused(subworkload.shape, "a matrix of all values by all values")
        return bounds.solve_fourier(subworkload)
    check_dense(subworkload.shape, settings)
    gram = subworkload.gram()
    if cells > DENSE_CELLS:
        blocks = symmetric_blocks(lambda x: gram @ x, subworkload.shape)
        _check_eigenvectors(blocks.largest, DENSE_CELLS, subworkload.shape)
    return solve_dense(gram, subworkload.shape, settings)


def _is_marginal(term: Term) -> bool:
    (first, *others) = term.factors
    return not others and type(first.queries) is Marginal and first.shape[0] > 1


def _is_circulant(term: Term) -> bool:
    circulant = getattr(term.factors[0], "circulant", None)
    return len(term.factors) == 1 and circulant is not None and circulant() is not None


def _few_rows(subworkload: Subworkload, settings: SolverSettings) -> Array | None:
    """Return all queries, scaled, if they are fewer than the cells and not too many; else None."""
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
    return np.concatenate([kron(present, scale) for scale, present in blocks])


def _num_queries(part: CenteredQueries, unknown: int = 1) -> int:
    """Return the number of rows that a part makes, or ``unknown``."""
    return int(getattr(getattr(part, "queries", None), "num_queries", unknown))


# A lower bound for a sum of queries from the optima of its terms.


def superadditive_bound(
    subworkload: Subworkload,
    settings: SolverSettings | None = None,
    cache: SolveCache | None = None,
) -> float:
    """Return the sum of the terms' optima, which bounds tr(G V⁺) (rows²) at privacy cost 1.

    The optimum is superadditive (:func:`~adaptive_qs.strategy.bounds.svd_bound`). This bounds what
    is too large to solve as a whole, such as the sum of a product and of few joint queries. A term
    that is refused has its singular value bound instead.
    """
    cache = SolveCache() if cache is None else cache
    total = 0.0
    for term in subworkload.terms:
        alone = Subworkload(subworkload.shape, (term,))
        try:
            total += solve(alone, settings, cache).lower_bound
        except ResourceExceeded:
            total += bounds.svd_bound(alone)
    return total
