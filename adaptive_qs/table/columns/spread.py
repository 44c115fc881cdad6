"""Columns of numbers and moments, whose codes may stand for several values: which, and their heaps.

Values lie on points: integers, multiples of a step, days, seconds. A heap is a value that many rows
share, and an ending is what many values have in common: 99 cents, whole hundreds, the first day of
a month. How many rows have them is learnt from the private rows and paid for; how values are drawn
by it is in :mod:`adaptive_qs.table.inside`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from adaptive_qs.table.columns.base import (
    OUTSIDE,
    UNREADABLE,
    ColumnBase,
    np,
    pa,
    refuse_duplicates,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from adaptive_qs.table.cells import Mask
    from adaptive_qs.table.columns.base import Codes

Outside = Literal["refuse", "clip", "missing"]
"""What happens to values outside the range: refuse the table, move them to the nearest end, or
count them as missing (then cells that cannot be read count as missing too)."""

MOST_MODULUS = 10_000
"""Steps between values that end alike, at most."""
MOST_PERIOD = 1_000_000
"""Steps after which all endings repeat, at most."""
MOST_HEAPS = 1000
"""Values of one column, at most, whose rows are counted each."""


class RangeColumn(ColumnBase):
    """A column of ordered values between two public bounds."""

    ordered: bool = True
    """Whether the order of the values means something (for prefix and range queries)."""
    outside: Outside = "refuse"
    """What happens to values outside the range: "refuse" them, "clip" them to the nearest end,
    or count them, and cells that cannot be read, as "missing"."""

    measured = True
    disclosed: ClassVar = "their bounds and bins"
    review: ClassVar = {"range": 'which ends are public? "outside": "clip" moves what is beyond'}

    def _refused(self, codes: Codes, readable: Mask, inside: Mask) -> Codes:
        """The codes, with sentinels for cells that are no values of the range."""
        if self.outside != "clip":
            codes = np.where(inside, codes, OUTSIDE)
        return np.where(readable, codes, UNREADABLE)

    def undeclared_cell(self) -> str | None:
        """Where values are clipped, one beyond the upper end."""
        return self._beyond() if self.outside == "clip" else super().undeclared_cell()

    @abstractmethod
    def _beyond(self) -> str:
        """A cell beyond the upper end of the range."""


class Ending(BaseModel):
    """Values that end alike: points that leave a remainder, and the rows counted on them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    remainder: Annotated[int, Field(ge=0)]
    """What is left when the mark of a value is divided by the modulus. Marks count steps of the
    column (units, hundredths, seconds), and of dates 31 for every month since January and 1 for
    every day since the first."""
    modulus: Annotated[int, Field(ge=2)]
    rows: int = 0
    """Rows with such values, with noise; rows on an ending that comes before are not among them."""


