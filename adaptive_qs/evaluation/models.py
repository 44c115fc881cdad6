"""Train on synthetic, test on real; and train on real, for scale."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.domain import Attribute
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.checks import (
    Check,
    Column,
    Comparison,
    Facts,
    Finding,
    Table,
    Word,
    number,
)
from adaptive_qs.evaluation.tables import Overlap, TablePair, in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.charts import Line, Mark
from adaptive_qs.pages.words import counted, decimals, first_of, quoted, share, significant
from adaptive_qs.table.coded import CodedTable

if TYPE_CHECKING:  # slow to import: only runs with models need it
    from sklearn.pipeline import Pipeline

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# What is predicted, how often, and on how many rows.

MAX_REPEATS = 100
"""More change no figure that is shown."""
SEEDS = 2**32
"""scikit-learn takes seeds below this."""


@dataclass(frozen=True)
class ModelSettings:
    """How the utility of a synthetic table is measured.

    Attributes:
        target: the column to predict; None for no models.
        seed: of splits, samples and models; the repeats count it on. It protects nothing.
        repeats: splits that every model is trained and tested on.
        max_rows: rows at most that a model is trained on, and as many that it is tested on.

    Raises:
        InputError: a number is out of its range.
    """

    target: str | None = None
    seed: int = 0
    repeats: int = 5
    max_rows: int = 10_000

    def __post_init__(self) -> None:
        self._check("repeats", 1, MAX_REPEATS)
        self._check("max_rows", 100)
        self._check("seed", 0, SEEDS - self.repeats)

    def _check(self, name: str, least: int, most: float = math.inf) -> None:
        number = as_integer(value := getattr(self, name))
        if number is None or not least <= number <= most:
            needed = f"at least {least}" if most == math.inf else f"{least} to {most:,}"
            raise InputError(f"{name} is {shown(value)}: give {needed}")
        object.__setattr__(self, name, number)


# What models trained on either table score on true rows that they have not seen.

LEAST_GAIN_KEPT = 0.01
"""Where models of true rows gain no more over chance, there is nothing to keep."""

Measure = Literal["macro F1", "AUROC", "balanced accuracy"]
MEASURES: tuple[Measure, ...] = ("AUROC", "macro F1", "balanced accuracy")
"""The first of them that was computed speaks for a model."""


@dataclass(frozen=True)
class Spread:
    """A score: its mean and standard deviation over so many repeats."""

    mean: float
    std: float
    repeats: int


@dataclass(frozen=True)
class ModelScores:
    """One kind of model; every score is on the same held-out true rows.

    Attributes:
        model: its name, such as "logistic regression".
        real, synthetic: by measure, trained on true and on synthetic rows.
        chance: by measure, of a guess that knows the classes' frequencies only.
    """

    model: str
    real: dict[Measure, Spread]
    synthetic: dict[Measure, Spread]
    chance: dict[Measure, Spread]


@dataclass(frozen=True)
class Utility:
    """Train on synthetic, test on real; owner only.

    Attributes:
        target: the column predicted.
        classes: number of its classes.
        train_rows: rows that each model was trained on: true and synthetic.
        test_rows: true rows that all were tested on.
        models: their scores.
        propensity: area under the curve of a classifier that tells true from synthetic rows, 0.5
            if it cannot; with its spread over the folds.
        limitations: what a reader has to know, such as classes that were left out.
    """

    target: str
    classes: int
    train_rows: tuple[int, int]
    test_rows: int
    models: tuple[ModelScores, ...]
    propensity: Spread
    limitations: tuple[str, ...]


def kept_part(real: float, synthetic: float, chance: float | None) -> float | None:
    """Part of the gain over chance that a model trained on synthetic rows keeps.

    None where chance is not known, or a model trained on true rows gains nothing.
    """
    if chance is None or real - chance <= LEAST_GAIN_KEPT:
        return None
    return (synthetic - chance) / (real - chance)


# Models of both tables.

FOLDS = 5
"""Of the rows that a classifier tells apart."""
TEST_SHARE = 0.3
"""Of the true rows are tested on, where no rows were held out."""
LOGISTIC, BOOSTED = MODELS = ("logistic regression", "gradient boosting")
BELOW_CHANCE = 0.45
"""A propensity below this comes from rows that both tables share."""
MOST_NAMED = 3
"""Columns named in a sentence."""


def measure_utility(
    true: CodedTable,
    synthetic: CodedTable,
    settings: ModelSettings,
    workers: int = 1,
    progress: StepProgress | None = None,
    held_out: CodedTable | None = None,
    overlap: Overlap | None = None,
) -> Utility:
    """What models learn from a synthetic table, judged on true rows; owner only.

    In each repeat logistic regression and gradient boosting learn from true rows and from equally
    many synthetic rows, and are judged on the same other true rows (TSTR: Esteban, Hyland, Rätsch
    2017). Features are codes of the schema: values inside a bin are not
    distinguished.

    The synthetic table was made from all true rows, those tested on included. That is the usual
    protocol, and what it favours the synthetic table by is bounded by the privacy promise; rows
    that were never used, as `held_out`, avoid it.

    Args:
        true: the private rows.
        synthetic: rows over the same domain.
        settings: target, seed, repeats and size.
        held_out: true rows that the synthetic table was not made from, to test on.
        overlap: of the held-out rows with the true ones, where it is known.

    Raises:
        DataError: the domains differ, a table has no or too few rows, the target cannot be
            predicted, or no column makes one.
    """
    TablePair(true, synthetic)
    if held_out is not None:
        TablePair(true, held_out)
    if min(true.num_rows, synthetic.num_rows) < FOLDS:
        raise DataError("a table has too few rows to train a model on: give larger ones")
    if settings.target is None:
        raise DataError("no target was given: name the column that models predict")
    target = find_target(true, settings.target)
    attributes = [true.domain.attributes[i] for i in other_columns(true, target)]
    splits = _draw_splits(true, synthetic, held_out, target, settings)
    seeded = list(zip(splits, range(settings.seed, settings.seed + settings.repeats)))
    tasks: list[Callable[[], Any]] = [
        partial(_train_and_test, name, attributes, target.classes, split, seed)
        for name in MODELS
        for split, seed in seeded
    ]
    trained = len(tasks)
    tasks += _propensity_tasks(true, synthetic, settings.max_rows, settings.seed)
    with quiet() as warned:
        results = run_tasks(tasks, workers, progress)
        chance = _spreads([_chance(split, target.classes, seed) for split, seed in seeded])
    outcomes = results[: settings.repeats], results[settings.repeats : trained]
    propensity = spread(results[trained:])
    real, made, test = splits[0]
    known = _of_splits(splits, target.classes, true, synthetic, held_out, settings)
    return Utility(
        target=true.domain.names[target.attribute],
        classes=target.classes,
        train_rows=(len(real.labels), len(made.labels)),
        test_rows=len(test.labels),
        models=tuple(_model_scores(name, o, chance) for name, o in zip(MODELS, outcomes)),
        propensity=propensity,
        limitations=(
            *target.limitations,
            *_determined(determining(true, target)),
            *known,
            *_shared_rows(overlap, propensity, warned),
        ),
    )


# Which rows are trained on and which are tested on.


class Sample(NamedTuple):
    """Rows that a model sees: features of shape (rows, columns but the target), and classes."""

    features: Array
    labels: Codes


class Split(NamedTuple):
    """Samples of one repeat: two to train on, and true rows to test both."""

    real: Sample
    synthetic: Sample
    test: Sample


def _draw_splits(
    true: CodedTable,
    synthetic: CodedTable,
    held_out: CodedTable | None,
    target: Target,
    settings: ModelSettings,
) -> list[Split]:
    """One split for each repeat, of rows whose class is kept.

    30 % of the true rows, drawn with the shares of the classes kept, are tested on; the others
    are trained on, and equally many synthetic rows, with fewer of both where one runs short or
    max_rows is less. Held-out rows, if there are any, are tested on instead of the 30 %.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    tested = true if held_out is None else held_out
    real, made, other = (np.flatnonzero(target.labels(t) >= 0) for t in (true, synthetic, tested))
    labels = target.labels(true)[real]
    test_rows = round(TEST_SHARE * len(labels))
    train_rows = min(len(labels) - test_rows, len(made), settings.max_rows)
    test_rows = min(test_rows, settings.max_rows)
    if min(train_rows, test_rows, len(made if held_out is None else other)) < target.classes:
        raise DataError(
            f"too few rows to predict {true.domain.names[target.attribute]!r}: every table needs "
            "more rows than the target has classes; give larger ones or name another target"
        )
    others = other_columns(true, target)

    def sample(table: CodedTable, rows: NDArray[np.int64]) -> Sample:
        return Sample(feature_matrix(table, others, rows), target.labels(table)[rows])

    rng = np.random.default_rng(settings.seed)
    shuffle = StratifiedShuffleSplit(
        settings.repeats, train_size=train_rows, test_size=test_rows, random_state=settings.seed
    )
    splits = []
    for train, test in shuffle.split(labels, labels):
        chosen = real[test]
        if held_out is not None:
            chosen = rng.permutation(other)[: settings.max_rows]
        drawn = rng.permutation(made)[:train_rows]
        splits.append(
            Split(sample(true, real[train]), sample(synthetic, drawn), sample(tested, chosen))
        )
    return splits


