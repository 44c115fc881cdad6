"""Rules that a table keeps, and that independent columns would break."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from itertools import chain, combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.rules import (
    Determination,
    Predicate,
    Rule,
    RuleCheck,
    check_rules,
    parse_rule,
    row_values,
)
from adaptive_qs.evaluation.tables import DAY, JointCodes, PairCounts, TablePair, count_pairs
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import NEAR, Values
from adaptive_qs.table.encode import read_with_amounts
from adaptive_qs.table.grammar import written, written_value
from adaptive_qs.table.rules import Ruleset
from adaptive_qs.table.schema import Schema

MOST_FOUND, MOST_TRIED = 20, 60
"""Maximum number of rules that are reported, the least likely to hold by chance first, and of
candidates of each kind that are checked in all rows."""
LEAST_BROKEN, LEAST_CROSSED = 0.01, 0.1
"""Least part of the rows that would break a rule if the columns were independent, and the same of a
comparison of columns on different scales, which can be numbers of different things."""
LEAST_CHANCES = 25.0
"""Least number of true rows that would break it. If 25 are expected, none breaks it with
probability about e^−25 ≈ 1e-11, so that none of 1e6 candidates is expected to hold by chance."""
GLANCE = 2_000
"""Number of rows that are compared first, to exclude most comparisons."""


def found_rules(
    counts: PairCounts, schema: Schema, declared: Collection[str] = ()
) -> tuple[tuple[Rule, RuleCheck], ...]:
    """Find dependencies between two columns, and comparisons of columns on the same scale.

    Args:
        counts: of all pairs of columns.
        schema: of both tables.
        declared: texts of rules. They are not found, nor is another comparison of the same two
            columns: that nobody left on the first day says nothing against "start <= end".
    """
    joint = counts.joint
    rules: list[Rule] = [*_dependencies(counts), *_orders(joint, schema)]
    rules = [rule for rule in rules if not _equivalent_texts(rule) & set(declared)]
    found = zip(rules, check_rules(joint, rules, "found"))
    telling = [each for each in found if each[1].expected_if_independent >= LEAST_BROKEN]
    return tuple(sorted(telling, key=lambda c: -c[1].expected_if_independent)[:MOST_FOUND])


def _equivalent_texts(rule: Rule) -> set[str]:
    """Return the texts of declared rules that make a rule superfluous."""
    if isinstance(rule, Determination):
        return {rule.text}
    sides = [written(name) for name in rule.names]
    signs = ("<", "<=", "=", ">=", ">")
    return {f"{a} {sign} {b}" for a, b in (sides, sides[::-1]) for sign in signs}


MOST_ROWS, MOST_NUMBERS = 100_000, 40
"""Maximum number of rows in which rules for a schema are found, and of columns in equations and
implications."""


def proposed_rules(table: Any, schema: Schema) -> tuple[str, ...]:
    """Return rules that the first rows of a table keep, for its owner to review.

    They are as private as the table. A schema can declare them all.
    """
    measured = [column.name for column in schema.columns if column.measured]
    coded, amounts = read_with_amounts(table, schema, measured, most_rows=MOST_ROWS)
    pair = TablePair(coded, coded, (amounts, amounts))
    joint = JointCodes(pair)
    found = [*_equations(pair, schema)]
    rules = [rule for rule, _ in found_rules(count_pairs(joint), schema)]
    orders = [rule for rule in rules if isinstance(rule, Predicate)]
    settled = {frozenset(rule.names) for rule in orders if " = " in rule.text}
    keys = [rule for rule in rules if isinstance(rule, Determination)]
    found += [rule.text for rule in orders]
    found += [rule.text for rule in keys if frozenset(rule.names) not in settled]
    settled |= {frozenset(rule.names) for rule in keys}
    found += _at_least_one(joint, schema)
    found += _empty_together(joint, schema)
    found += _implications(joint, schema, settled)
    kept: list[str] = []
    for text in dict.fromkeys(found):
        with contextlib.suppress(InputError):
            Ruleset.of(schema.columns, [(each, ()) for each in (*kept, text)])
            kept.append(text)
    return tuple(kept[:MOST_FOUND])


def _equations(pair: TablePair, schema: Schema) -> Iterator[str]:
    """Yield equations of a column and the sum, difference or product of two others."""
    measured = [c for c in schema.columns if pair.find_amounts(c, 0) is not None]
    acts = {"+": np.add, "*": np.multiply, "-": np.subtract}
    values: dict[str, NDArray[np.float64]] = {}
    for column in measured[:MOST_NUMBERS]:
        amounts = pair.find_amounts(column, 0)
        assert amounts is not None
        if column.kind == "numbers" or column.by_day:
            values[column.name] = amounts // DAY if column.by_day else amounts
    days = {column.name for column in measured if column.by_day}
    for total in (name for name in values if name not in days):
        near = schema.column(total).resolution / 2
        for first, second in combinations((name for name in values if name != total), 2):
            ways = [("+", first, second), ("*", first, second)]
            if {first, second} & days:
                if not {first, second} <= days:
                    continue
                ways = [("-", first, second), ("-", second, first)]
            for sign, left, right in ways:
                if _is_equation(values[total], acts[sign], values[left], values[right], near):
                    yield f"{written(total)} = {written(left)} {sign} {written(right)}"


def _is_equation(total: Any, act: Any, left: Any, right: Any, near: float) -> bool:
    """Return whether all rows keep it, and enough would not if a column had no effect."""
    for rows in (slice(GLANCE // 10), slice(None)):
        found = act(left[rows], right[rows])
        known = ~np.isnan(found) & ~np.isnan(total[rows])
        off = np.abs(total[rows] - found) > near + NEAR * np.abs(found)
        if not known.any() or (off & known).any():
            return False
    differing = [np.count_nonzero(known & (side != total)) for side in (left, right)]
    varied = [np.count_nonzero(known & (side != side[known][0])) for side in (left, right)]
    return bool(min(*differing, *varied) >= LEAST_CHANCES)


def _dependencies(counts: PairCounts) -> list[Determination]:
    """Return pairs with as many occupied cells as the determining column has values.

    The first row of every determining value cannot break the rule; of the others, the part
    1 − Σ p_c² would, if the columns were independent. So a column in which nearly every value is
    unique determines nothing.
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


