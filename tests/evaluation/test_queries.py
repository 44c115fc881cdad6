"""Errors of queries against their definition, query by query."""

from __future__ import annotations

import json
import math
from functools import reduce

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.evaluation import queries as module
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.evaluation.queries import (
    deviation_of_squares,
    query_error,
    resolve_compared,
    squared_error,
)
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.axes import Circular, Prefix, Range
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import Workload

from ..workload.families import AXIS, JOINT, identity_of
from .tables import rows_of, table

DOMAIN = Domain(
    (Attribute("a", 4), Attribute("b", 3), Attribute("c", 5), Attribute("d", 2, ordered=False))
)
TRUE, MADE = table(DOMAIN, 60, 1), table(DOMAIN, 45, 2)
PAIR = TablePair(TRUE, MADE)
PARTS = [
    {"ways": [1], "queries": "hybrid"},
    {"attributes": [["a", "b"], ["b", "c"]], "queries": "affine", "weight": 5.0},
    {"attributes": [["c", "d"]], "queries": {"c": "circular", "d": "marginal"}, "weight": 0.5},
    {"attributes": [["a", "b", "c"]], "queries": "range"},
    {"attributes": [["a", "b"]], "queries": {"family": "random", "p": 0.3, "count": 9, "seed": 7}},
]


def loaded(tmp_path, parts, domain=DOMAIN):
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"version": 1, "parts": parts}))
    return resolve_compared(path, domain)


def share(coded, clique):
    """The normalised marginal, cell by cell."""
    counts = np.zeros(DOMAIN.shape(clique))
    for row in rows_of(coded):
        counts[tuple(row[i] for i in clique)] += 1
    return counts / coded.num_rows


