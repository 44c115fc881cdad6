"""Small workloads, and the error of a mechanism from whole matrices."""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import numpy as np

from adaptive_qs.domain import Domain
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

SIZES = (3, 4, 2)
DOMAIN = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
FEW = {0: CustomAxis([[1, 2, 0]]), 1: CustomAxis([[0, 1, 1, 0], [3, 0, 0, -1]]), 2: Marginal(2)}


def products(ways, family, weights=None):
    sets = np.array(list(combinations(range(3), ways)), np.int32)
    axis = family if isinstance(family, dict) else {i: family(n) for i, n in enumerate(SIZES)}
    return QueryPart(sets, axis, None, np.ones(len(sets)) if weights is None else np.array(weights))


def pairs(family, weights=None):
    sets = list(combinations(range(3), 2))
    joint = tuple(family(SIZES[i], SIZES[j]) for i, j in sets)
    return QueryPart(np.array(sets, np.int32), {}, joint, np.array(weights or [1.0] * 3))


WORKLOADS = {
    "marginal": QueryWorkload(DOMAIN, (products(1, Marginal), products(2, Marginal, [1, 2, 3.0]))),
    "circular": QueryWorkload(DOMAIN, (products(3, Circular),)),
    "range": QueryWorkload(DOMAIN, (products(1, Range), products(3, Range, [0.5]))),
    "prefix": QueryWorkload(DOMAIN, (products(2, Prefix, [1, 0.2, 5.0]),)),
    "few": QueryWorkload(DOMAIN, (products(2, FEW),)),
    "joint": QueryWorkload(
        DOMAIN, (products(1, Prefix), pairs(Affine), pairs(AbsDiff, [2.0, 1, 1]))
    ),
}


def spread(clique):
    """The 0/1 matrix from the whole domain to a marginal."""
    each = [np.eye(n) if i in clique else np.ones((1, n)) for i, n in enumerate(SIZES)]
    return reduce(np.kron, each)


def query_matrix(workload):
    """All queries over the whole domain, times the roots of their weights."""
    rows = []
    for number, index, weight in workload.sets():
        part = workload.parts[number]
        matrix = reduce(np.kron, [q.matrix() for q in part.queries(index)])
        rows.append(np.sqrt(weight) * matrix @ spread(part.cliques[index].tolist()))
    return np.concatenate(rows)


def strategy_matrix(mechanism):
    """All measurements of strategies over the whole domain, of privacy cost 1 together."""
    rows = []
    for number in range(mechanism.num_measurements):
        measurement = mechanism.measurement(number)
        matrices = [factor.matrix for factor in measurement.strategy.factors]
        matrix = reduce(np.kron, matrices, np.eye(1)) @ spread(measurement.clique)
        rows.append(np.sqrt(measurement.share) * matrix)
    return np.concatenate(rows)


def dense_error(mechanism):
    """tr(W V⁺ Wᵀ) with V of all measurements."""
    b, w = strategy_matrix(mechanism), query_matrix(mechanism.workload)
    return float(np.trace(w @ np.linalg.pinv(b.T @ b, rcond=1e-11, hermitian=True) @ w.T))


def summed_variances(mechanism):
    """Σ weight · variance over every query."""
    return sum(
        weight * float(mechanism.variances(part, index).sum())
        for part, index, weight in mechanism.workload.sets()
    )
