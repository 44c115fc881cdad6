"""A column that models can sensibly predict."""

from __future__ import annotations

import numpy as np

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.entropy import miller_entropy
from adaptive_qs.evaluation.utility.target import Codes, Target, target_of

NEARLY_DETERMINED = 0.9
"""A column of which another tells this share of the entropy is another name for that."""
LEAST_TOLD = 0.01
"""A column of which no other tells this share of the entropy cannot be predicted."""
MAX_CANDIDATES = 50
MAX_ROWS = 20_000


def propose_target(true: CodedTable) -> Target:
    """The last column if it can serve, else the one that the others tell most about.

    A column can serve if it makes a target without grouping and of its entropy H the other column
    that tells most tells at least 1 % and less than 90 %. How much a column tells is the
    uncertainty coefficient I / H, with the mutual information I of the plug-in estimate less
    Miller and Madow's bias. Of several columns the one with the highest mean over the other
    columns is taken, to two decimals; ties go to fewer classes, then to the later column. At most
    the last 50 columns and 20,000 evenly spaced rows are looked at.

    Raises:
        DataError: no column can serve.
    """
    rows = np.linspace(0, true.num_rows - 1, min(true.num_rows, MAX_ROWS)).astype(np.int64)
    best: tuple[tuple[float, int, int], Target] | None = None
    last = len(true.domain) - 1
    for position in range(last, max(-1, last - MAX_CANDIDATES), -1):
        target = _plain_target(true, position)
        if target is None:
            continue
        told = _told_by_others(true, target, rows)
        if not LEAST_TOLD <= told.max() < NEARLY_DETERMINED:
            continue
        if position == last:
            return target
        rank = (round(float(told.mean()), 2), -target.classes, position)
        if best is None or rank > best[0]:
            best = (rank, target)
    if best is None:
        raise DataError(
            "no column makes a target: it takes one of 2 to 20 classes that the others tell "
            "something, but not all about; name one with the target option"
        )
    return best[1]


def _plain_target(true: CodedTable, position: int) -> Target | None:
    """The column as a target, if it needs no grouping."""
    try:
        target = target_of(true, true.domain.names[position])
    except DataError:
        return None
    attribute = true.domain.attributes[position]
    kept = target.class_of >= 0
    grouped = np.count_nonzero(kept) != target.classes
    return None if attribute.size < 2 or grouped else target


def _told_by_others(true: CodedTable, target: Target, rows: Codes) -> np.ndarray:
    """Uncertainty coefficient of the target given each other column."""
    labels = target.labels(true)[rows]
    kept = labels >= 0
    labels = labels[kept]
    entropy = miller_entropy(np.bincount(labels))
    told = []
    for i, codes in enumerate(true.columns):
        if i == target.attribute:
            continue
        other = np.unique(codes[rows][kept], return_inverse=True)[1]
        joint = miller_entropy(np.unique(other * target.classes + labels, return_counts=True)[1])
        information = entropy + miller_entropy(np.bincount(other)) - joint
        told.append(max(0.0, information / entropy) if entropy > 0 else 0.0)
    return np.array(told)
