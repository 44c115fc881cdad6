"""Natural orders of labels: those of numbers, months, weekdays and well-known scales.

For drafts of schemas only. An order is found only where every label of a column fits it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

# The order of labels that begin by a number: "< 1 year", "18-24", "$20k+", "65 years and over".
#
# All must name the same unit, and the ranges follow one another.

_AMOUNT = r"[$€£]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)? ?(?:[km](?![a-z]))?(?:st|nd|rd|th)?%?"
_NO_UNIT = "to|and|or|more|over|older|above|under|less|younger|below|up"
_WORD = rf"(?!(?:{_NO_UNIT})\b)[a-z]+"
_UNIT = rf"(?:[ -]({_WORD}(?: {_WORD})?))?"
_LABEL = re.compile(
    r"(<=?|>=?|under |below |up to |less than |over |above |more than |at least )?\s*"
    rf"({_AMOUNT}){_UNIT}(?:\s*(?:-|–|to|and)\s*({_AMOUNT}){_UNIT})?"
    r"\s*(\+|(?:and|or) (?:more|over|older|above|up|under|less|younger|below))?"
    rf"{_UNIT}"
)
_PARTS = re.compile(r"(?P<currency>[$€£])?(?P<digits>[0-9.,]+) ?(?P<factor>[km](?![a-z]))?.*")
_SUFFIX = re.compile(r"[0-9] ?([kKmM])\b")
_LESS = ("<", "under", "below", "up to", "less", "younger")
_IRREGULAR = {"children": "child", "people": "person", "men": "man", "women": "woman"}
_OF_A_CLOCK = {"am", "pm"}


@dataclass(frozen=True)
class _Amount:
    number: float
    factor: str
    """"k", "m" or none."""
    currency: bool


@dataclass(frozen=True)
class _Range:
    """What a label covers: one or two amounts, and what is said to lie below or above them."""

    amounts: tuple[_Amount, ...]
    units: frozenset[str]
    below: bool
    above: bool

    def ends(self) -> tuple[float, float]:
        """The smallest and the largest number."""
        scale = {"": 1.0, "k": 1e3, "m": 1e6}
        numbers = [amount.number * scale[amount.factor] for amount in self.amounts]
        return -math.inf if self.below else numbers[0], math.inf if self.above else numbers[-1]


def in_order_of_numbers(labels: Sequence[str]) -> list[str] | None:
    """The labels from the smallest to the largest, or None where that is not clear.

    The letter "m" stands for a million beside a currency sign, and as "M" in a column where other
    labels have a "k"; else it is a unit. Hours of a clock (am, pm) have no order.
    """
    suffixes = {suffix for label in labels for suffix in _SUFFIX.findall(label)}
    millions = bool(suffixes & {"k", "K"}) and "M" in suffixes and "m" not in suffixes
    ranges = {label: found for label in labels if (found := _read(label, millions))}
    if len(ranges) < len(labels) or len({found.units for found in ranges.values()}) > 1:
        return None
    if any(found.units & _OF_A_CLOCK for found in ranges.values()):
        return None
    ends = {label: found.ends() for label, found in ranges.items()}
    ordered = sorted(labels, key=lambda label: (ends[label], label))
    apart = all(ends[a][1] <= ends[b][1] for a, b in pairwise(ordered))
    return ordered if apart and all(low <= high for low, high in ends.values()) else None


def _read(label: str, millions: bool) -> _Range | None:
    """The range of a label; None where it has none, or names several units."""
    found = _LABEL.fullmatch(label.casefold())
    if found is None:
        return None
    before, first, unit, second, after_second, after, last_unit = found.groups(default="")
    amounts = tuple(_amount(text) for text in (first, second) if text)
    units = {_singular(text) for text in (unit, after_second, last_unit) if text}
    if any(a.factor == "m" for a in amounts) and not (millions or all(a.currency for a in amounts)):
        amounts = tuple(replace(a, factor=a.factor.removesuffix("m")) for a in amounts)
        units |= {"m", *(a.factor for a in amounts if a.factor)}
    if len(units) > 1:
        return None
    words = before.strip(), after
    below = words[0].startswith(_LESS) or words[1].endswith(_LESS)
    return _Range(amounts, frozenset(units), below, not below and any(words))


def _amount(text: str) -> _Amount:
    found = _PARTS.fullmatch(text)
    assert found is not None
    number = float(found["digits"].replace(",", ""))
    return _Amount(number, found["factor"] or "", bool(found["currency"]))


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
