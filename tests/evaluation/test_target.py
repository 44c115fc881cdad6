"""Targets: what is refused, what is grouped, and what is proposed."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.target import determining, propose_target, target_of
from adaptive_qs.table.coded import CodedTable

RNG = np.random.default_rng(4)
ROWS = 2_000
COIN = RNG.integers(0, 2, ROWS)


def table(*columns, unordered=()):
    """A table of these code arrays; attributes are named a, b, c, ..."""
    arrays = [np.asarray(column) for column in columns]
    attributes = tuple(
        Attribute(name, int(codes.max()) + 1, name not in unordered)
        for name, codes in zip("abcdefgh", arrays)
    )
    return CodedTable.from_codes(Domain(attributes), arrays)


def noisy(codes, share, levels):
    """The codes, a share of them replaced by noise."""
    return np.where(RNG.random(len(codes)) < share, RNG.integers(0, levels, len(codes)), codes)


def test_few_classes_stay_as_they_are():
    target = target_of(table(COIN, [0, 1, 2, 2] * 500), "b")
    assert target.classes == 3
    np.testing.assert_array_equal(target.class_of, [0, 1, 2])
    assert target.limitations == ()


def test_rare_classes_are_left_out_and_counted():
    codes = np.array([0] * 1_000 + [1] * 9 + [2] * 991)
    true = table(COIN, codes, unordered="b")
    target = target_of(true, "b")
    assert target.classes == 2
    np.testing.assert_array_equal(target.class_of, [0, -1, 1])
    np.testing.assert_array_equal(np.bincount(target.labels(true) + 1), [9, 1_000, 991])
    assert "left out: 1" in target.limitations[0]


def test_long_ordered_targets_are_grouped_at_quantiles():
    codes = np.arange(ROWS) % 100
    true = table(COIN, codes)
    target = target_of(true, "b")
    np.testing.assert_array_equal(np.bincount(target.labels(true)), [500] * 4)
    assert np.all(np.diff(target.class_of) >= 0)
    assert "grouped into 4 classes" in target.limitations[0]


@pytest.mark.parametrize("peak", [0, 49, 99])
def test_a_value_that_most_rows_share_is_parted_from_the_others(peak):
    codes = np.arange(ROWS) % 100
    codes[: ROWS * 9 // 10] = peak
    true = table(COIN, codes)
    target = target_of(true, "b")
    counts = np.bincount(target.labels(true))
    assert target.classes >= 2
    assert counts.max() <= ROWS * 0.96


@pytest.mark.parametrize(
    ("columns", "name", "message"),
    [
        ((COIN, COIN), "z", "not in the schema"),
        ((COIN,), "a", "only column"),
        ((COIN, np.zeros(ROWS, dtype=int)), "b", "one value only"),
        ((COIN, np.arange(ROWS) % 21), "b", "more than 20 classes"),
        ((COIN, np.eye(1, ROWS, dtype=int)[0]), "b", "fewer than two classes"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_line(columns, name, message):
    with pytest.raises(DataError, match=message) as caught:
        target_of(table(*columns, unordered="b"), name)
    assert "\n" not in str(caught.value)


def test_last_column_is_proposed_if_others_tell_something_about_it():
    better = noisy(COIN, 0.2, 2)
    true = table(COIN, better, noisy(COIN, 0.6, 2))
    assert propose_target(true).attribute == 2


def test_otherwise_the_column_that_others_tell_most_about():
    independent = RNG.integers(0, 3, ROWS)
    true = table(noisy(COIN, 0.7, 2), COIN, noisy(COIN, 0.3, 2), independent)
    assert propose_target(true).attribute == 1


def test_another_name_for_a_column_is_not_proposed():
    useful, weak = noisy(COIN, 0.5, 2), noisy(COIN, 0.8, 2)
    true = table(useful, weak, COIN, 1 - COIN)
    assert propose_target(true).attribute == 0


def test_a_column_of_nearly_one_class_is_not_proposed_however_well_it_is_told():
    rare = COIN * (np.arange(ROWS) % 10 == 0)
    true = table(noisy(COIN, 0.3, 2), COIN, np.where(RNG.random(ROWS) < 0.02, COIN, rare))
    assert propose_target(true).attribute == 1


def test_a_target_that_only_several_columns_together_tell_is_proposed():
    other = RNG.integers(0, 2, ROWS)
    true = table(COIN, other, noisy(COIN ^ other, 0.2, 2))
    assert propose_target(true).attribute == 2


def test_a_function_of_several_columns_is_proposed_only_where_nothing_else_serves():
    """Parity of two columns: no column alone tells it, both together tell all of it."""
    other = RNG.integers(0, 2, ROWS)
    parity = COIN ^ other
    useful = noisy(COIN, 0.4, 2)
    target = propose_target(table(noisy(COIN, 0.4, 2), useful, COIN, other, parity))
    assert target.attribute in (0, 1, 2)
    assert target.limitations == ()
    alone = propose_target(table(COIN, other, parity))
    assert alone.attribute == 2
    assert "perfectly, and no better one was found" in alone.limitations[-1]


def test_what_determines_a_target_is_found_but_a_number_of_the_row_is_not():
    fine = RNG.integers(0, 8, ROWS)
    nearly = noisy(fine, 0.05, 8)
    true = table(np.arange(ROWS), fine, nearly, noisy(fine, 0.5, 8), fine // 2)
    assert determining(true, target_of(true, "e")) == ("b", "c")


@pytest.mark.parametrize(
    "columns",
    [
        (COIN, RNG.integers(0, 2, ROWS)),
        (COIN, COIN),
        (COIN,),
        (COIN, COIN * (np.arange(ROWS) % 10 == 0)),
        (np.arange(ROWS) % 50, np.arange(ROWS)[::-1] % 50),
    ],
    ids=["independent", "equal", "alone", "rare", "too many values"],
)
def test_no_proposal_where_no_column_serves(columns):
    with pytest.raises(DataError, match="no target can be predicted"):
        propose_target(table(*columns, unordered="ab"))
