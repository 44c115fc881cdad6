"""Natural orders of labels: months, weekdays, well-known scales, and those of numbers.

An order is found only where every label of a column fits it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from adaptive_qs.data.numbered import in_order_of_numbers

_MONTHS = "january february march april may june july august september october november december"
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"

SCALES = (
    "none; very low|lowest; low; medium|mid|moderate|average|normal; high; very high|highest",
    "tiny|extra small; small; medium|mid; large; extra large|huge",
    "short; medium; long",
    "none; mild; moderate; severe; critical|very severe",
    "very poor|very bad; poor|bad; fair|average; good; very good; excellent",
    "strongly disagree; disagree; somewhat disagree|slightly disagree; "
    "neutral|neither agree nor disagree|undecided; somewhat agree|slightly agree; agree; "
    "strongly agree",
    "very dissatisfied; dissatisfied; neutral|neither satisfied nor dissatisfied; satisfied; "
    "very satisfied",
    "very unlikely; unlikely; neutral; likely; very likely",
    "never; rarely|seldom; sometimes|occasionally; often|usually|frequently; always",
    "none|zero; one; two; three; four; five; six; seven; eight; nine; ten",
    "first; second; third; fourth; fifth",
    "beginner; intermediate; advanced; expert",
)
"""Labels from the lowest to the highest; those of one step are parted by "|"."""
LETTER_SIZES = ("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl")

Key = tuple[float, ...]
Order = Callable[[str], Key | None]
"""The place of a label, or None where it does not fit."""

_GRADE = re.compile(r"([A-G])(?:([+-])|([0-9]))?")
_MONTH_OF_YEAR = re.compile(r"([A-Za-z]{3,9})\.?[ ,/-]+([0-9]{4})")


def in_natural_order(labels: Sequence[str]) -> list[str] | None:
    """The labels from first to last, or None where no order fits all of them.

    Weeks begin on Monday. A single label has no order.
    """
    if len(labels) < 2:
        return None
    letters = {label[:1] for label in labels}
    orders: list[Order] = [*_WORDS, _month_of_year]
    if "A" in letters and len(letters) > 2:
        orders.append(_grade)
    if len(labels) > 2:
        orders.append(_LETTERS)
    for order in orders:
        places = {label: place for label in labels if (place := order(label)) is not None}
        if len(places) == len(labels):
            return sorted(labels, key=lambda label: (places[label], label))
    return in_order_of_numbers(labels)


def _folded(label: str) -> str:
    return " ".join(re.sub(r"[_\-.\s]+", " ", label.casefold()).split())


def _of_steps(steps: Sequence[Sequence[str]]) -> Order:
    """The order of words, some of which share a step."""
    places: dict[str, Key] = {word: (float(k),) for k, step in enumerate(steps) for word in step}
    return lambda label: places.get(_folded(label))


def _month_of_year(label: str) -> Key | None:
    found = _MONTH_OF_YEAR.fullmatch(label)
    month = _WORDS[0](found[1]) if found else None
    return None if found is None or month is None else (float(found[2]), *month)


def _grade(label: str) -> Key | None:
    """Letter grades, the best first, with signs or digits."""
    found = _GRADE.fullmatch(label)
    if found is None:
        return None
    letter, sign, digit = found.groups()
    return float(ord(letter)), float({"+": -1, None: 0, "-": 1}[sign]), float(digit or 0)


def _calendar(names: str) -> Order:
    return _of_steps([(name, name[:3], *_SHORT.get(name, ())) for name in names.split()])


_SHORT = {"september": ("sept",), "tuesday": ("tues",), "thursday": ("thur", "thurs")}
_WORDS = (
    _calendar(_MONTHS),
    _calendar(_DAYS),
    _of_steps([(f"q{k}", f"quarter {k}") for k in range(1, 5)]),
    *(_of_steps([step.strip().split("|") for step in scale.split(";")]) for scale in SCALES),
)
_LETTERS = _of_steps([(size,) for size in LETTER_SIZES])
