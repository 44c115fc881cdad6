"""A figure of equal panels, one for each table and workload, with one legend beside them."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import log10
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from scripts.compare.looks import Look
from scripts.compare.summary import Group
from scripts.results import write_atomically

PANEL = (3.5, 2.7)
LEGEND = 1.75
"""Inches of a panel, and of the legend at the right."""


def settings_of(groups: Sequence[Group]) -> list[tuple[str, int]]:
    """The tables and ways that occur, in order."""
    return list(dict.fromkeys((group.table, group.ways) for group in groups))


def make_panels(rows: int, columns: int, **shared: Any) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure with so many panels and room for the legend."""
    figure = Figure(
        figsize=(columns * PANEL[0] + LEGEND, rows * PANEL[1] + 0.3), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, axes.tolist()


def add_legend(figure: Figure, looks: dict[str, Look], used: set[str]) -> None:
    """Name every mechanism that was drawn, in the order of the looks."""
    handles = [
        Line2D([], [], color=look.color, marker=look.marker, ls=look.line, lw=look.width,
               label=name)
        for name, look in looks.items()
        if name in used
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside right upper", handlelength=2.4)


def plain_logarithm(axis: Any, low: float, high: float) -> None:
    """Write the ticks of a logarithmic axis as plain numbers, as many as its range asks for."""
    decades = log10(high / low)
    steps = (1, 2, 3, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 2 else (1,)
    axis.set_major_locator(LogLocator(base=10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def on_logarithms(panel: Axes) -> None:
    """Make both axes of a panel logarithmic, with plain ticks, after everything is drawn."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    plain_logarithm(panel.xaxis, *panel.get_xlim())
    plain_logarithm(panel.yaxis, *panel.get_ylim())


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
