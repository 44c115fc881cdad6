"""What sampling alone, and independence alone, cost: made from the true rows, without privacy."""

from __future__ import annotations

import numpy as np

from adaptive_qs.table.coded import CodedTable
from scripts.compare.job import Job
from scripts.compare.outcome import Outcome


def bootstrap(job: Job, table: CodedTable) -> Outcome:
    """As many rows as the true table has, drawn from it with replacement."""
    picked = np.random.default_rng(job.seed).integers(0, table.num_rows, table.num_rows)
    return Outcome(CodedTable.from_codes(table.domain, [c[picked] for c in table.columns]))


def true_independent(job: Job, table: CodedTable) -> Outcome:
    """Every column of the true table shuffled on its own."""
    rng = np.random.default_rng(job.seed)
    return Outcome(CodedTable.from_codes(table.domain, [rng.permutation(c) for c in table.columns]))
