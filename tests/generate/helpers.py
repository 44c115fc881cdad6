"""Exact distributions of tiny log-linear models, and residual models of known tables."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from scipy.stats import chi2

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Domain
from adaptive_qs.generate.loglinear import LogLinearModel
from adaptive_qs.generate.targets import make_target
from adaptive_qs.generate.tree import fill_from_tree
from adaptive_qs.residual import ReferenceModel, decompose

FALSE_ALARM = 1e-6
"""Probability with which one chi-square test of a right sampler fails (fixed seeds: once)."""


def domain_of(*sizes):
    return Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})


def random_loglinear(domain, cliques, seed, spread=1.0, workers=1):
    """A model with random weights, and its exact joint distribution by enumeration."""
    rng = np.random.default_rng(seed)
    singles = [rng.dirichlet(np.ones(n)) * 0.8 + 0.2 / n for n in domain.sizes]
    model = LogLinearModel(domain, cliques, singles, workers)
    tables = {}
    for clique in cliques:
        tables[clique] = np.exp(rng.normal(scale=spread, size=domain.shape(clique)))
        model.scale(clique, tables[clique])
    joint = np.zeros(domain.sizes)
    for row in product(*(range(n) for n in domain.sizes)):
        joint[row] = math.prod(s[v] for s, v in zip(singles, row)) * math.prod(
            tables[c][tuple(row[i] for i in c)] for c in cliques
        )
    return model, joint / joint.sum()


def drawn_rows(joint, count, seed=0):
    """Rows drawn from a distribution over all cells."""
    cells = np.random.default_rng(seed).choice(joint.size, size=count, p=joint.ravel())
    return np.stack(np.unravel_index(cells, joint.shape), axis=1).astype(np.int32)


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
