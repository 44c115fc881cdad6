"""Limitations are named where they hold, and not elsewhere."""

import numpy as np
import pytest

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.association import association_of
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.limits import limitations_of
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.pairs import count_pairs
from adaptive_qs.evaluation.rows import row_checks


def drawn(rows, codes, seed):
    domain = Domain.from_sizes({"a": codes, "b": codes, "c": 2})
    rng = np.random.default_rng(seed)
    return CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in domain.sizes])


def said(true, synthetic):
    joint = JointCodes(TablePair(true, synthetic))
    counts = count_pairs(joint)
    return counts, " ".join(limitations_of(counts, (), row_checks(joint)))


def test_the_same_rows_are_named():
    true = drawn(2_000, 9, 1)
    assert "the synthetic rows are the true rows" in said(true, true)[1]
    assert "the synthetic rows are the true rows" not in said(true, drawn(2_000, 9, 2))[1]


@pytest.mark.parametrize(("codes", "named"), [(300, True), (9, False)])
def test_mutual_information_of_wide_columns_and_few_rows_is_not_to_be_read(codes, named):
    """Independent columns: whatever mutual information there is, is bias."""
    counts, text = said(drawn(1_000, codes, 1), drawn(1_000, codes, 2))
    information = association_of(counts).mutual_information[0]
    assert (information[0, 1] > 0.5) == named
    assert (information[0, 2] > 0.05) == named
    assert ("mutual information may be too large for 3 of 3 pairs, a x b most" in text) == named
