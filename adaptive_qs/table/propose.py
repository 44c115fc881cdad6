"""Drafts of schemas, read off the data for review by the owner: as private as the data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.table import bins, cells
from adaptive_qs.table.cells import MixedCells, redacted
from adaptive_qs.table.columns import COLUMN_TYPES
from adaptive_qs.table.columns.base import Draft
from adaptive_qs.table.read import Cells, Source, check_alike, open_source
from adaptive_qs.table.schema import AS_PROPOSED, TAKEN_FROM_DATA, Schema
from adaptive_qs.table.spellings import (
    Span,
    count_coincidences,
    explain_unsupported,
    formats_like,
    is_uniform,
    number_spellings,
    read_moments,
    split_name,
)
from adaptive_qs.table.text import NUMBER, Spelling

# What the cells of one column look like, gathered chunk by chunk.

Floats = NDArray[np.float64]

MARKERS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
INFINITE = tuple(
    f"{sign}{word}"
    for word in ("inf", "Inf", "INF", "infinity", "Infinity", "INFINITY")
    for sign in ("", "-", "+")
)
NUMERIC_MARKERS = (*MARKERS, "N", *INFINITE)
"""Cells that look like missing markers. "N" and infinities are some only among numbers."""
MAX_WORDS = 3
"""The largest number of words among numbers or moments that can be missing markers."""

_MAX_DISTINCT = 100_000


@dataclass
class Profile:
    """Properties that all cells seen so far share, markers aside."""

    spelling: Spelling = field(default_factory=Spelling)
    """Form in which numbers in text are read. Only in the plain form, cells can be dates."""
    rows: int = 0
    nulls: bool = False
    unsupported: str = ""
    """Why no column type takes cells of this Arrow type; empty if one does."""
    texts: set[str] = field(default_factory=set)
    """Distinct cells as text, markers included, at most about 100,000."""
    marked: set[str] = field(default_factory=set)
    """Distinct cells that look like missing markers."""
    words: set[str] = field(default_factory=set)
    """Cells without a digit, markers aside, at most one more than `MAX_WORDS`."""
    too_many: bool = False
    integers: bool = True
    numbers: bool = True
    """Whether all cells except words are numbers."""
    spans: dict[str | None, Span] | None = None
    """Range of all cells except words, by format that fits them; None is ISO 8601."""
    low: float = np.inf
    high: float = -np.inf
    decimals: int = 0
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Distinct numbers, ascending; beyond about 100,000 neighbours are merged."""
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Number of rows with each of the points."""
    filled: int = 0
    """Number of rows whose cell is no marker."""

    def update(self, values: Cells) -> None:
        """Add some cells."""
        for part in cells.split_chunks(values):
            self._update_chunk(part)

    def _update_chunk(self, values: pa.Array | MixedCells) -> None:
        self.rows += len(values)
        if (kind := getattr(values, "type", None)) is not None:
            self.unsupported = self.unsupported or explain_unsupported(kind)
        if self.unsupported:
            return
        mixed = MixedCells.of(values)
        self.nulls |= bool((mixed.indices < 0).any())
        weights = np.bincount(mixed.indices + 1, minlength=1 + sum(map(len, mixed.parts)))[1:]
        ends = np.cumsum([len(part) for part in mixed.parts])[:-1]
        for part, rows in zip(mixed.parts, np.split(weights, ends)):
            self._update_distinct(part, rows)

    def _update_distinct(self, values: pa.Array, weights: NDArray[np.int64]) -> None:
        distinct = cells.normalise(values)
        if distinct is None:
            self.unsupported = self.unsupported or explain_unsupported(values.type)
            return
        self.nulls |= distinct.null_count > 0
        texts = cells.as_text(distinct)
        if len(self.texts) < _MAX_DISTINCT:
            self.texts.update(text for text in texts.to_pylist() if text is not None)
        self.too_many |= len(self.texts) >= _MAX_DISTINCT
        marker = cells.is_marker(distinct, NUMERIC_MARKERS)
        self.marked.update(texts.filter(pa.array(marker)).to_pylist())
        filled = ~marker & distinct.is_valid().to_numpy(zero_copy_only=False)
        self.filled += int(weights[filled].sum())
        # No number, date or time, or the error of a spreadsheet, such as "#DIV/0!".
        word = pc.match_substring_regex(texts, r"^(#.*|[^0-9]*)$").fill_null(False)
        words = texts.filter(pc.and_(word, pa.array(filled)))
        self.words.update(words[: MAX_WORDS + 1 - len(self.words)].to_pylist())
        kept = filled & ~word.to_numpy(zero_copy_only=False)
        if kept.any():
            distinct = distinct.filter(pa.array(kept))
            self._update_numbers(cells.numbers_read(distinct, self.spelling), weights[kept])
            if self.spelling.plain:
                self._update_moments(distinct)

    def _update_numbers(self, distinct: pa.Array, weights: NDArray[np.int64]) -> None:
        if self.integers:
            self.integers = bool(cells.as_integers(distinct)[1].all())
        if not self.numbers:
            return
        numbers, readable = cells.as_numbers(distinct)
        self.numbers = bool(readable.all())
        if not self.numbers:
            return
        self.low = min(self.low, float(numbers.min()))
        self.high = max(self.high, float(numbers.max()))
        self._merge(numbers, weights)
        digits = r"^[^.eE]*\.?(?P<digits>[0-9]*)(?:[eE](?P<exponent>[+-]?[0-9]{1,9}))?$"
        parts = pc.extract_regex(cells.as_text(distinct), digits)
        lengths = pc.utf8_length(pc.struct_field(parts, "digits"))
        exponents = pc.struct_field(parts, "exponent")
        shifts = pc.if_else(pc.equal(exponents, ""), "0", pc.utf8_ltrim(exponents, "+"))
        decimals = pc.max(pc.subtract(lengths, shifts.cast(pa.int64()))).as_py()
        self.decimals = max(self.decimals, decimals or 0)

    def _merge(self, numbers: NDArray[np.float64], weights: NDArray[np.int64]) -> None:
        points = np.concatenate([self.points, numbers + 0.0])  # -0.0 becomes 0.0
        self.points, places = np.unique(points, return_inverse=True)
        counts = np.concatenate([self.weights, weights])
        self.weights = np.bincount(places, counts).astype(np.float64)
        while len(self.points) > _MAX_DISTINCT:  # drop every other light point, keep its rows
            light = np.flatnonzero(self.weights <= self.weights.sum() / 1_000)
            low, high = light[: len(light) // 2 * 2].reshape(-1, 2).T
            self.weights[high] += self.weights[low]
            self.points = np.delete(self.points, low)
            self.weights = np.delete(self.weights, low)

    def _update_moments(self, distinct: pa.Array) -> None:
        if self.spans is None:
            first = cells.as_text(distinct)[0].as_py()
            self.spans = {way: Span() for way in (None, *formats_like(first))}
        for way, span in list(self.spans.items()):
            seconds = read_moments(distinct, way)
            if seconds is None:
                del self.spans[way]
            else:
                span.take(seconds)

    @property
    def numeric(self) -> bool:
        """Whether the cells are numbers, with few words as missing markers."""
        numbers = self.numbers and self.points.size > 0 and not self.zero_filled
        return numbers and self._outweighs_words(self.points.size)

    @property
    def zero_filled(self) -> bool:
        """Whether the cells are digits of one length, some with leading zeros, as postal codes."""
        if not (self.numbers and self.integers and self.low >= 0):
            return False
        digits = self.texts - self.marked - self.words
        filled = any(text.startswith("0") and text != "0" for text in digits)
        return filled and all(map(str.isdecimal, digits)) and len({*map(len, digits)}) == 1

    @property
    def dated(self) -> bool:
        """Whether the cells are moments in some format, with words as in `numeric`."""
        return bool(self.spans) and self._outweighs_words(len(self.texts) - len(self.words))

    def _outweighs_words(self, others: int) -> bool:
        return not self.words or (
            len(self.words) <= MAX_WORDS and others > bins.codes_for(self.filled)
        )

    @property
    def markers(self) -> tuple[str, ...]:
        """Missing markers among the cells; "" for nulls if there is no other."""
        if not (self.numeric or self.dated):
            found = tuple(marker for marker in MARKERS if marker in self.marked)
        else:
            usual = [marker for marker in NUMERIC_MARKERS if marker in self.marked]
            plain = [marker for marker in usual if marker not in INFINITE]
            infinite = [marker for marker in usual if marker in INFINITE]
            found = (*plain, *sorted(self.words), *infinite)
        return found or (("",) if self.nulls else ())

    @property
    def values(self) -> list[str]:
        """Distinct cells that are no markers, sorted."""
        return sorted(self.texts - set(self.markers))

    @property
    def spellings(self) -> list[Spelling]:
        """The forms in which the cells are numbers; none for the plain form."""
        if self.numbers or len(self.words) > MAX_WORDS:
            return []
        return number_spellings(sorted(self.texts - self.marked - self.words))

    @property
    def truth(self) -> bool:
        """Whether the cells are true and false."""
        values = self.values
        return bool(values) and {value.lower() for value in values} <= {"true", "false"}

    def trimmed(self) -> tuple[Floats, Floats, dict[str, Any], str]:
        """Return points and weights without absurd ones, and keys and a note about that."""
        points, weights = self.points.copy(), self.weights
        points[0] = self.low  # merging may have moved the first
        kept = bins.without_absurd(points, weights)
        if kept.stop - kept.start == len(points):
            return points, weights, {}, ""
        note = (
            'a few values lie far from all others: "outside": "clip" moves them to the end of '
            "the bins"
        )
        return points[kept], weights[kept], {"outside": "clip"}, note

    def draft_integers(self, points: Floats, weights: Floats) -> tuple[dict[str, Any], str]:
        """Return the range and bins of integers as keys of a schema, and a note."""
        low, high = int(points[0]), int(points[-1])
        most, codes = bins.bins_for(self.filled), bins.codes_for(self.filled)
        if high - low < codes:
            return {"min": low, "max": high}, ""
        note = ""
        starts = bins.year_starts(points, weights) or bins.round_starts(points, weights, most)
        if starts is None:
            edges = bins.propose_edges(points, weights, bins.Grid(0), most, codes)
            starts = [*(int(edge) for edge in edges[:-1]), int(np.floor(edges[-1])) + 1]
            note = self.note_span(points)
        content: dict[str, Any] = {"min": starts[0], "max": starts[-1] - 1}
        if len(starts) - 1 < starts[-1] - starts[0]:
            content["bin_starts"] = starts[:-1]
            content |= bins.private_heaps(points, weights, starts)
        return content, note

    def draft_numbers(self, points: Floats, weights: Floats) -> dict[str, Any] | None:
        """Return the bins of numbers as keys of a schema; None if they are too large to bin."""
        low, high = float(points[0]), float(points[-1])
        places, largest = self.decimals, max(abs(low), abs(high))
        exact = places <= 9 and largest * 10**places < 10**15  # which a double tells apart
        grid = bins.Grid(places if exact else None)
        if exact and not self.too_many:  # else some of the numbers are merged with others
            grid = bins.find_grid(points, places)
        most = bins.bins_for(self.filled), bins.codes_for(self.filled)
        edges = bins.propose_edges(points, weights, grid, *most)
        ascending = len(edges) > 1 and all(a < b for a, b in pairwise(edges))
        if not (ascending and -np.inf < edges[0] <= low and high <= edges[-1] < np.inf):
            return None
        content: dict[str, Any] = {"edges": edges}
        if grid.decimals is not None:
            content["decimals"] = grid.decimals
            content |= bins.private_heaps(points, weights, edges)
        if grid.multiple > 1:
            content["step"] = grid.step
        return content

    @staticmethod
    def note_span(points: NDArray[np.float64]) -> str:
        """Return a note if most numbers differ by many orders of magnitude."""
        sizes = np.abs(points[points != 0])
        if len(sizes) < 2:
            return ""
        first, last = np.log10(np.quantile(sizes, (0.05, 0.95)))
        if last - first < 6:
            return ""
        return "the values span many orders of magnitude. Is this a mistake or a mix of units?"

    def explain_identifier(self, name: str) -> str:
        """Return why integers are identifiers; empty if they are not.

        Measurements coincide by chance in as many pairs of rows as their density predicts;
        identifiers do not. If they lie too thinly to decide, integers of a small table are
        measurements unless their name says otherwise: identifiers are all different and evenly
        spread.
        """
        points, rows = self.points, self.filled
        equal = rows - len(points)
        if self.too_many and self.weights.max() > 1:  # merged: how many coincide is not known
            equal = rows
        # With 7 expected, none at all has a chance below 1 in 1,000.
        if equal <= 0.01 * rows and count_coincidences(points) >= 7 + 3 * equal:
            return f"an identifier: {'every' if not equal else 'nearly every'} integer is different"
        if equal:
            return ""
        records = (
            "id|ids|uid|uuid|guid|key|pk|idx|index|nr|no|number|serial|seqn|ssn|row|rownames"
            "|record|unnamed"
        )
        if rows >= 10 and any(re.fullmatch(records, word) for word in split_name(name)):
            return "an identifier by its name, and every integer is different"
        if rows >= 100 and is_uniform(points):
            return (
                "an identifier: every integer is different; declare it by hand if it is a measure"
            )
        return ""

    def identifies_persons(self, name: str) -> bool:
        """Return whether a column can identify persons, by its name and repeated values."""
        persons = (
            "id|uid|uuid|guid|ssn|person|patient|customer|client|member|user|subject|student"
            "|pupil|employee|household"
        )
        words = split_name(name)
        if not (words and re.fullmatch(persons, words[-1])):
            return False
        return bins.codes_for(self.filled) < len(self.values) < self.filled


# The draft of a schema, for review by the owner.


def draft_column(name: str, profile: Profile) -> Draft:
    """Return the column of this name, of the first type that takes its cells."""
    if not name:
        return Draft(None, "without a name")
    if profile.unsupported:
        return Draft(None, profile.unsupported)
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

    It reveals values and ranges of the data, and its description says so. The description of every
    column says that it is as proposed, until the owner removes the sentence. Columns that look like
    identifiers or free text are ignored and named in the description.

    Raises:
        DataError: If the table cannot be read, has no header line, no rows, or no column that a
            schema
            can describe.
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
