"""Bins for columns whose description names none, in proposed and imported schemas."""

from __future__ import annotations

from typing import Any

MAX_INTEGERS = 200
"""Integer ranges longer than this get bins."""
INTEGER_BINS = 100
NUMERIC_BINS = 32


def integer_bins(low: int, high: int) -> dict[str, Any]:
    """What an integer column from ``low`` to ``high`` says about its bins; nothing if short."""
    return {"bins": INTEGER_BINS} if high - low + 1 > MAX_INTEGERS else {}
