"""Utility of tables whose best prediction is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.models import (
    ModelSettings,
    Spread,
    auroc,
    find_target,
    measure_utility,
)
from adaptive_qs.table.coded import CodedTable

DOMAIN = Domain(
    (
        Attribute("noise", 7, ordered=False),
        Attribute("signal", 12),
        Attribute("helper", 3, ordered=False),
        Attribute("label", 2),
    )
)
QUICK = ModelSettings("label", repeats=2)


def population(rows, seed, weight=1.0):
    """The label follows the signal, and a little the helper; weight 0 makes it a coin."""
    rng = np.random.default_rng(seed)
    noise, signal, helper = (rng.integers(0, n, rows) for n in (7, 12, 3))
    chance = 1 / (1 + np.exp(-weight * (signal - 5.5 + (helper == 1))))
    label = (rng.random(rows) < chance).astype(int)
    return CodedTable.from_codes(DOMAIN, [noise, signal, helper, label])


def with_column(table, position, codes):
    columns = [codes if i == position else column for i, column in enumerate(table.columns)]
    return CodedTable.from_codes(table.domain, columns)


TRUE, GOOD = population(4_000, 1), population(4_000, 2)
SMALL = population(400, 1), population(400, 2)
ONE_CLASS = with_column(GOOD, 3, np.ones(GOOD.num_rows, dtype=int))


@pytest.fixture(scope="module")
def good():
    return measure_utility(TRUE, GOOD, ModelSettings("label", repeats=4))


def said(words, utility):
    return [text for text in utility.limitations if words in text]


def test_a_good_table_teaches_as_much_as_the_truth(good):
    rows = population(100_000, 9)
    _, signal, helper, label = (column.astype(float) for column in rows.columns)
    best = roc_auc_score(label, signal + (helper == 1))
    assert (good.target, good.classes) == ("label", 2)
    # Hanley and McNeil 1982: 1,200 tested rows give the area a standard error below
    # sqrt(A (1 - A) / min(n0, n1)), and each class has more than 500 of them.
    error = np.sqrt(best * (1 - best) / 500)
    for scores in (good.real, good.synthetic):
        assert abs(scores.mean - best) <= norm.isf(1e-6) * error
    assert Spread.from_values([1.0, 2.0, 6.0]) == Spread(3.0, pytest.approx(np.sqrt(7)), 3)
    assert (good.synthetic.mean > 0.7, good.synthetic.repeats) == (True, 4)
    kept = (good.synthetic.mean - 0.5) / (good.real.mean - 0.5)
    assert good.kept == pytest.approx(kept)


def test_models_see_equally_many_rows_and_workers_change_nothing():
    """Also with the largest seed that libraries take."""
    steps = []
    settings = ModelSettings("label", repeats=2, seed=2**32 - 2, max_rows=500)
    tables = TRUE, population(900, 5)
    one = measure_utility(*tables, settings, 1, lambda *step: steps.append(step))
    assert (one.train_rows, one.test_rows, steps) == ((500, 500), 500, [(1, 2), (2, 2)])
    assert said("to save time", one)
    assert measure_utility(*tables, settings, workers=3) == one
    assert measure_utility(*tables, replace(settings, seed=1)) != one
    found = measure_utility(TRUE, SMALL[1], QUICK)
    assert found.train_rows == (SMALL[1].num_rows,) * 2


def test_a_single_class_teaches_nothing():
    assert measure_utility(TRUE, ONE_CLASS, QUICK).synthetic.mean == 0.5


def test_more_levels_than_trees_tell_apart():
    rng = np.random.default_rng(0)
    domain = Domain((Attribute("wide", 1_000, ordered=False), Attribute("y", 5, ordered=False)))
    tables = []
    for _ in range(2):
        wide = np.minimum(rng.geometric(0.01, 3_000), 999)
        y = np.where(rng.random(3_000) < 0.3, rng.integers(0, 5, 3_000), wide % 5)
        tables.append(CodedTable.from_codes(domain, [wide, y]))
    found = measure_utility(*tables, ModelSettings("y", repeats=1))
    assert found.classes == 5
    assert found.synthetic.mean > 0.7


def test_bad_input_is_refused_in_one_line():
    for arguments, message in [
        ((GOOD, ModelSettings("nothing")), "not in the schema"),
        ((population(3, 1), QUICK), "too few rows"),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            measure_utility(TRUE, *arguments)
        assert "\n" not in str(caught.value)
    numbers = {"repeats": (0, 1_000), "max_rows": (5,), "seed": (-1, 2**32 - 4)}
    for name, value in ((name, value) for name, values in numbers.items() for value in values):
        with pytest.raises(InputError, match="give"):
            ModelSettings(**{name: value})


# Scores against definitions worked out by hand.

LABELS = np.array([0, 0, 0, 1, 1, 2])
PROBABILITIES = np.array(
    [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.6, 0.4, 0], [1, 0, 0]]
)


def test_auroc_counts_ordered_pairs_of_each_class_against_the_rest():
    def area(c):
        pairs = [
            (PROBABILITIES[i, c] > PROBABILITIES[j, c])
            + (PROBABILITIES[i, c] == PROBABILITIES[j, c]) / 2
            for i in np.flatnonzero(c == LABELS)
            for j in np.flatnonzero(c != LABELS)
        ]
        return np.mean(pairs)

    assert auroc(PROBABILITIES, LABELS) == pytest.approx(np.mean([area(c) for c in range(3)]))


def test_classes_that_do_not_occur_do_not_count_and_unknown_ones_score_one_half():
    two = PROBABILITIES[:5], LABELS[:5]
    assert auroc(*two) == pytest.approx(np.mean([4 / 6, 5 / 6]))
    assert auroc(np.zeros((5, 3)), two[1]) == 0.5
    assert auroc(PROBABILITIES[:3], LABELS[:3]) == 0.5


# Targets: what is refused, and what is grouped.

RNG = np.random.default_rng(4)
ROWS = 2_000
COIN = RNG.integers(0, 2, ROWS)


def columns_of(*columns, unordered=()):
    """A table of these code arrays; attributes are named a, b, c, ..."""
    arrays = [np.asarray(column) for column in columns]
    attributes = tuple(
        Attribute(name, int(codes.max()) + 1, name not in unordered)
        for name, codes in zip("abcdefgh", arrays)
    )
    return CodedTable.from_codes(Domain(attributes), arrays)


def test_rare_classes_are_left_out_and_counted():
    codes = np.array([0] * 1_000 + [1] * 9 + [2] * 991)
    true = columns_of(COIN, codes, unordered="b")
    target = find_target(true, "b")
    assert target.classes == 2
    np.testing.assert_array_equal(target.class_of, [0, -1, 1])
    np.testing.assert_array_equal(np.bincount(target.labels(true) + 1), [9, 1_000, 991])
    assert target.limitations[0].startswith("models do not use 1 value of the target 'b'")


def test_long_ordered_targets_are_grouped_at_quantiles():
    codes = np.arange(ROWS) % 100
    true = columns_of(COIN, codes)
    target = find_target(true, "b")
    np.testing.assert_array_equal(np.bincount(target.labels(true)), [500] * 4)
    assert np.all(np.diff(target.class_of) >= 0)
    assert "grouped into 4 classes" in target.limitations[0]


@pytest.mark.parametrize("peak", [0, 49, 99])
def test_a_value_that_most_rows_share_is_parted_from_the_others(peak):
    codes = np.arange(ROWS) % 100
    codes[: ROWS * 9 // 10] = peak
    true = columns_of(COIN, codes)
    target = find_target(true, "b")
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
        find_target(columns_of(*columns, unordered="b"), name)
    assert "\n" not in str(caught.value)
