"""Rules that a table keeps, ranked by the rows of independent columns that would break them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import combinations, permutations, product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation import rules
from adaptive_qs.evaluation.tables import DAY, JointCodes, TablePair, exactly_coded
from adaptive_qs.pages.words import share
from adaptive_qs.table.columns import list_values
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.conditions import Mask, Values
from adaptive_qs.table.encode import read_with_amounts
from adaptive_qs.table.grammar import written, written_value
from adaptive_qs.table.schema import DeclaredRule, Schema

WIDE, MOST_WIDE, MOST_FOUND, MOST_TRIED = 20, 30, 10, 60
"""Number of columns of a wide table, maximum numbers of rules that are found in a wide and in a
narrower one, and of candidates of each kind."""
LEAST_BROKEN, LEAST_CROSSED = 0.01, 0.1
"""Least part of the rows that would break a rule if the columns were independent, and the same of a
comparison of columns on different scales, which can be numbers of different things."""
LEAST_NEW = 0.1
"""Least part of the rows of a condition for which others do not imply what a rule says."""
LEAST_CHANCES, LEAST_OF_VALUE = 25.0, 12.0
"""Least number of true rows that would break it. If 25 are expected, none breaks it with
probability about e^−25 ≈ 1e-11, so that none of 1e6 candidates is expected to hold by chance. The
second is the same for a single value in a list, of which a table has fewer."""
MOST_ROWS, MOST_NUMBERS, MOST_LISTED, MOST_VALUES = 100_000, 40, 6, 12
"""Maximum number of rows and of columns in which rules are found, of values that a condition lists,
and of values of a column of which each can be a condition."""
MOST_KEYS = 2_000
"""Maximum number of values of a determining column."""
UNITS = {"second": 1, "minute": 60, "hour": 3_600}
"""Units in which a column of numbers can have the time between two moments, in seconds."""


def found_rules(
    joint: JointCodes, schema: Schema, declared: Collection[str] = ()
) -> tuple[tuple[rules.Rule, rules.RuleCheck], ...]:
    """Find the rules that all true rows keep and that most independent rows would break.

    Args:
        joint: the rows.
        schema: of both tables.
        declared: texts of rules, which are not found, nor is another comparison of their columns.
    """
    if (rows := min(joint.true_rows, MOST_ROWS)) < LEAST_CHANCES:
        return ()
    views = [_View(joint.pair, schema, column, rows) for column in schema.own_columns]
    orders = _orders(joint, schema)
    equal = {frozenset(rule.names) for rule, _ in orders if " = " in rule.text}
    keys = [each for each in _dependencies(views) if frozenset(each.names) not in equal]
    listed: list[rules.Rule] = [*keys, *_limits(views, {rule.names[-1] for rule in keys})]
    settled = {frozenset(rule.names) for rule in (*listed, *(rule for rule, _ in orders))}
    texts = [*_equations(joint.pair, schema), *_spans(views), *_implied(views, keys, settled)]
    limits = [each for text in texts if (each := _telling(joint, schema, text))]
    apart = [{*rule.names} for rule, _ in limits if "<=" not in rule.text and " + " in rule.text]
    orders = [each for each in orders if {*each[0].names} not in apart]  # which follow
    found = [*orders, *zip(listed, rules.check_rules(joint, listed, "found")), *limits]
    found = [each for each in found if not rules.equivalent_texts(each[0]) & set(declared)]
    kept = [each for each in found if _rows_broken(each[1]) >= LEAST_BROKEN]
    most = MOST_WIDE if len(schema.own_columns) > WIDE else MOST_FOUND
    return tuple(sorted(kept, key=lambda each: -_rows_broken(each[1]))[:most])


def _rows_broken(check: rules.RuleCheck) -> float:
    """Return which part of independent rows would break a rule; 0 if a true row does."""
    return 0.0 if check.broken_true else check.expected_if_independent * check.judged_true


def propose_rules(table: Any, schema: Schema) -> Schema:
    """Return the schema with rules that the first rows of a table keep, for its owner to review.

    A column of numbers of which each category has one lists its values, for the table of the rule.
    """
    measured = [column.name for column in schema.columns if column.measured]
    coded, amounts = read_with_amounts(table, schema, measured, most_rows=MOST_ROWS)
    joint = JointCodes(TablePair(coded, coded, (amounts, amounts)))
    for as_float in (False, True) if [*_listed_columns(joint, schema)] else ():
        with contextlib.suppress(DataError):  # other spellings, or numbers of a typed table
            listed = _listed_columns(joint, schema, as_float)
            return propose_rules(table, schema.with_columns(listed))
    kept = []
    for rule, check in found_rules(joint, schema):
        values = rule.list_values(joint, schema)
        why = f"all rows keep it; {share(_rows_broken(check))} of independent rows would not"
        kept.append(DeclaredRule(rule=rule.text, table=values, open=("rule",), why=(why,)))
    with contextlib.suppress(ValueError):
        return schema.changed(rules=(*schema.rules, *kept))
    for added in kept:
        with contextlib.suppress(ValueError):
            schema = schema.changed(rules=(*schema.rules, added))
    return schema


def _listed_columns(
    joint: JointCodes, schema: Schema, as_float: bool = False
) -> Iterator[ColumnBase]:
    """Yield numbers in bins that a category determines, with lists of values, or ``as_float``."""
    views = [_View(joint.pair, schema, column, joint.true_rows) for column in schema.own_columns]
    keys = [v for v in views if not v.column.measured and len(v.occupied) <= MOST_KEYS]
    for view in views:
        column = view.column
        if view.single or column.kind != "numbers" or not 1 < view.distinct <= MOST_STEPS:
            continue
        values, ranks = np.unique(np.asarray(view.amounts), return_inverse=True)
        if any(rules.rows_determined(key.codes, ranks) >= LEAST_CHANCES for key in keys):
            values = values[~np.isnan(values)]
            texts = column.csv_texts(column.from_amounts(values)).to_pylist()
            texts = [*map(repr, values.tolist())] if as_float else texts
            yield list_values(column, texts)


def _dependencies(views: Sequence[_View]) -> list[rules.Determination]:
    """Return pairs of columns of which the first determines the second, with no third in between.

    Of two that determine each other, a category determines a number, and else the first the second.
    """
    single = [k for k, view in enumerate(views) if view.single and view.column.size <= MOST_KEYS]
    found = {
        (left, right): chances
        for left, right in permutations(single, 2)
        if (chances := rules.rows_determined(views[left].codes, views[right].codes))
        >= LEAST_CHANCES
    }
    for left, right in [*found]:
        ranks = [(views[k].column.measured, k) for k in (left, right)]
        if (right, left) in found and ranks[0] > ranks[1]:
            del found[left, right]
    direct = [(i, j) for i, j in found if not any({(i, k), (k, j)} <= {*found} for k in single)]
    best = sorted(direct, key=lambda pair: -found[pair])[:MOST_TRIED]
    place, names = [view.place for view in views], [view.column.name for view in views]
    return [rules.Determination((place[i],), place[j], (names[i], names[j])) for i, j in best]


def _limits(views: Sequence[_View], determined: Collection[str]) -> Iterator[rules.Predicate]:
    """Yield for each number the limits, if any, by the category that tells most of it."""
    keys = [view for view in views if not (view.column.measured or view.column.name in determined)]
    for number in views:
        if not number.exact or number.column.kind != "numbers" or number.distinct <= MOST_VALUES:
            continue
        amounts, found = np.asarray(number.amounts), []
        for key in keys:
            if 1 < len(key.occupied) <= MOST_KEYS and (rows := key.known & number.known).any():
                sides = key.codes[rows], amounts[rows]
                found.append(rules.limits_by(key.column, number.column, *sides, key.schema))
        yield from [rule for _, rule in sorted(filter(None, found), key=lambda each: each[0])[-1:]]


# Columns as conditions see them.


class _View:
    """Rows of one column.

    Attributes:
        column, name, place: the column, its name as rules have it, and its position in the domain.
        codes: shape (rows,).
        amounts: of the cells, or the least ones of their bins; NaN if missing. None for labels.
        exact: whether the cells have these amounts.
        missing, known: which rows have no value; which have one that can be compared.
    """

    def __init__(self, pair: TablePair, schema: Schema, column: ColumnBase, rows: int) -> None:
        self.column, self.name, self.schema = column, written(column.name), schema
        self.place = pair.domain.names.index(column.name)
        self.codes = pair.true.columns[self.place][:rows].astype(np.int64)
        values = rules.row_values(pair, 0, column, slice(rows))
        self.missing, self.known = values.missing, values.known
        self.amounts: NDArray[np.float64] | None = None
        self.exact = pair.find_amounts(column, 0) is not None
        if column.measured:
            self.amounts = np.where(self.known, values.low, np.nan)

    @property
    def single(self) -> bool:
        """Whether each of its codes is one value."""
        return not self.column.measured or exactly_coded(self.column)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of its codes."""
        return self.column.labels_of_codes()

    @cached_property
    def occupied(self) -> NDArray[np.intp]:
        """Codes of the values that occur."""
        return np.flatnonzero(np.bincount(self.codes[self.known]))

    @cached_property
    def distinct(self) -> int:
        """Number of different amounts."""
        return len(np.unique(self.amounts[self.known])) if self.amounts is not None else 0

    def equals(self, amount: float, sign: str = "=") -> str:
        """Return the comparison with an amount, as rules have it."""
        said = np.format_float_positional(amount, trim="-")
        if self.column.kind == "moments":
            said = str(np.datetime64(int(amount), "s"))[: 10 if self.column.by_day else None]
        if self.column.kind == "times":
            said = f"'{self.column.amount_text(amount)}'"
        return f"{self.name} {sign} {said}"

    def lists(self, codes: NDArray[np.intp], sign: str = "=") -> str:
        """Return the condition that the value is one of some, or is not."""
        labels = [written_value(self.labels[code], self.schema.by_name) for code in codes]
        several = f"{'in' if sign == '=' else 'not in'} ({', '.join(labels)})"
        return f"{self.name} {f'{sign} {labels[0]}' if len(labels) == 1 else several}"