# One kind of model, trained on true and on synthetic rows of one split.


def _train_and_test(
    name: str, attributes: Sequence[Attribute], classes: int, split: Split, seed: int
) -> list[dict[Measure, float]]:
    """Return the scores of a model of true and of one of synthetic rows."""
    from sklearn.dummy import DummyClassifier

    found, test = [], split.test
    for sample in (split.real, split.synthetic):
        model: Any = logistic_regression(attributes)
        if len(np.unique(sample.labels)) == 1:
            model = DummyClassifier()
        elif name == BOOSTED:
            model = gradient_boosting(attributes, seed)
        model.fit(sample.features, sample.labels)
        found.append(scores(class_probabilities(model, test.features, classes), test.labels))
    return found


def _chance(split: Split, classes: int, seed: int) -> dict[Measure, float]:
    """Scores of a guess drawn from the frequencies of the classes, which sees no column."""
    from sklearn.dummy import DummyClassifier

    guess = DummyClassifier(strategy="stratified", random_state=seed)
    guess.fit(split.real.features, split.real.labels)
    return scores(class_probabilities(guess, split.test.features, classes), split.test.labels)


def _model_scores(
    name: str, outcomes: list[list[dict[Measure, float]]], chance: dict[Measure, Spread]
) -> ModelScores:
    real, synthetic = (_spreads([outcome[i] for outcome in outcomes]) for i in (0, 1))
    return ModelScores(name, real, synthetic, chance)


