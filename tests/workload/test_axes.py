"""One contract for every family of queries, with the explicit matrix as the oracle."""

from __future__ import annotations

import re
from functools import reduce

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import answer
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, FirstCells, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random, answer_product, count_queries, squares_product
from adaptive_qs.workload.matrices import Custom, CustomAxis, MatrixQueries, Queries

from .families import AXIS, JOINT, definition, identity_of, numbers

ROUNDING = 1e-12
"""A thousand times the rounding of a double: enough for sums of a few hundred terms."""

every_family = pytest.mark.parametrize("queries", AXIS + JOINT, ids=identity_of)
trailing = pytest.mark.parametrize("more", [(), (3,), (2, 3)])


@every_family
def test_the_matrix_is_what_the_words_of_the_family_say(queries):
    assert isinstance(queries, Queries)
    np.testing.assert_array_equal(queries.matrix(), np.array(definition(queries), dtype=float))
    assert queries.matrix().shape == (queries.num_queries, np.prod(queries.shape))
    assert queries.integral == bool((queries.matrix() % 1 == 0).all())


@every_family
def test_closed_forms_are_those_of_the_matrix(queries):
    q = queries.matrix()
    np.testing.assert_allclose(queries.gram(), q.T @ q, rtol=0, atol=ROUNDING * len(q))
    np.testing.assert_allclose(queries.sums(), q.sum(axis=1), atol=ROUNDING)
    np.testing.assert_allclose(queries.column_norms(), (q**2).sum(axis=0), rtol=ROUNDING)
    np.testing.assert_allclose(queries.squared_sums(), (q.sum(axis=1) ** 2).sum(), rtol=ROUNDING)


@trailing
@every_family
def test_answers_are_those_of_the_matrix(queries, more):
    q = queries.matrix()
    table = numbers(*q.shape[1:], np.prod(more, dtype=int)).reshape(*queries.shape, *more)
    slow = np.tensordot(q, table.reshape(q.shape[1], *more), 1)
    assert queries.answer(table).shape == slow.shape
    np.testing.assert_allclose(queries.answer(table), slow, atol=ROUNDING)


@trailing
@pytest.mark.parametrize("scale", [1, 2**52])
@pytest.mark.parametrize("queries", [q for q in AXIS + JOINT if q.integral], ids=identity_of)
def test_whole_tables_have_exact_answers(queries, more, scale):
    q = queries.matrix()
    small = np.random.default_rng(0).integers(-20, 20, (*queries.shape, *more))
    table = small * scale + small  # beyond 2^53 the last digits tell
    slow = np.tensordot(q.astype(int).astype(object), table.reshape(q.shape[1], *more), 1)
    fast = queries.answer(table)
    assert fast.dtype == table.dtype
    assert (fast == slow).all()


@trailing
@every_family
def test_squares_are_the_variances_of_the_answers(queries, more):
    q = queries.matrix()
    half = numbers(*q.shape[1:], 2 * np.prod(more, dtype=int) * q.shape[1], seed=1)
    half = half.reshape(q.shape[1], -1, *more)
    c = np.einsum("ik...,jk...->ij...", half, half)
    slow = np.einsum("qi,ij...,qj->q...", q, c, q)
    scale = np.abs(c).sum(axis=(0, 1)).max() * np.abs(q).max() ** 2
    assert queries.squares(c).shape == slow.shape
    np.testing.assert_allclose(queries.squares(c), slow, rtol=0, atol=ROUNDING * scale)


@every_family
def test_there_is_a_label_for_each_query(queries):
    names = ("age", "hours", "size")[: len(queries.shape)]
    values = tuple(tuple(f"{10 * i}" for i in range(n)) for n in queries.shape)
    labels = list(queries.labels(names, values))
    assert len(labels) == queries.num_queries
    # Arcs of full length are one query, asked from every start.
    circle = queries.queries if isinstance(queries, FirstCells) else queries
    repeated = circle.size - 1 if isinstance(circle, Circular) else 0
    assert len(set(labels)) == len(labels) - repeated
    if len(names) == 1 or not isinstance(queries, MatrixQueries):
        assert all(name in label for name in names for label in labels)
    else:  # the columns of the matrix may run over the attributes in another order
        assert not any(name in label for name in names for label in labels)


AGES = (("17", "22", "39"),)