class _Fact(NamedTuple):
    """A condition on one column: its place, its text, and the rows where it is true and false.

    ``form``: "missing" if it is on missing values, "values" on labels, "limit" on numbers.
    """

    place: int
    form: Literal["missing", "values", "limit"]
    text: str
    true: Mask
    false: Mask


# Implications and equivalences between conditions on two columns.


def _implied(
    views: Sequence[_View], keys: Sequence[rules.Determination], settled: Collection[frozenset[str]]
) -> list[str]:
    """Return implications between two columns that all rows keep.

    Pairs of columns that ``keys`` or ``settled`` have get conditions on missing values only. What
    others imply is left out.
    """
    settled = {*settled, *(frozenset(rule.names) for rule in keys)}
    found: list[tuple[bool, float, _Fact, _Fact]] = []
    rows = len(views[0].codes)
    least = max(LEAST_CHANCES, LEAST_BROKEN * rows)
    for place, view in enumerate(views):
        for target, opposite in _targets(place, view):
            for other, each in enumerate(views):
                if other == place:
                    continue
                bare = frozenset((each.column.name, view.column.name)) in settled
                if bare and target.form != "missing":
                    continue
                for effect in (target, opposite):
                    for fact in _causes(other, each, effect):
                        same = not (fact.false & effect.true).any()
                        broken = _rows_expected(fact, effect)
                        if same:
                            broken += _rows_expected(_opposite(fact), _opposite(effect))
                        if (same and effect is opposite) or broken < least:
                            continue
                        plain = fact.form != "missing" or effect.form == "missing"
                        if same or (plain and _is_sharp(each, fact, effect)):
                            found.append((same, broken, fact, effect))
    found.sort(key=lambda each: (not each[0], -each[1], each[2].form == "missing", each[2].place))
    edges: list[tuple[_Fact, _Fact]] = []
    for rule in keys:
        for code in views[rule.right].occupied[:MOST_VALUES]:
            found_at = views[rule.right].codes == code
            key = _Fact(rule.lefts[0], "values", "", found_at, ~found_at)
            edges += _edges(key, key._replace(place=rule.right), True)
    texts: list[str] = []
    for same, _, fact, target in found:
        if len(texts) < MOST_TRIED and not _follows(fact, target, edges):
            texts.append(_join(fact, target, same))
            edges += _edges(fact, target, same)
    return texts