def _orders(joint: JointCodes, schema: Schema) -> list[Predicate]:
    if joint.true_rows < LEAST_CHANCES:
        return []
    ranked = [c for c in schema.columns if c.ranked and c.kind is not None]
    glances = {c.name: row_values(joint.pair, 0, c, slice(GLANCE)) for c in ranked}
    found = [
        _strictest(joint, schema, *pair)
        for pair in combinations(sorted(ranked, key=lambda c: str(c.kind)), 2)
        if pair[0].kind == pair[1].kind and _signs(*(glances[c.name] for c in pair))
    ]
    best = sorted(filter(None, found), key=lambda entry: -entry[0])
    return [rule for _, rule in best[:MOST_TRIED]]


def _signs(x: Values, y: Values) -> list[str]:
    known = x.known & y.known
    above, below = (x.low > y.high) & known, (x.high < y.low) & known
    if above.any() and below.any():
        return []
    loose, strict = (">=", ">") if above.any() else ("<=", "<")
    if not (known & ~above & ~below).any():
        return [strict, loose]
    return [loose] if above.any() or below.any() else ["="]


def _strictest(
    joint: JointCodes, schema: Schema, left: ColumnBase, right: ColumnBase
) -> tuple[float, Predicate] | None:
    """Return the strictest comparison that holds in all rows, and its part as `_telling` does."""
    least = LEAST_BROKEN if left.scale == right.scale else LEAST_CROSSED
    signs = _signs(*(row_values(joint.pair, 0, column) for column in (left, right)))
    texts = (f"{written(left.name)} {sign} {written(right.name)}" for sign in signs)
    return next(filter(None, (_telling(joint, schema, text, least) for text in texts)), None)


def _telling(
    joint: JointCodes, schema: Schema, text: str, least: float = LEAST_BROKEN
) -> tuple[float, Predicate] | None:
    """Return a rule, and the part of the rows that would break it if columns were independent.

    None if a row breaks it, or if that part is below ``least``.
    """
    rule = parse_rule(text, schema)
    assert isinstance(rule, Predicate)
    (found,) = check_rules(joint, [rule], "found")
    expected = found.expected_if_independent
    chances = expected * found.judged_true * joint.true_rows
    if found.broken_true or expected < least or chances < LEAST_CHANCES:
        return None
    return expected, rule


def _at_least_one(joint: JointCodes, schema: Schema) -> list[str]:
    gaps = _gaps(joint, schema)
    pairs = [p for p in combinations(gaps, 2) if not (gaps[p[0]] & gaps[p[1]]).any()]
    texts = (f"at least one of {written(a)}, {written(b)}" for a, b in pairs[:MOST_TRIED])
    return [text for text in texts if _telling(joint, schema, text)]


