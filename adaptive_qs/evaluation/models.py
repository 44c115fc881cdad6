"""Train on synthetic, test on real; and train on real, for scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from adaptive_qs.domain import Attribute
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.results import (
    Importance,
    Measure,
    ModelScores,
    Spread,
    Utility,
    UtilitySettings,
)
from adaptive_qs.evaluation.scoring import (
    Array,
    agreement,
    class_probabilities,
    feature_matrix,
    gradient_boosting,
    importances,
    logistic_regression,
    quiet,
    run_tasks,
    scores,
    spread,
)
from adaptive_qs.evaluation.tables import Overlap, TablePair
from adaptive_qs.evaluation.target import Codes, Target, determining, propose_target, target_of
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import first_of
from adaptive_qs.table.coded import CodedTable

# Can a classifier tell true from synthetic rows?

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


# Which rows are trained on and which are tested on.

TEST_SHARE = 0.3
"""Of the true rows, where no rows were held out."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that a model sees.

    Attributes:
        features: shape (rows, columns but the target).
        labels: shape (rows,): classes.
    """

    features: NDArray[np.float64]
    labels: Codes


@dataclass(frozen=True, eq=False)
class Split:
    """Samples of one repeat: two to train on, and true rows to test both."""

    real: Sample
    synthetic: Sample
    test: Sample


def draw_splits(
    true: CodedTable,
    synthetic: CodedTable,
    held_out: CodedTable | None,
    target: Target,
    settings: UtilitySettings,
) -> list[Split]:
    """One split for each repeat, of rows whose class is kept.

    30 % of the true rows, drawn with the shares of the classes kept, are tested on; the others
    are trained on, and equally many synthetic rows, with fewer of both where one runs short or
    max_rows is less. Held-out rows, if there are any, are tested on instead of the 30 %.

    Raises:
        DataError: too few rows of some table have a class.
    """
    usable = [
        np.flatnonzero(target.labels(table) >= 0)
        for table in (true, synthetic, *([] if held_out is None else [held_out]))
    ]
    labels = target.labels(true)[usable[0]]
    test_rows = round(TEST_SHARE * len(labels))
    train_rows = min(len(labels) - test_rows, len(usable[1]), settings.max_rows)
    test_rows = min(test_rows, settings.max_rows)
    if min(train_rows, test_rows, len(usable[-1])) < target.classes:
        raise DataError(
            f"too few rows to predict {true.domain.names[target.attribute]!r}: every table needs "
            "more rows than the target has classes; give larger ones or name another target"
        )
    rng = np.random.default_rng(settings.seed)
    shuffle = StratifiedShuffleSplit(
        settings.repeats, train_size=train_rows, test_size=test_rows, random_state=settings.seed
    )
    splits = []
    for train, test in shuffle.split(labels, labels):
        chosen = usable[0][test]
        if held_out is not None:
            chosen = rng.permutation(usable[2])[: settings.max_rows]
        splits.append(
            Split(
                _sample(true, target, usable[0][train]),
                _sample(synthetic, target, rng.permutation(usable[1])[:train_rows]),
                _sample(true if held_out is None else held_out, target, chosen),
            )
        )
    return splits


def _sample(table: CodedTable, target: Target, rows: Rows) -> Sample:
    others = tuple(i for i in range(len(table.domain)) if i != target.attribute)
    labels = target.class_of[table.columns[target.attribute][rows]]
    return Sample(feature_matrix(table, others, rows), labels)


# One kind of model, trained on true and on synthetic rows of one split.

LOGISTIC = "logistic regression"
BOOSTED = "gradient boosting"
MODELS = (LOGISTIC, BOOSTED)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Scores of one kind of model on one split, and what a shuffled column loses."""

    real: dict[Measure, float]
    synthetic: dict[Measure, float]
    importances: tuple[Array, Array]


def model_task(
    name: str, attributes: tuple[Attribute, ...], classes: int, split: Split, seed: int
) -> Callable[[], Outcome]:
    """Training and testing of this kind of model, to be run later."""
    return partial(_train_and_test, name, attributes, classes, split, seed)


