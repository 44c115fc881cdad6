"""Profiles of the cells of a column, for drafts of schemas: as private as the data."""

import datetime as dt
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.table import bins, cells, spellings
from adaptive_qs.table.cells import MixedCells
from adaptive_qs.table.read import Cells
from adaptive_qs.table.spellings import Span, explain_unsupported, read_moments, split_name
from adaptive_qs.table.text import Spelling, read_number, to_seconds

# What the cells of one column look like, gathered chunk by chunk.

Floats = NDArray[np.float64]

MARKERS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
INFINITE = tuple(
    f"{sign}{word}"
    for word in ("inf", "Inf", "INF", "infinity", "Infinity", "INFINITY")
    for sign in ("", "-", "+")
)
TEXT_MARKERS = ("k.A.", "k. A.", "keine Angabe", "n.a.", "N.A.", "#N/A", "-", "--", ".", "missing")
"""Words that look like missing markers among several other words."""
NUMBERS_FOR_NOTHING = ("-1", "-9", "-99", "99", "999", "9999")
"""Numbers that look like missing markers among words."""
NUMERIC_MARKERS = (*MARKERS, "N", "0000-00-00", "0000-00-00 00:00:00", "00.00.0000", *INFINITE)
"""Cells that look like missing markers; others than `MARKERS` only among numbers or dates."""
PERSONS = (
    "person|patient|customer|client|member|user|subject|student|pupil|employee|household|guest"
)
THINGS = (
    "area|branch|category|city|class|code|country|county|department|district|item|order|plz|post"
    "|postal|postcode|product|region|school|session|shop|state|station|store|type|zip|zone"
)
"""Words in names of columns that identify persons, and of those that do not."""
MAX_WORDS = 3
"""The largest number of words among numbers or moments that can be missing markers."""

MOST_DECIMALS = 9
"""The most decimals that a column has; of longer numbers, the rest is rounding of doubles."""
LEAST_AROUND = 20
"""Least number of distinct numbers from which on a lone 0 probably means a missing value."""
DAY = 86_400
NO_DAYS = {
    to_seconds(dt.date(*day)) // DAY
    for day in ((1, 1, 1), (1753, 1, 1), (1899, 12, 30), (1900, 1, 1), (2099, 12, 31),
                (2999, 12, 31), (9999, 1, 1), (9999, 12, 31))
}  # fmt: skip
"""Days since 1970 that programs write for "never" or "not known"."""
_MAX_DISTINCT, _LIGHT = 100_000, 0.001