@pytest.mark.parametrize(
    ("queries", "row", "label"),
    [
        (Marginal(3), 1, "age = 22"),
        (Prefix(3), 2, "age <= 39"),
        (Range(3), 2, "age in [17, 39]"),
        (Range(3), 3, "age in [22, 22]"),
        (Circular(3), 1, "age in [17, 22]"),
        (Circular(3), 2, "age anywhere"),
        (Circular(3), 7, "age from 39 to 17, around the end"),
        (CustomAxis(np.eye(3)), 2, "age: custom query 3"),
        (Random((3,), seed=5), 0, "age: random query 1 of seed 5"),
    ],
)
def test_labels_say_which_rows_are_counted(queries, row, label):
    assert list(queries.labels(("age",), AGES))[row] == label


@pytest.mark.parametrize("n", range(1, 8))
def test_labels_of_arcs_agree_with_what_is_counted(n):
    queries = Circular(n)
    labels = queries.labels(("x",), (tuple(map(str, range(n))),))
    for row, label in zip(queries.matrix(), labels, strict=True):
        first, last = 0, n - 1
        if label != "x anywhere":
            first, last = map(int, re.findall(r"[0-9]+", label))
        assert label.endswith("around the end") == (first > last)
        cells = [*range(first, last + 1)] or [*range(first, n), *range(last + 1)]
        assert np.flatnonzero(row).tolist() == sorted(cells)


HOURS = pd.DataFrame({"hour": [*range(4), None] * 100, "kind": ["a", "b"] * 250})
COUNTED = {
    "hour": {"name": "hour", "type": "integer", "min": 0, "max": 3, "missing": [""]},
    "kind": {"name": "kind", "type": "categorical", "values": ["a", "b"], "ordered": True},
}


@pytest.mark.parametrize("kind", [{}, {"values": ["a"], "catch_all": "other"}])
def test_no_arc_counts_rows_without_a_value(kind):
    schema = {"version": 1, "columns": [COUNTED["hour"], COUNTED["kind"] | kind]}
    asked = {"version": 1, "parts": [{"ways": [1, 2], "queries": "circular"}]}
    table = HOURS.astype({"hour": "Int64"})
    found = answer(table, schema, asked, rho=1e5, beyond_limits=True, insecure_seed=1).to_pandas()
    hours = found[found["attributes"] == "hour"].set_index("query")["estimate"]
    around = hours["hour from 3 to 1, around the end"]
    assert around == pytest.approx(300, abs=1)
    assert hours["hour in [0, 3]"].to_numpy() == pytest.approx(400, abs=1)
    assert len(hours) == 16
    kinds = found[found["attributes"] == "kind"].set_index("query")["estimate"]
    whole = "kind in [a, a]" if kind else "kind anywhere"
    assert np.all(np.abs(kinds[whole] - (250 if kind else 500)) <= 1)


@pytest.mark.parametrize(
    ("queries", "label"),
    [
        (Custom(np.eye(4), (2, 2)), "custom query 2"),
        (Random((2, 2), seed=0), "random query 2 of seed 0"),
        (Affine(2, 2), "age + job <= 1 (codes)"),
        (AbsDiff(2, 2), "|age - job| <= 1 (codes)"),
    ],
)
def test_labels_of_joint_queries_speak_of_codes(queries, label):
    assert list(queries.labels(("age", "job"), (("a", "b"), ("c", "d"))))[1] == label


@pytest.mark.slow
@pytest.mark.parametrize("family", [Range, Circular])
def test_ranges_over_ten_thousand_values_are_not_materialised(family):
    n, i = 10_000, np.array([0, 1, 4_321, 9_999])
    d = np.abs(i[:, None] - i)
    low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
    arcs = ((n - d) * (n - d + 1) + d * (d + 1)) // 2
    gram = family(n).gram()
    assert (gram[np.ix_(i, i)] == ((low + 1) * (n - high) if family is Range else arcs)).all()
    assert gram.sum() == pytest.approx(family(n).squared_sums(), rel=1e-9)


def test_equal_queries_are_equal_values():
    same = numbers(3, 6)
    assert len({Custom(same, (2, 3)), Custom(same.tolist(), (2, 3))}) == 1
    assert Custom(same, (2, 3)) != Custom(same, (3, 2))
    assert Custom([[0.0]], (1,)) == Custom([[-0.0]], (1,))
    assert Random((2, 3)) == Random((2, 3), count=18)
    assert len({family(4) for family in (Marginal, Prefix, Range, Circular)} | {Range(4)}) == 4
    assert Affine(2, 3) != AbsDiff(2, 3) != AbsDiff(3, 2)


