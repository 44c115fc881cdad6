"""Types of columns: everything that the program asks of a declared column.

A type is one class in one module of this package. It defines the keys of a schema, reads cells to
codes, draws values from codes, names its codes, proposes itself for cells, and names cells for the
audit. What is not described at a type's own class is described at :class:`ColumnBase`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from adaptive_qs.domain import BinLabel
from adaptive_qs.pages.words import significant
from adaptive_qs.table.text import ASCII_SPACE, escapes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from adaptive_qs.table import bins as binning
    from adaptive_qs.table import cells, spellings
    from adaptive_qs.table.profile import Profile

    Codes: TypeAlias = NDArray[np.int64]
    Drawer: TypeAlias = Callable[[Codes, np.random.Generator], pa.Array]
else:

    class _Later:
        """A module that is loaded when it is first used: schemas do without arrays."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(import_module(self._name), attribute)

    np, pa, pc = map(_Later, ("numpy", "pyarrow", "pyarrow.compute"))
    binning, cells, spellings = (
        _Later(f"adaptive_qs.table.{name}") for name in ("bins", "cells", "spellings")
    )


EMPTY, UNREADABLE, OUTSIDE = -1, -2, -3
"""Codes of refused cells: null or "" without a marker; not of the type; not a declared value."""

MISSING = "(missing)"
"""Label of missing values, in more brackets if a declared value has it."""

TO_BE_LEARNT = "to be learnt with noise"
"""Summary of a column without codes."""


CellType = Literal["integer", "number", "boolean", "date", "datetime", "digits", "true or false"]
"""Types of cells of a column in tables with types; the last two only for texts."""


def _clean(text: str) -> str:
    if text != text.strip(ASCII_SPACE):
        raise ValueError(f"{text!r} begins or ends with white space: remove it")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{text!r} has a character that no text file can have. Remove it.")
    return text


def refuse_duplicates(items: tuple) -> None:
    """Raise ValueError if two items are equal."""
    seen = set()
    for item in items:
        if item in seen:
            raise ValueError(f"{item!r} is listed twice: keep one")
        seen.add(item)


Text = Annotated[str, AfterValidator(_clean)]
"""A string that survives a round trip through a CSV cell."""


def bin_label(first: str, last: str) -> BinLabel:
    """Return the label of a bin from one value to another, both included."""
    return BinLabel(f"{first}..{last}", first, last)


Topic = Literal["publish", "person", "missing", "values", "limits", "order", "format", "rule"]
"""Topics of questions to the owner of a table about a proposal."""


@dataclass(frozen=True)
class Draft:
    """The proposal for one column, as private as the data."""

    content: dict[str, Any] | None  # for the schema, without the name; None to leave the column out
    note: str = ""  # a reason for the owner, also if the column is left out
    open: tuple[Topic, ...] = ()  # questions for the owner, besides those of any such column
    parts: tuple[str, ...] = ()  # units of which the column has parts


