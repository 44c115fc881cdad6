"""Small tables, their neighbours, and a recorder of what the private primitives did."""

from __future__ import annotations

from itertools import product

import numpy as np

from adaptive_qs.audit import replay as audit
from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import ROWS
from adaptive_qs.table.coded import CodedTable, MarginalCounter


def domain_of(*sizes):
    return Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})


def counter_of(domain, rows):
    """Counter of a list of rows, each a tuple of codes."""
    matrix = np.array(rows, dtype=np.int64).reshape(len(rows), len(domain))
    return MarginalCounter(CodedTable.from_codes(domain, matrix.T.copy()))


def skewed_rows(domain, count, seed):
    """Rows with skewed, dependent attributes."""
    rng = np.random.default_rng(seed)
    level = rng.beta(0.6, 1.2, size=count)
    columns = [
        np.minimum((np.clip(level + rng.normal(0, 0.2, count), 0, 1) * n).astype(int), n - 1)
        for n in domain.sizes
    ]
    return list(zip(*(c.tolist() for c in columns)))


def every_row(domain):
    return list(product(*(range(n) for n in domain.sizes)))


class Recorder(audit.Recorder):
    """Mechanisms with a budget and a reproducible stream that keep every call."""

    def __init__(self, rho, seed=0, filtered=False, unit=ROWS):
        self.budget = Budget(rho, filtered=filtered, unit=unit)
        super().__init__(self.budget, InsecureSeed(seed))


class Replay(audit.Replayer):
    """Charges as usual, but returns what another run drew, as long as it did the same."""

    def __init__(self, rho, recorded):
        super().__init__(Budget(rho), InsecureSeed(0), recorded)


def centered(array):
    """The array without its mean along any axis."""
    for axis in range(array.ndim):
        array = array - array.mean(axis=axis, keepdims=True)
    return array
