"""Whole rows against sets, lists and every way to halve a table."""

from __future__ import annotations

import json
import operator as op
from collections import Counter
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.domain import Domain
from adaptive_qs.errors import SchemaError
from adaptive_qs.evaluation.finding import found_rules, propose_rules
from adaptive_qs.evaluation.rows import row_checks
from adaptive_qs.evaluation.rules import check_rules, impossible_rows, parse_rule
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.conditions import read_values
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.grammar import parse_condition, written, written_value
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema, check_reviewed, open_topics
from adaptive_qs.table.tables import TableSet

from .tables import joint, rows_of, table

SIZES = {"a": 3, "b": 2, "c": 3}
DOMAIN = Domain.from_sizes(SIZES)


def test_shares_are_those_of_brute_force():
    pair = TablePair(table(DOMAIN, 13, 1), table(DOMAIN, 31, 2))
    true, made = rows_of(pair.true), rows_of(pair.synthetic)
    times, made_times = Counter(true), Counter(made)
    found = row_checks(JointCodes(pair))
    assert 0 < found.exact_matches < 1
    assert found.exact_matches == pytest.approx(np.mean([row in times for row in made]))
    assert found.unique_matches == pytest.approx(np.mean([times[row] == 1 for row in made]))
    assert found.repeated == pytest.approx(np.mean([made_times[row] > 1 for row in made]))
    assert found.true_repeated == pytest.approx(np.mean([times[row] > 1 for row in true]))
    shares = [Counter(column) for column in zip(*true)]
    chance = sum(np.prod([s[v] / 13 for s, v in zip(shares, row)]) for row in times)
    assert found.expected_if_independent == pytest.approx(chance)


