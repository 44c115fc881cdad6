"""Small workloads, and slow definitions with explicit matrices."""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import numpy as np

from adaptive_qs.domain import Domain
from adaptive_qs.strategy.hdmm import product_workload
from adaptive_qs.workload.axes import Marginal, Prefix, Range
from adaptive_qs.workload.workload import QueryPart, QueryWorkload


def workload(sizes, parts):
    """Parts are (cliques, {attribute: family}, weights); a family is made of its size."""
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})
    made = []
    for cliques, families, weights in parts:
        axis = {i: family(sizes[i]) for i, family in families.items()}
        weights = np.ones(len(cliques)) if weights is None else np.array(weights, dtype=float)
        made.append(QueryPart(np.array(cliques, dtype=np.int32), axis, None, weights))
    return QueryWorkload(domain, tuple(made))


def marginals(sizes, *degrees, weights=None):
    """All marginals of these degrees as products."""
    families = dict.fromkeys(range(len(sizes)), Marginal)
    parts = []
    for k in degrees:
        cliques = list(combinations(range(len(sizes)), k))
        parts.append((cliques, families, weights[: len(cliques)] if weights else None))
    return product_workload(workload(sizes, parts))


def mixed():
    """Prefix, range and marginal queries of degree 1 and 2 on three attributes, with weights."""
    pairs = [(0, 1), (0, 2), (1, 2)]
    families = {0: Prefix, 1: Marginal, 2: Range}
    parts = [(pairs, families, [1.0, 2.0, 0.5]), ([(0,), (1,)], {0: Marginal, 1: Marginal}, None)]
    return product_workload(workload((4, 3, 5), parts))


def set_gram(products, j):
    """⊗_i G_ij of one set, from its factors."""
    return reduce(np.kron, [g[k] for g, k in zip(products.grams, products.kinds[j])])


def expected_errors(products, covariance):
    """tr(G_j C) of every set for the covariance of all cells."""
    return [np.trace(set_gram(products, j) @ covariance) for j in range(len(products))]


def marginal_matrix(sizes, subset):
    """The queries of one marginal over all cells, shape (n_b, n)."""
    blocks = [np.eye(n) if bit else np.ones((1, n)) for n, bit in zip(sizes, subset)]
    return reduce(np.kron, blocks)
