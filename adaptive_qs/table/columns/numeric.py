"""Columns with a range: integers and numbers, in bins that are declared or that a run learns."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from adaptive_qs.domain import BinLabel
from adaptive_qs.pages.words import first_of
from adaptive_qs.table.columns.base import (
    CellType,
    Draft,
    PrivateColumn,
    bin_label,
    binning,
    cells,
    np,
    pa,
    pc,
    spelled,
)
from adaptive_qs.table.columns.category import MAX_EXACT, CategoricalColumn, Integer64
from adaptive_qs.table.columns.spread import HeapedNumbers, RangeColumn, SpreadColumn
from adaptive_qs.table.text import DecimalSign, GroupSign, Spelling, read_integer, read_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adaptive_qs.table.columns.base import Codes
    from adaptive_qs.table.profile import Profile

Learnt = Literal["min", "max", "bins"]

BinCount = Annotated[int, Field(ge=1, le=2**24)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

INTEGER_LIMIT = 10**18 - 1
"""Largest magnitude of a bound of integers."""
MOST_DECIMALS, MOST_STEPS = 9, 10**15
"""Decimals of a proposed column, and numbers from 0 on with these, which a double tells apart."""
PLAIN_LIMIT = 1e10
"""Arrow writes doubles from here on with an exponent."""
WIDE_SPAN = 6
"""From so many orders of magnitude on a range is worth a word."""
OWN_BINS = 3
"""Values with a bin of their own that a summary names."""
PARTS = 1 << 30
"""Parts of a bin of numbers without decimals in which the density of values is constant."""
WIDTH, MOST_BINS = 100, 20
"""Of a range without declared ends, and of its bins, where the audit generates rows."""


class NumberColumn(HeapedNumbers):
    """A column whose cells may hold numbers in the form of a country.

    Cells of text are read in that form and no other, so that 1.234 is never taken for another
    number; CSV is written in it. Numbers in tables with types are what they are.
    """

    decimal: DecimalSign = "."
    """The sign before the decimals in text: 1234.5 or 1234,5."""
    thousands: GroupSign | None = None
    """What parts groups of three digits in text: 1.234,5 with "." (and decimal ","). Cells may do
    without, CSV is written with it. " " takes no-break spaces as well."""

    @cached_property
    def spelling(self) -> Spelling:
        """How numbers are written in text."""
        return Spelling(self.decimal, self.thousands or "")

    def plain(self, values: pa.Array) -> pa.Array:
        return cells.numbers_read(values, self.spelling)

    def csv_texts(self, values: pa.Array) -> pa.Array:
        return cells.numbers_written(super().csv_texts(values), self.spelling)

    @model_validator(mode="after")
    def _check_spelling(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}: change one of them")
        return self


class BinnedColumn(NumberColumn, SpreadColumn, RangeColumn):
    """Integers or numbers, most of them in bins."""

    numeric = True
    kind: ClassVar[Hashable] = "numbers"
    review: ClassVar = RangeColumn.review | {
        "bins": "round or usual limits? A bin each for 0, top codes and the like?"
    }
    number_type: ClassVar[CellType]
    """What plain cells may be in tables with types."""

    @property
    def cell_types(self) -> tuple[CellType, ...]:
        return (self.number_type,) if self.spelling.plain else ()

    def _range_in_words(self, span: str, bins: bool, own: list[str]) -> str:
        """The range, the number of bins and which values have one of their own."""
        beyond = ", clipped beyond" if self.outside == "clip" else ""
        if not bins:
            return span + beyond
        words = f"{span} in {self.num_values:,} bin{'s' if self.num_values > 1 else ''}"
        if own:
            words += f", own bin{'s' if len(own) > 1 else ''}: {first_of(own, OWN_BINS)}"
        return words + beyond

    def amounts(self, values: pa.Array) -> NDArray[np.float64]:
        numbers, readable = cells.as_numbers(self.plain(values))
        return np.where(readable, numbers, np.nan)

    def amount_of(self, text: str) -> float | None:
        return read_number(text)

    def _kept(self, numbers: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
        """Numbers moved to the ends of a range, or without those outside it."""
        if self.outside == "missing":
            return numbers[(low <= numbers) & (numbers <= high)]
        return np.clip(numbers, low, high)


class IntegerColumn(BinnedColumn):
    """Integers from min to max, one code each or grouped into bins."""

    type: Literal["integer"]
    min: Integer64
    """Smallest value."""
    max: Integer64
    """Largest value."""
    bins: BinCount | None = None
    """Number of bins of equal width (up to one)."""
    bin_starts: tuple[Integer64, ...] | None = None
    """First value of every bin, ascending, the first one being min."""
    heaps: tuple[Integer64, ...] = ()
    learnt: Annotated[tuple[Learnt, ...], Field(min_length=1)] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    @cached_property
    def starts(self) -> tuple[int, ...] | None:
        """First value of every bin; None when every integer has its own code."""
        if self.bins is not None:
            width = self.max - self.min + 1
            return tuple(self.min + i * width // self.bins for i in range(self.bins))
        return self.bin_starts

    @property
    def num_values(self) -> int:
        return self.max - self.min + 1 if self.starts is None else len(self.starts)

    def declares(self, text: str) -> bool:
        value = read_integer(self.spelling.read(text) or "")
        return value is not None and self.min <= value <= self.max

    def _check_values(self) -> None:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: exchange them")
        if self.bins is not None and self.bin_starts is not None:
            raise ValueError("both bins and bin_starts are given: keep one")
        if self.bins is not None and self.bins > self.max - self.min + 1:
            raise ValueError(f"{self.bins} bins are more than the integers from min to max")
        if self.bin_starts is not None:
            starts = (*self.bin_starts, self.max + 1)
            if starts[0] != self.min or any(a >= b for a, b in pairwise(starts)):
                raise ValueError("bin_starts must begin with min and ascend up to max at most")

    @property
    def bin_ends(self) -> tuple[int, ...] | None:
        return None if self.bin_starts is None else (*self.bin_starts, self.max + 1)

    @property
    def scale(self) -> Hashable:
        return "integer", self.min, self.max, self.starts

    def ends(self, codes: Codes) -> tuple[Codes, Codes]:
        """First and last integer of every code."""
        if self.starts is None:
            return codes + self.min, codes + self.min
        starts = np.array(self.starts, dtype=np.int64)
        return starts[codes], np.append(starts[1:] - 1, self.max)[codes]

    @property
    def limits(self) -> tuple[int, int]:
        return self.min, self.max

    @property
    def summary(self) -> str:
        pairs = pairwise((*(self.starts or ()), self.max + 1))
        own = [str(start) for start, end in pairs if end == start + 1]
        return self._range_in_words(f"{self.min} to {self.max}", self.starts is not None, own)

    def read(self, values: pa.Array) -> Codes:
        numbers, readable = cells.as_integers(values)
        inside = np.clip(numbers, self.min, self.max)
        if self.starts is None:
            codes = inside - self.min
        else:
            codes = np.searchsorted(np.array(self.starts), inside, side="right") - 1
        return self._refused(codes, readable, inside == numbers)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        first, last = self.ends(codes)
        return pa.array(first if self.starts is None else rng.integers(first, last, endpoint=True))

    resolution: ClassVar = 1.0

    def of_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        known = ~np.isnan(amounts)
        return pa.array(np.rint(np.where(known, amounts, 0)).astype(np.int64), mask=~known)

    def value_labels(self) -> list[str]:
        if self.starts is None:
            return [str(value) for value in range(self.min, self.max + 1)]
        return [
            str(start) if end == start + 1 else bin_label(str(start), str(end - 1))
            for start, end in pairwise((*self.starts, self.max + 1))
        ]

    @classmethod
    def draft(cls, name: str, profile: Profile) -> Draft | None:
        """Where all cells are integers and neither labels nor identifiers."""
        if not (profile.numeric and profile.integers):
            return None
        if labels := CategoricalColumn.draft(name, profile):
            return labels

        rows = profile.filled
        points, weights, clip, note = _trimmed(profile)
        low, high = int(points[0]), int(points[-1])
        if max(abs(low), abs(high)) >= MAX_EXACT:
            return Draft(None, "an identifier: integers of more than 15 digits")
        years = low >= binning.YEARS[0] and high <= binning.YEARS[1]
        if not years and (reason := spelled.identifier(name, profile)):
            return Draft(None, reason)
        most, codes = binning.bins_for(rows), binning.codes_for(rows)
        if high - low < codes:
            return Draft({"type": "integer", "min": low, "max": high, **clip}, note)
        starts = binning.year_starts(points, weights) or binning.round_starts(points, weights, most)
        if starts is None:
            edges = binning.propose_edges(points, weights, binning.Grid(0), most, codes)
            starts = [*(int(edge) for edge in edges[:-1]), int(np.floor(edges[-1])) + 1]
            note = note or _spanning(points)
        content: dict[str, Any] = {"type": "integer", "min": starts[0], "max": starts[-1] - 1}
        if len(starts) - 1 < starts[-1] - starts[0]:
            content["bin_starts"] = starts[:-1]
            content |= binning.private_heaps(points, weights, starts)
        return Draft({**content, **clip}, note)

    def numbers(self, values: pa.Array) -> Codes:
        return cells.as_integers(self.plain(values))[0]

    def point_ends(self) -> tuple[Codes, Codes]:
        return self.ends(np.arange(self.num_values))

    def points_of(self, numbers: NDArray[Any]) -> Codes:
        kept: Codes = self._kept(numbers, self.min, self.max)
        return kept

    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        return pa.array(points)

    @property
    def heap_points(self) -> Codes:
        return np.array(self.heaps, dtype=np.int64)

    def heaps_at(self, points: Codes) -> tuple[int, ...]:
        return tuple(points.tolist())

    number_type: ClassVar[CellType] = "integer"

    def _beyond(self) -> str:
        return self.spelling.write(str(self.max + 1))


class NumericColumn(BinnedColumn):
    """Real numbers in bins [edge, next edge), the last one closed."""

    type: Literal["numeric"]
    min: Finite | None = None
    """Smallest value (with max and bins, instead of edges)."""
    max: Finite | None = None
    """Largest value."""
    bins: BinCount | None = None
    """Number of bins of equal width."""
    edges: tuple[Finite, ...] | None = None
    """Ends of the bins, ascending: one more than there are bins."""
    decimals: Annotated[int, Field(ge=0, le=MOST_DECIMALS)] | None = None
    """Decimal places of decoded values; unrounded when absent."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Decoded values are multiples of this number (0.5, 0.05); it needs decimals."""
    heaps: tuple[Finite, ...] = ()
    learnt: Annotated[tuple[Learnt, ...], Field(min_length=1)] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    @cached_property
    def bin_edges(self) -> tuple[float, ...]:
        """Ends of the bins, ascending: num_values + 1 of them."""
        if self.edges is not None:
            return self.edges
        assert self.min is not None
        assert self.max is not None
        assert self.bins is not None
        low, high, n = self.min, self.max, self.bins
        return (low, *(low * (1 - i / n) + high * (i / n) for i in range(1, n)), high)

    @cached_property
    def grid(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """First and last number that a bin decodes to, in units of 10^-decimals, for every bin.

        None without decimals. All are multiples of `units`.
        """
        if self.decimals is None:
            return None
        each = self.units
        scaled = [Decimal(repr(edge)).scaleb(self.decimals) / each for edge in self.bin_edges]
        first = [int(edge.to_integral_value(ROUND_CEILING)) for edge in scaled]
        last = [start - 1 for start in first[1:-1]] + [math.floor(scaled[-1])]
        return tuple(k * each for k in first[:-1]), tuple(k * each for k in last)

    @property
    def units(self) -> int:
        """The step in units of 10^-decimals; 1 without a step."""
        if self.step is None or self.decimals is None:
            return 1
        return int(Decimal(repr(self.step)).scaleb(self.decimals))

    @property
    def num_values(self) -> int:
        return len(self.bin_edges) - 1

    def declares(self, text: str) -> bool:
        value = read_number(self.spelling.read(text) or "")
        return value is not None and self.bin_edges[0] <= value <= self.bin_edges[-1]

    def _check_values(self) -> None:
        by_count = (self.min, self.max, self.bins)
        if self.edges is None and None in by_count:
            raise ValueError("give either edges, or min and max and bins")
        if self.edges is not None and by_count != (None, None, None):
            raise ValueError("both edges and min, max or bins are given: keep one")
        edges = self.bin_edges
        if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)):
            raise ValueError("the edges of the bins must be two or more and ascend")
        if self.step is not None:
            self._check_step(self.step)
        if self.decimals is not None and self.grid is not None:
            if max(abs(edges[0]), abs(edges[-1])) * 10**self.decimals >= 2**53:
                raise ValueError("the range with these decimals exceeds 15 digits: use fewer")
            if any(first > last for first, last in zip(*self.grid)):
                numbers = f"number with {self.decimals} decimals"
                if self.step is not None:
                    numbers = f"multiple of the step {self.step:.9g}"
                raise ValueError(f"a bin holds no {numbers}: use wider bins")

    def _check_step(self, step: float) -> None:
        if self.decimals is None:
            raise ValueError("step is given without decimals: give those of the step")
        if Decimal(repr(step)).scaleb(self.decimals) % 1:
            raise ValueError(f"step {step:.9g} has more than {self.decimals} decimals: give more")

    @property
    def summary(self) -> str:
        """The range, also in orders of magnitude where they are many, and the bins."""
        low, high = self.bin_edges[0], self.bin_edges[-1]
        single = self._single_values()
        own = [f"{value:.9g}" for value in single if value is not None]
        if self.grid is not None:
            high = self.grid[1][-1] / 10 ** (self.decimals or 0)
        closed = [value is not None and self.grid is None for value in single]
        ends = [low, *(edge for edge, end in zip(self.bin_edges[1:], closed) if not end)]
        sizes = [abs(edge) for edge in ends if edge]
        orders = math.log10(max(sizes)) - math.log10(min(sizes)) if sizes else 0
        wide = f", {orders:.0f} orders of magnitude," if orders >= WIDE_SPAN else ""
        return self._range_in_words(f"{low:.9g} to {high:.9g}{wide}", True, own)

    def _single_values(self) -> list[float | None]:
        """Return the value of each bin that has only one, None for the others."""
        if self.grid is not None:
            unit = 10 ** (self.decimals or 0)
            return [a / unit if a == b else None for a, b in zip(*self.grid)]
        return [a if b == math.nextafter(a, b) else None for a, b in pairwise(self.bin_edges)]

    @property
    def bin_ends(self) -> tuple[float, ...]:
        return self.bin_edges

    @property
    def scale(self) -> Hashable:
        return "numeric", self.bin_edges

    def ends(self, codes: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """First and last number of every code, on the grid where there is one."""
        if self.grid is not None and self.decimals is not None:
            first, last = np.array(self.grid)[:, codes] / 10**self.decimals
            return first, last
        edges = np.array(self.bin_edges)
        return edges[codes], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])[codes]

    def read(self, values: pa.Array) -> Codes:
        numbers, readable = cells.as_numbers(values)
        edges = np.array(self.bin_edges)
        inside = np.clip(numbers, edges[0], edges[-1])
        codes = np.searchsorted(edges[:-1], inside, side="right") - 1
        return self._refused(codes, readable, inside == numbers)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """Numbers, uniform in their bins, on the grid of decimals and step where there is one."""
        if self.grid is not None and self.decimals is not None:
            first, last = np.array(self.grid) // self.units
            steps = rng.integers(first[codes], last[codes], endpoint=True)
            return pa.array(steps * self.units / 10**self.decimals)
        edges = np.array(self.bin_edges)
        low, high = edges[codes], edges[codes + 1]
        share = rng.random(codes.shape)
        return pa.array(np.clip(low * (1 - share) + high * share, low, np.nextafter(high, low)))

    @property
    def resolution(self) -> float:
        return 0.0 if self.decimals is None else self.units / 10**self.decimals

    def csv_texts(self, values: pa.Array) -> pa.Array:
        ends = self.bin_edges[0], self.bin_edges[-1]
        if self.decimals is not None and max(map(abs, ends)) >= PLAIN_LIMIT:
            texts = values.cast(pa.decimal128(38, self.decimals)).cast(pa.string())
            values = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
            values = pc.replace_substring_regex(values, r"\.$", "")
        return super().csv_texts(values)

    def of_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        if self.decimals is not None:
            steps = np.rint(amounts * 10**self.decimals / self.units)
            amounts = steps * self.units / 10**self.decimals
        return pa.array(amounts, mask=np.isnan(amounts))

    def value_labels(self) -> list[str]:
        """The bins as intervals, in the shortest texts that read back as the same numbers."""
        texts = [repr(edge).removesuffix(".0") for edge in self.bin_edges]
        bins = [BinLabel(f"[{a}, {b})", a, b, open=True) for a, b in pairwise(texts)]
        if self.grid is None:
            bins = [
                label if value is None else BinLabel(text, text, text)
                for label, value, text in zip(bins, self._single_values(), texts)
            ]
        bins[-1] = BinLabel(f"[{texts[-2]}, {texts[-1]}]", texts[-2], texts[-1])
        return [*bins]

    @classmethod
    def draft(cls, name: str, profile: Profile) -> Draft | None:
        """Where all cells are numbers, and some are no integers."""
        if not profile.numeric or profile.integers:
            return None

        points, weights, clip, note = _trimmed(profile)
        low, high = float(points[0]), float(points[-1])
        exact = profile.decimals <= MOST_DECIMALS
        exact &= max(abs(low), abs(high)) * 10**profile.decimals < MOST_STEPS
        grid = binning.Grid(profile.decimals if exact else None)
        if exact and not profile.too_many:  # else some of the numbers are merged with others
            grid = binning.grid_of(points, profile.decimals)
        most = binning.bins_for(profile.filled), binning.codes_for(profile.filled)
        edges = binning.propose_edges(points, weights, grid, *most)
        ascending = len(edges) > 1 and all(a < b for a, b in pairwise(edges))
        if not (ascending and -np.inf < edges[0] <= low and high <= edges[-1] < np.inf):
            return Draft(None, "numbers too large to bin: write the column by hand")
        content: dict[str, Any] = {"type": "numeric", "edges": edges, **clip}
        if grid.decimals is not None:
            content["decimals"] = grid.decimals
            content |= binning.private_heaps(points, weights, edges)
        if grid.multiple > 1:
            content["step"] = grid.step
        return Draft(content, note or _spanning(points))

    number_type: ClassVar[CellType] = "number"

    @property
    def unit(self) -> Fraction:
        return Fraction(self.units, 10 ** (self.decimals or 0))

    @property
    def marked(self) -> bool:
        return self.decimals is not None

    def numbers(self, values: pa.Array) -> NDArray[np.float64]:
        return cells.as_numbers(self.plain(values))[0]

    def point_ends(self) -> tuple[Codes, Codes]:
        """Steps of the grid; without decimals, ``PARTS`` parts of every bin."""
        if self.grid is not None:
            first, last = np.array(self.grid) // self.units
            return first, last
        first = np.arange(self.num_values) * PARTS
        return first, first + PARTS - 1

    def points_of(self, numbers: NDArray[Any]) -> Codes:
        edges = np.array(self.bin_edges)
        kept = self._kept(numbers, edges[0], edges[-1])
        codes = np.searchsorted(edges[:-1], kept, side="right") - 1
        first, last = self.point_ends()
        steps = np.rint(kept * 10 ** (self.decimals or 0) / self.units).astype(np.int64)
        points: Codes = np.clip(steps, first[codes], last[codes])
        return points

    def positions(self, points: Codes) -> NDArray[np.float64]:
        if self.grid is not None:
            return super().positions(points)
        edges, (codes, parts) = np.array(self.bin_edges), np.divmod(points, PARTS)
        low, high = edges[codes], edges[np.minimum(codes + 1, edges.size - 1)]
        positions: NDArray[np.float64] = low + (high - low) * (parts / PARTS)
        return positions

    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        if self.grid is not None:
            return pa.array(points * self.units / 10 ** (self.decimals or 0))
        edges, codes = np.array(self.bin_edges), points // PARTS
        low, high = edges[codes], edges[codes + 1]
        share = (points % PARTS + rng.random(points.size)) / PARTS
        return pa.array(np.clip(low * (1 - share) + high * share, low, np.nextafter(high, low)))

    @property
    def heap_points(self) -> Codes:
        return self.points_of(np.array(self.heaps, dtype=np.float64))

    def heaps_at(self, points: Codes) -> tuple[float, ...]:
        return tuple((points * self.units / 10 ** (self.decimals or 0)).tolist())

    def _beyond(self) -> str:
        return self.spelling.write(repr(abs(self.bin_edges[-1]) * 2 + 1))


