"""Seconds of counting against rows, attributes, sizes of attributes and degree, beside the model.

Codes drawn at random are counted by the engine ``memory`` in one thread, all marginals of one
degree in one pass, once to load what is compiled and then the least of ``REPEATS`` times. The model
is that of docs/scaling.md: ``ROW_NS`` for each row, marginal and attribute of it, and ``CELL_NS``
for each cell of the counts. It leaves out that counts may not fit the processor's cache.

    python -m scripts.speed.scaling_curves
    python -m scripts.speed.scaling_curves --draw-only
"""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from itertools import combinations, groupby
from math import comb
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
import numpy as np
import typer
from matplotlib.figure import Figure

from adaptive_qs.domain import Domain
from adaptive_qs.table.coded import BlockEngine, CodedTable, HeldBlocks
from scripts.compare.plots import PANEL, STYLE, save
from scripts.results import RESULTS, write_results

NAME = "scaling_curves"
SEED, REPEATS = 1, 3
ROW_NS, CELL_NS = 0.4, 1.2
"""Nanoseconds of the model."""
USUAL = {"rows": 10**6, "attributes": 12, "size": 4, "degree": 2}
CURVES: Mapping[str, Sequence[int]] = {
    "rows": (10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7),
    "attributes": (6, 12, 24, 48, 96),
    "size": (2, 4, 16, 64, 256, 1024),
    "degree": (1, 2, 3, 4, 5, 6),
}
"""What varies in each curve; all else is usual."""


def seconds_of(rows: int, attributes: int, size: int, degree: int) -> float:
    """Processor seconds of one pass."""
    rng = np.random.default_rng(SEED)
    domain = Domain.from_sizes({f"c{i}": size for i in range(attributes)})
    codes = [rng.integers(size, size=rows) for _ in range(attributes)]
    table = CodedTable.from_codes(domain, codes)
    engine = BlockEngine(domain, HeldBlocks(table.columns))
    cliques = list(combinations(range(attributes), degree))
    engine.count_all(cliques[:1])
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        engine.count_all(cliques)
        taken.append(time.process_time() - start)
    return min(taken)


def model_of(rows: int, attributes: int, size: int, degree: int) -> float:
    """The same by the model."""
    each = rows * degree * ROW_NS + size**degree * CELL_NS
    return comb(attributes, degree) * each / 1e9


def measured() -> list[dict[str, Any]]:
    """All points of all curves."""
    found = []
    for curve, values in CURVES.items():
        for value in values:
            case = {**USUAL, curve: value}
            row = {"curve": curve, **case, "marginals": comb(case["attributes"], case["degree"])}
            found.append({**row, "cpu_s": round(seconds_of(**case), 4)})
            print(found[-1])
    return found


def drawn(points: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each curve: what was measured, and the line of the model."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2 * PANEL[0], 2 * PANEL[1]), layout="constrained")
        panels = figure.subplots(2, 2).flat
        for panel, (curve, of_curve) in zip(panels, groupby(points, key=lambda p: p["curve"])):
            some = list(of_curve)
            cases = [{name: int(point[name]) for name in USUAL} for point in some]
            x = [case[curve] for case in cases]
            seconds = [float(point["cpu_s"]) for point in some]
            panel.plot(x, seconds, "o", color="#0072B2", label="measured")
            panel.plot(x, [model_of(**case) for case in cases], color="#8c8c8c", label="model")
            panel.set_yscale("log")
            if curve != "degree":
                panel.set_xscale("log")
            fixed = (f"{name} {usual:,}" for name, usual in USUAL.items() if name != curve)
            panel.set_title(", ".join(fixed), loc="left", fontsize=8)
            panel.set_xlabel(curve)
            panel.set_ylabel("processor seconds")
        figure.axes[0].legend()
    return figure


def main(
    draw_only: Annotated[bool, typer.Option(help="Draw what results/ has.")] = False,
    folder: Annotated[Path, typer.Option(help="Where files go.")] = RESULTS,
) -> None:
    """Write results/scaling_curves.{json,csv,svg,png}."""
    if not draw_only:
        found = measured()
        write_results(NAME, found, {"repeats": REPEATS}, [SEED], found, folder)
    points = list(csv.DictReader(StringIO((folder / f"{NAME}.csv").read_text())))
    with mpl.rc_context(STYLE):
        save(drawn(points), folder / NAME)


if __name__ == "__main__":
    typer.run(main)
