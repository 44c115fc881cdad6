"""Workloads: weighted marginals, and weighted counting queries by sets of attributes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import as_integer, as_number, shown
from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.matrices import Array, AxisQueries, MatrixQueries, Queries

CliqueArray = NDArray[np.int32]

MAX_CLIQUES = 1_000_000
"""Most marginals a workload may ask for."""
MOST_LISTED = 500_000
"""Marginals of one number of attributes among which tables choose; see :func:`listed_sets`."""
MAX_INCIDENCES, MAX_SUBSETS = 2**26, 2**14
"""Subsets of all sets of attributes, counted for each of them, and of one."""
LEAST_WEIGHT, MOST_WEIGHT = 1e-12, 1e12
"""Least and largest weight: their products with errors stay within floating point."""


_EMPTY = "the workload is empty: name at least one set of attributes"
_NO_ATTRIBUTES = "the workload has a part without attributes: name some"


def _out_of_range(weight: Any) -> WorkloadError:
    return WorkloadError(
        f"the workload has weight {shown(weight)}. Use a number from {LEAST_WEIGHT:g} to "
        f"{MOST_WEIGHT:g}."
    )


def check_subsets(degrees: Mapping[int, int]) -> None:
    """Refuse (ResourceExceeded) sets, by degree, with too many subsets, before forming any."""
    largest = max(degrees, default=0)
    if largest >= MAX_SUBSETS.bit_length():
        raise ResourceExceeded(
            f"a set of {largest:,} attributes has more than {MAX_SUBSETS:,} subsets: request fewer "
            "ways or list smaller sets"
        )
    incidences = sum(number << degree for degree, number in degrees.items())
    if incidences > MAX_INCIDENCES:
        raise ResourceExceeded(
            f"the workload's attribute sets have {incidences:,} subsets together, more than "
            f"{MAX_INCIDENCES:,}: request fewer ways or list the sets of attributes"
        )


def parse_ways(ways: Any) -> tuple[int, ...]:
    """Return numbers of attributes, given as one integer or several; else raise WorkloadError."""
    one = as_integer(ways)
    if one is not None:
        return (one,)
    several = isinstance(ways, Iterable) and not isinstance(ways, str | bytes | Mapping)
    numbers = [as_integer(k) for k in ways] if several else []
    known = tuple(k for k in numbers if k is not None)
    if not known or len(known) < len(numbers):
        empty = ", which is empty" if several and not numbers else ""
        raise WorkloadError(
            f"workload is {shown(ways)}{empty}. Use ways, a workload file or its content, or a "
            "workload."
        )
    return known


def all_sets(domain: Domain, ways: Iterable[int]) -> list[CliqueArray]:
    """Return all sets of k attributes for each number k listed, once, shape (sets, k).

    Raises:
        WorkloadError: a number below 1 or above the number of attributes.
        ResourceExceeded: more sets than ``MAX_CLIQUES``.
    """
    d, arrays = len(domain), []
    for k in dict.fromkeys(ways):
        if not 1 <= k <= d:
            raise WorkloadError(
                f"ways is {k}. Use a number from 1 to {d}, the number of attributes."
            )
        count = math.comb(d, k)
        if count > MAX_CLIQUES:
            raise ResourceExceeded(
                f"all sets of {k} of {d} attributes are {count:,}, more than {MAX_CLIQUES:,}: "
                "request fewer ways or list the sets of attributes"
            )
        flat = chain.from_iterable(combinations(range(d), k))
        arrays.append(np.fromiter(flat, np.int32, count * k).reshape(count, k))
    return arrays


def listed_sets(domain: Domain, ways: int, most: int) -> list[tuple[CliqueArray, Array]]:
    """Return all sets of k attributes, or smaller sets in the place of some of them.

    If there are more than ``most``, the sets of the smallest attributes are listed, of as many
    attributes as have no more sets; and all sets of one attribute less, which share the weight of
    the sets that are not. Sizes decide, and the order of the schema among equal ones. ``most``
    is at least the number of attributes. The sets, shape (sets, k), come with their weights, the
    largest k first. Raise WorkloadError unless k is from 1 to the number of attributes.
    """
    d = len(domain)
    if ways < 2 or not 1 <= ways <= d or math.comb(d, ways) <= most:
        (sets,) = all_sets(domain, [ways])
        return [(sets, np.ones(len(sets)))]
    small = _listed_among(d, ways, most)
    by_size = sorted(range(d), key=lambda i: (domain.sizes[i], i))
    chosen = np.array(sorted(by_size[:small]), dtype=np.int32)
    places = np.array(list(combinations(range(small), ways)), dtype=np.int32)
    listed = [(chosen[places], np.ones(len(places)))]
    for sets, weights in listed_sets(domain, ways - 1, most):
        inside = np.isin(sets, chosen).all(axis=1)
        # Each of the sets not listed that hold one of these shares its weight among ways of them.
        missing = np.where(inside, d - small, d - ways + 1) / (ways - 1)
        listed.append((sets[missing > 0], (weights * missing)[missing > 0]))
    return listed


def unlisted_sets(domain: Domain, ways: Iterable[int], most: int) -> dict[int, int]:
    """Return how many sets of each number of attributes :func:`listed_sets` leaves out."""
    d = len(domain)
    return {k: math.comb(d, k) - math.comb(_listed_among(d, k, most), k) for k in ways}


def _listed_among(attributes: int, ways: int, most: int) -> int:
    if ways < 2 or math.comb(attributes, ways) <= most:
        return attributes
    small = ways
    while math.comb(small + 1, ways) <= most:
        small += 1
    return small


@dataclass(frozen=True, repr=False)
class Workload:
    """Marginals to answer well, each with a positive weight.

    Attributes:
        domain: the attributes the cliques refer to.
        weights: weight of each workload clique, from ``LEAST_WEIGHT`` to ``MOST_WEIGHT``.
        unlisted: number of requested marginals that are not listed (:func:`listed_sets`), by number
            of attributes; listed sets of other numbers stand in for them.
        handed_down: whether marginals left out handed their weights down to smaller ones.
        target: the attribute that it serves, see :meth:`serving`; None for none.

    Raises:
        WorkloadError: no cliques, an empty clique, or a weight out of its range.
        ResourceExceeded: as :func:`check_subsets`.
    """

    domain: Domain
    weights: Mapping[Clique, float]
    unlisted: Mapping[int, int] = field(default_factory=dict)
    target: str | None = None
    handed_down: bool = False

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name}: {len(self.weights):,} marginals of {len(self.domain)} columns>"

    def __post_init__(self) -> None:
        if not self.weights:
            raise WorkloadError(_EMPTY)
        for clique, weight in self.weights.items():
            if not clique:
                raise WorkloadError(_NO_ATTRIBUTES)
            number = as_number(weight)
            if number is None or not LEAST_WEIGHT <= number <= MOST_WEIGHT:
                raise _out_of_range(weight)
        check_subsets(Counter(map(len, self.weights)))

    @classmethod
    def all_ways(cls, domain: Domain, ways: int | Iterable[int], most: int | None = None) -> Self:
        """Return all marginals of the given numbers of attributes, each of weight 1.

        Args:
            domain: the attributes.
            ways: how many of them.
            most: most marginals of each number, as for :func:`listed_sets`; None refuses more than
                ``MAX_CLIQUES``.

        Raises:
            WorkloadError: a number below 1 or above the number of attributes.
            ResourceExceeded: more marginals than ``MAX_CLIQUES``.
        """
        numbers = parse_ways(ways)
        if most is not None and any(math.comb(len(domain), k) > most for k in numbers if k > 1):
            return cls._of_some(domain, numbers, most)
        sets = chain.from_iterable(some.tolist() for some in all_sets(domain, numbers))
        return cls(domain, dict.fromkeys(map(tuple, sets), 1.0))

    @classmethod
    def _of_some(cls, domain: Domain, ways: Iterable[int], most: int) -> Self:
        weights: dict[Clique, float] = {}
        for k in dict.fromkeys(ways):
            for sets, weight in listed_sets(domain, k, most):
                for clique, value in zip(map(tuple, sets.tolist()), weight.tolist()):
                    weights[clique] = weights.get(clique, 0.0) + value
        return cls(domain, weights, unlisted_sets(domain, ways, most), handed_down=True)

    def serving(self, target: str) -> Self:
        """Return the workload for models that predict one attribute from the others.

        A requested set that holds the target weighs √n times as much, for n other attributes: what
        these say about the target adds up in a prediction, and independent errors add by squares.
        Every other set is also requested together with the target, with the same weight. The rule
        looks at no row.

        Raises:
            SchemaError: there is no such attribute.
            WorkloadError: it has one value, it is the only column, or the workload serves
                another.
        """
        if self.target is not None:
            if self.target == target:
                return self
            raise WorkloadError(
                f"the target is {target!r}, that of the workload {self.target!r}. Set one of them."
            )
        (attribute,) = self.domain.clique([target])
        if self.domain.sizes[attribute] < 2:
            raise WorkloadError(f"the target {target!r} has one value: there is nothing to predict")
        raised = math.sqrt(len({*chain.from_iterable(self.weights)} - {attribute}))
        with_it = {c: raised * w for c, w in self.weights.items() if attribute in c}
        for clique in (c for c in self.weights if attribute not in c):
            joined = tuple(sorted((*clique, attribute)))
            with_it[joined] = with_it.get(joined, 0.0) + self.weights[clique]
        weights = {**self.weights, **{c: min(w, MOST_WEIGHT) for c, w in with_it.items()}}
        if weights.keys() == {(attribute,)}:
            raise WorkloadError(
                f"the workload requests nothing but the target {target!r}: add the columns that "
                "models predict it from"
            )
        added = Counter(len(clique) for clique in weights if clique not in self.weights)
        unlisted = {k: max(0, count - added[k]) for k, count in self.unlisted.items()}
        unlisted = {**{k + 1: 0 for k in unlisted}, **unlisted}
        return replace(self, weights=weights, unlisted=unlisted, target=target)

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The workload's cliques."""
        return tuple(self.weights)

    @cached_property
    def closure(self) -> tuple[Clique, ...]:
        """W↓: every subset of every workload clique, smallest first."""
        return downward_closure(self.weights)

    @cached_property
    def _attribute_weight(self) -> tuple[float, ...]:
        totals = [0.0] * len(self.domain)
        for clique, weight in self.weights.items():
            for attribute in clique:
                totals[attribute] += weight
        return tuple(totals)

    def relevance(self, clique: Clique) -> float:
        """Return w_γ = Σ_π weight_π |γ ∩ π|, linear in γ's attributes (Fuentes et al., F.1)."""
        return sum(self._attribute_weight[i] for i in clique)

    @property
    def column_weights(self) -> Array:
        """Weight of the error of each single column, shape (attributes,).

        The summed weights of the cliques that hold it, and one mean weight, since a table shows
        every column.
        """
        mean = math.fsum(self.weights.values()) / len(self.weights)
        return np.array(self._attribute_weight) + mean

    def priorities(self, cliques: Sequence[Clique]) -> Array:
        """Return w_γ of some cliques of the closure, with which a loop weighs their errors.

        (Σ weight_π⁴)^¼ over the π that contain γ. Each of them is off by what γ is off, but not by
        the sum of what all its parts are: between the sum and the largest weight. A weight on one
        clique does not spread to those that only share attributes with it. Weights that were handed
        down are spread already, and give :meth:`relevance`.
        """
        if self.handed_down:
            return np.array([self.relevance(clique) for clique in cliques])
        most = max(self.weights.values())
        held: dict[Clique, float] = {}
        for clique, weight in self.weights.items():
            part = (weight / most) ** 4
            for inside in subsets(clique):
                held[inside] = held.get(inside, 0.0) + part
        return np.array([most * held[clique] ** 0.25 for clique in cliques])