@pytest.mark.parametrize("queries", [*AXIS, *JOINT], ids=identity_of)
def test_squares_have_the_sum_of_those_of_every_answer(queries):
    difference = np.random.default_rng(1).normal(size=queries.shape)
    expected = ((queries.matrix() @ difference.ravel()) ** 2).sum()
    assert squared_error((queries,), difference) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_squares_of_products_are_those_of_the_kronecker_product():
    factors = (Range(4), CustomAxis([[1, -2, 0.5]]), Circular(5), Prefix(2))
    difference = np.random.default_rng(2).normal(size=(4, 3, 5, 2))
    matrix = reduce(np.kron, [factor.matrix() for factor in factors])
    expected = ((matrix @ difference.ravel()) ** 2).sum()
    assert squared_error(factors, difference) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_error_is_that_of_every_query_weighted(workers, tmp_path):
    workload, queries = loaded(tmp_path, PARTS)
    total, number = 0.0, 0
    for part in queries.parts:
        for index, clique in enumerate(part.cliques.tolist()):
            matrix = reduce(np.kron, [factor.matrix() for factor in part.queries(index)])
            errors = matrix @ (share(TRUE, clique) - share(MADE, clique)).ravel()
            total += part.weights[index] * (errors**2).sum()
            number += len(errors)
    steps = []
    found = query_error(JointCodes(PAIR), queries, workers, lambda *step: steps.append(step))
    assert found.whole.rmse == pytest.approx(math.sqrt(total / number), rel=1e-9)
    assert (found.whole.queries, found.whole.weighted) == (number, True)
    assert steps[-1] == (queries.num_sets, queries.num_sets)
    assert workload.weights[DOMAIN.clique(("a", "b"))] == 6.0
    assert set(workload.cliques) == {
        (0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (0, 1, 2)
    }  # fmt: skip


def test_a_fresh_sample_errs_as_told(tmp_path):
    """Mean squares over pairs of samples of one population, within five standard errors of both;
    the population is the true table, in which columns depend on each other."""
    queries = loaded(tmp_path, PARTS)[1]
    rng = np.random.default_rng(3)
    squares, told = [], []
    for _ in range(200):
        picked = (rng.integers(0, TRUE.num_rows, rows) for rows in (50, 30))
        sample, other = (
            CodedTable.from_codes(DOMAIN, [column[rows] for column in TRUE.columns])
            for rows in picked
        )
        found = query_error(JointCodes(TablePair(sample, other)), queries)
        squares.append([part.rmse**2 for part in found.parts])
        told.append([part.fresh**2 for part in found.parts])
    error = 5 * np.hypot(np.std(squares, axis=0), np.std(told, axis=0)) / np.sqrt(200)
    assert np.all(np.abs(np.mean(squares, axis=0) - np.mean(told, axis=0)) <= error)


def test_independent_columns_err_as_told(tmp_path):
    """Mean squares over tables drawn from the product, within five standard errors."""
    queries = loaded(tmp_path, PARTS)[1]
    rng = np.random.default_rng(4)
    singles = [share(TRUE, (i,)) for i in range(len(DOMAIN))]
    squares = []
    for _ in range(200):
        columns = [rng.choice(len(part), 30, p=part) for part in singles]
        pair = TablePair(TRUE, CodedTable.from_codes(DOMAIN, columns))
        found = query_error(JointCodes(pair), queries)
        squares.append([part.rmse**2 for part in found.parts])
    told = np.array([part.independent**2 for part in found.parts])
    error = 5 * np.std(squares, axis=0) / np.sqrt(200)
    assert np.all(np.abs(np.mean(squares, axis=0) - told) <= error)


def test_parts_are_named_and_add_up(tmp_path):
    parts = [*PARTS, {"attributes": [["a", "c"]], "queries": "absdiff"}]
    found = query_error(JointCodes(PAIR), loaded(tmp_path, parts)[1])
    assert [part.title for part in found.parts] == [
        "prefix and marginal of single columns", "affine of 2 columns",
        "circular and marginal of 2 columns", "range of 3 columns", "random of 2 columns",
        "absdiff of 2 columns",
    ]  # fmt: skip
    assert [part.sets for part in found.parts] == [4, 2, 1, 1, 1, 1]
    squares = sum(part.queries * part.rmse**2 for part in found.parts)
    assert found.whole.rmse == pytest.approx(math.sqrt(squares / found.whole.queries), rel=1e-12)


def test_of_marginals_it_is_the_error_of_the_cells():
    found = query_error(JointCodes(PAIR), all_ways_queries(DOMAIN, (1, 2)))
    cells = workload_error(TRUE, MADE, Workload.all_ways(DOMAIN, (1, 2)))
    assert found.whole.rmse == pytest.approx(cells.rmse, rel=1e-12)
    assert not found.whole.weighted


def test_equal_tables_answer_alike(tmp_path):
    queries = loaded(tmp_path, PARTS)[1]
    assert query_error(JointCodes(TablePair(TRUE, TRUE)), queries).whole.rmse == 0


def test_a_file_of_marginals_asks_for_no_queries(tmp_path):
    workload, queries = loaded(tmp_path, [{"ways": [2], "weight": 2.0}])
    assert queries is None
    assert set(workload.weights.values()) == {2.0}
    with pytest.raises(WorkloadError, match=r"w\.json: part 1"):
        loaded(tmp_path, [{"attributes": [["a", "z"]], "queries": "range"}])
    with pytest.raises(WorkloadError, match=r"w\.json: part 1"):
        loaded(tmp_path, [{"attributes": [["d"]], "queries": "prefix"}])


def test_sets_that_take_too_much_memory_are_refused_before_anything_is_counted(tmp_path):
    queries = loaded(tmp_path, [{"attributes": [["a", "b", "c"]], "queries": "range"}])[1]
    values = 5 * 4 * 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_DENSE_CELLS", values)
        assert query_error(JointCodes(PAIR), queries).whole.queries == 10 * 6 * 15
        patch.setattr(module, "MAX_DENSE_CELLS", values - 1)
        with pytest.raises(ResourceExceeded, match="on a x b x c take 120 values") as caught:
            query_error(JointCodes(PAIR), queries)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("queries", [*AXIS, *JOINT], ids=identity_of)
def test_the_deviation_of_squares_is_that_of_a_normal_error(queries, monkeypatch):
    """√(2 tr(QΣQᵀ)²) of all answers; the bound where Gram matrices are large is never below."""
    p = np.random.default_rng(2).dirichlet(np.ones(math.prod(queries.shape)))
    error = queries.matrix() @ (np.diag(p) - np.outer(p, p)) @ queries.matrix().T
    expected = math.sqrt(2 * (error**2).sum())
    shares = p.reshape(queries.shape)
    assert deviation_of_squares((queries,), shares) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(module, "MOST_GRAM", 0)
    bound = deviation_of_squares((queries,), shares)
    assert bound == pytest.approx(math.sqrt(2) * np.trace(error), rel=1e-9)
    assert bound >= expected * (1 - 1e-9)


def test_the_deviation_of_products_of_queries_is_that_of_drawn_samples():
    """4,000 draws of 2,000 rows; the spread of a variance is told by its kurtosis, five of it."""
    rng = np.random.default_rng(3)
    factors = (Range(4), Prefix(3))
    p = rng.dirichlet(np.ones(12))
    drawn = rng.multinomial(2_000, p, 4_000) / 2_000
    found = np.array([squared_error(factors, (d - p).reshape(4, 3)) for d in drawn])
    told = deviation_of_squares(factors, p.reshape(4, 3)) / 2_000
    spread = np.sqrt((stats.kurtosis(found) + 2) / len(found))
    assert found.var() == pytest.approx(told**2, rel=5 * spread)
