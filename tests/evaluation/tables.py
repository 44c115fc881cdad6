"""Small tables of random codes."""

import numpy as np

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.table.coded import CodedTable


def table(domain, rows, seed):
    """Independent uniform codes."""
    rng = np.random.default_rng(seed)
    return CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in domain.sizes])


def joint(true, synthetic, sizes):
    """Two tables from lists of rows."""
    domain = Domain.from_sizes(sizes)
    tables = (
        CodedTable.from_codes(domain, [np.array(column) for column in zip(*rows)])
        for rows in (true, synthetic)
    )
    return JointCodes(TablePair(*tables))


def rows_of(coded):
    """Rows as tuples."""
    return list(zip(*(column.tolist() for column in coded.columns)))
