"""`sample RELEASE`: another table, free of charge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.artefacts import beside, check_distinct, check_table, write_stamped
from adaptive_qs.cli.output import emit_json, emit_rows, progress_bars, warn
from adaptive_qs.cli.summary import peak_memory_mb
from adaptive_qs.data.formulas import check_formulas


def sample(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="Release bundle (.zip).")],
    out: options.RequiredOut,
    rows: options.Rows = None,
    seed: options.Seed = None,
    formulas: options.FormulasKind = "escape-learnt",
    force: options.Force = False,
    as_json: options.Json = False,
    max_memory: options.MaxMemory = None,
    workers: options.Workers = None,
) -> None:
    """Sample another table from a release, free of charge.

    The noise was drawn when the release was made: sampling spends no budget.
    """
    kind = check_formulas(formulas)
    check_distinct(beside(out), [release])
    check_table(out, force)

    from adaptive_qs.clock import PhaseClock
    from adaptive_qs.data.review import UNREVIEWED, is_unreviewed
    from adaptive_qs.machine import plan_workers
    from adaptive_qs.release.release import Release, check_rows, chosen_seed
    from adaptive_qs.synthesizer.resources import check_sample_rows

    if rows is not None:
        check_rows(rows)
    seed = chosen_seed(seed)
    threads = plan_workers(workers)
    loaded = Release.load(release, max_memory)
    count = loaded.num_rows if rows is None else rows
    check_sample_rows(count, len(loaded.schema.columns), max_memory)
    if loaded.insecure:
        warn(f"{release}: {loaded.manifest.stamp}")
    if is_unreviewed(loaded.schema):
        warn(f"{release}: {UNREVIEWED}")
    if rows is None and not loaded.counted:
        for doubt in loaded.doubts:
            warn(doubt)
    with progress_bars() as bars:
        clock = PhaseClock(bars)
        clock.start("fit")
        table = loaded.sample_table(rows, seed, threads, clock)
        clock.start("write")
        write_stamped(table, out, loaded, seed, kind)
    seconds = {phase: round(spent, 3) for phase, spent in clock.stop().items()}
    if as_json:
        content = {
            "rows": count,
            "seconds": seconds,
            "peak_memory_mb": peak_memory_mb(),
            "seed_insecure": loaded.insecure,
        }
        emit_json(content)
        return
    lines = [
        ("table", f"{out} ({count:,} rows, {table.num_columns} columns)"),
        ("privacy", "no budget spent: everything comes from the release"),
        ("seconds", f"{seconds['total']:.1f}"),
    ]
    emit_rows("Done.", lines)