class Reviewed(BaseModel):
    """A part of a schema that can be a proposal, with its open questions and reasons."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    open: tuple[Topic, ...] = ()
    """Open questions of the review; runs refuse a schema with any. Not part of the fingerprint."""
    why: Annotated[tuple[str, ...], Field(exclude=True)] = ()
    """Reasons of a proposal, and answers of its review, for the owner: no release has them."""


class ColumnBase(Reviewed):
    """A column of the private table, as declared in public.

    Its codes are 0 .. num_values-1 for the declared values or bins, then one code for unknown
    values if the column has a catch-all of its own, then one code for missing values if it declares
    missing markers. Null cells of a typed table (Parquet, data frames) count as missing if at least
    one marker is declared, else as unknown; an empty CSV cell is the marker "".

    A type of columns gives ``type`` a literal and writes the abstract members: ``num_values``,
    ``declares``, ``read``, ``draw`` and ``value_labels``. The last three handle declared values
    only: the program calls ``encode``, ``decode`` and ``labels_of_codes``, which add missing
    markers, the catch-all and escaped texts. Types may declare the keys ``ordered``, ``outside``.
    """

    name: Annotated[Text, Field(min_length=1)]
    """Name of the column in the data."""
    type: str
    description: str = ""
    """Free text for people; not part of the fingerprint."""
    missing: tuple[Text, ...] = ()
    """Cells that mean "no value"; the first one is written for missing values in CSV output."""

    numeric: ClassVar[bool] = False
    """Whether the values are numbers, so that a marker such as "-1" is also met as -1.0."""
    disclosed: ClassVar[str] = "the categories that they may have"
    """What a schema reveals of the values of such columns."""
    by_day: ClassVar[bool] = False
    """Whether the values are whole days, so that one day is a value and no span of time."""
    measured: ClassVar[bool] = False
    """Whether the values are amounts or moments, which have means and quantiles."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Questions about a proposed column that its owner should answer."""
        return ("missing",) if any(self.missing) else ()

    # The layout of the codes.

    @property
    @abstractmethod
    def num_values(self) -> int:
        """Number of declared values or bins."""

    @property
    def catch_all_code(self) -> int | None:
        """Code of unknown values, or None if they are refused."""
        return None

    @property
    def missing_code(self) -> int | None:
        """Code of missing values, or None if they are refused."""
        return self.size - 1 if self.missing else None

    @property
    def other_code(self) -> int | None:
        """Code of cells that are no declared value; None if they are refused."""
        counted = getattr(self, "outside", "") == "missing"
        return self.missing_code if counted else self.catch_all_code

    @property
    def size(self) -> int:
        """Number of codes."""
        extra = self.catch_all_code == self.num_values
        return self.num_values + int(extra) + int(bool(self.missing))

    # What a schema says.

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts that the column names: missing markers, and labels that are text."""
        return self.missing

    @property
    def listed(self) -> tuple[str | int, ...] | None:
        """The values by their codes if a schema lists them all; None otherwise."""
        return None

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the greatest value if all are integers; None otherwise."""
        return None

    @property
    def part_of(self) -> tuple[str, str] | None:
        """Name of the column of which it is a part, and the unit; None for others."""
        return None

    def bound(self, columns: Mapping[str, ColumnBase]) -> Self:
        """Return the column with what it takes over from others; ValueError if they do not fit."""
        return self

    @property
    def has_order(self) -> bool:
        """Whether the schema states that the order of the values has a meaning."""
        return getattr(self, "ordered", False)

    @property
    def declared_groups(self) -> tuple[int, ...] | None:
        """The group of each code if the schema puts values into groups; None otherwise."""
        return None

    @property
    def bin_ends(self) -> tuple[float, ...] | None:
        """Ends of the bins, in order, if these can differ in width; None otherwise."""
        return None

    @cached_property
    def escapes(self) -> dict[str, str]:
        """Texts that a spreadsheet program would run, and their escaped forms in CSV."""
        return escapes(self.texts)

    @abstractmethod
    def declares(self, text: str) -> bool:
        """Return whether a cell with this text is a declared value."""

    def found_values(self, proposed: bool) -> frozenset[str]:
        """Return texts that were learnt from the rows, or ``proposed`` ones."""
        return frozenset()

    def advice(self) -> list[str]:
        """Return what the author of a schema can have missed, as texts that follow the name."""
        advice = []
        if self.size > 10_000:
            advice.append(f"has {self.size} codes: wider bins or fewer values give better answers")
        if self.num_values == 1:
            advice.append("has one value or bin only: list it under ignore")
        return advice

    @property
    def summary(self) -> str:
        """The values or the range and the bins, for a list of what a proposed schema reveals."""
        return f"{self.num_values:,} values"

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        if getattr(self, "outside", "") == "missing" and not self.missing:
            raise ValueError('outside is "missing" but no missing marker is declared: add one')
        self._check_values()
        refuse_duplicates(self.missing)
        for marker in self.missing:
            if self.declares(marker):
                raise ValueError(f"missing marker {marker!r} is also a declared value: remove one")
        if self.size > 2**32:
            raise ValueError(f"the column has {self.size} codes: declare fewer bins or values")
        return self

    def _check_values(self) -> None:
        """Raise ValueError if the declared values contradict each other."""

    # What a run learns from the rows and pays for.

    @property
    def is_unlearnt(self) -> bool:
        """Whether the bins or values are still to be learnt, so that there are no codes yet."""
        return False

    @property
    def discovers(self) -> bool:
        """Whether a part of delta is needed to learn the column."""
        return False

    @property
    def counts_heaps(self) -> bool:
        """Whether a run that makes tables has to count rows on frequent values."""
        return False

    @property
    def is_open(self) -> bool:
        """Whether a run that makes tables has to learn something of the column first."""
        return self.is_unlearnt or self.counts_heaps

    @property
    def open_keys(self) -> tuple[str, ...]:
        """Keys of its schema that request this."""
        return ()

    @property
    def open_remedy(self) -> str:
        """What to do if nothing is learnt."""
        return "declare the bins or values instead" if self.is_unlearnt else "leave it out"

    def without_heaps(self) -> ColumnBase:
        """Return the column without frequent values that are still to be counted."""
        return self

    @property
    def probe(self) -> ColumnBase:
        """A column that refuses and misses the same cells; if unlearnt, all others have code 0."""
        return self

    def stand_in(self) -> ColumnBase:
        """Return a column like one that can be learnt, for generated rows."""
        return self

    def _check_learnt(self) -> None:
        if self.is_unlearnt:
            raise RuntimeError(f"column {self.name!r} is not learnt yet")

    # Cells to codes, and back.

    @abstractmethod
    def read(self, values: pa.Array) -> Codes:
        """Return codes of normalised cells, blank ones and markers among them.

        Cells that are no declared values get ``UNREADABLE`` or ``OUTSIDE``; see
        :func:`adaptive_qs.table.cells.normalise` for their types.
        """

    @abstractmethod
    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """Draw values of the declared type for codes that have one, evenly inside bins."""

    @abstractmethod
    def value_labels(self) -> list[str]:
        """Return labels of declared values and of the catch-all, in the order of the codes."""

    def plain(self, values: pa.Array) -> pa.Array:
        """Return normalised cells as ``read`` takes them: with numbers in Python's form."""
        return values

    def encode(self, values: pa.Array) -> Codes:
        """Return codes of normalised cells, negative for refused ones.

        A text that CSV escapes is also read in its escaped form.
        """
        self._check_learnt()
        values = cells.unescaped(values, self.escapes)
        plain = self.plain(values)
        codes = self.read(plain)
        empty = cells.from_arrow(values.is_null())
        codes[(codes < 0) & (empty | cells.is_marker(values, ("",)))] = EMPTY
        if self.other_code is not None:
            codes[codes < 0] = self.other_code
        if self.missing_code is not None:
            codes[empty | cells.is_marker(values, self.missing)] = self.missing_code
            if self.numeric:
                markers = self.plain(pa.array(self.missing)).drop_null().to_pylist()
                codes[cells.matches_numbers(plain, markers)] = self.missing_code
        return codes

    def decode(
        self, codes: NDArray[Any], rng: np.random.Generator, drawer: Drawer | None = None
    ) -> pa.Array:
        """Return values of the declared type, null if missing.

        They are even inside bins and periods, or drawn by the ``drawer``.
        """
        self._check_learnt()
        codes = codes.astype(np.int64)
        missing = codes == (-1 if self.missing_code is None else self.missing_code)
        draw = self.draw if drawer is None else drawer
        return pc.if_else(
            cells.to_arrow(~missing), draw(np.where(missing, 0, codes), rng), cells.NULL
        )

    def labels_of_codes(self) -> tuple[str, ...]:
        """Return one distinct label for each code.

        A value is its own name, a calendar period in ISO 8601 (quarters as "2024-Q1"), and a bin by
        its ends, as a :class:`BinLabel`. Unknown and missing values come last, as they do in the
        codes.
        """
        self._check_learnt()
        labels, marker = self.value_labels(), MISSING
        while marker in labels:
            marker = f"({marker})"
        labels = [*labels, marker] if self.missing else labels
        if len(labels) != self.size:
            raise RuntimeError(f"a column has {self.size:,} codes and {len(labels):,} labels")
        return tuple(labels)

    def csv_texts(self, values: pa.Array) -> pa.Array:
        """Return values of the declared type as CSV has them; null if missing."""
        return values.cast(pa.string())

    def explain_refusal(self, refusal: int) -> str:
        """Return what is wrong with a refused cell and what to do, without quoting it."""
        if refusal == EMPTY:
            return 'has empty cells: add "" to its missing markers, or fill the cells'
        outside = type(self).model_fields.get("outside")
        choices = () if outside is None else get_args(outside.annotation)
        if refusal == UNREADABLE:
            declare = "or declare it as a missing marker"
            if "missing" in choices:
                declare = 'declare it as a missing marker, or set outside to "missing"'
            return f"has a cell that cannot be read as {self.type}: correct it, {declare}"
        ways = [f'"{choice}"' for choice in ("clip", "missing") if choice in choices]
        way = f", or set outside to {' or '.join(ways)}" if ways else ", or correct the value"
        return f"has a value outside its declared range: widen the range{way}"

    # What the values of two columns have in common.

    @property
    def kind(self) -> Hashable:
        """The kind of the values, equal for columns that can be compared; None if they cannot."""
        return None

    @property
    def scale(self) -> Hashable:
        """The scale, equal for columns that code values alike; None without an order."""
        return None

    @property
    def ranked(self) -> bool:
        """Whether one value can be smaller than another."""
        return self.has_order

    def ends(self, codes: Codes) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the least and the greatest value of every code, by default its position.

        Numbers are themselves, dates and times seconds since 1970, labels their positions in the
        list.
        """
        return codes, codes

    def amounts(self, values: pa.Array) -> NDArray[np.float64]:
        """Return normalised cells of a ``measured`` column as amounts, shape (len(values),).

        Numbers are themselves, dates and times seconds since 1970; unreadable cells are NaN. Unlike
        codes, amounts know neither bins nor ends of the range.
        """
        return np.full(len(values), np.nan)

    def numbers(self, values: pa.Array) -> NDArray[Any]:
        """Return normalised cells of a ``measured`` column as integers, numbers or seconds.

        Unreadable cells become anything.
        """
        raise AssertionError(f"column {self.name!r} has no numbers")

    def amount_text(self, amount: float, whole: bool = False) -> str:
        """Return an amount, or a mean of amounts, for people; with all digits if ``whole``."""
        if whole:
            return f"{amount:.12g}"
        text = significant(amount, 4)
        return text.replace(",", "") if abs(amount) < 10_000 else text  # it may be a year

    def read_amount(self, text: str) -> float | None:
        """Return a value that a rule names, in the units of ``ends``; None if there is none."""
        labels = self.value_labels()
        return float(labels.index(text)) if text in labels else None

    @property
    def resolution(self) -> float:
        """Distance between neighbouring amounts, in days for dates; 0 if any number is possible."""
        return 0.0

    def weigh_between(self, low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.float64]:
        """Return how likely values of a bin are in such intervals, up to a factor."""
        raise AssertionError(f"column {self.name!r} has no bins")

    def draw_between(
        self, low: NDArray[Any], high: NDArray[Any], rng: np.random.Generator
    ) -> pa.Array:
        """Draw a value in each of such intervals."""
        raise AssertionError(f"column {self.name!r} has no bins")

    def from_amounts(self, amounts: NDArray[np.float64]) -> pa.Array:
        """Return values for amounts, rounded to what cells hold; null for NaN."""
        raise AssertionError(f"column {self.name!r} has no amounts")

    # Proposing and auditing.

    @classmethod
    def draft(cls, name: str, profile: Profile) -> Draft | None:
        """Return a draft for a column with these cells, without missing markers.

        None if the cells are of another type: the next type drafts it.
        """
        return None

    @property
    def cell_types(self) -> tuple[CellType, ...]:
        """Types of the cells of generated tables besides text, the likeliest first."""
        return ()

    def undeclared_cell(self) -> str | None:
        """Return a cell that is neither a declared value nor refused; None if there is none."""
        return None if self.other_code is None else "no such value"

    def cell_of_other_type(self) -> str | None:
        """Return a boolean or an integer among texts if the schema takes any cell."""
        return None
