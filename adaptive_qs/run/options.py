"""What a run may be told: one set of options for the command line and for callers of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run may be told whatever the columns are, by the names that users know.

    Attributes:
        learning_share: part of the budget for bins and values that the schema leaves to be learnt.
        epsilon, delta, rho, cost: the budget; see :class:`~adaptive_qs.run.budget.PrivacyTarget`.
        max_memory: ceiling of the process's memory in bytes or as "3GB"; None takes three quarters
            of the machine's.
        workers: threads; None takes one for every core.
        insecure_seed: makes the noise reproducible and what is released not private.
        ledger: the data set's ledger; None counts the budget in memory.
        resume: go on with the interrupted run in the ledger that was asked for the same.
        anchor: how far the ledger must have come.
        unreviewed_schema: take a schema that still says that it was taken from the data.
        public_rows: about how many rows the table has, as far as is public.
        beyond_limits: consent to a budget beyond the limits of :mod:`adaptive_qs.privacy.budget`.
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
