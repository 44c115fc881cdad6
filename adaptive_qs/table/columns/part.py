"""Parts of dates and times that repeat: the hour of the day, and the day of the week."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from adaptive_qs.table.columns.base import OUTSIDE, UNREADABLE, ColumnBase, Text, cells, np, pa

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import Codes

PARTS = {
    "hour": [f"{hour:02}:00" for hour in range(24)],
    "weekday": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
}
"""Names of the hours of a day and of the days of a week, by the part of a moment."""
SECONDS = {"hour": 3_600, "weekday": 86_400}
CYCLE = {"hour": 86_400, "weekday": 7 * 86_400}
FIRST_MONDAY = 4 * 86_400


def find_parts(seconds: Any, unit: str) -> Any:
    """Return the hour of the day or the day of the week of moments, in seconds since 1970."""
    return (seconds - FIRST_MONDAY) % CYCLE[unit] // SECONDS[unit]


class PartColumn(ColumnBase):
    """Hours or weekdays of a column of dates or times with longer periods.

    They are read from the cells of that column, measured as any column is, and not written: they
    decide where in its period a synthetic moment lies.
    """

    disclosed: ClassVar = "which column they are part of"
    type: Literal["part"]
    of: Text
    """Name of the column of dates or times."""
    unit: Literal["hour", "weekday"]
    """Which part: the hour of the day, or the day of the week."""
    ordered: bool = True
    """Whether the order of the values means something (for prefix and range queries)."""
    missing: Annotated[tuple[Text, ...], Field(exclude=True)] = ()
    _source: Any = PrivateAttr(None)

    def bound(self, columns: Mapping[str, ColumnBase]) -> Self:
        source: Any = columns.get(self.of)
        if source is None or source.kind != "moments" or (source.by_day and self.unit == "hour"):
            raise ValueError(
                f"column {self.name!r} is the {self.unit} of {self.of!r}, which is no column with "
                f"{'times' if self.unit == 'hour' else 'dates or times'}: name such a column"
            )
        if self.unit not in source.lost_parts:
            raise ValueError(
                f"column {self.name!r} is not needed: {self.of!r} has a code for each "
                f"{source.granularity}. Remove it, or use a coarser granularity there."
            )
        for other in columns.values():
            if other.part_of == self.part_of and other.name != self.name:
                raise ValueError(
                    f"columns {other.name!r} and {self.name!r} are both the {self.unit} of "
                    f"{self.of!r}: keep one"
                )
        if self._source is None and self.missing not in ((), source.missing):
            raise ValueError(
                f"column {self.name!r} has missing markers of its own: write them in {self.of!r}"
            )
        bound = self.model_copy(update={"missing": source.missing})
        bound._source = source
        return bound

    @property
    def part_of(self) -> tuple[str, str]:
        return self.of, self.unit

    @property
    def source(self) -> Any:
        """The column that it is part of."""
        assert self._source is not None, "the column is in no schema"
        return self._source

    @property
    def outside(self) -> str:
        """What happens to cells that are no values: as in the source."""
        return self._source.outside if self._source else ""

    @property
    def num_values(self) -> int:
        return len(PARTS[self.unit])

    @property
    def topics(self) -> tuple[()]:
        return ()

    @property
    def summary(self) -> str:
        return f"{self.unit} of {self.of}"

    @property
    def kind(self) -> Hashable:
        return tuple(PARTS[self.unit])

    def declares(self, text: str) -> bool:
        return text in PARTS[self.unit]

    def read(self, values: pa.Array) -> Codes:
        seconds, readable = cells.as_seconds(values, self.source.format, self.source.wall_clock)
        codes = np.where(readable, find_parts(seconds, self.unit), UNREADABLE)
        if self.outside == "missing":
            codes[readable & (self.source.read(values) < 0)] = OUTSIDE
        return codes

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        return pa.array(PARTS[self.unit]).take(pa.array(codes))

    def value_labels(self) -> list[str]:
        return [*PARTS[self.unit]]
