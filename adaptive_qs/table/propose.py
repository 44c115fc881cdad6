"""Drafts of schemas, read off the data for review by the owner, and advice about schemas."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_qs.errors import DataError, InputError, SchemaError
from adaptive_qs.jsonfile import as_object, read_json
from adaptive_qs.pages.words import join_first
from adaptive_qs.table.cells import redacted
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import ColumnBase, Draft, Topic
from adaptive_qs.table.files import TAB_SEPARATED
from adaptive_qs.table.generated import key_pattern
from adaptive_qs.table.profile import INFINITE, NUMERIC_MARKERS, Profile
from adaptive_qs.table.read import Source, check_alike, open_source
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.spellings import in_natural_order
from adaptive_qs.table.text import NUMBER, Dialect, read_integer, read_number


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
    if len(values) == 1 and not profile.markers and profile.rows > 1:
        return Draft(None, CONSTANT)
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
        if profile.exponents and profile.integers:
            notes.append("whole numbers, although some are written with an exponent")
    if profile.sentinel:
        notes.append("a number far from all others, or below 0, probably means a missing value")
    form = profile.spelling.fields
    if form:
        said = " and ".join(f'"{key}" "{sign}"' for key, sign in form.items())
        notes.append(f"text that is read as numbers with {said}: are they?")
    missing = {"missing": profile.markers} if profile.markers else {}
    return Draft({**draft.content, **form, **missing}, "; ".join(notes), draft.open)


CONSTANT = "the same value in every row"


def _generate(profile: Profile, reason: str) -> dict[str, Any]:
    """Return a column that is not measured, as keys of a schema: a key, its value, or empty."""
    if reason == CONSTANT:
        (value,) = profile.values
        known: Any = value == "true" if profile.truth else value
        if profile.numeric:
            known = int(profile.points[0]) if profile.integers else float(profile.points[0])
        as_text = profile.from_text and str(known) != value
        return {"type": "filled", "values": [value if as_text else known]}
    if reason.startswith("an identifier"):
        pattern = "{}" if profile.numeric else key_pattern(profile.values)
        if pattern:
            return {"type": "key", "pattern": pattern}
    return {"type": "filled"}


def propose(table: Any, dictionary: Mapping[str, Entry] | None = None) -> Schema:
    """Return a schema that fits a table, for `schema init`.

    It reveals values and ranges of the data: it has open questions until its owner has answered
    them. Columns that look like identifiers or free text are not measured; they come back with new
    keys or with empty cells. A public ``dictionary`` goes before what the rows show.

    Raises:
        DataError: If the table cannot be read, or has no header line, no rows, or no column that a
            schema can describe.
    """
    encoding = find_encoding(table)
    with open_source(table, Dialect(None, encoding)) as source:
        label, delimiter = source.label, source.other_delimiter
    profiles = _read_profiles(table, Dialect(delimiter, encoding))
    if not any(profile.rows for profile in profiles.values()):
        raise DataError(f"{label} has no rows. It needs at least one.")
    drafts = {name: draft_column(name, profile) for name, profile in profiles.items()}
    persons = [n for n, profile in profiles.items() if profile.identifies_persons(n)]
    columns, generated = [], []
    for place, (name, draft) in enumerate(drafts.items()):
        about: dict[str, Any] = {"name": name, "why": [draft.note] if draft.note else []}
        about["open"] = [*draft.open, *(["person"] if name in persons else [])]
        if (entry := (dictionary or {}).get(name)) and draft.content is not None:
            if content := entry.describe(profiles[name], draft.content):
                drafts[name] = draft = Draft(content)
                about["why"] = [FROM_DICTIONARY]
            elif entry.labels or entry.ends:
                about["why"].append("the data dictionary lacks some of its values")
        if draft.content is not None:
            columns.append({**about, **draft.content})
        elif name:
            made = _generate(profiles[name], draft.note)
            generated.append({**about, "place": place, **made})
    if not columns:
        # Without the names of the columns, which may be cells of a table without a header.
        reasons = dict.fromkeys(draft.note for draft in drafts.values())
        raise DataError(
            f"{label}: no column can be measured ({'; '.join(reasons)}). Write the schema by hand."
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
                    "why": (*column.why, *_judge_limits(column, profiles[column.name])),
                }
            )
            for column in schema.columns
        )
        return schema.changed(columns=marked)
    raise DataError(f"{label}: a column name or value does not fit a schema: write one by hand")


FROM_DICTIONARY = "from the data dictionary"


def _list_topics(column: ColumnBase) -> list[Topic]:
    """Return the questions about a column, without those that a dictionary answers."""
    if FROM_DICTIONARY not in column.why:
        return [*column.topics]
    return [topic for topic in column.topics if topic == "limits"]


EQUAL_LIMITS, WIDER_LIMITS = "limits that values of the rows have", "limits wider than the rows"


def _judge_limits(column: Any, profile: Profile) -> tuple[str, ...]:
    """Return how the limits of a column were chosen."""
    if "limits" not in column.topics or FROM_DICTIONARY in column.why:
        return ()
    equal = column.kind != "numbers" or {profile.low, profile.high} & set(column.span)
    return (EQUAL_LIMITS if equal else WIDER_LIMITS,)


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
        if best is None:
            return None
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


# Data dictionaries: the codes and ranges of columns as their publisher describes them.

_NO_VALUE = re.compile(r"n/?a\b|not (applicable|available)|missing|no answer|refused|blank", re.I)


@dataclass
class Entry:
    """What a dictionary says of a column: labels of codes, and the ends of a range of numbers."""

    description: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)

    def note(self, code: str, label: Any) -> None:
        """Add a code with its label, or an end of the range ("min" or "max")."""
        if code in ("min", "max") and (number := read_number(str(label))) is not None:
            self.ends[code] = number
        elif code:
            self.labels[code] = str(label)

    @property
    def markers(self) -> list[str]:
        """Codes that mean that there is no value."""
        return [
            c for c, said in self.labels.items() if c in NUMERIC_MARKERS or _NO_VALUE.match(said)
        ]

    def describe(self, profile: Profile, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a proposed column as the dictionary has it; None if it does not fit the cells."""
        about = {"description": self.description} if self.description else {}
        missing = {"missing": self.markers} if self.markers else {}
        codes = [code for code in self.labels if code not in self.markers]
        cells = profile.texts - {*self.markers, *profile.markers}
        if {*self.ends} == {"min", "max"}:
            numbers = [*self.ends.values(), *(n for n in map(read_number, codes) if n is not None)]
            ends = min(numbers), max(numbers)
            if "ordered" in content or not ends[0] <= profile.low <= profile.high <= ends[1]:
                return None
            return {**content, **about, **missing, **_with_ends(content, *ends)}
        if not codes or not cells <= {*codes}:
            return None
        order = in_natural_order([self.labels[code] for code in codes])
        if order is not None and len({*self.labels.values()}) == len(self.labels):
            codes.sort(key=lambda code: order.index(self.labels[code]))
        whole = all(str(read_integer(code)) == code for code in codes)
        values = [int(code) if whole else code for code in codes]
        ordered = {"ordered": True} if order is not None else {}
        return {"type": "categorical", "values": values, **ordered, **about, **missing}