@pytest.mark.parametrize("rows", [2, 5, 8])
def test_the_redrawn_share_is_the_mean_over_all_halves(rows):
    pair = TablePair(table(DOMAIN, rows, rows), table(DOMAIN, 4, 2))
    doubled = rows_of(pair.true)[: rows // 2] * 2 + rows_of(pair.true)[: rows - 2 * (rows // 2)]
    matches = []
    for half in combinations(range(rows), rows // 2):
        rest = {doubled[k] for k in range(rows) if k not in half}
        matches.append(np.mean([doubled[k] in rest for k in half]))
    found = row_checks(joint(doubled, doubled[:1], SIZES))
    assert found.expected_if_redrawn == pytest.approx(np.mean(matches))


def test_the_same_rows_are_seen_in_any_order():
    rows = [(0, 1, 2), (1, 1, 1), (1, 1, 1), (2, 0, 0)]
    assert row_checks(joint(rows, rows[::-1], SIZES)).same
    assert not row_checks(joint(rows, [*rows[:2], *rows[3:], rows[0]], SIZES)).same
    assert not row_checks(joint(rows, rows * 2, SIZES)).same
    same = row_checks(joint([(1, 1, 1)] * 9, [(1, 1, 1)], SIZES))
    assert (same.exact_matches, same.expected_if_independent, same.expected_if_redrawn) == (1, 1, 1)
    alone = row_checks(joint([(1, 1, 1)], [(0, 1, 1)], SIZES))
    assert (alone.exact_matches, alone.expected_if_redrawn, alone.true_repeated) == (0, 0, 0)


def test_rows_of_many_columns_with_more_combinations_than_integers():
    domain = Domain.from_sizes({f"a{i}": 1000 for i in range(110)})
    pair = TablePair(table(domain, 40, 1), table(domain, 40, 1))
    assert row_checks(JointCodes(pair)).exact_matches == 1
    other = TablePair(pair.true, table(domain, 40, 2))
    assert row_checks(JointCodes(other)).exact_matches == 0


# Rules: what they mean, how they are written, and which are found.

COLUMNS = [
    {"name": "low", "type": "integer", "min": 0, "max": 9},
    {"name": "high", "type": "integer", "min": 2, "max": 8, "missing": [""]},
    {"name": "coarse", "type": "integer", "min": 0, "max": 9, "bins": 3},
    {"name": "real", "type": "numeric", "edges": [0, 2.5, 4, 9]},
    {"name": "one of", "type": "categorical", "values": [7, 1, 4], "catch_all": 0},
    {"name": "from", "type": "date", "min": "2020-01-30", "max": "2020-02-04"},
    {"name": "to", "type": "date", "min": "2020-01-01", "max": "2020-03-31",
     "granularity": "month"},
    {"name": "at", "type": "datetime", "min": "2020-02-01T00:00:00", "max": "2020-02-02T23:59:59"},
    {"name": "grade", "type": "categorical", "values": ["x", "y"], "ordered": True},
    {"name": "mark", "type": "categorical", "values": ["x", "y"]},
    {"name": "flag", "type": "boolean"},
    {"name": "a, b", "type": "boolean"},
]  # fmt: skip
SCHEMA = Schema.parse({"version": 1, "columns": COLUMNS})
RULES_DOMAIN = SCHEMA.domain()
PAIR = TablePair(table(RULES_DOMAIN, 200, 1), table(RULES_DOMAIN, 90, 2))
JOINT = JointCodes(PAIR)
OPERATORS = {"<=": op.le, "<": op.lt, "==": op.eq, "!=": op.ne, ">=": op.ge, ">": op.gt}

VALUES = {
    "low": [[v] for v in range(10)],
    "high": [*([v] for v in range(2, 9)), None],
    "coarse": [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]],
    "real": [[0, 1, 2, 2.49], [2.5, 3, 3.99], [4, 5, 6, 7, 8, 9]],
    "one of": [[7], [1], [4], None],
    "from": [[30], [31], [32], [33], [34], [35]],
    "to": [list(range(1, 32)), list(range(32, 61)), list(range(61, 92))],
}
"""Values of every code that decide every comparison below; days count from 1 January."""
COMPARED = [("low", "high"), ("low", "coarse"), ("coarse", "coarse2"), ("low", "real"),
            ("real", "coarse"), ("one of", "low"), ("high", "one of"), ("from", "to")]  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("names", COMPARED, ids=" ".join)
def test_a_row_breaks_a_comparison_where_no_two_values_keep_it(names, operator):
    if "coarse2" in names:
        columns = [*COLUMNS[:3], {**COLUMNS[2], "name": "coarse2"}]
        schema = Schema.parse({"version": 1, "columns": columns})
        pair = TablePair(table(schema.domain(), 200, 1), table(schema.domain(), 90, 2))
    else:
        schema, pair = SCHEMA, PAIR
    i, j = (schema.names.index(name) for name in names)
    left, right = (VALUES[name.rstrip("2")] for name in names)

    def judged(a, b):
        return left[a] is not None and right[b] is not None

    def broken(a, b):
        return judged(a, b) and not any(
            OPERATORS[operator](x, y) for x, y in product(left[a], right[b])
        )

    codes = [[table.columns[k].tolist() for k in (i, j)] for table in (pair.true, pair.synthetic)]
    rule = parse_rule(" ".join((written(names[0]), operator, written(names[1]))), schema)
    (found,) = check_rules(JointCodes(pair), [rule], "declared")
    assert found.rule == f"{written(names[0])} {operator} {written(names[1])}"
    rows = [list(zip(*table)) for table in codes]
    known = [[row for row in table if judged(*row)] for table in rows]
    shares = (found.broken_true, found.broken_synthetic)
    assert shares == pytest.approx([np.mean([broken(*row) for row in table]) for table in known])
    shares = (found.judged_true, found.judged_synthetic)
    assert shares == pytest.approx([len(a) / len(b) for a, b in zip(known, rows)])
    together = [pair for pair in product(*codes[0]) if judged(*pair)]
    independent = np.mean([broken(*pair) for pair in together])
    assert found.expected_if_independent == pytest.approx(independent, abs=1e-12)


def values_pair(true, synthetic):
    """Tables of the values that cells have, read as files and frames are."""
    columns = [{"name": n, "type": "integer", "min": 0, "max": 99, "bins": 10, "missing": [""]}
               for n in "ab"]  # fmt: skip
    schema = Schema.parse({"version": 1, "columns": columns})
    frames = (pd.DataFrame(rows, columns=list("ab"), dtype="Int64") for rows in (true, synthetic))
    return schema, TablePair.of(*frames, schema)


def test_values_within_one_bin_are_compared_and_rows_without_one_are_not_kept():
    """Of four synthetic rows two cannot be judged, and of the others one breaks the rule."""
    true = [(11, 12), (13, 13), (20, 35)]
    schema, pair = values_pair(true, [(12, 11), (11, 19), (5, None), (None, 5)])
    rule = parse_rule("a <= b", schema)
    (found,) = check_rules(JointCodes(pair), [rule], "declared")
    assert (found.broken_true, found.broken_synthetic) == (0, 0.5)
    assert (found.judged_true, found.judged_synthetic) == (1, 0.5)
    assert found.expected_if_independent == pytest.approx(3 / 9)  # 13 > 12, 20 > 12 and 20 > 13
    rows = impossible_rows(JointCodes(pair), [(rule, found)])
    assert (rows.rules, rows.true, rows.synthetic) == (1, 0, 0.25)
    bins = TablePair(pair.true, pair.synthetic)
    (coded,) = check_rules(JointCodes(bins), [rule], "declared")
    assert coded.broken_synthetic == 0  # the bins alone do not tell


def test_impossible_rows_are_those_of_any_rule_that_true_rows_keep():
    schema, pair = values_pair([(11, 12), (13, 14)], [(12, 11), (60, 50), (7, 8), (9, 9)])
    rules = [parse_rule(text, schema) for text in ("a <= b", "a < b", "a > b")]
    checked = list(zip(rules, check_rules(JointCodes(pair), rules, "declared")))
    rows = impossible_rows(JointCodes(pair), checked)
    assert (rows.rules, rows.true, rows.synthetic) == (2, 0, 0.75)
    assert impossible_rows(JointCodes(pair), checked[2:]) is None


def share(text, pair=PAIR):
    (check,) = check_rules(JointCodes(pair), [parse_rule(text, SCHEMA)], "declared")
    return check


def test_dates_are_compared_with_times_as_spans_of_time():
    day, hour = (PAIR.true.columns[SCHEMA.names.index(name)].astype(int) for name in ("from", "at"))
    # "at" has the hours of 1 and 2 February; "from" begins on 30 January
    assert share("at <= from").broken_true == pytest.approx(np.mean(hour // 24 > day - 2))
    assert share("from > at").broken_true == pytest.approx(np.mean(hour // 24 > day - 2))


def test_labels_are_compared_by_their_places():
    grade, mark = (PAIR.true.columns[SCHEMA.names.index(name)] for name in ("grade", "mark"))
    assert share("grade == mark").broken_true == pytest.approx(np.mean(grade != mark))
    assert share("flag != `a, b`").broken_true > 0


def brute_determination(lefts, right, pair):
    """Majority by counting; the first code of several as frequent."""
    seen = {}
    for row in zip(*(pair.true.columns[k].tolist() for k in (*lefts, right))):
        seen.setdefault(row[:-1], []).append(row[-1])
    best = {key: min(values, key=lambda v: (-values.count(v), v)) for key, values in seen.items()}
    shares = []
    for coded in (pair.true, pair.synthetic):
        rows = list(zip(*(coded.columns[k].tolist() for k in (*lefts, right))))
        rows = [row for row in rows if row[:-1] in best]
        shares.append(sum(best[row[:-1]] != row[-1] for row in rows) / max(1, len(rows)))
    keys = list(zip(*(pair.true.columns[k].tolist() for k in lefts)))
    values = pair.true.columns[right].tolist()
    shares.append(np.mean([best[key] != value for key, value in product(keys, values)]))
    return shares


@pytest.mark.parametrize("lefts", [["low"], ["low", "high"], ["low", "high", "from", "at"]])
def test_a_row_breaks_a_determination_where_it_leaves_the_majority(lefts):
    found = share(f"{', '.join(lefts)} determine{'s' * (len(lefts) == 1)} coarse")
    positions = [SCHEMA.names.index(name) for name in lefts]
    broken_true, broken_synthetic, independent = brute_determination(positions, 2, PAIR)
    assert found.broken_true == pytest.approx(broken_true)
    assert found.broken_synthetic == pytest.approx(broken_synthetic)
    assert found.expected_if_independent == pytest.approx(independent)


def test_names_with_commas_and_spaces_are_names():
    rule = parse_rule("`a, b` determines `one of`", SCHEMA)
    assert rule.names == ("a, b", "one of")
    assert rule.text == "`a, b` determines `one of`"
    assert parse_rule("  low  <= high ", SCHEMA).text == "low <= high"
    assert parse_rule("low, high determine flag", SCHEMA).text == "low, high determine flag"


def made_to_be_found(rows, seed):
    """city determines country; start <= middle < end; twin equals start; id is a key."""
    rng = np.random.default_rng(seed)
    city = rng.integers(0, 12, rows)
    start = rng.integers(0, 10, rows)
    middle = start + rng.integers(0, 5, rows)
    end = middle + rng.integers(1, 5, rows)
    rare = (np.arange(rows) < 3).astype(int)
    return [city, city // 3, start, middle, end, start, np.arange(rows), rare]


FOUND = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "city", "type": "categorical", "values": [f"c{k}" for k in range(12)]},
            {"name": "country", "type": "categorical", "values": ["w", "x", "y", "z"]},
            *(
                {"name": name, "type": "integer", "min": 0, "max": 19}
                for name in ("start", "middle", "end", "twin")
            ),
            {"name": "id", "type": "integer", "min": 0, "max": 999},
            {"name": "rare", "type": "boolean"},
        ],
    }
)


def test_rules_are_found_that_hold_and_are_not_trivial():
    domain = FOUND.domain()
    true = CodedTable.from_codes(domain, made_to_be_found(600, 1))
    pair = TablePair(true, table(domain, 500, 2))
    found = [check for _, check in found_rules(JointCodes(pair), FOUND)]
    assert {check.rule for check in found} == {
        "city determines country",
        "start <= middle",
        "start < end",
        "middle < end",
        "start = twin",
        "middle >= twin",
        "end > twin",
    }
    assert all((c.source, c.broken_true) == ("found", 0) for c in found)
    assert all(c.broken_synthetic > 0.1 for c in found)
    expected = [c.expected_if_independent for c in found]
    assert expected == sorted(expected, reverse=True)
    some = found_rules(JointCodes(pair), FOUND, ["start < end"])
    assert len(some) == len(found) - 1
    looser = found_rules(JointCodes(pair), FOUND, ["end >= start"])
    assert [rule.text for rule, _ in looser] == [rule.text for rule, _ in some]


def test_no_rule_is_found_among_independent_columns():
    domain = FOUND.domain()
    pair = TablePair(table(domain, 2_000, 1), table(domain, 500, 2))
    assert found_rules(JointCodes(pair), FOUND) == ()


def test_rows_of_one_bin_may_keep_or_break_a_strict_comparison():
    columns = [{"name": n, "type": "integer", "min": 0, "max": 99, "bins": 10} for n in "ab"]
    schema = Schema.parse({"version": 1, "columns": columns})
    rng = np.random.default_rng(1)
    a = rng.integers(0, 8, 500)
    for gap, rule in ((0, "a <= b"), (1, "a < b")):
        true = CodedTable.from_codes(schema.domain(), [a, a + gap + rng.integers(0, 2, 500)])
        found = found_rules(JointCodes(TablePair(true, true)), schema)
        assert [check.rule for _, check in found] == [rule]


def made_to_be_proposed(rows=400):
    rng = np.random.default_rng(4)
    adults, children = rng.integers(1, 9, rows), rng.integers(0, 6, rows)
    arrival, dogs = rng.integers(0, 300, rows), rng.integers(0, 4, rows)
    nights = rng.integers(1, 40, rows)
    price = np.round(rng.gamma(3, 20, rows), 2)
    city = rng.integers(0, 9, rows)
    day = np.datetime64("2020-01-01")
    return pd.DataFrame(
        {
            "adults": adults,
            "children": children,
            "guests": adults + children,
            "dogs": dogs,
            "all": adults + children + dogs,
            "arrival": (day + arrival).astype(str),
            "departure": (day + arrival + nights).astype(str),
            "nights": nights,
            "came": (
                came := (day + arrival).astype("M8[s]") + rng.integers(0, 80_000, rows)
            ).astype(str),
            "left": (came + (spent := rng.integers(60, 9_000, rows))).astype(str),
            "spent": spent,
            "price": price,
            "sum of it": np.round(price * nights, 2),
            "city": [f"c{k}" for k in city],
            "county": [f"k{k // 3}" for k in city],
        }
    )


def test_rules_are_proposed_that_the_data_show_and_that_a_schema_can_hold():
    table = made_to_be_proposed()
    schema = propose(table)
    ruled = propose_rules(table, schema)
    found = [rule.rule for rule in ruled.declared_rules]
    assert {
        "guests = adults + children",
        "all = guests + dogs",
        "all = adults + children + dogs",
        "nights = departure - arrival",
        "spent = (left - came) / 1 second",
        "`sum of it` = nights * price",
        "city determines county",
    } <= set(found)
    assert not any("county determines" in text for text in found)
    (keys,) = (rule.table for rule in ruled.declared_rules if "determines" in rule.rule)
    assert keys == tuple((f"c{k}", f"k{k // 3}") for k in range(9))
    assert open_topics(ruled)["rule"] == found
    with pytest.raises(SchemaError, match=rf"{len(found)} rules\)"):
        check_reviewed(ruled, unreviewed_schema=False)
    rng = np.random.default_rng(7)
    shuffled = table.apply(lambda column: rng.permutation(column.to_numpy()))
    assert propose_rules(shuffled, schema).rules == ()


def test_limits_by_a_category_are_proposed_rounded_outwards():
    rng = np.random.default_rng(5)
    town = rng.integers(0, 12, 2_000)
    height = np.round(town / 3 + rng.uniform(0, 0.3, 2_000), 3)
    price = rng.normal(size=2_000) * (1 + town)  # which differs by town, too, but has no limits
    table = pd.DataFrame({"town": [f"t{k:02}" for k in town], "height": height, "price": price})
    (rule,) = propose_rules(table, propose(table)).declared_rules
    assert rule.rule == "town limits height"
    for k, (name, low, high) in enumerate(rule.table):
        assert name == f"t{k:02}"
        own = height[town == k]
        assert own.min() - 0.1 < float(low) <= own.min() <= own.max() <= float(high)
        assert float(high) < own.max() + 0.1
        assert len(low) == 3  # one decimal


def people():
    """Made by the rules that are to be found, one of each kind."""
    rng, n = np.random.default_rng(3), 4_000
    age = rng.integers(0, 90, n)
    marital = rng.choice(["single", "was married", "widowed"], n, p=[0.4, 0.3, 0.3])
    marital = np.where((age < 20) | ((age < 40) & (marital == "widowed")), "single", marital)
    sex = rng.choice(["f", "m"], n)
    pregnant = np.where((sex == "f") & (rng.random(n) < 0.4), "yes", "no")
    phone = np.where(rng.random(n) < 0.6, "known", "")
    mail = np.where((phone == "") | (rng.random(n) < 0.5), "known", "")
    wait = rng.exponential(40, n).astype(int)
    return pd.DataFrame(
        {
            "age": age,
            "marital": marital,
            "sex": sex,
            "pregnant": pregnant,
            "phone": phone,
            "mail": mail,
            "wait": wait,
            "stay": wait + rng.integers(0, 100, n),
            "weight": age + 45 + rng.integers(0, 60, n),
        }
    )


def test_implications_and_orders_on_different_scales_are_proposed():
    table = people()
    schema = propose(table)
    assert schema.column("wait").scale != schema.column("stay").scale
    found = [rule.rule for rule in propose_rules(table, schema).declared_rules]
    assert {
        "age < 20 -> marital = single",
        "age < 40 -> marital != widowed",
        "at least one of phone, mail",
        "wait <= stay",
    } <= set(found)
    assert {"sex = m -> pregnant = no", "pregnant = yes -> sex = f"} & set(found)
    assert not {"age < weight", "age <= weight"} & set(found)  # independent ones rarely break it
    joined = JointCodes(TablePair(*2 * (read_table(table, schema),)))
    for text in found:
        (check,) = check_rules(joined, [parse_rule(text, schema)], "found")
        assert check.broken_true == 0, text


def test_one_exception_is_enough_for_no_rule():
    """Of the columns that it concerns: what the other rows show of others stays."""
    table = people()
    for status in ("was married", "widowed"):
        table.loc[len(table)] = [0, status, "m", "yes", "", "", 9, 8, 40]
    assert propose_rules(table, propose(table)).rules == ()


def survey():
    """What is missing follows from ages, counts and kinds; districts have places and a number."""
    rng, n = np.random.default_rng(5), 4_000
    age, visits = rng.integers(0, 90, n), rng.poisson(1.0, n)
    district = rng.integers(0, 8, n)
    place = district + rng.normal(0, 0.4, n)
    call = rng.choice(["A", "B", "C"], n)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(age < 15, "N", rng.integers(0, 900, n).astype(str)),
            "decile": np.where(age < 15, "N", rng.integers(0, 10, n).astype(str)),
            "job": np.where(
                (age < 16) | (rng.random(n) < 0.3), "N", rng.integers(1, 5, n).astype(str)
            ),
            "visits": visits,
            "last visit": np.where(visits == 0, "", rng.choice(["2020-01-01", "2021-06-30"], n)),
            "call": call,
            "caller": np.where(call == "A", rng.integers(1, 50, n).astype(str), ""),
            "district": np.char.add("d", district.astype(str)),
            "density": np.array([7.5, 3.25, 3.5, 16.25, 20.0, 1.5, 9.75, 12.5])[district],
            "longitude": np.round(16 + place / 100, 5),
        }
    )


