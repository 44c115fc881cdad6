"""Associations that chance explains are neither clear, lost nor made up."""

import re

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.association import association_of
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.pairs import count_pairs
from adaptive_qs.evaluation.verdict import thresholds
from adaptive_qs.evaluation.verdict.chance import chi_square_variance
from adaptive_qs.evaluation.verdict.dependence import dependence_sentence
from adaptive_qs.evaluation.verdict.fates import Associations, Fate, associations

from ..report.made import made_evaluation


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
    found = association_of(count_pairs(JointCodes(pair)))
    fates = associations(made_evaluation(pair=pair, association=found))
    assert (fates.clear, fates.lost, fates.made_up) == (0, (), ())


@pytest.mark.parametrize(
    ("rows", "together", "clear"),
    [(7_000, 1, 0), (7_000, 34, 0), (7_000, 35, 1), (200, 9, 0), (200, 10, 1)],
)
def test_a_handful_of_rows_makes_no_clear_association(rows, together, clear):
    """V is 1 in each: both columns leave their most frequent value in the same rows."""
    assert max(thresholds.LEAST_OFF, thresholds.LEAST_OFF_PART * 7_000) == 35
    domain = Domain.from_sizes({"a": 2, "b": 2})
    true = np.zeros((2, rows), int)
    true[:, :together] = 1
    made = np.zeros((2, rows), int)
    made[0, :together] = made[1, -together:] = 1
    for first, second in ((true, made), (made, true)):
        pair = TablePair(
            CodedTable.from_codes(domain, first), CodedTable.from_codes(domain, second)
        )
        found = association_of(count_pairs(JointCodes(pair)))
        assert max(v[0, 1] for v in found.cramers_v) == pytest.approx(1)
        evaluation = made_evaluation(pair=pair, association=found)
        fates = associations(evaluation)
        lost, new = (clear, 0) if first is true else (0, clear)
        assert (len(fates.lost), len(fates.made_up)) == (lost, new)
        assert fates.clear == lost
        assert fates.rare == (first is true) - lost
        assert len(fates.changes) == clear
        assert fates.untold == 1 - clear


def fates_of(true, made, sizes):
    domain = Domain.from_sizes({f"c{i}": n for i, n in enumerate(sizes)})
    pair = TablePair(*(CodedTable.from_codes(domain, np.array(codes)) for codes in (true, made)))
    found = association_of(count_pairs(JointCodes(pair)))
    return associations(made_evaluation(pair=pair, association=found))


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


def test_a_column_that_lost_all_of_its_weak_associations_is_named(faint):
    """V of 0.15 and 0.12, w of 0.34 and 0.27: 6 values each."""
    made = faint.copy()
    made[2] = np.random.default_rng(9).permutation(made[2])
    found = fates_of(faint, made, [6] * 4)
    assert (found.clear, found.kept, found.lost) == (1, 1, ())
    assert found.weak == 2
    assert [fate.names for fate in found.weak_lost] == [("c0", "c2"), ("c1", "c2")]
    assert found.alone == ("c2",)
    sentence = dependence_sentence(found)
    assert (sentence.grade, sentence.word) == ("fair", "some lost")
    assert "“c2” comes out independent of all other columns." in sentence.text
    assert "Of 2 weak associations, 2 are lost: c0 × c2 (V 0.1" in sentence.text


def test_weak_associations_that_only_the_synthetic_table_has_are_counted(faint):
    true = faint.copy()
    true[2] = np.random.default_rng(9).permutation(true[2])
    found = fates_of(true, faint, [6] * 4)
    assert (found.weak, found.alone) == (0, ())
    assert [fate.names for fate in found.weak_made_up] == [("c0", "c2"), ("c1", "c2")]
    sentence = dependence_sentence(found)
    assert (sentence.grade, sentence.word) == ("fair", "some new")
    assert "2 weak associations, the largest c0 × c2 (V " in sentence.text
    assert "not measured together" in sentence.text


def test_a_column_that_keeps_one_association_is_not_alone(faint):
    """Its dependence on the second column goes on through the first."""
    rng = np.random.default_rng(10)
    made = np.array([faint[0], rng.permutation(faint[1]), faint[2], faint[3]])
    found = fates_of(faint, made, [6] * 4)
    assert [fate.names for fate in found.lost] == [("c0", "c1")]
    assert found.alone == ("c1",)


@pytest.mark.parametrize(("codes", "weak"), [(2, 0), (6, 1)])
def test_what_is_weak_is_told_by_the_size_of_the_effect(codes, weak):
    """V of 0.07 is w of 0.07 for two values and 0.16 for six; chance explains neither."""
    rng = np.random.default_rng(11)
    first = rng.integers(0, codes, 100_000)
    true = [first, leaning(rng, first, codes, 0.07)]
    made = [rng.permutation(column) for column in true]
    found = fates_of(true, made, [codes] * 2)
    assert (found.weak, len(found.weak_lost)) == (weak, weak)


def test_a_few_of_many_weak_ones_may_be_lost():
    """Up to a tenth is close where no column lost all of its own."""
    lost = (Fate(("a", "b"), 0.15, 0.0),)
    for weak, grade in ((10, "good"), (9, "fair")):
        sentence = dependence_sentence(made_fates(weak=weak, weak_lost=lost))
        assert sentence.grade == grade
        assert "a × b (V 0.150, now 0.000)" in sentence.text


@pytest.mark.parametrize("synthetic", [0.02, 0.22, 0.4, 0.62, 0.9])
def test_the_fates_of_clear_associations_add_up(synthetic):
    found = associations(made_evaluation(v=(0.5, synthetic)))
    assert found.kept + found.weaker + found.stronger + len(found.lost) == found.clear == 6
    text = dependence_sentence(found).text
    number = re.compile(r"(\d+) (?:kept|became weaker|stronger|are lost)")
    assert sum(map(int, number.findall(text.split(".")[0]))) == 6


def made_fates(**changes):
    nothing = np.zeros((2, 2))
    parts = {"clear": 0, "kept": 0, "weaker": 0, "stronger": 0, "lost": (), "made_up": (),
             "weak": 0, "weak_lost": (), "weak_made_up": (), "alone": (), "rare": 0,
             "told": nothing, "changes": (), "untold": 0}  # fmt: skip
    return Associations(**{**parts, **changes})
