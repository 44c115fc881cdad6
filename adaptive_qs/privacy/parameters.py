"""Privacy parameters as users give them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from adaptive_qs.arguments import as_number, shown
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.budget import float_below

DEFAULT_DELTA = 1e-9
"""δ where none is given: below 1/rows for any table that fits a machine."""


def positive_number(name: str, value: Any) -> float:
    """The value as a float.

    Raises:
        InputError: it is no positive finite number.
    """
    number = as_number(value)
    if number is None or not 0 < number < math.inf:
        raise InputError(f"{name} is {shown(value)}: give a positive finite number")
    return number


def chosen_delta(value: Any) -> float:
    """δ as a float; the default where it is None.

    Raises:
        InputError: it is not a positive number below 1.
    """
    delta = DEFAULT_DELTA if value is None else positive_number("delta", value)
    if not delta < 1:
        raise InputError(f"delta is {delta!r}: give a number below 1, such as 1e-9")
    return delta


def delta_left(delta: float, discovery: Fraction | float) -> float:
    """The part of δ that converts ρ to ε, rounded down, where discovering values takes the rest."""
    return float_below(Fraction(delta) - Fraction(discovery))
