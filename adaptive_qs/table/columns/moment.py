"""Columns of dates and times, coded by calendar period."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from adaptive_qs.table.columns import base
from adaptive_qs.table.columns.base import binning, cells, np, pa, pc, spellings
from adaptive_qs.table.columns.binned import RangeColumn
from adaptive_qs.table.columns.part import CYCLE, FIRST_MONDAY, PARTS, SECONDS, find_parts
from adaptive_qs.table.text import EPOCH, PLAIN_TIMES, escaped, read_moment, to_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adaptive_qs.table.columns.base import Codes
    from adaptive_qs.table.profile import Profile
    from adaptive_qs.table.spellings import Span

DayGranularity = Literal[
    "day", "week", "month", "quarter", "year", "5 years", "10 years", "100 years"
]
Granularity = Literal[
    "minute", "hour", "day", "week", "month", "quarter", "year", "5 years", "10 years", "100 years"
]

_LENGTH = {"minute": 60, "hour": 3_600, "day": 86_400}
_YEARS: dict[Granularity, int] = {"5 years": 60, "10 years": 120, "100 years": 1_200}
_MONTHS: dict[Granularity, int] = {"month": 1, "quarter": 3, "year": 12, **_YEARS}
_EPOCH_MONTHS = 12 * EPOCH.year
"""Months from the year 0 to 1970: periods of several years begin at round ones, such as 1900."""


def _find_lost(granularity: Granularity, by_day: bool, way: str | None) -> tuple[str, ...]:
    if way and not re.search("%[acdjuwxA]", way):  # months, years or times alone
        return ()
    length = _LENGTH.get(granularity, CYCLE["weekday"])
    return tuple(u for u in PARTS if length >= CYCLE[u] and not (by_day and u == "hour"))


def find_period(moment: dt.date, granularity: Granularity) -> int:
    """Return the number of whole periods from that of 1970-01-01 to that of a moment.

    Weeks begin on Monday, several years at a multiple of their number.
    """
    if granularity in _MONTHS:
        return _of_months((moment.year - EPOCH.year) * 12 + moment.month - 1, granularity)
    return find_periods(to_seconds(moment), granularity)


def find_periods(seconds: Any, granularity: Granularity) -> Any:
    """Return whole periods from 1970 to each moment, given in seconds since 1970."""
    if granularity in _LENGTH:
        return seconds // _LENGTH[granularity]
    if granularity == "week":
        return (seconds // _LENGTH["day"] + 3) // 7
    return _of_months(seconds.astype("M8[s]").astype("M8[M]").astype(np.int64), granularity)


def _of_months(months: Any, granularity: Granularity) -> Any:
    """Return the periods of months since January 1970."""
    length = _MONTHS[granularity]
    return (months + _EPOCH_MONTHS) // length - _EPOCH_MONTHS // length


def find_starts(periods: Codes, granularity: Granularity) -> Codes:
    """Return the first second of each period: the inverse of `find_periods`."""
    if granularity in _LENGTH:
        return periods * _LENGTH[granularity]
    if granularity == "week":
        return (periods * 7 - 3) * _LENGTH["day"]
    length = _MONTHS[granularity]
    months = (periods + _EPOCH_MONTHS // length) * length - _EPOCH_MONTHS
    return months.astype("M8[M]").astype("M8[s]").astype(np.int64)


class MomentColumn(RangeColumn):
    """Dates or times from min to max, one code for each calendar period."""

    min: dt.date
    max: dt.date
    granularity: Granularity
    format: str | None = None
    """How cells are written, in the letters of strptime; ISO 8601 when absent."""

    wall_clock: ClassVar[bool] = False
    """Whether cells with a time zone count by their own clock instead of in UTC."""
    point: ClassVar[int] = 1
    """Seconds from one value to the next."""
    iso_cells: ClassVar[base.CellType]
    """Type of cells without a format of their own in tables with types."""

    @property
    def num_values(self) -> int:
        return 1 + self.period(self.max) - self.period(self.min)

    @property
    def kind(self) -> Hashable:
        """The kind: "moments", or "times" if the format has no date.

        Times lie on 1 January 1900.
        """
        return "times" if self.format and not re.search("%[dyYj]", self.format) else "moments"

    @property
    def topics(self) -> tuple[base.Topic, ...]:
        return super().topics[self.kind == "times" :]  # every day has the same limits

    @property
    def span(self) -> tuple[int, int]:
        """First and last second of min .. max, since 1970."""
        return to_seconds(self.min), to_seconds(self.max)

    @property
    def lost_parts(self) -> tuple[str, ...]:
        """The parts that are not the same in a whole period."""
        return _find_lost(self.granularity, self.by_day, self.format)

    @property
    def by_years(self) -> bool:
        """Whether a period is a year or several."""
        return _MONTHS.get(self.granularity, 0) >= 12

    def period(self, moment: dt.date) -> int:
        """Return the number of whole periods from 1970 to a moment."""
        return find_period(moment, self.granularity)

    def declares(self, text: str) -> bool:
        seconds = read_moment(text, self.format, self.wall_clock)
        return seconds is not None and self.span[0] <= seconds <= self.span[1]

    def _check_values(self) -> None:
        if self.min > self.max:
            raise ValueError(
                f"min {self.min} is greater than max {self.max}. Swap or correct them."
            )
        if self.format is None:
            return
        for moment in (self.min, self.max):
            text = moment.strftime(self.format)
            if escaped(text) != text:
                raise ValueError(f"format {self.format!r} makes a formula of a cell: use another")
            seconds = read_moment(text, self.format, self.wall_clock)
            if (
                seconds is None
                or not self.span[0] <= seconds <= self.span[1]
                or self.period(EPOCH + dt.timedelta(seconds=seconds)) != self.period(moment)
            ):
                raise ValueError(
                    f"format {self.format!r} does not bring back {moment}: use a fuller format, "
                    "a coarser granularity, or bounds that it can write"
                )

    @property
    def scale(self) -> Hashable:
        return "moment", self.min, self.max, self.granularity

    @property
    def summary(self) -> str:
        said = "{:%H:%M} to {:%H:%M} by {}" if self.kind == "times" else "{} to {} by {}"
        return said.format(self.min, self.max, self.granularity)

    def read(self, values: pa.Array) -> Codes:
        seconds, readable = cells.as_seconds(values, self.format, self.wall_clock)
        inside = np.clip(seconds, *self.span)
        codes = find_periods(inside, self.granularity) - self.period(self.min)
        return self._refused(codes, readable, inside == seconds)

    def ends(self, codes: Codes) -> tuple[Codes, Codes]:
        periods = codes + self.period(self.min)
        first, last = self.span
        low = np.maximum(find_starts(periods, self.granularity), first)
        return low, np.minimum(find_starts(periods + 1, self.granularity) - 1, last)

    def amounts(self, values: pa.Array) -> NDArray[np.float64]:
        seconds, readable = cells.as_seconds(values, self.format, self.wall_clock)
        return np.where(readable, seconds, np.nan)

    def read_amount(self, text: str) -> float | None:
        way = self.format if self.kind == "times" else None
        return read_moment(text, way, self.wall_clock)

    resolution: ClassVar = 1.0

    def from_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        known = ~np.isnan(amounts)
        seconds = np.rint(np.where(known, amounts, 0)).astype(np.int64)
        return pa.array(seconds, mask=~known).cast(pa.timestamp("s"))

    def amount_text(self, amount: float, whole: bool = False) -> str:
        """Return a day, with hour and minute if the column has times."""
        if not math.isfinite(amount):
            return super().amount_text(amount)
        moment = EPOCH + dt.timedelta(seconds=round(amount))
        if self.format and self.kind == "times":
            return moment.strftime(self.format)
        return str(moment.date()) if self.by_day else f"{moment:%Y-%m-%d %H:%M}"

    def numbers(self, values: pa.Array) -> Codes:
        return cells.as_seconds(values, self.format, self.wall_clock)[0]

    def point_ends(self, codes: Codes | None = None) -> tuple[Codes, Codes]:
        low, high = self.ends(np.arange(self.num_values) if codes is None else codes)
        return low // self.point, high // self.point

    def points_between(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[Codes, Codes]:
        return -(-low // self.point), high // self.point

    def to_points(self, numbers: Codes) -> Codes:
        return self._kept(numbers) // self.point

    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        return pa.array(points).cast(pa.timestamp("s"))

    def moved(self, values: pa.Array, codes: Codes, parts: Mapping[str, NDArray[Any]]) -> pa.Array:
        """Return values moved inside their periods to the nearest moments with such hours or days.

        A value whose period has no such moment stays.
        """
        if values.null_count == len(values):
            return values
        amounts = self.amounts(cells.normalise(values))
        seconds = np.where(np.isnan(amounts), 0, amounts).astype(np.int64)
        cycle = max(CYCLE[unit] for unit in parts)
        offset = FIRST_MONDAY + seconds % min(SECONDS[unit] for unit in parts)
        for unit, target in parts.items():
            own = find_parts(seconds, unit)
            own[target < len(PARTS[unit])] = target[target < len(PARTS[unit])]
            offset += own * SECONDS[unit]
        found = seconds - cycle // 2 + (offset - seconds + cycle // 2) % cycle
        low, high = self.ends(np.where(codes < self.num_values, codes, 0).astype(np.int64))
        found += cycle * ((found < low).astype(np.int64) - (found > high))
        inside = (low <= found) & (found <= high) & ~np.isnan(amounts)
        return self.from_amounts(np.where(inside, found, amounts))

    @property
    def heap_points(self) -> Codes:
        return np.array([to_seconds(each) // self.point for each in self.heaps], dtype=np.int64)

    def _heap_text(self, value: dt.date) -> str:
        return value.strftime(self.format) if self.format else value.isoformat()

    def value_labels(self) -> list[str]:
        """Return the periods in ISO 8601; weeks and several years by their first and last day."""
        periods = self.period(self.min) + np.arange(self.num_values)
        if self.granularity == "quarter":
            return [f"{1970 + period // 4}-Q{period % 4 + 1}" for period in periods.tolist()]
        if self.granularity == "week" or self.granularity in _YEARS:
            days = (
                find_starts(each, self.granularity).astype("M8[s]").astype("M8[D]")
                for each in (periods, periods + 1)
            )
            return [base.bin_label(str(day), str(after - 1)) for day, after in zip(*days)]
        units = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m"}
        moments = periods.astype(f"M8[{units[self.granularity]}]")
        mark = "h" if self.granularity == "hour" else ""
        return [f"{moment}"[11 * (self.kind == "times") :] + mark for moment in moments]

    def csv_texts(self, values: pa.Array) -> pa.Array:
        if self.format is None or self.format in PLAIN_TIMES:
            if pa.types.is_timestamp(values.type):
                return pc.strftime(values, self.format or "%Y-%m-%dT%H:%M:%S")
            return values.cast(pa.string())
        distinct = values.dictionary_encode()
        texts = [
            None if moment is None else moment.strftime(self.format)
            for moment in distinct.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(distinct.indices)

    @classmethod
    def draft(cls, name: str, profile: Profile) -> base.Draft | None:
        """Return a draft if the cells are dates, with or without a time of day as in the type."""
        return _drafted(profile, days=cls.by_day)

    @property
    def cell_types(self) -> tuple[base.CellType, ...]:
        return (self.iso_cells,) if self.format is None else ()

    def _beyond(self) -> str:
        last = dt.datetime(9998, 12, 31)
        return last.strftime(self.format) if self.format else last.date().isoformat()


class DateColumn(MomentColumn):
    """Calendar dates; a time of day in the data is dropped, and a time zone with it."""

    wall_clock: ClassVar[bool] = True
    by_day = True
    iso_cells: ClassVar[base.CellType] = "date"
    type: Literal["date"]
    min: dt.date
    """First day."""
    max: dt.date
    """Last day."""
    granularity: DayGranularity = "day"
    """Calendar period that shares a code; weeks begin on Monday, decades at 1990 and the like."""

    @property
    def span(self) -> tuple[int, int]:
        return to_seconds(self.min), to_seconds(self.max) + 86_399

    heaps: tuple[dt.date, ...] = ()
    point = _LENGTH["day"]
    periods = (31, 372)

    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        return pa.array(points.astype(np.int32), pa.int32()).cast(pa.date32())

    def heaps_at(self, points: Codes) -> tuple[dt.date, ...]:
        return tuple(points.astype("M8[D]").tolist())

    def marks(self, points: Codes) -> Codes:
        """Return 31 times the months since January, plus the days since the first of the month."""
        days = points.astype("M8[D]")
        months = days.astype("M8[M]")
        return months.astype(np.int64) % 12 * 31 + (days - months).astype(np.int64)

    def from_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        known = ~np.isnan(amounts)
        days = np.floor(np.where(known, amounts, 0) / 86_400).astype(np.int32)
        return pa.array(days, pa.int32(), mask=~known).cast(pa.date32())


class DatetimeColumn(MomentColumn):
    """Dates with time, to the second; times with a time zone are converted to UTC."""

    iso_cells: ClassVar[base.CellType] = "datetime"
    type: Literal["datetime"]
    min: dt.datetime
    """First date and time, without a time zone."""
    max: dt.datetime
    """Last date and time, without a time zone."""
    granularity: Granularity = "hour"
    """Calendar period that shares a code; weeks begin on Monday, decades at 1990 and the like."""
    heaps: tuple[dt.datetime, ...] = ()
    periods = (60, 3600)

    def heaps_at(self, points: Codes) -> tuple[dt.datetime, ...]:
        return tuple(points.astype("M8[s]").tolist())

    def _check_values(self) -> None:
        for moment in (self.min, self.max):
            if moment.tzinfo is not None or moment.microsecond:
                raise ValueError(f"{moment} has a time zone or part of a second: remove it")
        super()._check_values()


UNEVEN = 0.1
"""Distance of the shares of hours or weekdays from equal ones from which on a part is proposed."""


def _drafted(profile: Profile, days: bool) -> base.Draft | None:
    """Return the draft for moments, all or not all of them days; None for other cells."""
    for digits in ("%Y%m%d", "%y%m%d"):
        if (compact := _compact_dates(profile, digits)) is not None:
            return _draft(profile, digits, compact) if compact.days == days else None
    if profile.numeric or not profile.dated:
        return None
    spans = profile.spans or {}
    way, span = next(iter(spans.items()))
    if span.days != days:
        return None
    other = spellings.swapped(way)
    if other is not None and other in spans:
        day_first = way if way and way.startswith("%d") else other
        said = f"day and month can be exchanged: read as {day_first}"
        return _draft(profile, day_first, spans[day_first], said, ("format",))
    if way is None and not days:  # as they are written, where that is with a blank
        way = next((plain for plain in PLAIN_TIMES if plain in spans), None)
    return _draft(profile, way, span)


def _compact_dates(profile: Profile, way: str) -> Span | None:
    """Return the span of integers that are dates such as 20201231 or 201231; None for others."""
    if not (profile.numeric or profile.dated):
        return None
    span = (profile.spans or {}).get(way)
    if span is None or not profile.integers or len(profile.points) < 5:
        return None
    first, last = to_seconds(dt.date(1800, 1, 1)), to_seconds(dt.date(2200, 1, 1))
    return span if first <= span.limits[0] and span.limits[1] < last else None


def _draft(
    profile: Profile,
    way: str | None,
    span: Span,
    note: str = "",
    topics: tuple[base.Topic, ...] = (),
) -> base.Draft:
    """Return the draft of a column in such periods, with its parts that are not even."""
    content, parts = _periods(profile, way, span), list[str]()
    for unit in _find_lost(content["granularity"], span.days, way):
        rows = span.hours.sum(axis=0 if unit == "hour" else 1)
        total = max(rows.sum(), 1.0)
        off = np.abs(rows / total - 1 / rows.size).sum()
        parts += [unit] if off > max(UNEVEN, 3 * math.sqrt(rows.size / total)) else []
    seconds = 60 if way and "%M" in way and "%S" not in way else 1
    hidden = content["granularity"] != "day" and "weekday" not in parts  # which moves days
    if (hidden or not span.days) and span.frequent(seconds):
        content["private_heaps"] = binning.HEAPS
    return base.Draft(content, note, topics, tuple(parts))


def _periods(profile: Profile, way: str | None, span: Span) -> dict[str, Any]:
    first, last = (EPOCH + dt.timedelta(seconds=s) for s in span.limits)
    if way and way[:2] in ("%H", "%I"):
        day = {"min": "1900-01-01T00:00:00", "max": "1900-01-01T23:59:59"}
        return {"type": "datetime", **day, "granularity": "hour", "format": way}
    finest: tuple[Granularity, ...] = tuple(_MONTHS)
    if way is None or "%d" in way:
        finest = ("day", "week", *finest)
    if not span.days:
        finest = ("hour", *finest)
    for unit in finest:
        limit = binning.hours_for if unit == "hour" else binning.periods_for
        if find_period(last, unit) - find_period(first, unit) < limit(profile.filled):
            break
    if unit in _MONTHS and _MONTHS[unit] >= 12:  # whole years
        first = dt.datetime(first.year, 1, 1)
        last = dt.datetime(last.year, 12, 31, 23, 59, 59)
    ends = (first.date(), last.date()) if span.days else (first, last)
    content = {
        "type": "date" if span.days else "datetime",
        "min": ends[0].isoformat(),
        "max": ends[1].isoformat(),
        "granularity": unit,
    }
    return content if way is None else {**content, "format": way}
