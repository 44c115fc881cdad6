"""One kind of model, trained on true and on synthetic rows of one split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from adaptive_qs.domain import Attribute
from adaptive_qs.evaluation.utility.features import gradient_boosting, logistic_regression
from adaptive_qs.evaluation.utility.importance import importances
from adaptive_qs.evaluation.utility.scores import Measure
from adaptive_qs.evaluation.utility.scoring import Array, class_probabilities, scores
from adaptive_qs.evaluation.utility.splits import Sample, Split

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
