"""What measured pairs imply of unmeasured ones: independence given what lies between them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.levels import Grouping
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.candidates import Candidates, CandidateSet
from adaptive_qs.loop.estimates import ImpliedPairs
from adaptive_qs.residual import ReferenceModel, centered, decompose
from adaptive_qs.workload.workload import Workload

from .helpers import Recorder
from .test_loop import assert_replays, domain_of, run

PLAIN = Domain((Attribute("a", 70), Attribute("b", 5), Attribute("c", 4), Attribute("d", 3)))
LEVELS = replace(PLAIN, groupings=(Grouping(0, tuple(k // 7 for k in range(70))),))
ROWS = 1000.0


def chain_of(domain, seed=0):
    """Counts of a chain a - b - c, given which every a of a group is alike; d is independent."""
    rng = np.random.default_rng(seed)
    sizes = [10, *domain.sizes[1:]]
    a = np.repeat(rng.dirichlet(np.full(10, 5.0)), 7) / 7
    b, c = (rng.dirichlet(np.ones(n), size=m) for m, n in pairwise(sizes[:3]))
    d = rng.dirichlet(np.full(3, 5.0))
    return ROWS * np.einsum("a,ab,bc,d->abcd", a, np.repeat(b, 7, axis=0), c, d)


def model_of(domain, counts, cliques, precision=1e6):
    every = tuple(range(4))
    reference = [counts.sum(axis=tuple({*every} - {i})) / ROWS for i in every]
    model = ReferenceModel(domain, reference)
    for tau in ((), (0,), (1,), (2,), (3,), *cliques):
        at = domain.columns(tau)
        values = domain.summed(decompose(counts, every, at), at, tau)
        model.update(tau, values, precision)
    return model


@pytest.mark.parametrize("first", [0, 4], ids=["codes", "groups"])
def test_a_pair_at_the_ends_of_a_path_is_independent_given_what_lies_between(first):
    domain = LEVELS if first else PLAIN
    counts = chain_of(domain)
    pairs, implied = [(first, 1), (1, 2)], ImpliedPairs(domain)
    assert implied.refresh(model_of(domain, counts, pairs[:1])) == []
    model = model_of(domain, counts, pairs)
    assert implied.refresh(model) == [(first, 2)]
    np.testing.assert_allclose(model.marginal((0, 2)), counts.sum(axis=(1, 3)), atol=1e-6)
    np.testing.assert_allclose(model.marginal((0, 1)), counts.sum(axis=(2, 3)), atol=1e-6)
    triple = model.marginal((0, 1, 2))
    np.testing.assert_allclose(triple.sum(axis=1), model.marginal((0, 2)), atol=1e-6)
    model.update((0, 1, 2), np.zeros(PLAIN.shape((0, 1, 2))), 1.0)
    found = centered(model.marginal((0, 1, 2)), domain, (0, 1, 2))
    np.testing.assert_allclose(found, 0.0, atol=1e-6)  # measured residuals are as measured
    model.update((0, 2), np.zeros(PLAIN.shape((0, 2))), 1.0)
    assert implied.refresh(model) == [(first, 2)]
    assert not model.fill


def test_noise_implies_nothing():
    counts = np.full(PLAIN.sizes, ROWS / np.prod(PLAIN.sizes))
    rng, model = np.random.default_rng(0), model_of(PLAIN, counts, [])
    for pair in ((0, 1), (1, 2), (2, 3)):
        noisy = centered(rng.normal(size=PLAIN.shape(pair), scale=10.0), PLAIN, pair)
        model.update(pair, noisy, 0.01)
    assert ImpliedPairs(PLAIN).refresh(model) == []


def test_pairs_that_others_imply_are_left_to_the_fit(monkeypatch):
    """A run on a chain of columns measures fewer pairs, and replays on a neighbour."""
    domain, rng = domain_of(*[6] * 8), np.random.default_rng(0)
    codes = rng.integers(0, 6, (4000, 8))
    for i in range(1, 8):
        kept = rng.random(4000) < 0.9
        codes[kept, i] = codes[kept, i - 1]
    rows, pairs = list(map(tuple, codes.tolist())), Workload.all_ways(domain, 2)
    settings, measured = LoopSettings(opening=False), []
    assert_replays(rows, rows[1:], pairs, 0.005, settings)
    for refresh in (ImpliedPairs.refresh, lambda *_: []):
        monkeypatch.setattr(ImpliedPairs, "refresh", refresh)
        rounds = run(rows, pairs, Recorder(0.005), 0.005, settings).rounds
        measured.append({each.clique for each in rounds if len(each.clique) > 1})
    few, many = map(len, measured)
    assert few < 0.8 * many


@pytest.mark.parametrize("groupings", [(), (Grouping(0, (0, 0, 0, 1, 1, 1)),)])
def test_a_light_triple_waits_for_the_pairs_that_are_asked_for(groupings):
    domain = replace(domain_of(6, 5, 4, 3), groupings=groupings)
    weights = {**Workload.all_ways(domain, 2).weights, (0, 1, 2): 0.02, (1, 2, 3): 0.6}
    every = CandidateSet(Workload(domain, weights), domain, lambda _: 1.0)
    candidates = Candidates(every, {}, 1.0, 2**20)
    light = [c for c in every.cliques if domain.columns(c) == (0, 1, 2)]

    def waiting():
        return [c for c, ready in zip(every.cliques, candidates.ready) if not ready]

    assert waiting() == light
    assert not candidates.open[[every.cliques.index(c) for c in light]].any()
    first = light[-1][0]  # at the coarser level, if there is one
    for pair in ((first, 1), (1, 2)):
        candidates.add({pair: 1.0})
    assert waiting() == light
    candidates.add({(first, 2): 1.0})
    assert waiting() == light[:-1]
