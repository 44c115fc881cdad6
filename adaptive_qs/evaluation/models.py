"""Train on synthetic, test on real; and train on real, for scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

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
from adaptive_qs.evaluation.tables import Overlap, TablePair
from adaptive_qs.evaluation.target import (
    Array,
    Codes,
    Target,
    agreement,
    class_probabilities,
    determining,
    feature_matrix,
    gradient_boosting,
    importances,
    logistic_regression,
    others_of,
    propose_target,
    quiet,
    run_tasks,
    scores,
    spread,
    target_of,
)
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import first_of
from adaptive_qs.table.coded import CodedTable

FOLDS = 5
"""Of the rows that a classifier tells apart."""
TEST_SHARE = 0.3
"""Of the true rows are tested on, where no rows were held out."""
LOGISTIC, BOOSTED = MODELS = ("logistic regression", "gradient boosting")
LEAST_IMPORTANCE = 0.0005
"""Columns that matter less to both models, 0.000 to three decimals, are left out."""
BELOW_CHANCE = 0.45
"""A propensity below this comes from rows that both tables share."""
MOST_NAMED = 3
"""Columns named in a sentence."""


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
    target = propose_target(true) if settings.target is None else target_of(true, settings.target)
    attributes = [true.domain.attributes[i] for i in others_of(true, target)]
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
        proposed=settings.target is None,
        classes=target.classes,
        train_rows=(len(real.labels), len(made.labels)),
        test_rows=len(test.labels),
        models=tuple(_model_scores(name, o, chance) for name, o in zip(MODELS, outcomes)),
        importances=_importances([a.name for a in attributes], outcomes[1]),
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
    settings: UtilitySettings,
) -> list[Split]:
    """One split for each repeat, of rows whose class is kept.

    30 % of the true rows, drawn with the shares of the classes kept, are tested on; the others
    are trained on, and equally many synthetic rows, with fewer of both where one runs short or
    max_rows is less. Held-out rows, if there are any, are tested on instead of the 30 %.
    """
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
    others = others_of(true, target)

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


class Outcome(NamedTuple):
    """Of models of true and of synthetic rows: their scores, and what a shuffled column loses."""

    scores: list[dict[Measure, float]]
    importances: list[Array]


def _train_and_test(
    name: str, attributes: Sequence[Attribute], classes: int, split: Split, seed: int
) -> Outcome:
    outcome, test = Outcome([], []), split.test
    for sample in (split.real, split.synthetic):
        model: Any = logistic_regression(attributes)
        if len(np.unique(sample.labels)) == 1:
            model = DummyClassifier()
        elif name == BOOSTED:
            model = gradient_boosting(attributes, seed)
        model.fit(sample.features, sample.labels)
        probabilities = class_probabilities(model, test.features, classes)
        outcome.scores.append(scores(probabilities, test.labels))
        outcome.importances.append(importances(model, test.features, test.labels, classes, seed))
    return outcome


def _chance(split: Split, classes: int, seed: int) -> dict[Measure, float]:
    """Scores of a guess drawn from the frequencies of the classes, which sees no column."""
    guess = DummyClassifier(strategy="stratified", random_state=seed)
    guess.fit(split.real.features, split.real.labels)
    return scores(class_probabilities(guess, split.test.features, classes), split.test.labels)


def _model_scores(name: str, outcomes: list[Outcome], chance: dict[Measure, Spread]) -> ModelScores:
    agreed = [agreement(*outcome.importances) for outcome in outcomes]
    defined = [value for value in agreed if value is not None]
    real, synthetic = (_spreads([outcome.scores[i] for outcome in outcomes]) for i in (0, 1))
    return ModelScores(name, real, synthetic, chance, spread(defined) if defined else None)


def _spreads(repeats: list[dict[Measure, float]]) -> dict[Measure, Spread]:
    return {measure: spread([scores[measure] for scores in repeats]) for measure in repeats[0]}


def _importances(names: list[str], outcomes: list[Outcome]) -> tuple[Importance, ...]:
    """Means over the repeats of what matters, the most for the model of true rows first."""
    real, synthetic = (np.mean([o.importances[i] for o in outcomes], axis=0) for i in (0, 1))
    return tuple(
        Importance(names[i], float(real[i]), float(synthetic[i]))
        for i in np.argsort(-real, kind="stable")
        if max(abs(real[i]), abs(synthetic[i])) >= LEAST_IMPORTANCE
    )


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
    settings: UtilitySettings,
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