def _edges(fact: _Fact, target: _Fact, same: bool) -> list[tuple[_Fact, _Fact]]:
    """Return that one fact implies the other, and what that means for their opposites."""
    found = [(fact, target), (_opposite(target), _opposite(fact))]
    return [*found, *(pair[::-1] for pair in found)] if same else found


def _follows(fact: _Fact, target: _Fact, edges: Sequence[tuple[_Fact, _Fact]]) -> bool:
    """Return whether a chain of implications leads there, for all but a few rows."""
    waiting, left = [fact], list(edges)
    while waiting:
        reached = waiting.pop()
        if _is_within(reached, target):
            return True
        taken = [_is_within(reached, first) for first, _ in left]
        waiting += [then for (_, then), yes in zip(left, taken) if yes]
        left = [edge for edge, yes in zip(left, taken) if not yes]
    return False


def _is_within(one: _Fact, other: _Fact) -> bool:
    same = one.place == other.place
    return same and bool((one.true & other.true).sum() >= (1 - LEAST_NEW) * one.true.sum())


def _join(fact: _Fact, target: _Fact, same: bool) -> str:
    """Return the rule that one condition implies the other, or that they are the ``same``."""
    name, gap, _ = fact.text.partition(" is missing")
    other, present, _ = target.text.partition(" is not missing")
    if gap and present and not same:
        return f"at least one of {name}, {other}"
    return f"{fact.text} {'<->' if same else '->'} {target.text}"


