"""Charts as plain values that templates draw, in colours for colour-blind people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

# A colour scale, each colour with a text colour that is legible on it.

Colour = tuple[int, int, int]
SHADES = 5
"""Number of shades of each sign."""
_LIGHT, _BLUE, _ORANGE = (247, 250, 253), (8, 64, 129), (153, 63, 0)
_DARK, _PALE_BLUE, _PALE_ORANGE = (30, 36, 43), (140, 196, 255), (255, 170, 110)


class Shade(NamedTuple):
    """One colour of a scale: a class name, its background and its text, as "#rrggbb"."""

    name: str
    background: str
    text: str


def shades(dark: bool = False) -> list[Shade]:
    """Return shades from less (blue, ``n5``) over none (``z``) to more (orange, ``p5``)."""
    paper, blue, orange = (_DARK, _PALE_BLUE, _PALE_ORANGE) if dark else (_LIGHT, _BLUE, _ORANGE)
    return [
        *(_shade(f"n{k}", paper, blue, k / SHADES) for k in range(SHADES, 0, -1)),
        _shade("z", paper, blue, 0.0),
        *(_shade(f"p{k}", paper, orange, k / SHADES) for k in range(1, SHADES + 1)),
    ]


def shade_class(value: float, top: float) -> str:
    """Return the class of a value between -``top`` and ``top``."""
    part = abs(value) / top if top > 0 else 0.0
    step = 0 if math.isnan(part) else round(min(part, 1.0) * SHADES)
    return f"{'n' if value < 0 else 'p'}{step}" if step else "z"


def contrast(first: str, second: str) -> float:
    """Return the ratio of the luminances of two colours, 1 to 21 (WCAG 2.2)."""
    found = []
    for colour in (first, second):
        channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        found.append(0.2126 * r + 0.7152 * g + 0.0722 * b)
    return (max(found) + 0.05) / (min(found) + 0.05)


def _shade(name: str, paper: Colour, colour: Colour, part: float) -> Shade:
    mixed = [round(a + (b - a) * part) for a, b in zip(paper, colour)]
    background = "#" + "".join(f"{channel:02x}" for channel in mixed)
    text = max(("#000000", "#ffffff"), key=lambda t: contrast(background, t))
    return Shade(name, background, text)


# Charts; a template also writes every number of them as text.

HEIGHT = 100
"""Height of a histogram, in its own units."""


@dataclass(frozen=True)
class Bar:
    """One value of an axis.

    Attributes:
        label: the value, or several of them.
        values: one number for each series, such as true and synthetic.
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
        return _short(HEIGHT * (1 - min(max(value / self.top, 0.0), 1.0)))


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map: the text in it, and the class of its colour."""

    text: str
    shade: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A matrix as a table with colours.

    Attributes:
        caption: what the numbers are.
        names: of the columns, heads of rows and columns.
        rows: the cells, row by row.
    """

    caption: str
    names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def shaded_cell(value: float | None, top: float) -> Cell:
    """Return a cell for a number from -``top`` to ``top``, with its sign; None is not known."""
    if value is None or math.isnan(value):
        return Cell("–")
    text = f"{abs(value):.2f}"
    text = "0" if not float(text) else text.removeprefix("0") if abs(value) < 0.995 else text
    sign = "" if text == "0" else "−" if value < 0 else "+"
    return Cell(sign + text, shade_class(value, top))
