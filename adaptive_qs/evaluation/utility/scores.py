"""What models trained on either table score on true rows that they have not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LEAST_GAIN_KEPT = 0.01
"""Where models of true rows gain no more over chance, there is nothing to keep."""

Measure = Literal["macro F1", "AUROC", "balanced accuracy"]


@dataclass(frozen=True)
class Spread:
    """A score over repeats.

    Attributes:
        mean: over the repeats.
        std: standard deviation over the repeats.
        repeats: their number.
    """

    mean: float
    std: float
    repeats: int


@dataclass(frozen=True)
class ModelScores:
    """One kind of model; every score is on the same held-out true rows.

    Attributes:
        model: its name, such as "logistic regression".
        real: by measure, trained on true rows.
        synthetic: by measure, trained on synthetic rows.
        chance: by measure, of a guess that knows the classes' frequencies only.
        importance_agreement: Spearman's rank correlation of the permutation importances of the
            model trained on true and that trained on synthetic rows; None where undefined.
    """

    model: str
    real: dict[Measure, Spread]
    synthetic: dict[Measure, Spread]
    chance: dict[Measure, Spread]
    importance_agreement: Spread | None


@dataclass(frozen=True)
class Importance:
    """How much a column matters for the prediction: the loss of score when it is shuffled.

    Attributes:
        column: its name.
        real: of the model trained on true rows.
        synthetic: of the model trained on synthetic rows.
    """

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
