"""Columns of dates and times, coded by calendar period."""

from __future__ import annotations

import datetime as dt
import re
from typing import ClassVar, Literal

from adaptive_qs.table.columns.numeric import RangeColumn

Granularity = Literal["minute", "hour", "day", "week", "month", "quarter", "year"]
EPOCH = dt.datetime(1970, 1, 1)


def seconds_of(moment: dt.date) -> int:
    """Seconds from 1970-01-01T00:00:00 to a date or a naive or aware datetime (as UTC)."""
    if not isinstance(moment, dt.datetime):
        return (moment.toordinal() - EPOCH.toordinal()) * 86_400
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - EPOCH) // dt.timedelta(seconds=1)


def period_of(moment: dt.date, granularity: Granularity) -> int:
    """Number of whole periods from 1970 to a moment; weeks begin on Monday."""
    months = (moment.year - EPOCH.year) * 12 + moment.month - 1
    match granularity:
        case "year":
            return months // 12
        case "quarter":
            return months // 3
        case "month":
            return months
        case "week":
            return (seconds_of(moment) // 86_400 + 3) // 7
        case "day":
            return seconds_of(moment) // 86_400
        case "hour":
            return seconds_of(moment) // 3_600
        case "minute":
            return seconds_of(moment) // 60


def read_moment(text: str, date_format: str | None, wall_clock: bool) -> int | None:
    """Seconds since 1970 of a cell in ISO 8601 or in a strptime format, or None.

    Args:
        text: the cell.
        date_format: how it is written, as in strptime; ISO 8601 without it.
        wall_clock: whether to drop its time zone; the moment is brought to UTC otherwise.
    """
    try:
        if date_format is None:
            moment = dt.datetime.fromisoformat(text)
        else:
            moment = dt.datetime.strptime(text, date_format)
        return seconds_of(moment.replace(tzinfo=None) if wall_clock else moment)
    except (ValueError, OverflowError, re.error):  # a format may name a directive twice
        return None


class MomentColumn(RangeColumn):
    """Dates or times from min to max, one code for each calendar period."""

    min: dt.date
    max: dt.date
    granularity: Granularity
    format: str | None = None
    """How cells are written, in the letters of strptime; ISO 8601 when absent."""

    wall_clock: ClassVar[bool] = False
    """Whether cells with a time zone count by their own clock instead of in UTC."""

    @property
    def num_values(self) -> int:
        """Number of periods touched by min .. max."""
        return 1 + self.period(self.max) - self.period(self.min)

    @property
    def span(self) -> tuple[int, int]:
        """First and last second of min .. max, since 1970."""
        return seconds_of(self.min), seconds_of(self.max)

    def period(self, moment: dt.date) -> int:
        """Number of whole periods from 1970 to a moment."""
        return period_of(moment, self.granularity)

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is a moment in the range."""
        seconds = read_moment(text, self.format, self.wall_clock)
        return seconds is not None and self.span[0] <= seconds <= self.span[1]

    def _check_values(self) -> None:
        super()._check_values()
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: exchange them")
        if self.format is None:
            return
        for moment in (self.min, self.max):
            text = moment.strftime(self.format)
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


class DateColumn(MomentColumn):
    """Calendar dates; a time of day in the data is dropped, and a time zone with it."""

    wall_clock: ClassVar[bool] = True
    type: Literal["date"]
    min: dt.date
    """First day."""
    max: dt.date
    """Last day."""
    granularity: Literal["day", "week", "month", "quarter", "year"] = "day"
    """Calendar period that shares a code; weeks begin on Monday."""

    @property
    def span(self) -> tuple[int, int]:
        """First and last second of min .. max, since 1970."""
        return seconds_of(self.min), seconds_of(self.max) + 86_399


class DatetimeColumn(MomentColumn):
    """Dates with time, to the second; moments with a time zone are brought to UTC."""

    type: Literal["datetime"]
    min: dt.datetime
    """First moment, without a time zone."""
    max: dt.datetime
    """Last moment, without a time zone."""
    granularity: Granularity = "hour"
    """Calendar period that shares a code; weeks begin on Monday."""

    def _check_values(self) -> None:
        for moment in (self.min, self.max):
            if moment.tzinfo is not None or moment.microsecond:
                raise ValueError(f"{moment} has a time zone or part of a second: remove it")
        super()._check_values()
