"""Readable names, numbers, charts and progress, and templates rendered to one file."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


# Names of columns and values, which may contain anything, in one readable line.

LONGEST = 64
"""Maximum number of characters of a name in charts and tables."""

_JOINT = re.compile(r"(?<=_)(?=[^\W_])|(?<=\w[/.])(?=[^\W\d])")


def joints(text: str) -> list[str]:
    """Split a text at possible line breaks, such as after "_" in a name."""
    return _JOINT.split(text)


def short(name: str, longest: int = LONGEST) -> str:
    """Return a name on one line, cut with "…"; characters that are not printed are escaped."""
    shown = str(name)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def quoted(name: str) -> str:
    """Return a name in quotation marks, for a sentence."""
    return f"“{short(name)}”"


def combination(names: Sequence[str]) -> str:
    """Join the names of several columns: "age × income"."""
    return " × ".join(short(name) for name in names)


def at_resolution(columns: Sequence[str], groups: Sequence[int], codes: Sequence[int]) -> str:
    """Join the names of columns with their numbers of groups of codes: "age in 8 groups × city"."""
    return " × ".join(
        short(name) if number == size else f"{short(name)} in {number:,} groups"
        for name, number, size in zip(columns, groups, codes, strict=True)
    )


def join_first(items: Sequence[str], most: int) -> str:
    """Join all items, or the first ones and the number of others: "a, b and 3 more"."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def listed(items: Sequence[str], most: int = 5) -> str:
    """Join items with "and", or the first ones and the number of others: "a, b and 3 more"."""
    shown = list(items[:most])
    if len(items) > most:
        shown.append(f"{len(items) - most:,} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


# Readable numbers: few digits, one kind of minus, never "nan".

UNKNOWN = "n/a"
MINUS = "−"
PER_CENT = "\u00a0%"


def _readable(form: Callable[..., str]) -> Callable[..., str]:
    """Wrap a format: one kind of minus, and a word for numbers that are not finite."""

    @wraps(form)
    def shown(value: float | None, *digits: int, **named: int) -> str:
        if value is None or not math.isfinite(value):
            return UNKNOWN
        return form(value, *digits, **named).replace("-", MINUS)

    return shown


@_readable
def significant(value: float, digits: int = 3) -> str:
    """Format a number with significant digits and separated thousands: "0.0661", "1,230"."""
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -5 <= size <= 14:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(digits - 1 - size, 0)}f}"


@_readable
def signed(value: float, digits: int = 2) -> str:
    """Format a difference with its sign: "+0.12"."""
    return f"{value:+,.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


@_readable
def decimals(value: float) -> str:
    """Format a number between -1 and 1: "0.007", "under 0.001"."""
    text = f"{value:.3f}"
    if float(text):
        return text
    return "under 0.001" if value > 0 else "0.000"


@_readable
def share(value: float, digits: int = 3) -> str:
    """Format a part of a whole in per cent: "12.3 %", "0.45 %", "under 0.001 %"."""
    percent = 100 * value
    if 0 < abs(percent) < 0.001:
        return f"under 0.001{PER_CENT}"
    if 99.95 <= abs(percent) < 100:
        return f"{percent:,.2f}{PER_CENT}"
    size = math.floor(math.log10(abs(percent))) if percent else digits - 1
    return f"{percent:,.{min(max(digits - 1 - size, 0), 4)}f}{PER_CENT}"


@_readable
def count(value: float) -> str:
    """Format a number of things: "48,842"."""
    return f"{round(value):,}"


def plain(value: float | None) -> str:
    """Format a parameter with few digits: "1", "1e-09"."""
    return UNKNOWN if value is None else f"{value:.6g}"


def grouped(text: str) -> str:
    """Separate the thousands of a number, "65,000"; return any other text unchanged."""
    found = re.fullmatch(r"(-?)([1-9]\d{3,})(\.\d+)?", text)
    return f"{found[1]}{int(found[2]):,}{found[3] or ''}" if found else text


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: "1 column", "2 columns"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


# Charts; a template also writes every number of them as text.

HEIGHT = 100
"""Height of a histogram, in its own units."""


@dataclass(frozen=True)
class Bar:
    """A bar of a chart. It stands for one value or several neighbouring ones.

    Attributes:
        low, high: of an interval around the first; None without one.
        ends: the first and the last of several values, for the ends of the axis.
    """

    label: str
    values: tuple[float, ...]
    low: float | None = None
    high: float | None = None
    ends: tuple[str, str] | None = None