def test_missing_values_are_explained_once_and_places_have_no_limits(tmp_path):
    """No rule repeats what others imply, or says where the last point of a district lies."""
    survey().to_csv(tmp_path / "t.csv", index=False)
    schema = propose_rules(tmp_path / "t.csv", propose(tmp_path / "t.csv"))
    assert {rule.rule for rule in schema.declared_rules} == {
        "age < 15 <-> income is missing",
        "age < 15 <-> decile is missing",
        "age < 16 -> job is missing",
        "visits = 0 <-> `last visit` is missing",
        "call in (B, C) <-> caller is missing",
        "district determines density",
        "district limits longitude",
    }
    assert schema.column("density").listed[:2] == ("1.5", "3.25")
    assert "values" in schema.column("density").open
    rng = np.random.default_rng(1)
    frame = survey().apply(lambda column: rng.permutation(column.to_numpy()))
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert propose_rules(tmp_path / "t.csv", propose(tmp_path / "t.csv")).rules == ()


@pytest.mark.parametrize(
    "label", ["plain", "two words", "and", "it's", "x", "-3", "never", "limits"]
)
def test_labels_are_written_such_that_rules_read_them_as_labels(label):
    """Also those that are names of columns, numbers or words of the grammar."""
    columns = [{"name": "c", "type": "categorical", "values": [label, "other"]}]
    columns.append({"name": "x", "type": "integer", "min": 0, "max": 1})
    known = Schema.parse({"version": 1, "columns": columns}).by_name
    condition = parse_condition(f"c = {written_value(label, known)}", known)
    outcome = condition.outcome({"c": read_values(known["c"], np.array([0, 1]))})
    assert outcome.true.tolist() == [True, False]


