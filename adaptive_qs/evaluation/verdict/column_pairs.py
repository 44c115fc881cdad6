"""The error of every single column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.verdict.fresh import STEP_ERROR, chance_l1, fresh_sample_l1
from adaptive_qs.evaluation.verdict.scale import sparse_share


@dataclass(frozen=True)
class ColumnPair:
    """One column in both tables.

    Attributes:
        number: its position in the schema, from 1.
        name: of the column.
        codes: their number.
        variation: share of the rows that would have to change their code.
        fresh: the same expected of a fresh sample.
        doubt: variation beyond that of a fresh sample which chance and the estimate explain.
        shares: of the codes, in the true and in the synthetic table.
    """

    number: int
    name: str
    codes: int
    variation: float
    fresh: float
    doubt: float
    shares: tuple[NDArray[np.float64], NDArray[np.float64]]


def column_pairs(pair: TablePair) -> list[ColumnPair]:
    """Every column, the worst first."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    found = []
    for i, (true, made) in enumerate(zip(*pair.margins)):
        shares = true / rows[0], made / rows[1]
        variation = float(np.abs(shares[0] - shares[1]).sum() / 2)
        fresh = fresh_sample_l1(true, rows[1]) / 2
        doubt = STEP_ERROR * fresh + chance_l1(*rows, sparse_share(true)) / 2
        name = pair.domain.names[i]
        found.append(ColumnPair(i + 1, name, true.size, variation, fresh, doubt, shares))
    return sorted(found, key=lambda column: (-column.variation, column.number))
