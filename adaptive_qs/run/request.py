"""What a run may be told: one set of options for the command line and for callers of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run may be told whatever the columns are, by the names that users know.

    They mean what they mean for :class:`~adaptive_qs.synthesizer.Synthesizer` and
    :func:`~adaptive_qs.answering.api.answer`, whose ``jobs`` are the ``workers`` here.
    """

    learning_share: float
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    cost: float | None = None
    max_memory: int | str | None = None
    workers: int | None = None
    insecure_seed: int | None = None
    ledger: str | Path | None = None
    resume: bool = False
    anchor: str | Path | None = None
    unreviewed_schema: bool = False
    public_rows: int | None = None
    beyond_limits: bool = False

    def __post_init__(self) -> None:
        for name in ("resume", "unreviewed_schema", "beyond_limits"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(f"{name} is {shown(value)}: give True or False")

    @classmethod
    def among(cls, parameters: Mapping[str, Any]) -> Self:
        """Those of some parameters that are options of a run."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in parameters.items() if name in names})

    @property
    def budgeted(self) -> bool:
        """Whether a budget is given."""
        return any(value is not None for value in (self.epsilon, self.rho, self.cost))

    @property
    def insecure(self) -> bool:
        """Whether the noise comes from a seed."""
        return self.insecure_seed is not None
