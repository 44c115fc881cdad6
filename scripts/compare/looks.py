"""How a mechanism looks in every plot: colours that the colour-blind can tell, and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scripts.compare.summary import Group

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "compare",
    "figure.dpi": 100,
    "savefig.dpi": 160,
}
"""Settings of matplotlib."""


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of a mechanism, and which lies above which."""

    color: str
    marker: str
    line: str = "-"
    width: float = 1.6
    order: float = 2.0


FIXED = {
    "adaptive": Look("#0072B2", "o", "-", 2.4, 3.0),
    "adaptive-uniform": Look("#56B4E9", "s"),
    "independent": Look("#8c8c8c", "v"),
    "residualplanner": Look("#009E73", "D"),
    "querysmasher": Look("#000000", "x", ":"),
    "bootstrap": Look("#333333", "", "--", 1.1),
    "true-independent": Look("#b0b0b0", "", "--", 1.1),
}
PEERS = (
    Look("#D55E00", "^"),
    Look("#E69F00", "P"),
    Look("#CC79A7", "X"),
    Look("#7a3b00", "<"),
    Look("#6f4fa3", ">"),
    Look("#b8860b", "h"),
)
"""Okabe and Ito's colours and two darker ones; every mechanism has a marker of its own, too."""


def looks_of(groups: Iterable[Group]) -> dict[str, Look]:
    """The look of every mechanism that occurs, ours first, floors last."""
    order = ("ours", "baseline", "answers", "peer", "floor")
    kinds = {group.mechanism: group.kind for group in groups}
    names = sorted(kinds, key=lambda name: (order.index(kinds[name]), list(kinds).index(name)))
    others = [name for name in names if name not in FIXED]
    return {
        name: FIXED[name] if name in FIXED else PEERS[others.index(name) % len(PEERS)]
        for name in names
    }
