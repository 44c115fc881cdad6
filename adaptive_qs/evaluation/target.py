"""Which column the models predict: given, or one that models can sensibly predict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.pairs import miller_entropy
from adaptive_qs.evaluation.scoring import (
    Codes,
    auroc,
    class_probabilities,
    feature_matrix,
    gradient_boosting,
    run_tasks,
)
from adaptive_qs.table.coded import CodedTable

MAX_CLASSES = 20
MAX_ORDERED_CLASSES = 10
"""Ordered targets with more codes are grouped."""
GROUPS = 4
"""Classes that they are grouped into at most."""
MIN_CLASS_ROWS = 10
"""True rows that a class needs to be kept: some to train on and some to test on."""


@dataclass(frozen=True, eq=False)
class Target:
    """A column to predict.

    Attributes:
        attribute: its position in the domain.
        class_of: shape (codes of the attribute,): the class of each code, -1 if it is left out.
        classes: number of classes.
        limitations: what was grouped or left out.
    """

    attribute: int
    class_of: Codes
    classes: int
    limitations: tuple[str, ...]

    def labels(self, table: CodedTable) -> Codes:
        """The class of every row, -1 for rows that are left out."""
        labels: Codes = self.class_of[table.columns[self.attribute]]
        return labels


def target_of(true: CodedTable, name: str) -> Target:
    """The column of this name as a target.

    Codes in fewer than 10 true rows are left out. An ordered column with more than 10 codes in
    use is grouped into up to 4 classes of about equally many true rows.

    Raises:
        DataError: the column is unknown, has one class only, or too many.
    """
    if name not in true.domain.names:
        raise DataError(f"target {name!r} is not in the schema: check the spelling")
    if len(true.domain) == 1:
        raise DataError(f"target {name!r} is the only column: nothing is left to predict it from")
    position = true.domain.names.index(name)
    attribute = true.domain.attributes[position]
    counts = np.bincount(true.columns[position], minlength=attribute.size)
    used = int(np.count_nonzero(counts))
    limitations = []
    if used < 2:
        raise DataError(f"target {name!r} has one value only: name another column")
    if attribute.ordered and used > MAX_ORDERED_CLASSES:
        class_of = _quantile_classes(counts)
        limitations.append(
            f"the target {name!r} is ordered and has many values: it was grouped into "
            f"{int(class_of.max()) + 1} classes at quantiles of the true table"
        )
        counts = np.bincount(class_of, weights=counts).astype(np.int64)
    else:
        class_of = np.arange(attribute.size)
    kept = counts >= MIN_CLASS_ROWS
    classes = int(kept.sum())
    if classes < 2:
        raise DataError(
            f"target {name!r} has fewer than two classes of {MIN_CLASS_ROWS} rows or more: name "
            "another column"
        )
    if classes > MAX_CLASSES:
        raise DataError(
            f"target {name!r} is unordered with more than {MAX_CLASSES} classes: name another "
            "column, or join its rare values in the schema"
        )
    if left_out := int((counts > 0).sum()) - classes:
        limitations.append(
            f"values of the target {name!r} in fewer than {MIN_CLASS_ROWS} true rows were left "
            f"out: {left_out}"
        )
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    return Target(position, numbers[class_of], classes, tuple(limitations))


def _quantile_classes(counts: Codes) -> Codes:
    """A class for each code, cut where the cumulative count passes each quantile."""
    below = np.cumsum(counts)
    shares = np.arange(1, GROUPS) / GROUPS * below[-1]
    before_last, last = np.flatnonzero(counts)[-2:].tolist()
    cuts = {min(int(np.searchsorted(below, share)), last) for share in shares}
    cuts = {before_last if cut == last else cut for cut in cuts}
    classes: Codes = np.searchsorted(sorted(cuts), np.arange(len(counts)), side="left")
    return classes


# What single columns tell about a target.

NEARLY_DETERMINED = 0.9
"""A column that takes away this part of the errors in guessing the target nearly determines it."""
TARGET_ROWS = 20_000
"""True rows that are looked at, drawn evenly."""


def told_by_others(true: CodedTable, target: Target) -> NDArray[np.float64]:
    """Share of the target's entropy that each other column tells, in their order.

    The uncertainty coefficient I / H, with the mutual information I of the plug-in estimate less
    Miller and Madow's bias.
    """
    labels, rows = _shuffled(true, target, TARGET_ROWS)
    entropy = miller_entropy(np.bincount(labels))
    shares = []
    for i in _others(true, target):
        other = np.unique(true.columns[i][rows], return_inverse=True)[1]
        joint = miller_entropy(np.bincount(other * target.classes + labels))
        information = entropy + miller_entropy(np.bincount(other)) - joint
        shares.append(max(0.0, information / entropy) if entropy > 0 else 0.0)
    return np.array(shares)


def determining(true: CodedTable, target: Target) -> tuple[str, ...]:
    """Columns each of which by itself (nearly) determines the target, in their order.

    On one half of the rows the most frequent class of each value is learnt; on the other half it
    is guessed, the most frequent class of all for a value not seen before. Goodman and Kruskal's
    lambda, the part of the errors that knowing the column takes away, must reach 0.9. A column in
    which no value occurs twice determines nothing in this sense.
    """
    labels, rows = _shuffled(true, target, TARGET_ROWS)
    half = len(rows) // 2
    usual = int(np.bincount(labels[:half], minlength=target.classes).argmax())
    errors = np.count_nonzero(labels[half:] != usual)
    found = []
    for i in _others(true, target):
        values, other = np.unique(true.columns[i][rows], return_inverse=True)
        counts = np.zeros((len(values), target.classes), dtype=np.int64)
        np.add.at(counts, (other[:half], labels[:half]), 1)
        guess = np.where(counts.any(axis=1), counts.argmax(axis=1), usual)
        wrong = np.count_nonzero(guess[other[half:]] != labels[half:])
        if errors and 1 - wrong / errors >= NEARLY_DETERMINED:
            found.append(true.domain.names[i])
    return tuple(found)


def _shuffled(true: CodedTable, target: Target, most: int) -> tuple[Codes, Codes]:
    """Classes of rows that have one, in an order of chance, and the numbers of these rows."""
    labels = target.labels(true)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(labels >= 0))[:most]
    return labels[rows], rows


def _others(true: CodedTable, target: Target) -> tuple[int, ...]:
    return tuple(i for i in range(len(true.domain)) if i != target.attribute)


# A column that models can sensibly predict.

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
    10 % of the rows, no other column by itself (nearly) determines it, and boosted trees that
    learnt from true rows predict other true rows better than a coin does, but not (nearly)
    perfectly, as they do a function of several columns: that is taken, and said, only where no
    other column that was tried can serve. Of several columns the one is taken of whose entropy the
    other columns tell most on average, to three decimals; ties go to fewer classes, then to the
    later column. At most the last 50 columns are looked at, and ten models are trained.

    Raises:
        DataError: no column can serve.
    """
    ranked = []
    last = len(true.domain) - 1
    for position in range(last, max(-1, last - MAX_CANDIDATES), -1):
        if target := _balanced_target(true, position):
            share = round(float(told_by_others(true, target).mean()), 3)
            ranked.append(((position == last, share, -target.classes, position), target))
    ranked.sort(key=lambda item: item[0], reverse=True)
    serving = (target for _, target in ranked if not determining(true, target))
    perfect: Target | None = None
    for target in islice(serving, MAX_TRIED):
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
        f"{SECOND_CLASS:.0%} of the rows, that true rows predict and no other column by itself "
        "determines; name one with the target option"
    )


