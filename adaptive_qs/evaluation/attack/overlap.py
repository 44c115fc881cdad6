"""Do control rows occur in the true table more often than fresh rows would?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import fisher_exact

from adaptive_qs.data.table import CodedTable

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
    keys: np.ndarray = np.zeros(true.num_rows + control.num_rows, dtype=np.int64)
    for size, ours, theirs in zip(true.domain.sizes, true.columns, control.columns):
        codes = np.concatenate([ours[order], theirs]).astype(np.int64)
        keys = np.unique(keys * size + codes, return_inverse=True)[1]
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
