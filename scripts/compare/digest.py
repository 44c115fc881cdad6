"""The digest of a results file: JSON, CSV, and Markdown for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.compare.store import Record
from scripts.compare.summary import (
    FINISHED,
    Group,
    distinct,
    groups_of,
    losses,
    notes_of,
    versions_of,
)
from scripts.results import write_atomically, write_results

PRIVATE = ("ours", "baseline", "peer")


def write_digest(records: Sequence[Record], results: Path) -> list[Path]:
    """Write ``<results>.json``, ``.csv`` and ``.md`` beside a results file; their paths.

    Args:
        records: at least one.
        results: the file that they come from.
    """
    groups = groups_of(records)
    rows = [group.row() for group in groups]
    config = {
        "machines": distinct(record["machine"] for record in records),
        "versions": versions_of(records),
        "commits": distinct(record["commit"] for record in records),
        "limits_s": sorted({record["limit_s"] for record in records}),
        "delta": distinct(r["delta"] for r in records if r["delta"] is not None),
        "noise of this project": "exact, seeded",
    }
    lost = [line for lines in losses(groups).values() for line in lines]
    numbers = {"groups": rows, "losses": lost, "notes": notes_of(records)}
    seeds = sorted({record["seed"] for record in records})
    name, folder = results.stem, results.parent
    document = write_results(name, numbers, config, seeds, rows, folder)
    page = folder / f"{name}.md"
    write_atomically(page, markdown(records, groups, name))
    return [document, folder / f"{name}.csv", page]


def markdown(records: Sequence[Record], groups: Sequence[Group], name: str) -> str:
    """The digest as Markdown, from the records alone."""
    lines = ["# Mechanisms compared", "", *_preface(records, name)]
    shapes = {record["table"]: record["shape"] for record in records}
    for panel in dict.fromkeys(group.panel for group in groups):
        here = [group for group in groups if group.panel == panel]
        rows, attributes = shapes[panel[0].split(" (")[0]]
        lines += ["", f"## {panel[0]}, all {panel[1]}-way marginals", ""]
        lines += [f"{rows:,} rows, {attributes} attributes.", ""]
        lines += _section(here, "Tables", "table_l1", "table_seconds", PRIVATE)
        lines += _section(
            here, "Answers", "answer_l1", "answer_seconds", ("ours", "baseline", "answers")
        )
    lines += ["", "## Where this project is beaten", ""]
    lost = losses(groups)
    lines += _losses("Tables, by a peer", lost["tables"])
    lines += _losses("Answers, by a plan made without data", lost["answers"])
    ends = [
        f"- {group.mechanism} on {group.table}, {group.ways}-way"
        f"{'' if group.epsilon is None else f', ε = {group.epsilon:g}'}: "
        f"{count} {outcome} ({'; '.join(group.why)})"
        for group in groups
        for outcome, count in sorted(group.outcomes.items())
        if outcome != FINISHED
    ]
    notes = [f"- {mechanism}: {' '.join(said)}" for mechanism, said in notes_of(records).items()]
    for title, listed in (("Not finished", ends), ("Notes of the mechanisms", notes)):
        lines += [f"## {title}", "", *listed, ""] if listed else []
    return "\n".join(lines).rstrip() + "\n"


def _preface(records: Sequence[Record], name: str) -> list[str]:
    machines = "; ".join(
        f"{m['cpu']}, {_count(m['cores'], 'core')}, {m['memory_gb']:g} GB, "
        f"{_count(m['cells_at_once'], 'cell')} at once with "
        f"{_count(m['threads_per_cell'], 'thread')} each"
        for m in distinct(record["machine"] for record in records)
    )
    dates = sorted(record["date"][:10] for record in records)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions = "; ".join(
        f"{mechanism} on " + ", ".join(f"{p} {v}" for p, v in packages.items())
        for mechanism, packages in versions_of(records).items()
    )
    return [
        "Error is the mean over the workload's marginals of the L1 distance between normalised "
        "marginals: 0 is equal, 2 has nothing in common. Numbers are medians over seeds, with the "
        "smallest and largest where they differ; the best is bold. Every mechanism gets the same "
        "codes, workload, ε and δ, its own recommended settings, and a process of its own; seconds "
        "are processor time of that process, all its threads together, imports included, without "
        "scoring. Where a mechanism "
        "makes a table and answers, each is charged without the other. Answers are clipped to be "
        "non-negative and scaled to sum 1 before they are compared; unbiased ones as they came "
        f"are in `{name}.csv`. *bootstrap* and *true-independent* are made without privacy: rows "
        "drawn from the true table, and its columns shuffled independently. Neither is a "
        "bound: a mechanism can have less error than sampling leaves in *bootstrap*.",
        "",
        "Where it is not the same for all: kernels of this project are compiled once, in an "
        "earlier run, while packages that compile in every process are charged for it. Answers "
        "planned without data, adaptive mechanisms and dpsynth get 8 to 15 % more budget from the "
        "same ε and δ, by exact Gaussian DP; *independent*, measured earlier, and the other peers "
        "convert by zCDP. "
        "Mechanisms that take minutes ran with one seed.",
        "",
        f"Run on {machines}; {when}; code {_commits(records)}. Written by `scripts/compare`; "
        f"raw results in `{name}.jsonl`.",
        "",
        f"Versions: {versions}.",
    ]


def _commits(records: Sequence[Record]) -> str:
    """The commits that the results came from, with a mark where code differed from them."""
    known = distinct(record["commit"] for record in records if record["commit"])
    shown = [c["hash"][:7] + (" with changes" if c["dirty"] else "") for c in known]
    return "of commit " + " and ".join(shown) if shown else "outside a repository"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _section(
    groups: Sequence[Group], title: str, measure: str, clock: str, kinds: tuple[str, ...]
) -> list[str]:
    """One table: a line for each mechanism, error and seconds for each epsilon."""
    private = [group for kind in kinds for group in groups if group.kind == kind]
    having = [group for group in private if measure in group.spreads]
    if not having:
        return []
    epsilons = sorted({group.epsilon for group in private if group.epsilon is not None})
    best = {
        epsilon: min((g.spreads[measure].median for g in having if g.epsilon == epsilon), default=0)
        for epsilon in epsilons
    }
    lines = _row([title, *(f"ε = {e:g}" for e in epsilons)])
    lines += ["| --- |" + " --- |" * len(epsilons)]
    shown = having if measure == "answer_l1" else private
    for mechanism in dict.fromkeys(group.mechanism for group in shown):
        mine = {g.epsilon: g for g in private if g.mechanism == mechanism}
        lines += _row(
            [mechanism, *(_entry(mine.get(e), measure, clock, best[e]) for e in epsilons)]
        )
    for floor in (g for g in groups if g.kind == "floor" and measure in g.spreads):
        entry = _entry(floor, measure, clock, None)
        lines += _row([f"*{floor.mechanism}*", *[entry] * len(epsilons)])
    return [*lines, ""]


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]


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
    bad = group.outcomes.total() - group.outcomes[FINISHED]
    return text + (f", {bad} of {group.outcomes.total()} not finished" if bad else "")


def _losses(title: str, lost: Sequence[dict[str, Any]]) -> list[str]:
    title += ", by independence, or the default by a variant"
    if not lost:
        return [f"{title}: nowhere in these results.", ""]
    lines = [f"{title}:", ""]
    lines += _row(
        ["table, workload, ε", "ours", "error", "beaten by", "error", "ours is larger by", "seeds"]
    )
    lines += _row(["---"] * 7)
    for loss in lost:
        remark = ", ranges over seeds overlap" if loss["ranges_overlap"] else ""
        lines.append(
            "| {table}, {ways}-way, {epsilon:g} | {ours} | {error:.4f} | {rival} | "
            "{rival_error:.4f} | {percent:.1f} %{remark} | {seeds}, {rival_seeds} |".format(
                **loss, remark=remark
            )
        )
    return [*lines, ""]
