"""Drafts of schemas, read off the data for review by the owner, and advice about schemas."""

import codecs
import contextlib
import gzip
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.pages.words import join_first
from adaptive_qs.table import bins
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import ColumnBase, Draft, Topic
from adaptive_qs.table.dictionary import Entry
from adaptive_qs.table.files import TAB_SEPARATED
from adaptive_qs.table.generated import LONGEST_PATTERN, LONGEST_VALUE, is_number, key_pattern
from adaptive_qs.table.profile import INFINITE, PERSONS, THINGS, Profile
from adaptive_qs.table.read import Source, check_alike, open_source
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.spellings import durations_spelled, split_name
from adaptive_qs.table.text import NUMBER, Dialect


def draft_column(name: str, profile: Profile) -> Draft:
    """Return the column of this name, of the first type that takes its cells."""
    if not name:
        return Draft(None, "without a name")
    if profile.unsupported:
        return Draft(None, profile.unsupported)
    profile.set_sentinel_aside()
    profile.set_dust_aside()
    values = profile.values
    if not values:
        return Draft(None, "empty")
    if any("\0" in value for value in values):
        return Draft(None, "text with NUL characters: remove them")
    if len(values) == 1 and not profile.markers and profile.rows > 1:
        return Draft(None, CONSTANT)
    profile.persons = bool(explain_persons(name, profile))
    types = reversed(COLUMN_TYPES.values())
    draft = next(found for column in types if (found := column.draft(name, profile)))
    if draft.content is None:
        return draft
    notes = [draft.note] if draft.note else []
    if profile.numeric or profile.dated:
        if not profile.marked.isdisjoint(INFINITE):
            notes.append("some cells are infinite: they count as missing")
        if profile.words:
            notes.append("the few words among numbers or dates count as missing. Check them")
        if profile.exponents and profile.integers:
            notes.append("whole numbers, although some are written with an exponent")
    if profile.sentinel:
        notes.append("a number below 0, or far from all others, probably means a missing value")
    if form := profile.spelling.fields:
        said = " and ".join(f'"{key}" "{sign}"' for key, sign in form.items())
        notes.append(f"text, read as numbers with {said}. Check that they are numbers")
    coded = re.fullmatch(KINDS, (split_name(name) or [""])[-1]) and "ordered" in draft.content
    if coded and all(type(value) is int or len(value) == 1 for value in draft.content["values"]):
        del draft.content["ordered"]  # codes, not amounts or grades
    missing = {"missing": profile.markers} if profile.markers else {}
    content = {**draft.content, **form, **missing}
    return replace(draft, content=content, note="; ".join(notes))


KINDS = "area|branch|category|code|district|id|kind|region|type|zone"
"""Last words in names of columns whose integers or letters have no order."""
CONSTANT = "the same value in every row"


def _generate(profile: Profile, reason: str) -> dict[str, Any]:
    """Return a column that is not measured, as keys of a schema: a key, its value, or empty."""
    if reason == CONSTANT and len(profile.values[0]) <= LONGEST_VALUE:
        (value,) = profile.values
        known: Any = value == "true" if profile.truth else value
        if profile.numeric:
            known = int(profile.points[0]) if profile.integers else float(profile.points[0])
        as_text = profile.from_text and str(known) != value
        return {"type": "filled", "values": [value if as_text else known]}
    if reason.startswith("an identifier"):
        pattern = key_pattern(profile.values)
        pattern = pattern if not profile.numeric or is_number(pattern) else "{}"
        if 0 < len(pattern) <= LONGEST_PATTERN:
            return {"type": "key", "pattern": pattern}
    return {"type": "filled"}