def _spreads(repeats: list[dict[Measure, float]]) -> dict[Measure, Spread]:
    return {measure: spread([scores[measure] for scores in repeats]) for measure in repeats[0]}


def _propensity_tasks(
    true: CodedTable, synthetic: CodedTable, max_rows: int, seed: int
) -> list[Callable[[], float]]:
    """One task for each fold: the area under the curve of a classifier of true and synthetic rows.

    As many true as synthetic rows, at most max_rows of either, are drawn and split into folds;
    each fold is judged by a model of the others. 0.5 means indistinguishable, 1 perfectly told
    apart. Rows that both tables share push it below 0.5, since a row's twin among the training
    rows is of the other kind. Snoke et al. 2018, "General and specific utility measures for
    synthetic data".
    """
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold

    rng = np.random.default_rng(seed)
    rows = min(true.num_rows, synthetic.num_rows, max_rows)
    drawn = [(table, rng.permutation(table.num_rows)[:rows]) for table in (true, synthetic)]
    every = range(len(true.domain))
    features = np.concatenate([feature_matrix(table, every, chosen) for table, chosen in drawn])
    is_true = np.repeat([1, 0], rows)

    def fold(train: NDArray, test: NDArray) -> float:
        model = gradient_boosting(true.domain.attributes, seed)
        model.fit(features[train], is_true[train])
        return float(roc_auc_score(is_true[test], model.predict_proba(features[test])[:, 1]))

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return [partial(fold, train, test) for train, test in folds.split(features, is_true)]


# What a reader of the scores has to know.


