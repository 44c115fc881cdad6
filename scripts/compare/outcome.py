"""What a mechanism of this project hands back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.table.coded import CodedTable


@dataclass(frozen=True)
class Outcome:
    """A table, answers, or both.

    Attributes:
        table: synthetic rows.
        answers: the workload's marginals in its order (rows), made while they are read.
        seconds: of processor time by phase; "sample" is what only the table needed.
        settings: what it was run with.
        notes: what a reader should know.
    """

    table: CodedTable | None = None
    answers: Iterable[NDArray[np.float64]] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
