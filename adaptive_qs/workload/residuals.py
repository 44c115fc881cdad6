"""What a workload asks of each residual space (He et al., section 6.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.axes import Circular
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

# The part of queries that lies in one residual space: He et al., equation 3.
#
# Queries Q over some axes split into one part for each subset of the axes: along each axis kept the
# mean is removed (Π = I − 11ᵀ/n), along each axis dropped it is taken. Parts of a product are
# products of the parts of its factors.

Array = NDArray[np.float64]


def squared_mean(queries: Queries) -> float:
    """‖Q1‖²/N²: the Gram of what is left of queries when no axis is kept.

    For queries on one attribute this is the factor of a dropped axis; for joint queries the Gram
    of their part in the total.
    """
    return queries.squared_sums() / queries.size**2


@dataclass(frozen=True)
class CenteredQueries:
    """The part of queries that lies in a residual space; equal parts compare and hash equal.

    Args:
        queries: over all their axes.
        kept: ascending axes, at least one.

    Raises:
        ValueError: the axes kept are not such.
    """

    queries: Queries
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        axes = range(len(self.queries.shape))
        if not self.kept or self.kept != tuple(a for a in axes if a in self.kept):
            raise ValueError(f"kept axes {self.kept} of {len(axes)}: give some, ascending")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the kept axes."""
        return tuple(self.queries.shape[axis] for axis in self.kept)

    def gram(self) -> Array:
        """Shape (N, N), N = Πshape: symmetric, and every row sums to zero along every axis."""
        cells = math.prod(self.shape)
        if len(self.kept) < len(self.queries.shape) or self.queries.num_queries < cells:
            rows = self._rows()
            return rows.T @ rows
        gram = self.queries.gram().reshape(*self.shape, *self.shape)
        gram = _center(gram, range(gram.ndim)).reshape(cells, cells)
        return (gram + gram.T) / 2

    def rows(self) -> Array | None:
        """The queries themselves, shape (m, N), where m < N; None where the Gram is smaller."""
        return self._rows() if self.queries.num_queries < math.prod(self.shape) else None

    def _rows(self) -> Array:
        means = self.queries.means(self.kept)
        return _center(means, range(1, means.ndim)).reshape(len(means), -1)


class CenteredAxis(CenteredQueries):
    """QΠ: what queries on one attribute ask beside the total."""

    def __init__(self, queries: Queries) -> None:
        super().__init__(queries, (0,))

    def gram(self) -> Array:
        """ΠQᵀQΠ, shape (n, n), from the closed form of QᵀQ."""
        gram = self.queries.gram()
        gram = gram - gram.mean(axis=0)  # the queries may keep theirs
        gram -= gram.mean(axis=1, keepdims=True)
        gram += gram.T
        gram /= 2
        return gram

    def circulant(self) -> Array | None:
        """First row of the Gram where it is a circulant matrix, shape (n,); None otherwise."""
        if not isinstance(self.queries, Circular):
            return None
        row = self.queries.circulant()
        return row - row.mean()


def _center(array: Array, axes: range) -> Array:
    for axis in axes:
        array = array - array.mean(axis=axis, keepdims=True)
    return array


# The part of a workload that lies in one residual space, as solvers see it.


@dataclass(frozen=True)
class Term:
    """Weighted queries whose Gram matrix is scale · ⊗ factor.gram().

    Attributes:
        scale: positive.
        factors: cover the axes of the residual in order: one for each axis, or one for them all.
    """

    scale: float
    factors: tuple[CenteredQueries, ...]

    def gram(self) -> Array:
        """Shape (N, N)."""
        gram: Array = np.ones((1, 1))
        for factor in self.factors:
            gram = np.kron(gram, factor.gram()).astype(np.float64, copy=False)
        return self.scale * gram


@dataclass(frozen=True)
class Subworkload:
    """Everything a workload asks of one residual space; hashable, so that it is solved once.

    Attributes:
        shape: sizes of the residual's axes; () is the total.
        terms: the Gram matrix is the sum of theirs; at least one.
    """

    shape: tuple[int, ...]
    terms: tuple[Term, ...]

    @property
    def cells(self) -> int:
        """Number of cells N = Πshape."""
        return math.prod(self.shape)

    def gram(self) -> Array:
        """G = WᵀDW, shape (N, N); () has the 1 × 1 matrix of its scales."""
        return sum((term.gram() for term in self.terms), np.zeros((self.cells, self.cells)))


# Query decomposition: what a workload asks of each residual space (He et al., section 6.2).
#
# A query over clique γ is the sum of one subquery for each τ ⊆ γ, q(⊗W) with W the mean over an
# axis outside τ and the centering I − 11ᵀ/n over an axis of τ. Subqueries of different residual
# spaces are orthogonal, so each residual space is a problem of its own. Its Gram matrix is a
# weighted sum of few distinct terms, whose coefficients add up over all γ ⊇ τ; residuals whose
# terms agree up to one common scale form a class, which is solved once. Everything over cliques is
# vectorised.