def _of_splits(
    splits: list[Split],
    classes: int,
    true: CodedTable,
    synthetic: CodedTable,
    held_out: CodedTable | None,
    settings: ModelSettings,
) -> Iterator[str]:
    """Sentences about the rows and classes that the models saw."""
    yield "features are codes of the schema: values inside a bin are not distinguished"
    if held_out is None:
        yield (
            "the synthetic table was made from all true rows, those tested on included; a control "
            "table would avoid it"
        )
    trained = len(splits[0].real.labels)
    if trained == settings.max_rows:
        yield f"models were trained on {trained:,} rows at most, to save time"
    elif synthetic.num_rows < (1 - TEST_SHARE) * true.num_rows - 1:
        yield (
            f"the synthetic table is shorter: every model was trained on {trained:,} rows, those "
            "of true rows, too"
        )
    fewest = [min(len(np.unique(part.labels)) for part in parts) for parts in zip(*splits)]
    for least, name in zip(fewest, ("true rows that were trained", "synthetic rows that were "
                                    "trained", "rows that were tested")):  # fmt: skip
        if least < classes:
            missing = f"{classes - least} of {classes} classes did not occur"
            yield f"in some repeats {missing} among the {name} on"
    if fewest[1] == 1:
        yield "in some repeats the synthetic rows had one class only: it was predicted"
    if fewest[2] == 1:
        yield "in some repeats only one class was tested on: AUROC is set to 0.5 there"


def _determined(columns: tuple[str, ...]) -> Iterator[str]:
    """A sentence where single columns (nearly) determine the target."""
    if columns:
        named = first_of([repr(name) for name in columns], MOST_NAMED)
        verb = "determines" if len(columns) == 1 else "each determine"
        yield (
            f"{named} {verb} the target, or nearly so: the scores say whether the synthetic table "
            "kept that, and little else; name another target"
        )


def _shared_rows(
    overlap: Overlap | None, propensity: Spread, warned: Sequence[str]
) -> Iterator[str]:
    """Sentences where rows are not held out, or in both tables; between them, what models said."""
    if overlap is not None and (overlap.found or overlap.complete):
        yield (
            "control rows that were tested on are rows of the true table, too: models trained on "
            "that may look better than they are"
        )
    yield from warned
    if propensity.mean < BELOW_CHANCE:
        yield "the propensity is below 0.5 because both tables share rows: it means nothing here"


# Models, and tasks on threads.

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
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

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
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

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
    from threadpoolctl import ThreadpoolController

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
    from sklearn.exceptions import ConvergenceWarning

    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield sentences
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        sentences.append("logistic regression did not converge in one or more of the repeats")


# Scores of predictions on rows with known classes, and of the columns that a model relies on.


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
    from sklearn.metrics import precision_recall_fscore_support

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
    from sklearn.metrics import roc_auc_score

    present = np.unique(labels)
    if len(present) < 2:
        return 0.5
    return float(np.mean([roc_auc_score(labels == c, probabilities[:, c]) for c in present]))


def spread(values: list[float]) -> Spread:
    """Mean and standard deviation (of the sample; 0 for a single value)."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Spread(float(np.mean(values)), std, len(values))


# Which column the models predict.

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


def find_target(true: CodedTable, name: str) -> Target:
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


def determining(true: CodedTable, target: Target) -> tuple[str, ...]:
    """Columns each of which by itself (nearly) determines the target, in their order.

    On one half of the rows the most frequent class of each value is learnt; on the other half it
    is guessed, the most frequent class of all for a value not seen before. Goodman and Kruskal's
    lambda, the part of the errors that knowing the column takes away, must reach 0.9. A column in
    which no value occurs twice determines nothing in this sense.
    """
    found = []
    for name, labels, other in _other_codes(true, target):
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


def _other_codes(true: CodedTable, target: Target) -> Iterator[tuple[str, Codes, Codes]]:
    """Yield every other column: its name, and the classes and codes of some rows, in no order."""
    labels = target.labels(true)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(labels >= 0))[:TARGET_ROWS]
    for i in other_columns(true, target):
        codes = np.unique(true.columns[i][rows], return_inverse=True)[1]
        yield true.domain.names[i], labels[rows], codes


def other_columns(true: CodedTable, target: Target) -> list[int]:
    """Positions of all columns but the target."""
    return [i for i in range(len(true.domain)) if i != target.attribute]


# The check of models.

SMALL_LOSS, LARGE_LOSS = 0.1, 0.3
"""Parts of a model's gain over chance."""
TELLTALE = 0.75
"""Area under the curve from which a classifier easily distinguishes the tables."""


