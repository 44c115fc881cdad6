"""Slow and obvious references: Kronecker matrices and the full table."""

from functools import reduce
from itertools import chain, combinations

import numpy as np


def kron(matrices):
    """The Kronecker product of a list of matrices; a 1 x 1 one for an empty list."""
    return reduce(np.kron, matrices, np.ones((1, 1)))


def ones(n):
    return np.ones((1, n))


def difference(n):
    """D_(n) of Fuentes et al.: row k is e_{k+1} − e_0."""
    return np.hstack([-np.ones((n - 1, 1)), np.eye(n - 1)])


def centering(n):
    return np.eye(n) - np.ones((n, n)) / n


def marginal(table, clique):
    """Sum of a full table over all other axes."""
    return table.sum(axis=tuple(k for k in range(table.ndim) if k not in clique))


def all_subsets(clique):
    return list(chain.from_iterable(combinations(clique, k) for k in range(len(clique) + 1)))


def spread(component, inner, outer, factors):
    """component ⊗ (⊗_{k ∈ outer∖inner} factors[k]) by one einsum."""
    operands = [component, list(inner)]
    for k in outer:
        if k not in inner:
            operands += [factors[k], [k]]
    return np.einsum(*operands, list(outer))


def full_table(sizes, reference, estimates):
    """p̂ of the reference model from scratch: the recursion for c_τ, then Σ c_τ ⊗ q."""
    everything = tuple(range(len(sizes)))
    tilted = [q - q.mean() for q in reference]
    components = {}
    for tau in sorted(estimates, key=len):
        c = np.array(estimates[tau], dtype=float)
        for sigma in all_subsets(tau)[:-1]:
            if sigma in components:
                c = c - spread(components[sigma], sigma, tau, tilted)
        components[tau] = c
    table = np.zeros(sizes)
    for tau, c in components.items():
        table += spread(c, tau, everything, reference)
    return table


def centered(array):
    """⊗Π_i applied as one Kronecker matrix to the flattened array."""
    projection = kron([centering(n) for n in np.shape(array)])
    return (projection @ np.ravel(array)).reshape(np.shape(array))
