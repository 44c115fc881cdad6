"""The problem that a workload sets in each residual space (He et al., section 6.2)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.matrices import Array, Queries, check_size
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

# The part of queries that lies in one residual space: He et al., equation 3.
# Queries Q over some axes split into one part for each subset of the axes: along each axis kept the
# mean is removed (Π = I − 11ᵀ/n), along each axis dropped it is taken. Parts of a product are
# products of the parts of its factors.


def squared_mean(queries: Queries) -> float:
    """Return ‖Q1‖²/N², the Gram of what is left of queries if no axis is kept.

    For queries on one attribute this is the factor of a dropped axis; for joint queries the Gram
    of their part in the total.
    """
    return queries.squared_sums() / queries.size**2


@dataclass(frozen=True)
class CenteredQueries:
    """The part of queries that lies in a residual space; equal parts compare and hash equal."""

    queries: Queries
    kept: tuple[int, ...]  # ascending axes, at least one, or ValueError

    def __post_init__(self) -> None:
        axes = range(len(self.queries.shape))
        if not self.kept or self.kept != tuple(a for a in axes if a in self.kept):
            raise ValueError(f"kept axes {self.kept} of {len(axes)}. Use some, ascending.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the kept axes."""
        return tuple(self.queries.shape[axis] for axis in self.kept)

    def gram(self) -> Array:
        """Return a symmetric matrix of shape (N, N); every row sums to zero along every axis."""
        cells = math.prod(self.shape)
        if len(self.kept) < len(self.queries.shape) or self.queries.num_queries < cells:
            rows = self._rows()
            return rows.T @ rows
        gram = self.queries.gram().reshape(*self.shape, *self.shape)
        gram = _center(gram, range(gram.ndim)).reshape(cells, cells)
        return (gram + gram.T) / 2

    def rows(self) -> Array | None:
        """Return the queries themselves, shape (m, N), if m < N; None if the Gram is smaller."""
        return self._rows() if self.queries.num_queries < math.prod(self.shape) else None

    def _rows(self) -> Array:
        means = self.queries.means(self.kept)
        return _center(means, range(1, means.ndim)).reshape(len(means), -1)


class CenteredAxis(CenteredQueries):
    """Queries on one attribute without the total, QΠ."""

    def __init__(self, queries: Queries) -> None:
        super().__init__(queries, (0,))

    def gram(self) -> Array:
        """Return ΠQᵀQΠ, shape (n, n), from the closed form of QᵀQ."""
        gram = self.queries.gram()
        gram = gram - gram.mean(axis=0)  # the queries may keep theirs
        gram -= gram.mean(axis=1, keepdims=True)
        gram += gram.T
        gram /= 2
        return gram

    def circulant(self) -> Array | None:
        """Return the first row of the Gram, shape (n,), if it is a circulant matrix."""
        row = self.queries.circulant()
        return None if row is None else row - row.mean()


def _center(array: Array, axes: range) -> Array:
    for axis in axes:
        array = array - array.mean(axis=axis, keepdims=True)
    return array


# The part of a workload that lies in one residual space, as solvers see it.


@dataclass(frozen=True)
class Term:
    """Weighted queries whose Gram matrix is scale · ⊗ factor.gram()."""

    scale: float  # positive
    factors: tuple[CenteredQueries, ...]  # one for each axis in order, or one for all

    def gram(self) -> Array:
        """Return the Gram matrix, shape (N, N)."""
        gram: Array = np.ones((1, 1))
        for factor in self.factors:
            gram = np.kron(gram, factor.gram()).astype(np.float64, copy=False)
        return self.scale * gram


@dataclass(frozen=True)
class Subworkload:
    """The queries of a workload in one residual space; hashable, so that it is solved once."""

    shape: tuple[int, ...]  # sizes of the residual's axes; () is the total
    terms: tuple[Term, ...]  # at least one; the Gram matrix is the sum of their Gram matrices

    @property
    def cells(self) -> int:
        """Number of cells N = Πshape."""
        return math.prod(self.shape)

    def gram(self) -> Array:
        """Return G = WᵀDW, shape (N, N); () has the 1 × 1 matrix of its scales."""
        return sum((term.gram() for term in self.terms), np.zeros((self.cells, self.cells)))


