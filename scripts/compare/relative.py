"""Error and seconds relative to ResidualPlanner, the budget as colour."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scripts.compare.looks import looks_of
from scripts.compare.panels import make_panels, on_logarithms, settings_of
from scripts.compare.summary import Group, drawable

BASE = "residualplanner"
MEASURES = {"mean L1": "l1", "mean L2": "l2", "largest L1": "max_l1"}


def relative_figure(groups: Sequence[Group]) -> Figure | None:
    """A column for each kind of error, a row for each table and workload.

    Mechanisms that give answers are judged by them, peers by their tables. Below 1 is better than
    ResidualPlanner, left of 1 is faster.
    """
    bases = {
        (g.table, g.ways, g.epsilon, g.delta): g
        for g in groups
        if g.mechanism == BASE and all(drawable(g, f"answer_{m}") for m in MEASURES.values())
    }
    rivals = [
        g
        for g in groups
        if g.kind in ("ours", "peer") and (g.table, g.ways, g.epsilon, g.delta) in bases
    ]
    if not rivals:
        return None
    settings = settings_of(rivals)
    figure, axes = make_panels(len(settings), len(MEASURES), sharex=True)
    epsilons = [g.epsilon for g in rivals if g.epsilon is not None]
    shades = LogNorm(min(epsilons), max(epsilons)) if len(set(epsilons)) > 1 else LogNorm(0.1, 10)
    colors = ScalarMappable(shades, "viridis")
    looks, used = looks_of(groups), set()
    for row, setting in enumerate(settings):
        for column, (title, measure) in enumerate(MEASURES.items()):
            panel = axes[row][column]
            for rival in rivals:
                base = bases[rival.table, rival.ways, rival.epsilon, rival.delta]
                what = "answer" if rival.kind == "ours" else "table"
                if (rival.table, rival.ways) != setting or not drawable(rival, f"{what}_{measure}"):
                    continue
                error = rival.spreads[f"{what}_{measure}"].median
                used.add(rival.mechanism)
                x = rival.spreads[f"{what}_seconds"].median
                x /= base.spreads["answer_seconds"].median
                panel.scatter(
                    x, error / base.spreads[f"answer_{measure}"].median, s=44,
                    c=[float(rival.epsilon or 0)], cmap="viridis", norm=shades,
                    marker=looks[rival.mechanism].marker, edgecolor="#333333", lw=0.5,
                )  # fmt: skip
            panel.axhline(1, color="#555555", lw=0.9, ls="--")
            panel.axvline(1, color="#555555", lw=0.9, ls="--")
            on_logarithms(panel)
            panel.set_title(f"{setting[0]}, {setting[1]}-way: {title}", loc="left")
        axes[row][0].set_ylabel("error / ResidualPlanner's")
    for panel in axes[-1]:
        panel.set_xlabel("processor seconds / ResidualPlanner's")
    handles = [
        Line2D([], [], color="#333333", marker=look.marker, ls="", label=name)
        for name, look in looks.items()
        if name in used
    ]
    figure.legend(handles=handles, loc="outside right upper")
    bar = figure.colorbar(colors, ax=[row[-1] for row in axes], label="ε", aspect=18 * len(axes))
    bar.set_ticks(sorted(set(epsilons)), labels=[f"{e:g}" for e in sorted(set(epsilons))])
    bar.ax.minorticks_off()
    return figure
