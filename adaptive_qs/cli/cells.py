"""How much data there will be for each cell of a planned workload, from public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from adaptive_qs.cli.batch import is_weighted, rmse_words
from adaptive_qs.cli.figures import percent
from adaptive_qs.cli.output import Row, figure
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.answering.plan import BatchPlan

MOST_ROWS = 10**15
"""Counts up to it are exact in floating point, with any noise."""


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


def check_public_rows(rows: int | None) -> None:
    """Refuse a number of rows that no table has.

    Raises:
        InputError: it is not positive, or beyond what can be counted.
    """
    if rows is not None and not 1 <= rows <= MOST_ROWS:
        raise InputError(f"--rows is {rows}: give about how many rows the table will have")