def propose(table: Any, dictionary: Mapping[str, Entry] | None = None) -> Schema:
    """Return a schema that fits a table, for `schema init`.

    It reveals values and ranges of the data: it has open questions until its owner has answered
    them. Columns that look like identifiers or free text are not measured; they come back with new
    keys or with empty cells. A public ``dictionary`` goes before what the rows show. Raise
    DataError if the table cannot be read, or has no header line, no rows, no column that a
    schema can describe, or none of the columns of the dictionary.
    """
    encoding = find_encoding(table)
    with open_source(table, Dialect(None, encoding, located=True)) as source:
        label, delimiter = source.label, source.other_delimiter
    profiles = _read_profiles(table, Dialect(delimiter, encoding, located=True))
    if not any(profile.rows for profile in profiles.values()):
        raise DataError(f"{label} has no rows. It needs at least one.")
    if dictionary and dictionary.keys().isdisjoint(profiles):
        raise DataError(f"{label} has no column that the data dictionary names. Check the names.")
    for profile in profiles.values():  # in files all numbers can be floats
        profile.from_floats &= not isinstance(table, str | Path)
    drafts = {name: draft_column(name, profile) for name, profile in profiles.items()}
    persons = {n: said for n, each in profiles.items() if (said := explain_persons(n, each))}
    columns, generated = [], []
    places = {name: place for place, name in enumerate(filter(None, drafts))}
    for name, draft in drafts.items():
        about: dict[str, Any] = {"name": name, "why": [draft.note] if draft.note else []}
        about["open"] = [*draft.open, *(["person"] if name in persons else [])]
        if (entry := (dictionary or {}).get(name)) and draft.content is not None:
            if content := entry.describe(profiles[name], draft.content):
                drafts[name] = draft = Draft(content)
                about["why"] = [FROM_DICTIONARY]
                if not {*content.get("missing", ())} <= {"", *entry.markers}:
                    about["open"].append("missing")
            elif entry.labels or entry.ends:
                about["why"].append("the data dictionary lacks some of its values")
        about["why"] += filter(None, [persons.get(name)])
        if draft.content is not None:
            columns.append({**about, **draft.content})
            for unit in draft.parts:
                part = name + "_" + unit
                while part in drafts:
                    part += "_"
                period = draft.content["granularity"]
                why = [f"{unit}s differ in their rows, and a {period} of {name} hides them"]
                made = {"name": part, "type": "part", "of": name, "unit": unit, "why": why}
                columns.append(made)
        elif name:
            made = _generate(profiles[name], draft.note)
            generated.append({**about, "place": places[name], **made})
    if not columns:
        # Without the names of the columns, which may be cells of a table without a header.
        reasons = dict.fromkeys(draft.note for draft in drafts.values())
        raise DataError(
            f"{label}: no column can be measured ({'; '.join(reasons)}). Write the schema by hand. "
            "If another table refers to these rows, share both as a set, or the other table alone, "
            "with the column that refers to them as person column."
        )
    content = {
        "version": 1,
        "open": ["publish"],
        "columns": columns,
        "ignore": [name for name in drafts if not name],
        "generated": generated,
        **({"delimiter": delimiter} if delimiter else {}),
        **({"encoding": encoding, "why": [f"text in {encoding}"]} if encoding else {}),
    }
    with contextlib.suppress(SchemaError):  # which would quote a cell
        schema = Schema.parse(content, label)
        marked = tuple(
            column.model_copy(
                update={
                    "open": (*column.open, *_list_topics(column)),
                    "why": (*column.why, *_judge_limits(column, profiles.get(column.name))),
                }
            )
            for column in schema.columns
        )
        return schema.changed(columns=marked)
    raise DataError(f"{label}: a column name or value does not fit a schema: write one by hand")


def explain_persons(name: str, profile: Profile) -> str:
    """Return why a column can identify persons with several rows; empty if it cannot.

    Its values repeat, are too many for a list, and are called or written as identifiers are.
    """
    values, words = profile.values, split_name(name)
    if not bins.codes_for(profile.filled) < len(values) < profile.filled:
        return ""
    called = words and re.fullmatch(f"id|ids|uid|uuid|guid|ssn|{PERSONS}", words[-1])
    things = words[:-1] if called else words
    if any(re.fullmatch(f"({THINGS})s?", word) for word in things):
        return ""
    how = ", and its name suggests persons" if called else _written_as_identifiers(profile, values)
    more = "more than " * profile.too_many
    return f"{more}{len(values):,} values in {profile.filled:,} rows{how}" if how else ""