@dataclass(frozen=True, eq=False)
class QueryPart:
    """Sets of equally many attributes and the queries on each; WorkloadError without any set."""

    cliques: CliqueArray  # shape (sets, k): attribute positions, ascending along each row
    axis: Mapping[int, AxisQueries]  # combined by their product; empty if ``joint`` is given
    joint: tuple[Queries, ...] | None  # for each set, on all its attributes; None for products
    weights: Array  # shape (sets,), of squared errors, ``LEAST_WEIGHT`` to ``MOST_WEIGHT``

    def __post_init__(self) -> None:
        if not self.cliques.size:
            raise WorkloadError(_NO_ATTRIBUTES)
        bad = ~((self.weights >= LEAST_WEIGHT) & (self.weights <= MOST_WEIGHT))  # NaN as well
        if bad.any():
            raise _out_of_range(float(self.weights[bad][0]))

    def __len__(self) -> int:
        return len(self.cliques)

    @property
    def degree(self) -> int:
        """Attributes in each set, k."""
        return int(self.cliques.shape[1])

    def queries(self, index: int) -> tuple[Queries, ...]:
        """Return the factors of one set's queries: one for each attribute, or one for them all."""
        if self.joint is not None:
            return (self.joint[index],)
        return tuple(self.axis[int(i)] for i in self.cliques[index])

    @property
    def is_zero(self) -> bool:
        """Whether every coefficient of every query is zero."""
        requested = {queries for index in range(len(self)) for queries in self.queries(index)}
        zero = {
            queries
            for queries in requested
            if isinstance(queries, MatrixQueries) and not queries.coefficients.any()
        }
        return all(not zero.isdisjoint(self.queries(index)) for index in range(len(self)))

    @cached_property
    def num_queries(self) -> int:
        """Queries of all sets together (exact)."""
        if self.joint is not None:
            return sum(queries.num_queries for queries in self.joint)
        counts = np.empty(max(self.axis) + 1, dtype=object)
        for attribute, queries in self.axis.items():
            counts[attribute] = queries.num_queries
        return int(sum(math.prod(row) for row in counts[self.cliques].tolist()))


