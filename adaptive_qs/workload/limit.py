"""The choice of the marginals of a table if a workload has too many: a rule without data."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, CliqueIndex
from adaptive_qs.domain import Clique
from adaptive_qs.workload.workload import LEAST_WEIGHT, MOST_WEIGHT, Workload

# Sizes, weights and ceilings, not rows, decide which of the requested marginals and of those inside
# them may be measured. The rules: docs/scaling.md, "Dropped marginals".


@dataclass(frozen=True)
class Ceilings:
    """Limits on the marginals that may be measured."""

    candidates: int  # most of them, not counting single columns
    cells: int  # most cells of all of them together, single columns counted
    largest: float = np.inf  # most cells of one
    candidates_by: str = "max-candidates"  # the option behind ``candidates``


@dataclass(frozen=True)
class DroppedMarginals:
    """Number of requested marginals that were dropped, and by which ceilings."""

    requested: int  # marginals of the workload
    kept: int  # the requested marginals that stay
    candidates: int  # marginals that may be measured, single columns counted
    ceilings: Ceilings
    bound: tuple[str, ...]  # ceilings that dropped marginals: "candidates", "cells", "largest"

    def __str__(self) -> str:
        """Return one line: how much, by which ceiling, in which order."""
        most = {
            "candidates": f"{self.ceilings.candidates:,} multi-column ones: "
            f"--{self.ceilings.candidates_by}",
            "cells": f"{self.ceilings.cells:,} cells in all: --max-cells",
            "largest": f"{self.ceilings.largest:,.0f} cells in one: --max-memory",
        }
        options = ", ".join(most[name] for name in self.bound)
        return (
            f"{self.requested - self.kept:,} of {self.requested:,} requested marginals were "
            f"dropped (at most {options}). The {self.candidates:,} candidates are the marginals "
            "with the largest weight per cell, their sub-marginals and the single columns."
        )


def limited(workload: Workload, ceilings: Ceilings) -> tuple[Workload, DroppedMarginals | None]:
    """Return the part of a workload within the ceilings, and what was dropped.

    Attributes of one value do not count: nothing is measured about them.
    """
    several = _of_several_values(workload)
    if not several:
        return workload, None
    closure = Workload(workload.domain, several).closure
    index = CliqueIndex(len(workload.domain), closure)
    groups = [np.array(list(group)) for k, group in groupby(closure, key=len) if k]
    sizes = np.asarray(workload.domain.sizes, dtype=np.float64)
    cells = np.concatenate([[1.0], *(sizes[group].prod(axis=1) for group in groups)])
    kept, bound = _kept(groups, cells, _weight_in(index, groups, several, len(closure)), ceilings)
    if workload.unlisted:
        bound = tuple(dict.fromkeys(("candidates", *bound)))
    elif kept.all():
        return workload, None
    own = _handed_down(index, groups, several, kept)
    weights = {
        clique: float(np.clip(w, LEAST_WEIGHT, MOST_WEIGHT))
        for clique, stays, w in zip(closure, kept.tolist(), own.tolist())
        if stays and w > 0
    }
    requested = [c for c in several if not workload.unlisted or len(c) in workload.unlisted]
    stayed = int(kept[_places(index, requested)].sum())
    left = DroppedMarginals(
        len(requested) + sum(workload.unlisted.values()), stayed, int(kept.sum()) - 1, ceilings,
        bound,
    )  # fmt: skip
    return Workload(workload.domain, weights, target=workload.target, handed_down=True), left


def _of_several_values(workload: Workload) -> dict[Clique, float]:
    """Return the requested cliques without attributes of one value."""
    sizes = workload.domain.sizes
    weights: dict[Clique, float] = {}
    for clique, weight in workload.weights.items():
        several = tuple(i for i in clique if sizes[i] > 1)
        if several:
            weights[several] = weights.get(several, 0.0) + weight
    return weights


def _places(index: CliqueIndex, cliques: Collection[Clique]) -> NDArray[np.int64]:
    places = np.empty(len(cliques), dtype=np.int64)
    degrees = np.array([len(clique) for clique in cliques])
    listed = list(cliques)
    for degree in np.unique(degrees).tolist():
        rows = np.flatnonzero(degrees == degree)
        places[rows] = index.positions(np.array([listed[row] for row in rows]))
    return places


def _weight_in(
    index: CliqueIndex, groups: list[NDArray[np.int64]], weights: Mapping[Clique, float], size: int
) -> Array:
    """Return for each clique of the closure the weight of requested cliques that contain it."""
    total = np.zeros(size)
    for group in groups:
        requested = np.array([weights.get(tuple(clique), 0.0) for clique in group.tolist()])
        some = requested > 0
        if some.any():
            inside = index.of_subsets(group[some])
            spread = np.repeat(requested[some], inside.shape[1])
            total += np.bincount(inside.ravel(), spread, minlength=size)
    return total


def _kept(
    groups: list[NDArray[np.int64]], cells: Array, weight: Array, ceilings: Ceilings
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return which cliques of the closure stay, with the empty one, and the binding ceilings."""
    singles = len(groups[0])
    several = np.arange(1 + singles, cells.size)
    fitting = several[cells[several] <= ceilings.largest]
    order = fitting[np.lexsort((fitting, cells[fitting], -(weight / cells)[fitting]))]
    if len(groups) > 1:
        order = _first_pairs_first(order, groups[1], 1 + singles)
    within = cells[1 : 1 + singles].sum() + np.cumsum(cells[order]) <= ceilings.cells
    number = min(int(within.sum()), ceilings.candidates)
    kept = np.zeros(cells.size, dtype=np.bool_)
    kept[: 1 + singles] = True
    kept[order[:number]] = True
    bound = []
    if order.size > ceilings.candidates:
        bound.append("candidates")
    if not within.all():
        bound.append("cells")
    if fitting.size < several.size:
        bound.append("largest")
    return kept, tuple(bound)


def _first_pairs_first(
    order: NDArray[np.int64], pairs: NDArray[np.int64], begin: int
) -> NDArray[np.int64]:
    """Put the first pair of every column at the front of ranked cliques; pairs are at ``begin``."""
    ranked = order[order < begin + len(pairs)]
    _, first = np.unique(pairs[ranked - begin], return_index=True)
    covering = ranked[np.unique(first // 2)]
    return np.concatenate([covering, order[~np.isin(order, covering)]])


def _handed_down(
    index: CliqueIndex,
    groups: list[NDArray[np.int64]],
    weights: Mapping[Clique, float],
    kept: NDArray[np.bool_],
) -> Array:
    """Return the weights of the closure after dropped cliques handed theirs down."""
    own = np.zeros(kept.size)
    own[_places(index, weights)] = list(weights.values())
    for group in reversed(groups[1:]):
        places = index.positions(group)
        gone = ~kept[places] & (own[places] > 0)
        part = own[places[gone]] / (group.shape[1] - 1)
        for axis in range(group.shape[1]):
            np.add.at(own, index.positions(np.delete(group[gone], axis, axis=1)), part)
    return own