class Counted(BaseModel):
    """How many rows have frequent values, learnt with noise, as the program notes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rows: tuple[int, ...] = ()
    """Rows with each of the heaps, with noise."""
    endings: tuple[Ending, ...] = ()
    """Endings that many rows have."""


def kinds_of(marks: Codes, endings: Sequence[Ending]) -> Codes:
    """The first of some endings that each mark has, or their number where it has none."""
    kinds = np.full(marks.size, len(endings))
    for place in reversed(range(len(endings))):
        kinds[marks % endings[place].modulus == endings[place].remainder] = place
    return kinds


class HeapedColumn(ColumnBase):
    """A column that may say which of its values many rows share, or leave that to be learnt."""

    heaps: tuple[Any, ...] = ()
    """Values that many rows share, known in public: how many is learnt with noise, so that values
    drawn from wide bins and periods keep them."""
    private_heaps: Annotated[int, Field(ge=1, le=MOST_HEAPS)] | None = None
    """How many such values, at most, are to be found in the rows, and paid for; so are endings that
    many values have in common, such as 99 cents, whole hundreds or the first day of a month."""

    heap_keys: ClassVar[tuple[str, ...]] = ("heaps", "private_heaps")
    """What says which values are frequent."""

    @property
    def patterns(self) -> tuple[Ending, ...]:
        """Declared endings, not counted yet."""
        return ()

    @property
    def has_heaps(self) -> bool:
        """Whether rows on frequent values are counted."""
        return bool(self.heaps or self.patterns) or self.private_heaps is not None

    @property
    def counts_heaps(self) -> bool:
        """Whether that is still to be done, by a run that makes tables."""
        return self.has_heaps

    def without_heaps(self) -> ColumnBase:
        none = {key: type(self).model_fields[key].default for key in self.heap_keys}
        return self.model_copy(update=none) if self.counts_heaps else self

    @abstractmethod
    def numbers(self, values: pa.Array) -> NDArray[Any]:
        """Normalised cells as integers, numbers or seconds; anything where they are none."""

    @property
    def marked(self) -> bool:
        """Whether a point is one value, so that rows with it can be counted."""
        return True

    @model_validator(mode="after")
    def _check_heaps(self) -> Self:
        patterns = self.patterns
        if not self.has_heaps:
            return self
        if not self.marked:
            raise ValueError("heaps need decimals, with which values repeat: give them")
        if self._declared_heaps and self.private_heaps is not None:
            raise ValueError("heaps are declared and to be found as well: keep one of the two")
        if len(self.heaps) > MOST_HEAPS:
            raise ValueError(f"{len(self.heaps)} heaps are given: {MOST_HEAPS} is the most")
        refuse_duplicates(self.heaps)
        refuse_duplicates(patterns)
        if math.lcm(*(ending.modulus for ending in patterns)) > MOST_PERIOD:
            raise ValueError("multiples and endings hardly ever meet: give fewer")
        for value in self.heaps:
            if getattr(self, "learnt", None) is None and not self.declares(self._heap_text(value)):
                raise ValueError(f"heap {value} lies outside the range: correct it")
        return self

    @property
    def _declared_heaps(self) -> bool:
        return bool(self.heaps or self.patterns)

    def _heap_text(self, value: Any) -> str:
        """A heap as a cell has it."""
        return str(value)


class HeapedNumbers(HeapedColumn):
    """Numbers may be declared to end alike."""

    multiples: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """A number of which many values are multiples (50, or 0.5), known in public; see ``heaps``."""
    endings: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    """Last digits that many values have (0.99 for prices, 99 for whole ones), known in public; see
    ``heaps``."""

    @property
    def unit(self) -> Fraction:
        """The distance of two points."""
        return Fraction(1)

    heap_keys = (*HeapedColumn.heap_keys, "multiples", "endings")

    @property
    def patterns(self) -> tuple[Ending, ...]:
        pairs = [
            (ending, 10 ** len(str(int(ending))) if ending >= 1 else 1) for ending in self.endings
        ]
        pairs += [] if self.multiples is None else [(0, self.multiples)]
        found = []
        for number, distance in pairs:
            modulus = self._units(distance)
            if not 2 <= modulus <= MOST_MODULUS:
                raise ValueError(
                    f"values that end alike are to be {distance:.9g} apart, which has to be 2 to "
                    f"{MOST_MODULUS:,} steps of the column: correct multiples or endings"
                )
            found.append(Ending(remainder=self._units(number), modulus=modulus))
        return tuple(sorted(found, key=lambda ending: -ending.modulus))

    def _units(self, number: float) -> int:
        """A number as so many units."""
        units = Fraction(repr(number)) / self.unit
        if units.denominator != 1:
            raise ValueError(f"no value of the column can end with {number:.9g}: correct it")
        return int(units)


class SpreadColumn(HeapedColumn):
    """A column of which every value is a point, and every code a run of points."""

    counted: Counted | None = None
    """Rows on frequent values, as they were learnt and paid for."""

    periods: ClassVar[tuple[int, ...]] = (10, 100, 1000)
    """Moduli of the endings that are looked for, each a divisor of the next."""

    @model_validator(mode="after")
    def _check_counted(self) -> Self:
        if self.counted is not None and len(self.counted.rows) != len(self.heaps):
            raise ValueError("counted has not as many rows as there are heaps: leave it out")
        return self

    @property
    def counts_heaps(self) -> bool:
        return self.has_heaps and self.counted is None

    @property
    def _declared_heaps(self) -> bool:
        return self.counted is None and super()._declared_heaps

    @property
    def is_open(self) -> bool:
        return self.counts_heaps

    @property
    def open_keys(self) -> tuple[str, ...]:
        given = {key: getattr(self, key, None) for key in self.heap_keys if self.is_open}
        return tuple(key for key, value in given.items() if value)

    @abstractmethod
    def point_ends(self) -> tuple[Codes, Codes]:
        """The first and the last point of every code that means values."""

    @abstractmethod
    def points_of(self, numbers: NDArray[Any]) -> Codes:
        """The points of values, as :meth:`numbers` gives them.

        Those beyond the range are moved to its ends, or left out where they count as missing.
        """

    @abstractmethod
    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        """The values at points."""

    @property
    @abstractmethod
    def heap_points(self) -> Codes:
        """The points of the heaps."""

    @abstractmethod
    def heaps_at(self, points: Codes) -> tuple[Any, ...]:
        """Points as values that ``heaps`` takes."""

    def marks(self, points: Codes) -> Codes:
        """Numbers of the points of which endings are remainders; by default the points."""
        return points

    def positions(self, points: Codes) -> NDArray[np.float64]:
        """Where the points lie on the scale of the values, in any unit."""
        return points.astype(np.float64)
