"""Queries with integer coefficients, and private counts that open for the budget that pays.

Counts open inside this package only. Python can be forced, and these types protect against
mistakes: nothing that holds an exact count can be printed, converted, copied, pickled, indexed or
compared, and no mechanism of another budget takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from threading import Lock
from typing import Any, Never, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError
from adaptive_qs.levels import Groups
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.budget import Ledger
from adaptive_qs.privacy.events import UNITS_PER_RHO, GaussianEvent, Purpose
from adaptive_qs.privacy.noise import NOISE_LIMIT

MOST_ROWS = 2**40
"""Largest number of rows of a table: coefficients are scaled so that sums over them fit 64 bits."""
KEPT_CELLS = 2**22
"""Maximum number of cells of all marginals over groups that are kept."""
BLOCK_VALUES = 1 << 20
"""Number of values that are counted at a time."""
Integers = NDArray[np.int64]
Occupied = tuple[Integers, Integers]
"""Cells of a flattened marginal that have rows, and their numbers of rows."""


# Linear queries with integer coefficients, and their sensitivity.
#
# A query is a Kronecker product of integer maps along the axes of a table of counts. Its
# sensitivity follows from the maps: the columns of a Kronecker product are products of columns, and
# their largest norms multiply.


class IntegerMap(Protocol):
    """A linear map with integer coefficients, along one axis or several that follow each other."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""

    @property
    def squared_norm(self) -> int:
        """Largest squared length of a column."""

    @property
    def largest(self) -> int:
        """Bound on the coefficients, and on every step of their application."""

    def answers(self, table: Integers) -> Integers:
        """Return the answers to counts of shape (Πshape, others), exactly."""