def chance_scores(split: Split, classes: int, seed: int) -> dict[Measure, float]:
    """Scores of a guess drawn from the frequencies of the classes, which sees no column."""
    guess = DummyClassifier(strategy="stratified", random_state=seed)
    guess.fit(split.real.features, split.real.labels)
    return scores(class_probabilities(guess, split.test.features, classes), split.test.labels)


def _train_and_test(
    name: str, attributes: tuple[Attribute, ...], classes: int, split: Split, seed: int
) -> Outcome:
    found = []
    lost = []
    for sample in (split.real, split.synthetic):
        model = _fitted(name, attributes, sample, seed)
        probabilities = class_probabilities(model, split.test.features, classes)
        found.append(scores(probabilities, split.test.labels))
        lost.append(importances(model, split.test.features, split.test.labels, classes, seed))
    return Outcome(found[0], found[1], (lost[0], lost[1]))


def _fitted(name: str, attributes: tuple[Attribute, ...], sample: Sample, seed: int) -> Any:
    model: Any
    if len(np.unique(sample.labels)) == 1:
        model = DummyClassifier()
    elif name == LOGISTIC:
        model = logistic_regression(attributes)
    else:
        model = gradient_boosting(attributes, seed)
    return model.fit(sample.features, sample.labels)


# What a reader of the scores has to know.

BELOW_CHANCE = 0.45
"""A propensity below this comes from rows that both tables share."""
MOST_NAMED = 3
"""Columns named in a sentence."""


def of_splits(
    splits: list[Split],
    classes: int,
    true: CodedTable,
    synthetic: CodedTable,
    held_out: CodedTable | None,
    settings: UtilitySettings,
) -> tuple[str, ...]:
    """Sentences about the rows and classes that the models saw."""
    said = ["features are codes of the schema: values inside a bin are not told apart"]
    if held_out is None:
        said.append(
            "the synthetic table was made from all true rows, those tested on included; a control "
            "table would avoid it"
        )
    trained = len(splits[0].real.labels)
    if trained == settings.max_rows:
        said.append(f"models were trained on {trained:,} rows at most, to save time")
    elif synthetic.num_rows < (1 - TEST_SHARE) * true.num_rows - 1:
        said.append(
            f"the synthetic table is shorter: every model was trained on {trained:,} rows, those "
            "of true rows, too"
        )
    for name, samples in (
        ("true rows that were trained on", [split.real for split in splits]),
        ("synthetic rows that were trained on", [split.synthetic for split in splits]),
        ("rows that were tested on", [split.test for split in splits]),
    ):
        if missing := _absent(samples, classes):
            said.append(
                f"in some repeats {missing} of {classes} classes did not occur among the {name}"
            )
    if any(len(np.unique(split.synthetic.labels)) == 1 for split in splits):
        said.append("in some repeats the synthetic rows had one class only: it was predicted")
    if any(len(np.unique(split.test.labels)) == 1 for split in splits):
        said.append("in some repeats only one class was tested on: AUROC is set to 0.5 there")
    return tuple(said)


