"""Nested levels of an attribute: its codes, and groups of codes to take marginals over."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

# Along an attribute the levels span nested spaces 1 ⊂ V_1 ⊂ … ⊂ V_L of functions of its codes:
# those constant in the groups of a level. A residual lies, along each of its attributes, between
# two neighbours of that chain: it is a table over the groups of one level that sums to zero in
# every group of the next coarser one. With a single level that is the residual of the paper.

LEVEL_SIZES = (32, 8)
"""Numbers of groups of the levels at which marginals are offered, from fine to coarse."""
WORTH_A_LEVEL = 2
"""Smallest ratio of the numbers of groups of neighbouring levels."""


@dataclass(frozen=True)
class Grouping:
    """One level of an attribute above its codes.

    ``groups`` is the group of each code, shape (codes,), from 0 to their number − 1.
    """

    attribute: int
    groups: tuple[int, ...]

    @property
    def number(self) -> int:
        """Number of groups."""
        return max(self.groups) + 1


class Groups:
    """The groups of the indices of an axis; every group up to the largest occurs.

    Attributes:
        of: the group of each index, shape (n,).
        sizes: number of indices in each group, shape (groups,).
        largest: size of the largest group.
    """

    def __init__(self, of: Sequence[int] | NDArray[np.integer]) -> None:
        self.of = np.asarray(of, dtype=np.intp)
        self.sizes = np.bincount(self.of)
        if not self.sizes.all():
            raise ValueError("a group holds nothing")
        self.largest = int(self.sizes.max())
        self._starts = np.cumsum([0, *self.sizes[:-1]])

    @classmethod
    def one(cls, size: int) -> Self:
        """Return one group of all indices of an axis."""
        return cls(np.zeros(size, dtype=np.intp))

    @cached_property
    def _order(self) -> NDArray[np.intp] | None:
        """Indices group by group; None where they are already."""
        return None if (np.diff(self.of) >= 0).all() else np.argsort(self.of, kind="stable")

    def sums(self, array: NDArray[Any], axis: int) -> NDArray[Any]:
        """Sum an array over each group along an axis (integers exactly)."""
        if self.sizes.size == 1:
            return array.sum(axis=axis, keepdims=True)
        ordered = array if self._order is None else array.take(self._order, axis)
        return np.add.reduceat(ordered, self._starts, axis)

    def repeated(self, array: NDArray[Any], axis: int) -> NDArray[Any]:
        """Repeat an array over the groups for all indices in each group."""
        return array if self.sizes.size == 1 else array.take(self.of, axis)

    def centered(self, array: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Subtract the mean in each group along an axis."""
        if self.sizes.size == 1:
            return array - array.mean(axis=axis, keepdims=True)
        along = [1] * array.ndim
        along[axis] = -1
        return array - self.repeated(self.sums(array, axis) / self.sizes.reshape(along), axis)


def build_chain(levels: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the nested ones of some public groupings of the same codes, from fine to coarse.

    The grouping with most groups comes first, then each one whose groups are unions of groups of
    the last one taken. A grouping that distinguishes all codes, or none, is no level. Groups of a
    level can have any numbers.
    """
    numbered = [tuple(np.unique(level, return_inverse=True)[1].tolist()) for level in levels]
    found: list[tuple[int, ...]] = []
    for level in sorted(numbered, key=max, reverse=True):
        finer = found[-1] if found else range(len(level))
        nested = len(set(zip(finer, level))) == len(set(finer))
        if nested and 1 < len(set(level)) < len(set(finer)):
            found.append(level)
    return tuple(found)


def nested_groupings(
    attribute: int,
    shares: NDArray[np.float64],
    ordered: bool,
    declared: Sequence[Sequence[int]] = (),
) -> list[Grouping]:
    """Return the levels of an attribute, from fine to coarse, by the frequency of its codes.

    The codes are put in order (their own if they are on a scale, or by frequency, so that rare
    codes come together) and cut into groups of about the same share. A coarser level is made of the
    groups of the finer one. Declared levels (:func:`build_chain`) are kept: finer ones are cut
    inside their groups, coarser ones made of them. The shares of codes are released or public,
    shape (codes,).
    """
    public = [np.array(level) for level in declared]
    order = _in_order(shares, ordered, public)
    ladder = [(int(level.max()) + 1, level) for level in public]
    levels: list[Grouping] = []
    units = np.arange(shares.size)  # of each place in the order: its group of the level below
    for size in sorted([*LEVEL_SIZES, *(number for number, _ in ladder)], reverse=True):
        if int(units[-1]) + 1 < WORTH_A_LEVEL * size:
            continue
        kept = next((level for number, level in ladder if number == size), None)
        if kept is None:
            number, coarser = next((one for one in ladder if one[0] < size), (1, 0 * order))
            if size < WORTH_A_LEVEL * number:
                continue
            first = np.flatnonzero(np.diff(units, prepend=-1))
            held = np.bincount(units, shares[order]).astype(np.float64)
            units = _cut_inside(held, _runs(coarser[order][first]), size)[units]
            kept = np.empty(shares.size, dtype=np.int64)
            kept[order] = units
        units = _runs(kept[order])
        levels.append(Grouping(attribute, tuple(kept.tolist())))
    return levels


def _in_order(
    shares: NDArray[np.float64], ordered: bool, declared: Sequence[NDArray[np.int64]]
) -> NDArray[np.intp]:
    """Return the codes, or most frequent codes first; each declared group is a run of them."""
    codes = np.arange(shares.size)
    keys = [codes if ordered else -shares]
    for level in declared:
        if ordered:
            first = np.unique(level, return_index=True)[1]
            keys.append(first[level])
        else:
            keys += [level, -np.bincount(level, shares)[level]]
    return np.lexsort(keys)


def _runs(labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the number of the run of equal labels that contains each place."""
    return np.cumsum(np.diff(labels, prepend=labels[0]) != 0)


def _cut_inside(
    shares: NDArray[np.float64], inside: NDArray[np.int64], number: int
) -> NDArray[np.int64]:
    """Cut units in order into runs inside their parents, and return the run of each.

    Each parent has one run, and another one as long as its runs hold most each.
    """
    units, held = np.bincount(inside), np.bincount(inside, shares)
    runs = np.ones(units.size, dtype=np.int64)
    for _ in range(number - units.size):
        each = np.where(runs < units, held / runs, -1.0)
        runs[np.argmax(each)] += 1
    groups, end = [], 0
    for parent, some in enumerate(runs.tolist()):
        groups.append(_cut(shares[inside == parent], some) + end)
        end = int(groups[-1][-1]) + 1
    return np.concatenate(groups)


def _cut(shares: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Cut units in order into runs of about the same share, and return the run of each.

    A run ends where its share is nearest to an equal part of the rest at its start, or where only
    as many units are left as runs.
    """
    groups = np.empty(shares.size, dtype=np.int64)
    group, held, left = 0, 0.0, float(shares.sum())
    for unit, share in enumerate(shares.tolist()):
        equal = left / (number - group)
        full = held + share / 2 > equal or shares.size - unit < number - group
        if held > 0 and full and group < number - 1:
            left -= held
            group, held = group + 1, 0.0
        groups[unit] = group
        held += share
    return groups
