"""What the cells of one column look like, gathered chunk by chunk.

For `propose` only: a profile is as private as the data.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adaptive_qs.data import cells
from adaptive_qs.data.moments import seconds_of
from adaptive_qs.data.objects import MixedCells

MARKERS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
NUMERIC_MARKERS = (*MARKERS, "N")
"""Cells that look like missing markers; "N" only among numbers, beside "Y" it is an answer."""

SEPARATED = r"^[+-]?[$€£]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?%?$"
PLAIN = r"^[+-]?[$€£]?[0-9]+(\.[0-9]+)?%?$"
"""Numbers with thousands separators, and those too short to have any."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TRUTH = {"true", "false"}
_FIRST, _LAST = seconds_of(dt.datetime.min), seconds_of(dt.datetime.max)
"""Moments that a schema can name, in seconds since 1970."""
_MAX_DISTINCT = 100_000
_NO_DECIMALS = 99
"""Stands for decimals that cannot be counted."""


@dataclass
class Profile:
    """Properties shared by all cells seen so far, markers aside."""

    rows: int = 0
    nulls: bool = False
    texts: set[str] = field(default_factory=set)
    """Distinct cells as text, markers included, at most about 100,000."""
    too_many: bool = False
    integers: bool = True
    numbers: bool = True
    moments: bool = True
    days: bool = True
    low: float = np.inf
    high: float = -np.inf
    spans: dict[bool, tuple[int, int]] = field(
        default_factory=lambda: dict.fromkeys((True, False), (2**62, -(2**62)))
    )
    """First and last moment, by the clock that the cells name and in UTC."""
    decimals: int = 0
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Distinct numbers, ascending; beyond about 100,000 neighbours are merged."""
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Rows with each of the points."""
    filled: int = 0
    """Rows whose cell is no marker."""

    def update(self, values: pa.Array | MixedCells) -> None:
        """Take in one chunk of cells."""
        self.rows += len(values)
        mixed = MixedCells.of(values)
        self.nulls |= bool((mixed.indices < 0).any())
        weights = np.bincount(mixed.indices + 1, minlength=1 + sum(map(len, mixed.parts)))[1:]
        ends = np.cumsum([len(part) for part in mixed.parts])[:-1]
        for part, rows in zip(mixed.parts, np.split(weights, ends)):
            self._update_distinct(part, rows)

    def _update_distinct(self, values: pa.Array, weights: NDArray[np.int64]) -> None:
        """Distinct cells of one type, and how many rows have each."""
        distinct = cells.normalise(values)
        if distinct is None:
            self.too_many = True
            return
        self.nulls |= distinct.null_count > 0
        texts = cells.as_text(distinct)
        if len(self.texts) < _MAX_DISTINCT:
            self.texts.update(text for text in texts.to_pylist() if text is not None)
        self.too_many |= len(self.texts) >= _MAX_DISTINCT
        marker = cells.is_marker(distinct, NUMERIC_MARKERS, numeric=False)
        kept = ~marker & distinct.is_valid().to_numpy(zero_copy_only=False)
        distinct, weights = distinct.filter(pa.array(kept)), weights[kept]
        self.filled += int(weights.sum())
        if len(distinct):
            self._update_numbers(distinct, weights)
            self._update_moments(distinct)

    def _update_numbers(self, distinct: pa.Array, weights: NDArray[np.int64]) -> None:
        if self.integers:
            self.integers = bool(cells.as_integers(distinct)[1].all())
        if self.numbers:
            numbers, readable = cells.as_numbers(distinct)
            self.numbers = bool(readable.all())
            self.low = min(self.low, float(numbers.min()))
            self.high = max(self.high, float(numbers.max()))
            if self.numbers:
                self._merge(numbers, weights)
            if pc.any(pc.match_substring(cells.as_text(distinct), "e-", ignore_case=True)).as_py():
                self.decimals = _NO_DECIMALS
            fractions = pc.extract_regex(cells.as_text(distinct), r"\.(?P<digits>\d+)$")
            lengths = pc.utf8_length(pc.struct_field(fractions, "digits"))
            self.decimals = max(self.decimals, pc.max(lengths).as_py() or 0)

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
        if not self.moments:
            return
        typed = pa.types.is_timestamp(distinct.type)
        dated = typed or all(map(_DATE.match, cells.as_text(distinct).to_pylist()))
        if not dated:
            self.moments = False
            return
        for wall_clock, span in self.spans.items():
            seconds, readable = cells.as_seconds(distinct, None, wall_clock)
            readable &= (seconds >= _FIRST) & (seconds <= _LAST)
            self.moments &= bool(readable.all())
            self.days &= not (wall_clock and bool((seconds % 86_400).any()))
            first, last = span
            self.spans[wall_clock] = min(first, int(seconds.min())), max(last, int(seconds.max()))

    @property
    def span(self) -> tuple[int, int]:
        """First and last moment, in seconds since 1970: of whole days by the clock that the cells
        name, otherwise in UTC."""
        return self.spans[self.days]

    @property
    def markers(self) -> tuple[str, ...]:
        """Missing markers among the cells; "" for nulls when there is no other."""
        typed = self.numbers or self.moments
        found = tuple(m for m in (NUMERIC_MARKERS if typed else MARKERS) if m in self.texts)
        return found or (("",) if self.nulls else ())

    @property
    def values(self) -> list[str]:
        """Distinct cells that are no markers, sorted."""
        return sorted(self.texts - set(self.markers))

    @property
    def separated(self) -> bool:
        """Whether the cells are numbers of which some have thousands separators."""
        values = pa.array(self.values, pa.string())
        marked = pc.match_substring_regex(values, SEPARATED)
        plain = pc.match_substring_regex(values, PLAIN)
        return bool(pc.any(marked).as_py() and pc.all(pc.or_(marked, plain)).as_py())

    @property
    def truth(self) -> bool:
        """Whether the cells are true and false."""
        return bool(self.values) and {value.lower() for value in self.values} <= _TRUTH
