"""The scale of the verdict against samples that are really drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation import associations
from adaptive_qs.evaluation import scale as thresholds
from adaptive_qs.evaluation.associations import (
    AssociationsCheck,
    associate,
    association_changes,
    chi_square_variance,
    dependence_sentence,
)
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.scale import (
    Scale,
    chance_l1,
    fresh_sample_l1,
    independent_l1,
    sparse_share,
)
from adaptive_qs.evaluation.tables import JointCodes, TablePair, count_pairs
from adaptive_qs.table.coded import CodedTable

from .made import made_evaluation, made_schema, marginals_finding

GRADES = ("good", "fair", "poor")
DRAWS = 60
POPULATIONS = {
    "four cells": [0.5, 0.3, 0.15, 0.05],
    "skewed, 10,000 cells": np.random.default_rng(1).dirichlet(np.full(10_000, 0.3)),
    "skewed, 100,000 cells": np.random.default_rng(2).dirichlet(np.full(100_000, 0.3)),
    "Zipf": 1 / np.arange(1, 50_001),
    "full and empty cells": [0.05] * 10 + [5e-6] * 100_000,
    "3,000 even cells": np.full(3_000, 1.0),
    "10,000 even cells": np.full(10_000, 1.0),
}


def drawn(shares, rows, number, seed):
    """Multinomial counts, shape (number, cells); row by row where that is fewer draws."""
    p = np.asarray(shares) / np.sum(shares)
    rng = np.random.default_rng(seed)
    if len(p) <= rows:
        return rng.multinomial(rows, p, number)
    ends = np.cumsum(p)[:-1]
    uniform = np.sort(rng.random((number, rows)))
    return np.array(
        [np.bincount(np.searchsorted(ends, u, "right"), minlength=len(p)) for u in uniform]
    )


@pytest.mark.parametrize("rows", [(5_000, 5_000), (5_000, 500), (5_000, 50_000)])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_fresh_sample_is_that_of_two_samples(name, rows):
    """Means over draws, within the allowed error and five standard errors of both."""
    n, m = rows
    first, second = (drawn(POPULATIONS[name], k, DRAWS, seed) for seed, k in enumerate(rows))
    found = np.abs(first / n - second / m).sum(axis=1)
    told = np.array([fresh_sample_l1(counts, m) for counts in first])
    error = 5 * np.hypot(found.std(), told.std()) / np.sqrt(DRAWS)
    assert told.mean() == pytest.approx(
        found.mean(), abs=error + thresholds.STEP_ERROR * found.mean()
    )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(5_000, 5_000), (5_000, 500)])
@pytest.mark.parametrize("name", POPULATIONS)
def test_chance_is_three_standard_deviations_or_more(name, rows):
    """The standard deviation of 200 draws is known to 5 %: five of its own are granted."""
    n, m = rows
    first, second = (drawn(POPULATIONS[name], k, 200, seed) for seed, k in enumerate(rows))
    found = np.abs(first / n - second / m).sum(axis=1).std()
    told = np.mean([chance_l1(n, m, sparse_share(counts)) for counts in first])
    assert 3 * found <= told * 1.25


def test_tables_without_chance():
    assert fresh_sample_l1(np.array([1_000, 0]), 1_000) == 0
    assert fresh_sample_l1(np.ones(1_000, dtype=int), 1_000) == pytest.approx(2)
    assert fresh_sample_l1(np.array([1]), 10) == 2


@pytest.mark.parametrize("rows", [1, 40, 2_000, 30_000])
def test_independent_columns_are_sampled_from_the_product_of_the_true_ones(rows):
    """Mean over 400 draws, within five standard errors."""
    rng = np.random.default_rng(3)
    counts = rng.multinomial(2_000, rng.dirichlet(np.full(120, 0.2))).reshape(12, 10)
    singles = [counts.sum(axis=1) / 2_000, counts.sum(axis=0) / 2_000]
    made = rng.multinomial(rows, np.outer(*singles).ravel(), 400) / rows
    found = np.abs(made - counts.ravel() / 2_000).sum(axis=1)
    error = 5 * found.std() / np.sqrt(400)
    assert independent_l1(counts, singles, rows) == pytest.approx(found.mean(), abs=error + 1e-9)


def test_every_so_many_th_marginal_gives_the_scale_where_there_are_too_many(monkeypatch):
    evaluation = made_evaluation()
    cliques = evaluation.workload.per_clique
    assert evaluation.scale.all
    assert evaluation.scale.l1 == pytest.approx(evaluation.workload.mean_l1)
    evaluation = made_evaluation()
    monkeypatch.setattr("adaptive_qs.evaluation.marginals.MOST_MARGINALS", len(cliques) - 1)
    scale = evaluation.scale
    assert not scale.all
    assert list(scale.per_clique) == [c.attributes for c in cliques[::2]]
    some = f"{len(cliques[::2]):,} of them, with mean error "
    assert some in marginals_finding(evaluation, scale).said


def population(rng, rows, codes, together, columns=3):
    hidden = rng.integers(0, codes, rows)
    return [
        np.where(rng.random(rows) < together, (hidden + i) % codes, rng.integers(0, codes, rows))
        for i in range(columns)
    ]


def judged(schema, true, made, ways):
    domain = schema.domain()
    tables = (CodedTable.from_codes(domain, codes) for codes in (true, made))
    evaluation = evaluate(*tables, schema, ways)
    found = evaluation.findings
    graded = [f for f in (found["columns"], found["association"]) if f.grade in GRADES]
    # what chance explains has no grade
    worst = max(graded, key=lambda f: [*GRADES].index(f.grade), default=None)
    return found["workload"], worst, evaluation.scale


def coded(names, codes):
    return made_schema(
        {"name": n, "type": "integer", "min": 0, "max": k - 1} for n, k in zip(names, codes)
    )


@pytest.mark.parametrize(
    ("codes", "together", "rows", "ways"),
    [(30, 0.5, 5_000, 3), (60, 0.5, 5_000, 2), (100, 0.6, 5_000, 2), (40, 0.4, 20_000, 3),
     (5, 0.3, 300, 2), (5, 0.0, 300, 2), (30, 0.5, 200, 2), (8, 0.3, 20_000, 3),
     (3_000, 0.5, 3_000, 1), ([5_000_000, 3_000, 3], 0.0, 5_000, 1)],
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_a_fresh_sample_is_never_far_nor_has_it_losses(codes, together, rows, ways, seed):
    """Also of numbers of persons: of a column of which every row has another value."""
    rng = np.random.default_rng(seed)
    if isinstance(codes, list):
        schema = coded(["id", "word", "kind"], codes)
        true, made = ([rng.integers(0, n, rows) for n in codes] for _ in range(2))
    else:
        schema = coded("abc", [codes] * 3)
        true, made = (population(rng, rows, codes, together) for _ in range(2))
    closeness, dependence, _ = judged(schema, true, made, ways)
    assert closeness.word in {"close", "no scale"}
    assert dependence.word == "kept"


@pytest.mark.parametrize(
    ("l1", "scale", "gone"),
    [(0.29, Scale(0.1, 0.3, 0.0, 0.05), True), (0.27, Scale(0.1, 0.3, 0.0, 0.05), False),
     (0.29, Scale(0.1, 0.3, 0.0, 0.25), False), (0.29, Scale(0.1, 0.3, 0.6, 0.05), False),
     (0.119, Scale(0.1, 0.119, 0.0, 0.0), False), (0.4, Scale(0.1, 0.1, 0.0, 0.0), False)],
)  # fmt: skip
def test_a_marginal_is_gone_only_where_independence_is_clearly_worse(l1, scale, gone):
    """Not near enough; chance explains it; few rows in a cell; too small; no dependence to lose."""
    assert scale.is_gone(l1) == gone


@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize(("rows", "other"), [(2_000, 2_000), (20_000, 20_000), (20_000, 4_000)])
def test_fresh_samples_of_weakly_dependent_columns_are_close(ways, rows, other):
    """All of them: nothing is told from chance below three to five standard deviations."""
    rng = np.random.default_rng(12)
    codes = [2, 3, 4, 5, 8, 12, 3, 2, 6, 4]
    schema = coded([f"c{k}" for k in range(10)], codes)
    together = rng.uniform(0.1, 0.6, 10)

    def sample(number):
        hidden = rng.random(number)
        return [
            (np.where(rng.random(number) < part, hidden, rng.random(number)) ** 1.5 * k).astype(int)
            for k, part in zip(codes, together)
        ]

    domain = schema.domain()
    tables = (CodedTable.from_codes(domain, sample(number)) for number in (rows, other))
    evaluation = evaluate(*tables, schema, ways)
    assert association_changes(evaluation.association, evaluation.pair.margins).weak > 0
    told = evaluation.verdict
    assert (told.overall.word, told.brief[3:]) == ("close", [])
    assert set(told.uses.values()) <= {"good", "plain"}


# Associations that chance explains are neither clear, lost nor made up.


def test_the_variance_of_chi_square_is_that_over_permutations():
    """Rare values make it 1.7 times as large as 2 (r − 1)(c − 1); 20,000 permutations.

    The kurtosis of χ² is moderate here: the variance is known to about √(10/20,000), 2 %.
    """
    rng = np.random.default_rng(1)
    first = np.repeat(np.arange(9), [40, 30, 20, 5, 1, 1, 1, 1, 1])
    second = np.repeat(np.arange(6), [50, 30, 17, 1, 1, 1])
    expected = np.outer(np.bincount(first), np.bincount(second)) / 100

    def chi_square():
        cells = np.bincount(first * 6 + rng.permutation(second), minlength=54).reshape(9, 6)
        return (cells**2 / expected).sum() - 100

    drawn = np.var([chi_square() for _ in range(20_000)])
    told = chi_square_variance([np.bincount(first), np.bincount(second)])[0, 1]
    spread = np.sqrt((stats.kurtosis([chi_square() for _ in range(5_000)]) + 2) / 20_000)
    assert drawn == pytest.approx(told, rel=5 * spread)


@pytest.mark.parametrize(("rows", "codes"), [(100, 300), (100, 5), (300, 50), (1_000, 300)])
def test_independent_columns_have_no_associations_to_lose_or_to_make_up(rows, codes):
    rng = np.random.default_rng(2)
    domain = Domain.from_sizes({f"c{k}": codes for k in range(12)})
    pair = TablePair(
        *(CodedTable.from_codes(domain, rng.integers(0, codes, (12, rows))) for _ in range(2))
    )
    found = associate(count_pairs(JointCodes(pair)))
    changes = association_changes(found, pair.margins)
    assert (changes.clear, changes.lost, changes.made_up) == (0, (), ())


@pytest.mark.parametrize(
    ("rows", "together", "clear"),
    [(7_000, 1, 0), (7_000, 34, 0), (7_000, 35, 1), (200, 9, 0), (200, 10, 1)],
)
def test_a_handful_of_rows_makes_no_clear_association(rows, together, clear):
    """V is 1 in each: both columns leave their most frequent value in the same rows."""
    assert max(associations.LEAST_OFF, associations.LEAST_OFF_PART * 7_000) == 35
    domain = Domain.from_sizes({"a": 2, "b": 2})
    true = np.zeros((2, rows), int)
    true[:, :together] = 1
    made = np.zeros((2, rows), int)
    made[0, :together] = made[1, -together:] = 1
    for first, second in ((true, made), (made, true)):
        pair = TablePair(
            CodedTable.from_codes(domain, first), CodedTable.from_codes(domain, second)
        )
        found = associate(count_pairs(JointCodes(pair)))
        assert max(v[0, 1] for v in found.cramers_v) == pytest.approx(1)
        changes = association_changes(found, pair.margins)
        lost, new = (clear, 0) if first is true else (0, clear)
        assert (len(changes.lost), len(changes.made_up)) == (lost, new)
        assert changes.clear == lost
        assert len(changes.largest) == clear


def changes_of(true, made, sizes):
    domain = Domain.from_sizes({f"c{i}": n for i, n in enumerate(sizes)})
    pair = TablePair(*(CodedTable.from_codes(domain, np.array(codes)) for codes in (true, made)))
    found = associate(count_pairs(JointCodes(pair)))
    return association_changes(found, pair.margins)


def leaning(rng, first, codes, part):
    """A column that is the first one in a part of the rows, and its own in the others."""
    return np.where(rng.random(len(first)) < part, first, rng.integers(0, codes, len(first)))


@pytest.fixture(scope="module")
def faint():
    """Of four columns: the first two depend clearly, the third weakly on both, the last on none."""
    rng = np.random.default_rng(8)
    first = rng.integers(0, 6, 20_000)
    second = leaning(rng, first, 6, 0.8)
    return np.array([first, second, leaning(rng, first, 6, 0.15), rng.integers(0, 6, 20_000)])


def test_a_column_that_lost_or_got_all_of_its_weak_associations_is_named(faint):
    """V of 0.15 and 0.12, w of 0.34 and 0.27: 6 values each."""
    other = faint.copy()
    other[2] = np.random.default_rng(9).permutation(other[2])
    found = changes_of(faint, other, [6] * 4)
    assert (found.clear, found.kept, found.lost, found.weak) == (1, 1, (), 2)
    assert [change.names for change in found.weak_lost] == [("c0", "c2"), ("c1", "c2")]
    assert found.unconnected == ("c2",)
    assert AssociationsCheck().word_for(found) == ("fair", "some lost")
    text = dependence_sentence(found, (20_000, 20_000))
    assert "is independent of all other columns" in text
    assert "Weak associations: 2 of 2 lost: c0 × c2 (V 0.1" in text
    few = replace(found, unconnected=(), weak=20)  # a tenth may be lost if no column is cut off
    assert AssociationsCheck().word_for(few) == ("good", "kept")
    assert AssociationsCheck().word_for(replace(few, weak=19)) == ("fair", "some lost")

    found = changes_of(other, faint, [6] * 4)
    assert (found.weak, found.unconnected) == (0, ())
    assert [change.names for change in found.weak_made_up] == [("c0", "c2"), ("c1", "c2")]
    assert AssociationsCheck().word_for(found) == ("fair", "some new")
    text = dependence_sentence(found, (20_000, 20_000))
    assert "2 weak associations, the largest c0 × c2 (V " in text
    assert "not measured together" in text


def test_a_column_that_keeps_one_association_is_not_unconnected(faint):
    """Its dependence on the second column goes on through the first."""
    rng = np.random.default_rng(10)
    made = np.array([faint[0], rng.permutation(faint[1]), faint[2], faint[3]])
    found = changes_of(faint, made, [6] * 4)
    assert [change.names for change in found.lost] == [("c0", "c1")]
    assert found.unconnected == ("c1",)


@pytest.mark.parametrize(("codes", "weak"), [(2, 0), (6, 1)])
def test_what_is_weak_is_told_by_the_size_of_the_effect(codes, weak):
    """V of 0.07 is w of 0.07 for two values and 0.16 for six; chance explains neither."""
    rng = np.random.default_rng(11)
    first = rng.integers(0, codes, 100_000)
    true = [first, leaning(rng, first, codes, 0.07)]
    made = [rng.permutation(column) for column in true]
    found = changes_of(true, made, [codes] * 2)
    assert (found.weak, len(found.weak_lost)) == (weak, weak)
