"""Rules of a schema: cells against every pair of values, checks, and rows that meet them."""

from __future__ import annotations

import datetime as dt
import json
import operator as op
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.errors import SchemaError
from adaptive_qs.table.cells import normalise
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.grammar import parse_rule
from adaptive_qs.table.rules import Ruleset
from adaptive_qs.table.schema import Schema

COLUMNS = [
    {"name": "age", "type": "integer", "min": 0, "max": 29, "bins": 4},
    {"name": "status", "type": "categorical", "values": ["never", "once", "a b"], "missing": [""]},
    {"name": "x", "type": "integer", "min": 0, "max": 5},
    {"name": "y", "type": "integer", "min": 0, "max": 5, "missing": [""]},
    {"name": "wide", "type": "integer", "min": 0, "max": 11, "bins": 3},
    {"name": "total", "type": "integer", "min": 0, "max": 17, "bins": 6, "missing": [""]},
    {"name": "start", "type": "date", "min": "2020-01-01", "max": "2020-03-31",
     "granularity": "month"},
    {"name": "end", "type": "date", "min": "2020-01-01", "max": "2020-03-31",
     "granularity": "week"},
    {"name": "days", "type": "integer", "min": 0, "max": 90, "bins": 5},
    {"name": "price", "type": "numeric", "min": 0, "max": 4, "bins": 4, "decimals": 1},
    {"name": "city", "type": "categorical", "values": ["p", "q", "r"], "catch_all": "other"},
    {"name": "county", "type": "categorical", "values": ["k", "l"], "missing": [""]},
    {"name": "two words", "type": "boolean"},
]  # fmt: skip
SCHEMA = Schema.parse({"version": 1, "columns": COLUMNS})


def with_rules(*rules):
    return Schema.parse({"version": 1, "columns": COLUMNS, "rules": list(rules)})


