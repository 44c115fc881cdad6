"""Drafts of schemas, read off the data for review by the owner, and advice about schemas."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.pages.words import join_first
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import Draft
from adaptive_qs.table.profile import INFINITE, Profile
from adaptive_qs.table.read import Source, check_alike, open_source
from adaptive_qs.table.schema import (
    AS_PROPOSED,
    TAKEN_FROM_DATA,
    Schema,
    left_as_proposed,
    rules_as_proposed,
)
from adaptive_qs.table.text import NUMBER


def draft_column(name: str, profile: Profile) -> Draft:
    """Return the column of this name, of the first type that takes its cells."""
    if not name:
        return Draft(None, "without a name")
    if profile.unsupported:
        return Draft(None, profile.unsupported)
    profile.set_sentinel_aside()
    values = profile.values
    if not values:
        return Draft(None, "empty")
    if any("\0" in value for value in values):
        return Draft(None, "text with NUL characters: remove them")
    types = reversed(COLUMN_TYPES.values())
    draft = next(found for column in types if (found := column.draft(name, profile)))
    if draft.content is None:
        return draft
    notes = [draft.note] if draft.note else []
    if profile.numeric or profile.dated:
        if not profile.marked.isdisjoint(INFINITE):
            notes.append("some cells are infinite: they count as missing")
        if profile.words:
            notes.append("the few words among the numbers or dates count as missing: are they?")
    form = profile.spelling.fields
    if form:
        said = " and ".join(f'"{key}" "{sign}"' for key, sign in form.items())
        notes.append(f"text that is read as numbers with {said}: are they?")
    missing = {"missing": profile.markers} if profile.markers else {}
    return Draft({**draft.content, **form, **missing}, "; ".join(notes))


@dataclass(frozen=True)
class Proposal:
    """A proposed schema, and notes for its owner."""

    schema: Schema
    left_out: Mapping[str, str]
    """Reasons why columns of the table are not in it, by name."""
    notes: Mapping[str, str]
    """Notes on columns that are in it, by name."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for every reason, with its columns."""
        return _grouped(self.left_out)

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for every note, with its columns."""
        return _grouped(self.notes)


def _grouped(said: Mapping[str, str]) -> tuple[str, ...]:
    names: dict[str, list[str]] = {}
    for name, words in said.items():
        names.setdefault(words, []).append(repr(name))
    return tuple(f"{', '.join(some)} ({words})" for words, some in names.items())


def propose(table: Any) -> Proposal:
    """Return a schema that fits a table, for `schema init`.

    It reveals values and ranges of the data: its description, and that of every column, say so
    until the owner removes the sentence. Columns that look like identifiers or free text are
    ignored.

    Raises:
        DataError: If the table cannot be read, or has no header line, no rows, or no column that a
            schema can describe.
    """
    with open_source(table) as source:
        label, delimiter = source.label, source.other_delimiter
    profiles = _read_profiles(table, delimiter)
    if not any(profile.rows for profile in profiles.values()):
        raise DataError(f"{label}: no rows: give a table with at least one")
    drafts = {name: draft_column(name, profile) for name, profile in profiles.items()}
    for name in (n for n, profile in profiles.items() if profile.identifies_persons(n)):
        whose = (
            'it may identify persons. If so, name it as "person" and remove it from columns and '
            "ignore"
        )
        note = "; ".join(filter(None, (drafts[name].note, whose)))
        drafts[name] = Draft(drafts[name].content, note)
    left_out = {name: draft.note for name, draft in drafts.items() if draft.content is None}
    notes = {name: draft.note for name, draft in drafts.items() if draft.content and draft.note}
    if len(left_out) == len(drafts):
        # Without the names of the columns, which may be cells of a table without a header.
        raise DataError(
            f"{label}: no column can be described "
            f"({'; '.join(dict.fromkeys(left_out.values()))}). Write the schema by hand."
        )
    note = f" Left out: {'; '.join(_grouped(left_out))}." if left_out else ""
    content = {
        "version": 1,
        "description": TAKEN_FROM_DATA + note,
        "columns": [
            {"name": name, "description": AS_PROPOSED, **draft.content}
            for name, draft in drafts.items()
            if draft.content is not None
        ],
        "ignore": list(left_out),
        **({"delimiter": delimiter} if delimiter else {}),
    }
    with contextlib.suppress(SchemaError):  # which would quote a cell
        return Proposal(Schema.parse(content, label), left_out, notes)
    raise DataError(f"{label}: a column name or value does not fit a schema: write one by hand")


def _read_profiles(table: Any, delimiter: str | None) -> dict[str, Profile]:
    """Return the profiles of all columns, with numbers in the form in which they are written."""
    with open_source(table, delimiter) as source:
        check_alike(source)
        _check_header(source.label, source.names)
        profiles = {name: Profile() for name in source.names}
        _look_through(source, profiles)
    spelled = {
        name: Profile(spelling=ways[0])
        for name, profile in profiles.items()
        if len(ways := profile.spellings) == 1
    }
    if spelled:  # which was clear at the end only
        with open_source(table, delimiter) as source:
            _look_through(source, spelled)
        profiles |= {name: profile for name, profile in spelled.items() if profile.numeric}
    return profiles


def _look_through(source: Source, profiles: Mapping[str, Profile]) -> None:
    """Update the profiles of some columns, by name, with all their cells."""

    def unread(name: str, _: Exception) -> DataError:
        number = source.names.index(name) + 1
        return DataError(f"{source.label}: column {number} cannot be read: write it as text")

    for chunk in source.read([*profiles]):
        for (name, profile), values in zip(profiles.items(), chunk.columns):
            redacted(partial(profile.update, values), partial(unread, name))


def _check_header(label: str, names: Sequence[str]) -> None:
    """Refuse names that are mostly numbers, or that are repeated, without quoting them.

    If the header is missing, names are private cells. Numbers that count up are names of a wide
    table.
    """
    numbers = [name for name in names if re.fullmatch(NUMBER, name)]
    whole = [int(name) for name in numbers if name.isdecimal()]
    counting = len(whole) > 2 and whole == list(range(whole[0], whole[0] + len(numbers)))
    if len(numbers) * 2 > len(names) and not counting:
        raise DataError(f"{label}: the first line looks like data: add a header line")
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        first = seen.setdefault(name, number)
        if first < number:
            raise DataError(
                f"{label}: columns {first} and {number} have the same name: rename or drop one, "
                "or add a header line if there is none"
            )


# Advice about a schema.


def check_schema(schema: Schema) -> tuple[str, ...]:
    """Return advice about a valid schema, a line for everything that its author can have missed."""
    advice = []
    if TAKEN_FROM_DATA in schema.description:
        advice.append(
            "the schema was taken from the data: replace what it reveals by public knowledge, then "
            "take that sentence out of its description"
        )
    left = [repr(column.name) for column in left_as_proposed(schema)]
    if left:
        verb = "is" if len(left) == 1 else "are"
        advice.append(
            f"{len(left):,} of {len(schema.columns):,} columns {verb} as proposed "
            f'({join_first(left, 10)}): take "{AS_PROPOSED}" out of the description of each '
            "that was reviewed"
        )
    rules = [repr(rule.rule) for rule in rules_as_proposed(schema)]
    if rules:
        advice.append(
            f"{len(rules):,} of {len(schema.rules):,} rules as proposed "
            f"({join_first(rules, 10)}): "
            f'do they hold for every row there can be? Take "{AS_PROPOSED}" out of the '
            "description of those, and the others out of the schema"
        )
    if schema.ruleset is not None:
        for name, labels in schema.ruleset.never().items():
            said = join_first(list(map(repr, labels)), 10)
            advice.append(f"the rules leave no row in which column {name!r} is {said}")
    named: dict[str, list[str]] = {}
    for column in schema.columns:
        for line in column.advice():
            named.setdefault(line, []).append(repr(column.name))
    for line, names in named.items():
        kind = "column" if len(names) == 1 else "each of"
        advice.append(f"{kind} {join_first(names, 10)} {line}")
    largest = sorted(schema.columns, key=lambda column: column.size)[-2:]
    cells = math.prod(column.size for column in largest)
    if len(largest) == 2 and cells > 10**9:
        both = " and ".join(repr(column.name) for column in largest)
        advice.append(f"columns {both} have {cells} cells together: use wider bins")
    return tuple(advice)
