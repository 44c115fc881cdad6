"""The plots of a results file, as Fuentes et al. draw theirs (figures 4 and 6 to 10).

NAME_error     error of tables and of answers against epsilon (6)
NAME_largest   the same for the largest error of a marginal (10, in absolute units)
NAME_seconds   seconds against epsilon (7)
NAME_time      seconds against error (8)
NAME_relative  error and seconds of answers, relative to ResidualPlanner (4, 9, 10)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from scripts.compare.looks import STYLE, Look, looks_of
from scripts.compare.panels import add_legend, make_panels, on_logarithms, save, settings_of
from scripts.compare.relative import relative_figure
from scripts.compare.summary import Group, Record, drawable, groups_of

ERROR = "mean L1 error"
LARGEST = "largest L1 error"
SECONDS = "processor seconds"


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
            "relative": relative_figure(groups),
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
    measures = [m for m in measures if any(drawable(g, m) and g.epsilon for g in groups)]
    settings = settings_of(groups)
    epsilons = sorted({group.epsilon for group in groups if group.epsilon is not None})
    if not measures:
        return None
    figure, axes = make_panels(len(settings), len(measures), sharex=True, sharey="row")
    looks, used = looks_of(groups), set()
    for row, (table, ways) in enumerate(settings):
        here = [group for group in groups if (group.table, group.ways) == (table, ways)]
        for column, measure in enumerate(measures):
            panel = axes[row][column]
            used |= _lines(panel, here, measure, looks)
            panel.set_title(f"{table}, {ways}-way: {measure.split('_')[0]}s", loc="left")
        for panel in axes[row]:
            on_logarithms(panel)
            panel.xaxis.set_major_locator(FixedLocator(epsilons))
            panel.yaxis.set_tick_params(labelleft=True)
        axes[row][0].set_ylabel(label)
    for panel in axes[-1]:
        panel.set_xlabel("ε")
    add_legend(figure, looks, used)
    return figure


def time_against_error(groups: Sequence[Group]) -> Figure | None:
    """Seconds against error, a dot for each budget, joined from the smallest to the largest."""
    kinds = {"tables": ("table_l1", "table_seconds"), "answers": ("answer_l1", "answer_seconds")}
    private = [group for group in groups if group.epsilon is not None]
    kinds = {k: v for k, v in kinds.items() if any(drawable(group, v[0]) for group in private)}
    settings = settings_of(private)
    if not kinds:
        return None
    figure, axes = make_panels(len(settings), len(kinds), sharex="col", sharey="row")
    looks, used = looks_of(groups), set()
    epsilons = sorted({group.epsilon for group in private if group.epsilon is not None})
    steps = max(len(epsilons) - 1, 1)
    sizes = {epsilon: 18 + 50 * rank / steps for rank, epsilon in enumerate(epsilons)}
    for row, setting in enumerate(settings):
        here = [group for group in private if (group.table, group.ways) == setting]
        for column, (kind, (error, seconds)) in enumerate(kinds.items()):
            panel = axes[row][column]
            used |= _paths(panel, here, seconds, error, looks, sizes)
            panel.set_title(f"{setting[0]}, {setting[1]}-way: {kind}", loc="left")
        axes[row][0].set_ylabel(ERROR)
    for panel in chain(*axes):
        on_logarithms(panel)
        panel.yaxis.set_tick_params(labelleft=True)
    for panel in axes[-1]:
        panel.set_xlabel("processor seconds (larger dots: larger ε)")
    add_legend(figure, looks, used)
    return figure


def _lines(panel: Axes, groups: Sequence[Group], measure: str, looks: dict[str, Look]) -> set[str]:
    """Draw a measure of every mechanism that has it; their names."""
    drawn = set()
    for name, look in looks.items():
        mine = [g for g in groups if g.mechanism == name and drawable(g, measure)]
        budgets = sorted(
            (group.epsilon, group.spreads[measure]) for group in mine if group.epsilon is not None
        )
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
        mine = sorted(
            (g for g in groups if g.mechanism == name and drawable(g, x) and drawable(g, y)),
            key=lambda group: group.epsilon or 0,
        )
        if not mine:
            continue
        across = [group.spreads[x].median for group in mine]
        up = [group.spreads[y].median for group in mine]
        panel.plot(across, up, color=look.color, lw=0.8, alpha=0.6, zorder=look.order)
        dots = [sizes[group.epsilon] for group in mine if group.epsilon is not None]
        panel.scatter(across, up, s=dots, color=look.color, marker=look.marker, zorder=look.order)
        drawn.add(name)
    return drawn
