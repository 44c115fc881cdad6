"""Workload cliques within a limit of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from math import prod


def fitting(
    workload: Iterable[tuple[str, ...]], domain: Mapping[str, int], max_cells: int
) -> list[tuple[str, ...]]:
    """The cliques, those above `max_cells` cells replaced by their largest subsets within it.

    Without the subsets a pair whose every triple is too large would be lost. Single attributes
    stay whatever their size; cliques that lie inside another clique of the workload stay too.
    """
    kept: dict[tuple[str, ...], None] = {}
    for clique in workload:
        _keep(clique, domain, max_cells, kept)
    return list(kept)


def _keep(
    clique: tuple[str, ...],
    domain: Mapping[str, int],
    max_cells: int,
    kept: dict[tuple[str, ...], None],
) -> None:
    if len(clique) <= 1 or prod(domain[name] for name in clique) <= max_cells:
        kept[clique] = None
        return
    for smaller in combinations(clique, len(clique) - 1):
        _keep(smaller, domain, max_cells, kept)