def test_names_and_labels_that_no_rule_can_write_are_in_none():
    k = np.arange(600) % 3
    labels = np.array([f"{5 + j}'2\"" for j in range(3)])[k]
    frame = pd.DataFrame({"height": labels, "n`x": k, "m": k + 4, "p": np.arange(600) % 7})
    rules = propose_rules(frame, propose(frame)).declared_rules
    assert all("n`x" not in rule.rule for rule in rules)


@pytest.mark.slow
def test_schema_init_writes_them_for_review(tmp_path, capsys):
    made_to_be_proposed().to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "s.json"
    command = ["schema", "init", str(tmp_path / "t.csv"), "--out", str(out)]
    (tmp_path / "s.table1.csv").write_text("another file")
    assert main(command) == 2
    assert (tmp_path / "s.table1.csv").read_text() == "another file"
    (tmp_path / "s.table1.csv").unlink()
    capsys.readouterr()
    assert main(command) == 0
    assert "guests = adults + children" in capsys.readouterr().out
    rules = json.loads(out.read_text())["rules"]
    assert "guests = adults + children" in [r["rule"] for r in rules if r["open"] == ["rule"]]
    (listed,) = (rule for rule in rules if rule["rule"] == "city determines county")
    assert (listed["table_file"], "table" in listed) == ("s.table1.csv", False)
    lines = (tmp_path / "s.table1.csv").read_text().split()
    assert lines[:2] == ["city,county", "c0,k0"]
    (tmp_path / "s.table1.csv").write_text("\n".join([lines[0], "c0,k1", *lines[2:]]))
    kept_rules = Schema.load(out).declared_rules
    (kept,) = (rule for rule in kept_rules if rule.table)
    assert kept.table[:2] == (("c0", "k1"), ("c1", "k0"))
    several = {"version": 1, "tables": {"t": json.loads(out.read_text())}}
    (tmp_path / "set.json").write_text(json.dumps(several))
    assert TableSet.load(tmp_path / "set.json").tables["t"].declared_rules == kept_rules
    for name in ("../s.table1.csv", str(tmp_path / "s.table1.csv"), "/dev/zero", ".", ["x"]):
        listed["table_file"] = name  # a schema of others must not name any file
        out.write_text(json.dumps(json.loads(out.read_text()) | {"rules": [listed]}))
        with pytest.raises(SchemaError, match="cannot be read as the table of a rule"):
            Schema.load(out)
    out.write_text(json.dumps(json.loads(out.read_text()) | {"rules": 5}))
    with pytest.raises(SchemaError, match="rules: must be a list"):
        Schema.load(out)


