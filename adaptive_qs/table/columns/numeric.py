"""Columns with a range: integers and numbers, in bins that are declared or that a run learns."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Sequence
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from adaptive_qs.domain import BinLabel
from adaptive_qs.table.columns import base
from adaptive_qs.table.columns.base import TO_BE_LEARNT, CellType, Draft, cells, np, pa, pc
from adaptive_qs.table.columns.binned import Learnt, NumberColumn
from adaptive_qs.table.columns.category import MAX_EXACT, CategoricalColumn, Integer64
from adaptive_qs.table.text import read_integer, with_exponents

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adaptive_qs.table.columns.base import Codes
    from adaptive_qs.table.profile import Profile

BinCount = Annotated[int, Field(ge=1, le=2**24)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

PARTS = 1 << 30
"""Parts of a bin of numbers without decimals in which the density of values is constant."""


class IntegerColumn(NumberColumn):
    """Integers from min to max, one code each or grouped into bins."""

    type: Literal["integer"]
    min: Integer64 | None = None
    """Smallest value; can be left to be learnt with private_bins."""
    max: Integer64 | None = None
    """Largest value; can be left to be learnt with private_bins."""
    bins: BinCount | None = None
    """Number of bins of equal width (up to one)."""
    bin_starts: tuple[Integer64, ...] | None = None
    """First value of every bin, ascending, the first one being min."""
    step: Annotated[int, Field(ge=2, lt=10**18)] | None = None
    """Decoded values are multiples of this number, which every bin holds; others can be read."""
    exponents: bool = False
    """Whether CSV has whole numbers as R writes them: 1e+05 where that is shorter, and in one cell
    at least. They are floats in data frames, as they are with fixed_decimals."""
    heaps: tuple[Integer64, ...] = ()
    learnt: Annotated[tuple[Learnt, ...], Field(min_length=1)] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    whole = True
    greatest = 10**18 - 1
    places: ClassVar[int] = 0
    number_type: ClassVar[CellType] = "integer"
    bin_keys = ("bins", "bin_starts", "step")

    @property
    def resolution(self) -> float:
        return float(self.step or 1)

    @property
    def is_float(self) -> bool:
        """Whether data frames have floats, as programs read CSV with exponents or decimals."""
        return self.exponents or self.fixed_decimals is not None

    @cached_property
    def starts(self) -> tuple[int, ...] | None:
        """First value of every bin; None if every integer has its own code."""
        if self.bins is not None:
            low, high = self.span
            return tuple(low + i * (high - low + 1) // self.bins for i in range(self.bins))
        return self.bin_starts

    @property
    def num_values(self) -> int:
        if self.private_bins is not None:
            return self.private_bins
        low, high = self.span
        return high - low + 1 if self.starts is None else len(self.starts)

    def _read_text(self, text: str) -> int | None:
        return read_integer(text)

    def _check_bins(self) -> None:
        if self.min is None or self.max is None:
            raise ValueError("min or max is missing. Declare both, or private_bins.")
        if self.min > self.max:
            raise ValueError(
                f"min {self.min} is greater than max {self.max}. Swap or correct them."
            )
        if self.bins is not None and self.bin_starts is not None:
            raise ValueError("both bins and bin_starts are given: keep one")
        self._check_number(self.bins or 1)
        if self.bin_starts is not None:
            starts = (*self.bin_starts, self.max + 1)
            if starts[0] != self.min or any(a >= b for a, b in pairwise(starts)):
                raise ValueError("bin_starts must begin with min and ascend up to max at most")
        if self.step is not None:
            if self.starts is None:
                raise ValueError("step needs bins or bin_starts: add them")
            if np.subtract(*self.point_ends()).max() > 0:
                raise ValueError(f"a bin holds no multiple of the step {self.step}: use wider bins")

    def _check_ends(self) -> None:
        self._check_number(self.private_bins or 1)

    def _check_number(self, bins: int) -> None:
        if bins > self.span[1] - self.span[0] + 1:
            raise ValueError(f"{bins} bins are more than the integers from min to max")

    def _bins_between(
        self, edges: Sequence[int], learnt: tuple[Learnt, ...] | None
    ) -> dict[str, Any]:
        return {"min": edges[0], "max": edges[-1] - 1, "bin_starts": tuple(edges[:-1])}

    @property
    def bin_ends(self) -> tuple[int, ...] | None:
        return None if self.bin_starts is None else (*self.bin_starts, self.span[1] + 1)

    @property
    def scale(self) -> Hashable:
        return None if self.is_unlearnt else ("integer", self.min, self.max, self.starts)

    def ends(self, codes: Codes) -> tuple[Codes, Codes]:
        low, high = self.span
        if self.starts is None:
            return codes + low, codes + low
        starts = np.array(self.starts, dtype=np.int64)
        return starts[codes], np.append(starts[1:] - 1, high)[codes]

    @property
    def limits(self) -> tuple[int, int] | None:
        return None if self.is_unlearnt else self.span

    @property
    def summary(self) -> str:
        if self.is_unlearnt:
            return TO_BE_LEARNT
        pairs = pairwise((*(self.starts or ()), self.span[1] + 1))
        own = [str(start) for start, end in pairs if end == start + 1]
        return self._describe_range(f"{self.min} to {self.max}", self.starts is not None, own)

    def read(self, values: pa.Array) -> Codes:
        numbers, readable = cells.as_integers(values)
        inside = np.clip(numbers, *self.span)
        if self.starts is None:
            codes = inside - self.span[0]
        else:
            codes = np.searchsorted(np.array(self.starts), inside, side="right") - 1
        return self._refused(codes, readable, inside == numbers)

    def csv_texts(self, values: pa.Array) -> pa.Array:
        if self.exponents:
            coded = values.cast(pa.string()).dictionary_encode()
            texts = pa.array(with_exponents(coded.dictionary.to_pylist()), pa.string())
            values = texts.take(coded.indices)
        return super().csv_texts(values)

    def from_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        known, step = ~np.isnan(amounts), self.step or 1
        steps = np.rint(np.where(known, amounts, 0) / step) * step
        return pa.array(steps.astype(np.int64), mask=~known)

    def value_labels(self) -> list[str]:
        low, high = self.span
        if self.starts is None:
            return [str(value) for value in range(low, high + 1)]
        return [
            str(start) if end == start + 1 else base.bin_label(str(start), str(end - 1))
            for start, end in pairwise((*self.starts, high + 1))
        ]

    @classmethod
    def draft(cls, name: str, profile: Profile) -> Draft | None:
        """Return a draft if all cells are integers and neither labels nor identifiers."""
        if not (profile.numeric and profile.integers):
            return None
        if (labels := CategoricalColumn.draft(name, profile)) is not None:
            return labels
        content, note = profile.draft_integers(name, MAX_EXACT)
        return Draft(content and {"type": "integer", **content}, note)

    def point_ends(self, codes: Codes | None = None) -> tuple[Codes, Codes]:
        """Return the first and the last multiple of the step in codes."""
        codes = np.arange(self.num_values) if codes is None else codes
        return self.points_between(*self.ends(codes))

    def points_between(self, low: Codes, high: Codes) -> tuple[Codes, Codes]:
        """Return the first and the last multiple of the step in intervals."""
        step = self.step or 1
        return -(-low // step), high // step

    def to_points(self, numbers: Codes) -> Codes:
        """Return the points of values: the largest multiples of the step in their bins."""
        kept, step = self._kept(numbers), self.step or 1
        if self.starts is None or step == 1:
            return kept
        first, last = self.point_ends(np.searchsorted(self.starts, kept, side="right") - 1)
        return np.asarray(np.clip(kept // step, first, last))

    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        return cells.to_arrow(points * (self.step or 1))

    @property
    def heap_points(self) -> Codes:
        return self.to_points(np.array(self.heaps, dtype=np.int64))

    def heaps_at(self, points: Codes) -> tuple[int, ...]:
        return tuple((points * (self.step or 1)).tolist())

    def _beyond(self) -> str:
        return self.spelling.write(str(self.span[1] + 1))


class NumericColumn(NumberColumn):
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
    decimals: Annotated[int, Field(ge=0, le=9)] | None = None
    """Decimal places of decoded values; unrounded when absent."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Decoded values are multiples of this number (0.5, 0.05); it needs decimals."""
    heaps: tuple[Finite, ...] = ()
    learnt: Annotated[tuple[Learnt, ...], Field(min_length=1)] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    whole = False
    greatest = sys.float_info.max
    number_type: ClassVar[CellType] = "number"
    bin_keys = ("bins", "edges", "step")

    @property
    def span(self) -> tuple[float, float]:
        if self.is_unlearnt:
            return super().span
        return self.bin_edges[0], self.bin_edges[-1]

    @property
    def places(self) -> int | None:
        return self.decimals

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
        """First and last of every bin in units of 10^-decimals (multiples of `units`), or None."""
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
        return self.private_bins or len(self.bin_edges) - 1

    def _check_ends(self) -> None:
        if self.decimals is None:
            return
        ends = [end for end in (self.min, self.max) if end is not None]
        for end in ends:
            if end != round(end, self.decimals):
                raise ValueError(f"{end} has more than {self.decimals} decimals: round it")
        self._check_digits(ends)

    def _check_digits(self, ends: Iterable[float]) -> None:
        if max(map(abs, ends), default=0) * 10 ** (self.decimals or 0) >= 2**53:
            raise ValueError("the range with these decimals exceeds 15 digits: use fewer")

    def _bins_between(
        self, edges: Sequence[float], learnt: tuple[Learnt, ...] | None
    ) -> dict[str, Any]:
        return {"edges": tuple(edges)} | ({} if learnt else {"decimals": None})

    def _check_bins(self) -> None:
        by_count = (self.min, self.max, self.bins)
        if self.edges is None and None in by_count:
            raise ValueError("declare either edges, or min and max and bins")
        if self.edges is not None and by_count != (None, None, None):
            raise ValueError("both edges and min, max or bins are given: keep one")
        edges = self.bin_edges
        if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)):
            raise ValueError("the edges of the bins must be two or more and ascend")
        if self.step is not None and self.decimals is None:
            raise ValueError("step is declared without decimals. Declare the decimals of the step.")
        if self.step is not None and Decimal(repr(self.step)).scaleb(self.decimals or 0) % 1:
            raise ValueError(
                f"step {self.step:.9g} has more than {self.decimals} decimals. Raise them."
            )
        if self.decimals is not None and self.grid is not None:
            self._check_digits(self.span)
            if np.subtract(*np.array(self.grid)).max() > 0:
                numbers = "multiple of the step" if self.step else "number with these decimals"
                raise ValueError(f"a bin holds no {numbers}: use wider bins")

    @property
    def summary(self) -> str:
        if self.is_unlearnt:
            return TO_BE_LEARNT
        low, high = self.bin_edges[0], self.bin_edges[-1]
        own = [f"{value:.9g}" for value in self._single_values() if value is not None]
        high = self.grid[1][-1] / 10 ** (self.decimals or 0) if self.grid else high
        return self._describe_range(f"{low:.9g} to {high:.9g}", True, own)

    def _single_values(self) -> list[float | None]:
        """Return the value of each bin that has only one, None for the others."""
        if self.grid is not None:
            unit = 10 ** (self.decimals or 0)
            return [a / unit if a == b else None for a, b in zip(*self.grid)]
        return [a if b == math.nextafter(a, b) else None for a, b in pairwise(self.bin_edges)]

    @property
    def bin_ends(self) -> tuple[float, ...] | None:
        return None if self.is_unlearnt else self.bin_edges

    @property
    def scale(self) -> Hashable:
        return None if self.is_unlearnt else ("numeric", self.bin_edges)

    def ends(self, codes: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the first and last number of every code, on the grid if there is one."""
        if self.grid is not None and self.decimals is not None:
            return tuple(np.array(self.grid)[:, codes] / 10**self.decimals)
        edges = np.array(self.bin_edges)
        return edges[codes], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])[codes]

    def read(self, values: pa.Array) -> Codes:
        numbers, readable = self._as_numbers(values)
        edges = np.array(self.bin_edges)
        inside = np.clip(numbers, edges[0], edges[-1])
        codes = np.searchsorted(edges[:-1], inside, side="right") - 1
        return self._refused(codes, readable, inside == numbers)

    @property
    def resolution(self) -> float:
        return 0.0 if self.decimals is None else self.units / 10**self.decimals

    def csv_texts(self, values: pa.Array) -> pa.Array:
        exponent = max(map(abs, self.span)) >= 1e10 and self.fixed_decimals is None
        if self.decimals is not None and exponent:
            texts = values.cast(pa.decimal128(38, self.decimals)).cast(pa.string())
            values = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
            values = pc.replace_substring_regex(values, r"\.$", "")
        return super().csv_texts(values)

    def from_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        if self.decimals is not None:
            steps = np.rint(amounts * 10**self.decimals / self.units)
            amounts = steps * self.units / 10**self.decimals
        return pa.array(amounts, mask=np.isnan(amounts))

    def value_labels(self) -> list[str]:
        """Return the bins as intervals, in the shortest texts of the same numbers."""
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
        """Return a draft if all cells are numbers, and some are no integers."""
        if not profile.numeric or profile.integers:
            return None
        content, note = profile.draft_numbers()
        return Draft(content and {"type": "numeric", **content}, note)

    @property
    def has_points(self) -> bool:
        return self.decimals is not None

    def point_ends(self, codes: Codes | None = None) -> tuple[Codes, Codes]:
        """Return steps of the grid; without decimals, ``PARTS`` parts of every bin."""
        codes = np.arange(self.num_values) if codes is None else codes
        if self.grid is not None:
            first, last = np.array(self.grid)[:, codes] // self.units
            return first, last
        return codes * PARTS, codes * PARTS + PARTS - 1

    def to_points(self, numbers: NDArray[Any]) -> Codes:
        edges = np.array(self.bin_edges)
        kept = self._kept(numbers)
        codes = np.searchsorted(edges[:-1], kept, side="right") - 1
        first, last = self.point_ends()
        steps = np.rint(kept * 10 ** (self.decimals or 0) / self.units).astype(np.int64)
        return np.asarray(np.clip(steps, first[codes], last[codes]))

    def points_between(self, low: NDArray[Any], high: NDArray[Any]) -> tuple[Codes, Codes]:
        first, last = (np.rint(end / self.resolution).astype(np.int64) for end in (low, high))
        return first + (self._number(first) < low), last - (self._number(last) > high)

    def _number(self, points: Codes) -> NDArray[np.float64]:
        """Return the numbers at points of the grid."""
        return np.asarray(points * self.units / 10 ** (self.decimals or 0))

    def weigh_between(self, low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.float64]:
        return (high - low) if self.grid is None else super().weigh_between(low, high)

    def draw_between(
        self, low: NDArray[Any], high: NDArray[Any], rng: np.random.Generator
    ) -> pa.Array:
        if self.grid is not None:
            return super().draw_between(low, high, rng)
        share = rng.random(low.shape)
        return pa.array(np.clip(low * (1 - share) + high * share, low, high))

    def positions(self, points: Codes) -> NDArray[np.float64]:
        if self.grid is not None:
            return super().positions(points)
        edges, (codes, parts) = np.array(self.bin_edges), np.divmod(points, PARTS)
        low, high = edges[codes], edges[np.minimum(codes + 1, edges.size - 1)]
        return np.asarray(low + (high - low) * (parts / PARTS))

    def values_at(self, points: Codes, rng: np.random.Generator) -> pa.Array:
        if self.grid is not None:
            return pa.array(self._number(points))
        edges, codes = np.array(self.bin_edges), points // PARTS
        low, high = edges[codes], edges[codes + 1]
        share = (points % PARTS + rng.random(points.size)) / PARTS
        return pa.array(np.clip(low * (1 - share) + high * share, low, np.nextafter(high, low)))

    @property
    def heap_points(self) -> Codes:
        return self.to_points(np.array(self.heaps, dtype=np.float64))

    def heaps_at(self, points: Codes) -> tuple[float, ...]:
        return tuple(self._number(points).tolist())

    def _beyond(self) -> str:
        return self.spelling.write(repr(abs(self.bin_edges[-1]) * 2 + 1))