def _empty_together(joint: JointCodes, schema: Schema) -> list[str]:
    groups: dict[bytes, list[str]] = {}
    for name, gap in _gaps(joint, schema).items():
        groups.setdefault(gap.tobytes(), []).append(written(name))
    pairs = chain.from_iterable(
        zip(names, (*names[1:], names[0])) for names in groups.values() if len(names) > 1
    )
    texts = (f"{a} is missing -> {b} is missing" for a, b in islice(pairs, MOST_TRIED))
    return [text for text in texts if _telling(joint, schema, text)]


def _gaps(joint: JointCodes, schema: Schema) -> dict[str, NDArray[np.bool_]]:
    return {
        column.name: codes == column.missing_code
        for column, codes in zip(schema.columns, joint.pair.true.columns)
        if column.missing_code is not None
    }


# Implications of values of a column, or of numbers below or above a limit, for another column.

MOST_VALUES = 100
"""Maximum number of values of a column in implications."""


def _implications(
    joint: JointCodes, schema: Schema, settled: Collection[frozenset[str]]
) -> list[str]:
    """Return implications between two columns that all rows keep, the most telling ones first.

    Pairs of columns with a stricter rule are settled, and have none.
    """
    least = max(LEAST_CHANCES, LEAST_BROKEN * joint.true_rows)
    few = [c for c in schema.columns if 1 < c.num_values <= MOST_VALUES][:MOST_NUMBERS]
    candidates: list[tuple[float, str]] = []
    for pair in combinations(few, 2):
        if frozenset(column.name for column in pair) in settled:
            continue
        counts = _known_counts(joint.pair, *pair)
        ways = [_describe_values(schema, left, right, table)
                for left, right, table in ((*pair, counts), (*pair[::-1], counts.T))]  # fmt: skip
        kept = [[each for each in way if each[0] >= least] for way in ways]
        candidates += max(kept, key=lambda way: sum(chances for chances, _ in way))
    texts = [text for _, text in sorted(candidates, key=lambda each: -each[0])[:MOST_TRIED]]
    found = [found for text in texts if (found := _telling(joint, schema, text))]
    return [rule.text for _, rule in sorted(found, key=lambda entry: -entry[0])]


def _known_counts(pair: TablePair, left: ColumnBase, right: ColumnBase) -> NDArray[np.int64]:
    """Count the true rows that have both values, by the codes of two columns."""
    x, y = (pair.true.columns[pair.domain.names.index(c.name)] for c in (left, right))
    known = (x < left.num_values) & (y < right.num_values)
    cells = x[known].astype(np.int64) * right.num_values + y[known]
    sizes = left.num_values, right.num_values
    return np.bincount(cells, minlength=sizes[0] * sizes[1]).reshape(sizes)


def _describe_values(
    schema: Schema, left: ColumnBase, right: ColumnBase, counts: NDArray[np.int64]
) -> Iterator[tuple[float, str]]:
    """Yield rules on the right column for values of the left one.

    Yields:
        Number of rows that would break a rule if the columns were independent, and its text.
    """
    if right.kind in ("numbers", "moments") or left.kind == "moments" or not counts.sum():
        return
    shares = counts.sum(axis=0) / counts.sum()
    labels = [written_value(label, schema.by_name) for label in right.labels_of_codes()]
    for when, group in _groups(schema, left, counts):
        (present,), rows = np.nonzero(group), int(group.sum())
        name = written(right.name)
        if len(present) == 1:
            (only,) = present
            yield rows * (1 - shares[only]), f"{when} -> {name} = {labels[only]}"
        else:
            absent = np.flatnonzero((group == 0) & (rows * shares >= LEAST_CHANCES))
            none = [labels[code] for code in absent]
            if none:
                said = f"!= {none[0]}" if len(none) == 1 else f"not in ({', '.join(none)})"
                yield rows * shares[absent].sum(), f"{when} -> {name} {said}"


def _groups(
    schema: Schema, column: ColumnBase, counts: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield conditions on a column, and the counts of the other one in rows that meet them.

    For numbers these are the limits below or above which one more label of the other column does
    not occur or, at last, only one is left.
    """
    name, starts = written(column.name), column.ends(np.arange(column.num_values))[0]
    if column.kind != "numbers" or (np.diff(starts) <= 0).any():
        for code, label in enumerate(column.labels_of_codes()[: column.num_values]):
            if counts[code].any() and code != column.catch_all_code:
                yield f"{name} = {written_value(label, schema.by_name)}", counts[code]
        return
    for sign, ordered in (("<", counts), (">=", counts[::-1])):
        sums = np.cumsum(ordered, axis=0)
        occupied = np.count_nonzero(sums, axis=1)
        for k in np.flatnonzero(np.diff(occupied)):
            limit = starts[k + 1] if sign == "<" else starts[-k - 1]
            yield f"{name} {sign} {float(limit):.15g}", sums[k]
