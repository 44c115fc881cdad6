"""Coded rows as features of models, and scores of what models predict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, recall_score, roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import ThreadpoolController

from adaptive_qs.domain import Attribute
from adaptive_qs.evaluation.results import Measure, Spread
from adaptive_qs.machine import StepProgress
from adaptive_qs.table.coded import CodedTable

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# Coded rows as features of scikit-learn models.

MAX_ITERATIONS = 1_000
"""Of logistic regression."""
MAX_LEVELS = 50
"""Levels of an unordered attribute with a coefficient of their own; the rarest share one."""
MAX_CATEGORIES = 255
"""Levels of an unordered attribute that boosted trees tell apart; the rarest share one."""


def feature_matrix(
    table: CodedTable, attributes: tuple[int, ...], rows: NDArray[np.int64] | slice = slice(None)
) -> Array:
    """Codes of these attributes, shape (rows, attributes)."""
    return np.column_stack([table.columns[i][rows] for i in attributes]).astype(np.float64)


def logistic_regression(attributes: tuple[Attribute, ...]) -> Pipeline:
    """Logistic regression on scaled codes of ordered and one-hot codes of unordered attributes.

    Levels that were not seen in training count as rare ones.
    """
    levels = OneHotEncoder(
        max_categories=MAX_LEVELS, handle_unknown="infrequent_if_exist", dtype=float
    )
    encoder = ColumnTransformer(
        [
            ("ordered", StandardScaler(), _positions(attributes, ordered=True)),
            ("unordered", levels, _positions(attributes, ordered=False)),
        ],
        sparse_threshold=1.0,
    )
    return make_pipeline(encoder, LogisticRegression(max_iter=MAX_ITERATIONS))


def gradient_boosting(attributes: tuple[Attribute, ...], seed: int) -> Pipeline:
    """Histogram gradient boosting; it knows which attributes are unordered.

    Few small trees with a penalty: without one, steps for rare classes of a target with many
    overshoot. No early stopping, so that small and large tables are treated alike.
    """
    levels = OrdinalEncoder(
        max_categories=MAX_CATEGORIES, handle_unknown="use_encoded_value", unknown_value=np.nan
    )
    unordered = _positions(attributes, ordered=False)
    encoder = ColumnTransformer(
        [
            ("unordered", levels, unordered),
            ("ordered", "passthrough", _positions(attributes, ordered=True)),
        ]
    )
    model = HistGradientBoostingClassifier(
        max_iter=30,
        learning_rate=0.15,
        max_leaf_nodes=15,
        l2_regularization=1.0,
        categorical_features=list(range(len(unordered))) or None,
        early_stopping=False,
        random_state=seed,
    )
    return make_pipeline(encoder, model)


def _positions(attributes: tuple[Attribute, ...], ordered: bool) -> list[int]:
    return [i for i, attribute in enumerate(attributes) if attribute.ordered == ordered]


# Tasks on threads that do not multiply: each task computes on one thread of its own.

Result = TypeVar("Result")


def run_tasks(
    tasks: Sequence[Callable[[], Result]], workers: int, progress: StepProgress | None = None
) -> list[Result]:
    """Results of all tasks, in order, each computed on one thread.

    scikit-learn adds floating-point numbers in an order that depends on its number of threads, so
    this also makes results the same for any number of workers.

    Args:
        tasks: what to do; they must not depend on each other.
        workers: threads in all.
        progress: called with the tasks done and in all.
    """
    controller = ThreadpoolController()
    results = []

    def one_thread() -> None:
        # OpenMP keeps its limit for each thread, so the pool's threads set their own.
        controller.limit(limits=1)

    with (
        controller.limit(limits=1),
        ThreadPoolExecutor(workers, initializer=one_thread) as pool,
    ):
        for result in pool.map(lambda task: task(), tasks):
            results.append(result)
            if progress is not None:
                progress(len(results), len(tasks))
    return results


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Collects what libraries warn of; nothing reaches the terminal.

    Yields:
        Sentences for the reader, complete when the block ends.
    """
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield sentences
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        sentences.append("logistic regression did not converge in one or more of the repeats")


# Scores of predictions on rows with known classes, and of the columns that a model relies on.

IMPORTANCE_ROWS = 2_000
"""Test rows that importances are taken from."""


def class_probabilities(model: Any, features: Array, classes: int) -> Array:
    """Shape (rows, classes); a class that the model has not seen has probability 0."""
    probabilities = np.zeros((len(features), classes))
    probabilities[:, model.classes_] = model.predict_proba(features)
    return probabilities


def scores(probabilities: Array, labels: Codes) -> dict[Measure, float]:
    """Every measure, over the classes that occur among the labels; the most probable class wins.

    Args:
        probabilities: shape (rows, classes).
        labels: shape (rows,): true classes.
    """
    guess = probabilities.argmax(axis=1)
    options = {"labels": np.unique(labels), "average": "macro", "zero_division": 0}
    return {
        "macro F1": float(f1_score(labels, guess, **options)),
        "AUROC": auroc(probabilities, labels),
        "balanced accuracy": float(recall_score(labels, guess, **options)),
    }


def auroc(probabilities: Array, labels: Codes) -> float:
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


def importances(model: Any, features: Array, labels: Codes, classes: int, seed: int) -> Array:
    """AUROC that is lost when a column is shuffled, shape (columns,). Breiman 2001.

    The same seed shuffles the same way, so that models are compared on the same rows.
    """

    def score(fitted: Any, shuffled: Array, truth: Codes) -> float:
        return auroc(class_probabilities(fitted, shuffled, classes), truth)

    some = slice(0, IMPORTANCE_ROWS)
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
