"""The digest of a results file: JSON, CSV, and Markdown for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from comparison.cells import FINISHED
from comparison.losses import Loss, answer_losses, table_losses
from comparison.summary import Group, Record, groups_of
from results import write_atomically, write_results

PRIVATE = ("ours", "baseline", "peer")


def write_digest(records: Sequence[Record], results: Path) -> list[Path]:
    """Write ``<results>.json``, ``.csv`` and ``.md`` beside a results file; their paths."""
    if not records:
        return []
    groups = groups_of(records)
    rows = [group.row() for group in groups]
    losses = [_loss_row(loss) for loss in table_losses(groups) + answer_losses(groups)]
    config = {
        "machines": _distinct(record["machine"] for record in records),
        "versions": _versions(records),
        "commits": _distinct(record["commit"] for record in records),
        "limits_s": sorted({record["limit_s"] for record in records}),
        "delta": _distinct(r["delta"] for r in records if r["delta"] is not None),
        "noise of this project": "exact, seeded",
    }
    numbers = {"groups": rows, "losses": losses, "notes": _notes(records)}
    seeds = sorted({record["seed"] for record in records})
    name, folder = results.stem, results.parent
    document = write_results(name, numbers, config, seeds, rows, folder)
    page = folder / f"{name}.md"
    write_atomically(page, markdown(records, groups, name))
    return [document, folder / f"{name}.csv", page]


def markdown(records: Sequence[Record], groups: Sequence[Group], name: str) -> str:
    """The digest as Markdown; machine-written from the records alone."""
    lines = ["# Mechanisms compared", "", *_preface(records, name)]
    settings = dict.fromkeys((group.table, group.ways) for group in groups)
    shapes = {record["table"]: record["shape"] for record in records}
    for table, ways in settings:
        here = [group for group in groups if (group.table, group.ways) == (table, ways)]
        rows, attributes = shapes[table.split(" (")[0]]
        lines += ["", f"## {table}, all {ways}-way marginals", ""]
        lines += [f"{rows:,} rows, {attributes} attributes.", ""]
        lines += _section(here, "Tables", "table_l1", "table_seconds", PRIVATE)
        lines += _section(
            here, "Answers", "answer_l1", "answer_seconds", ("ours", "baseline", "answers")
        )
    lines += ["", "## Where this project is beaten", ""]
    lines += _losses("Tables, by a peer or by independence", table_losses(groups))
    lines += _losses("Answers, by a plan made without data", answer_losses(groups))
    lines += _unfinished(groups)
    lines += _note_lines(records)
    return "\n".join(lines).rstrip() + "\n"


def _preface(records: Sequence[Record], name: str) -> list[str]:
    machines = "; ".join(
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gb']:g} GB, {m['cells_at_once']} cells at "
        f"once with {m['threads_per_cell']} threads each"
        for m in _distinct(record["machine"] for record in records)
    )
    dates = sorted(record["date"][:10] for record in records)
    versions = "; ".join(
        f"{mechanism} on " + ", ".join(f"{p} {v}" for p, v in packages.items())
        for mechanism, packages in _versions(records).items()
    )
    return [
        "Error is the mean over the workload's marginals of the L1 distance between normalised "
        "marginals: 0 is equal, 2 has nothing in common. Numbers are medians over seeds, with the "
        "smallest and largest where they differ; the best is bold. Every mechanism gets the same "
        "codes, workload, ε and δ, its own recommended settings, and a process of its own; seconds "
        "are wall clock of that process, imports included, without scoring. Where a mechanism "
        "makes a table and answers, each is charged without the other. Answers are clipped to be "
        "non-negative and scaled to sum 1 before they are compared; unbiased ones as they came "
        f"are in `{name}.csv`. *bootstrap* and *true-independent* are floors without privacy: rows "
        "drawn from the true table, and its columns shuffled independently.",
        "",
        f"Run on {machines}; from {dates[0]} to {dates[-1]}. Written by `scripts/compare.py`; "
        f"raw results in `{name}.jsonl`.",
        "",
        f"Versions: {versions}.",
    ]


def _section(
    groups: Sequence[Group], title: str, measure: str, clock: str, kinds: tuple[str, ...]
) -> list[str]:
    """One table: a line for each mechanism, error and seconds for each epsilon."""
    private = [group for group in groups if group.kind in kinds]
    floors = [group for group in groups if group.kind == "floor" and measure in group.spreads]
    if not any(measure in group.spreads for group in private):
        return []
    epsilons = sorted({group.epsilon for group in private if group.epsilon is not None})
    best = {
        epsilon: min(
            (g.spreads[measure].median for g in private
             if g.epsilon == epsilon and measure in g.spreads),
            default=None,
        )
        for epsilon in epsilons
    }  # fmt: skip
    lines = ["| " + " | ".join([title, *(f"ε = {e:g}" for e in epsilons)]) + " |"]
    lines.append("| --- |" + " --- |" * len(epsilons))
    for mechanism in dict.fromkeys(group.mechanism for group in private):
        mine = {g.epsilon: g for g in private if g.mechanism == mechanism}
        if measure == "answer_l1" and not any(measure in g.spreads for g in mine.values()):
            continue
        entries = [_entry(mine.get(e), measure, clock, best[e]) for e in epsilons]
        lines.append(f"| {mechanism} | " + " | ".join(entries) + " |")
    for floor in floors:
        entry = _entry(floor, measure, clock, None)
        lines.append(f"| *{floor.mechanism}* | " + " | ".join([entry] * len(epsilons)) + " |")
    return [*lines, ""]


def _entry(group: Group | None, measure: str, clock: str, best: float | None) -> str:
    if group is None:
        return ""
    spread = group.spreads.get(measure)
    if spread is None:
        return "; ".join(group.why) or "no table"
    text = f"{spread.median:.4f}"
    text = f"**{text}**" if spread.median == best else text
    low, high = f"{spread.low:.4f}", f"{spread.high:.4f}"
    if low != high:
        text += f" ({low} to {high})"
    text += f", {group.spreads[clock].median:.1f} s"
    bad = sum(count for outcome, count in group.outcomes.items() if outcome != FINISHED)
    return text + (f", {bad} of {group.outcomes.total()} not finished" if bad else "")


def _losses(title: str, losses: Sequence[Loss]) -> list[str]:
    if not losses:
        return [f"{title}: nowhere in these results.", ""]
    lines = [f"{title}:", ""]
    lines += ["| table, workload, ε | ours | error | beaten by | error | ours is larger by |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for loss in losses:
        row = _loss_row(loss)
        remark = ", ranges over seeds overlap" if loss.overlap else ""
        lines.append(
            f"| {row['table']}, {row['ways']}-way, {row['epsilon']:g} | {row['ours']} | "
            f"{row['error']:.4f} | {row['rival']} | {row['rival_error']:.4f} | "
            f"{row['percent']:.1f} %{remark} |"
        )
    return [*lines, ""]


def _loss_row(loss: Loss) -> dict[str, Any]:
    return {
        "table": loss.ours.table,
        "ways": loss.ours.ways,
        "epsilon": loss.ours.epsilon,
        "measure": loss.measure,
        "ours": loss.ours.mechanism,
        "error": loss.ours.spreads[loss.measure].median,
        "rival": loss.rival.mechanism,
        "rival_error": loss.rival.spreads[loss.measure].median,
        "percent": loss.percent,
        "ranges_overlap": loss.overlap,
    }


def _unfinished(groups: Sequence[Group]) -> list[str]:
    lines = []
    for group in groups:
        for outcome, count in sorted(group.outcomes.items()):
            if outcome != FINISHED:
                budget = "" if group.epsilon is None else f", ε = {group.epsilon:g}"
                why = "; ".join(group.why)
                lines.append(
                    f"- {group.mechanism} on {group.table}, {group.ways}-way{budget}: "
                    f"{count} {outcome} ({why})"
                )
    return ["## Not finished", "", *lines, ""] if lines else []


def _note_lines(records: Sequence[Record]) -> list[str]:
    lines = []
    for mechanism, notes in _notes(records).items():
        lines += [f"- {mechanism}: {' '.join(notes)}"]
    return ["## Notes of the mechanisms", "", *lines, ""] if lines else []


def _notes(records: Sequence[Record]) -> dict[str, list[str]]:
    """What mechanisms said of themselves, each remark once."""
    notes: dict[str, list[str]] = {}
    for record in records:
        for note in record.get("notes") or []:
            said = notes.setdefault(record["mechanism"], [])
            if note not in said:
                said.append(note)
    return notes


def _versions(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Packages that the results came from; this project's mechanisms share theirs."""
    versions: dict[str, dict[str, str]] = {}
    for record in records:
        if record.get("versions"):
            owner = record["mechanism"] if record["kind"] == "peer" else "this project"
            versions[owner] = record["versions"]
    return versions


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
