"""What a reader of the scores has to know."""

from __future__ import annotations

import numpy as np

from adaptive_qs.data.table import CodedTable
from adaptive_qs.evaluation.attack.overlap import Overlap
from adaptive_qs.evaluation.utility.scores import Spread
from adaptive_qs.evaluation.utility.settings import UtilitySettings
from adaptive_qs.evaluation.utility.splits import TEST_SHARE, Sample, Split
from adaptive_qs.pages.names import first_of

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
