"""Columns whose bins or values nobody declares: a run learns them from the rows and pays for it.

Until then such a column has no codes. What is public about it, its name, missing markers and
largest number of codes, is declared; :mod:`adaptive_qs.learn.schema` makes an ordinary column
of it.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from adaptive_qs.table.columns.arrays import cells, np, pa
from adaptive_qs.table.columns.base import ColumnBase, Text
from adaptive_qs.table.columns.category import CategoricalColumn, Integer64
from adaptive_qs.table.columns.numeric import Finite, IntegerColumn, Learnt, NumericColumn
from adaptive_qs.table.text import integer_of, number_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

INTEGER_LIMIT = 10**18 - 1
"""Largest magnitude of a bound of integers."""

PrivateBins = Annotated[int, Field(ge=2, le=1000)]
PrivateValues = Annotated[int, Field(ge=1, le=100_000)]

# What the audit generates rows for, in place of what may be learnt.

WIDTH = 100
"""Of a range without declared ends."""
MOST_BINS = 20
MOST_VALUES = 8


class PrivateColumn(ColumnBase):
    """A column that is not ready to be coded; its size is the largest that it can get."""

    key: ClassVar[str]
    """What a schema gives in place of the bins or values; it tells the two variants apart."""
    discovers: ClassVar[bool] = False
    """Whether a part of delta is needed to learn the column."""

    @property
    def summary(self) -> str:
        """That there is nothing yet."""
        return "bins or values to be learnt"

    @property
    @abstractmethod
    def probe(self) -> ColumnBase:
        """A column that refuses and misses the same cells, and gives all others code 0."""


class PrivateRangeColumn(PrivateColumn):
    """Ordered values in bins of about equally many rows each, ends included where not declared."""

    key = "private_bins"
    whole: ClassVar[bool]
    """Whether the values are integers."""
    greatest: ClassVar[int | float]
    """Largest magnitude of a value."""

    private_bins: PrivateBins
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
        """Number of bins at most."""
        return self.private_bins

    @property
    def learnt(self) -> tuple[Learnt, ...]:
        """What a run will learn from the rows."""
        ends: list[Learnt] = []
        if self.min is None:
            ends.append("min")
        if self.max is None:
            ends.append("max")
        return (*ends, "bins")

    @property
    def span(self) -> tuple[Any, Any]:
        """Smallest and largest value that the column can hold."""
        low = -self.greatest if self.min is None else self.min
        return low, self.greatest if self.max is None else self.max

    def declares(self, text: str) -> bool:
        """Whether a cell with this text may be a value."""
        value = integer_of(text) if self.whole else number_of(text)
        return value is not None and self.span[0] <= value <= self.span[1]

    @property
    @abstractmethod
    def places(self) -> int | None:
        """Decimal places of all values; None where they are any numbers."""

    @abstractmethod
    def numbers(self, values: pa.Array) -> NDArray[Any]:
        """Normalised cells as integers or numbers; anything where they are none."""

    @abstractmethod
    def resolved(self, edges: Sequence[Any]) -> IntegerColumn | NumericColumn:
        """The column with bins between these edges, public from now on."""

    def _arbitrary_ends(self) -> tuple[float, float]:
        """The declared ends, or ends as far apart as ``WIDTH``."""
        low = self.min
        if low is None:
            low = 0 if self.max is None else self.max - WIDTH
        return low, low + WIDTH if self.max is None else self.max

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

    @property
    def probe(self) -> IntegerColumn:
        """One bin over everything."""
        low, high = self.span
        return self._ready((low, high + 1), None)

    def resolved(self, edges: Sequence[int]) -> IntegerColumn:
        """The column with bins [edge, next edge), public from now on."""
        return self._ready(edges, self.learnt)

    def _ready(self, edges: Sequence[int], learnt: tuple[Learnt, ...] | None) -> IntegerColumn:
        return IntegerColumn(
            **self.model_dump(exclude={"private_bins", "min", "max"}),
            min=edges[0],
            max=edges[-1] - 1,
            bin_starts=tuple(edges[:-1]),
            learnt=learnt,
        )

    @property
    def places(self) -> int:
        """None of them."""
        return 0

    def numbers(self, values: pa.Array) -> NDArray[np.int64]:
        """Cells as integers."""
        return cells.as_integers(values)[0]

    def stand_in(self) -> IntegerColumn:
        """With bins of about equal width."""
        low, high = self._arbitrary_ends()
        count = min(self.private_bins, MOST_BINS, int(high - low) + 1)
        edges = np.linspace(low, high + 1, count + 1).astype(np.int64)
        return self.resolved(np.unique(edges).tolist())

    def _check_values(self) -> None:
        super()._check_values()
        width = self.span[1] - self.span[0] + 1
        if self.private_bins > width:
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
    decimals: Annotated[int, Field(ge=0, le=9)] | None = None
    """Decimal places of decoded values; unrounded when absent."""

    @property
    def probe(self) -> NumericColumn:
        """One bin over everything."""
        return NumericColumn(
            **self.model_dump(exclude={"private_bins", "min", "max", "decimals"}), edges=self.span
        )

    def resolved(self, edges: Sequence[float]) -> NumericColumn:
        """The column with bins [edge, next edge), the last one closed, public from now on."""
        return NumericColumn(
            **self.model_dump(exclude={"private_bins", "min", "max"}),
            edges=tuple(edges),
            learnt=self.learnt,
        )

    @property
    def places(self) -> int | None:
        """The declared ones."""
        return self.decimals

    def numbers(self, values: pa.Array) -> NDArray[np.float64]:
        """Cells as numbers."""
        return cells.as_numbers(values)[0]

    def stand_in(self) -> NumericColumn:
        """With bins of equal width, as nearly as the decimals allow."""
        low, high = self._arbitrary_ends()
        count = min(self.private_bins, MOST_BINS)
        if self.decimals is None:
            return self.resolved(np.linspace(low, high, count + 1).tolist())
        unit = 10**self.decimals
        steps = np.linspace(round(low * unit), round(high * unit), count + 1)
        return self.resolved((np.unique(np.rint(steps)) / unit).tolist())

    def _check_values(self) -> None:
        super()._check_values()
        if self.decimals is None:
            return
        for end in (self.min, self.max):
            if end is not None and end != round(end, self.decimals):
                raise ValueError(f"{end} has more than {self.decimals} decimals: round it")
            if end is not None and abs(end) * 10**self.decimals >= 2**53:
                raise ValueError("the range with these decimals exceeds 15 digits: use fewer")


class PrivateCategoricalColumn(PrivateColumn):
    """Text whose frequent values are learnt from the rows; all others get the catch-all label."""

    key = "private_values"
    discovers = True
    type: Literal["categorical"]
    private_values: PrivateValues
    """How many values at most; which ones is learnt from the rows and paid for."""
    catch_all: Annotated[Text, Field(min_length=1)]
    """Label that takes every other value, among them blank cells; it may be a value itself."""
    ordered: Literal[False] = False
    """Values in alphabetical order have no meaningful order."""

    @property
    def num_values(self) -> int:
        """Number of values at most, without the catch-all."""
        return self.private_values

    @property
    def catch_all_code(self) -> int:
        """Code of other values, where as many values as possible are learnt."""
        return self.num_values

    @property
    def probe(self) -> CategoricalColumn:
        """The catch-all for everything."""
        return self._ready((), None)

    def resolved(self, values: Sequence[str]) -> CategoricalColumn:
        """The column with these values, public from now on; the catch-all alone if none."""
        return self._ready(values, ("values",))

    def _ready(
        self, values: Sequence[str], learnt: tuple[Literal["values"]] | None
    ) -> CategoricalColumn:
        return CategoricalColumn(
            **self.model_dump(exclude={"private_values"}),
            values=tuple(values) or (self.catch_all,),
            learnt=learnt,
        )

    def stand_in(self) -> CategoricalColumn:
        """With more values than can be kept, where that is possible."""
        values = [f"value {k}" for k in range(min(self.private_values + 2, MOST_VALUES))]
        return self.resolved([v for v in values if v not in self.missing])

    def declares(self, text: str) -> bool:
        """Whether a cell with this text is the catch-all label."""
        return text == self.catch_all
