"""Rows whose first columns are given, against the exact conditional distribution."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.generate.linked import as_given, linked_rows
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.generate.zeros import Zero

from .helpers import (
    assert_depends_on_the_key_only,
    domain_of,
    drawn_rows,
    histogram,
    margin,
    marginal_of,
    random_loglinear,
    residuals_of,
)

DOMAIN = domain_of(3, 2, 4, 3)
CLIQUES = [(0, 2), (1, 2), (1, 3), (2, 3)]
ROWS = 8_000
FEW = SynthesisSettings(fit_rows=500)


def model_of(rows, noise_std=0.0):
    return residuals_of(rows, DOMAIN, CLIQUES, noise_std)


def linked(model, given, seed=1, workers=1, **more):
    made = linked_rows(model, CLIQUES, CLIQUES, given, seed, workers=workers, **more)
    return np.concatenate(list(made))


@pytest.fixture(scope="module")
def true():
    _, joint = random_loglinear(DOMAIN, [(0, 1), *CLIQUES], seed=3, spread=1.0)
    return drawn_rows(joint, ROWS), joint


def test_links_are_exact_and_marginals_are_those_measured(true):
    rows, _ = true
    made = linked(model_of(rows), rows[:, :2])
    np.testing.assert_array_equal(made[:, :2], rows[:, :2])
    for clique in CLIQUES:
        difference = marginal_of(made, DOMAIN, clique) - marginal_of(rows, DOMAIN, clique)
        assert np.abs(difference).sum() < 0.02 * ROWS, clique


def test_the_other_columns_have_the_conditional_distribution_of_the_model(true):
    """Also where parents were chosen by what they are: all cells of their children are within
    sampling error, and that of the fit, of the exact conditional distribution."""
    rows, joint = true
    given = np.stack([np.arange(ROWS) % 3, np.arange(ROWS) % 2], axis=1).astype(np.int32)
    made = linked(model_of(rows), given, population=rows[:, :2])
    np.testing.assert_array_equal(made[:, :2], given)
    known = histogram(given, domain_of(3, 2))
    exact = joint / joint.sum(axis=(2, 3), keepdims=True) * known[:, :, None, None]
    found = histogram(made, DOMAIN)
    # Within each combination of given codes, cells are multinomial; 5 standard deviations, and what
    # a model fitted to 8,000 rows is itself off by.
    allowed = 5 * np.sqrt(exact) + 5 * known[:, :, None, None] * np.sqrt(
        exact / known[:, :, None, None] / ROWS * 6
    )
    assert (np.abs(found - exact) <= allowed + 3).all()
    independent = margin(joint, (2, 3)) * known[:, :, None, None]
    assert np.abs(found - exact).sum() < np.abs(independent - exact).sum() / 3


def test_more_rows_than_the_fit_has_come_in_their_order(true, monkeypatch):
    rows, _ = true
    monkeypatch.setattr("adaptive_qs.generate.linked.PAGE_CODES", 4 * 3_000)
    model, pages = model_of(rows, 5.0), []
    for page in linked_rows(model, CLIQUES, CLIQUES, rows[:, :2], 1, FEW):
        pages.append(page)
    assert [len(page) for page in pages] == [3_000, 3_000, 2_000]
    np.testing.assert_array_equal(np.concatenate(pages)[:, :2], rows[:, :2])


def test_rows_depend_on_the_seed_only(true):
    rows, _ = true
    model = model_of(rows[:2_000], 3.0)

    def made(workers, key):
        return linked(model, rows[:200, :2], key, workers, settings=FEW)

    assert_depends_on_the_key_only(made)


def test_no_row_lies_in_a_forbidden_cell_and_given_columns_stay(true):
    rows, _ = true
    allowed = np.ones((4, 3), dtype=bool)
    allowed[0, 1] = allowed[2, 0] = allowed[3, 2] = False
    fits = rows[allowed[rows[:, 2], rows[:, 3]]]
    zeros = (Zero((2, 3), allowed),)
    made = linked(model_of(fits, 8.0), rows[:1_000, :2], zeros=zeros, settings=FEW)
    assert allowed[made[:, 2], made[:, 3]].all()
    np.testing.assert_array_equal(made[:, :2], rows[:1_000, :2])


def test_given_codes_that_were_never_measured_get_what_others_have():
    rows = drawn_rows(np.ones(DOMAIN.sizes) / 72, 2_000)
    rows = rows[rows[:, 0] < 2]
    given = np.array([[2, 0], [2, 1]] * 300, dtype=np.int32)
    made = linked(model_of(rows), given, settings=FEW)
    shares = np.bincount(made[:, 2], minlength=4) / len(made)
    true = np.bincount(rows[:, 2], minlength=4) / len(rows)
    # A sample of 600 rows of 4 values: 5 standard deviations of a share are 0.09.
    assert np.abs(shares - true).max() < 0.09


def test_a_marginal_as_given_keeps_its_conditionals():
    rng = np.random.default_rng(0)
    counts, given = rng.random((3, 4)) * 50, np.array([[0], [0], [2]], dtype=np.int32)
    found = as_given(counts, (0, 2), (0,), given, DOMAIN)
    np.testing.assert_allclose(found.sum(axis=1), [2, 0, 1])
    np.testing.assert_allclose(found[2], counts[2] / counts[2].sum(), rtol=1e-6)
    np.testing.assert_allclose(as_given(counts, (0, 2), (), given, DOMAIN).sum(), 3)
    counts = np.where(np.arange(4) == 1, -4e-7, 0.0) + np.zeros((3, 4))
    assert not as_given(counts.astype(np.float32), (0, 2), (0,), given, DOMAIN).any()