# Query decomposition (He et al., section 6.2).
# A query over clique γ is the sum of one subquery for each τ ⊆ γ, q(⊗W) with W the mean over an
# axis outside τ and the centering I − 11ᵀ/n over an axis of τ. Subqueries of different residual
# spaces are orthogonal, so each residual space is a problem of its own. Its Gram matrix is a
# weighted sum of few distinct terms, whose coefficients add up over all γ ⊇ τ; residuals whose
# terms agree up to one common scale form a class, which is solved once. Everything over cliques is
# vectorised.

Indices = NDArray[np.int64]
Terms = dict[tuple[CenteredQueries, ...], int]
"""Distinct products of centered queries, numbered in order of appearance."""

ZERO_SHARE = 1e-13
"""Share of its queries' squared norm below which a centered part is zero."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The residual spaces a workload reaches, and the problem in each.

    ``inside`` has for each part, shape (sets, 2**degree), the position of every subset of a set
    among the residuals, or −1. Column m is the subset with the k-th attribute where bit k is set.
    """

    workload: QueryWorkload
    residuals: tuple[Clique, ...]  # every τ with a nonzero subquery, by degree, then by attribute
    subworkloads: tuple[Subworkload, ...]  # one for each class of residuals, with first scale 1
    class_of: Indices  # shape (residuals,): the class of each residual
    scales: Array  # shape (residuals,): what the Gram matrix of its class is multiplied with
    inside: tuple[Indices, ...]


def decompose_workload(workload: QueryWorkload, most_bytes: float = math.inf) -> Decomposition:
    """Split a workload into its subworkloads.

    Raise WorkloadError if every query is zero, ResourceExceeded if that would take more memory.
    """
    # Measured memory of one subset of an attribute set, in bytes per attribute
    bytes_per_subset = 28
    needed = sum(
        bytes_per_subset * part.degree * len(part) << part.degree for part in workload.parts
    )
    if needed > most_bytes:
        raise ResourceExceeded(
            f"all subsets of the workload's sets need about {needed >> 20:,} MB, more than the "
            f"{max(int(most_bytes), 0) >> 20:,} MB there are: request fewer ways, list the sets of "
            "attributes, or raise --max-memory"
        )
    terms: Terms = {}
    pieces: dict[int, list[tuple[Indices, Indices, NDArray[np.int32]]]] = {}
    entries: dict[int, list[tuple[Indices, Array]]] = {}
    inside = []
    for part in workload.parts:
        positions = np.full((len(part), 1 << part.degree), -1, dtype=np.int64)
        inside.append(positions)
        for mask in range(1 << part.degree):
            kept = tuple(k for k in range(part.degree) if mask >> k & 1)
            split = _product_terms if part.joint is None else _joint_terms
            term, coefficients = split(part, kept, terms)
            rows = np.flatnonzero(term >= 0)
            if rows.size:
                attributes = part.cliques[rows][:, list(kept)]
                pieces.setdefault(len(kept), []).append((positions[:, mask], rows, attributes))
                entries.setdefault(len(kept), []).append((term[rows], coefficients[rows]))
    if not pieces:
        raise WorkloadError("every query of the workload is zero: ask for something")
    residuals: list[Clique] = []
    at: list[Indices] = []
    for degree in sorted(pieces):
        attributes = np.concatenate([attributes for *_, attributes in pieces[degree]])
        found, position = _unique_rows(attributes)
        at.append(position + len(residuals))
        residuals.extend(map(tuple, found.tolist()))
        start = 0
        for column, rows, _ in pieces[degree]:
            column[rows] = at[-1][start : start + rows.size]
            start += rows.size
    flat = [entry for degree in sorted(entries) for entry in entries[degree]]
    numbers, coefficients = (np.concatenate(some) for some in zip(*flat))
    classes = _classes(np.concatenate(at), numbers, coefficients, list(terms))
    return Decomposition(workload, tuple(residuals), *classes, tuple(inside))


