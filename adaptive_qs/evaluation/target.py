"""Which column the models predict, from which features, and how predictions are scored."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import ThreadpoolController

from adaptive_qs.domain import Attribute
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.marginals import miller_entropy
from adaptive_qs.evaluation.results import Measure, Spread
from adaptive_qs.evaluation.tables import in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.table.coded import CodedTable

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MAX_ITERATIONS = 1_000
"""Of logistic regression."""
MAX_LEVELS = 50
"""Levels of an unordered attribute with a coefficient of their own; the rarest share one."""
MAX_CATEGORIES = 255
"""Levels of an unordered attribute that boosted trees tell apart; the rarest share one."""


def feature_matrix(
    table: CodedTable, attributes: Sequence[int], rows: Codes | slice = slice(None)
) -> Array:
    """Codes of these attributes, shape (rows, attributes)."""
    return np.column_stack([table.columns[i][rows] for i in attributes]).astype(np.float64)


def logistic_regression(attributes: Sequence[Attribute]) -> Pipeline:
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


def gradient_boosting(attributes: Sequence[Attribute], seed: int) -> Pipeline:
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


def _positions(attributes: Sequence[Attribute], ordered: bool) -> list[int]:
    return [i for i, attribute in enumerate(attributes) if attribute.ordered == ordered]


# Tasks on threads that do not multiply: each task computes on one thread of its own.


def run_tasks(
    tasks: Sequence[Callable[[], Any]], workers: int, progress: StepProgress | None = None
) -> list[Any]:
    """Results of all tasks, in order, each computed on one thread.

    scikit-learn adds floating-point numbers in an order that depends on its number of threads, so
    this also makes results the same for any number of workers.
    """
    controller = ThreadpoolController()

    def alone(batch: Sequence[Callable[[], Any]]) -> list[Any]:
        controller.limit(limits=1)  # OpenMP keeps its limit for each thread
        return [task() for task in batch]

    with controller.limit(limits=1):
        return list(in_batches(alone, tasks, workers, progress, 1))


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
    guess, present = probabilities.argmax(axis=1), np.unique(labels)
    _, recall, f1, _ = precision_recall_fscore_support(
        labels, guess, labels=present, average="macro", zero_division=0
    )
    area = auroc(probabilities, labels)
    return {"macro F1": float(f1), "AUROC": area, "balanced accuracy": float(recall)}


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


# Which column the models predict: given, or one that models can sensibly predict.

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

    def refusal(reason: str) -> DataError:
        return DataError(f"target {name!r} {reason}")

    if name not in true.domain.names:
        raise refusal("is not in the schema: check the spelling")
    if len(true.domain) == 1:
        raise refusal("is the only column: nothing is left to predict it from")
    position = true.domain.names.index(name)
    attribute = true.domain.attributes[position]
    counts = np.bincount(true.columns[position], minlength=attribute.size)
    used = int(np.count_nonzero(counts))
    limitations = []
    if used < 2:
        raise refusal("has one value only: name another column")
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
        few = f"has fewer than two classes of {MIN_CLASS_ROWS} rows or more"
        raise refusal(f"{few}: name another column")
    if classes > MAX_CLASSES:
        many = f"is unordered with more than {MAX_CLASSES} classes"
        raise refusal(f"{many}: name another column, or join its rare values in the schema")
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


def told_by_others(true: CodedTable, target: Target) -> float:
    """Share of the target's entropy that each other column tells, on average.

    The uncertainty coefficient I / H, with the mutual information I of the plug-in estimate less
    Miller and Madow's bias.
    """
    shares = []
    for _, labels, other in _beside(true, target):
        entropy = miller_entropy(np.bincount(labels))
        joint = miller_entropy(np.bincount(other * target.classes + labels))
        information = entropy + miller_entropy(np.bincount(other)) - joint
        shares.append(max(0.0, information / entropy) if entropy > 0 else 0.0)
    return float(np.mean(shares))


def determining(true: CodedTable, target: Target) -> tuple[str, ...]:
    """Columns each of which by itself (nearly) determines the target, in their order.

    On one half of the rows the most frequent class of each value is learnt; on the other half it
    is guessed, the most frequent class of all for a value not seen before. Goodman and Kruskal's
    lambda, the part of the errors that knowing the column takes away, must reach 0.9. A column in
    which no value occurs twice determines nothing in this sense.
    """
    found = []
    for name, labels, other in _beside(true, target):
        half = len(labels) // 2
        usual = int(np.bincount(labels[:half], minlength=target.classes).argmax())
        errors = np.count_nonzero(labels[half:] != usual)
        counts = np.zeros((int(other.max()) + 1, target.classes), dtype=np.int64)
        np.add.at(counts, (other[:half], labels[:half]), 1)
        guess = np.where(counts.any(axis=1), counts.argmax(axis=1), usual)
        wrong = np.count_nonzero(guess[other[half:]] != labels[half:])
        if errors and 1 - wrong / errors >= NEARLY_DETERMINED:
            found.append(name)
    return tuple(found)


def _beside(true: CodedTable, target: Target) -> Iterator[tuple[str, Codes, Codes]]:
    """Every other column: its name, and some rows' classes and codes of it, numbered from 0."""
    labels, rows = _shuffled(true, target, TARGET_ROWS)
    for i in others_of(true, target):
        codes = np.unique(true.columns[i][rows], return_inverse=True)[1]
        yield true.domain.names[i], labels, codes


def _shuffled(true: CodedTable, target: Target, most: int) -> tuple[Codes, Codes]:
    """Classes of rows that have one, in an order of chance, and the numbers of these rows."""
    labels = target.labels(true)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(labels >= 0))[:most]
    return labels[rows], rows


def others_of(true: CodedTable, target: Target) -> list[int]:
    """Positions of all columns but the target."""
    return [i for i in range(len(true.domain)) if i != target.attribute]


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
            share = round(told_by_others(true, target), 3)
            ranked.append(((position == last, share, -target.classes, position), target))
    ranked.sort(key=lambda item: item[0], reverse=True)
    serving = (target for _, target in ranked if not determining(true, target))
    perfect = None
    for target in islice(serving, MAX_TRIED):
        area, least = _true_rows_reach(true, target)
        if least <= area < NEARLY_PERFECT:
            return target
        if area >= least and perfect is None:
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
    half, others = len(rows) // 2, others_of(true, target)
    model = gradient_boosting([true.domain.attributes[i] for i in others], seed=0)
    features = feature_matrix(true, others, rows)
    present, counts = np.unique(labels[half:], return_counts=True)
    if min(len(present), len(np.unique(labels[:half]))) < 2:
        return 0.5, 1.0
    run_tasks([partial(model.fit, features[:half], labels[:half])], workers=1)
    area = auroc(class_probabilities(model, features[half:], target.classes), labels[half:])
    rest = counts.sum() - counts
    deviation = float(np.sqrt((counts + rest + 1) / (12 * counts * rest)).mean())
    return area, 0.5 + max(LEAST_GAIN, DEVIATIONS * deviation)
