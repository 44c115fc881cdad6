"""Places: points on a grid of two axes that stay together, such as latitude and longitude."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from adaptive_qs.table.columns.base import (
    OUTSIDE,
    UNREADABLE,
    ColumnBase,
    Text,
    cells,
    np,
    pa,
    pc,
)
from adaptive_qs.table.columns.numeric import BinCount, Finite, NumericColumn
from adaptive_qs.table.columns.spread import Outside

if TYPE_CHECKING:
    from adaptive_qs.table.columns.base import Codes

_POINT = r"^\s*(?P<first>[^\s,;]+)(?:\s*[,;]\s*|\s+)(?P<second>[^\s,;]+)\s*$"
"""Two numbers with a space, a comma or a semicolon between them."""


class Axis(BaseModel):
    """One axis of a grid, in cells of equal width."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    column: Annotated[Text, Field(min_length=1)] | None = None
    """The column of the data that holds it; without, cells hold both: "48.137, 11.575"."""
    min: Finite
    """Smallest value, public."""
    max: Finite
    """Largest value, public."""
    bins: BinCount
    """Number of cells along the axis."""

    def edges(self, decimals: int) -> tuple[float, ...]:
        """Ends of the cells: at equal distances, but for what is rounded."""
        low, width = self.min, (self.max - self.min) / self.bins
        inner = (round(low + k * width, decimals) for k in range(1, self.bins))
        return (self.min, *inner, self.max)


class PlaceColumn(ColumnBase):
    """Places on a grid, one code for each cell; synthetic ones are points inside their cell.

    In the data they are two columns of numbers, which stay together as one column here, or one
    column of cells such as "48.137, 11.575", latitude first.
    """

    type: Literal["place"]
    latitude: Axis
    """From south to north, or any other first coordinate."""
    longitude: Axis
    """From west to east, or any other second coordinate."""
    decimals: Annotated[int, Field(ge=0, le=9)] = 5
    """Decimal places of synthetic coordinates; the fifth of a degree is about a metre."""
    outside: Outside = "refuse"
    """What happens to points outside the grid: "refuse" them, "clip" them to its nearest cell, or
    count them, and cells that cannot be read, as "missing"."""

    disclosed: ClassVar = "the ends and the cells of their grid"
    review: ClassVar = {"range": 'which ends are public? "outside": "clip" moves what is beyond'}

    @cached_property
    def axes(self) -> tuple[NumericColumn, NumericColumn]:
        """The coordinates as columns of numbers, as they are written where they are two."""
        latitude, longitude = (
            NumericColumn(
                name=axis.column or f"{self.name}: {part}",
                type="numeric",
                edges=axis.edges(self.decimals),
                decimals=self.decimals,
                outside="clip" if self.outside == "clip" else "refuse",
                missing=self.missing,
            )
            for part, axis in (("latitude", self.latitude), ("longitude", self.longitude))
        )
        return latitude, longitude

    @property
    def parts(self) -> tuple[ColumnBase, ...]:
        return self.axes if self.latitude.column and self.longitude.column else ()

    @property
    def num_values(self) -> int:
        return self.latitude.bins * self.longitude.bins

    def _check_values(self) -> None:
        named = [axis.column for axis in (self.latitude, self.longitude) if axis.column]
        if len(named) == 1:
            raise ValueError("one axis names its column: name both, or none")
        if len({self.name, *named}) <= len(named):
            raise ValueError("the place and its two columns need names of their own: change one")
        _ = self.axes  # which refuses what is no grid

    @property
    def summary(self) -> str:
        """The ends and the number of cells of both axes."""
        axes = " by ".join(
            f"{axis.min:.9g} to {axis.max:.9g} in {axis.bins:,}"
            for axis in (self.latitude, self.longitude)
        )
        return f"{axes} cells{', clipped beyond' if self.outside == 'clip' else ''}"

    def declares(self, text: str) -> bool:
        found = (part[0].as_py() for part in self.apart(pa.array([text])))
        return all(axis.declares(each or "") for axis, each in zip(self.axes, found))

    def read(self, values: pa.Array) -> Codes:
        rows, columns = (axis.read(part) for axis, part in zip(self.axes, self.apart(values)))
        unread = (rows == UNREADABLE) | (columns == UNREADABLE)
        refused = np.where(unread, UNREADABLE, OUTSIDE)
        inside = (rows >= 0) & (columns >= 0)
        return np.where(inside, rows * self.longitude.bins + columns, refused)

    def apart(self, values: pa.Array) -> list[pa.Array]:
        """Cells that hold both coordinates as two arrays of text; null where they do not."""
        found = pc.extract_regex(cells.as_text(values), _POINT)
        return [pc.struct_field(found, name) for name in ("first", "second")]

    def together(self, parts: list[pa.Array]) -> pa.Array:
        """The other way round, texts in; a cell without both is null, or the marker of both."""
        first, second = (part.fill_null("") for part in parts)
        same = pc.equal(first, second)
        marked = pc.and_(same, pc.is_in(first, value_set=pa.array([*self.missing], pa.string())))
        nothing = pc.and_(same, pc.equal(first, ""))
        both = pc.binary_join_element_wise(first, second, ", ")
        return pc.if_else(marked, first, pc.if_else(nothing, pa.scalar(None, pa.string()), both))

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        drawn = (
            axis.csv_texts(axis.draw(code, rng))
            for axis, code in zip(self.axes, np.divmod(codes, self.longitude.bins))
        )
        return self.together([*drawn])

    def split(self, values: pa.Array) -> list[pa.Array]:
        """Decoded values as the numbers of both columns; null where missing."""
        return [part.cast(pa.float64()) for part in self.apart(values)]

    def value_labels(self) -> list[str]:
        rows, columns = (axis.value_labels() for axis in self.axes)
        return [f"{row} {column}" for row in rows for column in columns]