def _rows_expected(fact: _Fact, target: _Fact) -> float:
    """Return the number of rows that would break an implication if its sides were independent.

    Only rows count in which both sides are known: what is missing together is another rule.
    """
    known = (fact.true | fact.false) & (target.true | target.false)
    rows = np.count_nonzero(known)
    inside, against = np.count_nonzero(known & fact.true), np.count_nonzero(known & target.false)
    return inside * against / rows if rows else 0.0


def _opposite(fact: _Fact, text: str = "") -> _Fact:
    return fact._replace(text=text, true=fact.false, false=fact.true)


def _targets(place: int, view: _View) -> Iterator[tuple[_Fact, _Fact]]:
    """Yield conditions of which others can be causes, each with its opposite."""
    found: list[tuple[_Fact, str]] = []
    if view.missing.any():
        missing = _Fact(place, "missing", f"{view.name} is missing", view.missing, ~view.missing)
        found.append((missing, f"{view.name} is not missing"))

    def add(form: Literal["values", "limit"], text: str, true: Mask, opposite: str) -> None:
        found.append((_Fact(place, form, text, true, view.known & ~true), opposite))

    amounts, codes = view.amounts, view.occupied
    if amounts is not None and view.exact and view.known.any():
        for value, sign in ((np.nanmin(amounts), ">"), (np.nanmax(amounts), "<")):
            add("limit", view.equals(value), amounts == value, view.equals(value, sign))
    elif amounts is None and 1 < len(codes) <= MOST_VALUES:
        for code in codes if len(codes) > 2 else codes[:1]:
            one, others = np.array([code]), codes[codes != code]
            opposite = view.lists(one, "!=") if len(others) > 1 else view.lists(others)
            add("values", view.lists(one), view.codes == code, opposite)
    for fact, text in found:
        if min(fact.true.mean(), fact.false.mean()) >= LEAST_BROKEN:
            yield fact, _opposite(fact, text)