class PrivateRangeColumn(NumberColumn, PrivateColumn):
    """Ordered values in bins of about equally many rows each, ends included where not declared."""

    key = "private_bins"
    whole: ClassVar[bool]
    """Whether the values are integers."""
    greatest: ClassVar[int | float]
    """Largest magnitude of a value."""

    private_bins: Annotated[int, Field(ge=2, le=1000)]
    """How many bins at most; where they lie is learnt from the rows and paid for."""
    ordered: bool = True
    """Whether the order of the values means something (for prefix and range queries)."""
    outside: Literal["clip", "missing"] = "clip"
    """What happens to values outside the range, declared or learnt: "clip" them to the nearest
    end, or count them, and cells that cannot be read, as "missing"."""
    min: int | float | None = None
    max: int | float | None = None

    @property
    def num_values(self) -> int:
        return self.private_bins

    @property
    def learnt(self) -> tuple[Learnt, ...]:
        """What a run will learn from the rows."""
        ends: dict[Learnt, Any] = {"min": self.min, "max": self.max}
        return (*(end for end, declared in ends.items() if declared is None), "bins")

    @property
    def span(self) -> tuple[Any, Any]:
        """Smallest and largest value that the column can hold."""
        low = -self.greatest if self.min is None else self.min
        return low, self.greatest if self.max is None else self.max

    def declares(self, text: str) -> bool:
        text = self.spelling.read(text) or ""
        value = read_integer(text) if self.whole else read_number(text)
        return value is not None and self.span[0] <= value <= self.span[1]

    @property
    def probe(self) -> IntegerColumn | NumericColumn:
        """One bin over everything."""
        low, high = self.span
        return cast(Self, self.without_heaps())._ready((low, high + self.whole), None)

    def resolved(self, edges: Sequence[Any]) -> IntegerColumn | NumericColumn:
        """The column with bins [edge, next edge), of numbers the last one closed, public now."""
        return self._ready(edges, self.learnt)

    def stand_in(self) -> IntegerColumn | NumericColumn:
        """With bins of about equal width, the ends ``WIDTH`` apart where not declared."""
        low = self.min
        if low is None:
            low = 0 if self.max is None else self.max - WIDTH
        high = low + WIDTH if self.max is None else self.max
        count = min(self.private_bins, MOST_BINS)
        if self.places is None:
            return self.resolved(np.linspace(low, high, count + 1).tolist())
        unit = 10**self.places
        ends = round(low * unit), round(high * unit) + self.whole
        steps = np.unique(np.rint(np.linspace(*ends, count + 1)))
        return self.resolved([int(k) for k in steps] if self.whole else (steps / unit).tolist())

    @property
    def places(self) -> int | None:
        """Decimal places of all values; None where they are any numbers."""
        return getattr(self, "decimals", 0)

    def numbers(self, values: pa.Array) -> NDArray[Any]:
        read = cells.as_integers if self.whole else cells.as_numbers
        return np.clip(read(self.plain(values))[0], *self.span)

    @abstractmethod
    def _ready(
        self, edges: Sequence[Any], learnt: tuple[Learnt, ...] | None
    ) -> IntegerColumn | NumericColumn:
        """The column with bins between these edges."""

    def _declared(self) -> dict[str, Any]:
        return self.model_dump(exclude={"private_bins", "min", "max"})

    def _check_values(self) -> None:
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min} is not below max {self.max}: nothing is to be learnt")
        for marker in self.missing:
            if self.declares(marker):
                raise ValueError(
                    f"missing marker {marker!r} may lie inside the range: declare min and max "
                    "so that it lies outside"
                )


