"""Columns of which a release knows nothing beside their own counts, though more was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from adaptive_qs.domain import Clique
from adaptive_qs.workload.workload import Workload

if TYPE_CHECKING:
    from adaptive_qs.release.bundle import Bundle


def alone_columns(bundle: Bundle) -> tuple[str, ...]:
    """The columns of :func:`alone_among` for the marginals that a release measured.

    Every bundle has them in its manifest, checked or filled in where it is made.
    """
    return bundle.manifest.alone or ()


def alone_among(workload: Workload, measured: Iterable[Clique]) -> tuple[str, ...]:
    """Columns whose combinations were asked for and none was measured, in the schema's order.

    In a table that is sampled from the release they are independent of all others. Columns of one
    code are neither alone nor company, since nothing can depend on them; nor is a column alone of
    which the workload asks for no combination, as in one of single columns only.

    Args:
        workload: what was asked for.
        measured: the residuals that were measured.
    """
    domain = workload.domain
    several = {i for i, size in enumerate(domain.sizes) if size > 1}
    asked = {i for clique in workload.cliques for i in _joined(clique, several)}
    known = {i for clique in measured for i in _joined(clique, several)}
    return tuple(domain.names[i] for i in sorted(asked - known))


def _joined(clique: tuple[int, ...], several: set[int]) -> set[int]:
    """The columns of a set that can depend on each other: none, or at least two."""
    joined = several.intersection(clique)
    return joined if len(joined) > 1 else set()
