"""Are control rows held out, or do they occur in the true table more than fresh ones would?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.contingency import ranked, row_numbers
from adaptive_qs.evaluation.pair import TablePair

MIN_ROWS = 16
"""True rows, and control rows, without which there is no game."""
FALSE_ALARM = 1e-3
"""Probability at most that rows which were really held out are taken for overlapping."""


@dataclass(frozen=True)
class Overlap:
    """How many control rows equal one of the base rows, beside as many true rows.

    Attributes:
        control: share of the control rows that equal a base row.
        true: the same for true rows that are not in the base.
        found: whether the first is larger than chance explains.
        complete: whether every control row equals some true row, one of the base or not.
    """

    control: float
    true: float
    found: bool
    complete: bool


def check_control(true: CodedTable, control: CodedTable, seed: int) -> Overlap:
    """The overlap of a control table that can serve.

    Raises:
        DataError: the domains differ, a table has too few rows, or the control rows were not held
            out: they are the true rows, or all of them are among those more often than by chance.
    """
    TablePair(true, control)
    if min(true.num_rows, control.num_rows) < MIN_ROWS:
        raise DataError(
            f"the true and the control table need at least {MIN_ROWS} rows each for an attack: "
            "hold out more"
        )
    if _same_rows(true, control):
        raise DataError(
            "the control table has the very rows of the true table: give rows that were held out "
            "of it"
        )
    overlap = find_overlap(true, control, seed)
    if overlap.found and overlap.complete:
        raise DataError(
            "every control row is a row of the true table: give rows that were held out of it"
        )
    return overlap


def find_overlap(true: CodedTable, control: CodedTable, seed: int) -> Overlap:
    """Compare control rows with as many true rows, drawn at random, against the other true rows.

    If the control rows were held out, they and the drawn rows are independent draws from one
    population, whatever the base is, so that both numbers of matches are binomial with one
    probability, and Fisher's exact one-sided test is wrong with probability 0.001 at most. Rows
    that occur often by themselves do so in both.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(true.num_rows)
    drawn = min(control.num_rows, true.num_rows // 2)
    keys = _keys([column[order] for column in true.columns], control)
    in_base = np.isin(keys, keys[drawn : true.num_rows])
    true_matches, control_matches = in_base[:drawn], in_base[true.num_rows :]
    matches = [
        [int(part.sum()), int(len(part) - part.sum())] for part in (control_matches, true_matches)
    ]
    chance = float(fisher_exact(matches, alternative="greater").pvalue)
    return Overlap(
        control=float(control_matches.mean()),
        true=float(true_matches.mean()),
        found=chance <= FALSE_ALARM,
        complete=bool(np.isin(keys[true.num_rows :], keys[: true.num_rows]).all()),
    )


def _same_rows(true: CodedTable, control: CodedTable) -> bool:
    """Whether both tables have the same rows equally often."""
    if true.num_rows != control.num_rows:
        return False
    keys = _keys(true.columns, control)
    first, second = (np.bincount(part, minlength=keys.max() + 1) for part in np.split(keys, 2))
    return bool((first == second).all())


def _keys(true_columns: Sequence[NDArray[np.integer]], control: CodedTable) -> NDArray[np.int64]:
    """A number for each row, those of the true table first, equal where rows are."""
    columns = [np.concatenate(pair) for pair in zip(true_columns, control.columns)]
    return ranked(row_numbers(columns, control.domain.sizes)[0])[0]