def _written_as_identifiers(profile: Profile, values: Sequence[str]) -> str:
    """Return the pattern of repeated values that no amounts have; empty if there is none.

    Texts have one pattern with digits. Integers are spread evenly, as are their rows; they are
    1, 2, 3 ... or have equally many digits. Each has two rows on average.
    """
    if 2 * len(values) > profile.filled:
        return ""
    if not profile.numeric:
        weeks = all(re.match("[12][0-9]{3}-?W[0-9]{2}", value) for value in values)
        times = profile.dated or weeks or durations_spelled(values)
        pattern = "" if times or profile.truth else key_pattern(values)
        return f", written as {pattern}" if re.search(r"\{(\}|[^}]*[9fF])", pattern) else ""
    low, high = int(profile.low), int(profile.high)
    if not (profile.integers and low > 0) or (bins.YEARS[0] <= low and high <= bins.YEARS[1]):
        return ""
    counted = low == 1 and len(profile.points) > max(LEAST_COUNTED, 0.9 * high)
    shares = (profile.points - low) / (high - low)
    spread = all(
        np.abs(rows.cumsum() / rows.sum() - shares).max() < MOST_UNEVEN
        for rows in (profile.weights, np.ones(len(shares)))
    )
    alike = low >= 1_000 and len(str(low)) == len(str(high))
    return f", from {low} to {high}" if spread and (counted or alike) else ""


LEAST_COUNTED = 1_000
"""Number of integers 1, 2, 3 ... beyond which they can name persons."""
MOST_UNEVEN = 0.15
"""Largest distance of the shares of identifiers, or of their rows, from even ones."""

FROM_DICTIONARY = "from the data dictionary"


def _list_topics(column: ColumnBase) -> list[Topic]:
    """Return the questions about a column, without those that a dictionary answers."""
    return [t for t in column.topics if t == "limits" or FROM_DICTIONARY not in column.why]


EQUAL_LIMITS, WIDER_LIMITS = "limits occur in the rows", "limits wider than the rows"


def _judge_limits(column: Any, profile: Profile | None) -> tuple[str, ...]:
    """Return how the limits of a column were chosen."""
    if profile is None or "limits" not in column.topics or FROM_DICTIONARY in column.why:
        return ()
    found = {profile.low, profile.high, *profile.points.tolist()}  # limits may be inside, clipped
    if column.kind != "numbers":
        return (WIDER_LIMITS if column.by_years else EQUAL_LIMITS,)
    limits = {*column.span}
    if column.bin_ends:  # a span ends behind its last number
        last = float(column.ends(np.array([len(column.bin_ends) - 2]))[1][0])
        limits |= {last, math.nextafter(last, -math.inf)}
    return (EQUAL_LIMITS if found & limits else WIDER_LIMITS,)


def find_encoding(table: Any) -> str | None:
    """Return the likeliest encoding of a CSV file that is no UTF-8; None for all other tables."""
    if not isinstance(table, str | Path) or not str(table).lower().endswith(TEXTS):
        return None
    with contextlib.suppress(OSError, EOFError, zlib.error):
        with Path(table).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with (gzip.open if packed else open)(table, "rb") as text:
            start: bytes = text.read(1 << 24)
        with contextlib.suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder("utf-8")().decode(start)
            return None
        from charset_normalizer import from_bytes  # few tables need it

        likely = ("cp1252", "cp1250", "cp1251", "utf_16", "latin_1", "shift_jis", "gb18030")
        best = from_bytes(start[: 1 << 20], cp_isolation=[*likely]).best()
        if best is not None:
            western = start.decode("cp1252", "replace") == start.decode(best.encoding, "replace")
            return "cp1252" if western else best.encoding
    return None


TEXTS = (".csv", ".csv.gz", ".txt", *TAB_SEPARATED)


def _read_profiles(table: Any, dialect: Dialect) -> dict[str, Profile]:
    """Return the profiles of all columns, with numbers in the form in which they are written."""
    with open_source(table, dialect) as source:
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
        with open_source(table, dialect) as source:
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
