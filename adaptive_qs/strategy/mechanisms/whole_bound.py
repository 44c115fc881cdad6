"""What no matrix mechanism can beat on a whole workload, whatever it measures."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.bounds import (
    DENSE_CELLS,
    SINGLE_CELLS,
    root_sum,
    root_trace,
    svd_bound,
)
from adaptive_qs.strategy.hdmm.lower_bound import residual_bound
from adaptive_qs.strategy.hdmm.marginals import MOST_ATTRIBUTES
from adaptive_qs.strategy.hdmm.products import product_workload
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.spectra import known_gram_eigenvalues
from adaptive_qs.workload.axis_queries import Circular, Marginal
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload

Array = NDArray[np.float64]


def any_mechanism_bound(decomposition: Decomposition, settings: SolverSettings) -> float:
    """No matrix mechanism of privacy cost 1 has a smaller total error, of whatever kind.

    The singular value bound of the whole workload where it is known: marginal and circular queries
    ask as much of every value, so their Gram matrix is the orthogonal sum of the subworkloads'
    ones, and the roots of their bounds add up; on a small domain it is taken from the matrix
    itself. (Of other queries the parts in two residual spaces are correlated, and the sum of roots
    may exceed the optimum.) Otherwise the best of several bounds from below.
    """
    workload = decomposition.workload
    clique = used_attributes(workload)
    if all(map(_is_level, workload.parts)):
        roots = np.sqrt([svd_bound(subworkload) for subworkload in decomposition.subworkloads])
        spread = roots[decomposition.class_of] * np.sqrt(decomposition.scales)
        return float(spread.sum() ** 2)
    if workload.domain.size(clique) <= DENSE_CELLS:
        gram = full_gram(workload, clique)
        return root_trace(gram) ** 2 / len(gram)
    return max(_sum_of_sets(workload), _of_products(workload, settings))


def used_attributes(workload: QueryWorkload) -> Clique:
    """The attributes that some query depends on."""
    return tuple(sorted({int(i) for part in workload.parts for i in np.unique(part.cliques)}))


def full_gram(workload: QueryWorkload, clique: Clique) -> Array:
    """Gram matrix of a workload on the cells over ``clique``, shape (N, N)."""
    shape = workload.domain.shape(clique)
    cells = math.prod(shape)
    codes = np.indices(shape).reshape(len(shape), cells)
    total = np.zeros((cells, cells))
    for part in workload.parts:
        for index, weight in enumerate(part.weights):
            gram: Array = np.ones((1, 1))
            for queries in part.queries(index):
                gram = np.kron(gram, queries.gram()).astype(np.float64, copy=False)
            axes = [clique.index(i) for i in part.cliques[index].tolist()]
            inner = np.ravel_multi_index(codes[axes], [shape[axis] for axis in axes])
            total += weight * gram[np.ix_(inner, inner)]
    return total


def narrowed(workload: QueryWorkload, clique: Clique) -> QueryWorkload:
    """The same queries on a domain of the attributes in use only."""
    domain = workload.domain
    names = domain.clique_names(clique)
    position = np.zeros(len(domain), dtype=np.int32)
    position[list(clique)] = np.arange(len(clique))
    parts = tuple(
        QueryPart(
            position[part.cliques],
            {int(position[i]): q for i, q in part.axis.items() if i in clique},
            None,
            part.weights,
        )
        for part in workload.parts
    )
    return QueryWorkload(Domain.from_sizes(dict(zip(names, domain.shape(clique)))), parts)


def _is_level(part: QueryPart) -> bool:
    return part.joint is None and all(
        isinstance(q, Marginal | Circular) for q in part.axis.values()
    )


def _sum_of_sets(workload: QueryWorkload) -> float:
    """The least error of all queries is at least the sum of the least errors of each set."""
    known: dict[Queries, float] = {}
    total = 0.0
    for part in workload.parts:
        for index, weight in enumerate(part.weights):
            bound = float(weight)
            for queries in part.queries(index):
                if queries not in known:
                    known[queries] = _family_bound(queries)
                bound *= known[queries]
            total += bound
    return total


def _family_bound(queries: Queries) -> float:
    """(tr √G)²/N; of many cells without a closed form tr G/N, which is less."""
    cells = math.prod(queries.shape)
    known = known_gram_eigenvalues(queries)
    if known is not None:
        return root_sum(known) ** 2 / cells
    if cells <= SINGLE_CELLS:
        return root_trace(queries.gram()) ** 2 / cells
    return float(queries.column_norms().sum()) / cells


def _of_products(workload: QueryWorkload, settings: SolverSettings) -> float:
    """A bound that joins sets, for products of queries on single attributes; 0 where unknown.

    One set alone has nothing to join; attributes of more than ``SINGLE_CELLS`` values are not
    taken on, since each of their factors is an eigenproblem of their size.
    """
    products = all(part.joint is None for part in workload.parts)
    clique = used_attributes(workload)
    largest = max(workload.domain.shape(clique))
    too_large = largest > SINGLE_CELLS or len(clique) > MOST_ATTRIBUTES
    if not products or too_large or workload.num_sets == 1:
        return 0.0
    try:
        return residual_bound(product_workload(narrowed(workload, clique), settings))
    except ResourceExceeded:
        return 0.0