@dataclass
class Profile:
    """Properties that all cells seen so far share, markers aside."""

    spelling: Spelling = field(default_factory=Spelling)
    """Form in which numbers in text are read. Only in the plain form, cells can be dates."""
    rows: int = 0
    nulls: bool = False
    from_text: bool = False
    """Whether a cell is text, so that the spelling of numbers tells something."""
    from_floats: bool = False
    """Whether cells are floats, which a data frame with the same types has as well."""
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
    lengths: set[int] = field(default_factory=set)
    """Numbers of decimals with which numbers are written, exponents applied."""
    exponents: bool = False
    """Whether a number is written with an exponent."""
    sentinel: tuple[str, ...] = ()
    """A number that probably means that there is no value, as it is written."""
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Distinct numbers, ascending; beyond about 100,000 neighbours are merged."""
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Number of rows with each of the points."""
    persons: bool = False
    """Whether the values can identify persons, so that none of them is singled out."""
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
        self.from_text |= pa.types.is_string(distinct.type)
        self.from_floats |= pa.types.is_floating(values.type)
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
                self._update_moments(distinct, weights[kept])

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
        found = pc.subtract(lengths, shifts.cast(pa.int64()))
        self.lengths |= {max(0, each) for each in pc.unique(found).to_pylist() if each is not None}
        self.exponents |= bool(pc.any(pc.not_equal(exponents, "")).as_py())

    def _merge(self, numbers: NDArray[np.float64], weights: NDArray[np.int64]) -> None:
        points = np.concatenate([self.points, numbers + 0.0])  # -0.0 becomes 0.0
        self.points, places = np.unique(points, return_inverse=True)
        counts = np.concatenate([self.weights, weights])
        self.weights = np.bincount(places, counts).astype(np.float64)
        while len(self.points) > _MAX_DISTINCT:  # drop every other light point, keep its rows
            light = np.flatnonzero(self.weights <= _LIGHT * self.weights.sum())
            low, high = light[: len(light) // 2 * 2].reshape(-1, 2).T
            self.weights[high] += self.weights[low]
            self.points = np.delete(self.points, low)
            self.weights = np.delete(self.weights, low)

    def _update_moments(self, distinct: pa.Array, weights: NDArray[np.int64]) -> None:
        if self.spans is None:
            first = cells.as_text(distinct)[0].as_py()
            self.spans = {way: Span() for way in (None, *spellings.formats_like(first))}
        for way, span in list(self.spans.items()):
            seconds = read_moments(distinct, way)
            if seconds is None:
                del self.spans[way]
            else:
                span.take(seconds)
                timed = (way or "").startswith(("%H", "%I"))  # times lie on 1900-01-01
                real = timed | ~np.isin(seconds[0] // DAY, [*NO_DAYS])
                span.count(seconds[:, real], weights[real])

    @property
    def merged(self) -> float:
        """The most rows that points have which stand for several; 0 if none does."""
        return 2 * _LIGHT * self.filled if self.too_many else 0.0

    @property
    def decimals(self) -> int:
        """The most decimals of a number."""
        return max(self.lengths, default=0)

    @property
    def written(self) -> dict[str, Any]:
        """Keys of a column of the schema that say how its numbers are written."""
        if self.exponents and self.integers and self.from_text:
            return {"exponents": True}
        if self.integers and self.from_floats:
            return {"fixed_decimals": 1}
        least = min(self.lengths, default=0)
        texts = self.texts - self.marked
        parts = ((self.spelling.read(text) or text).partition(".") for text in texts)
        padded = self.from_text and {len(p[2]) for p in parts if p[2].endswith("0")} == {least}
        if not 0 < least <= 9 or self.exponents or not padded:
            return {}
        return {"fixed_decimals": least}

    def set_sentinel_aside(self) -> None:
        """Remove a likely missing marker from the dates, or from numbers without a missing cell.

        It is a single negative number among others, 9, 99, 999 ... far above all others, 0 far from
        many others, or a date such as 1900-01-01 or 9999-12-31 five years from all others.
        """
        if self.too_many or not (found := self._find_odd_moments() or self._find_odd_number()):
            return
        self.sentinel = tuple(sorted(found))
        read = {text: self.spelling.read(text) or "" for text in self.texts - self.words}
        odd = np.isin(self.points, [read_number(read[text]) or 0.0 for text in found])
        self.filled -= int(self.weights[odd].sum())
        self.points, self.weights = self.points[~odd], self.weights[~odd]
        if self.points.size:
            self.low, self.high = float(self.points[0]), float(self.points[-1])
        if not self.exponents:
            others = read.keys() - found - self.marked
            self.lengths = {len(read[text].partition(".")[2]) for text in others}

    def set_dust_aside(self) -> None:
        """Round numbers such as 10.357019999999999 to the decimals that all of them have."""
        if not self.numeric or self.decimals <= MOST_DECIMALS:
            return
        for places in range(MOST_DECIMALS + 1):
            points = cells.without_dust(self.points, places)
            if (points == np.round(points, places)).all():
                self.lengths, self.low, self.high = {places}, float(points[0]), float(points[-1])
                self.points, owner = np.unique(points, return_inverse=True)
                self.weights = np.bincount(owner, self.weights).astype(np.float64)
                return

    def _find_odd_number(self) -> set[str]:
        """Return a number that probably means a missing value, as it is written; or none."""
        points = self.points
        if not self.numeric or self.markers or len(points) < 4:
            return set()
        nines = [10.0**k - 1 for k in range(1, 5)]
        many = len(points) >= LEAST_AROUND and 2 * self.weights[points == 0].sum() < self.filled
        marker = None
        if points[0] in {-1.0, *(-n for n in nines)} and points[1] > 0 and points[2] > 0:
            marker = points[0]
        for end, inner in ((0, 1), (-1, -2)):
            likely = (end and points[end] in nines[1:]) or (many and points[end] == 0)
            if likely and abs(points[end] - points[inner]) > (points[-1] - points[0] + 1) / 2:
                marker = points[end]
        if marker is None:
            return set()
        return {
            text for text in self.texts if read_number(self.spelling.read(text) or "") == marker
        }

    def _find_odd_moments(self) -> set[str]:
        """Return dates that probably mean a missing value, as written, and narrow the spans."""
        texts, found = sorted(self.texts - self.marked - self.words), set[str]()
        for way, span in (self.spans or {}).items():
            if NO_DAYS.isdisjoint(second // DAY for second in span.limits):
                continue
            if (moments := read_moments(pa.array(texts), way)) is None:
                continue
            odd, rest = np.isin(moments[0] // DAY, [*NO_DAYS]), Span()
            if odd.all():
                continue
            rest.take(moments[:, ~odd])
            gaps = np.abs(np.subtract.outer(moments[0][odd], rest.limits))
            if gaps.min() > 5 * 365 * DAY:
                span.days, span.ends = rest.days, rest.ends
                found |= {text for text, is_odd in zip(texts, odd) if is_odd}
        return found

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
            local = self.texts.intersection(TEXT_MARKERS)
            if len(self.texts) - len(found) - len(local) > 1:
                found = (*found, *sorted(local))
            numbers = self.texts.intersection(NUMBERS_FOR_NOTHING)
            others = self.texts.difference(numbers, found)
            if len(numbers) == 1 < len(others) and not any(map(str.isdecimal, others)):
                found = (*found, *numbers)
        else:
            usual = [marker for marker in NUMERIC_MARKERS if marker in self.marked]
            plain = [marker for marker in usual if marker not in INFINITE]
            infinite = [marker for marker in usual if marker in INFINITE]
            found = (*plain, *sorted(self.words), *infinite, *self.sentinel)
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
        texts = sorted(self.texts - self.marked - self.words)
        return spellings.number_spellings(texts, len(texts) > bins.codes_for(self.filled))

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

    def draft_integers(self, name: str, exact: int) -> tuple[dict[str, Any] | None, str]:
        """Return the range and bins of integers below ``exact``, or why they are identifiers."""
        points, weights, clip, note = self.trimmed()
        low, high = int(points[0]), int(points[-1])
        if max(abs(low), abs(high)) >= exact:
            return None, "an identifier: integers of more than 15 digits"
        years = low >= bins.YEARS[0] and high <= bins.YEARS[1]
        if not years and (reason := self.explain_identifier(name)):
            return None, reason
        most = bins.bins_for(self.filled)
        codes = 2 * most  # fewer bins would hardly save codes
        content: dict[str, Any] = {"min": low, "max": high, **clip}
        if high - low < codes:
            return content | self.written, note
        step = bins.common_step(points, weights)
        starts = None
        if step == 1:
            starts = bins.year_starts(points, weights) or bins.round_starts(points, weights, most)
        else:
            points, places = np.unique(np.rint(points / step) * step, return_inverse=True)
            weights = np.bincount(places, weights).astype(np.float64)
        if starts is None:
            edges = bins.propose_edges(points, weights, bins.Grid(0, step), most, codes)
            starts = [*(int(edge) for edge in edges[:-1]), int(np.floor(edges[-1])) + 1]
            note = note or self.note_span(points)
        if self.persons:
            narrow = [b - a <= step for a, b in pairwise(starts)]
            narrow[0], narrow[1] = False, narrow[0] or narrow[1]  # these join the bin before
            starts = [a for a, one in zip(starts, [*narrow, False]) if not one]
        else:
            found = bins.with_frequent(points, weights, starts, bins.Grid(0, step), self.merged)
            starts = [int(edge) for edge in found]
        content |= {"min": starts[0], "max": starts[-1] - 1}
        if len(starts) - 1 < starts[-1] - starts[0]:
            content["bin_starts"] = starts[:-1]
            content |= bins.private_heaps(points, weights, starts, bins.Grid(0, step))
            content |= {"step": step} if step > 1 else {}
        return content | self.written, note

    def draft_numbers(self) -> tuple[dict[str, Any] | None, str]:
        """Return the bins of numbers, or that they are too large to bin."""
        points, weights, clip, note = self.trimmed()
        low, high = float(points[0]), float(points[-1])
        places, largest = self.decimals, max(abs(low), abs(high))
        # A double tells these apart.
        exact = places <= MOST_DECIMALS and largest * 10**places < 10**15
        grid = bins.Grid(places if exact else None)
        if exact and not self.too_many:  # else some of the numbers are merged with others
            grid = bins.find_grid(points, places)
        most = bins.bins_for(self.filled)
        edges = bins.propose_edges(points, weights, grid, most, 2 * most)
        if not self.persons:
            edges = tuple(bins.with_frequent(points, weights, edges, grid, self.merged))
        ascending = len(edges) > 1 and all(a < b for a, b in pairwise(edges))
        if not (ascending and -np.inf < edges[0] <= low and high <= edges[-1] < np.inf):
            return None, "numbers too large to bin: write the column by hand"
        content: dict[str, Any] = {"edges": edges, **clip}
        if grid.decimals is not None:
            content["decimals"] = grid.decimals
            content |= bins.private_heaps(points, weights, edges, grid)
        if grid.multiple > 1:
            content["step"] = grid.step
        content |= self.written if grid.decimals is not None else {}
        return content, note or self.note_span(points)

    @staticmethod
    def note_span(points: NDArray[np.float64]) -> str:
        """Return a note if most numbers differ by many orders of magnitude."""
        sizes = np.abs(points[points != 0])
        if len(sizes) < 2:
            return ""
        first, last = np.log10(np.quantile(sizes, (0.05, 0.95)))
        wide = "the values span many orders of magnitude. Is this a mistake or a mix of units?"
        return wide if last - first >= 6 else ""

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
        if equal <= 0.01 * rows and spellings.count_coincidences(points) >= 7 + 3 * equal:
            return f"an identifier: {'every' if not equal else 'nearly every'} integer is different"
        if equal:
            return ""
        records = (
            "id|ids|uid|uuid|guid|key|pk|idx|index|nr|no|number|serial|seqn|ssn|row|rownames"
            "|record|unnamed"
        )
        if rows >= 10 and any(re.fullmatch(records, word) for word in split_name(name)):
            return "an identifier by its name, and every integer is different"
        if rows >= 100 and spellings.is_uniform(points):
            return (
                "an identifier: every integer is different; declare it by hand if it is a measure"
            )
        return ""