Indices = NDArray[np.int64]

MAX_INCIDENCES = 2**26
"""Most pairs (attribute set, subset) of one workload; each takes a few dozen bytes."""
RATIO_DIGITS = 12
"""Scales that agree to so many digits are equal: the rest is rounding."""
ZERO_SHARE = 1e-13
"""A centered part below this share of its queries' squared norm is zero: the rest is rounding."""
ZERO_MEAN = 1e-28
"""So is a squared mean below this share of the largest that queries of their norm could have."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The residual spaces a workload reaches, and the problem in each.

    Attributes:
        workload: what was decomposed.
        residuals: every τ with a subquery that is not zero, by degree and then by attribute.
        subworkloads: one for each class of residuals, with first scale 1.
        class_of: shape (residuals,): the class of each residual.
        scales: shape (residuals,): what the Gram matrix of its class is multiplied with.
        inside: for each part, shape (sets, 2**degree): position of every subset of a set among
            the residuals, −1 where there is none. Column m is the subset whose k-th attribute
            is present where bit k of m is set.
    """

    workload: QueryWorkload
    residuals: tuple[Clique, ...]
    subworkloads: tuple[Subworkload, ...]
    class_of: Indices
    scales: Array
    inside: tuple[Indices, ...]


def decompose_workload(workload: QueryWorkload) -> Decomposition:
    """Split a workload into its subworkloads.

    Raises:
        WorkloadError: every query is zero.
        ResourceExceeded: its attribute sets have too many subsets together.
    """
    incidences = sum(len(part) << part.degree for part in workload.parts)
    if incidences > MAX_INCIDENCES:
        raise ResourceExceeded(
            f"the workload's attribute sets have {incidences:,} subsets together, more than "
            f"{MAX_INCIDENCES:,}: ask for fewer ways or list the sets of attributes"
        )
    terms = _Terms()
    pieces = [
        piece
        for number, part in enumerate(workload.parts)
        for piece in _pieces(number, part, terms)
    ]
    if not pieces:
        raise WorkloadError("every query of the workload is zero: ask for something")
    residuals: list[Clique] = []
    entries: list[_Entries] = []
    inside = tuple(
        np.full((len(part), 1 << part.degree), -1, dtype=np.int64) for part in workload.parts
    )
    for degree in sorted({piece.attributes.shape[1] for piece in pieces}):
        group = [piece for piece in pieces if piece.attributes.shape[1] == degree]
        found, position = _unique_rows(np.concatenate([piece.attributes for piece in group]))
        position += len(residuals)
        residuals.extend(map(tuple, found.tolist()))
        start = 0
        for piece in group:
            at = position[start : start + len(piece.rows)]
            inside[piece.part][piece.rows, piece.mask] = at
            entries.append(_Entries(at, piece.terms, piece.coefficients))
            start += len(piece.rows)
    subworkloads, class_of, scales = _classes(_sum_equal(entries, terms), terms)
    return Decomposition(workload, tuple(residuals), subworkloads, class_of, scales, inside)


class _Piece(NamedTuple):
    """One subset pattern of one part: where its attribute sets put weight."""

    part: int
    mask: int
    rows: Indices  # sets of the part
    attributes: NDArray[np.int32]  # the residual of each
    terms: Indices  # the term of each
    coefficients: Array


class _Entries(NamedTuple):
    """Coefficients of terms in residuals."""

    residuals: Indices
    terms: Indices
    coefficients: Array


class _Terms:
    """Distinct products of centered queries, by number."""

    def __init__(self) -> None:
        self.factors: list[tuple[CenteredQueries, ...]] = []
        self._number: dict[tuple[CenteredQueries, ...], int] = {}

    def number(self, factors: tuple[CenteredQueries, ...]) -> int:
        if factors not in self._number:
            self._number[factors] = len(self.factors)
            self.factors.append(factors)
        return self._number[factors]


def _pieces(number: int, part: QueryPart, terms: _Terms) -> list[_Piece]:
    pieces = []
    for mask in range(1 << part.degree):
        kept = tuple(k for k in range(part.degree) if mask >> k & 1)
        split = _product_terms if part.joint is None else _joint_terms
        term, coefficients = split(part, kept, terms)
        rows = np.flatnonzero(term >= 0)
        if rows.size:
            attributes = part.cliques[rows][:, list(kept)]
            pieces.append(_Piece(number, mask, rows, attributes, term[rows], coefficients[rows]))
    return pieces


