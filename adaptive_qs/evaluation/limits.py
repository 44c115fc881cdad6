"""What a reader of the measures has to know."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.evaluation.marginals import TotalVariation
from adaptive_qs.evaluation.pairs import PairCounts
from adaptive_qs.evaluation.rows import RowChecks

FEW_ROWS = 1_000
"""Tables of fewer rows differ much by chance."""
CROWDED = 0.2
"""Occupied cells, as a part of the rows, from which the correction of mutual information for bias
falls short: independent columns then show one."""
UNEQUAL = 2.0
"""Ratio of the numbers of rows from which differences of association are hard to compare."""


def limitations_of(
    counts: PairCounts, variation: Iterable[TotalVariation], checks: RowChecks
) -> tuple[str, ...]:
    """What was left out of the measures, and what makes them uncertain, in public words."""
    limitations = []
    if checks.same:
        limitations.append(
            "the synthetic rows are the true rows, each as often: the true table was compared with "
            "itself, or with a copy"
        )
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
    if crowded := _crowded(counts, rows):
        (i, j), number = crowded
        columns = counts.joint.pair.domain.names
        limitations.append(
            f"mutual information may be too large for {number:,} of {len(counts.sums[0]):,} pairs, "
            f"{columns[i]} x {columns[j]} most: a table has fewer than {1 / CROWDED:g} rows for "
            "each occupied cell, so that even independent columns show some; look at Cramér's V"
        )
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


def _crowded(counts: PairCounts, rows: tuple[int, int]) -> tuple[Clique, int] | None:
    """The pair with most occupied cells for its rows, and how many have too many; None if none."""
    shares = {
        pair: max(sums[pair].occupied / number for sums, number in zip(counts.sums, rows))
        for pair in counts.sums[0]
    }
    number = sum(share > CROWDED for share in shares.values())
    return (max(shares, key=lambda pair: shares[pair]), number) if number else None
