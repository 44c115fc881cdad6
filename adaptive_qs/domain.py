"""Attributes, their sizes, cliques of them, and how a cell of one is named in public."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, combinations, pairwise, product
from typing import TYPE_CHECKING, Any

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.errors import SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adaptive_qs.levels import Grouping, Groups

Clique = tuple[int, ...]
"""A set of attributes, as sorted positions in the domain. The empty clique is the total.

In a domain with levels, the position of an attribute stands for its codes. Positions beyond the
attributes stand for its groups, one for each grouping of the domain; attributes stay in order."""


@dataclass(frozen=True)
class Attribute:
    """A column with codes 0 .. size-1.

    Attributes:
        name: of the column.
        size: number of codes.
        ordered: whether the codes are on a scale, so that prefixes and ranges are meaningful.
        beyond: number of codes at the end that are off that scale: unknown and missing values.
        declared: the group of each code at public levels, from fine to coarse; see
            :func:`adaptive_qs.levels.build_chain`. Only name and size count for equality.

    Raises:
        SchemaError: the size is not a positive integer.
    """

    name: str
    size: int
    ordered: bool = field(default=True, compare=False)
    beyond: int = field(default=0, compare=False)
    declared: tuple[tuple[int, ...], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        size = as_integer(self.size)
        if size is None or size < 1:
            raise SchemaError(
                f"attribute {self.name!r} has size {shown(self.size)}. Use a positive integer."
            )
        object.__setattr__(self, "size", size)


@dataclass(frozen=True)
class Domain:
    """An ordered, immutable collection of attributes with distinct names.

    Attributes:
        attributes: in order.
        groupings: their levels above the codes; the levels of one attribute from fine to coarse.

    Raises:
        SchemaError: no attributes, or a name that occurs twice.
        ValueError: groupings that are not nested, or not of the codes of an attribute.
    """

    attributes: tuple[Attribute, ...]
    groupings: tuple[Grouping, ...] = ()

    def __post_init__(self) -> None:
        if not self.attributes:
            raise SchemaError("the domain has no attributes: declare at least one column")
        seen: set[str] = set()
        for attribute in self.attributes:
            if attribute.name in seen:
                raise SchemaError(f"attribute {attribute.name!r} is declared twice: keep one")
            seen.add(attribute.name)
        if any(len(g.groups) != self.sizes[g.attribute] for g in self.groupings):
            raise ValueError("a grouping is not of the codes of its attribute")
        for levels in self._chains:
            for finer, coarser in pairwise(levels):
                self.groups(finer, coarser)

    @classmethod
    def from_sizes(cls, sizes: Mapping[str, int]) -> Domain:
        """Return the domain with these names and sizes, in the mapping's order, all ordered."""
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
        """Return the clique of these attribute names; SchemaError if one is unknown or twice."""
        names = tuple(names)
        for name in names:
            if name not in self._positions:
                near = get_close_matches(name, self.names, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else "check the spelling"
                raise SchemaError(f"attribute {name!r} is not in the schema: {remedy}")
        clique = tuple(sorted(self._positions[name] for name in names))
        if len(set(clique)) != len(clique):
            raise SchemaError(f"attributes {list(names)!r} name one column twice: remove one")
        return clique

    def clique_at(self, names: Iterable[str], groups: Sequence[int]) -> Clique:
        """Return the clique of these attributes, each at the level with this number of groups.

        Raises:
            SchemaError: as for :meth:`clique`.
            ValueError: names that are not in order, or an attribute without such a level.
        """
        names = tuple(names)
        columns = self.clique(names)
        if self.clique_names(columns) != names:
            raise ValueError("the attributes of a marginal are not in order")
        chosen = []
        for column, number in zip(columns, groups, strict=True):
            found = [i for i in self.chain(column) if self._level_sizes[i] == number]
            if len(found) != 1:
                raise ValueError("an attribute has no level with this number of groups")
            chosen += found
        return tuple(chosen)

    def clique_names(self, clique: Clique) -> tuple[str, ...]:
        """Return the attribute names of a clique."""
        return tuple(self.names[i] for i in self.columns(clique))

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Return the shape of the marginal over a clique: one axis per attribute."""
        return tuple(self._level_sizes[i] for i in clique)

    def size(self, clique: Clique) -> int:
        """Return the number of cells n_γ of the marginal over a clique (exact)."""
        return math.prod(self.shape(clique))

    # Levels.

    @cached_property
    def _level_sizes(self) -> tuple[int, ...]:
        return (*self.sizes, *(grouping.number for grouping in self.groupings))

    @cached_property
    def _attributes_by_axis(self) -> tuple[int, ...]:
        return (*range(len(self)), *(grouping.attribute for grouping in self.groupings))

    @cached_property
    def _chains(self) -> tuple[tuple[int, ...], ...]:
        """Each position with the coarser levels of its attribute, from fine to coarse."""
        coarser: list[list[int]] = [[] for _ in self.attributes]
        chains: dict[int, tuple[int, ...]] = {}
        for position in range(len(self._attributes_by_axis) - 1, -1, -1):
            behind = coarser[self._attributes_by_axis[position]]
            behind.insert(0, position)
            chains[position] = tuple(behind)
        return tuple(chains[position] for position in range(len(chains)))

    @cached_property
    def _groups(self) -> dict[tuple[int, int | None], Groups]:
        return {}

    @property
    def positions(self) -> int:
        """Number of positions in cliques: of attributes at their codes, and of groupings."""
        return len(self._attributes_by_axis)

    def columns(self, clique: Clique) -> Clique:
        """Return the same attributes at their codes."""
        if not self.groupings:
            return tuple(clique)
        return tuple(self._attributes_by_axis[i] for i in clique)

    def chain(self, position: int) -> tuple[int, ...]:
        """Return a position and the coarser levels of its attribute, from fine to coarse."""
        return self._chains[position]

    def groups(self, position: int, coarser: int | None) -> Groups:
        """Return the groups of a coarser level in which the groups or codes of a level lie.

        None is the coarsest level of all, with one group.
        """
        found = self._groups.get((position, coarser))
        if found is None:
            found = self._groups[position, coarser] = self._grouped(position, coarser)
        return found

    def _grouped(self, position: int, coarser: int | None) -> Groups:
        from adaptive_qs.levels import Groups  # a schema is read without numpy

        if coarser is None:
            return Groups.one(self._level_sizes[position])
        above = self.groupings[coarser - len(self)].groups
        if position < len(self):
            return Groups(above)
        pairs = sorted(set(zip(self.groupings[position - len(self)].groups, above)))
        if len(pairs) != self._level_sizes[position]:
            raise ValueError("a grouping is not nested in the next finer one")
        return Groups([group for _, group in pairs])

    def summed(self, array: NDArray[Any], clique: Clique, coarser: Clique) -> NDArray[Any]:
        """Sum a marginal over the groups of coarser levels of its attributes."""
        for axis, (fine, coarse) in enumerate(zip(clique, coarser)):
            if fine != coarse:
                array = self.groups(fine, coarse).sums(array, axis)
        return array

    def repeated(self, array: NDArray[Any], coarser: Clique, clique: Clique) -> NDArray[Any]:
        """Repeat an array over coarser levels for all cells of a clique in each group."""
        for axis, (fine, coarse) in enumerate(zip(clique, coarser)):
            if fine != coarse:
                array = self.groups(fine, coarse).repeated(array, axis)
        return array

    def parents(self, residual: Clique) -> tuple[Groups, ...]:
        """Return the groups in which a residual sums to zero, for each of its attributes.

        The groups are the next coarser level; a residual of one attribute is over its codes.
        """
        if len(residual) == 1:
            return (self.groups(residual[0], None),)
        return tuple(self.groups(i, next(iter(self._chains[i][1:]), None)) for i in residual)

    def below(self, clique: Clique) -> Iterator[Clique]:
        """Iterate over the residuals of a marginal, the empty one first, by size.

        Residuals are over its subsets, at all its levels and coarser ones. A residual of one
        attribute is over its codes. Without levels these are all subsets.
        """
        for part in subsets(clique):
            yield from self.at_levels(part) if len(part) > 1 else (self.columns(part),)

    def at_levels(self, clique: Clique) -> Iterator[Clique]:
        """Iterate over the combinations of levels of a clique, the given one first."""
        return product(*(self._chains[i] for i in clique))

    def is_below(self, residual: Clique, clique: Clique) -> bool:
        """Return whether a residual is one of :meth:`below`."""
        if len(residual) < 2:
            return set(residual) <= set(self.columns(clique))
        return all(any(i in self._chains[k] for k in clique) for i in residual)


def subsets(clique: Clique) -> Iterator[Clique]:
    """Iterate over the subsets of a clique, the empty one first, by size."""
    return chain.from_iterable(combinations(clique, k) for k in range(len(clique) + 1))


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
        label = super().__new__(cls, name)
        label.first, label.last, label.open = first, last, open
        return label


def up_to(name: str, label: str) -> str:
    """Return a comparison that holds up to a cell, such as "age <= 29"."""
    if isinstance(label, BinLabel):
        return f"{name} {'<' if label.open else '<='} {label.last}"
    return f"{name} <= {label}"


def from_to(name: str, first: str, last: str) -> str:
    """Return an interval of cells as text, such as "age in [20, 39]" or "[1.5, 2)"."""
    start, end, is_open = _ends(first, last)
    return f"{name} in [{start}, {end}{')' if is_open else ']'}"


def anywhere(name: str) -> str:
    """Return the text of an interval that is a whole circle of cells."""
    return f"{name} anywhere"


def around(name: str, first: str, last: str) -> str:
    """Return an arc of a circle as text, such as "hour from 22 to 3, around the end"."""
    start, end, is_open = _ends(first, last)
    return f"{name} from {start} {'to below' if is_open else 'to'} {end}, around the end"


def _ends(first: str, last: str) -> tuple[str, str, bool]:
    """Return where an interval of cells begins and ends, and whether its end is outside."""
    start = first.first if isinstance(first, BinLabel) else first
    return (start, last.last, last.open) if isinstance(last, BinLabel) else (start, last, False)