def test_limits_of_spans_are_in_the_words_of_a_reader_and_none_follows_from_another():
    rng, rows = np.random.default_rng(7), 3_000
    out = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 500, rows), "D")
    start = out + pd.to_timedelta(rng.integers(0, 86_400, rows), "s")
    table = pd.DataFrame({
        "out": out, "due": out + pd.to_timedelta(rng.integers(7, 29, rows), "D"),
        "left": out + pd.to_timedelta(rng.integers(0, 2, rows), "D"),
        "back": out + pd.to_timedelta(rng.choice([7, 14, 28], rows), "D"),
        "start": start, "end": start + pd.to_timedelta(rng.integers(7_300, 14_000, rows), "s"),
    })  # fmt: skip
    for name in (dates := ["out", "due", "left", "back"]):
        table[name] = table[name].dt.date
    parts = table[dates[:3]], table[["start", "end"]], table[["out", "back"]]
    schemas = (propose_rules(part, propose(part)) for part in parts)
    found = {rule.rule for schema in schemas for rule in schema.declared_rules}
    assert {"due >= out + 7 days", "end <= start + 4 hours", "end >= start + 2 hours"} <= found
    assert {
        "left <= out + 1 day",
        "back = out + 7 days or back = out + 14 days or back = out + 28 days",
    } <= found
    assert (
        not {
            "out < back",
            "back >= out + 7 days",
            "out < due",
            "due > out",
            "start < end",
            "end > start",
        }
        & found
    )
