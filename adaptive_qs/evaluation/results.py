"""What models and attacks found, and what was asked of them: values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.errors import InputError

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
        importance_agreement: Spearman's rank correlation of the permutation importances of the
            two; None where undefined.
    """

    model: str
    real: dict[Measure, Spread]
    synthetic: dict[Measure, Spread]
    chance: dict[Measure, Spread]
    importance_agreement: Spread | None


@dataclass(frozen=True)
class Importance:
    """The loss of score when a column is shuffled, of the model of true and of synthetic rows."""

    column: str
    real: float
    synthetic: float


@dataclass(frozen=True)
class Utility:
    """Train on synthetic, test on real; owner only.

    Attributes:
        target: the column predicted.
        proposed: whether the program chose it.
        classes: number of its classes.
        train_rows: rows that each model was trained on: true and synthetic.
        test_rows: true rows that all were tested on.
        models: their scores.
        importances: of the boosted model, the most important first; columns that do not
            matter are left out.
        propensity: area under the curve of a classifier that tells true from synthetic rows, 0.5
            if it cannot; with its spread over the folds.
        limitations: what a reader has to know, such as classes that were left out.
    """

    target: str
    proposed: bool
    classes: int
    train_rows: tuple[int, int]
    test_rows: int
    models: tuple[ModelScores, ...]
    importances: tuple[Importance, ...]
    propensity: Spread
    limitations: tuple[str, ...]


def kept_part(real: float, synthetic: float, chance: float | None) -> float | None:
    """Part of the gain over chance that a model trained on synthetic rows keeps.

    None where chance is not known, or a model trained on true rows gains nothing.
    """
    if chance is None or real - chance <= LEAST_GAIN_KEPT:
        return None
    return (synthetic - chance) / (real - chance)


# What is predicted, how often, and on how many rows.

MAX_REPEATS = 100
"""More change no figure that is shown."""
SEEDS = 2**32
"""scikit-learn takes seeds below this."""


@dataclass(frozen=True)
class UtilitySettings:
    """How the utility of a synthetic table is measured.

    Attributes:
        target: the column to predict; None lets the program propose one.
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


# The membership game: who was in the table that the synthetic one was made from?


@dataclass(frozen=True)
class Promise:
    """What a release promised: zCDP, the epsilon implied at delta, and where that was read, such
    as the name of a manifest."""

    rho: float | None
    epsilon: float | None
    delta: float | None
    source: str


@dataclass(frozen=True)
class AttackScore:
    """One attack.

    Attributes:
        attack: what it does, in a few words.
        advantage: true positive rate minus false positive rate at a threshold chosen on other
            rows.
        lower, upper: ends of the interval of the advantage.
        auc: area under the curve of the attack's score.
    """

    attack: str
    advantage: float
    lower: float
    upper: float
    auc: float


@dataclass(frozen=True)
class Membership:
    """The attacks on a released table against rows that were held out; owner only.

    Attributes:
        scores: of each attack; the strongest first.
        members, non_members: rows of the true and of the control table that were attacked.
        confidence: of every interval, all intervals together.
        bound: no attack has a larger advantage in the mean over releases; None where no promise is
            known.
        promise: that the bound follows from.
        limitations: what a reader has to know, such as a control table that overlaps.
    """

    scores: tuple[AttackScore, ...]
    members: int
    non_members: int
    confidence: float
    bound: float | None
    promise: Promise | None
    limitations: tuple[str, ...]