@dataclass(frozen=True)
class Identity:
    """The identity on cells of some histograms; a row is in at most one cell of each."""

    size: int
    histograms: int = 1
    largest = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells, as a shape of one axis."""
        return (self.size,)

    @property
    def squared_norm(self) -> int:
        """The maximum number of cells of a row."""
        return self.histograms

    def answers(self, table: Integers) -> Integers:
        """Return the counts as they are."""
        return table


@dataclass(frozen=True)
class Centering(IntegerMap):
    """The integer map that multiplies cells by n and subtracts the mean of their group of m cells.

    n is the largest m, and n times a mean is the sum of the group times n/m, rounded. The estimate
    removes what rounding leaves of the sums. No row changes the answers by more than n(n − 1) (L2,
    squared).
    """

    groups: Groups

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.groups.of.size,)

    @property
    def largest(self) -> int:
        """The largest number of cells of a group, n."""
        return self.groups.largest

    @property
    def squared_norm(self) -> int:
        """The largest squared length of a column, n(n − 1)."""
        return self.largest * (self.largest - 1)

    def answers(self, table: Integers) -> Integers:
        """Return ``largest`` times the counts, less the rounded means of their groups."""
        n, groups = self.largest, self.groups
        taken = (2 * n + groups.sizes) // (2 * groups.sizes)
        return n * table - groups.repeated(groups.sums(table, 0) * taken[:, None], 0)


@dataclass(frozen=True)
class LinearQuery:
    """A query with integer coefficients: a Kronecker product of integer maps (else TypeError).

    Attributes:
        maps: Maps along the axes of the counts, in order; none for a single count.
        diameter: Largest squared distance between the answers to two rows, divided by
            ``squared_sensitivity``; None if unknown.
        definition: Digest of what the purpose and the columns do not determine about the maps.
    """

    purpose: Purpose
    columns: tuple[str, ...]
    maps: Sequence[IntegerMap] = ()
    diameter: Fraction | None = None
    definition: str = ""

    def __post_init__(self) -> None:
        """Raise TypeError if the answers of a map would be rounded."""
        if not all(isinstance(getattr(each, "squared_norm", None), int) for each in self.maps):
            raise TypeError("only maps with integer coefficients have exact answers")

    @property
    def squared_sensitivity(self) -> int:
        """Largest change of the answers by one row (L2, squared)."""
        return math.prod(each.squared_norm for each in self.maps)

    @property
    def histograms(self) -> int:
        """Maximum number of cells of a row: one, except for a map over several histograms."""
        found = [each.histograms for each in self.maps if isinstance(each, Identity)]
        return found[0] if len(self.maps) == len(found) == 1 else 1

    @property
    def largest(self) -> int:
        """Bound on the coefficients, and on every step of their application."""
        return math.prod(each.largest for each in self.maps)

    def answers(self, counts: Integers) -> Integers:
        """Return the exact answers, one axis for each map."""
        array: NDArray[Any] = counts
        for each in self.maps:
            others = array.shape[len(each.shape) :]
            block = each.answers(array.reshape(math.prod(each.shape), math.prod(others)))
            array = np.moveaxis(block.reshape(len(block), *others), 0, -1)
        return array


class Closed:
    """A private value that no caller can open."""

    __slots__ = ("__exact", "owner")

    def __init__(self, exact: Any, owner: Ledger) -> None:
        self.__exact = exact
        self.owner = owner

    def _closed(self, *_: object) -> Never:
        raise TypeError("private values open inside privacy/ only: measure them")

    def __setattr__(self, name: str, value: object) -> None:
        """Set a public attribute once: what a measurement costs does not change afterwards."""
        if hasattr(self, name) and (name[0] != "_" or name == "_Closed__exact"):
            self._closed()
        object.__setattr__(self, name, value)

    __delattr__ = _closed
    __array__ = __int__ = __float__ = __complex__ = __index__ = __bool__ = _closed
    __len__ = __iter__ = __getitem__ = __contains__ = _closed
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _closed  # type: ignore[assignment]
    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __format__ = _closed  # type: ignore[assignment]
    __getstate__ = _closed
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__


def open_private(private: Closed, ledger: Ledger) -> Any:
    """Return the private value to mechanisms of the budget that owns it; InputError to others."""
    if private.owner is not ledger:
        raise InputError("private values belong to another budget: measure them with that one")
    return private._Closed__exact  # type: ignore[attr-defined]


class PrivateCounts(Closed):
    """Exact integer counts of any shape, whose measurements their owner pays for.

    A row is counted in at most one cell of each of the ``histograms``.
    """

    __slots__ = ("histograms",)

    def __init__(self, exact: Integers, owner: Ledger, histograms: int = 1) -> None:
        array = np.asarray(exact)
        if array.dtype.kind not in "iu":
            raise InputError(f"values to release have type {array.dtype}. Use integers.")
        super().__init__(array, owner)
        self.histograms = histograms


@dataclass(frozen=True)
class Measurement:
    """Counts, a query and the variance of its noise, from which the charge follows.

    Attributes:
        noise_variance: Variance of the integer noise on the answers times ``factor``.
        factor: Power of two that multiplies the answers, so that the noise is fine compared with
            the integers.
    """

    query: LinearQuery
    counts: PrivateCounts
    noise_variance: Fraction
    factor: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError if a row is in more cells than the sensitivity assumes."""
        if self.counts.histograms > self.query.histograms:
            raise ValueError("a row is in more cells than the sensitivity of the query allows")

    @classmethod
    def costing(cls, query: LinearQuery, counts: PrivateCounts, units: int) -> Measurement:
        """Return the measurement that costs exactly ``units`` · 2**-60 ρ for one row."""
        return cls(query, counts, Fraction(query.squared_sensitivity * UNITS_PER_RHO, 2 * units))

    def finely(self, most_rows: int = MOST_ROWS) -> Measurement:
        """Return the same with as large a factor as the noise needs and 64 bits allow."""
        factor, most = 1, self.query.largest * most_rows
        while self.noise_variance * factor**2 < FINE_NOISE**2 and 2 * factor * most <= NOISE_LIMIT:
            factor *= 2
        return replace(self, noise_variance=self.noise_variance * factor**2, factor=factor)

    @property
    def event(self) -> GaussianEvent:
        """The charge for one row."""
        squared = self.query.squared_sensitivity * self.factor**2
        return GaussianEvent(self.query.purpose, self.query.columns, squared, self.noise_variance)

    @property
    def squared_diameter(self) -> int | None:
        """Largest squared change of the answers if one row replaces another, if known."""
        diameter = self.query.diameter
        squared = self.query.squared_sensitivity * self.factor**2
        return None if diameter is None else int(squared * diameter)

    def exact_answers(self, ledger: Ledger) -> Integers:
        """Return the exact answers, times the factor, to mechanisms of the budget."""
        answers = self.query.answers(open_private(self.counts, ledger)) * self.factor
        if answers.size and (np.max(answers) > NOISE_LIMIT or np.min(answers) < -NOISE_LIMIT):
            raise InputError("a value to release exceeds 2**62: use a smaller scale")
        return np.asarray(answers, dtype=np.int64)


class PrivateValues(Closed):
    """The values of a column (int64 or float64), at most one for each row."""

    __slots__ = ()

    def histograms(self, *cells: tuple[Callable[[NDArray[Any]], Integers], int]) -> PrivateCounts:
        """Count rows in the cells of several histograms.

        A histogram is a function that returns the cell of every value, below 0 for none, and the
        number of cells.
        """
        values = open_private(self, self.owner)
        counts = [np.zeros(size, dtype=np.int64) for _, size in cells]
        for start in range(0, values.size, BLOCK_VALUES):
            block = values[start : start + BLOCK_VALUES]
            for (find_cells, size), total in zip(cells, counts):
                places = find_cells(block)
                total += np.bincount(places[places >= 0], minlength=size)
        return PrivateCounts(np.concatenate(counts), self.owner, len(cells))


