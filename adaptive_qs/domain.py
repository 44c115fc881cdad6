"""Attributes, their sizes, cliques of them, and how a cell of one is named in public."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, combinations, groupby

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.errors import SchemaError

Clique = tuple[int, ...]
"""A set of attributes, as sorted positions in the domain. The empty clique is the total."""


@dataclass(frozen=True)
class Attribute:
    """A column with codes 0 .. size-1.

    Attributes:
        name: of the column.
        size: number of codes.
        ordered: whether the codes are on a scale, so that prefixes and ranges of them mean
            something. It plays no part in equality.
        beyond: codes at the end that are off that scale: of unknown and of missing values. It
            plays no part in equality.

    Raises:
        SchemaError: the size is not a positive integer.
    """

    name: str
    size: int
    ordered: bool = field(default=True, compare=False)
    beyond: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        size = as_integer(self.size)
        if size is None or size < 1:
            raise SchemaError(
                f"attribute {self.name!r} has size {shown(self.size)}: give a positive integer"
            )
        object.__setattr__(self, "size", size)


@dataclass(frozen=True)
class Domain:
    """An ordered, immutable collection of attributes with distinct names.

    Raises:
        SchemaError: no attributes, or a name that occurs twice.
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        if not self.attributes:
            raise SchemaError("the domain has no attributes: declare at least one column")
        seen: set[str] = set()
        for attribute in self.attributes:
            if attribute.name in seen:
                raise SchemaError(f"attribute {attribute.name!r} is declared twice: keep one")
            seen.add(attribute.name)

    @classmethod
    def from_sizes(cls, sizes: Mapping[str, int]) -> Domain:
        """The domain with these names and sizes, in the mapping's order, all taken as ordered."""
        return cls(tuple(Attribute(name, size) for name, size in sizes.items()))

    def __len__(self) -> int:
        return len(self.attributes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Attribute names, in order."""
        return tuple(a.name for a in self.attributes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Attribute sizes n_i, in order."""
        return tuple(a.size for a in self.attributes)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def clique(self, names: Iterable[str]) -> Clique:
        """The clique of these attribute names.

        Raises:
            SchemaError: an unknown name, or one given twice.
        """
        names = tuple(names)
        for name in names:
            if name not in self._positions:
                near = get_close_matches(name, self.names, n=1)
                mend = f"did you mean {near[0]!r}?" if near else "check the spelling"
                raise SchemaError(f"attribute {name!r} is not in the schema: {mend}")
        clique = tuple(sorted(self._positions[name] for name in names))
        if len(set(clique)) != len(clique):
            raise SchemaError(f"attributes {list(names)!r} name one column twice: remove one")
        return clique

    def clique_names(self, clique: Clique) -> tuple[str, ...]:
        """The attribute names of a clique."""
        return tuple(self.names[i] for i in clique)

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Shape of the marginal over a clique: one axis per attribute."""
        return tuple(self.sizes[i] for i in clique)

    def size(self, clique: Clique) -> int:
        """Number of cells n_γ of the marginal over a clique (exact, never overflows)."""
        return math.prod(self.shape(clique))


def subsets(clique: Clique) -> Iterator[Clique]:
    """All subsets of a clique, the empty one first, by size."""
    return chain.from_iterable(combinations(clique, k) for k in range(len(clique) + 1))


def downward_closure(cliques: Iterable[Clique]) -> tuple[Clique, ...]:
    """Every subset of every clique, without repeats, ordered by size and then by attribute."""
    given: dict[int, list[Clique]] = {}
    for clique in cliques:
        given.setdefault(len(clique), []).append(clique)
    if not given:
        return ()
    closure: list[Clique] = []
    above = np.empty((0, max(given) + 1), dtype=np.int64)
    for degree in range(max(given), 0, -1):
        listed = given.get(degree, [])
        parts = [np.array(listed, dtype=np.int64).reshape(len(listed), degree)]
        parts += [np.delete(above, axis, axis=1) for axis in range(degree + 1)]
        above = distinct(np.concatenate(parts))
        closure[:0] = map(tuple, above.tolist())
    return ((), *closure)


def distinct(cliques: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cliques of equally many attributes, shape (cliques, degree), each once, in order."""
    base = int(cliques.max(initial=0)) + 1
    if base ** cliques.shape[1] > 2**62:
        return np.unique(cliques, axis=0)
    powers = base ** np.arange(cliques.shape[1])[::-1]
    return cliques[np.unique(cliques @ powers, return_index=True)[1]]


class CliqueIndex:
    """Where cliques stand in a list that is closed under subsets, found for many at once.

    Args:
        attributes: number of attributes of the domain.
        closure: cliques with all their subsets, in the order of :func:`downward_closure`.
    """

    def __init__(self, attributes: int, closure: Iterable[Clique]) -> None:
        self._attributes = attributes
        self._start: list[int] = []
        self._keys: list[NDArray[np.int64]] = []
        position = 0
        for degree, group in groupby(closure, key=len):
            listed = list(group)
            cliques = np.array(listed, dtype=np.int64).reshape(len(listed), degree)
            self._start.append(position)
            self._keys.append(self._key(cliques))
            position += len(listed)

    def positions(self, cliques: NDArray[np.integer]) -> NDArray[np.int64]:
        """Positions of cliques of equally many attributes, shape (cliques, degree), in the list."""
        degree = cliques.shape[1]
        ranks = np.searchsorted(self._keys[degree], self._key(cliques.astype(np.int64)))
        return self._start[degree] + ranks

    def of_subsets(self, cliques: NDArray[np.integer]) -> NDArray[np.int64]:
        """Positions of all their subsets, in the order of :func:`subsets`: (cliques, 2**degree)."""
        axes = subsets(tuple(range(cliques.shape[1])))
        return np.stack([self.positions(cliques[:, list(some)]) for some in axes], axis=1)

    def _key(self, cliques: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ascending with the cliques: the rank of the clique without its last attribute, and it."""
        key = np.zeros(len(cliques), dtype=np.int64)
        for axis in range(cliques.shape[1]):
            rank = np.searchsorted(self._keys[axis], key)
            key = rank * self._attributes + cliques[:, axis]
        return key


# How one cell of an attribute is named in public: a value, or a bin with its two ends.


class BinLabel(str):
    """The name of a cell that holds several values, such as "20..29".

    Attributes:
        first: the smallest value.
        last: the largest value, or the bound below which all values lie.
        open: whether ``last`` itself is outside.
    """

    first: str
    last: str
    open: bool

    def __new__(cls, name: str, first: str, last: str, open: bool = False) -> BinLabel:  # noqa: A002
        """A text with the ends of the bin."""
        label = super().__new__(cls, name)
        label.first, label.last, label.open = first, last, open
        return label


def up_to(name: str, label: str) -> str:
    """A comparison that holds for a cell and all before it, such as "age <= 29"."""
    if isinstance(label, BinLabel):
        return f"{name} {'<' if label.open else '<='} {label.last}"
    return f"{name} <= {label}"


def from_to(name: str, first: str, last: str) -> str:
    """An interval from one cell to another, such as "age in [20, 39]" or "[1.5, 2)"."""
    start, end, is_open = _ends(first, last)
    return f"{name} in [{start}, {end}{')' if is_open else ']'}"


def anywhere(name: str) -> str:
    """All of a circle of cells."""
    return f"{name} anywhere"


def around(name: str, first: str, last: str) -> str:
    """An arc over the end of a circle of cells, such as "hour from 22 to 3, around the end"."""
    start, end, is_open = _ends(first, last)
    return f"{name} from {start} {'to below' if is_open else 'to'} {end}, around the end"


def _ends(first: str, last: str) -> tuple[str, str, bool]:
    """Where an interval of cells begins and ends, and whether its end is outside."""
    start = first.first if isinstance(first, BinLabel) else first
    return (start, last.last, last.open) if isinstance(last, BinLabel) else (start, last, False)
