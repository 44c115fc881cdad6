"""What single columns tell about a target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.table import CodedTable
from adaptive_qs.evaluation.entropy import miller_entropy
from adaptive_qs.evaluation.utility.target import Codes, Target

NEARLY_DETERMINED = 0.9
"""A column that takes away this part of the errors in guessing the target nearly determines it."""
MAX_ROWS = 20_000
"""True rows that are looked at, drawn evenly."""


def told_by_others(true: CodedTable, target: Target) -> NDArray[np.float64]:
    """Share of the target's entropy that each other column tells, in their order.

    The uncertainty coefficient I / H, with the mutual information I of the plug-in estimate less
    Miller and Madow's bias.
    """
    labels, rows = _some(true, target)
    entropy = miller_entropy(np.bincount(labels))
    told = []
    for i in _others(true, target):
        other = np.unique(true.columns[i][rows], return_inverse=True)[1]
        joint = miller_entropy(np.bincount(other * target.classes + labels))
        information = entropy + miller_entropy(np.bincount(other)) - joint
        told.append(max(0.0, information / entropy) if entropy > 0 else 0.0)
    return np.array(told)


def determining(true: CodedTable, target: Target) -> tuple[str, ...]:
    """Columns of which one alone (nearly) determines the target, in their order.

    On one half of the rows the most frequent class of each value is learnt; on the other half it
    is guessed, the most frequent class of all for a value not seen before. Goodman and Kruskal's
    lambda, the part of the errors that knowing the column takes away, must reach 0.9. A column in
    which no value occurs twice determines nothing in this sense.
    """
    labels, rows = _some(true, target)
    half = len(rows) // 2
    usual = int(np.bincount(labels[:half], minlength=target.classes).argmax())
    errors = np.count_nonzero(labels[half:] != usual)
    found = []
    for i in _others(true, target):
        values, other = np.unique(true.columns[i][rows], return_inverse=True)
        counts = np.zeros((len(values), target.classes), dtype=np.int64)
        np.add.at(counts, (other[:half], labels[:half]), 1)
        guess = np.where(counts.any(axis=1), counts.argmax(axis=1), usual)
        wrong = np.count_nonzero(guess[other[half:]] != labels[half:])
        if errors and 1 - wrong / errors >= NEARLY_DETERMINED:
            found.append(true.domain.names[i])
    return tuple(found)


def _some(true: CodedTable, target: Target) -> tuple[Codes, Codes]:
    """Classes of rows that have one, in an order of chance, and the numbers of these rows."""
    labels = target.labels(true)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(labels >= 0))[:MAX_ROWS]
    return labels[rows], rows


def _others(true: CodedTable, target: Target) -> list[int]:
    return [i for i in range(len(true.domain)) if i != target.attribute]
