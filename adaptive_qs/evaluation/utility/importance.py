"""Which columns a model relies on, and whether two models rely on the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance

from adaptive_qs.evaluation.utility.scoring import Array, auroc, class_probabilities

MAX_ROWS = 2_000
"""Test rows that importances are taken from."""


def importances(
    model: Any, features: Array, labels: NDArray[np.int64], classes: int, seed: int
) -> Array:
    """AUROC that is lost when a column is shuffled, shape (columns,). Breiman 2001.

    The same seed shuffles the same way, so that models are compared on the same rows.
    """

    def score(fitted: Any, shuffled: Array, truth: NDArray[np.int64]) -> float:
        return auroc(class_probabilities(fitted, shuffled, classes), truth)

    some = slice(0, MAX_ROWS)
    found = permutation_importance(
        model, features[some], labels[some], scoring=score, n_repeats=1, random_state=seed
    )
    lost: Array = found.importances_mean
    return lost


def agreement(first: Array, second: Array) -> float | None:
    """Spearman's rank correlation; None with fewer than two columns or where all are equal."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(spearmanr(first, second).statistic)
