"""Small subworkloads of every form, and the slow definition of a strategy's error."""

from functools import reduce
from itertools import combinations

import numpy as np

from adaptive_qs.domain import Domain
from adaptive_qs.strategy.solution import DenseFactor
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import Custom, CustomAxis
from adaptive_qs.workload.residuals import CenteredAxis, CenteredQueries, Subworkload, Term
from adaptive_qs.workload.workload import QueryPart, QueryWorkload


def axis(family, size):
    return CenteredAxis(family(size))


def numbers(rows, cells, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, cells))


def product(*factors, scale=1.0):
    return Subworkload(tuple(f.shape[0] for f in factors), (Term(scale, factors),))


def joint(queries, scale=1.0):
    part = CenteredQueries(queries, tuple(range(len(queries.shape))))
    return Subworkload(queries.shape, (Term(scale, (part,)),))


def added(*subworkloads):
    terms = tuple(term for one in subworkloads for term in one.terms)
    return Subworkload(subworkloads[0].shape, terms)


PRODUCTS = {
    "prefix": product(axis(Prefix, 6)),
    "range x prefix": product(axis(Range, 4), axis(Prefix, 3), scale=2.5),
    "custom": product(CenteredAxis(CustomAxis(numbers(9, 5)))),
    "three axes": product(axis(Range, 3), axis(Circular, 4), axis(Prefix, 2), scale=0.3),
}
JOINTS = {
    "few rows": joint(Affine(4, 3), 1.5),
    "many rows": joint(Custom(numbers(20, 6), (2, 3))),
    "one axis": joint(Custom(numbers(3, 5), (5,))),
    "all rows few": added(joint(Affine(4, 4)), joint(AbsDiff(4, 4), 2.0)),
    "joint and product": added(
        joint(AbsDiff(3, 3)), product(axis(Prefix, 3), axis(Range, 3), scale=0.7)
    ),
    "two products": added(
        product(axis(Prefix, 4), axis(Range, 3)), product(axis(Marginal, 4), axis(Prefix, 3))
    ),
}
ALL = PRODUCTS | JOINTS


def dense_error(subworkload, strategy):
    """tr(G V⁺) from the whole matrices."""
    b = reduce(np.kron, [factor.matrix for factor in strategy.factors], np.eye(1))
    return float(np.trace(subworkload.gram() @ np.linalg.pinv(b.T @ b, rcond=1e-9)))


def all_ways(sizes, *parts):
    """A workload from (k, family) pairs; a family of pairs is asked jointly."""
    built = []
    for ways, family in parts:
        cliques = np.array(list(combinations(range(len(sizes)), ways)), dtype=np.int32)
        together = family in (Affine, AbsDiff)
        asked = tuple(family(*(sizes[i] for i in row)) for row in cliques) if together else None
        each = {} if together else {i: family(n) for i, n in enumerate(sizes)}
        built.append(QueryPart(cliques, each, asked, np.ones(len(cliques))))
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})
    return QueryWorkload(domain, tuple(built))


def random_basis(size, rows=2):
    """A factor that spans the mean-free vectors of one axis and measures nothing else."""
    matrix = numbers(size + rows, size, seed=size)
    return DenseFactor(matrix - matrix.mean(axis=1, keepdims=True), (size,))