def of_determining(columns: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence where single columns (nearly) determine the target."""
    if not columns:
        return ()
    named = first_of([repr(name) for name in columns], MOST_NAMED)
    verb = "determines" if len(columns) == 1 else "each determine"
    return (
        f"{named} {verb} the target, or nearly so: the scores say whether the synthetic table kept "
        "that, and little else; name another target",
    )


def of_overlap(overlap: Overlap | None) -> tuple[str, ...]:
    """A sentence where the held-out rows that models are tested on may not be held out."""
    if overlap is None or not (overlap.found or overlap.complete):
        return ()
    return (
        "control rows that were tested on are rows of the true table, too: models trained on that "
        "may look better than they are",
    )


def of_propensity(propensity: Spread) -> tuple[str, ...]:
    """A sentence where true and synthetic rows are told apart worse than by chance."""
    if propensity.mean >= BELOW_CHANCE:
        return ()
    return ("the propensity is below 0.5 because both tables share rows: it means nothing here",)


def _absent(samples: list[Sample], classes: int) -> int:
    """Most classes that any of the samples lacks."""
    return max(classes - len(np.unique(sample.labels)) for sample in samples)


LEAST_IMPORTANCE = 0.0005
"""Columns that matter less to both models, 0.000 to three decimals, are left out."""


def measure_utility(
    true: CodedTable,
    synthetic: CodedTable,
    settings: UtilitySettings,
    workers: int = 1,
    progress: StepProgress | None = None,
    held_out: CodedTable | None = None,
    overlap: Overlap | None = None,
) -> Utility:
    """What models learn from a synthetic table, judged on true rows; owner only.

    In each repeat logistic regression and gradient boosting learn from true rows and from equally
    many synthetic rows, and are judged on the same other true rows (TSTR: Esteban, Hyland, Rätsch
    2017). Features are codes of the schema: values inside a bin are not told apart.

    The synthetic table was made from all true rows, those tested on included. That is the usual
    protocol, and what it favours the synthetic table by is bounded by the privacy promise; rows
    that were never used, as `held_out`, avoid it.

    Args:
        true: the private rows.
        synthetic: rows over the same domain.
        settings: target, seed, repeats and size.
        workers: threads in all; they change no result.
        progress: called with the models done and in all.
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
    proposed = settings.target is None
    target = propose_target(true) if settings.target is None else target_of(true, settings.target)
    others = tuple(a for i, a in enumerate(true.domain.attributes) if i != target.attribute)
    splits = draw_splits(true, synthetic, held_out, target, settings)
    seeds = [settings.seed + i for i in range(settings.repeats)]
    learning = [
        model_task(name, others, target.classes, split, seed)
        for name in MODELS
        for split, seed in zip(splits, seeds)
    ]
    telling = propensity_tasks(true, synthetic, settings.max_rows, settings.seed)
    tasks: Sequence[Callable[[], Any]] = [*learning, *telling]
    with quiet() as warned:
        results = run_tasks(tasks, workers, progress)
        guesses = [chance_scores(s, target.classes, seed) for s, seed in zip(splits, seeds)]
    chance = _spreads(guesses)
    outcomes = {
        name: results[i * settings.repeats : (i + 1) * settings.repeats]
        for i, name in enumerate(MODELS)
    }
    propensity = spread(results[len(learning) :])
    return Utility(
        target=true.domain.names[target.attribute],
        proposed=proposed,
        classes=target.classes,
        train_rows=(len(splits[0].real.labels), len(splits[0].synthetic.labels)),
        test_rows=len(splits[0].test.labels),
        models=tuple(_model_scores(name, outcomes[name], chance) for name in MODELS),
        importances=_importances([a.name for a in others], outcomes[BOOSTED]),
        propensity=propensity,
        limitations=(
            *target.limitations,
            *of_determining(determining(true, target)),
            *of_splits(splits, target.classes, true, synthetic, held_out, settings),
            *of_overlap(overlap),
            *warned,
            *of_propensity(propensity),
        ),
    )


def _model_scores(name: str, outcomes: list[Outcome], chance: dict[Measure, Spread]) -> ModelScores:
    agreed = [agreement(*outcome.importances) for outcome in outcomes]
    defined = [value for value in agreed if value is not None]
    return ModelScores(
        model=name,
        real=_spreads([outcome.real for outcome in outcomes]),
        synthetic=_spreads([outcome.synthetic for outcome in outcomes]),
        chance=chance,
        importance_agreement=spread(defined) if defined else None,
    )


def _spreads(repeats: list[dict[Measure, float]]) -> dict[Measure, Spread]:
    return {measure: spread([scores[measure] for scores in repeats]) for measure in repeats[0]}


def _importances(names: list[str], outcomes: list[Outcome]) -> tuple[Importance, ...]:
    """Means over the repeats of what matters, the most for the model of true rows first."""
    real, synthetic = (
        np.mean([outcome.importances[i] for outcome in outcomes], axis=0) for i in (0, 1)
    )
    return tuple(
        Importance(names[i], float(real[i]), float(synthetic[i]))
        for i in np.argsort(-real, kind="stable")
        if max(abs(real[i]), abs(synthetic[i])) >= LEAST_IMPORTANCE
    )
