"""What the records of a results file say together, beside their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scripts.compare.summary import Record, name_of


def notes_of(records: Sequence[Record]) -> dict[str, list[str]]:
    """What mechanisms said of themselves, each remark once."""
    notes: dict[str, list[str]] = {}
    for record in records:
        for note in record.get("notes") or []:
            said = notes.setdefault(name_of(record), [])
            if note not in said:
                said.append(note)
    return notes


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
