"""Processor seconds until the program works: the first run, later runs, and imports.

Each figure is the median of some processes, user and system time together. The first run is the
first command of the README with an empty folder for compiled code; byte code is there, as after
an installation. Imports of `synthesize` are those of all modules that this command has loaded at
its end.

    python -m scripts.speed.startup
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from scripts.results import RESULTS, write_results

FIRST_TARGET, HELP_TARGET, IMPORTS_TARGET, SYNTHESIZER_TARGET = 10.0, 0.3, 1.2, 1.0
COMMAND = "from adaptive_qs.cli.entry import main; main(sys.argv[2:])"
LIST = f"import json, sys; {COMMAND}; json.dump([*sys.modules], open(sys.argv[1], 'w'))"
IMPORT = """
import contextlib, importlib, json, sys
for name in json.load(open(sys.argv[1])):
    with contextlib.suppress(Exception):
        importlib.import_module(name)
"""


def processor_seconds(*arguments: object, folder: Path, compiled: Path) -> float:
    """Return user and system time of one Python process; its code lies in these folders."""
    before = os.times()
    places = {"NUMBA_CACHE_DIR": str(compiled), "PYTHONPYCACHEPREFIX": str(folder / "bytes")}
    environment = {**os.environ, **places}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [sys.executable, *map(str, arguments)], env=environment, cwd=RESULTS.parent, check=True,
        capture_output=True,
    )  # fmt: skip
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system


def main(runs: int = 3) -> None:
    """Measure everything and write ``results/startup.json`` and ``.csv``."""
    rows: list[dict[str, Any]] = []

    def measure(name: str, target: float | None, *arguments: object, fresh: bool = False) -> None:
        places = [folder / f"empty-{k}" if fresh else compiled for k in range(runs)]
        found = [processor_seconds(*arguments, folder=folder, compiled=p) for p in places]
        median = round(statistics.median(found), 2)
        met = None if target is None else median <= target
        row = {"what": name, "processor_seconds": median, "target": target, "met": met}
        typer.echo(row)
        rows.append({**row, "all": " ".join(f"{seconds:.2f}" for seconds in found)})

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        compiled, listed = folder / "compiled", folder / "modules.json"
        demo = ["-m", "adaptive_qs", "synthesize", "--demo", "--force", "--out", folder / "o.csv"]
        processor_seconds("-c", LIST, listed, *demo[2:], folder=folder, compiled=compiled)
        for target, arguments in (
            (HELP_TARGET, ["-m", "adaptive_qs", "--help"]),
            (SYNTHESIZER_TARGET, ["-c", "from adaptive_qs import Synthesizer"]),
        ):
            processor_seconds(*arguments, folder=folder, compiled=compiled)
            measure(" ".join(arguments), target, *arguments)
        measure("imports of synthesize", IMPORTS_TARGET, "-c", IMPORT, listed)
        measure("synthesize --demo, compiled", None, *demo)
        measure("synthesize --demo, first run", FIRST_TARGET, *demo, fresh=True)
    config = {"runs": runs, "of": "processes, median of user and system time"}
    path = write_results("startup", rows, config, None, rows)
    typer.echo(path.relative_to(RESULTS.parent))


if __name__ == "__main__":
    typer.run(main)
