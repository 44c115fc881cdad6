"""Rules between columns: declared by the owner, or found to hold in the true table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RuleCheck:
    """How often a rule is broken; owner only.

    Attributes:
        rule: as text, such as "start <= end" or "city determines country".
        source: whether the owner declared it or it was found to hold in the true table.
        broken_true: rows of the true table that break it, as a share.
        broken_synthetic: rows of the synthetic table that break it, as a share.
        expected_if_independent: rows that would break it if the columns were independent.
    """

    rule: str
    source: Literal["declared", "found"]
    broken_true: float
    broken_synthetic: float
    expected_if_independent: float