class ModelsCheck(Check):
    """What models lose that are trained on synthetic rows instead of true ones."""

    name, title, uses = "utility", "Models", ("models",)
    rules = (
        Word("no gain", "plain", lambda loss: loss is None, "true rows teach them nothing"),
        Word("large loss", "poor", lambda loss: loss > LARGE_LOSS,
             f"training on synthetic rows takes away more than {LARGE_LOSS:.0%} of the gain over "
             "chance"),
        Word("some loss", "fair", lambda loss: loss > SMALL_LOSS,
             f"it takes away more than {SMALL_LOSS:.0%}"),
        Word("small loss", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> Utility | None:
        if comparison.settings.target is None:
            return None
        pair, steps = comparison.pair, comparison.steps("models")
        game = (comparison.settings, comparison.workers, steps, *(comparison.control or ()))
        return measure_utility(pair.true, pair.synthetic, *game)

    def judge(self, facts: Utility | None, evaluation: Any) -> Finding:
        if facts is None:
            text = "No model was trained, so its loss is not known."
            advice = ("Name a target column to train models.",)
            return Finding("plain", "not requested", text, advice=advice)
        parts, losses = [], []
        for model in facts.models:
            measure = next(m for m in MEASURES if m in model.real)
            real, made = model.real[measure].mean, model.synthetic[measure].mean
            chance = model.chance.get(measure)
            kept = kept_part(real, made, None if chance is None else chance.mean)
            text = f"{model.model} reaches {measure} {significant(made)} instead of "
            text += significant(real)
            if kept is not None:
                losses.append(1 - kept)
                text += f" ({share(max(kept, 0.0), 2)} of its gain over chance)"
            parts.append(text)
        text = f"Trained on synthetic rows to predict {quoted(facts.target)}, {'; '.join(parts)}."
        if facts.propensity.mean >= TELLTALE:
            text += (
                " A classifier easily distinguishes synthetic rows from true ones (area under the "
                f"curve {significant(facts.propensity.mean)})."
            )
        if not losses:
            text += " There was nothing to learn from the true rows."
        tile = (significant(facts.propensity.mean),
                "area under the curve of a classifier that distinguishes the tables; 0.5 if it "
                "cannot")  # fmt: skip
        figures = _model_figures(facts, evaluation.membership is not None)
        return Finding(
            *self.word_for(max(losses, default=None)), text, figures=figures,
            notes=facts.limitations, tiles=(tile,),
        )  # fmt: skip


def _model_figures(facts: Utility, held_out: bool) -> tuple[Facts | Table, ...]:
    real, synthetic = facts.train_rows
    tested = "rows of the control table" if held_out else "other true rows"
    lines = (
        ("target", f"{facts.target} ({counted(facts.classes, 'class', 'classes')})"),
        ("trained on", f"{real:,} true or {synthetic:,} synthetic rows, tested on "
         f"{facts.test_rows:,} {tested}"),
        ("propensity", f"area under the curve {score_text(facts.propensity)} of a classifier of "
         "true and synthetic rows; 0.5 if it cannot distinguish them"),
    )  # fmt: skip
    rows = [
        (model.model, measure, real, model.synthetic[measure], model.chance[measure].mean,
         kept_part(real.mean, model.synthetic[measure].mean, model.chance[measure].mean),
         _score_line(model, measure))
        for model in facts.models for measure, real in model.real.items()
    ]  # fmt: skip
    columns = (
        Column("model"), Column("measure"), number("trained on true", score_text),
        number("on synthetic", score_text), number("chance", decimals),
        number("kept", partial(share, digits=2)), Column("picture"),
    )  # fmt: skip
    caption = "Scores on true rows: mean ± standard deviation over repeats. Kept: part of the gain "
    caption += "over chance"
    return (Facts(lines), Table(caption, columns, rows, "scores", len(rows)))


def score_text(found: Spread) -> str:
    """Return a score with its standard deviation, if there is one."""
    return decimals(found.mean) + f" ± {decimals(found.std)}" * (found.repeats > 1)


def _score_line(model: ModelScores, measure: Measure) -> Line:
    """Return the scores of a model, trained on either table, and of a guess on one axis."""
    real, made, chance = model.real[measure], model.synthetic[measure], model.chance[measure]
    marks = [
        Mark(kind, found.mean, found.mean - found.std, found.mean + found.std)
        for kind, found in (("a", real), ("b", made))
    ]
    label = (
        f"{measure} of {model.model}: true {significant(real.mean)}, synthetic "
        f"{significant(made.mean)}, chance {significant(chance.mean)}"
    )
    return Line(0.0, 1.0, (Mark("chance", chance.mean), *marks), label)
