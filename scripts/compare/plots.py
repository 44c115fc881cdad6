"""The plots of a results file, as Fuentes et al. draw theirs (figures 4 and 6 to 10).

NAME_error     error of tables and of answers against epsilon (6)
NAME_largest   the same for the largest error of a marginal (10, in absolute units)
NAME_seconds   seconds against epsilon (7)
NAME_time      seconds against error (8)
NAME_relative  error and seconds of answers, relative to ResidualPlanner (4, 9, 10)

Every figure has a row of panels for each table and workload, and one legend beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from math import log10
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from scripts.compare.store import Record
from scripts.compare.summary import Group, groups_of
from scripts.results import write_atomically

ERROR = "mean L1 error"
LARGEST = "largest L1 error"
SECONDS = "processor seconds"
BASE = "residualplanner"
RELATIVE = {"mean L1": "l1", "mean L2": "l2", "largest L1": "max_l1"}
PANEL = (3.5, 2.7)
LEGEND = 1.75
"""Inches of a panel, and of the legend at the right."""
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


def write_plots(records: Sequence[Record], results: Path) -> list[Path]:
    """Draw every plot for which there are results, as SVG and PNG beside a results file.

    Returns:
        The files written.
    """
    groups = [group for group in groups_of(records) if group.spreads]
    written: list[Path] = []
    with mpl.rc_context(STYLE):
        figures = {
            "error": against_epsilon(groups, ("table_l1", "answer_l1"), ERROR),
            "largest": against_epsilon(groups, ("table_max_l1", "answer_max_l1"), LARGEST),
            "seconds": against_epsilon(groups, ("table_seconds", "answer_seconds"), SECONDS),
            "time": time_against_error(groups),
            "relative": relative(groups),
        }
        for name, figure in figures.items():
            if figure is not None:
                written += save(figure, results.with_name(f"{results.stem}_{name}"))
    return written


def against_epsilon(groups: Sequence[Group], measures: Sequence[str], label: str) -> Figure | None:
    """A row for each table and workload, a column for tables and one for answers.

    Lines are medians over seeds, bands reach from the smallest to the largest; floors, which have
    no epsilon, are dashed across.
    """
    measures = [m for m in measures if any(g.draws(m) and g.epsilon for g in groups)]
    if not measures:
        return None
    figure, rows = _panels(groups, len(measures), sharex=True, sharey="row")
    looks, used = looks_of(groups), set()
    for (table, ways), here, panels in rows:
        for panel, measure in zip(panels, measures):
            used |= _lines(panel, here, measure, looks)
            panel.set_title(f"{table}, {ways}-way: {measure.split('_')[0]}s", loc="left")
            _on_logarithms(panel)
        for panel in panels:  # they share the axis on which ticks are set
            panel.xaxis.set_major_locator(FixedLocator(_epsilons(groups)))
            panel.yaxis.set_tick_params(labelleft=True)
    _label(rows, "ε", label)
    _add_legend(figure, looks, used)
    return figure


def time_against_error(groups: Sequence[Group]) -> Figure | None:
    """Seconds against error, a dot for each budget, joined from the smallest to the largest."""
    groups_, groups = groups, [group for group in groups if group.epsilon is not None]
    kinds = [kind for kind in ("table", "answer") if any(g.draws(f"{kind}_l1") for g in groups)]
    if not kinds:
        return None
    figure, rows = _panels(groups, len(kinds), sharex="col", sharey="row")
    looks, used = looks_of(groups_), set()
    epsilons = _epsilons(groups)
    steps = max(len(epsilons) - 1, 1)
    sizes = {epsilon: 18 + 50 * rank / steps for rank, epsilon in enumerate(epsilons)}
    for (table, ways), here, panels in rows:
        for panel, kind in zip(panels, kinds):
            used |= _paths(panel, here, f"{kind}_seconds", f"{kind}_l1", looks, sizes)
            panel.set_title(f"{table}, {ways}-way: {kind}s", loc="left")
    for panel in chain(*(panels for _, _, panels in rows)):
        _on_logarithms(panel)
        panel.yaxis.set_tick_params(labelleft=True)
    _label(rows, "processor seconds (larger dots: larger ε)", ERROR)
    _add_legend(figure, looks, used)
    return figure


def relative(groups: Sequence[Group]) -> Figure | None:
    """A column for each kind of error, with the budget as colour.

    Mechanisms that give answers are judged by them, peers by their tables. Below 1 is better than
    ResidualPlanner, left of 1 is faster.
    """
    every = [f"answer_{measure}" for measure in RELATIVE.values()]
    bases = {g.setting: g.spreads for g in groups if g.mechanism == BASE and g.draws(*every)}
    rivals = [g for g in groups if g.kind in ("ours", "peer") and g.setting in bases]
    if not rivals:
        return None
    figure, rows = _panels(rivals, len(RELATIVE), sharex=True)
    epsilons = _epsilons(rivals)
    shades = LogNorm(epsilons[0], epsilons[-1]) if len(epsilons) > 1 else LogNorm(0.1, 10)
    looks, used = looks_of(groups), set()
    for (table, ways), here, panels in rows:
        for panel, (title, measure) in zip(panels, RELATIVE.items()):
            for rival in here:
                base = bases[rival.setting]
                what = "answer" if rival.kind == "ours" else "table"
                if not rival.draws(f"{what}_{measure}"):
                    continue
                used.add(rival.mechanism)
                x, y = (
                    rival.spreads[f"{what}_{m}"].median / base[f"answer_{m}"].median
                    for m in ("seconds", measure)
                )
                panel.scatter(
                    x, y, s=44, c=[float(rival.epsilon or 0)], cmap="viridis", norm=shades,
                    marker=looks[rival.mechanism].marker, edgecolor="#333333", lw=0.5,
                )  # fmt: skip
            panel.axhline(1, color="#555555", lw=0.9, ls="--")
            panel.axvline(1, color="#555555", lw=0.9, ls="--")
            _on_logarithms(panel)
            panel.set_title(f"{table}, {ways}-way: {title}", loc="left")
    _label(rows, "processor seconds / ResidualPlanner's", "error / ResidualPlanner's")
    handles = [
        Line2D([], [], color="#333333", marker=look.marker, ls="", label=name)
        for name, look in looks.items()
        if name in used
    ]
    figure.legend(handles=handles, loc="outside right upper")
    bar = figure.colorbar(
        ScalarMappable(shades, "viridis"), ax=[panels[-1] for _, _, panels in rows], label="ε",
        aspect=18 * len(rows),
    )  # fmt: skip
    bar.set_ticks(epsilons, labels=[f"{e:g}" for e in epsilons])
    bar.ax.minorticks_off()
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Write PATH.svg and PATH.png, each whole or not at all; their paths."""
    vector = BytesIO()
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    svg = path.with_name(path.name + ".svg")
    text = "\n".join(line.rstrip() for line in vector.getvalue().decode().splitlines())
    write_atomically(svg, text + "\n")
    png = path.with_name(path.name + ".png")
    temporary = path.with_name(f".{path.name}.png")
    figure.savefig(temporary, format="png", metadata={"Software": None})
    temporary.replace(png)
    return [svg, png]


