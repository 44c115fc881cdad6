"""Rules that hold in every true row, and would not if the columns were independent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator

import numpy as np

from adaptive_qs.data.schema import Schema
from adaptive_qs.evaluation.comparison import Comparison
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.determination import Determination
from adaptive_qs.evaluation.pairs import PairCounts
from adaptive_qs.evaluation.rules import Rule, RuleCheck, check_rules
from adaptive_qs.evaluation.value_order import scale_of

MOST_FOUND = 20
"""Rules that are told, the least likely to hold by chance first."""
MOST_TRIED = 3 * MOST_FOUND
"""Dependencies and comparisons, each, that are looked at closely."""
LEAST_BROKEN = 0.01
"""Part of the rows that would break a rule worth telling if the columns were independent."""
LEAST_CHANCES = 25.0
"""True rows that would break it. With so many expected, none breaks it with probability about
e^−25 ≈ 1e-11, so that none of 1e6 candidates is expected to hold by chance."""
GLANCE = 2_000
"""Rows that rule most comparisons out."""


def found_rules(
    counts: PairCounts, schema: Schema, declared: Collection[str] = ()
) -> tuple[RuleCheck, ...]:
    """Dependencies between two columns, and comparisons of two columns on the same scale.

    Args:
        counts: of all pairs of columns.
        schema: of both tables.
        declared: texts of rules that need not be found.
    """
    joint = counts.joint
    rules: list[Rule] = [*_dependencies(counts), *_orders(joint, schema)]
    checks = check_rules(joint, (r for r in rules if r.text not in declared), "found")
    telling = [check for check in checks if check.expected_if_independent >= LEAST_BROKEN]
    return tuple(sorted(telling, key=lambda c: -c.expected_if_independent)[:MOST_FOUND])


def _dependencies(counts: PairCounts) -> list[Determination]:
    """Pairs with as many occupied cells as the determining column has values.

    The first row of every determining value cannot break the rule; of the others, the part
    1 − Σ p_c² would, if the columns were independent. A column in which nearly every value is
    unique thus determines nothing that is worth telling.
    """
    rows, names = counts.joint.true_rows, counts.joint.pair.domain.names
    values = [np.count_nonzero(margin) for margin in counts.margins[0]]
    spread = [1 - float(np.square(margin / rows).sum()) for margin in counts.margins[0]]
    found = []
    for pair, sums in counts.sums[0].items():
        for left, right in (pair, pair[::-1]):
            chances = (rows - values[left]) * spread[right]
            if sums.occupied == values[left] and chances >= LEAST_CHANCES:
                found.append((chances, left, right))
    best = sorted(found, key=lambda entry: -entry[0])[:MOST_TRIED]
    return [Determination((i,), j, (names[i], names[j])) for _, i, j in best]


def _orders(joint: JointCodes, schema: Schema) -> list[Comparison]:
    """Comparisons that hold, of each two columns the strictest one."""
    if joint.true_rows < LEAST_CHANCES:
        return []
    scales: dict[Hashable, list[int]] = defaultdict(list)
    for i, column in enumerate(schema.columns):
        if (scale := scale_of(column)) is not None:
            scales[scale].append(i)
    found = []
    for members in scales.values():
        for i, j in _undecided(joint, schema, members):
            found += list(_strictest(joint, schema, i, j))
    found.sort(key=lambda entry: -entry[0])
    return [rule for _, rule in found[:MOST_TRIED]]


def _undecided(joint: JointCodes, schema: Schema, members: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of columns of one scale whose first rows do not contradict all comparisons."""
    rows = slice(0, GLANCE)
    codes = np.stack([joint.pair.true.columns[i][rows] for i in members])
    known = codes < np.array([schema.columns[i].num_values for i in members])[:, None]
    for k, i in enumerate(members[:-1], start=1):
        told = known[k - 1] & known[k:]
        above = (codes[k - 1] > codes[k:]) & told
        below = (codes[k - 1] < codes[k:]) & told
        for n in np.flatnonzero(~(above.any(axis=1) & below.any(axis=1))):
            yield i, members[k + int(n)]


def _strictest(
    joint: JointCodes, schema: Schema, i: int, j: int
) -> Iterator[tuple[float, Comparison]]:
    """On one scale, codes are ordered as values are, and only missing ones come after them."""
    first, second = schema.columns[i], schema.columns[j]
    a, b = joint.pair.true.columns[i], joint.pair.true.columns[j]
    known = (a < first.num_values) & (b < second.num_values)
    x, y = a[known], b[known]
    above, below = bool((x > y).any()), bool((x < y).any())
    if above and below:
        return
    loose, strict = (">=", ">") if above else ("<=", "<")
    operators = [strict, loose] if not (x == y).any() else [loose] if above or below else ["=="]
    for operator in operators:
        rule = Comparison(i, j, operator, (first, second))
        broken, _, expected = rule.shares(joint)
        if not broken and expected >= max(LEAST_BROKEN, LEAST_CHANCES / joint.true_rows):
            yield expected, rule
            return
