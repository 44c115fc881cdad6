"""Grades and sentences follow from the numbers by the rules of the checks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.checks import GRADES, Finding, named, overall_finding, plain
from adaptive_qs.evaluation.columns import ColumnPair
from adaptive_qs.evaluation.evaluation import Promised, evaluate
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.rows import RowChecks, RuleFacts
from adaptive_qs.evaluation.rules import RuleCheck
from adaptive_qs.evaluation.scale import WorkloadScale
from adaptive_qs.evaluation.tables import OddRow, TablePair
from adaptive_qs.table.coded import CodedTable

from .made import made_evaluation, made_schema, marginals_finding, queries, tables, utility
from .scenarios import compared, people


def same_tables(**changes):
    """The synthetic rows are the true ones, except for the given facts."""
    pair = tables(made_schema())
    parts = {"v": (0.5, 0.5), "rules": RuleFacts((), None, 0.0, ()), "l1": 0.0, "utility": None}
    return made_evaluation(pair=TablePair(pair.true, pair.true), **{**parts, **changes})


def column(name, variation, fresh, doubt=0.0):
    return ColumnPair(1, name, 9, variation, fresh, doubt, (np.ones(1), np.ones(1)))


def part(rmse, fresh=0.002, independent=0.01, deviation=0.0, ways=2):
    return PartError(("range",), ways, 2, 100, False, rmse, fresh, independent, deviation)


def scaled(l1, fresh=0.1, independent=0.5, chance=0.0, **more):
    return WorkloadScale({("a",): None}, l1, fresh, independent, True, chance=chance, **more)


@pytest.mark.parametrize(
    ("scale", "word", "text"),
    [
        (scaled(0.14), "close", "10 % of the way between"),
        (scaled(0.05), "close", "as close as a fresh sample"),
        (scaled(0.26), "usable", "40 % of the way between"),
        (scaled(0.46), "far", "90 % of the way between"),
        (scaled(0.6), "far", "no closer than independent columns"),
        # no scale between the two, but no closer than independence unless by chance
        (scaled(0.18, 0.103, 0.151, 0.04), "far", "independent columns by 0.151"),
        (scaled(0.151, 0.103, 0.151, 0.04), "far", "independent columns by 0.151"),
        (scaled(0.14, 0.103, 0.151, 0.03), "usable", "too close to each other"),
        (scaled(0.155, 0.103, 0.151, 0.06), "close", "is raised from 0.02 to 0.0651 above a"),
        (scaled(0.18, 0.103, 0.103, 0.04), "usable", "by about 0.103."),
        # what chance explains is close, and the limit that it raised is named
        (scaled(0.19, chance=0.1), "close", "is raised from 15 % to 26 % of the way."),
        (scaled(0.25, chance=0.1), "usable", "37 % of the way between the two."),
        (scaled(0.19, chance=0.05), "usable", "22 % of the way between the two."),
        (scaled(1.3, 1.3, 1.6, sparse=0.6), "no scale", "60 % of the true rows lie in cells of"),
        (replace(scaled(0.1, 0.1, 0.1), all=False), "close", "1 of them, with mean error 0.100"),
    ],
)  # fmt: skip
def test_marginals_are_placed_between_a_fresh_sample_and_independence(scale, word, text):
    found = marginals_finding(made_evaluation(l1=scale.l1), scale)
    assert found.word == word
    assert text in plain(found.said)
    assert "differ by" in plain(found.said)
    assert (scale.place.room is None) == (scale.independent < 0.2 or word == "no scale")


@pytest.mark.parametrize(
    ("parts", "grade", "text"),
    [
        ([part(0.0025)], "good", "6.2 % of the way"),
        ([part(0.004)], "fair", "25 % of the way"),
        ([part(0.004, deviation=3e-6)], "good", "is raised from 15 % to 31 % of the way."),
        ([part(0.007)], "poor", "62 % of the way"),
        ([part(0.012)], "poor", "no closer than independent columns"),
        ([part(0.012, deviation=4e-5)], "good", "too close to each other"),
        ([part(0.0035, independent=0.0022)], "poor", "no closer than independent columns"),
        ([part(0.0035, independent=0.0015)], "fair", "same population by about 0.200"),
        ([part(0.0042, independent=0.0015)], "poor", "same population by about 0.200"),
        ([part(0.0035, independent=0.0015, deviation=2e-6)], "good", "is raised from"),
        ([part(0.0022, independent=0.0022)], "good", "too close to each other"),
        ([part(0.003, 0.003, 0.09), part(0.0095)], "fair", "As far off as independent columns: ra"),
        (queries().parts, "fair", "(27.3 of 5,000; root mean square, weighted), other rows"),
    ],
)
def test_queries_no_closer_than_independence_are_never_close(parts, grade, text):
    """Unless chance takes a fresh sample as far: √(0.002² + 5 · 4e-5) is 0.014."""
    evaluation = made_evaluation(queries=QueryError(tuple(parts)))
    found = evaluation.findings["queries"]
    assert (found.grade, text in plain(found.said)) == (grade, True), found.said
    assert plain(found.said) in evaluation.verdict.brief
    assert not any("marginals" in text for text in evaluation.verdict.brief[1:])


@pytest.mark.parametrize("grades", [*itertools.product(GRADES, repeat=2)])
def test_the_headline_is_never_better_than_what_is_below(grades):
    parts = [(f"part {k}", Finding(g, f"word {k}", "said")) for k, g in enumerate(grades)]
    found = overall_finding(parts)
    worst = next(g for g in ("poor", "fair", "plain", "good") if g in grades)
    assert (found.grade, found.word) == (worst, GRADES[worst].word)
    for k, grade in enumerate(grades):
        assert (f"part {k} (word {k})" if grade != "good" else f"part {k}") in found.said
    alarm = overall_finding(parts, [Finding("poor", "alarm", headline="An attack.")])
    assert (alarm.grade, alarm.word, alarm.said) == ("poor", "alarm", "An attack.")


def test_close_marginals_do_not_hide_lost_associations():
    evaluation = made_evaluation(v=(0.5, 0.125), l1=0.0)
    found, verdict = evaluation.findings, evaluation.verdict
    assert (verdict.overall.word, found["association"].word) == ("far", "losses")
    assert (found["workload"].grade, verdict.uses["the requested counts"]) == ("good", "fair")
    assert verdict.brief[4:] == [plain(found["association"].said)]  # the worst of the others
    assert not any("\u00a0" in line for line in verdict.brief)


def shares(broken):
    return RuleCheck("a determines b", "found", 0.0, broken, 0.5)


def odd(share):
    return RuleFacts((), None, share, (OddRow((1, 2), 0, 50.0, 0, 50.0, 9),))


@pytest.mark.parametrize(
    ("name", "facts", "grade", "word"),
    [
        ("columns", [column("noise", 0.3, 0.28), column("far", 0.2, 0.1)], "poor", "some off"),
        ("columns", [column("noise", 0.3, 0.28), column("doubt", 0.2, 0.1, 0.2)], "good", "kept"),
        ("rules", RuleFacts((shares(0.07),), None, 0.0, ()), "fair", "broken rules"),
        ("rules", RuleFacts((shares(0.005),), None, 0.0, ()), "good", "kept"),
        ("rules", odd(0.1), "fair", "odd pairs of values"),
        ("rules", odd(0.01), "good", "kept"),
        ("rows", RowChecks(0.9, 0.01, 0.02, 0.9, 0, 0), "poor", "copies"),
        ("rows", RowChecks(0.12, 0.01, 0.02, 0.12, 0, 0), "poor", "copies"),
        ("rows", RowChecks(0.003, 0.0, 0.0, 0.003, 0, 0), "plain", ""),
        ("rows", RowChecks(0.2, 0.01, 0.15, 0.2, 0, 0), "plain", ""),
        ("rows", RowChecks(0.17, 0.736, 0.653, 0.17, 0, 0), "plain", ""),
        ("rows", RowChecks(1, 1, 1, 0, 1, 1, same=True), "poor", "the same rows"),
        ("utility", utility(synthetic=0.89), "good", "small loss"),
        ("utility", utility(synthetic=0.8), "fair", "some loss"),
        ("utility", utility(synthetic=0.6), "poor", "large loss"),
        ("utility", utility(synthetic=0.4), "poor", "large loss"),
        ("utility", utility(real=0.5, synthetic=0.5), "plain", "no gain"),
    ],
)  # fmt: skip
def test_facts_have_a_grade_and_a_word(name, facts, grade, word):
    evaluation = same_tables(**{name: facts})
    found = evaluation.findings[name]
    assert (found.grade, found.word) == (grade, word)
    if grade == "poor" and name != "utility":
        assert evaluation.verdict.overall.grade == "poor"
    assert (evaluation.verdict.overall.word == word) == (
        word in ("copies", "the same rows", "alarm")
    )


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (SimpleNamespace(drafted=False, insecure=False), None),
        (SimpleNamespace(drafted=False, insecure=True), "its noise is known"),
        (SimpleNamespace(drafted=True, insecure=False), "does not cover what the schema reveals"),
        (None, "The privacy promise is not known"),
    ],
)
def test_a_promise_is_claimed_only_if_there_is_one(statement, text):
    found = Promised(statement).limitation
    assert found is None if text is None else text in found


def test_more_than_three_names_are_counted():
    assert named([f"n{k}" for k in range(68)]) == "n0, n1, n2 and 65 more"
    assert named(["n0", "n1", "n2"]) == "n0, n1 and n2"


def test_the_steps_repair_the_most_broken_rules_first():
    parts = (0.02, 0.3, 0.001, 0.1, 0.2)
    checks = [RuleCheck(f"rule {k}", "found", 0.0, part, 0.5) for k, part in enumerate(parts)]
    evaluation = made_evaluation(rules=RuleFacts(tuple(checks), None, 0.0, ()))
    text = evaluation.verdict.sentences[-1].said
    assert text.startswith("Repair or report rows that break “rule 1”, “rule 4”, “rule 3” and 1 ")
    for error, start in ((0.0025, "Use the table for the requ"), (0.012, "Do not use the table")):
        facts = {"queries": QueryError((part(error),)), "utility": utility(synthetic=0.9)}
        assert same_tables(**facts).verdict.sentences[-1].said.startswith(start)


@pytest.mark.parametrize("rows", [1, 2, 36, 37])
def test_means_of_few_rows_have_no_grade(rows):
    """3 √(1/3000 + 1/rows) is half a standard deviation at 36 rows."""
    evaluation = compared(people(2, rows))
    words = {evaluation.findings[n].word for n in ("values", "group_means", "correlations")}
    assert (words == {"too few rows"}, "too few rows" in words) == ((rows < 37,) * 2)
    assert rows > 2 or evaluation.verdict.overall.word == "no grade"


@pytest.mark.parametrize("rows", [1, 2, 8, 40, 400])
def test_a_table_of_few_rows_is_suitable_for_nothing(rows):
    """Fresh samples: of 400 rows of two values, chance explains a tenth of them at most; of 40,
    χ²/rows of two values is 0.04, a strong V, within 5 standard deviations (√2/rows each)."""
    rng = np.random.default_rng(rows)
    domain = Domain.from_sizes({"a": 2, "b": 2 if rows > 8 else 3, "c": 2})
    both = (
        CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in domain.sizes])
        for _ in range(2)
    )
    evaluation = evaluate(*both)
    good = {use for use, grade in evaluation.verdict.uses.items() if grade == "good"}
    assert (evaluation.findings["columns"].word == "too sparse") == (rows < 40) == (good == set())
    assert (evaluation.findings["association"].word == "too sparse") == (rows < 400)
    assert ({"pairs of columns", "single rows"} <= good) == (rows == 400)
