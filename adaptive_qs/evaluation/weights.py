"""What a survey's weights make of both tables: weighted marginals and means, beside chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.chance import chance_l1
from adaptive_qs.evaluation.groups import GroupError, group_error, without_column
from adaptive_qs.evaluation.limits import (
    CLOSE_SINGLE,
    DOUBTFUL,
    MOVED_MEAN,
    MOVED_SHIFT,
    STEP_ERROR,
    UNEQUAL,
)
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeightedMean:
    """The weighted mean of one column, in its unit; dates and times are seconds since 1970.

    Attributes:
        column: whose mean it is.
        true, synthetic: in both tables.
        chance: how far chance may take that of a fresh sample (``DOUBTFUL`` deviations).
        limit: what it may be off besides, as plain means may.
    """

    column: ColumnBase
    true: float
    synthetic: float
    chance: float
    limit: float

    @property
    def moved(self) -> bool:
        """Whether it is off, beyond chance."""
        return abs(self.synthetic - self.true) > max(self.chance, self.limit)


@dataclass(frozen=True, eq=False)
class Weighted:
    """What the weights of rows make of both tables; owner only.

    Attributes:
        by: name of the column of weights.
        totals: sum of the weights of the true and of the synthetic rows.
        unweighted, weighted: mean L1 error of marginals of the other columns, beside that of a
            fresh sample. The rows of ``weighted`` are effective ones: so many rows of equal weight
            would tell as much (Kish 1965, (Σw)² / Σw²).
        marginals: how many are compared.
        means: of every other column of numbers or dates, those that are furthest off first.
    """

    by: str
    totals: tuple[float, float]
    unweighted: GroupError
    weighted: GroupError
    marginals: int
    means: tuple[WeightedMean, ...]

    @property
    def worse(self) -> bool:
        """Whether weighted marginals are off beyond chance, and further than plain ones."""
        least = max(CLOSE_SINGLE, self.weighted.doubt, UNEQUAL * (self.unweighted.excess or 0.0))
        return (self.weighted.excess or 0.0) > least

    def as_json(self) -> dict[str, Any]:
        """Plain values."""

        def plain(found: GroupError) -> dict[str, Any]:
            rows = dict(zip(("true", "synthetic"), found.rows))
            return {"rows": rows, "mean_l1": found.error, "fresh_sample": found.fresh}

        means = [
            {
                "attribute": m.column.name,
                "true": m.true,
                "synthetic": m.synthetic,
                "chance": m.chance,
                "moved": m.moved,
            }
            for m in self.means
        ]
        return {
            "attribute": self.by,
            "marginals": self.marginals,
            "total": dict(zip(("true", "synthetic"), self.totals)),
            "unweighted": plain(self.unweighted),
            "weighted": plain(self.weighted),
            "worse": self.worse,
            "means": means,
        }


def check_weights(weights: str, schema: Schema) -> None:
    """Refuse a column that cannot weigh rows, by what is public about it.

    Raises:
        InputError: it is unknown, the only one, no column of numbers, or may be negative.
    """
    if weights not in schema.names:
        raise InputError(f"weights {weights!r} is not in the schema: check the spelling")
    if len(schema.names) == 1:
        raise InputError(f"weights {weights!r} is the only column: nothing is left to compare")
    column = schema.column(weights)
    if not (column.measured and column.numeric):
        raise InputError(f"weights {weights!r} is no column of numbers: name one")
    if column.ends(np.zeros(1, np.int64))[0][0] < 0:
        raise InputError(f"weights {weights!r} may be negative: declare its range from 0 on")


def weighted_errors(
    pair: TablePair, schema: Schema, weights: str, workload: Workload, workers: int = 1
) -> Weighted:
    """Weighted marginals and means of both tables.

    Args:
        pair: the tables.
        schema: of both.
        weights: the column, as :func:`check_weights` allows; rows without one weigh nothing.
        workload: the marginals, which are taken without that column.

    Raises:
        DataError: the weights of a table are not known, or are all 0.
    """
    place = schema.names.index(weights)
    both = tuple(_weights(pair, schema.columns[place], table) for table in (0, 1))
    totals = float(both[0].sum()), float(both[1].sum())
    if not min(totals) > 0:
        raise DataError(f"weights {weights!r} are all 0 or missing in a table: name another column")
    cliques = without_column(workload, place)
    unweighted = group_error("all rows", pair, cliques, workers)
    found = _weighted_error(pair, cliques, both, unweighted)
    others = (c for c in schema.columns if c.name != weights)
    means = [m for c in others if (m := _mean(pair, c, both)) is not None]
    means.sort(key=lambda m: -abs(m.synthetic - m.true) / (max(m.chance, m.limit) or math.inf))
    return Weighted(weights, totals, unweighted, found, len(cliques), tuple(means))


def _weights(pair: TablePair, column: ColumnBase, table: int) -> Numbers:
    amounts = pair.amounts_of(column, table)
    if amounts is None:
        raise DataError(f"weights {column.name!r} are known by bins only: give tables with values")
    return np.nan_to_num(amounts)


def _weighted_error(
    pair: TablePair,
    cliques: Sequence[Clique],
    weights: tuple[Numbers, ...],
    unweighted: GroupError,
) -> GroupError:
    """The error of weighted marginals, and what a fresh sample would have.

    That is the one for plain rows, times as much as the standard deviations of all cells' shares
    are larger. That of a weighted share s is √(Q(1 − 2s) + s² Σw²) / Σw, with Q = Σw² in the cell
    (by linearisation, Woodruff 1971), and √(s(1 − s)/n) where all weights are equal.
    """
    domain, errors = pair.domain, []
    deviations = np.zeros(2)
    squares = np.square(weights[0])
    for clique in cliques:
        size, sizes = domain.size(clique), [domain.sizes[i] for i in clique]
        true, made = (
            np.ravel_multi_index([table.columns[i] for i in clique], sizes)
            for table in (pair.true, pair.synthetic)
        )
        share = np.bincount(true, weights[0], size) / weights[0].sum()
        other = np.bincount(made, weights[1], size) / weights[1].sum()
        errors.append(float(np.abs(share - other).sum()))
        plain = np.bincount(true, minlength=size) / len(true)
        variance = np.bincount(true, squares, size) * (1 - 2 * share) + share**2 * squares.sum()
        deviations += (
            np.sqrt(np.maximum(variance, 0.0)).sum() / weights[0].sum(),
            np.sqrt(plain * (1 - plain)).sum() / math.sqrt(len(true)),
        )
    rows = [max(1, round(float(w.sum() ** 2 / np.square(w).sum()))) for w in weights]
    more = deviations[0] / deviations[1] if deviations[1] > 0 else 1.0
    fresh = min(2.0, float(more) * (unweighted.fresh or 0.0))
    doubt = chance_l1(rows[0], rows[1], 1.0) + STEP_ERROR * fresh
    return GroupError("weighted", (rows[0], rows[1]), float(np.mean(errors)), fresh, doubt)


def _mean(pair: TablePair, column: ColumnBase, weights: tuple[Numbers, ...]) -> WeightedMean | None:
    """The weighted means of one column; None where it has no amounts, or no weight on them.

    The variance of a weighted mean is Σ w² (x − mean)² / (Σ w)².
    """
    means, variance, spread = [], 0.0, 0.0
    least = 0.0
    for table, w in enumerate(weights):
        amounts = pair.amounts_of(column, table)
        if amounts is None:
            return None
        known = ~np.isnan(amounts)
        x, w = amounts[known], w[known]
        if not (total := float(w.sum())) > 0:
            return None
        mean = float(w @ x) / total
        variance += float(np.square(w) @ np.square(x - mean)) / total**2
        if table == 0:
            spread, least = math.sqrt(float(w @ np.square(x - mean)) / total), float(x.min())
        means.append(mean)
    relative = bool(column.numeric and least >= 0 and means[0] > 0)
    limits = [MOVED_SHIFT * spread] + [MOVED_MEAN * means[0]] * relative
    return WeightedMean(column, means[0], means[1], DOUBTFUL * math.sqrt(variance), min(limits))
