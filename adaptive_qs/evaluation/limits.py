"""What a reader of the measures has to know."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from adaptive_qs.evaluation.marginals import TotalVariation
from adaptive_qs.evaluation.pairs import PairCounts

FEW_ROWS = 1_000
"""Tables of fewer rows differ much by chance."""
UNEQUAL = 2.0
"""Ratio of the numbers of rows from which differences of association are hard to compare."""


def limitations_of(counts: PairCounts, variation: Iterable[TotalVariation]) -> tuple[str, ...]:
    """What was left out of the measures, and what makes them uncertain, in public words."""
    limitations = []
    for part in variation:
        if part.compared < part.marginals:
            limitations.append(
                f"total variation of {part.ways}-way marginals: {part.compared:,} of "
                f"{part.marginals:,} compared, drawn evenly; the worst one may be another"
            )
    for table, margins in zip(("true", "synthetic"), counts.margins):
        names = [
            attribute.name
            for attribute, margin in zip(counts.joint.pair.domain.attributes, margins)
            if np.count_nonzero(margin) == 1
        ]
        if names:
            limitations.append(
                f"one value only in the {table} table, so associated with nothing: "
                + ", ".join(names)
            )
    rows = (counts.joint.pair.true.num_rows, counts.joint.pair.synthetic.num_rows)
    if min(rows) < FEW_ROWS:
        limitations.append(
            f"a table has fewer than {FEW_ROWS:,} rows: much of every difference is chance"
        )
    if max(rows) > UNEQUAL * min(rows):
        limitations.append(
            "one table has more than twice the rows of the other: compare associations, repeated "
            "rows and maxima with care"
        )
    return tuple(limitations)
