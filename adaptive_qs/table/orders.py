"""The order that labels have by themselves: numbers with a unit, months, well-known scales."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

# The order of labels that begin by a number: "< 1 year", "18-24", "$20k+", "65 years and over".
#
# All must name the same unit, and the ranges follow one another.

_AMOUNT = r"[$€£]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)? ?(?:[km](?![a-z]))?(?:st|nd|rd|th)?%?"
_NO_UNIT = "to|and|or|more|over|older|above|under|less|younger|below|up"
_UNIT_WORD = rf"(?!(?:{_NO_UNIT})\b)[a-z]+"
_NAMED_UNIT = rf"(?:[ -]({_UNIT_WORD}(?: {_UNIT_WORD})?))?"
_LABEL = re.compile(
    r"(<=?|>=?|under |below |up to |less than |over |above |more than |at least )?\s*"
    rf"({_AMOUNT}){_NAMED_UNIT}(?:\s*(?:-|–|to|and)\s*({_AMOUNT}){_NAMED_UNIT})?"
    r"\s*(\+|(?:and|or) (?:more|over|older|above|up|under|less|younger|below))?"
    rf"{_NAMED_UNIT}"
)
_PARTS = re.compile(r"(?P<currency>[$€£])?(?P<digits>[0-9.,]+) ?(?P<factor>[km](?![a-z]))?.*")
_SUFFIX = re.compile(r"[0-9] ?([kKmM])\b")
_LESS = ("<", "under", "below", "up to", "less", "younger")
_IRREGULAR = {"children": "child", "people": "person", "men": "man", "women": "woman"}
_OF_A_CLOCK = {"am", "pm"}


def in_order_of_numbers(labels: Sequence[str]) -> list[str] | None:
    """The labels from the smallest to the largest, or None where that is not clear.

    The letter "m" stands for a million beside a currency sign, and as "M" in a column where other
    labels have a "k"; else it is a unit. Hours of a clock (am, pm) have no order.
    """
    suffixes = {suffix for label in labels for suffix in _SUFFIX.findall(label)}
    millions = bool(suffixes & {"k", "K"}) and "M" in suffixes and "m" not in suffixes
    ranges = {label: found for label in labels if (found := _range(label, millions))}
    units = {unit for unit, _ in ranges.values()}
    if len(ranges) < len(labels) or len(units) > 1 or units & _OF_A_CLOCK:
        return None
    ends = {label: found for label, (_, found) in ranges.items()}
    ordered = sorted(labels, key=lambda label: (ends[label], label))
    apart = all(ends[a][1] <= ends[b][1] for a, b in pairwise(ordered))
    return ordered if apart and all(low <= high for low, high in ends.values()) else None


def _range(label: str, millions: bool) -> tuple[str, tuple[float, float]] | None:
    """The unit of a label and the ends of its range; None where it has none, or several units."""
    found = _LABEL.fullmatch(label.casefold())
    if found is None:
        return None
    before, first, unit, second, after_second, after, last_unit = found.groups(default="")
    amounts = [part for text in (first, second) if text and (part := _PARTS.fullmatch(text))]
    units = {_singular(text) for text in (unit, after_second, last_unit) if text}
    factors = [amount["factor"] or "" for amount in amounts]
    if "m" in factors and not (millions or all(amount["currency"] for amount in amounts)):
        factors = [factor.removesuffix("m") for factor in factors]
        units |= {"m", *filter(None, factors)}
    if len(units) > 1:
        return None
    scale = {"": 1.0, "k": 1e3, "m": 1e6}
    numbers = [float(a["digits"].replace(",", "")) * scale[f] for a, f in zip(amounts, factors)]
    below = before.strip().startswith(_LESS) or after.endswith(_LESS)
    above = not below and bool(before.strip() or after)
    low, high = -math.inf if below else numbers[0], math.inf if above else numbers[-1]
    return "".join(units), (low, high)


def _singular(unit: str) -> str:
    """The unit with its last word in the singular."""
    *first, last = unit.split(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last.endswith(("sses", "xes", "ches", "shes")):
        last = last.removesuffix("es")
    elif not last.endswith("ss"):
        last = last.removesuffix("s")
    return " ".join([*first, last])


# The order of words: months, weekdays, grades and well-known scales.

_CALENDARS = (
    "january february march april may june july august september october november december",
    "monday tuesday wednesday thursday friday saturday sunday",
)
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


def _of_steps(steps: Sequence[Sequence[str]]) -> Order:
    """The order of words, some of which share a step."""
    places: dict[str, Key] = {word: (float(k),) for k, step in enumerate(steps) for word in step}
    return lambda label: places.get(re.sub(r"[_\-.\s]+", " ", label.casefold()).strip())


def _month_of_year(label: str) -> Key | None:
    found = _MONTH_OF_YEAR.fullmatch(label)
    month = _WORDS[0](found[1]) if found else None
    return (float(found[2]), *month) if found and month else None


def _grade(label: str) -> Key | None:
    """Letter grades, the best first, with signs or digits."""
    found = _GRADE.fullmatch(label)
    if found is None:
        return None
    letter, sign, digit = found.groups()
    return float(ord(letter)), float({"+": -1, None: 0, "-": 1}[sign]), float(digit or 0)


_SHORT = {"september": ("sept",), "tuesday": ("tues",), "thursday": ("thur", "thurs")}
_STEPS: tuple[Sequence[Sequence[str]], ...] = (
    *([(n, n[:3], *_SHORT.get(n, ())) for n in names.split()] for names in _CALENDARS),
    [(f"q{k}", f"quarter {k}") for k in range(1, 5)],
    *([step.strip().split("|") for step in scale.split(";")] for scale in SCALES),
)
_WORDS = tuple(map(_of_steps, _STEPS))
_LETTERS = _of_steps([(size,) for size in LETTER_SIZES])
