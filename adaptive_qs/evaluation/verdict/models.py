"""What models lose that are trained on synthetic rows."""

from __future__ import annotations

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.utility.scores import Measure, kept_part
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.sentence import Sentence
from adaptive_qs.pages.names import quoted, short
from adaptive_qs.pages.numbers import share, significant

MEASURES: tuple[Measure, ...] = ("AUROC", "macro F1", "balanced accuracy")
"""The first of them that was computed speaks for a model."""
NO_MODELS = "no models: "
"""How the limitation begins that says why models that were asked for could not be trained."""


def why_no_models(evaluation: Evaluation) -> str | None:
    """Why none was trained although it was asked for; None where it was not asked for."""
    found = (t for t in evaluation.limitations if t.startswith(NO_MODELS))
    return next((short(text.removeprefix(NO_MODELS), 600) for text in found), None)


def models_sentence(evaluation: Evaluation) -> Sentence:
    """What models lose."""
    utility = evaluation.utility
    if utility is None or not utility.models:
        reason = why_no_models(evaluation)
        if reason is not None:
            return Sentence("plain", "not possible", f"No model was trained: {reason}.")
        return Sentence("plain", "not asked", "No model was trained, so its loss is not known.")
    parts, losses = [], []
    for model in utility.models:
        measure = next((m for m in MEASURES if m in model.real), None)
        if measure is None:
            continue
        real, made = model.real[measure].mean, model.synthetic[measure].mean
        chance = model.chance.get(measure)
        kept = kept_part(real, made, None if chance is None else chance.mean)
        text = f"{model.model} reaches {measure} {significant(made)} instead of {significant(real)}"
        if kept is not None:
            losses.append(1 - kept)
            text += f" ({share(max(kept, 0.0), 2)} of its gain over chance)"
        parts.append(text)
    text = f"Trained on synthetic rows to predict {quoted(utility.target)}, {'; '.join(parts)}."
    if utility.propensity.mean >= limit.TELLTALE:
        text += (
            " A classifier tells synthetic rows from true ones with ease (area under the curve "
            f"{significant(utility.propensity.mean)})."
        )
    if not losses:
        return Sentence("plain", "no gain", text + " Nothing was to be learnt from the true rows.")
    worst = max(losses)
    if worst <= limit.SMALL_LOSS:
        return Sentence("good", "small loss", text)
    if worst <= limit.LARGE_LOSS:
        return Sentence("fair", "some loss", text)
    return Sentence("poor", "large loss", text)
