"""What is predicted, how often, and on how many rows."""

from __future__ import annotations

from dataclasses import dataclass

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
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise InputError(f"repeats is {self.repeats}: give 1 to {MAX_REPEATS}")
        if self.max_rows < 100:
            raise InputError(f"max_rows is {self.max_rows}: give at least 100")
        if not 0 <= self.seed <= SEEDS - self.repeats:
            raise InputError(f"seed is {self.seed}: give 0 to {SEEDS - self.repeats:,}")
