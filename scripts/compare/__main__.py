"""Compare mechanisms on tables, workloads and budgets; continue where an earlier run ended.

    python -m scripts.compare --data FOLDER --grid quick --jobs 2
    python -m scripts.compare --data FOLDER --grid published --jobs 1 --peers ENVIRONMENTS

A grid is one of scripts/compare/grids/ or a JSON file of the same form. Every cell runs in a
process of its own, with a time limit and its share of the cores, and becomes one line of the
results file. A rerun skips the cells that are there; digest and plots are drawn from all of them.
The plots need matplotlib: install the project with its extra `plots`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from scripts.compare import Complaint
from scripts.compare.digest import write_digest
from scripts.compare.grid import Grid, cells_of, parse_only
from scripts.compare.harness import run_grid
from scripts.compare.mechanisms import PEER_SCRIPTS, all_mechanisms, check_known
from scripts.compare.store import Store, read_records
from scripts.compare.summary import FAILED, UNFINISHED
from scripts.results import RESULTS

app = typer.Typer(add_completion=False)


@app.command()
def main(
    data: Annotated[Path, typer.Option(help="Folder of the tables.")] = Path("data"),
    grid: Annotated[str, typer.Option(help="Name of a grid, or a file.")] = "quick",
    jobs: Annotated[int, typer.Option(min=1, help="Cells at once.")] = 1,
    results: Annotated[
        Path, typer.Option(help="File of raw results; digest and plots go beside it.")
    ] = RESULTS / "compare.jsonl",
    only: Annotated[
        list[str] | None, typer.Option(help="FIELD=VALUE,VALUE: run only these cells.")
    ] = None,
    peers: Annotated[
        Path | None, typer.Option(help="Folder of the peers' virtual environments.")
    ] = None,
    peer_scripts: Annotated[
        Path, typer.Option(help="Folder of the peers' scripts and peers.json.")
    ] = PEER_SCRIPTS,
    retry_failed: Annotated[bool, typer.Option("--retry-failed")] = False,
    retry_unfinished: Annotated[bool, typer.Option("--retry-unfinished")] = False,
    digest_only: Annotated[
        bool, typer.Option("--digest-only", help="Run nothing; draw what is there.")
    ] = False,
) -> None:
    """Run what a grid has left, then write the digest and the plots."""
    try:
        from scripts.compare.plots import write_plots
    except ModuleNotFoundError as missing:
        _tell(f"error: {missing.name} is not installed: pip install '.[plots]'")
        raise typer.Exit(2) from None
    failed = False
    previous = {n: signal.signal(n, _interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        if not digest_only:
            mechanisms = all_mechanisms(peers, peer_scripts)
            chosen = Grid.load(grid)
            for block in chosen.blocks:
                for one in block.mechanisms:
                    check_known(one.name, one.settings, mechanisms)
            wanted = parse_only(only or [])
            cells = [cell for cell in cells_of(chosen) if cell.matches(wanted)]
            if not cells:
                raise Complaint("no cell of the grid fits --only: give values that it has")
            with Store(results) as store:
                if store.dropped:
                    _tell("a torn last line was dropped: its cell runs again")
                retried = [FAILED] * retry_failed + [UNFINISHED] * retry_unfinished
                ended = run_grid(cells, data, mechanisms, store, jobs, retried, _tell)
            _tell(", ".join(f"{count} {outcome}" for outcome, count in sorted(ended.items())))
            failed = ended[FAILED] > 0
        records = list(read_records(results).values())
        if not records:
            raise Complaint(f"{results.name}: holds no result yet: run a grid first")
        for path in [*write_digest(records, results), *write_plots(records, results)]:
            typer.echo(path.name)
    except Complaint as complaint:
        _tell(f"error: {complaint}")
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        _tell("stopped: what ran is dropped, what ended is kept; the same command continues")
        by = stop.args[0] if stop.args else signal.SIGINT
        raise typer.Exit(128 + by) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if failed:
        raise typer.Exit(1)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _interrupt(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    app()
