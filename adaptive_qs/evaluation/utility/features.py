"""Coded rows as features of scikit-learn models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Attribute

MAX_ITERATIONS = 1_000
"""Of logistic regression."""
MAX_LEVELS = 50
"""Levels of an unordered attribute with a coefficient of their own; the rarest share one."""
MAX_CATEGORIES = 255
"""Levels of an unordered attribute that boosted trees tell apart; the rarest share one."""


def feature_matrix(
    table: CodedTable, attributes: tuple[int, ...], rows: NDArray[np.int64] | slice = slice(None)
) -> NDArray[np.float64]:
    """Codes of these attributes, shape (rows, attributes)."""
    return np.column_stack([table.columns[i][rows] for i in attributes]).astype(np.float64)


def logistic_regression(attributes: tuple[Attribute, ...]) -> Pipeline:
    """Logistic regression on scaled codes of ordered and one-hot codes of unordered attributes.

    Levels that were not seen in training count as rare ones.
    """
    ordered, unordered = _kinds(attributes)
    encoder = ColumnTransformer(
        [
            ("ordered", StandardScaler(), ordered),
            (
                "unordered",
                OneHotEncoder(
                    max_categories=MAX_LEVELS, handle_unknown="infrequent_if_exist", dtype=float
                ),
                unordered,
            ),
        ],
        sparse_threshold=1.0,
    )
    return make_pipeline(encoder, LogisticRegression(max_iter=MAX_ITERATIONS))


def gradient_boosting(attributes: tuple[Attribute, ...], seed: int) -> Pipeline:
    """Histogram gradient boosting; it knows which attributes are unordered.

    Few small trees with a penalty: without one, steps for rare classes of a target with many
    overshoot. No early stopping, so that small and large tables are treated alike.
    """
    ordered, unordered = _kinds(attributes)
    encoder = ColumnTransformer(
        [
            (
                "unordered",
                OrdinalEncoder(
                    max_categories=MAX_CATEGORIES,
                    handle_unknown="use_encoded_value",
                    unknown_value=np.nan,
                ),
                unordered,
            ),
            ("ordered", "passthrough", ordered),
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


def _kinds(attributes: tuple[Attribute, ...]) -> tuple[list[int], list[int]]:
    """Positions of the ordered and of the unordered attributes."""
    kinds: tuple[list[int], list[int]] = ([], [])
    for i, attribute in enumerate(attributes):
        kinds[not attribute.ordered].append(i)
    return kinds
