"""How much data there will be for each cell of a planned workload, and what a synthetic table will
know of its columns, from public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from adaptive_qs.cli.batch import is_weighted, rmse_words
from adaptive_qs.cli.figures import percent
from adaptive_qs.cli.output import Row, counted, figure
from adaptive_qs.pages.names import first_of

if TYPE_CHECKING:
    from adaptive_qs.adaptive.forecast import UnconnectedForecast
    from adaptive_qs.answering.plan import BatchPlan


@dataclass(frozen=True)
class Cells:
    """The cells of the marginals over a workload's sets of attributes, each set once.

    Attributes:
        plan: what was planned.
        mean, largest: cells of a marginal.
        rows: about how many rows the table will have; None where that is not public.
    """

    plan: BatchPlan
    mean: float
    largest: int
    rows: int | None

    @classmethod
    def of(cls, plan: BatchPlan, rows: int | None) -> Self:
        """Count them."""
        import numpy as np

        parts: dict[int, list[Any]] = {}
        for part in plan.workload.parts:
            parts.setdefault(part.degree, []).append(part.cliques)
        sizes = np.asarray(plan.workload.domain.sizes, dtype=np.float64)
        sets = [np.unique(np.concatenate(some), axis=0) for some in parts.values()]
        cells = np.concatenate([sizes[some].prod(axis=1) for some in sets])
        return cls(plan, float(cells.mean()), int(cells.max()), rows)

    @property
    def rows_per_cell(self) -> float | None:
        """Rows of a cell, on average over all cells of all sets."""
        return None if self.rows is None else self.rows / self.mean

    @property
    def _of_cells(self) -> bool:
        """Whether every query counts one cell of a marginal."""
        from adaptive_qs.workload.axis_queries import Marginal

        parts = self.plan.workload.parts
        return all(p.axis and all(isinstance(q, Marginal) for q in p.axis.values()) for p in parts)

    @property
    def relative_rmse(self) -> float | None:
        """The expected RMSE as a part of them; None where rows or an unweighted RMSE lack, or where
        queries count more than a cell."""
        if self.rows_per_cell is None or is_weighted(self.plan) or not self._of_cells:
            return None
        return self.plan.rmse / self.rows_per_cell

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        return {
            "cells": {"mean": self.mean, "largest": self.largest},
            "rows": self.rows,
            "rows_per_cell": self.rows_per_cell,
            "relative_rmse": self.relative_rmse,
        }

    def line(self) -> Row:
        """The same for people."""
        text = (
            f"{figure(self.mean)} in a set of attributes on average, {figure(self.largest)} at most"
        )
        if self.rows_per_cell is None:
            return ("cells", f"{text} (--rows N tells the rows in each)")
        text += f"; {self.rows:,} rows are {figure(self.rows_per_cell)} for each"
        if self.relative_rmse is None:
            return ("cells", text)
        share = percent(self.relative_rmse)
        return ("cells", f"{text}, and the {rmse_words(self.plan)} is {share} of that")


@dataclass(frozen=True)
class Tables:
    """What `synthesize` would make of the same sets of attributes with the same budget.

    Attributes:
        forecast: of its loop.
        rows: about how many rows the table will have; None where that is not public.
        total_std: standard deviation (rows) of its number of rows, or less.
        unconnected: columns that it will likely leave independent of all others; None where the
            rows lack, where no combination is asked for, or too many.
        least_rows: about how many rows each column takes not to be; None as for these.
    """

    forecast: UnconnectedForecast
    rows: int | None
    total_std: float
    unconnected: tuple[str, ...] | None
    least_rows: dict[str, int | None] | None

    @classmethod
    def of(
        cls,
        schema: Path,
        plan: BatchPlan,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        learning_share: float,
        rows: int | None,
    ) -> Self:
        """Forecast a run of `synthesize`.

        Raises:
            InputError: the budget is none that it takes.
        """
        from adaptive_qs.adaptive.forecast import UnconnectedForecast, total_std
        from adaptive_qs.adaptive.preprocessing.shares import discovery_share, preprocessing_cost
        from adaptive_qs.audit.jobs import marginals_of
        from adaptive_qs.data.schema import Schema
        from adaptive_qs.privacy.budget import float_below
        from adaptive_qs.synthesizer.target import PrivacyTarget

        described = Schema.load(schema)
        target = PrivacyTarget.of(epsilon, delta, rho, discovery_share(described))
        learning = preprocessing_cost(described, target.cost, learning_share)
        workload = marginals_of(plan.workload)
        forecast = UnconnectedForecast(workload, float_below((target.cost - learning).rho))
        combined = any(len(clique) > 1 for clique in workload.cliques)
        std = total_std(workload.domain, forecast.rho, rows or 0, combined)
        possible = forecast.possible
        return cls(
            forecast,
            rows,
            std,
            forecast.columns(rows) if possible and rows is not None else None,
            forecast.least_rows() if possible else None,
        )

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        return {
            "total_std": self.total_std,
            "unconnected": None if self.unconnected is None else list(self.unconnected),
            "least_rows": self.least_rows,
        }

    def line(self) -> Row:
        """The same for people."""
        known = f"to about +/- {figure(self.total_std)}"
        text = f"with synthesize the number of rows would be known {known}"
        if self.least_rows is None:
            return ("tables", text)
        from adaptive_qs.adaptive.forecast import MEND

        if self.unconnected is None:
            return ("tables", f"{text} (--rows N tells which columns it would leave independent)")
        if not self.unconnected:
            return ("tables", f"{text}, and likely no column independent of all others")
        whole = counted(len(self.forecast.workload.domain), "column")
        named = first_of(self.unconnected, 6)
        return (
            "tables",
            f"{text}, and {len(self.unconnected):,} of {whole} likely independent of all others: "
            f"{named}: {MEND}",
        )