def _product_terms(part: QueryPart, kept: tuple[int, ...], terms: _Terms) -> tuple[Indices, Array]:
    """For each set: the term of its subset (−1 where it is zero), and the coefficient."""
    most = max(part.axis) + 1
    family = np.full(most, -1, dtype=np.int64)
    mean = np.zeros(most)
    centered: list[CenteredQueries] = []
    seen: dict[CenteredQueries, int] = {}
    for attribute, queries in part.axis.items():
        mean[attribute] = _nonzero_mean(queries)
        factor = CenteredAxis(queries)
        trace = float(queries.column_norms().sum())
        if trace - mean[attribute] * queries.size > ZERO_SHARE * trace:
            if factor not in seen:
                seen[factor] = len(centered)
                centered.append(factor)
            family[attribute] = seen[factor]
    dropped = [k for k in range(part.degree) if k not in kept]
    coefficients = part.weights * mean[part.cliques[:, dropped]].prod(axis=1)
    kinds, position = _unique_rows(family[part.cliques[:, list(kept)]])
    numbers = [
        -1 if min(kind, default=0) < 0 else terms.number(tuple(centered[k] for k in kind))
        for kind in kinds.tolist()
    ]
    term = np.array(numbers, dtype=np.int64)[position]
    return np.where(coefficients > 0, term, -1), coefficients


def _joint_terms(part: QueryPart, kept: tuple[int, ...], terms: _Terms) -> tuple[Indices, Array]:
    """As :func:`_product_terms`, for queries on all attributes of a set at once."""
    assert part.joint is not None
    coefficients = part.weights.copy()
    numbers = np.empty(len(part), dtype=np.int64)
    known: dict[Queries, tuple[int, float]] = {}
    for index, queries in enumerate(part.joint):
        if queries not in known:
            if kept:
                centered = CenteredQueries(queries, kept)
                zero = _trace(centered) <= ZERO_SHARE * float(queries.column_norms().sum())
                known[queries] = (-1 if zero else terms.number((centered,)), 1.0)
            else:
                known[queries] = (terms.number(()), _nonzero_mean(queries))
        number, scale = known[queries]
        numbers[index] = number if scale > 0 else -1
        coefficients[index] *= scale
    return numbers, coefficients


def _nonzero_mean(queries: Queries) -> float:
    """‖Q1‖²/N², without what rounding makes of zero; at most ‖Q‖²/N."""
    mean = squared_mean(queries)
    most = float(queries.column_norms().sum()) / math.prod(queries.shape)
    return mean if mean > ZERO_MEAN * most else 0.0


def _trace(centered: CenteredQueries) -> float:
    rows = centered.rows()
    return float(np.trace(centered.gram()) if rows is None else (rows * rows).sum())


def _sum_equal(entries: list[_Entries], terms: _Terms) -> _Entries:
    """Entries of one residual and one term added up, ordered by both."""
    residuals = np.concatenate([entry.residuals for entry in entries])
    numbers = np.concatenate([entry.terms for entry in entries])
    coefficients = np.concatenate([entry.coefficients for entry in entries])
    keys, position = np.unique(residuals * len(terms.factors) + numbers, return_inverse=True)
    total: Array = np.bincount(position.ravel(), weights=coefficients).astype(np.float64)
    found, term = np.divmod(keys, len(terms.factors))
    return _Entries(found, term, total)


def _classes(entries: _Entries, terms: _Terms) -> tuple[tuple[Subworkload, ...], Indices, Array]:
    """Residuals with the same terms in the same ratio, one subworkload for each such class."""
    first, counts = np.unique(entries.residuals, return_index=True, return_counts=True)[1:]
    class_of = np.empty(first.size, dtype=np.int64)
    scales = entries.coefficients[first]
    subworkloads: list[Subworkload] = []
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        at = first[members][:, None] + np.arange(count)
        ratios = entries.coefficients[at] / scales[members][:, None]
        signature = np.hstack([entries.terms[at], _rounded(ratios)])
        _, sample, position = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        class_of[members] = len(subworkloads) + position.ravel()
        for index in sample:
            made = tuple(
                Term(float(ratio), terms.factors[number])
                for number, ratio in zip(entries.terms[at[index]], ratios[index])
            )
            subworkloads.append(Subworkload(_shape(made[0]), made))
    return tuple(subworkloads), class_of, scales


def _shape(term: Term) -> tuple[int, ...]:
    return tuple(n for factor in term.factors for n in factor.shape)


def _rounded(ratios: Array) -> Array:
    """To RATIO_DIGITS significant digits."""
    power = 10.0 ** (RATIO_DIGITS - 1 - np.floor(np.log10(ratios)))
    return np.asarray(np.rint(ratios * power) / power, dtype=np.float64)


def _unique_rows(rows: NDArray[np.integer]) -> tuple[NDArray[np.integer], Indices]:
    """Distinct rows in lexicographic order, and the position of each row among them."""
    low = int(rows.min(initial=0))
    base = int(rows.max(initial=0)) - low + 1
    if base ** rows.shape[1] < 2**62:
        codes = np.zeros(len(rows), dtype=np.int64)
        for column in rows.T:
            codes = codes * base + (column - low)
        _, sample, position = np.unique(codes, return_index=True, return_inverse=True)
        return rows[sample], position.ravel()
    found, position = np.unique(rows, axis=0, return_inverse=True)
    return found, position.ravel()
