"""A column that models can sensibly predict."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.utility.features import feature_matrix, gradient_boosting
from adaptive_qs.evaluation.utility.scoring import auroc, class_probabilities
from adaptive_qs.evaluation.utility.target import Target, target_of
from adaptive_qs.evaluation.utility.threads import run_tasks
from adaptive_qs.evaluation.utility.told import determining, told_by_others

SECOND_CLASS = 0.1
"""Share of the rows that the second most frequent class needs: rare events teach little."""
LEAST_GAIN = 0.05
"""AUROC above a coin's that a model of true rows must reach."""
DEVIATIONS = 3
"""Standard deviations of a coin's AUROC that it must also be above: 0.13 % of coins are."""
NEARLY_PERFECT = 0.99
"""AUROC of true rows from which a target says only whether the synthetic table kept a rule."""
MAX_CANDIDATES = 50
MAX_TRIED = 10
"""Candidates that a model is trained for."""
ROWS = 2_000
"""Of either half that such a model is trained and tested on."""


def propose_target(true: CodedTable) -> Target:
    """The last column if it can serve, else the one that the others tell most about.

    A column can serve if it makes a target without grouping, its second most frequent class has
    10 % of the rows, no other column alone (nearly) determines it, and boosted trees that learnt
    from true rows predict other true rows better than a coin does, but not (nearly) perfectly, as
    they do a function of several columns: that is taken, and said, only where no other column that
    was tried can serve. Of several columns the one is taken of whose entropy the other columns tell
    most on average, to three decimals; ties go to fewer classes, then to the later column. At most
    the last 50 columns are looked at, and a model is trained for at most ten.

    Raises:
        DataError: no column can serve.
    """
    ranked = []
    last = len(true.domain) - 1
    for position in range(last, max(-1, last - MAX_CANDIDATES), -1):
        target = _balanced_target(true, position)
        if target is not None:
            told = round(float(told_by_others(true, target).mean()), 3)
            ranked.append(((position == last, told, -target.classes, position), target))
    tried = 0
    perfect: Target | None = None
    for _, target in sorted(ranked, key=lambda item: item[0], reverse=True):
        if determining(true, target):
            continue
        if tried == MAX_TRIED:
            break
        tried += 1
        area, least = _true_rows_reach(true, target)
        if least <= area < NEARLY_PERFECT:
            return target
        if perfect is None and area >= max(least, NEARLY_PERFECT):
            perfect = target
    if perfect is not None:
        said = (
            "true rows predict the target (nearly) perfectly, and no better one was found: the "
            "scores say whether the synthetic table kept that, and little else"
        )
        return replace(perfect, limitations=(*perfect.limitations, said))
    raise DataError(
        "no target can be predicted: it takes a column of 2 to 20 classes, the second of them with "
        f"{SECOND_CLASS:.0%} of the rows, that true rows predict and no other column alone "
        "determines; name one with the target option"
    )


def _balanced_target(true: CodedTable, position: int) -> Target | None:
    """The column as a target, if it needs no grouping and has no class of nearly all rows."""
    try:
        target = target_of(true, true.domain.names[position])
    except DataError:
        return None
    kept = target.class_of >= 0
    if np.count_nonzero(kept) != target.classes:
        return None
    counts = np.bincount(target.labels(true)[target.labels(true) >= 0])
    return target if np.sort(counts)[-2] >= SECOND_CLASS * true.num_rows else None


def _true_rows_reach(true: CodedTable, target: Target) -> tuple[float, float]:
    """AUROC of boosted trees that learnt from true rows, and the least that no coin reaches.

    Where a half has one class only, the first is 0.5, which is less than the second.

    The variance of a coin's AUROC is (n + m + 1) / (12 n m) with n rows of the class and m others
    (Mann and Whitney 1947); that of a mean over classes is at most the square of the mean standard
    deviation.
    """
    labels = target.labels(true)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(labels >= 0))[: 2 * ROWS]
    half = len(rows) // 2
    others = tuple(i for i in range(len(true.domain)) if i != target.attribute)
    model = gradient_boosting(tuple(true.domain.attributes[i] for i in others), seed=0)
    features, labels = feature_matrix(true, others, rows), labels[rows]
    present, counts = np.unique(labels[half:], return_counts=True)
    if min(len(present), len(np.unique(labels[:half]))) < 2:
        return 0.5, 1.0
    run_tasks([partial(model.fit, features[:half], labels[:half])], workers=1)
    area = auroc(class_probabilities(model, features[half:], target.classes), labels[half:])
    rest = counts.sum() - counts
    deviation = float(np.sqrt((counts + rest + 1) / (12 * counts * rest)).mean())
    return area, 0.5 + max(LEAST_GAIN, DEVIATIONS * deviation)
