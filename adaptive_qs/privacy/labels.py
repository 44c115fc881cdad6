"""What a charge paid for, in its label: said here once, and read back for the statement.

A label begins with a word that tells the purpose; columns follow by name. Names may hold anything,
so only labels of a single column are taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

SELECTION = "select"
TOTAL = "total"
SEPARATOR = " x "
"""Between the columns of a combination."""


class Purpose(Enum):
    """What a charge paid for."""

    ROWS = "rows"
    """The number of rows."""
    BINS = "bins"
    """Bounds and bins of one column."""
    VALUES = "values"
    """Categories of one column."""
    SELECTION = "selection"
    """Which marginal is measured next."""
    RESIDUAL = "residual"
    """The part of a marginal that smaller ones do not tell."""
    STRATEGY = "strategy"
    """Answers to a strategy, from which the workload's follow."""
    QUERIES = "queries"
    """Answers to the workload's own queries."""
    OTHER = "other"
    """None of these, as far as the label tells."""


_PREFIXES = {
    "residual ": Purpose.RESIDUAL,
    "strategy ": Purpose.STRATEGY,
    "queries ": Purpose.QUERIES,
    "bins of ": Purpose.BINS,
    "values of ": Purpose.VALUES,
}
_WORDS = {purpose: prefix for prefix, purpose in _PREFIXES.items()}


class Reading(NamedTuple):
    """A label read back.

    Attributes:
        purpose: what was paid for.
        subject: the rest of the label: the column of bins and values, or columns joined.
    """

    purpose: Purpose
    subject: str


def measurement_label(purpose: Purpose, names: Sequence[str]) -> str:
    """The label of noisy counts over these columns; over none it is the number of rows."""
    if not names and purpose is Purpose.RESIDUAL:
        return TOTAL
    return _WORDS[purpose] + (SEPARATOR.join(names) or TOTAL)


def column_label(purpose: Purpose, name: str) -> str:
    """The label of what is learnt about one column: ``Purpose.BINS`` or ``Purpose.VALUES``."""
    return _WORDS[purpose] + name


def read_label(label: str) -> Reading:
    """What a label says; ``Purpose.OTHER`` where it follows none of these rules."""
    if label == TOTAL:
        return Reading(Purpose.ROWS, "")
    if label == SELECTION:
        return Reading(Purpose.SELECTION, "")
    for prefix, purpose in _PREFIXES.items():
        if label.startswith(prefix):
            return Reading(purpose, label.removeprefix(prefix))
    return Reading(Purpose.OTHER, label)