@dataclass(frozen=True)
class BarChart:
    """Bars over the values of one axis.

    Attributes:
        bars: in the order shown.
        scale: whether the axis is a scale, drawn as a histogram; otherwise one line for each bar.
        apart: bars outside the scale, such as missing values.
        note: what is grouped or not shown.
        whole: number for the full length of a bar; by default the largest number.
    """

    bars: tuple[Bar, ...]
    scale: bool
    apart: tuple[Bar, ...] = ()
    note: str = ""
    whole: float | None = None

    @property
    def top(self) -> float:
        """The number for the full length of a bar of the scale."""
        largest = max((v for b in self.bars for v in (*b.values, b.high or 0.0)), default=0.0)
        return self.whole if self.whole is not None else largest or 1.0

    @property
    def outside(self) -> BarChart:
        """The bars outside the scale, as parts of all."""
        series = zip(*(bar.values for bar in self.numbers), strict=True)
        return BarChart(self.apart, False, whole=max(map(sum, series)) or 1.0)

    @property
    def numbers(self) -> tuple[Bar, ...]:
        """Every bar, those outside the scale last."""
        return (*self.bars, *self.apart)

    @property
    def ticks(self) -> tuple[str, ...]:
        """Labels below the axis: of its first, its middle and its last bar."""
        ends = [bar.ends or (bar.label, bar.label) for bar in self.bars]
        return ends[0][0], ends[len(ends) // 2][0], ends[-1][1]

    def width(self, value: float) -> str:
        """Return a number as part of the largest, in per cent."""
        return f"{min(max(100 * value / self.top, 0), 100):.1f}"

    def area(self, series: int = 0) -> str:
        """Return the path of an SVG: filled bars without gaps, each one unit wide."""
        return f"M0 {HEIGHT}V{self.steps(series).removeprefix('M0 ')}V{HEIGHT}Z"

    def steps(self, series: int = 1) -> str:
        """Return the SVG path of the upper edge of the bars."""
        edge = (f"{self._y(bar.values[series])}H{k}" for k, bar in enumerate(self.bars, 1))
        return "M0 " + "V".join(edge)

    def whiskers(self) -> str:
        """Return the SVG path of the intervals: vertical lines in the middle of the bars."""
        return "".join(
            f"M{k}.5 {self._y(bar.low)}V{self._y(bar.high)}"
            for k, bar in enumerate(self.bars)
            if bar.low is not None and bar.high is not None
        )

    def _y(self, value: float) -> str:
        y = HEIGHT * (1 - min(max(value / self.top, 0.0), 1.0))
        return f"{y:.1f}".removesuffix(".0")


# Progress of a run, in notebooks and terminals.

PHASES = {
    "plan": "planning",
    "learn": "learning bins and values",
    "read": "reading the table",
    "answer": "measuring and answering",
    "loop": "measuring, part of the budget",
    "fit": "fitting the table",
    "draw": "drawing the table",
    "evaluate": "comparing marginals",
    "queries": "comparing queries",
    "pairs": "comparing pairs of columns",
    "models": "training models",
    "verdict": "grading the differences",
}
"""The names of the phases of a run."""


class ProgressBar:
    """Progress of a run, for ``Synthesizer(progress=ProgressBar())``.

    Terminals and notebooks show one line, with the part of the phase. It depends on the rows, as
    the time of a run does: it is for the owner.
    """

    def __init__(self) -> None:
        self._line = ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        line = f"{PHASES.get(phase, phase)}: {100 * min(done, total) // max(total, 1)} %"
        watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        if watched and line != self._line:
            self._line = line
            sys.stderr.write(f"\r{line:<60}")
            sys.stderr.flush()


# Templates: everything inline, every text of HTML escaped, an undefined name is an error.

_BLANK = re.compile(r"\n\s*")


@cache
def _environment(packages: tuple[str, ...]) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # slow to import

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(p) for p in (*packages, "adaptive_qs.pages")]),
        autoescape=lambda name: name is not None and not name.endswith(".md"),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    filters: list[Callable[..., Any]] = [plain, significant, signed, decimals, share, count]
    filters += [counted, short, joints, combination, at_resolution, listed]
    environment.filters |= {function.__name__: function for function in filters}
    environment.globals |= {"as_count": count, "as_share": partial(share, digits=2)}
    return environment


def render(template: str, packages: tuple[str, ...], **content: Any) -> str:
    """Render a template; the same content gives the same text.

    The folders ``templates`` of the packages are searched first.
    """
    page = _environment(packages).get_template(template).render(**content)
    return (page if template.endswith(".md") else _BLANK.sub("\n", page)).strip() + "\n"