def values(name):
    """Every value of every code, None where it is missing; days as numbers."""
    column = SCHEMA.column(name)
    found = []
    for code in range(column.size):
        if code == column.missing_code:
            found.append([None])
        elif column.measured:
            low, high = (int(end[0]) for end in column.ends(np.array([code])))
            if column.by_day:
                found.append(list(range(low // 86_400, high // 86_400 + 1)))
            elif name == "price":
                low, high = (float(end[0]) for end in column.ends(np.array([code])))
                found.append([k / 10 for k in range(round(low * 10), round(high * 10) + 1)])
            else:
                found.append(list(range(low, high + 1)))
        else:
            found.append([column.labels_of_codes()[code]])
    return found


def a_month_later(day):
    later = pd.Timestamp(day * 86_400, unit="s") + pd.DateOffset(months=1)
    return later.toordinal() - 719_163


def known(function):
    """Unknown, which keeps a rule, where a value is missing."""
    return lambda *row: None in row or function(*row)


CASES = [
    ("age < 15 -> status = never", ["age", "status"],
     lambda a, s: s is None or not a < 15 or s == "never"),
    ("age < 15 <-> y is missing", ["age", "y"], lambda a, y: (a < 15) == (y is None)),
    ("age > 3 -> age < 3", ["age"], lambda a: not a > 3 or a < 3),
    ("x <= y", ["x", "y"], known(op.le)),
    ("wide > x", ["x", "wide"], known(lambda x, w: w > x)),
    ("wide != x", ["x", "wide"], known(op.ne)),
    ("x == y", ["x", "y"], known(op.eq)),
    ("total = x + y", ["x", "y", "total"], known(lambda x, y, t: t == x + y)),
    ("total = wide * 2 - x", ["x", "wide", "total"], known(lambda x, w, t: t == w * 2 - x)),
    ("x = wide / 2", ["x", "wide"], known(lambda x, w: abs(x - w / 2) <= 0.5)),
    ("days = end - start", ["start", "end", "days"], known(lambda s, e, d: d == e - s)),
    ("start <= end", ["start", "end"], known(op.le)),
    ("end >= start + 1 month", ["start", "end"],
     known(lambda s, e: e >= a_month_later(s))),
    ("1 month + start <= end", ["start", "end"],
     known(lambda s, e: e >= a_month_later(s))),
    ("end <= start + 2 weeks", ["start", "end"], known(lambda s, e: e <= s + 14)),
    ("(end - start) * 2 <= 5 days", ["start", "end"], known(lambda s, e: (e - s) * 2 <= 5)),
    ("end >= 2020-02-10", ["end"], lambda e: e >= dt.date(2020, 2, 10).toordinal() - 719_163),
    ("price >= 1.5 or x in (1, 3)", ["x", "price"], lambda x, p: p >= 1.5 or x in (1, 3)),
    ("never status = 'a b' and x > 2", ["status", "x"],
     lambda s, x: not (s == "a b" and x > 2) if s is not None else True),
    ("not (x = 1 or y is missing)", ["x", "y"], lambda x, y: not (x == 1 or y is None)),
    ("at least one of status, y", ["status", "y"], lambda s, y: not (s is None and y is None)),
    ("status is missing -> y is not missing", ["status", "y"],
     lambda s, y: s is not None or y is not None),
    ("city in (p, other)", ["city"], lambda c: c in ("p", "other")),
    ("city not in (p, other)", ["city"], lambda c: c not in ("p", "other")),
    ("total = x + wide", ["x", "wide", "total"], known(lambda x, w, t: t == x + w)),
    ("x <= wide", ["x", "wide"], known(op.le)),
    ("x <= age", ["x", "age"], known(op.le)),
    ("never age in (20, 21, 22) and status = once", ["age", "status"],
     lambda a, s: not (a in (20, 21, 22) and s == "once")),
    ("total = wide", ["wide", "total"], known(op.eq)),
    ("x = 3 -> wide >= 6", ["x", "wide"], lambda x, w: x != 3 or w >= 6),
    ("total = wide * 2", ["wide", "total"], known(lambda w, t: t == 2 * w)),
    ("price >= 1.5 or price < 0.3", ["price"], lambda p: p >= 1.5 or p < 0.3),
    ("age = wide", ["age", "wide"], known(op.eq)),
    ("start = end", ["start", "end"], op.eq),
    ("`two words` = yes -> x = 0", ["x", "two words"], lambda x, t: t == "false" or x == 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names", "holds"), CASES, ids=[case[0] for case in CASES])
def test_a_cell_is_left_where_some_of_its_values_keep_the_rule(text, names, holds):
    cells = Ruleset.of(SCHEMA.columns, []).compute_cells(parse_rule(text, SCHEMA.by_name), text)
    assert set(cells.names) == set(names)
    assert list(cells.names) == [name for name in SCHEMA.names if name in names]
    order = [names.index(name) for name in cells.names]
    every = [values(name) for name in names]
    for codes in product(*(range(len(part)) for part in every)):
        expected = any(holds(*row) for row in product(*(p[c] for p, c in zip(every, codes))))
        found = cells.allowed[tuple(codes[k] for k in order)]
        assert found == expected, (codes, found)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["age <"], "Cannot parse the rule 'age <'. Write it such as"),
        (["age < 3 status"], "at 'status'. Write it"),
        (["agee < 3"], "column 'agee' is not in the schema: did you mean 'age'?"),
        (["status = nevr"], "'nevr' is neither a column nor a value of 'status': did you mean"),
        (["age = status"], "compares different kinds of values"),
        (["city < q"], "'city' has no order"),
        (["x = x"], "compared with itself"),
        (["3 < 4"], "names no column"),
        (["x is missing"], "'x' is never missing: declare its missing markers"),
        (["at least one of y, y"], "names one column twice"),
        (["x + 1 = y * 2"], "computes on both sides"),
        (["city + 1 = x"], "'city' cannot be added or multiplied"),
        (["age > 40"], "rule 'age > 40': no row can meet it"),
        (["x < 2", "x > 3"], "rule 'x > 3' contradicts 'x < 2': no row can meet both"),
        (["age > wide", "wide > age"], "no row was found that meets the rules 'age > wide' and"),
        (["wide - wide > 3"], "rule 'wide - wide > 3': no row can meet it"),
        (["2 * wide = 5"], "no row was found that meets it"),
        (["x > y", "y >= x", "y is not missing"], "leave no row"),
        (["x in (1, 2)", "y = 5", "y is not missing", "x >= y"], "leave no row"),
        (["x + y = total - wide"], "computes on both sides"),
        (["total = x + y + wide + days"], "names 5 columns, more than 4"),
        (["x <= y + 2 days"], "has a unit of time but adds it to no date or time"),
        (["x <= 2 days"], "has a unit of time but adds it to no date or time"),
        (["end <= start + 0.1 months"], "0.1 months are no whole months: write days"),
        (["end <= start + 1e300 years"], "1e300 years are no whole months: write days"),
        (["city determines county"], "has no table, so rows could break it: list the values"),
        ([{"rule": "x determines age", "table": [["0", "3"]]}], "'age' is determined but has bins"),
        ([{"rule": "city determines county", "table": [["p", "z"]]}], "'z' in its table"),
        ([{"rule": "city determines county", "table": [["p"]]}], "a row of 1 values for 2"),
        ([{"rule": "city determines county", "table": [["p", "k"], ["p", "l"]]}], "two values"),
        (["city limits age"], "has no table, so rows could break it"),
        ([{"rule": "age limits city", "table": [["3", "p", "q"]]}], "labels, which are within no"),
        ([{"rule": "city limits age", "table": [["p", "9", "3"]]}], "its table has p, 9, 3"),
        ([{"rule": "city limits age", "table": [["p", "3", "nan"]]}], "its table has p, 3, nan"),
        ([{"rule": "x < y", "table": [["p", "k"]]}], "has a table but determines nothing"),
        ([3], "rule number 1: must be text"),
        ([{"rul": "x < y"}], "rule number 1: rul: is not a known key"),
    ],
)
def test_rules_that_cannot_be_are_refused_in_one_line(rules, said):
    with pytest.raises(SchemaError) as caught:
        with_rules(*rules)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rule", "meant"), [("sex = male", "Male"), ("SEX = Male", "sex")])
def test_a_text_that_differs_in_case_only_is_suggested_first(rule, meant):
    sexes = {"name": "sex", "type": "categorical", "values": ["Female", "Male"]}
    with pytest.raises(SchemaError, match=f"did you mean '{meant}'"):
        Schema.parse({"version": 1, "columns": [sexes], "rules": [rule]})


def test_rules_on_columns_that_are_to_be_learnt():
    learnt = [
        {"name": "a", "type": "categorical", "private_values": 5, "catch_all": "other"},
        {"name": "b", "type": "integer", "private_bins": 5},
        {"name": "c", "type": "categorical", "private_values": 5, "catch_all": "other"},
    ]
    with pytest.raises(SchemaError, match="'a' is still to be learnt"):
        Schema.parse({"version": 1, "columns": learnt, "rules": ["a determines c"]})
    with pytest.raises(SchemaError, match="'b' is still to be learnt: declare"):
        Schema.parse({"version": 1, "columns": learnt, "rules": ["b > 3"]})


def test_wide_columns_are_refused_in_one_rule():
    wide = [{"name": n, "type": "integer", "min": 0, "max": 9_999} for n in "ab"]
    with pytest.raises(SchemaError, match=r"100,000,000 cells together, .* Declare wider bins"):
        Schema.parse({"version": 1, "columns": wide, "rules": ["a <= b"]})


def test_rules_are_part_of_what_a_schema_means_and_survive_its_file(tmp_path):
    described = {"rule": "start <= end", "description": "of the contract"}
    one, other = with_rules("start <= end", "x <= y"), with_rules(described, "x <= y")
    assert one.fingerprint == other.fingerprint != SCHEMA.fingerprint
    other.dump(tmp_path / "s.json")
    assert Schema.load(tmp_path / "s.json") == other
    assert json.loads(other.to_json())["rules"] == [described, "x <= y"]


def test_what_a_table_declares_is_determined():
    rule = {"rule": "city determines county", "table": [["p", "k"], ["q", "l"], ["other", "k"]]}
    (cells,) = with_rules(rule).ruleset.cells
    assert cells.names == ("city", "county")
    assert cells.allowed.tolist() == [[1, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 1]]


def test_a_table_declares_where_values_are_missing():
    rule = {"rule": "county determines city", "table": [["k", "p"], ["(missing)", "q"]]}
    (cells,) = with_rules(rule).ruleset.cells
    assert cells.names == ("city", "county")
    assert cells.allowed.T.tolist() == [[1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]


def test_a_category_limits_a_number_as_its_table_declares():
    rule = {"rule": "city limits x", "table": [["p", "1", "2"], ["other", "-9", "0"]]}
    (cells,) = with_rules(rule).ruleset.cells
    assert cells.names == ("x", "city")
    assert cells.allowed.tolist() == [[0, 1, 1, 1], *[[1, 1, 1, 0]] * 2, *[[0, 1, 1, 0]] * 3]
    assert with_rules(rule).ruleset.rules[0].headings == ("city", "x from", "x to")


def test_codes_that_no_row_can_have_are_told():
    assert with_rules("x > y", "y > 3", "y is not missing").ruleset.never() == {
        "x": ["0", "1", "2", "3", "4"],
        "y": ["0", "1", "2", "3", "5", "(missing)"],
    }


ROWS = 400
TOGETHER = [
    ["total = x + wide", "x <= wide"],
    ["days = end - start", "start <= end"],
    ["age < 15 -> status = never", "x <= age", "never age in (20, 21, 22) and status = once"],
    ["total = wide", "wide != x", "x = 3 -> wide >= 6"],
    ["total = wide * 2", "price >= 1.5 or price < 0.3", "age = wide"],
    ["start = end", "end >= 2020-02-10"],
]


@pytest.mark.parametrize("rules", TOGETHER, ids=lambda rules: rules[0])
def test_every_row_that_is_decoded_meets_all_rules(rules):
    """Even where the codes come from a generator that knows no rules."""
    schema = with_rules(*rules)
    rng = np.random.default_rng(5)
    codes = [rng.integers(0, n, ROWS) for n in schema.domain().sizes]
    table = decode(CodedTable.from_codes(schema.domain(), codes), schema, rng)
    rows = table.to_pandas()
    number = {name: rows[name].to_numpy(dtype=float, na_value=np.nan)
              for name in ("x", "y", "wide", "total", "age", "days", "price")}  # fmt: skip
    day = {name: rows[name].map(dt.date.toordinal).to_numpy() for name in ("start", "end")}
    for text in rules:
        names, holds = next(case[1:] for case in CASES if case[0] == text)
        cells = [number.get(n, day.get(n, rows.get(n))) for n in names]
        for row in zip(*(np.asarray(c, dtype=object) for c in cells)):
            plain = [None if v is None or v != v else v for v in row]
            assert holds(*plain), (text, plain)
    read_table(table, SCHEMA)  # every value is a declared one


def test_rules_that_take_several_changes_of_a_row_can_be_met():
    """Each column is brought to its place after the others: one change of a row does not do."""
    edges = [0, 25, 50, 75, 100]
    columns = [{"name": name, "type": "numeric", "edges": edges} for name in "abcdef"]
    rules = [f"{one} <= {next_}" for one, next_ in pairwise("abcdef")]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": rules})
    coded = CodedTable.from_codes(schema.domain(), [np.full(ROWS, 1) for _ in columns])
    rows = decode(coded, schema, np.random.default_rng(1)).to_pandas()
    assert (np.diff(rows.to_numpy(), axis=1) >= 0).all()
    assert len(rows.drop_duplicates()) > ROWS / 2


def test_times_are_added_and_subtracted_in_their_units():
    moments = {"type": "datetime", "min": "2024-01-01T00:00", "max": "2024-01-09T23:00",
               "granularity": "day"}  # fmt: skip
    columns = [
        {"name": "begin", **moments},
        {"name": "stop", **moments},
        {"name": "hours", "type": "numeric", "min": 0, "max": 240, "bins": 10, "decimals": 2},
    ]
    rules = [
        "stop <= begin + 36 hours",
        "stop > begin + 90 seconds",
        "hours = (stop - begin) / 1 hour",
    ]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": rules})
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, n, ROWS) for n in schema.domain().sizes]
    coded = CodedTable.from_codes(schema.domain(), codes)
    rows = decode(coded, schema, rng).to_pandas()
    seconds = (rows["stop"] - rows["begin"]).dt.total_seconds()
    assert seconds.between(90, 36 * 3_600, inclusive="right").all()
    assert np.abs(rows["hours"] - seconds / 3_600).max() <= 0.005 + 1e-9


def test_one_row_of_codes_that_cannot_be_gets_others():
    schema = with_rules("x > y", "y is not missing", "x < 3")
    codes = [np.array([n - 1]) for n in schema.domain().sizes]
    rows = decode(
        CodedTable.from_codes(schema.domain(), codes), schema, np.random.default_rng(1)
    ).to_pandas()
    assert rows["y"][0] < rows["x"][0] < 3


def test_values_are_uniform_inside_their_bins_given_the_rule():
    """All 6 pairs of values x <= wide of the first bin of wide are as likely."""
    columns = [
        {"name": "x", "type": "integer", "min": 0, "max": 2, "bins": 1},
        {"name": "wide", "type": "integer", "min": 0, "max": 2, "bins": 1},
    ]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": ["x <= wide"]})
    codes = [np.zeros(ROWS, dtype=int)] * 2
    table = decode(
        CodedTable.from_codes(schema.domain(), codes), schema, np.random.default_rng(2)
    ).to_pandas()
    counts = table.value_counts().to_numpy()
    assert len(counts) == 6
    # chi-square with 5 degrees of freedom: above 27.9 once in 25,000 seeds
    assert (np.square(counts - ROWS / 6) / (ROWS / 6)).sum() < 27.9


@pytest.mark.parametrize("column", [c for c in SCHEMA.columns if c.measured], ids=lambda c: c.name)
def test_values_of_amounts_have_these_amounts(column):
    codes = np.arange(column.num_values)
    for end in column.ends(codes):
        amounts = np.append(end.astype(float), np.nan)
        values = column.from_amounts(amounts)
        assert values.type == column.draw(codes, np.random.default_rng(1)).type
        assert values[-1].as_py() is None
        found = column.amounts(normalise(values[:-1]))
        day = 86_400 if column.by_day else 0
        assert np.abs(found - end).max() <= day  # a day is its first second
        assert np.array_equal(column.encode(normalise(values[:-1])), codes)