def test_a_custom_matrix_is_a_copy_that_cannot_change():
    given = np.eye(2)
    queries = CustomAxis(given)
    given[0, 0] = 7
    assert queries.matrix()[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        queries.coefficients[0, 0] = 7


def test_random_queries_depend_on_seed_and_shape_and_on_nothing_else():
    # The cache holds two, so that the third is drawn again.
    drawn = [Random((4, 5), 0.3, 50, seed).matrix() for seed in (1, 2, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert (drawn[0] != drawn[1]).any()
    assert (Random((5, 4), 0.3, 50, 1).matrix() != drawn[0]).any()
    assert (Random((3,), 1.0).matrix() == 1).all()


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: CustomAxis([[1, float("nan")]]), WorkloadError, "row 1 .* not a number"),
        (lambda: CustomAxis([[1, 1], [1, float("inf")]]), WorkloadError, "row 2"),
        (lambda: CustomAxis([[1, 2e9]]), WorkloadError, "at most 1e\\+09"),
        (lambda: CustomAxis([1.0, 2.0]), WorkloadError, "has 1 dimension of type float64, not 2"),
        (lambda: CustomAxis(5), WorkloadError, "0 dimensions"),
        (lambda: CustomAxis([["a"]]), WorkloadError, "real numbers"),
        (lambda: CustomAxis([[1j]]), WorkloadError, "real numbers"),
        (lambda: CustomAxis(np.empty((0, 3))), WorkloadError, "no rows"),
        (lambda: CustomAxis(np.empty((3, 0))), WorkloadError, "0 columns"),
        (lambda: Custom(np.eye(5), (2, 3)), WorkloadError, "5 columns for 6 cells"),
        (lambda: Custom(np.broadcast_to(1.0, (10**5, 1_001)), (1_001,)), ResourceExceeded, "fewer"),
        (lambda: Random((3,), 0.0), WorkloadError, "p is 0.0"),
        (lambda: Random((3,), float("nan")), WorkloadError, "p is nan"),
        (lambda: Random((3,), 1.1), WorkloadError, "p is 1.1"),
        (lambda: Random((3,), 0.5, 0), WorkloadError, "count is 0"),
        (lambda: Random((3,), 0.5, 3, -1), WorkloadError, "seed is -1"),
        (lambda: Random((100, 100)), ResourceExceeded, "300,000,000 coefficients"),
        (lambda: Prefix(0), ValueError, "0 cells"),
        (lambda: Affine(2, 0), ValueError, "cells"),
    ],
)
def test_queries_without_meaning_are_refused(build, kind, message):
    with pytest.raises(kind, match=message):
        build()


def test_answers_to_unsigned_counts_may_be_negative_and_none_may_overflow():
    answers = CustomAxis([[1, -2]]).answer(np.array([1, 5], dtype=np.uint32))
    assert (answers.dtype, answers.tolist()) == (np.int64, [-9])
    with pytest.raises(ResourceExceeded, match="do not fit in int64"):
        CustomAxis([[10**9, 10**9]]).answer(np.array([2**40, 2**40]))


# Products of queries against their Kronecker products.

RNG = np.random.default_rng(0)
QUERIES = {
    "one": (Range(4),),
    "two": (Prefix(3), Marginal(4)),
    "three": (Range(3), CustomAxis(RNG.normal(size=(2, 4))), Circular(2)),
    "joint": (Affine(3, 4),),
    "none": (),
}


def shape(queries):
    return tuple(n for q in queries for n in q.shape)


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_variances_are_those_of_the_kronecker_product(name):
    queries = QUERIES[name]
    sizes = shape(queries)
    cells = int(np.prod(sizes))
    root = RNG.normal(size=(cells, cells))
    covariance = root @ root.T
    for summed in range(-1, len(queries)):
        asked = tuple(None if axis == summed else q for axis, q in enumerate(queries))
        matrices = [np.ones((1, n)) if q is None else q.matrix() for q, n in zip(asked, sizes)]
        matrix = reduce(np.kron, matrices)
        expected = np.diag(matrix @ covariance @ matrix.T)
        found = squares_product(asked, covariance.reshape(sizes + sizes))
        assert found.shape == tuple(q.num_queries for q in asked if q is not None)
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-10)


def test_products_are_counted_exactly_and_a_joint_family_covers_all_axes():
    assert count_queries([Range(2000)] * 8) == (2000 * 2001 // 2) ** 8
    with pytest.raises(ValueError, match="covers all axes"):
        answer_product((Affine(3, 4), Prefix(2)), np.zeros((3, 4, 2)))