def _with_ends(content: Mapping[str, Any], low: float, high: float) -> dict[str, Any]:
    """Return the keys of a schema for a range; the proposed bins stay, with others around them."""
    if "edges" in content:
        return {"edges": sorted({low, *content["edges"], high})}
    first, last = int(low), int(high)
    if "bin_starts" not in content and last - first < 2 * (content["max"] - content["min"] + 5):
        return {"min": first, "max": last}
    starts = content.get("bin_starts") or range(content["min"], content["max"] + 1)
    inner = {start for start in (*starts, content["max"] + 1) if first < start <= last}
    return {"min": first, "max": last, "bin_starts": sorted({first, *inner})}


def read_dictionary(path: Path) -> dict[str, Entry]:
    """Return the entries of a data dictionary, by column.

    JSON has for each column a "description" and "values" (labels by codes, "min" and "max"). CSV
    and Excel have a line for each code, with columns named name, code and label.

    Raises:
        InputError: If the file cannot be read or is no dictionary.
    """
    found: dict[str, Entry] = {}
    if path.suffix.lower() == ".json":
        for name, said in as_object(read_json(path, InputError)).items():
            entry = found.setdefault(name, Entry(str(as_object(said).get("description", ""))))
            for code, label in as_object(as_object(said).get("values")).items():
                entry.note(code.strip(), label)
        return found
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # slow to import

    options: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    try:
        if path.suffix.lower() in (".csv", ".tsv", ".txt"):
            table = pd.read_csv(path, sep=None, engine="python", **options)
        else:
            table = pd.read_excel(path, **options)
        table.columns = [str(name).strip().lower() for name in table.columns]
        for name, code, label in zip(table["name"], table["code"], table["label"]):
            found.setdefault(name.strip(), Entry()).note(code.strip(), label.strip())
    except (OSError, ValueError, KeyError, ImportError):
        raise InputError(
            f"{path}: is no data dictionary. Give JSON, or CSV or Excel with columns named name, "
            "code and label."
        ) from None
    return found
