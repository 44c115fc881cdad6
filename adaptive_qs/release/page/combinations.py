"""Which combinations were measured, in which rounds, and how much noise they hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adaptive_qs.pages.charts import Cell, HeatMap, sequential_cell
from adaptive_qs.release.page.noise import (
    expected_l1,
    is_measured,
    known_noise_l1,
    measured_variance,
)
from adaptive_qs.residual.model import ReferenceModel

if TYPE_CHECKING:
    from adaptive_qs.release.bundle import Bundle

UNMEASURED_SHOWN = 400
"""Marginals that were not measured of which the noise in their parts is computed."""
LARGEST = 2**16
"""Cells of the largest of them."""


@dataclass(frozen=True)
class RoundRow:
    """One round.

    Attributes:
        number: from 1.
        names: of the columns of the marginal that was chosen.
        selecting: ρ of the choice.
        measuring: ρ of the measurement.
        moved: how far the estimate moved (rows).
        expected: how far noise alone moves it (rows).
    """

    number: int
    names: tuple[str, ...]
    selecting: float
    measuring: float
    moved: float
    expected: float

    @property
    def learnt(self) -> bool:
        """Whether the estimate moved further than noise alone moves it."""
        return self.moved > self.expected


@dataclass(frozen=True)
class Marginal:
    """A marginal of the workload.

    Attributes:
        names: of its columns.
        cells: their number.
        measured: whether everything in it was measured.
        std: standard error of a cell (rows); None where it was not measured.
        l1: distance from the truth expected of the noise in what was measured, in shares of the
            rows; None where it was not computed.
        rounds: in which it was chosen.
        rho: of these rounds, to measure it.
    """

    names: tuple[str, ...]
    cells: int
    measured: bool
    std: float | None
    l1: float | None
    rounds: int
    rho: float


def round_rows(bundle: Bundle) -> list[RoundRow]:
    """Every round, in order."""
    return [
        RoundRow(k, r.clique, r.rho_selecting, r.rho_measuring, r.moved, r.expected)
        for k, r in enumerate(bundle.rounds, 1)
    ]


def workload_marginals(bundle: Bundle, model: ReferenceModel, total: float) -> list[Marginal]:
    """The workload's marginals of several columns.

    First those that were measured, the noisiest first; then the others, in the workload's order.
    """
    domain = model.domain
    chosen: dict[tuple[str, ...], list[float]] = {}
    for past in bundle.rounds:
        chosen.setdefault(past.clique, []).append(past.rho_measuring)
    known: list[Marginal] = []
    unknown: list[Marginal] = []
    for clique in (c for c in bundle.workload.cliques if len(c) > 1):
        names, cells = domain.clique_names(clique), domain.size(clique)
        measured = is_measured(bundle.estimates, clique, domain)
        l1 = std = None
        if measured:
            std = math.sqrt(measured_variance(model, clique))
            l1 = expected_l1(model, clique, total)
        elif len(unknown) < UNMEASURED_SHOWN and cells <= LARGEST:
            l1 = known_noise_l1(model, clique, total)
        rho = chosen.get(names, [])
        marginal = Marginal(names, cells, measured, std, l1, len(rho), math.fsum(rho))
        (known if measured else unknown).append(marginal)
    return [*sorted(known, key=lambda m: (-(m.l1 or 0.0), m.names)), *unknown]


def partners(bundle: Bundle) -> dict[int, set[int]]:
    """Each column with several codes, and the columns that a combination was measured with."""
    domain = bundle.workload.domain
    found: dict[int, set[int]] = {i: set() for i, n in enumerate(domain.sizes) if n > 1}
    for clique in bundle.estimates:
        for i in clique:
            found[i] |= set(clique) - {i}
    return found


def pair_map(
    bundle: Bundle, model: ReferenceModel, total: float, columns: Sequence[int]
) -> HeatMap:
    """L1 distance that noise brings into every measured pair of these columns."""
    domain = model.domain
    errors: dict[tuple[int, int], float] = {
        (a, b): expected_l1(model, (a, b), total)
        for a in columns
        for b in columns
        if a < b and is_measured(bundle.estimates, (a, b), domain)
    }
    top = max(errors.values(), default=1.0)

    def cell(a: int, b: int) -> Cell:
        return Cell("") if a == b else sequential_cell(errors.get((min(a, b), max(a, b))), top)

    return HeatMap(
        "L1 of the noise in every measured pair, not the error of a table; – was not measured",
        tuple(i + 1 for i in columns),
        tuple(domain.names[i] for i in columns),
        tuple(tuple(cell(a, b) for b in columns) for a in columns),
    )
