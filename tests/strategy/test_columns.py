"""Strategies of single columns against exact matrices and what they have to be best at."""

import numpy as np
import pytest

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.strategy import integer as columns
from adaptive_qs.strategy.integer import ColumnStrategy, GridFactor, column_strategies
from adaptive_qs.workload.file import WorkloadFile

DOMAIN = Domain(
    (Attribute("a", 12), Attribute("b", 7), Attribute("kind", 5, ordered=False), Attribute("c", 2))
)


def strategies_for(*parts, domain=DOMAIN):
    return column_strategies(
        WorkloadFile.parse({"version": 1, "parts": parts}).query_workload(domain)
    )


def prefixes(n):
    """All prefixes without what they ask of the total."""
    rows = np.tril(np.ones((n, n)))
    return rows - rows.mean(axis=1, keepdims=True)


def both(gram, covariance, least):
    """Error of the queries and of cells, each relative to the least that it can be."""
    n = len(gram)
    return np.trace(gram @ covariance) / least + np.trace(covariance) / ((n - 1) ** 2 / n)


def least_error(gram):
    """The optimum over strategies in the residual space, by its fixed point, slowly."""
    n = len(gram)
    y = np.full(n, 1 / n)
    for _ in range(4_000):
        half = np.sqrt(y)
        values, vectors = np.linalg.eigh(half[:, None] * gram * half)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        diagonal = np.diag(root) / y
        y = y * diagonal / np.trace(root)
        y /= y.sum()
    return np.trace(root) ** 2


def test_a_column_is_measured_as_well_as_can_be_for_its_queries_and_its_cells_together():
    strategy = strategies_for({"attributes": [["a"]], "queries": "prefix"})[0]
    n = 12
    gram = prefixes(n).T @ prefixes(n)
    least = least_error(gram)
    balanced = gram / least + (np.eye(n) - 1 / n) * n / (n - 1) ** 2
    integers = strategy.integers.astype(float)
    squared = (integers**2).sum(axis=0).max()
    found = both(gram, np.linalg.pinv(integers.T @ integers) * squared, least)
    # Solvers stop 1e-4 from the optimum, and integers of 16 bits keep all of that.
    assert least_error(balanced) <= found * (1 + 1e-6) <= least_error(balanced) * (1 + 3e-4)
    cells = (np.eye(n) - 1 / n) * (n - 1) / n
    assert found < both(gram, cells, least)


@pytest.mark.parametrize(
    "queries", ["prefix", "range", "circular", "absdiff", {"family": "random"}]
)
def test_cost_noise_and_sensitivity_are_those_of_the_integers(queries):
    found = strategies_for({"attributes": [["a", "b"]], "queries": queries})
    assert set(found) == {0, 1}
    for attribute, strategy in found.items():
        n = DOMAIN.sizes[attribute]
        rows = strategy.integers
        assert rows.dtype == np.int64
        assert not rows.sum(axis=1).any()
        lengths = [sum(int(x) ** 2 for x in column) for column in rows.T]
        assert strategy.squared_sensitivity == max(lengths)
        inverse = np.linalg.pinv(rows.T.astype(float) @ rows) * max(lengths)
        assert strategy.cost == pytest.approx(np.trace(inverse) / (n - 1), rel=1e-9)
        np.testing.assert_allclose(strategy.noise, inverse / strategy.cost, atol=1e-9)
        assert np.trace(strategy.noise) == pytest.approx(n - 1)
        counts = np.arange(n) ** 2
        np.testing.assert_array_equal(strategy.factor.answers(counts[:, None])[:, 0], rows @ counts)
        residual = strategy.estimate((rows @ counts).astype(float))
        np.testing.assert_allclose(residual, counts - counts.mean(), atol=1e-9)


def test_only_columns_that_are_asked_for_more_than_cells_have_one():
    assert strategies_for({"ways": [1, 2]}) == {}
    # Unordered columns are asked for their cells by hybrids, and two values have no ranges.
    assert set(strategies_for({"ways": [2], "queries": "hybrid"})) == {0, 1}
    mixed = {"attributes": [["a", "kind"]], "queries": {"a": "range", "kind": "marginal"}}
    assert set(strategies_for({"ways": [2]}, mixed)) == {0}


def test_long_columns_are_measured_by_their_cells(monkeypatch):
    monkeypatch.setattr(columns, "MOST_CODES", 8)
    assert set(strategies_for({"attributes": [["a", "b"]], "queries": "range"})) == {1}


@pytest.mark.parametrize(
    "rows",
    [
        [[1, -1, 0]],  # leaves something open
        [[1, -1, 0], [0, 1, 1]],  # sees the total
        [[columns.LARGEST + 1, -columns.LARGEST - 1, 0], [0, 1, -1]],
        np.empty((0, 3)),
    ],
)
def test_integers_that_are_no_strategy_are_refused(rows):
    with pytest.raises(ValueError, match="does not determine the residual"):
        ColumnStrategy.of_integers(np.array(rows, dtype=np.int64))


def test_the_digest_tells_strategies_apart():
    first = np.array([[1, -1, 0], [0, 1, -1]])
    one, other = (ColumnStrategy.of_integers(m) for m in (first, first * 2))
    assert one.digest != other.digest
    assert one.digest == ColumnStrategy(GridFactor(first.copy(), (True,), (3,))).digest