class PrivateIntegerColumn(PrivateRangeColumn):
    """Integers, clipped to min and max where these are declared."""

    whole = True
    greatest = INTEGER_LIMIT
    type: Literal["integer"]
    min: Integer64 | None = None
    """Smallest value; learnt when absent."""
    max: Integer64 | None = None
    """Largest value; learnt when absent."""
    heaps: tuple[Integer64, ...] = ()

    def _ready(self, edges: Sequence[int], learnt: tuple[Learnt, ...] | None) -> IntegerColumn:
        low, *_, high = edges
        bins = self._declared() | {"bin_starts": tuple(edges[:-1]), "learnt": learnt}
        return IntegerColumn(**bins, min=low, max=high - 1)

    def _check_values(self) -> None:
        super()._check_values()
        if self.private_bins > self.span[1] - self.span[0] + 1:
            raise ValueError(f"{self.private_bins} bins are more than the integers from min to max")


class PrivateNumericColumn(PrivateRangeColumn):
    """Real numbers, clipped to min and max where these are declared."""

    whole = False
    greatest = sys.float_info.max
    type: Literal["numeric"]
    min: Finite | None = None
    """Smallest value; learnt when absent."""
    max: Finite | None = None
    """Largest value; learnt when absent."""
    heaps: tuple[Finite, ...] = ()
    decimals: Annotated[int, Field(ge=0, le=MOST_DECIMALS)] | None = None
    """Decimal places of decoded values; unrounded when absent."""

    @property
    def unit(self) -> Fraction:
        return Fraction(1, 10 ** (self.decimals or 0))

    @property
    def marked(self) -> bool:
        return self.decimals is not None

    def _ready(self, edges: Sequence[float], learnt: tuple[Learnt, ...] | None) -> NumericColumn:
        declared = self._declared() | ({} if learnt else {"decimals": None})
        return NumericColumn(**declared, edges=tuple(edges), learnt=learnt)

    def _check_values(self) -> None:
        super()._check_values()
        if self.decimals is None:
            return
        for end in (self.min, self.max):
            if end is not None and end != round(end, self.decimals):
                raise ValueError(f"{end} has more than {self.decimals} decimals: round it")
            if end is not None and abs(end) * 10**self.decimals >= 2**53:
                raise ValueError("the range with these decimals exceeds 15 digits: use fewer")


# What drafts of integers and of numbers ask.


def _trimmed(
    profile: Profile,
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any], str]:
    """The points and weights but for absurd ones, and what to say in the schema and of it."""
    points, weights = profile.points.copy(), profile.weights
    points[0] = profile.low  # merging may have moved the first
    kept = binning.without_absurd(points, weights)
    if kept.stop - kept.start == len(points):
        return points, weights, {}, ""
    note = (
        'a few values lie far from all others: "outside": "clip" moves them to the end of the bins'
    )
    return points[kept], weights[kept], {"outside": "clip"}, note


def _spanning(points: NDArray[np.float64]) -> str:
    """A note where most numbers differ by many orders of magnitude."""
    sizes = np.abs(points[points != 0])
    if len(sizes) < 2:
        return ""
    first, last = np.log10(np.quantile(sizes, (0.05, 0.95)))
    if last - first < WIDE_SPAN:
        return ""
    return "the values span many orders of magnitude: a mistake, or several units?"
