"""Columns of numbers and moments: their range, their bins, and their frequent values.

Values lie on points: integers, multiples of a step, days, seconds. A heap is a value that many rows
share, and an ending is what many values have in common: 99 cents, whole hundreds, the first day of
a month. How many rows have them is learnt from the private rows and paid for.
:mod:`adaptive_qs.table.bin_density` draws values by it. The bins of numbers can be learnt as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from adaptive_qs.pages.words import join_first
from adaptive_qs.table.columns import base
from adaptive_qs.table.columns.base import cells, np, pa, pc
from adaptive_qs.table.text import DecimalSign, GroupSign, Spelling, read_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from adaptive_qs.table.cells import Mask
    from adaptive_qs.table.columns.base import Codes

Outside = Literal["refuse", "clip", "missing"]
"""What happens to values outside the range: the table is refused, they move to the nearest end, or
they count as missing (then unreadable cells do as well).
"""
_NO_UNIT = r"-0-9+=@|!\x22\x27\u2019()&*^<>;:{}\[\]\\\x00-\x1f\x7f"
Unit = Annotated[
    str, Field(max_length=20, pattern=rf"^([^{_NO_UNIT}]*[^{_NO_UNIT}.,\s][^{_NO_UNIT}]*)?$")
]
"""What stands before or behind numbers: no digit, no sign that makes a formula of a cell, and not
signs of groups alone."""
Learnt = Literal["min", "max", "bins"]
"""Parts of a column of numbers that a run learns."""

MOST_HEAPS = 1000
"""The largest number of values of one column whose rows are counted."""


class Ending(BaseModel, frozen=True, extra="forbid"):
    """Values that end alike: points that leave a remainder, and the rows counted on them."""

    remainder: Annotated[int, Field(ge=0)]
    """What is left when the mark of a value is divided by the modulus. Marks count steps of the
    column (units, hundredths, seconds), and of dates 31 for every month since January and 1 for
    every day since the first."""
    modulus: Annotated[int, Field(ge=2)]
    rows: int = 0
    """Rows with such values, with noise; rows on an ending that comes before are not among them."""


class Counted(BaseModel, frozen=True, extra="forbid"):
    """Noisy numbers of rows with frequent values, as the program notes them."""

    rows: tuple[int, ...] = ()
    """Rows with each of the heaps, with noise."""
    endings: tuple[Ending, ...] = ()
    """Endings that many rows have."""


def find_kinds(marks: Codes, endings: Sequence[Ending]) -> Codes:
    """Return the position of the first ending of each mark, or their number if it has none."""
    kinds = np.full(marks.size, len(endings))
    for place in reversed(range(len(endings))):
        kinds[marks % endings[place].modulus == endings[place].remainder] = place
    return kinds


class RangeColumn(base.ColumnBase):
    """A column of ordered values between two public bounds, most of them in bins.

    Every value is a point, and every code an interval of points.
    """

    ordered: bool = True
    """Whether the order of the values means something (for prefix and range queries)."""
    outside: Outside = "refuse"
    """What happens to values outside the range: "refuse" them, "clip" them to the nearest end, or
    count them, and cells that cannot be read, as "missing"."""
    heaps: tuple[Any, ...] = ()
    """Values that many rows share, known in public: how many is learnt with noise, so that values
    drawn from wide bins and periods keep them."""
    private_heaps: Annotated[int, Field(ge=1, le=MOST_HEAPS)] | None = None
    """How many such values, at most, are to be found in the rows, and paid for; so are endings that
    many values have in common, such as 99 cents, whole hundreds or the first day of a month."""
    counted: Counted | None = None
    """Rows on frequent values, as they were learnt and paid for."""

    measured = True
    disclosed: ClassVar = "their bounds and bins"

    @property
    def topics(self) -> tuple[base.Topic, ...]:
        return ("limits", *super().topics)

    heap_keys: ClassVar[tuple[str, ...]] = ("heaps", "private_heaps")
    """Keys of a schema that say which values are frequent."""
    periods: ClassVar[tuple[int, ...]] = (10, 100, 1000)
    """Moduli of the endings that are searched, each a divisor of the next."""

    def _refused(self, codes: Codes, readable: Mask, inside: Mask) -> Codes:
        """Return the codes, with sentinels for cells that are no values of the range."""
        if self.outside != "clip":
            codes = np.where(inside, codes, base.OUTSIDE)
        return np.where(readable, codes, base.UNREADABLE)

    def _kept(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return numbers moved to the ends of the range, or without those outside it."""
        low, high = self.span
        if self.outside == "missing":
            return numbers[(low <= numbers) & (numbers <= high)]
        return np.clip(numbers, low, high)

    def undeclared_cell(self) -> str | None:
        return self._beyond() if self.outside == "clip" else super().undeclared_cell()

    @property
    @abstractmethod
    def span(self) -> tuple[Any, Any]:
        """Smallest and largest value that the column can hold."""

    @abstractmethod
    def _beyond(self) -> str:
        """Return a cell beyond the upper end of the range."""

    # Values on points.

    @abstractmethod
    def point_ends(self, codes: Codes | None = None) -> tuple[Codes, Codes]:
        """Return the first and the last point of codes that mean values, by default of all."""

    @abstractmethod
    def to_points(self, numbers: NDArray[Any]) -> Codes:
        """Return the points of values, as :meth:`numbers` returns them.

        Values beyond the range are moved to its ends, or dropped if they count as missing.
        """

    @abstractmethod
    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        """Return the values at points."""

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        return self.values_at(rng.integers(*self.point_ends(codes), endpoint=True), rng)

    @abstractmethod
    def points_between(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[Codes, Codes]:
        """Return the first and the last point of intervals of amounts, each inside one bin."""

    def weigh_between(self, low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.float64]:
        first, last = self.points_between(low, high)
        return np.maximum(last - first + 1.0, 0.0)

    def draw_between(
        self, low: NDArray[Any], high: NDArray[Any], rng: np.random.Generator
    ) -> pa.Array:
        return self.values_at(rng.integers(*self.points_between(low, high), endpoint=True), rng)

    def marks(self, points: Codes) -> Codes:
        """Return numbers of the points of which endings are remainders; by default the points."""
        return points

    def positions(self, points: Codes) -> NDArray[np.float64]:
        """Return where the points lie on the scale of the values, in any unit."""
        return points.astype(np.float64)

    # Frequent values.

    @property
    @abstractmethod
    def heap_points(self) -> Codes:
        """The points of the heaps."""

    @abstractmethod
    def heaps_at(self, points: Codes) -> tuple[Any, ...]:
        """Return points as values that ``heaps`` takes."""

    @property
    def has_heaps(self) -> bool:
        """Whether rows on frequent values are counted."""
        return bool(self.heaps) or self.private_heaps is not None

    @property
    def counts_heaps(self) -> bool:
        return self.has_heaps and self.counted is None

    @property
    def open_keys(self) -> tuple[str, ...]:
        given = self.heap_keys if self.counts_heaps else ()
        return tuple(key for key in given if getattr(self, key))

    def without_heaps(self) -> base.ColumnBase:
        none = {key: type(self).model_fields[key].default for key in self.heap_keys}
        return self.model_copy(update=none) if self.counts_heaps else self

    @property
    def has_points(self) -> bool:
        """Whether a point is one value, so that rows with it can be counted."""
        return True

    @model_validator(mode="after")
    def _check_heaps(self) -> Self:
        if self.counted is not None and len(self.counted.rows) != len(self.heaps):
            raise ValueError("counted does not have one number of rows for each heap. Remove it.")
        if not self.has_heaps:
            return self
        if not self.has_points:
            raise ValueError("heaps need decimals, with which values repeat. Declare the decimals.")
        if self.counts_heaps and self.heaps and self.private_heaps is not None:
            raise ValueError("heaps are declared, and private_heaps would find others. Keep one.")
        if len(self.heaps) > MOST_HEAPS:
            raise ValueError(f"{len(self.heaps)} heaps are declared. Use at most {MOST_HEAPS}.")
        base.refuse_duplicates(self.heaps)
        for value in self.heaps:
            if getattr(self, "learnt", None) is None and not self.declares(self._heap_text(value)):
                raise ValueError(f"heap {value} lies outside the range: correct it")
        return self

    def _heap_text(self, value: Any) -> str:
        """Return a heap as a cell has it."""
        return str(value)


class NumberColumn(RangeColumn):
    """Integers or numbers, in bins that are declared or that a run learns.

    Cells of text are read in the form of one country, so that 1.234 is never read as another
    number; CSV is written in it. Numbers in tables with types are themselves.
    """

    decimal: DecimalSign = "."
    """The sign before the decimals in text: 1234.5 or 1234,5."""
    thousands: GroupSign | None = None
    """What parts groups of three digits in text: 1.234,5 with "." (and decimal ","). Cells may do
    without, CSV is written with it. " " takes no-break spaces as well."""
    prefix: Unit = ""
    """What stands before each number in text, such as "$" or "EUR ", behind the sign."""
    suffix: Unit = ""
    """What stands behind each number in text, such as "%" or " km"."""
    fixed_decimals: Annotated[int, Field(ge=1, le=9)] | None = None
    """Decimals that every number has at least in CSV, zeros included: 902.10 with 2."""
    private_bins: Annotated[int, Field(ge=2, le=1000)] | None = None
    """The largest number of bins that a run learns from the rows and pays for, with about equally
    many rows each, and ends if these are not declared. Values outside the ends are clipped, or
    count as missing."""

    if TYPE_CHECKING:
        min: Any
        max: Any

    numeric = True
    kind: ClassVar[Hashable] = "numbers"
    bin_keys: ClassVar[tuple[str, ...]]
    """Keys of a schema that say where the bins lie."""
    whole: ClassVar[bool]
    """Whether the values are integers."""
    greatest: ClassVar[int | float]
    """Largest magnitude of a value."""
    number_type: ClassVar[base.CellType]
    """Type of plain cells in tables with types."""

    # What is still to be learnt.

    @property
    def is_unlearnt(self) -> bool:
        return self.private_bins is not None

    @property
    def open_keys(self) -> tuple[str, ...]:
        return ("private_bins",) if self.is_unlearnt else super().open_keys

    @property
    def to_learn(self) -> tuple[Learnt, ...]:
        """The parts that a run learns from the rows."""
        ends: dict[Learnt, Any] = {"min": self.min, "max": self.max}
        return (*(end for end, declared in ends.items() if declared is None), "bins")

    @property
    def span(self) -> tuple[Any, Any]:
        low = -self.greatest if self.min is None else self.min
        return low, self.greatest if self.max is None else self.max

    @property
    def probe(self) -> Self:
        if self.private_bins is None:
            return self
        return self._with_bins((self.span[0], self.span[1] + self.whole), None)

    @property
    @abstractmethod
    def places(self) -> int | None:
        """Decimal places of all values; None for any numbers."""

    def resolved(self, edges: Sequence[Any]) -> Self:
        """Return the column with public bins [edge, next edge), of numbers the last one closed."""
        return self._with_bins(edges, self.to_learn)

    def stand_in(self) -> Self:
        """Return a column with bins of about equal width, and ends 100 apart if needed."""
        if self.private_bins is None:
            return self
        low = self.min
        if low is None:
            low = 0 if self.max is None else self.max - 100
        high = low + 100 if self.max is None else self.max
        count = min(self.private_bins, 20)
        if self.places is None:
            return self.resolved(np.linspace(low, high, count + 1).tolist())
        unit = 10**self.places
        ends = round(low * unit), round(high * unit) + self.whole
        steps = np.unique(np.rint(np.linspace(*ends, count + 1)))
        return self.resolved([int(k) for k in steps] if self.whole else (steps / unit).tolist())

    def _with_bins(self, edges: Sequence[Any], learnt: tuple[Learnt, ...] | None) -> Self:
        content = self.model_dump(exclude={"private_bins", "min", "max"})
        if learnt is None:  # for checks of cells only
            content |= {key: type(self).model_fields[key].default for key in self.heap_keys}
        return type(self)(**content | {"learnt": learnt} | self._bins_between(edges, learnt))

    @abstractmethod
    def _bins_between(
        self, edges: Sequence[Any], learnt: tuple[Learnt, ...] | None
    ) -> dict[str, Any]:
        """Return the keys of a schema for bins between these edges."""

    def _check_values(self) -> None:
        if self.private_bins is None:
            self._check_bins()
            return
        for key in (*self.bin_keys, "learnt", "counted"):
            if getattr(self, key) is not None:
                raise ValueError(f"{key} and private_bins are both given: keep one")
        if "outside" not in self.model_fields_set:
            self.__dict__["outside"] = "clip"
        if self.outside == "refuse":
            raise ValueError('outside is "refuse" but bins are learnt: use "clip" or "missing"')
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min} is not below max {self.max}: nothing is to be learnt")
        self._check_ends()
        for marker in self.missing:
            if self.declares(marker):
                raise ValueError(
                    f"missing marker {marker!r} may lie inside the range: declare min and max "
                    "so that it lies outside"
                )

    @abstractmethod
    def _check_bins(self) -> None:
        """Raise ValueError if declared bins contradict each other."""

    @abstractmethod
    def _check_ends(self) -> None:
        """Raise ValueError if bins cannot be learnt between the declared ends."""

    # Numbers in text.

    @cached_property
    def spelling(self) -> Spelling:
        """The form of numbers in text."""
        return Spelling(self.decimal, self.thousands or "", self.prefix, self.suffix)

    def plain(self, values: pa.Array) -> pa.Array:
        return cells.numbers_read(values, self.spelling)

    def csv_texts(self, values: pa.Array) -> pa.Array:
        texts = values
        if self.fixed_decimals is not None:
            places = max(self.fixed_decimals, self.places or 0)
            texts = values.cast(pa.decimal128(38, places)).cast(pa.string())
            kept = rf"(\.[0-9]{{{self.fixed_decimals}}}[0-9]*?)0+$"
            texts = pc.replace_substring_regex(texts, kept, r"\1")
        return cells.numbers_written(super().csv_texts(texts), self.spelling)

    @model_validator(mode="after")
    def _check_spelling(self) -> Self:
        if self.fixed_decimals is not None and self.places is None:
            raise ValueError("fixed_decimals need decimals, to which values are rounded: add them")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}: change one of them")
        return self

    @property
    def cell_types(self) -> tuple[base.CellType, ...]:
        return (self.number_type,) if self.spelling.plain else ()

    def declares(self, text: str) -> bool:
        value = self._read_text(self.spelling.read(text) or "")
        return value is not None and self.span[0] <= value <= self.span[1]

    def _heap_text(self, value: float) -> str:
        return self.spelling.write(str(value))

    def _read_text(self, text: str) -> int | float | None:
        """Return the number in a plain text, None if it is none."""
        return read_number(text)

    def _as_numbers(self, values: pa.Array) -> tuple[NDArray[np.float64], Mask]:
        numbers, readable = cells.as_numbers(values)
        if self.places is not None:
            numbers = cells.without_dust(numbers, self.places)
        return numbers, readable

    def numbers(self, values: pa.Array) -> NDArray[Any]:
        read = cells.as_integers if self.whole else self._as_numbers
        numbers: NDArray[Any] = read(self.plain(values))[0]
        return np.clip(numbers, *self.span) if self.is_unlearnt else numbers

    def amounts(self, values: pa.Array) -> NDArray[np.float64]:
        numbers, readable = self._as_numbers(self.plain(values))
        return np.where(readable, numbers, np.nan)

    def read_amount(self, text: str) -> float | None:
        return read_number(text)

    def _describe_range(self, span: str, bins: bool, own: list[str]) -> str:
        beyond = ", clipped beyond" if self.outside == "clip" else ""
        if not bins:
            return span + beyond
        words = f"{span} in {self.num_values:,} bin{'s' if self.num_values > 1 else ''}"
        if own:
            words += f", own bin{'s' if len(own) > 1 else ''}: {join_first(own, 3)}"
        return words + beyond