Rows = list[tuple[tuple[str, int], list[Group], list[Axes]]]
"""For each table and workload, its groups and its panels."""


def _panels(groups: Sequence[Group], columns: int, **shared: Any) -> tuple[Figure, Rows]:
    """An empty figure with a row for each table and workload, and room for the legend."""
    names = list(dict.fromkeys(group.panel for group in groups))
    size = (columns * PANEL[0] + LEGEND, len(names) * PANEL[1] + 0.3)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(names), columns, squeeze=False, **shared).tolist()
    return figure, [
        (name, [group for group in groups if group.panel == name], panels)
        for name, panels in zip(names, axes)
    ]


def _label(rows: Rows, below: str, left: str) -> None:
    for _, _, panels in rows:
        panels[0].set_ylabel(left)
    for panel in rows[-1][2]:
        panel.set_xlabel(below)


def _epsilons(groups: Sequence[Group]) -> list[float]:
    return sorted({group.epsilon for group in groups if group.epsilon is not None})


def _add_legend(figure: Figure, looks: dict[str, Look], used: set[str]) -> None:
    """Name every mechanism that was drawn, in the order of the looks."""
    handles = [
        Line2D([], [], color=look.color, marker=look.marker, ls=look.line, lw=look.width,
               label=name)
        for name, look in looks.items()
        if name in used
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside right upper", handlelength=2.4)


def _on_logarithms(panel: Axes) -> None:
    """Make both axes logarithmic after everything is drawn.

    Their ticks are plain numbers, as many as the range asks for.
    """
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis, (low, high) in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
        decades = log10(high / low)
        steps = (1, 2, 3, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 2 else (1,)
        axis.set_major_locator(LogLocator(base=10, subs=steps))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _lines(panel: Axes, groups: Sequence[Group], measure: str, looks: dict[str, Look]) -> set[str]:
    """Draw a measure of every mechanism that has it; their names."""
    drawn = set()
    for name, look in looks.items():
        mine = [g for g in groups if g.mechanism == name and g.draws(measure)]
        budgets = sorted((g.epsilon, g.spreads[measure]) for g in mine if g.epsilon is not None)
        style: dict[str, Any] = {"color": look.color, "ls": look.line, "lw": look.width}
        style["zorder"] = look.order
        if budgets:
            epsilons, spreads = zip(*budgets)
            panel.plot(epsilons, [s.median for s in spreads], marker=look.marker, **style)
            panel.fill_between(
                epsilons, [s.low for s in spreads], [s.high for s in spreads],
                color=look.color, alpha=0.18, lw=0,
            )  # fmt: skip
            drawn.add(name)
        elif mine and not measure.endswith("seconds"):
            panel.axhline(mine[0].spreads[measure].median, **style)
            drawn.add(name)
    return drawn


def _paths(
    panel: Axes,
    groups: Sequence[Group],
    x: str,
    y: str,
    looks: dict[str, Look],
    sizes: dict[float, float],
) -> set[str]:
    """Draw the way of every mechanism from its smallest to its largest budget; their names."""
    drawn = set()
    for name, look in looks.items():
        mine = [g for g in groups if g.mechanism == name and g.draws(x, y)]
        if not mine:
            continue
        mine.sort(key=lambda group: group.epsilon or 0)
        across = [group.spreads[x].median for group in mine]
        up = [group.spreads[y].median for group in mine]
        panel.plot(across, up, color=look.color, lw=0.8, alpha=0.6, zorder=look.order)
        dots = [sizes[group.epsilon] for group in mine if group.epsilon is not None]
        panel.scatter(across, up, s=dots, color=look.color, marker=look.marker, zorder=look.order)
        drawn.add(name)
    return drawn
