"""What is predicted, how often, and on how many rows."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.errors import InputError

MAX_REPEATS = 100
"""More change no figure that is shown."""
SEEDS = 2**32
"""scikit-learn takes seeds below this."""


@dataclass(frozen=True)
class UtilitySettings:
    """How the utility of a synthetic table is measured.

    Attributes:
        target: the column to predict; None lets the program propose one.
        seed: of splits, samples and models. It protects nothing.
        repeats: splits that every model is trained and tested on.
        max_rows: rows at most that a model is trained on, and as many that it is tested on.

    Raises:
        InputError: fewer than one or more than 100 repeats, fewer than 100 rows, or a seed that
            is negative or reaches 2^32 when the repeats count it on.
    """

    target: str | None = None
    seed: int = 0
    repeats: int = 5
    max_rows: int = 10_000

    def __post_init__(self) -> None:
        self._check("repeats", 1, MAX_REPEATS)
        self._check("max_rows", 100, None)
        self._check("seed", 0, SEEDS - self.repeats)

    def _check(self, name: str, least: int, most: int | None) -> None:
        value = getattr(self, name)
        number = as_integer(value)
        if number is None or number < least or (most is not None and number > most):
            needed = f"at least {least}" if most is None else f"{least} to {most:,}"
            raise InputError(f"{name} is {shown(value)}: give {needed}")
        object.__setattr__(self, name, number)
