"""A workload as a union of Kronecker products: McKenna et al., equation 3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.workload.queries import AxisQueries
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]

SMALLEST_SHARE = 1e-9
"""Of a factor in the trace of a sum of Gram matrices: with less, rounding loses its queries."""
ARRAYS_PER_GRAM = 6
"""Square arrays that a one-dimensional solver holds at once, beside the Gram matrices."""


@dataclass(frozen=True, eq=False)
class ProductWorkload:
    """Sets of product queries, each known by one Gram matrix per attribute.

    Equal factors are stored once. The Gram matrix of set j is ⊗_i grams[i][kinds[j, i]].

    Attributes:
        sizes: n_i of every attribute.
        grams: for each attribute its distinct factors, shape (n_i, n_i); the first is the Gram
            matrix 11ᵀ of the total, which stands for an attribute that a set does not mention.
        kinds: shape (sets, attributes): which factor a set has on an attribute.
        weights: shape (sets,): how much the squared error of each query of a set counts.
        num_queries: for each set (exact).
    """

    sizes: tuple[int, ...]
    grams: tuple[tuple[Array, ...], ...]
    kinds: IntArray
    weights: Array
    num_queries: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.kinds)

    def subset(self, sets: Sequence[int]) -> ProductWorkload:
        """These sets only, in the order given."""
        chosen = np.asarray(sets, dtype=np.intp)
        counts = tuple(self.num_queries[j] for j in chosen)
        return replace(
            self, kinds=self.kinds[chosen], weights=self.weights[chosen], num_queries=counts
        )

    @cached_property
    def asked(self) -> IntArray:
        """The sets whose queries are not all zero; the others have no error, whatever is measured.

        Raises:
            WorkloadError: there is none.
        """
        zero = [np.array([not gram.any() for gram in grams]) for grams in self.grams]
        void = np.zeros(len(self), dtype=bool)
        for i, of in enumerate(zero):
            void |= of[self.kinds[:, i]]
        if void.all():
            raise WorkloadError("every query of the workload is zero: ask for something")
        return np.flatnonzero(~void)

    def only_asked(self) -> ProductWorkload:
        """The sets whose queries are not all zero, in order.

        Raises:
            WorkloadError: there is none.
        """
        return self if len(self.asked) == len(self) else self.subset(self.asked.tolist())

    def set_values(self, axis_values: Sequence[Array]) -> Array:
        """Π_i values[i][kinds[j, i]] for every set j, given one value per factor and attribute."""
        product = np.ones(len(self))
        for i, values in enumerate(axis_values):
            product *= values[self.kinds[:, i]]
        return product

    def rmse(self, set_errors: Array) -> float:
        """Root of the mean squared error per query, every query counted once.

        Args:
            set_errors: shape (sets,): summed variance of the queries of each set.
        """
        return math.sqrt(math.fsum(set_errors) / sum(self.num_queries))

    def factorised(self) -> tuple[Array, ...] | None:
        """One Gram matrix per attribute where the union is itself a single product, else None.

        The sets must be all combinations of some factors per attribute, with weights that are
        products of a weight per factor, none of which is lost beside the others by rounding.
        Example: all marginals of every degree.
        """
        used = [np.unique(column) for column in self.kinds.T]
        if math.prod(map(len, used)) != len(self):
            return None
        if len(np.unique(self.kinds, axis=0)) != len(self):
            return None
        total = float(self.weights.sum())
        shares = [
            np.array([self.weights[self.kinds[:, i] == k].sum() / total for k in range(len(g))])
            for i, g in enumerate(self.grams)
        ]
        if not np.allclose(self.set_values(shares) * total, self.weights, rtol=1e-9, atol=0):
            return None
        for share, grams in zip(shares, self.grams):
            parts = share * [np.trace(gram) for gram in grams]
            if parts[share > 0].min() < SMALLEST_SHARE * parts.max():
                return None
        mixed = [sum(s * g for s, g in zip(share, g_i)) for share, g_i in zip(shares, self.grams)]
        mixed[0] = mixed[0] * total
        return tuple(np.asarray(gram, dtype=np.float64) for gram in mixed)

    @cached_property
    def axis_traces(self) -> tuple[tuple[Array, Array], ...]:
        """For each attribute, of its factors: the mean part 1ᵀG1/n², the centered part tr(ΠG)/n."""
        traces = []
        for n, grams in zip(self.sizes, self.grams):
            mean = np.array([gram.sum() / n**2 for gram in grams])
            trace = np.array([np.trace(gram) / n for gram in grams])
            centered = np.maximum(trace - mean, 0.0)
            centered[0] = 0.0
            traces.append((mean, centered))
        return tuple(traces)


def product_workload(
    workload: QueryWorkload, settings: SolverSettings | None = None
) -> ProductWorkload:
    """The sets of a workload as products; attributes outside a set contribute their total.

    Raises:
        WorkloadError: queries on several attributes at once, which are no product.
        ResourceExceeded: the Gram matrices of an attribute exceed the memory ceiling.
    """
    settings = settings or SolverSettings()
    domain = workload.domain
    distinct: list[dict[AxisQueries, int]] = [{} for _ in domain.sizes]
    rows, weights, counts = [], [], []
    for part in workload.parts:
        kinds = _kinds(part, distinct, domain.names)
        index = np.zeros((len(part), len(domain)), dtype=np.intp)
        np.put_along_axis(index, part.cliques.astype(np.intp), kinds[part.cliques], axis=1)
        rows.append(index)
        weights.append(part.weights)
        counts += [math.prod(q.num_queries for q in part.queries(j)) for j in range(len(part))]
    grams = []
    for name, n, families in zip(domain.names, domain.sizes, distinct):
        _check_memory(name, n, len(families) + 1, settings.max_bytes)
        grams.append((np.ones((n, n)), *(family.gram() for family in families)))
    return ProductWorkload(
        domain.sizes,
        tuple(grams),
        np.concatenate(rows),
        np.concatenate(weights).astype(np.float64),
        tuple(counts),
    )


def with_total(workload: ProductWorkload) -> ProductWorkload:
    """The same queries and, as one more set, the number of rows with weight 1."""
    kinds = np.vstack([workload.kinds, np.zeros_like(workload.kinds[:1])])
    weights, counts = np.append(workload.weights, 1.0), (*workload.num_queries, 1)
    return replace(workload, kinds=kinds, weights=weights, num_queries=counts)


def _kinds(
    part: QueryPart, distinct: list[dict[AxisQueries, int]], names: tuple[str, ...]
) -> IntArray:
    """For each attribute the number of the family that the part has on it; 0 is the total."""
    if part.joint is not None:
        several = ", ".join(names[i] for i in part.cliques[0])
        raise WorkloadError(
            f"the queries on {several} are no product of queries on single attributes, which "
            f"HDMM needs: use the mechanism querysmasher"
        )
    kinds = np.zeros(len(names), dtype=np.intp)
    for attribute, family in part.axis.items():
        kinds[attribute] = distinct[attribute].setdefault(family, len(distinct[attribute]) + 1)
    return kinds


def _check_memory(name: str, size: int, factors: int, max_bytes: int) -> None:
    needed = 8 * size * size * (factors + ARRAYS_PER_GRAM)
    if needed > max_bytes:
        raise ResourceExceeded(
            f"attribute {name!r} has {size} values: HDMM needs {needed / 2**30:.1f} GiB for it, "
            f"more than the ceiling of {max_bytes / 2**30:.1f} GiB: use fewer bins or the "
            f"mechanism residualplanner"
        )
