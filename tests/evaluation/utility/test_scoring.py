"""Scores against definitions worked out by hand."""

import numpy as np
import pytest

from adaptive_qs.evaluation.utility.importance import agreement
from adaptive_qs.evaluation.utility.scoring import auroc, class_probabilities, scores, spread

LABELS = np.array([0, 0, 0, 1, 1, 2])
PROBABILITIES = np.array(
    [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.6, 0.4, 0], [1, 0, 0]]
)


def test_scores_by_hand():
    found = scores(PROBABILITIES, LABELS)
    # Guesses 0 1 0 1 0 0: recalls 2/3, 1/2, 0; precisions 2/4, 1/2, none.
    assert found["balanced accuracy"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert found["macro F1"] == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)


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


def test_classes_that_do_not_occur_are_left_out_and_unknown_ones_score_one_half():
    two = PROBABILITIES[:5], LABELS[:5]
    assert auroc(*two) == pytest.approx(np.mean([4 / 6, 5 / 6]))
    assert auroc(np.zeros((5, 3)), two[1]) == 0.5
    assert auroc(PROBABILITIES[:3], LABELS[:3]) == 0.5

    class Model:
        classes_ = np.array([0, 2])

        def predict_proba(self, features):
            return np.full((len(features), 2), 0.5)

    np.testing.assert_array_equal(
        class_probabilities(Model(), np.zeros((1, 1)), 3), [[0.5, 0, 0.5]]
    )


def test_spread_is_that_of_a_sample():
    found = spread([1.0, 2.0, 6.0])
    assert (found.mean, found.std, found.repeats) == (3.0, pytest.approx(np.sqrt(7)), 3)
    assert spread([0.5]).std == 0


def test_agreement_is_rank_correlation_where_that_is_defined():
    assert agreement(np.array([1.0, 2, 3]), np.array([2.0, 4, 100])) == pytest.approx(1)
    assert agreement(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert agreement(np.array([1.0, 2]), np.array([1.0, 1])) is None
    assert agreement(np.array([1.0]), np.array([1.0])) is None
