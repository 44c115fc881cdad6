"""What the records of a results file say together: groups of seeds, losses, notes, versions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scripts.compare.mechanisms import OURS
from scripts.compare.store import Record

FINISHED, UNFINISHED, FAILED, NOT_INSTALLED = "finished", "unfinished", "failed", "not installed"
"""How a cell ends."""
MEASURES: dict[str, tuple[str, ...]] = {
    "table_l1": ("table_error", "mean_l1"),
    "table_max_l1": ("table_error", "max_l1"),
    "table_l2": ("table_error", "mean_l2"),
    "answer_l1": ("answer_error", "projected", "mean_l1"),
    "answer_max_l1": ("answer_error", "projected", "max_l1"),
    "answer_l2": ("answer_error", "projected", "mean_l2"),
    "raw_answer_l1": ("answer_error", "raw", "mean_l1"),
    "raw_answer_max_l1": ("answer_error", "raw", "max_l1"),
    "raw_answer_l2": ("answer_error", "raw", "mean_l2"),
    "table_seconds": ("table_seconds",),
    "answer_seconds": ("answer_seconds",),
    "peak_memory_mb": ("peak_memory_mb",),
    "tv_1way": ("table_error", "total_variation", "1"),
    "tv_2way": ("table_error", "total_variation", "2"),
    "tv_3way": ("table_error", "total_variation", "3"),
}
"""What is summarised, by the place where a record has it."""


@dataclass(frozen=True)
class Spread:
    """Median, least and largest over seeds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """Cells that differ in their seed only.

    Attributes:
        table: its name, with the fingerprint where the name would be ambiguous.
        ways, epsilon, delta, mechanism, kind: as in the records; settings are in the name.
        outcomes: how many cells ended how.
        why: one line for each bad end that differs.
        spreads: of the finished cells, by the names of ``MEASURES``.
    """

    table: str
    ways: int
    epsilon: float | None
    delta: float | None
    mechanism: str
    kind: str
    outcomes: Counter[str]
    why: tuple[str, ...]
    spreads: dict[str, Spread]

    @property
    def panel(self) -> tuple[str, int]:
        """The table and workload, which have a section of the page and a panel of each plot."""
        return self.table, self.ways

    @property
    def setting(self) -> tuple[Any, ...]:
        """What has to be equal for two mechanisms to be compared."""
        return self.table, self.ways, self.epsilon, self.delta

    def draws(self, *measures: str) -> bool:
        """Whether a logarithmic axis can show these measures."""
        return all(m in self.spreads and self.spreads[m].low > 0 for m in measures)

    def row(self) -> dict[str, Any]:
        """The group as one flat line."""
        row: dict[str, Any] = {
            "table": self.table,
            "ways": self.ways,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "kind": self.kind,
            "seeds": self.outcomes[FINISHED],
            "outcome": "; ".join(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items())),
            "why": "; ".join(self.why),
        }
        for measure in MEASURES:
            spread = self.spreads.get(measure)
            for part, name in {"median": "median", "low": "min", "high": "max"}.items():
                row[f"{measure}_{name}"] = spread and getattr(spread, part)
        return row


def groups_of(records: Iterable[Record]) -> list[Group]:
    """The groups of all records, in the order in which they first came."""
    records = list(records)
    prints: dict[str, set[str]] = defaultdict(set)
    for record in records:
        prints[record["table"]].add(record["fingerprint"])
    grouped: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        name, fingerprint = record["table"], record["fingerprint"]
        table = name if len(prints[name]) == 1 else f"{name} ({fingerprint[:6]})"
        key = (table, record["ways"], record["epsilon"], record["delta"], name_of(record))
        grouped[key].append(record)
    return [
        Group(
            *key,
            kind=members[0]["kind"],
            outcomes=Counter(record["outcome"] for record in members),
            why=tuple(dict.fromkeys(record["why"] for record in members if record["why"])),
            spreads=dict(_spreads([r for r in members if r["outcome"] == FINISHED])),
        )
        for key, members in grouped.items()
    ]


def name_of(record: Record) -> str:
    """The mechanism's title with the settings in which it departs from its recommended ones."""
    settings = record["settings"]
    changed = ", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(settings.items()))
    return record["title"] + (f" ({changed})" if changed else "")


def _spreads(finished: Sequence[Record]) -> Iterable[tuple[str, Spread]]:
    for measure, place in MEASURES.items():
        values = []
        for value in finished:
            for step in place:
                value = value.get(step) if isinstance(value, dict) else None
            if value is not None:
                values.append(value)
        if values:
            yield measure, Spread(median(values), min(values), max(values))


def losses(groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """Where this project's mechanisms have a larger median error, and by how much.

    Returns:
        One flat line for each loss: "tables" further from the truth than a peer's or than
        independence, and adaptive "answers" further from it than those planned without data. The
        default is held against this project's other mechanisms, too. The ranges over seeds overlap
        where more seeds could turn it.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for what, kind, measure in (
        ("tables", "peer", "table_l1"),
        ("answers", "answers", "answer_l1"),
    ):
        found[what] = []
        for ours in groups:
            mine = ours.spreads.get(measure)
            if ours.kind != "ours" or mine is None:
                continue
            rivals = (kind, "baseline", "ours") if ours.mechanism == OURS[0] else (kind, "baseline")
            for rival in groups:
                theirs = rival.spreads.get(measure)
                if rival.kind not in rivals or theirs is None or ours.setting != rival.setting:
                    continue
                if mine.median > theirs.median:
                    line = {
                        "table": ours.table,
                        "ways": ours.ways,
                        "epsilon": ours.epsilon,
                        "measure": measure,
                        "ours": ours.mechanism,
                        "error": mine.median,
                        "rival": rival.mechanism,
                        "rival_error": theirs.median,
                        "percent": 100 * (mine.median / theirs.median - 1),
                        "ranges_overlap": mine.low <= theirs.high,
                        "seeds": ours.outcomes[FINISHED],
                        "rival_seeds": rival.outcomes[FINISHED],
                    }
                    found[what].append(line)
    return found


def notes_of(records: Sequence[Record]) -> dict[str, list[str]]:
    """What mechanisms said of themselves, each remark once."""
    notes: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.get("notes"):
            notes[name_of(record)] += record["notes"]
    return {name: distinct(said) for name, said in notes.items()}


def versions_of(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Packages that the results came from; this project's mechanisms share theirs."""
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        owner = name_of(record) if record["kind"] == "peer" else "this project"
        for package, version in (record.get("versions") or {}).items():
            found.setdefault(owner, {}).setdefault(package, []).append(str(version))
    return {
        owner: {package: " and ".join(distinct(versions)) for package, versions in packages.items()}
        for owner, packages in found.items()
    }


def distinct(values: Iterable[Any]) -> list[Any]:
    """The values that differ, in the order in which they first came; they need no hash."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
