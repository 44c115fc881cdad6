"""Numbers as people read them: few digits, one kind of minus, never "nan"."""

from __future__ import annotations

import math
import re

UNKNOWN = "n/a"
MINUS = "−"
PER_CENT = "\u00a0%"


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, thousands apart: "0.0661", "1,230"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -5 <= size <= 14:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    return f"{value:,.{max(digits - 1 - size, 0)}f}".replace("-", MINUS)


def plain(value: float | None) -> str:
    """A parameter, with no more digits than it was given: "1", "1e-09"."""
    return UNKNOWN if value is None else f"{value:.6g}"


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign and so many decimals: "+0.12"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if not float(text) else text.replace("-", MINUS)


def decimals(value: float | None, digits: int = 3) -> str:
    """A number between -1 and 1 with so many decimals: "0.007", "under 0.001"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:.{digits}f}"
    if value > 0 and not float(text):
        return f"under {10**-digits:.{digits}f}"
    return f"{0:.{digits}f}" if not float(text) else text.replace("-", MINUS)


def share(value: float | None, digits: int = 3) -> str:
    """A part of a whole in per cent: "12.3 %", "0.45 %", "under 0.001 %"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    percent = 100 * value
    if 0 < abs(percent) < 0.001:
        return f"under 0.001{PER_CENT}"
    if 99.95 <= abs(percent) < 100:
        return f"{percent:,.2f}{PER_CENT}".replace("-", MINUS)
    size = math.floor(math.log10(abs(percent))) if percent else digits - 1
    decimals = min(max(digits - 1 - size, 0), 4)
    return f"{percent:,.{decimals}f}{PER_CENT}".replace("-", MINUS)


def count(value: float | None) -> str:
    """A number of things: "48,842"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{round(value):,}".replace("-", MINUS)


def grouped(text: str) -> str:
    """A number with its thousands apart, "65,000"; any other text as it is."""
    found = re.fullmatch(r"(-?)([1-9]\d{3,})(\.\d+)?", text)
    return f"{found[1]}{int(found[2]):,}{found[3] or ''}" if found else text


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun: "1 column", "2 columns"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
