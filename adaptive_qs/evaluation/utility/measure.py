"""Train on synthetic, test on real; and train on real, for scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.attack.overlap import Overlap
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.utility import limits
from adaptive_qs.evaluation.utility.importance import agreement
from adaptive_qs.evaluation.utility.models import (
    BOOSTED,
    MODELS,
    Outcome,
    chance_scores,
    model_task,
)
from adaptive_qs.evaluation.utility.propensity import FOLDS, propensity_tasks
from adaptive_qs.evaluation.utility.proposal import propose_target
from adaptive_qs.evaluation.utility.scores import Importance, Measure, ModelScores, Spread, Utility
from adaptive_qs.evaluation.utility.scoring import spread
from adaptive_qs.evaluation.utility.settings import UtilitySettings
from adaptive_qs.evaluation.utility.splits import draw_splits
from adaptive_qs.evaluation.utility.target import target_of
from adaptive_qs.evaluation.utility.threads import quiet, run_tasks
from adaptive_qs.evaluation.utility.told import determining
from adaptive_qs.progress import StepProgress

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
            *limits.of_determining(determining(true, target)),
            *limits.of_splits(splits, target.classes, true, synthetic, held_out, settings),
            *limits.of_overlap(overlap),
            *warned,
            *limits.of_propensity(propensity),
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
