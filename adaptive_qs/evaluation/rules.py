"""Rules between columns: declared by the owner, or found to hold in the true table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.comparison import OPERATORS, Comparison
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.determination import Determination
from adaptive_qs.evaluation.value_order import has_order, kind_of

Rule = Comparison | Determination
VERBS = (" determines ", " determine ")
FORM = 'write "start <= end" (or <, ==, !=, >=, >) or "city determines country"'


@dataclass(frozen=True)
class RuleCheck:
    """How often a rule is broken; owner only.

    Attributes:
        rule: as text, such as "start <= end" or "city determines country".
        source: whether the owner declared it or it was found to hold in the true table.
        broken_true: rows of the true table that break it, as a share.
        broken_synthetic: rows of the synthetic table that break it, as a share.
        expected_if_independent: rows that would break it if the columns were independent.
    """

    rule: str
    source: Literal["declared", "found"]
    broken_true: float
    broken_synthetic: float
    expected_if_independent: float


def check_rules(
    joint: JointCodes, rules: Iterable[Rule], source: Literal["declared", "found"]
) -> tuple[RuleCheck, ...]:
    """How often both tables break each rule; see the rules for what that means."""
    return tuple(RuleCheck(rule.text, source, *rule.shares(joint)) for rule in rules)


def parse_rule(text: str, schema: Schema) -> Rule:
    """A rule from its text: "start <= end", or "a, b determine c".

    Raises:
        InputError: it is no rule, can be read in several ways, names a column that is not in the
            schema, or compares columns whose values cannot be compared.
    """
    readings = set(_comparisons(text, schema)) | set(_determinations(text, schema))
    if len(readings) > 1:
        raise InputError(f"rule {text!r} can be read in several ways: rename a column")
    if not readings:
        raise InputError(f"rule {text!r}{_complaint(text, schema)}")
    left, operator, right = readings.pop()
    if right in left:
        raise InputError(f"rule {text!r} names one column twice: give two columns")
    place = schema.names.index
    if operator in OPERATORS:
        rule = Comparison(
            place(left[0]), place(right), operator, (schema.column(left[0]), schema.column(right))
        )
        _check_kinds(text, rule)
        return rule
    return Determination(tuple(place(name) for name in left), place(right), (*left, right))


Reading = tuple[tuple[str, ...], str, str]


def _comparisons(text: str, schema: Schema) -> Iterable[Reading]:
    for operator in OPERATORS:
        for left, right in _splits(text, operator):
            if left in schema.names and right in schema.names:
                yield (left,), operator, right


def _determinations(text: str, schema: Schema) -> Iterable[Reading]:
    for verb in VERBS:
        for left, right in _splits(text, verb):
            names = _listed(left, schema)
            if right in schema.names and all(name in schema.names for name in names):
                yield names, VERBS[0], right


def _listed(text: str, schema: Schema) -> tuple[str, ...]:
    """The names in a list; a name may have a comma itself."""
    if text in schema.names:
        return (text,)
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def _splits(text: str, separator: str) -> Iterable[tuple[str, str]]:
    parts = text.split(separator)
    for k in range(1, len(parts)):
        yield separator.join(parts[:k]).strip(), separator.join(parts[k:]).strip()


def _complaint(text: str, schema: Schema) -> str:
    for separator in (*VERBS, *OPERATORS):
        for left, right in _splits(text, separator):
            for name in (*(_listed(left, schema) if separator in VERBS else (left,)), right):
                if name not in schema.names:
                    return f": column {name!r} is not in the schema: check the spelling"
    return f" is no rule: {FORM}"


def _check_kinds(text: str, rule: Comparison) -> None:
    left, right = rule.columns
    if kind_of(left) is None or kind_of(left) != kind_of(right):
        raise InputError(
            f"rule {text!r} compares different kinds of values: give two columns of numbers, of "
            "dates or times, or of the same categories"
        )
    for column in rule.columns:
        if rule.operator not in ("==", "!=") and not has_order(column):
            raise InputError(
                f'rule {text!r}: {column.name!r} has no order: declare "ordered": true, or use == '
                "or !="
            )