class PrivateTexts(Closed):
    """The texts that occur, ascending, and their numbers of rows; a row has at most one text."""

    __slots__ = ()

    def __init__(self, texts: Sequence[str], counts: Integers, owner: Ledger) -> None:
        super().__init__((texts, PrivateCounts(counts, owner)), owner)


class PrivateScores(Closed):
    """Integer scores of candidates, and the largest change of any of them by one row."""

    __slots__ = ("sensitivity",)

    def __init__(self, exact: Integers, owner: Ledger, sensitivity: int) -> None:
        super().__init__(exact, owner)
        self.sensitivity = sensitivity


class Counter(Protocol):
    """A counter of the rows of one private table."""

    domain: Domain

    def count(self, clique: Clique) -> Integers:
        """Return the exact marginal over a clique (rows), one axis per attribute."""

    def count_all(self, cliques: Sequence[Clique]) -> list[Integers]:
        """Return the exact marginals over some cliques that are not empty."""

    def occupied(self, cliques: Sequence[Clique]) -> Sequence[Occupied]:
        """Return the occupied cells of the marginals over some cliques that are not empty."""

    def prepare(self, cliques: Iterable[Clique]) -> None:
        """Count in one pass the marginals that will be needed and can be kept."""


class LevelCounter(Counter):
    """Exact marginals at levels of the attributes, summed over groups of codes."""

    def __init__(self, counter: Counter, domain: Domain, most_cells: int = KEPT_CELLS) -> None:
        self.domain = domain
        self._counter = counter
        self._left = most_cells
        self._kept: dict[Clique, Integers] = {}
        self._lock = Lock()

    def count(self, clique: Clique) -> Integers:
        return self.count_all([clique])[0] if clique else self._counter.count(())

    def count_all(self, cliques: Sequence[Clique]) -> list[Integers]:
        """Return the exact marginals over some cliques; one pass counts the missing."""
        found = {clique: self._kept[clique] for clique in cliques if clique in self._kept}
        missing = [clique for clique in cliques if clique not in found]
        codes = list(dict.fromkeys(map(self.domain.columns, missing)))
        counted = dict(zip(codes, self._counter.count_all(codes) if codes else ()))
        for clique in missing:
            columns = self.domain.columns(clique)
            found[clique] = self.domain.summed(counted[columns], columns, clique)
            if clique != columns:
                self._keep(clique, found[clique])
        return [found[clique] for clique in cliques]

    def occupied(self, cliques: Sequence[Clique]) -> list[Occupied]:
        columns = [self.domain.columns(clique) for clique in cliques]
        return [
            found if clique == codes else self._grouped(found, clique, codes)
            for clique, codes, found in zip(cliques, columns, self._counter.occupied(columns))
        ]

    def _grouped(self, found: Occupied, clique: Clique, codes: Clique) -> Occupied:
        cells, counts = found
        indices = np.unravel_index(cells, self.domain.shape(codes))
        grouped = [
            index if level == column else self.domain.groups(column, level).of[index]
            for index, level, column in zip(indices, clique, codes)
        ]
        held, place = np.unique(
            np.ravel_multi_index(grouped, self.domain.shape(clique)), return_inverse=True
        )
        sums = np.zeros(held.size, dtype=np.int64)
        np.add.at(sums, place, counts)
        return held, sums

    def prepare(self, cliques: Iterable[Clique]) -> None:
        self._counter.prepare(self.domain.columns(c) for c in cliques if c not in self._kept)

    def _keep(self, clique: Clique, counts: Integers) -> None:
        with self._lock:
            if counts.size <= self._left and clique not in self._kept:
                self._left -= counts.size
                self._kept[clique] = counts


class PrivateTable(Closed):
    """The private rows of one table, and its columns with the levels at which they are counted."""

    __slots__ = ("domain",)

    def __init__(self, counter: Counter, owner: Ledger) -> None:
        super().__init__(counter, owner)
        self.domain = counter.domain

    def at_levels(self, domain: Domain) -> PrivateTable:
        """Return the same rows, also counted at the levels of a domain."""
        return PrivateTable(LevelCounter(open_private(self, self.owner), domain), self.owner)

    def marginals(self, cliques: Iterable[Clique]) -> list[PrivateCounts]:
        """Count the marginals over some cliques, which may be empty, in one pass."""
        counter, every = open_private(self, self.owner), tuple(cliques)
        counter.prepare(every)
        return [PrivateCounts(counter.count(clique), self.owner) for clique in every]
