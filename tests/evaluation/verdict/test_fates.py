"""Associations that chance explains are neither clear, lost nor made up."""

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
from adaptive_qs.evaluation.verdict.fates import associations

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
