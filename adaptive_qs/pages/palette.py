"""Colours that colour-blind people tell apart, each with a text colour that is legible on it."""

from __future__ import annotations

from typing import NamedTuple

SEQUENTIAL_STEPS = 10
DIVERGING_STEPS = 5
_LIGHT, _BLUE, _ORANGE = (247, 250, 253), (8, 64, 129), (153, 63, 0)


class Shade(NamedTuple):
    """One colour of a scale: a class name, its background and its text, as "#rrggbb"."""

    name: str
    background: str
    text: str


def sequential() -> list[Shade]:
    """From nothing (light) to much (dark blue): classes ``s0`` to ``s9``."""
    last = SEQUENTIAL_STEPS - 1
    return [_shade(f"s{k}", _BLUE, k / last) for k in range(SEQUENTIAL_STEPS)]


def diverging() -> list[Shade]:
    """From less (blue, ``n5``) over none (``z``) to more (orange, ``p5``)."""
    steps = range(1, DIVERGING_STEPS + 1)
    return [
        *(_shade(f"n{k}", _BLUE, k / DIVERGING_STEPS) for k in reversed(steps)),
        _shade("z", _BLUE, 0.0),
        *(_shade(f"p{k}", _ORANGE, k / DIVERGING_STEPS) for k in steps),
    ]


def sequential_class(value: float, top: float) -> str:
    """The class of a value between 0 and ``top``."""
    part = _part(value, top)
    return f"s{min(int(part * SEQUENTIAL_STEPS), SEQUENTIAL_STEPS - 1)}"


def diverging_class(value: float, top: float) -> str:
    """The class of a value between -``top`` and ``top``."""
    part = _part(abs(value), top)
    step = round(part * DIVERGING_STEPS)
    return f"{'n' if value < 0 else 'p'}{step}" if step else "z"


def _part(value: float, top: float) -> float:
    """value/top within 0 and 1; 0 where that is no number."""
    part = value / top if top > 0 else 0.0
    return min(max(part, 0.0), 1.0) if part == part else 0.0


def contrast(first: str, second: str) -> float:
    """Ratio of the luminances of two colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _shade(name: str, colour: tuple[int, int, int], part: float) -> Shade:
    mixed = [round(a + (b - a) * part) for a, b in zip(_LIGHT, colour)]
    background = "#" + "".join(f"{channel:02x}" for channel in mixed)
    text = max(("#000000", "#ffffff"), key=lambda t: contrast(background, t))
    return Shade(name, background, text)
