"""Parts of dates and times that repeat: the hour of the day, and the day of the week."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from adaptive_qs.table.columns.base import OUTSIDE, UNREADABLE, ColumnBase, Text, cells, np, pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adaptive_qs.table.columns.base import Codes
    from adaptive_qs.table.conditions import Condition

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


class Tie:
    """Possible hours and weekdays of two moments, given a condition on the time between them.

    It is evaluated for every step (hour or day) of one cycle (day or week) of the first moment, and
    of all cycles of the second that it allows.

    Args:
        columns: all columns of the schema, by name, in order.
        condition: depends on the two moments by their difference alone.
        parts: of each moment, by its name, which are measured.
        most: number of cells that are evaluated; half of what a marginal can have.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        condition: Condition,
        parts: Mapping[str, Sequence[PartColumn]],
        most: int,
    ) -> None:
        self._columns, self._condition, self._moments = columns, condition, [*parts]
        self._most = most
        units = {part.unit for own in parts.values() for part in own}
        self._cycle, step = max(CYCLE[u] for u in units), min(SECONDS[u] for u in units)
        grid = [u for u in PARTS if step <= SECONDS[u] and CYCLE[u] <= self._cycle]
        self._grid = sorted(grid, key=lambda unit: -SECONDS[unit])
        self._parts = {part.part_of: part.name for own in parts.values() for part in own}
        self._others = [name for name in condition.columns() if name not in parts]
        self._sizes = [columns[name].size for name in self._others]
        codes = np.meshgrid(*map(np.arange, self._sizes), indexing="ij")
        self._codes = [each.ravel() for each in codes]
        spans = [self._columns[name].span for name in parts]
        self._first, last = (
            [(end - FIRST_MONDAY) // self._cycle for end in ends] for ends in zip(*spans)
        )
        self._apart = np.arange(self._first[1] - last[0], last[1] - self._first[0] + 1)

    def cells(self) -> Iterator[tuple[list[str], NDArray[np.bool_]]]:
        """Yield columns and their possible cells.

        Parts come with the periods of both moments if these are cycles. If that has too many cells,
        parts of one moment come with the periods, and all parts come without them.
        """
        every = np.ones(math.prod(self._sizes), dtype=np.bool_)
        allowed, wrong = self._judge(1, self._apart, every)
        tight: Any = wrong.any(axis=(0, 1, 2))  # values of other columns that restrict anything
        near: Any = allowed[0, :, 0, tight].any(axis=0)
        grid = [len(PARTS[unit]) for unit in self._grid]
        steps = math.prod(grid)
        if not 0 < tight.sum() * near.sum() * steps**2 <= self._most:
            return
        allowed = self._judge(steps, self._apart[near], tight)[0]
        allowed = allowed.reshape(*grid, near.sum(), *grid, tight.sum())
        periods = {self._columns[name].granularity for name in self._moments}
        whole = periods == {"week" if "weekday" in self._grid else "day"}
        for first, second in ((True, True), (True, False), (False, True)) if whole else ():
            if (found := self._project(allowed, near, tight, first, second)) is not None:
                yield found
                if first and second:
                    return
                break
        if (found := self._project(allowed, None, tight, True, True)) is not None:
            yield found

    def _judge(
        self, steps: int, apart: NDArray[np.int64], chosen: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return where a row can be unbroken, and broken, if a cycle has this number of steps.

        The axes are steps of the first moment, cycles to that of the second, its steps, and chosen
        combinations of the other columns.
        """
        from adaptive_qs.table.conditions import Values, read_values

        length, (a, b) = self._cycle // steps, self._moments
        start = FIRST_MONDAY + length * np.arange(steps)
        yes = np.ones(1, dtype=np.bool_)
        row = {
            name: Values(low, low + length - 1, yes, yes, ~yes)
            for name, low in (
                (a, start.reshape(-1, 1, 1, 1)),
                (b, (start + self._cycle * apart[:, None])[..., None]),
            )
        }
        for name, codes in zip(self._others, self._codes):
            row[name] = read_values(self._columns[name], codes[chosen])
        shape = steps, len(apart), steps, int(chosen.sum())
        true, false, unknown = self._condition.outcome(row)
        return np.broadcast_to(true | unknown, shape), np.broadcast_to(false, shape)

    def _project(
        self, allowed: Any, near: Any, tight: Any, first: bool, second: bool
    ) -> tuple[list[str], NDArray[np.bool_]] | None:
        """Return the cells of parts of the first and second moment, with periods if ``near``.

        None if they are too many, there are no parts, or a moment without any can be missing.
        """
        a, b = self._moments
        own = [self._parts.get((a, unit)) if first else None for unit in self._grid]
        other = [self._parts.get((b, unit)) if second else None for unit in self._grid]
        axes = [*own, None if near is None else a, *other, a]
        allowed = allowed.any(axis=tuple(k for k, name in enumerate(axes) if name is None))
        before, behind = [*filter(None, own)], [*filter(None, other)]
        names = [*before, *([] if near is None else [a, b]), *behind]
        shape = [self._columns[name].size for name in names]
        cells = math.prod([*shape, *self._sizes])
        if not (before or behind) or len(names) < 2 or cells > 2 * self._most:
            return None
        seen = {*names, *(name for (name, _), part in self._parts.items() if part in names)}
        several = [self._columns[name] for name in self._moments if name not in seen]
        if any(column.size > column.num_values for column in several):
            return None  # where a moment is missing, the other parts are free
        if near is not None:
            place = np.where(near, near.cumsum() - 1, near.sum())  # behind all, nothing is allowed
            rows, columns = (np.arange(self._columns[name].num_values) for name in (a, b))
            apart = columns - rows[:, None] + self._first[1] - self._first[0] - self._apart[0]
            widths = [(0, int(axis == len(before))) for axis in range(allowed.ndim)]
            allowed = np.pad(allowed, widths).take(place[apart], axis=len(before))
        found = np.ones((*shape, len(tight)), dtype=np.bool_)
        known: Any = (slice(self._columns[name].num_values) for name in names)
        found[(*known, tight)] = allowed
        return [*names, *self._others], found.reshape(*shape, *self._sizes)
