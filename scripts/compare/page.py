"""The digest as Markdown, machine-written from the records alone."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.compare.cells import FINISHED
from scripts.compare.facts import distinct, notes_of, versions_of
from scripts.compare.losses import Loss, answer_losses, loss_row, table_losses
from scripts.compare.summary import Group, Record

PRIVATE = ("ours", "baseline", "peer")


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
    rest = "by independence, or the default by a variant"
    lines += _losses(f"Tables, by a peer, {rest}", table_losses(groups))
    lines += _losses(f"Answers, by a plan made without data, {rest}", answer_losses(groups))
    lines += _unfinished(groups)
    lines += _note_lines(records)
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
        "planned without data use Gaussian noise alone and get 8 to 15 % more budget from the "
        "same ε and δ, by exact Gaussian DP; adaptive mechanisms, *independent* and "
        "the peers convert by zCDP. "
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
    lines += [
        "| table, workload, ε | ours | error | beaten by | error | ours is larger by | seeds |"
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for loss in losses:
        row = loss_row(loss)
        remark = ", ranges over seeds overlap" if loss.overlap else ""
        lines.append(
            f"| {row['table']}, {row['ways']}-way, {row['epsilon']:g} | {row['ours']} | "
            f"{row['error']:.4f} | {row['rival']} | {row['rival_error']:.4f} | "
            f"{row['percent']:.1f} %{remark} | {row['seeds']}, {row['rival_seeds']} |"
        )
    return [*lines, ""]


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
    for mechanism, notes in notes_of(records).items():
        lines += [f"- {mechanism}: {' '.join(notes)}"]
    return ["## Notes of the mechanisms", "", *lines, ""] if lines else []