def _causes(place: int, view: _View, target: _Fact) -> Iterator[_Fact]:
    """Yield the widest conditions on a column that a target follows from in all rows."""
    if view.missing.any():
        for text, true in (("is missing", view.missing), ("is not missing", ~view.missing)):
            if not (true & target.false).any():
                yield _Fact(place, "missing", f"{view.name} {text}", true, ~true)
    against, amounts = view.known & target.false, view.amounts
    if not against.any():
        return
    if amounts is not None:
        low, high = amounts[against].min(), amounts[against].max()
        for true in (amounts < low, amounts > high):
            if true.any():
                first, last = amounts[true].min(), amounts[true].max()
                text = view.equals(low, "<") if last < low else view.equals(first, ">=")
                text = view.equals(first) if first == last and view.exact else text
                yield _Fact(place, "limit", text, true, view.known & ~true)
        return
    rows = np.bincount(view.codes[view.known], minlength=view.column.size)
    kept = (rows > 0) & ~np.isin(np.arange(rows.size), view.codes[against])
    same = not np.any(view.known & target.true & ~kept[view.codes])
    if not same:
        kept &= rows * target.false.mean() >= LEAST_OF_VALUE
    codes, true = np.flatnonzero(kept), kept[view.codes] & view.known
    rest = np.setdiff1d(view.occupied, codes)
    if 0 < len(codes) <= MOST_LISTED:
        yield _Fact(place, "values", view.lists(codes), true, view.known & ~true)
    elif same and len(codes) and len(rest) <= MOST_LISTED:
        yield _Fact(place, "values", view.lists(rest, "!="), true, view.known & ~true)


def _is_sharp(view: _View, fact: _Fact, target: _Fact) -> bool:
    """Return whether many rows just beyond a limit differ; at the end of a group they are rare."""
    if fact.form != "limit" or view.amounts is None:
        return True
    if target.form != "missing" and view.distinct > MOST_STEPS:
        return False
    amounts, beyond = view.amounts[fact.false], target.false[fact.false]
    distance = amounts if view.amounts[fact.true].max() < amounts.min() else -amounts
    near = distance <= np.quantile(distance, SHARP_ROWS)
    part = SHARP_MISSING if target.form == "missing" else SHARP
    return bool(beyond[near].mean() >= part * beyond.mean())


SHARP_ROWS, SHARP, SHARP_MISSING, MOST_STEPS = 0.02, 0.5, 0.25, 200
"""Share of the rows beyond a limit that are nearest to it, and the least frequency there of what
cannot be within it, in parts of that in all rows beyond; the same for missing values; and the
maximum number of different amounts of a column with limits for values."""


def _telling(
    joint: JointCodes, schema: Schema, text: str, least: float = LEAST_BROKEN
) -> tuple[rules.Rule, rules.RuleCheck] | None:
    """Return a rule with its check; None if a row breaks it or independent rows rarely would."""
    try:
        rule = rules.parse_rule(text, schema)
    except InputError:  # a name or a value that no rule can write
        return None
    (found,) = rules.check_rules(joint, [rule], "found")
    enough = _rows_broken(found) * joint.true_rows >= LEAST_CHANCES
    return (rule, found) if enough and found.expected_if_independent >= least else None