def _product_terms(part: QueryPart, kept: tuple[int, ...], terms: Terms) -> tuple[Indices, Array]:
    """Return for each set the term of its subset (−1 if it is zero), and the coefficient."""
    most = max(part.axis) + 1
    family = np.full(most, -1, dtype=np.int64)
    mean = np.zeros(most)
    centered: dict[CenteredQueries, int] = {}
    for attribute, queries in part.axis.items():
        mean[attribute] = _nonzero_mean(queries)
        trace = float(queries.column_norms().sum())
        if trace - mean[attribute] * queries.size > ZERO_SHARE * trace:
            family[attribute] = centered.setdefault(CenteredAxis(queries), len(centered))
    factors = list(centered)
    dropped = [k for k in range(part.degree) if k not in kept]
    coefficients = part.weights * mean[part.cliques[:, dropped]].prod(axis=1)
    kinds, position = _unique_rows(family[part.cliques[:, list(kept)]])
    numbers = [
        -1
        if min(kind, default=0) < 0
        else terms.setdefault(tuple(factors[k] for k in kind), len(terms))
        for kind in kinds.tolist()
    ]
    return np.where(coefficients > 0, np.array(numbers, dtype=np.int64)[position], -1), coefficients


def _joint_terms(part: QueryPart, kept: tuple[int, ...], terms: Terms) -> tuple[Indices, Array]:
    """Return the same as :func:`_product_terms`, for joint queries on all attributes of a set."""
    assert part.joint is not None
    known: dict[Queries, tuple[int, float]] = {}
    advice = "use fewer values of attributes that are compared, or prefixes or ranges of each"
    for queries in part.joint:
        if queries not in known:
            check_size(queries.num_queries, queries.size, advice)
            factors = tuple(CenteredQueries(queries, axes) for axes in [kept] if axes)
            scale = 1.0 if kept else _nonzero_mean(queries)
            if any(_trace(f) <= ZERO_SHARE * queries.column_norms().sum() for f in factors):
                scale = 0.0
            number = terms.setdefault(factors, len(terms)) if scale > 0 else -1
            known[queries] = number, scale
    numbers, scales = zip(*(known[queries] for queries in part.joint))
    return np.array(numbers, dtype=np.int64), part.weights * np.array(scales)


def _nonzero_mean(queries: Queries) -> float:
    """Return ‖Q1‖²/N², without what rounding makes of zero; at most ‖Q‖²/N."""
    mean = squared_mean(queries)
    most = float(queries.column_norms().sum()) / queries.size
    # Share of the largest squared mean of queries of a norm below which a mean is zero
    zero = 1e-28
    return mean if mean > zero * most else 0.0


def _trace(centered: CenteredQueries) -> float:
    rows = centered.rows()
    return float(np.trace(centered.gram()) if rows is None else (rows * rows).sum())


def _classes(
    residuals: Indices,
    numbers: Indices,
    coefficients: Array,
    factors: list[tuple[CenteredQueries, ...]],
) -> tuple[tuple[Subworkload, ...], Indices, Array]:
    """Group residuals with the same terms in the same ratio; return a subworkload for each class.

    An addition puts ``coefficients`` of the ``factors`` of term ``numbers`` into a residual.
    """
    keys, position = np.unique(residuals * len(factors) + numbers, return_inverse=True)
    total: Array = np.bincount(position.ravel(), weights=coefficients).astype(np.float64)
    residual, term = np.divmod(keys, len(factors))
    first, counts = np.unique(residual, return_index=True, return_counts=True)[1:]
    class_of = np.empty(first.size, dtype=np.int64)
    scales = total[first]
    subworkloads: list[Subworkload] = []
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        at = first[members][:, None] + np.arange(count)
        ratios = total[at] / scales[members][:, None]
        signature = np.hstack([term[at], _rounded(ratios)])
        _, sample, position = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        class_of[members] = len(subworkloads) + position.ravel()
        for index in sample:
            made = tuple(
                Term(float(ratio), factors[number])
                for number, ratio in zip(term[at[index]], ratios[index])
            )
            shape = tuple(n for factor in made[0].factors for n in factor.shape)
            subworkloads.append(Subworkload(shape, made))
    return tuple(subworkloads), class_of, scales


def _rounded(ratios: Array) -> Array:
    digits = 12  # digits to which equal scales agree: the rest is rounding
    power = 10.0 ** (digits - 1 - np.floor(np.log10(ratios)))
    return np.asarray(np.rint(ratios * power) / power, dtype=np.float64)


def _unique_rows(rows: NDArray[np.integer]) -> tuple[NDArray[np.integer], Indices]:
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
