"""Products: the optimum of a Kronecker product is the product of the optima.

Primal and dual both factor: if V_k is feasible for G_k with tr(G_k V_k⁺) = L_k, then ⊗V_k is
feasible for ⊗G_k with ΠL_k, and lower bounds multiply likewise. A sum of products is a product
wherever its terms differ along one axis only: A⊗B + A⊗C = A⊗(B + C).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.matrix import DenseFactor, Factor, Strategy
from adaptive_qs.strategy.objective import is_product
from adaptive_qs.workload.axis_queries import Marginal
from adaptive_qs.workload.centered import CenteredAxis
from adaptive_qs.workload.queries import CenteredQueries
from adaptive_qs.workload.subworkload import Subworkload, Term

Array = NDArray[np.float64]

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
