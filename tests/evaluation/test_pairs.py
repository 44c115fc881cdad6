"""Association against scipy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association as scipy_association

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation import tables
from adaptive_qs.evaluation.associations import associate, cramers_v
from adaptive_qs.evaluation.tables import JointCodes, PairSums, TablePair, count_pairs
from adaptive_qs.table.coded import CodedTable

from .tables import joint, table

DOMAIN = Domain.from_sizes({"a": 4, "b": 3, "c": 9, "one": 1, "d": 6})


def dependent(rows, seed):
    """Columns b and c depend on a; one is constant."""
    coded = table(DOMAIN, rows, seed)
    a, b, c, one, d = (column.astype(int) for column in coded.columns)
    return type(coded).from_codes(DOMAIN, [a, np.where(d > 2, a % 3, b), (c + 2 * a) // 2, one, d])


TRUE, SYNTHETIC = dependent(400, 1), dependent(150, 2)


@pytest.fixture(params=[tables.MAX_DENSE_CELLS, 12], ids=["dense", "sparse"])
def counts(request, monkeypatch):
    monkeypatch.setattr(tables, "MAX_DENSE_CELLS", request.param)
    return count_pairs(JointCodes(TablePair(TRUE, SYNTHETIC)), workers=2)


def contingency_table(coded, i, j):
    cells = np.zeros((DOMAIN.sizes[i], DOMAIN.sizes[j]), dtype=int)
    np.add.at(cells, (coded.columns[i], coded.columns[j]), 1)
    return cells[cells.any(axis=1)][:, cells.any(axis=0)]


def test_sums_are_those_of_scipy(counts):
    for coded, sums in zip((TRUE, SYNTHETIC), counts.sums):
        n = coded.num_rows
        for (i, j), pair in sums.items():
            cells = contingency_table(coded, i, j)
            assert pair.occupied == np.count_nonzero(cells)
            if min(cells.shape) > 1:
                chi2 = chi2_contingency(cells, correction=False).statistic
                assert pair.squares - 1 == pytest.approx(chi2 / n)
                plain = np.sqrt((pair.squares - 1) / (min(cells.shape) - 1))
                assert plain == pytest.approx(scipy_association(cells, method="cramer"))


def bergsma(cells):
    """The correction as the paper writes it."""
    n, (r, c) = cells.sum(), cells.shape
    phi = chi2_contingency(cells, correction=False).statistic / n
    phi = max(0, phi - (r - 1) * (c - 1) / (n - 1))
    r, c = r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)
    return np.sqrt(phi / min(r - 1, c - 1))


def test_matrices_are_the_corrected_measures(counts):
    found = associate(counts)
    assert found.names == DOMAIN.names
    for coded, v in zip((TRUE, SYNTHETIC), found.cramers_v):
        np.testing.assert_array_equal(v, v.T)
        np.testing.assert_array_equal(np.diag(v), 1)
        assert ((v >= 0) & (v <= 1)).all()
        assert v[3, [0, 1, 2, 4]].tolist() == [0, 0, 0, 0]
        for i, j in [(0, 1), (0, 2), (1, 2), (2, 4)]:
            assert v[i, j] == pytest.approx(bergsma(contingency_table(coded, i, j)))


def test_a_column_that_determines_another_has_the_largest_v():
    rows = [(k, k // 3, k % 2) for k in range(12)] * 5
    found = associate(count_pairs(joint(rows, rows, {"a": 12, "b": 4, "c": 2})))
    # V = √((φ² − (r−1)(c−1)/(N−1)) / (c−1 − (c−1)²/(N−1))), with φ² = c−1 = 3, r = 12, N = 60
    assert found.cramers_v[0][0, 1] == pytest.approx(np.sqrt((3 - 33 / 59) / (3 - 9 / 59)))


def test_independent_columns_have_none_although_the_plug_in_has():
    """The mean of φ² − (r−1)(c−1)/(N−1) over independent tables is 0."""
    domain = Domain.from_sizes({"a": 10, "b": 10})
    plain = []
    for seed in range(200):
        coded = table(domain, 300, seed)
        (sums,) = count_pairs(JointCodes(TablePair(coded, coded))).sums[0].values()
        plain.append(sums.squares - 1 - 81 / 299)
    # φ²·N is nearly χ² with 81 degrees of freedom: standard deviation √162/300; five standard
    # errors of the mean of 200 miss by chance with probability below 1e-6
    assert abs(np.mean(plain)) < 5 * np.sqrt(162) / 300 / np.sqrt(200)
    assert cramers_v(PairSums(1.2, 100, 0.0), 300, 10, 10) == 0


def test_tiny_tables_have_finite_associations():
    for true in ([(0, 0)], [(0, 1), (1, 0)], [(0, 0), (1, 1), (2, 1)]):
        found = associate(count_pairs(joint(true, [(0, 0)], {"a": 3, "b": 2})))
        for matrix in found.cramers_v:
            assert np.isfinite(matrix).all()


def test_many_columns_are_quick_and_small():
    domain = Domain.from_sizes({f"a{i}": 2**31 if i == 0 else 5 for i in range(110)})
    found = associate(
        count_pairs(JointCodes(TablePair(table(domain, 50, 1), table(domain, 60, 2))))
    )
    assert found.cramers_v[0].shape == (110, 110)


def test_the_influence_of_rows_is_the_variance_of_the_squared_strength():
    """4,000 tables of 20,000 rows; one cell of a few rows makes it 5 times 4 φ².

    The spread of a variance is told by the kurtosis: five of its standard deviations.
    """
    rng = np.random.default_rng(4)
    p = np.array([[0.004, 0.001, 0.005], [0.004, 0.4, 0.3], [0.001, 0.085, 0.2]])
    found = []
    for counts in rng.multinomial(20_000, p.ravel(), 4_000).reshape(-1, 3, 3):
        expected = np.outer(counts.sum(axis=1), counts.sum(axis=0))
        found.append((counts**2 / expected).sum() - 1)
    codes = np.repeat(np.arange(9), np.rint(p.ravel() * 20_000).astype(int))
    coded = CodedTable.from_codes(Domain.from_sizes({"a": 3, "b": 3}), [codes // 3, codes % 3])
    (sums,) = count_pairs(JointCodes(TablePair(coded, coded))).sums[0].values()
    assert sums.influence > 5 * 4 * (sums.squares - 1)
    spread = np.sqrt((stats.kurtosis(found) + 2) / len(found))
    assert np.var(found) == pytest.approx(sums.influence / 20_000, rel=5 * spread + 0.02)
