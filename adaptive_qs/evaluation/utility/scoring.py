"""Scores of predictions on rows with known classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score, recall_score, roc_auc_score

from adaptive_qs.evaluation.utility.scores import Measure, Spread

Array = NDArray[np.float64]


def class_probabilities(model: Any, features: Array, classes: int) -> Array:
    """Shape (rows, classes); a class that the model has not seen has probability 0."""
    probabilities = np.zeros((len(features), classes))
    probabilities[:, model.classes_] = model.predict_proba(features)
    return probabilities


def scores(probabilities: Array, labels: NDArray[np.int64]) -> dict[Measure, float]:
    """Every measure, over the classes that occur among the labels; the most probable class wins.

    Args:
        probabilities: shape (rows, classes).
        labels: shape (rows,): true classes.
    """
    present = np.unique(labels)
    guess = probabilities.argmax(axis=1)
    return {
        "macro F1": float(
            f1_score(labels, guess, labels=present, average="macro", zero_division=0)
        ),
        "AUROC": auroc(probabilities, labels),
        "balanced accuracy": float(
            recall_score(labels, guess, labels=present, average="macro", zero_division=0)
        ),
    }


def auroc(probabilities: Array, labels: NDArray[np.int64]) -> float:
    """Mean over the classes that occur, each against the rest; 0.5 where only one occurs.

    Hand and Till (2001) call this the one-versus-rest average; with two classes it is the usual
    area. Equal probabilities, as for a class that the model does not know, give 0.5.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return 0.5
    return float(np.mean([roc_auc_score(labels == c, probabilities[:, c]) for c in present]))


def spread(values: list[float]) -> Spread:
    """Mean and standard deviation (of the sample; 0 for a single value)."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Spread(float(np.mean(values)), std, len(values))