def _orders(joint: JointCodes, schema: Schema) -> list[tuple[rules.Rule, rules.RuleCheck]]:
    """Return the strictest comparison of each two columns that all rows keep."""
    ranked = [c for c in schema.columns if c.ranked and c.kind is not None]
    glances = {c.name: rules.row_values(joint.pair, 0, c, slice(rules.GLANCE)) for c in ranked}
    found = [
        _strictest(joint, schema, *pair)
        for pair in combinations(sorted(ranked, key=lambda c: str(c.kind)), 2)
        if pair[0].kind == pair[1].kind and _signs(*(glances[c.name] for c in pair))
    ]
    return sorted(filter(None, found), key=lambda each: -_rows_broken(each[1]))[:MOST_TRIED]


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
) -> tuple[rules.Rule, rules.RuleCheck] | None:
    """Return the strictest comparison that all rows keep and that is telling."""
    least = LEAST_BROKEN if left.scale == right.scale else LEAST_CROSSED
    signs = _signs(*(rules.row_values(joint.pair, 0, column) for column in (left, right)))
    texts = (f"{written(left.name)} {sign} {written(right.name)}" for sign in signs)
    return next(filter(None, (_telling(joint, schema, text, least) for text in texts)), None)


def _spans(views: Sequence[_View]) -> Iterator[str]:
    """Yield the few possible numbers of days between two moments, or limits of the time."""
    units = {"year": 365.2425 * DAY, "day": DAY, "hour": 3_600, "minute": 60}
    for x, y in permutations([v for v in views if v.column.kind == "moments" and v.exact], 2):
        span = (np.asarray(y.amounts) - np.asarray(x.amounts))[x.known & y.known]
        if len(span) and span.min() >= 0:
            by_day = y.column.by_day or x.column.by_day
            days = np.unique(span // DAY).astype(int).tolist()
            apart = len(days) == 1 or len(days) <= days[-1] - days[0]
            if apart and len(days) <= MOST_LISTED and span.max() > 0 and not (span % DAY).any():
                yield " or ".join(f"{y.name} = {x.name} + {n} day{'s' * (n != 1)}" for n in days)
                continue
            unit = "hour" if span.max() < DAY and not by_day else "day"
            most = int(np.ceil(span.max() / units[unit]))
            yield f"{y.name} <= {x.name} + {most} {unit}{'s' * (most != 1)}"
            fits = [(span.min() // s, u) for u, s in units.items() if s >= DAY or not by_day]
            yield from [f"{y.name} >= {x.name} + {n:.0f} {u}s" for n, u in fits if n > 1][:1]


def _equations(pair: TablePair, schema: Schema) -> Iterator[str]:
    """Yield equations of a column and the sum, difference or product of others."""
    measured = [c for c in schema.columns if pair.find_amounts(c, 0) is not None]
    acts = {"+": np.add, "*": np.multiply, "-": np.subtract}
    values, moments = dict[str, NDArray[np.float64]](), dict[str, NDArray[np.float64]]()
    for column in measured[:MOST_NUMBERS]:
        amounts = np.asarray(pair.find_amounts(column, 0))
        if column.kind == "numbers" or column.by_day:
            values[column.name] = amounts // DAY if column.by_day else amounts
        elif column.kind == "moments":
            moments[column.name] = amounts
    days = {column.name for column in measured if column.by_day}
    for total in (name for name in values if name not in days):
        near = schema.column(total).resolution / 2
        parts = {name: values[name] for name in values if name not in {total, *days}}
        for several in rules.sums_of_three(values[total], parts, near, LEAST_CHANCES):
            yield f"{written(total)} = {' + '.join(map(written, several))}"
        seconds = {unit: values[total] * UNITS[unit] for unit in UNITS if moments}
        for (start, end), unit in product(permutations(moments, 2), UNITS):
            sides, off = (moments[end], moments[start]), near * UNITS[unit]
            if rules.is_equation(seconds[unit], np.subtract, *sides, off, LEAST_CHANCES):
                difference = f"{written(end)} - {written(start)}"
                yield f"{written(total)} = ({difference}) / 1 {unit}"
        for first, second in combinations((name for name in values if name != total), 2):
            ways = [("+", first, second), ("*", first, second)]
            if dated := len({first, second} & days):
                ways = [("-", first, second), ("-", second, first)] if dated == 2 else []
            for sign, left, right in ways:
                if rules.is_equation(
                    values[total], acts[sign], values[left], values[right], near, LEAST_CHANCES
                ):
                    yield f"{written(total)} = {written(left)} {sign} {written(right)}"
