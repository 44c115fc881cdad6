"""Exact distributions of tiny log-linear models, and residual models of known tables."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import chi2

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Domain
from adaptive_qs.generate.chains import Chains
from adaptive_qs.generate.loglinear import CarriedAttributes, LogLinearModel
from adaptive_qs.generate.structure import CoarseDomain, carried_zeros
from adaptive_qs.generate.targets import Target, make_target
from adaptive_qs.generate.tree import TreeMoves, dependence_tree, fill_from_tree
from adaptive_qs.generate.zeros import build_masks
from adaptive_qs.residual import ReferenceModel, decompose

FALSE_ALARM = 1e-6
"""Probability with which one chi-square test of a right sampler fails (fixed seeds: once)."""


def domain_of(*sizes):
    return Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})


def random_loglinear(domain, cliques, seed, spread=1.0, workers=1, zeros=(), carried=None):
    """A model with random weights, and its exact joint distribution by enumeration."""
    rng = np.random.default_rng(seed)
    singles = [rng.dirichlet(np.ones(n)) * 0.8 + 0.2 / n for n in domain.sizes]
    carried = carried or CarriedAttributes(domain, {})
    left = carried_zeros(zeros, carried)
    carriers = [carried.clique(c) for c in cliques]
    masks = build_masks(left, domain, [*carriers, *(zero.clique for zero in left)])
    several = [clique for clique in cliques if len(clique) > 1]
    model = LogLinearModel(domain, several, singles, workers, masks, (), carried)
    tables = {c: np.exp(rng.normal(scale=spread, size=domain.shape(c))) for c in cliques}
    for clique, table in tables.items():
        model.scale(clique, table)
    tables |= {zero.clique: tables.get(zero.clique, 1.0) * zero.allowed for zero in zeros}
    tables |= {(i,): tables.get((i,), 1.0) * single
               for i, single in enumerate(singles) if i not in carried.values}  # fmt: skip
    joint = np.ones(domain.sizes)
    for clique, table in tables.items():
        joint *= table.reshape([n if i in clique else 1 for i, n in enumerate(domain.sizes)])
    return model, joint / joint.sum()


def drawn_rows(joint, count, seed=0):
    """Rows drawn from a distribution over all cells."""
    cells = np.random.default_rng(seed).choice(joint.size, size=count, p=joint.ravel())
    return np.stack(np.unravel_index(cells, joint.shape), axis=1).astype(np.int32)


def chains_from(model, joint, cliques, rows, rng, **moves):
    """Chains of a model from these rows, with branches of the tree of its own marginals."""
    domain, count = model.domain, len(rows)
    singles = [count * margin(joint, (i,)) for i in range(len(domain))]
    targets = [Target(c, count * margin(joint, c), 1.0) for c in cliques]
    tree = dependence_tree(domain, targets, singles, (), model.carried)
    coarse = CoarseDomain(domain, cliques, singles, range(len(domain)))
    return Chains(model, TreeMoves(model, tree, singles, 1), rows, rng, coarse, **moves)


def draw_from_tree(nodes, singles, num_rows, rng):
    """Independent rows from a tree's distribution."""
    rows = np.empty((num_rows, len(nodes)), dtype=np.int32)
    fill_from_tree(rows, nodes, singles, rng)
    return rows


def margin(joint, clique):
    return joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in clique))


def histogram(rows, domain):
    return np.bincount(
        np.ravel_multi_index(tuple(rows.T), domain.sizes), minlength=math.prod(domain.sizes)
    ).reshape(domain.sizes)


def assert_drawn_from(counts, probabilities):
    """Pearson's test; cells that expect fewer than 10 draws are pooled."""
    counts, expected = np.ravel(counts), np.ravel(probabilities) * np.sum(counts)
    small = expected < 10
    assert not counts[expected == 0].any()
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(FALSE_ALARM, max(counts.size - 1, 1))


def marginal_of(rows, domain, clique):
    shape = domain.shape(clique)
    cells = np.ravel_multi_index(tuple(rows[:, i] for i in clique), shape)
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(float)


def residuals_of(rows, domain, cliques, noise_std=0.0, seed=0):
    """A residual model that measured one-way marginals and these cliques of a table."""
    rng = np.random.default_rng(seed)
    closure = downward_closure([*cliques, *((i,) for i in range(len(domain)))])
    model = ReferenceModel(domain, [np.full(n, 1 / n) for n in domain.sizes])
    _measure(model, rows, [c for c in closure if len(c) < 2], noise_std, rng)
    reference = []
    for i in range(len(domain)):
        counts = np.maximum(make_target(model, (i,)).counts, 0.5)
        reference.append(counts / counts.sum())
    model = ReferenceModel(domain, reference, model.estimates)
    _measure(model, rows, [c for c in closure if len(c) >= 2], noise_std, rng)
    return model


def _measure(model, rows, residuals, noise_std, rng):
    for tau in residuals:
        counts = marginal_of(rows, model.domain, tau) if tau else np.array(float(len(rows)))
        noisy = counts + rng.normal(scale=noise_std, size=counts.shape)
        model.update(tau, decompose(noisy, tau, tau), 1 / max(noise_std, 1e-3) ** 2)


def assert_depends_on_the_key_only(made):
    """``made(workers, key)`` gives the same for any number of workers, and not for another key."""
    first = made(1, 5)
    for workers in (2, 3):
        np.testing.assert_array_equal(first, made(workers, 5))
    assert (first != made(1, 6)).any()
