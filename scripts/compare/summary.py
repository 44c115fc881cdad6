"""Cells that differ in their seed alone, taken together."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scripts.compare.cells import FINISHED

Record = dict[str, Any]

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
    """Equal cells of several seeds.

    Attributes:
        table: its name, with the fingerprint where the name alone would be ambiguous.
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
            for part in ("median", "low", "high"):
                name = {"median": "median", "low": "min", "high": "max"}[part]
                row[f"{measure}_{name}"] = None if spread is None else getattr(spread, part)
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
    return [_group(key, members) for key, members in grouped.items()]


def name_of(record: Record) -> str:
    """The mechanism's title with the settings in which it departs from its recommended ones."""
    settings = record["settings"]
    changed = ", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(settings.items()))
    return record["title"] + (f" ({changed})" if changed else "")


def drawable(group: Group, measure: str) -> bool:
    """Whether a group has a measure that a logarithmic axis can show."""
    return measure in group.spreads and group.spreads[measure].low > 0


def _group(key: tuple[Any, ...], members: Sequence[Record]) -> Group:
    finished = [record for record in members if record["outcome"] == FINISHED]
    spreads = {}
    for measure, place in MEASURES.items():
        values = [v for v in (_found(record, place) for record in finished) if v is not None]
        if values:
            spreads[measure] = Spread(median(values), min(values), max(values))
    table, ways, epsilon, delta, mechanism = key
    return Group(
        table=table,
        ways=ways,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        kind=members[0]["kind"],
        outcomes=Counter(record["outcome"] for record in members),
        why=tuple(dict.fromkeys(record["why"] for record in members if record["why"])),
        spreads=spreads,
    )


def _found(record: Record, place: tuple[str, ...]) -> float | None:
    value: Any = record
    for step in place:
        value = value.get(step) if isinstance(value, dict) else None
    return value
