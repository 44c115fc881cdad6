"""Can a classifier tell true from synthetic rows?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from adaptive_qs.data.table import CodedTable
from adaptive_qs.evaluation.utility.features import feature_matrix, gradient_boosting

FOLDS = 5


def propensity_tasks(
    true: CodedTable, synthetic: CodedTable, max_rows: int, seed: int
) -> list[Callable[[], float]]:
    """One task for each fold: the area under the curve of a boosted classifier.

    As many true as synthetic rows, at most max_rows of either, are drawn and split into 5 folds;
    each fold is judged by a model of the other four. 0.5 means indistinguishable, 1 perfectly
    told apart. Rows that both tables share push it below 0.5, since a row's twin among the
    training rows is of the other kind. Snoke et al. 2018, "General and specific utility measures
    for synthetic data".
    """
    rng = np.random.default_rng(seed)
    rows = min(true.num_rows, synthetic.num_rows, max_rows)
    attributes = tuple(range(len(true.domain)))
    features = np.concatenate(
        [
            feature_matrix(table, attributes, rng.permutation(table.num_rows)[:rows])
            for table in (true, synthetic)
        ]
    )
    is_true = np.repeat([1, 0], rows)

    def fold(train: np.ndarray, test: np.ndarray) -> float:
        model = gradient_boosting(true.domain.attributes, seed)
        model.fit(features[train], is_true[train])
        return float(roc_auc_score(is_true[test], model.predict_proba(features[test])[:, 1]))

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return [partial(fold, train, test) for train, test in folds.split(features, is_true)]
