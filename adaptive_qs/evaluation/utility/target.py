"""Which column the models predict, and its classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError

MAX_CLASSES = 20
MAX_ORDERED_CLASSES = 10
"""Ordered targets with more codes are grouped."""
GROUPS = 4
"""Classes that they are grouped into at most."""
MIN_CLASS_ROWS = 10
"""True rows that a class needs to be kept: some to train on and some to test on."""

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Target:
    """A column to predict.

    Attributes:
        attribute: its position in the domain.
        class_of: shape (codes of the attribute,): the class of each code, -1 if it is left out.
        classes: number of classes.
        limitations: what was grouped or left out.
    """

    attribute: int
    class_of: Codes
    classes: int
    limitations: tuple[str, ...]

    def labels(self, table: CodedTable) -> Codes:
        """The class of every row, -1 for rows that are left out."""
        labels: Codes = self.class_of[table.columns[self.attribute]]
        return labels


def target_of(true: CodedTable, name: str) -> Target:
    """The column of this name as a target.

    Codes in fewer than 10 true rows are left out. An ordered column with more than 10 codes in
    use is grouped into up to 4 classes of about equally many true rows.

    Raises:
        DataError: the column is unknown, has one class only, or too many.
    """
    if name not in true.domain.names:
        raise DataError(f"target {name!r} is not in the schema: check the spelling")
    if len(true.domain) == 1:
        raise DataError(f"target {name!r} is the only column: nothing is left to predict it from")
    position = true.domain.names.index(name)
    attribute = true.domain.attributes[position]
    counts = np.bincount(true.columns[position], minlength=attribute.size)
    used = int(np.count_nonzero(counts))
    limitations = []
    if used < 2:
        raise DataError(f"target {name!r} has one value only: name another column")
    if attribute.ordered and used > MAX_ORDERED_CLASSES:
        class_of = _quantile_classes(counts)
        limitations.append(
            f"the target {name!r} is ordered and has many values: it was grouped into "
            f"{int(class_of.max()) + 1} classes at quantiles of the true table"
        )
        counts = np.bincount(class_of, weights=counts).astype(np.int64)
    else:
        class_of = np.arange(attribute.size)
    kept = counts >= MIN_CLASS_ROWS
    classes = int(kept.sum())
    if classes < 2:
        raise DataError(
            f"target {name!r} has fewer than two classes of {MIN_CLASS_ROWS} rows or more: name "
            "another column"
        )
    if classes > MAX_CLASSES:
        raise DataError(
            f"target {name!r} is unordered with more than {MAX_CLASSES} classes: name another "
            "column, or join its rare values in the schema"
        )
    if left_out := int((counts > 0).sum()) - classes:
        limitations.append(
            f"values of the target {name!r} in fewer than {MIN_CLASS_ROWS} true rows were left "
            f"out: {left_out}"
        )
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    return Target(position, numbers[class_of], classes, tuple(limitations))


def _quantile_classes(counts: Codes) -> Codes:
    """A class for each code, cut where the cumulative count passes each quantile."""
    below = np.cumsum(counts)
    shares = np.arange(1, GROUPS) / GROUPS * below[-1]
    last = int(np.flatnonzero(counts)[-1])
    before_last = int(np.flatnonzero(counts)[-2])
    cuts = {min(int(np.searchsorted(below, share)), last) for share in shares}
    cuts = {before_last if cut == last else cut for cut in cuts}
    classes: Codes = np.searchsorted(sorted(cuts), np.arange(len(counts)), side="left")
    return classes