def _balanced_target(true: CodedTable, position: int) -> Target | None:
    """The column as a target, if it needs no grouping and has no class of nearly all rows."""
    try:
        target = target_of(true, true.domain.names[position])
    except DataError:
        return None
    labels = target.labels(true)
    counts = np.sort(np.bincount(labels[labels >= 0]))
    ungrouped = np.count_nonzero(target.class_of >= 0) == target.classes
    return target if ungrouped and counts[-2] >= SECOND_CLASS * true.num_rows else None


def _true_rows_reach(true: CodedTable, target: Target) -> tuple[float, float]:
    """AUROC of boosted trees that learnt from true rows, and the least that no coin reaches.

    Where a half has one class only, the first is 0.5, which is less than the second.

    The variance of a coin's AUROC is (n + m + 1) / (12 n m) with n rows of the class and m others
    (Mann and Whitney 1947); that of a mean over classes is at most the square of the mean standard
    deviation.
    """
    labels, rows = _shuffled(true, target, 2 * ROWS)
    half, others = len(rows) // 2, _others(true, target)
    model = gradient_boosting(tuple(true.domain.attributes[i] for i in others), seed=0)
    features = feature_matrix(true, others, rows)
    present, counts = np.unique(labels[half:], return_counts=True)
    if min(len(present), len(np.unique(labels[:half]))) < 2:
        return 0.5, 1.0
    run_tasks([partial(model.fit, features[:half], labels[:half])], workers=1)
    area = auroc(class_probabilities(model, features[half:], target.classes), labels[half:])
    rest = counts.sum() - counts
    deviation = float(np.sqrt((counts + rest + 1) / (12 * counts * rest)).mean())
    return area, 0.5 + max(LEAST_GAIN, DEVIATIONS * deviation)
