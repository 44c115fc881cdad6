"""One run: what its caller may ask for, its budget, and its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from adaptive_qs.arguments import DEFAULT_SHARE, learning_share, positive_integer, shown
from adaptive_qs.errors import InputError
from adaptive_qs.privacy import DEFAULT_NEIGHBOURS, DEFAULT_WEIGH
from adaptive_qs.table.engines import DEFAULT_ENGINE


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run may be told whatever the columns are, by the names that users know.

    They mean what they mean for :class:`~adaptive_qs.synthesizer.Synthesizer` and
    :func:`~adaptive_qs.answering.api.answer`, whose ``jobs`` are the ``workers`` here.

    Raises:
        InputError: a consent is neither True nor False, the target is no name, or a number is out
            of range.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    cost: float | None = None
    learning_share: float = DEFAULT_SHARE
    rows_per_person: int | None = None
    weigh: str = DEFAULT_WEIGH
    neighbours: str = DEFAULT_NEIGHBOURS
    insecure_seed: int | None = None
    ledger: str | Path | None = None
    resume: bool = False
    anchor: str | Path | None = None
    unreviewed_schema: bool = False
    public_rows: int | None = None
    beyond_limits: bool = False
    target: str | None = None
    max_candidates: int | None = None
    max_cells: int | None = None
    max_memory: int | str | None = None
    workers: int | None = None
    engine: str = DEFAULT_ENGINE
    temp_folder: str | Path | None = None
    scheduler: Any = None

    def __post_init__(self) -> None:
        for name in ("resume", "unreviewed_schema", "beyond_limits"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(f"{name} is {shown(value)}: give True or False")
        if self.target is not None and not isinstance(self.target, str):
            raise InputError(f"target is {shown(self.target)}: give the name of a column")
        for name in ("max_candidates", "max_cells"):
            if (most := getattr(self, name)) is not None:
                positive_integer(name.replace("_", "-"), most)
        learning_share(self.learning_share)

    @classmethod
    def among(cls, parameters: Mapping[str, Any], *others: str) -> Self:
        """Those of a function's parameters that are options of a run.

        Args:
            parameters: by name; ``jobs`` are the workers.
            others: names of those that are none.

        Raises:
            TypeError: a name is neither.
        """
        given = {"workers" if name == "jobs" else name: parameters[name] for name in parameters}
        return cls(**{name: value for name, value in given.items() if name not in others})

    @property
    def budgeted(self) -> bool:
        """Whether a budget is given."""
        return any(value is not None for value in (self.epsilon, self.rho, self.cost))

    @property
    def counted_rows(self) -> int | None:
        """About how many rows are counted, as far as is public: with persons who weigh alike,
        ``public_rows`` are persons."""
        rows, number = self.public_rows, self.rows_per_person
        if rows is None or self.weigh == DEFAULT_WEIGH or not isinstance(number, int):
            return rows
        return rows * number

    @property
    def insecure(self) -> bool:
        """Whether the noise comes from a seed."""
        return self.insecure_seed is not None
