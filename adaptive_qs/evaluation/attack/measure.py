"""The membership game played on a released table."""

from __future__ import annotations

import numpy as np

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.attack.bound import advantage_bound
from adaptive_qs.evaluation.attack.classifier import classifier_scores
from adaptive_qs.evaluation.attack.closeness import (
    MAX_ROWS,
    closeness_scores,
    density_steps,
    rows_compared,
)
from adaptive_qs.evaluation.attack.game import Membership, Promise
from adaptive_qs.evaluation.attack.interval import judge, resolution
from adaptive_qs.evaluation.attack.marginals import attribute_sets, marginal_scores
from adaptive_qs.evaluation.attack.overlap import Overlap, check_control
from adaptive_qs.evaluation.attack.tables import Stack
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.utility.settings import SEEDS
from adaptive_qs.progress import StepProgress

MAX_TARGETS = 10_000
"""Members, and as many non-members, that are attacked at most."""
MAX_KNOWN = 100_000
"""Synthetic rows, and reference rows, that the attacker uses at most."""
COARSE = 0.1
"""A resolution worse than this is pointed out."""

MARGINALS = "likelihood ratio of 1-, 2- and 3-way marginals"
CLASSIFIER = "classifier of synthetic against reference rows"
CLOSENESS = "density of close rows, synthetic against reference"
ATTACKS = (MARGINALS, CLASSIFIER, CLOSENESS)


def measure_membership(
    true: CodedTable,
    synthetic: CodedTable,
    control: CodedTable,
    promise: Promise | None,
    seed: int = 0,
    workers: int = 1,
    progress: StepProgress | None = None,
    confidence: float = 0.95,
    overlap: Overlap | None = None,
) -> Membership:
    """Attack a released table and set the advantage beside the bound of its promise; owner only.

    The attacker sees the synthetic table and half of the control rows, as a sample of the
    population. He is to tell rows of the true table (members) from the other half of the control
    rows (non-members), equally many. ``attack.interval`` says how attacks are judged and
    ``attack.bound`` what the promise implies and why.

    Args:
        true: the private rows that the synthetic table was made from.
        synthetic: the released rows.
        control: rows of the same population that were held out.
        promise: of the release; None if it is not known, or if its noise came from a seed, which
            voids it.
        seed: of the draw of targets and reference rows, and of the classifier.
        workers: threads in all; they change no result.
        progress: called with the steps of the attacks done and in all.
        confidence: with which all intervals hold together.
        overlap: of :func:`check_control`, where that has been computed with the same seed.

    Raises:
        DataError: the domains differ, a table has too few rows, or the control rows were not held
            out.
        InputError: the promise is no promise, the confidence not inside (0, 1), or the seed
            negative or 2^32 or more.
    """
    TablePair(true, synthetic)
    if not 0 <= seed < SEEDS:
        raise InputError(f"seed is {seed}: give 0 to {SEEDS - 1:,}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence!r}: give a number between 0 and 1")
    bound = None if promise is None else advantage_bound(promise)
    if overlap is None:
        overlap = check_control(true, control, seed)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(control.num_rows)
    half = control.num_rows // 2
    targets = min(control.num_rows - half, true.num_rows, MAX_TARGETS)
    stack = Stack.of(
        [
            (synthetic, rng.permutation(synthetic.num_rows)[:MAX_KNOWN]),
            (control, shuffled[:half][:MAX_KNOWN]),
            (true, rng.permutation(true.num_rows)[:targets]),
            (control, shuffled[half:][:targets]),
        ]
    )
    marginals = len(attribute_sets(len(stack.columns), seed))
    steps = marginals + density_steps(2 * targets)
    found = {
        MARGINALS: marginal_scores(stack, seed, workers, _shifted(progress, 0, steps)),
        CLASSIFIER: classifier_scores(stack, true.domain.attributes, seed),
        CLOSENESS: closeness_scores(stack, workers, _shifted(progress, marginals, steps)),
    }
    judged = [
        judge(name, *stack.split_targets(found[name]), len(ATTACKS), confidence) for name in ATTACKS
    ]
    return Membership(
        scores=tuple(sorted(judged, key=lambda score: -score.advantage)),
        members=targets,
        non_members=targets,
        confidence=confidence,
        bound=bound,
        promise=promise,
        limitations=_limitations(
            overlap, resolution(targets, len(ATTACKS), confidence), bound, targets, stack
        ),
    )


def _limitations(
    overlap: Overlap, least: float, bound: float | None, targets: int, stack: Stack
) -> tuple[str, ...]:
    said = [
        "the intervals are about this one release, the bound about the mean over releases; other "
        "attacks may do better"
    ]
    if overlap.found:
        said.append(
            f"the control table overlaps the true one: {overlap.control:.1%} of its rows equal "
            f"others there, against {overlap.true:.1%} by chance; attacks look weaker than they are"
        )
    elif overlap.complete:
        said.append(
            "every control row is also a row of the true table, as may be where few combinations "
            "of values exist: whether the control rows were held out cannot be told"
        )
    if least > COARSE or (bound is not None and least > bound):
        said.append(
            f"with {targets:,} rows of either kind no advantage below about {least:.2f} can be "
            "told from none"
        )
    if targets == MAX_TARGETS:
        said.append(f"{targets:,} rows of either kind were attacked, to save time")
    compared = rows_compared(len(stack.columns))
    if compared < min(MAX_ROWS, max(stack.rows[:2])):
        said.append(
            f"the density of close rows was taken from {compared:,} rows of either kind at most: "
            "with so many columns more take long"
        )
    return tuple(said)


def _shifted(progress: StepProgress | None, before: int, total: int) -> StepProgress | None:
    """The progress of a part that comes after so many steps."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