@dataclass(frozen=True, eq=False)
class QueryWorkload:
    """Queries to answer, in parts.

    Attributes:
        domain: the attributes the parts refer to.
        parts: at least one.
        target: the attribute that tables for the same sets are to serve; answers do not.

    Raises:
        WorkloadError: no parts, or weights too far apart.
        ResourceExceeded: as :func:`check_subsets`.
    """

    domain: Domain
    parts: tuple[QueryPart, ...]
    target: str | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise WorkloadError(_EMPTY)
        largest = max(float(part.weights.max()) for part in self.parts)
        least = min(float(part.weights.min()) for part in self.parts)
        # Largest ratio of two weights; solvers take the smaller ones beyond it for rounding errors
        most = 1e9
        if least * most < largest:
            raise WorkloadError(
                f"the workload's weights reach from {least:g} to {largest:g}, more than a factor "
                f"of {most:g} apart: raise the smaller, or leave out what matters so little"
            )
        degrees: Counter[int] = Counter()
        for part in self.parts:
            degrees[part.degree] += len(part)
        check_subsets(degrees)

    @property
    def num_queries(self) -> int:
        """Queries of all parts together (exact)."""
        return sum(part.num_queries for part in self.parts)

    def sets(self) -> Iterator[tuple[int, int, float]]:
        """Yield part number, position in it and weight of every attribute set, in order."""
        for number, part in enumerate(self.parts):
            yield from ((number, index, w) for index, w in enumerate(part.weights.tolist()))

    @property
    def num_sets(self) -> int:
        """Attribute sets of all parts together."""
        return sum(map(len, self.parts))

    def marginals(self) -> Workload:
        """Return the attribute sets as marginals, each with its largest weight, serving the target.

        Raise as :meth:`serving`.
        """
        weights: dict[Clique, float] = {}
        for number, index, weight in self.sets():
            clique = tuple(self.parts[number].cliques[index].tolist())
            weights[clique] = max(weight, weights.get(clique, 0.0))
        marginals = Workload(self.domain, weights)
        return marginals if self.target is None else marginals.serving(self.target)
