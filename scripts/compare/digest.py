"""The digest of a results file: JSON, CSV, and Markdown for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.compare.facts import distinct, notes_of, versions_of
from scripts.compare.losses import answer_losses, loss_row, table_losses
from scripts.compare.page import markdown
from scripts.compare.summary import Record, groups_of
from scripts.results import write_atomically, write_results


def write_digest(records: Sequence[Record], results: Path) -> list[Path]:
    """Write ``<results>.json``, ``.csv`` and ``.md`` beside a results file; their paths.

    Args:
        records: at least one.
        results: the file that they come from.
    """
    groups = groups_of(records)
    rows = [group.row() for group in groups]
    losses = [loss_row(loss) for loss in table_losses(groups) + answer_losses(groups)]
    config = {
        "machines": distinct(record["machine"] for record in records),
        "versions": versions_of(records),
        "commits": distinct(record["commit"] for record in records),
        "limits_s": sorted({record["limit_s"] for record in records}),
        "delta": distinct(r["delta"] for r in records if r["delta"] is not None),
        "noise of this project": "exact, seeded",
    }
    numbers = {"groups": rows, "losses": losses, "notes": notes_of(records)}
    seeds = sorted({record["seed"] for record in records})
    name, folder = results.stem, results.parent
    document = write_results(name, numbers, config, seeds, rows, folder)
    page = folder / f"{name}.md"
    write_atomically(page, markdown(records, groups, name))
    return [document, folder / f"{name}.csv", page]
