"""The verdict's sentences follow from the numbers by the rules of the checks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.attack import AttackCheck, AttackScore, Membership
from adaptive_qs.evaluation.checks import (
    GRADES,
    WORDS,
    Finding,
    named,
    overall_finding,
    plain,
)
from adaptive_qs.evaluation.columns import ColumnPair
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.promise import Promise, Promised
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.rows import RowChecks, RuleFacts, UnseenPair, UnseenPairs
from adaptive_qs.evaluation.rules import RuleCheck
from adaptive_qs.evaluation.scale import WorkloadScale
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.table.coded import CodedTable

from .made import (
    RULES,
    made_evaluation,
    made_schema,
    marginals_finding,
    membership,
    queries,
    tables,
    utility,
)

NO_RULES = RuleFacts((), None, None)


def workload_scale(l1, fresh=0.1, independent=0.5, chance=0.0):
    return WorkloadScale({("a",): None}, l1, fresh, independent, True, chance=chance)


def same_tables(**changes):
    """The synthetic rows are the true ones, except for the given facts."""
    pair = tables(made_schema())
    parts = {"v": (0.5, 0.5), "rules": NO_RULES, "l1": 0.0, "utility": None, **changes}
    return made_evaluation(pair=TablePair(pair.true, pair.true), **parts)


def finding(evaluation, name):
    return evaluation.findings[name]


@pytest.mark.parametrize(
    ("l1", "grade", "word", "text"),
    [
        (0.14, "good", "close", "10 % of the way between"),
        (0.05, "good", "close", "as close as a fresh sample"),
        (0.26, "fair", "usable", "40 % of the way between"),
        (0.46, "poor", "far", "90 % of the way between"),
        (0.6, "poor", "far", "no closer than independent columns"),
    ],
)
def test_marginals_are_placed_between_a_fresh_sample_and_independence(l1, grade, word, text):
    found = marginals_finding(made_evaluation(l1=l1), workload_scale(l1))
    assert (found.grade, found.word) == (grade, word)
    assert text in plain(found.text)
    assert "differ by" in found.plain


@pytest.mark.parametrize(
    ("l1", "independent", "chance", "word"),
    [(0.18, 0.151, 0.04, "far"), (0.151, 0.151, 0.04, "far"), (0.14, 0.151, 0.03, "usable"),
     (0.155, 0.151, 0.06, "close"), (0.18, 0.103, 0.04, "usable")],
)  # fmt: skip
def test_no_closer_than_independence_is_far_though_there_is_no_scale(l1, independent, chance, word):
    """Unless chance takes a fresh sample as far."""
    compared = workload_scale(l1, 0.103, independent, chance)
    assert compared.position is None
    found = marginals_finding(made_evaluation(l1=l1), compared)
    assert found.word == word
    assert ("independent columns by 0.151" in found.text) == (independent > 0.103)


@pytest.mark.parametrize("grades", itertools.product(GRADES, repeat=2))
def test_the_headline_is_never_better_than_what_is_below(grades):
    parts = [(f"part {k}", Finding(g, f"word {k}", "said")) for k, g in enumerate(grades)]
    found = overall_finding(parts)
    worst = next(g for g in ("poor", "fair", "plain", "good") if g in grades)
    assert (found.grade, found.word) == (worst, WORDS[worst])
    for k, grade in enumerate(grades):
        assert (f"part {k} (word {k})" if grade != "good" else f"part {k}") in found.text
    alarm = overall_finding(parts, [Finding("poor", "alarm", headline="An attack.")])
    assert (alarm.grade, alarm.word, alarm.text) == ("poor", "alarm", "An attack.")


def test_close_marginals_do_not_hide_lost_associations():
    evaluation = made_evaluation(v=(0.5, 0.125), l1=0.0)
    assert [s.word for s in evaluation.verdict.sentences[:4]] == [
        *("far", "use", "broken rules", "close")
    ]
    assert finding(evaluation, "association").word == "losses"
    grades = finding(evaluation, "workload").grade, evaluation.verdict.uses["the workload"]
    assert grades == ("good", "fair")


def test_queries_are_placed_and_graded():
    found = finding(made_evaluation(queries=queries()), "queries")
    text = plain(found.text)
    assert (found.grade, found.word) == ("fair", "usable")
    assert "400 queries are off by 0.546 % of the rows (27.3 of 5,000; root mean square" in text
    assert "weighted), a fresh sample by about 0.197 %, independent columns by 1.06 %" in text
    assert "41 % of the way" in text  # (0.546 − 0.197)/(1.057 − 0.197)
    near = PartError(("prefix",), 1, 2, 100, False, 0.001, 0.002, 0.001)
    found = finding(made_evaluation(queries=QueryError((near,))), "queries")
    assert (found.grade, found.word) == ("plain", "queries")
    assert found.text.endswith(". The table is as close as a fresh sample.")
    assert "independent" not in found.text
    assert "queries" not in made_evaluation().findings


def part(rmse, fresh=0.002, independent=0.01, deviation=0.0, ways=2):
    return PartError(("range",), ways, 2, 100, False, rmse, fresh, independent, deviation)


@pytest.mark.parametrize(
    ("parts", "grade", "text"),
    [
        ([part(0.0025)], "good", "6.2 % of the way"),
        ([part(0.004)], "fair", "25 % of the way"),
        ([part(0.004, deviation=3e-6)], "good", "is raised from 15 % to 29 % of the way."),
        ([part(0.007)], "poor", "62 % of the way"),
        ([part(0.012)], "poor", "no closer than independent columns"),
        ([part(0.012, deviation=4e-5)], "fair", "no closer than independent columns"),
        ([part(0.012, deviation=8e-5)], "good", "too close to each other"),
        ([part(0.0035, independent=0.0022)], "fair", "no closer than independent columns"),
        ([part(0.0035, independent=0.0015)], "fair", "no closer than independent columns"),
        ([part(0.0035, independent=0.0015, deviation=2e-6)], "good", "too close to each other"),
        ([part(0.0022, independent=0.0022)], "good", "too close to each other"),
        ([part(0.003, 0.003, 0.09), part(0.0095)], "fair", "As far off as independent columns: ra"),
    ],
)
def test_queries_no_closer_than_independence_are_never_close(parts, grade, text):
    """Unless chance takes a fresh sample as far: √(0.002² + 3 · 8e-5) is 0.016."""
    found = finding(made_evaluation(queries=QueryError(tuple(parts))), "queries")
    assert found.grade == grade
    assert text in plain(found.text)


@pytest.mark.parametrize(("error", "word"), [(0.0025, "close"), (0.012, "far")])
def test_a_verdict_on_queries_is_never_kinder_than_they_are(error, word):
    judged = same_tables(queries=QueryError((part(error),)), utility=utility(synthetic=0.9)).verdict
    assert judged.overall.word == word
    assert ("queries (far)" in judged.overall.text) == (word == "far")
    assert ("Use the table for what" in judged.sentences[-1].text) == (word == "close")


@pytest.mark.parametrize(
    ("off", "expected", "rows", "told"),
    [(0.219, 0.054, 5_000, True), (0.09, 0.054, 5_000, False), (0.2, 0.1, 200, False),
     (0.054, 0.219, 5_000, False)],
)  # fmt: skip
def test_rows_with_unseen_pairs_are_named_beyond_those_of_new_true_rows(off, expected, rows, told):
    """Five standard deviations of a difference of two shares near 0.15 are 0.18 of 200 rows."""
    schema = made_schema()
    unseen = UnseenPairs(off, expected, (UnseenPair(("age", "city"), off),))
    facts = {"rules": RuleFacts((), None, unseen), "pair": tables(schema, rows)}
    evaluation = made_evaluation(schema, v=(0.5, 0.5), **facts)
    found = finding(evaluation, "rules")
    assert (found.grade, found.text != "") == ("fair" if told else "good", told)
    assert ("rows (unseen pairs)" in evaluation.verdict.overall.text) == told
    if told:
        assert found.plain in evaluation.verdict.brief
        assert "21.9 % of the synthetic rows" in found.plain
        assert "(expected for new rows of the same population: 5.40 %): age × city." in found.plain


@pytest.mark.parametrize("asked", [False, True])
def test_the_verdict_in_short_is_what_was_asked_and_the_worst(asked):
    more = {"queries": queries()} if asked else {}
    evaluation = made_evaluation(v=(0.5, 0.125), utility=utility(), columns=(), **more)
    found, brief = evaluation.findings, evaluation.verdict.brief
    assert [found[k].grade for k in ("columns", "association", "utility")] == [
        *("good", "poor", "fair")
    ]
    assert brief[0] == evaluation.verdict.overall.plain
    assert "Not suitable for pairs of columns" in brief[1]
    assert brief[2] == found["rules"].plain
    assert brief[3].startswith("The workload's 400 queries" if asked else "The workload's 6 marg")
    assert brief[4:] == [found["association"].plain]
    assert len(same_tables().verdict.brief) == 3
    assert not any("\u00a0" in line for line in brief)


def test_an_alarm_is_the_verdict():
    evaluation = made_evaluation(membership=membership(0.5, 0.6))
    assert finding(evaluation, "association").grade == "poor"
    assert evaluation.verdict.overall.word == "alarm"


def test_more_than_three_names_lead_to_the_list():
    names = [f"n{k}" for k in range(68)]
    found = Finding("poor", "w", f"{named(names, 'list')} and on.")
    assert found.text == found.plain == "n0, n1, n2 and 65 more and on."
    assert found.pieces == [("n0, n1, n2 and ", ""), ("65 more", "list"), (" and on.", "")]
    assert Finding("poor", "w", named(names[:3], "list")).pieces == [("n0, n1 and n2", "")]


def test_single_columns_are_off_beyond_a_fresh_sample_only():
    def column(name, variation, fresh, doubt=0.0):
        return ColumnPair(1, name, 9, variation, fresh, doubt, (np.ones(1), np.ones(1)))

    facts = (column("noise", 0.3, 0.28), column("far", 0.2, 0.1), column("doubt", 0.2, 0.1, 0.2))
    found = finding(made_evaluation(columns=facts), "columns")
    assert (found.grade, found.word) == ("poor", "some off")
    text = plain(found.text)
    assert ": “far” (20 %; fresh sample 10 %)." in text
    assert "The largest error is that of “noise”, 30 %, but it would be 28 % in a fresh" in text
    assert finding(made_evaluation(columns=facts[::2]), "columns").word == "kept"


def test_nothing_lost_is_said_too():
    evaluation = same_tables(v=(0.5, 0.45))
    assert finding(evaluation, "columns").word == "kept"
    found = finding(evaluation, "association")
    assert (found.grade, found.word) == ("good", "kept")
    assert "6 of 6 kept, 0 weaker, 0 stronger, 0 lost" in found.text


def test_associations_that_only_the_synthetic_table_has_are_named():
    evaluation = made_evaluation(v=(0.05, 0.3))
    found = finding(evaluation, "association")
    assert (found.grade, found.word) == ("fair", "some new")
    assert "Only in the synthetic table: " in found.text


@pytest.mark.parametrize(
    ("synthetic", "grade"), [(0.89, "good"), (0.8, "fair"), (0.6, "poor"), (0.4, "poor")]
)
def test_models_are_judged_by_the_gain_they_keep(synthetic, grade):
    found = finding(made_evaluation(utility=utility(synthetic=synthetic)), "utility")
    assert found.grade == grade
    assert "gain over chance" in found.text


def test_models_without_anything_to_learn():
    nothing = made_evaluation(utility=utility(real=0.5, synthetic=0.5))
    assert finding(nothing, "utility").word == "no gain"
    none = made_evaluation(utility=None)
    assert finding(none, "utility").word == "not requested"
    assert "Name a target column" in none.verdict.sentences[-1].text


@pytest.mark.parametrize(
    ("facts", "grade", "text"),
    [
        (membership(), "good", "No attack can be distinguished from chance"),
        (membership(0.02, 0.1), "fair", "better than chance"),
        (membership(0.5, 0.6), "poor", "Do not release"),
        (membership(0.5, 0.6, None), "fair", "better than chance"),
        (None, "plain", "no attack was run"),
    ],
)
def test_the_attack_is_held_against_the_bound(facts, grade, text):
    found = finding(made_evaluation(membership=facts), "membership")
    assert found.grade == grade
    assert text in found.text


def test_the_attack_that_is_surest_of_its_gain_decides():
    """Its lower end is above the bound although another attack has the larger estimate."""
    wide = AttackScore("wide", 0.10, -0.02, 0.22, 0.6)
    narrow = AttackScore("narrow", 0.09, 0.06, 0.12, 0.6)
    promise = Promise(0.001, None, None, "given")
    game = Membership((wide, narrow), 1_000, 1_000, 0.95, 0.05, promise, ())
    found = AttackCheck().judge(game, made_evaluation())
    assert found.word == "alarm"
    assert "(narrow) gains 0.090, between 0.060 and 0.120" in found.text
    gain = AttackCheck().judge(replace(game, bound=None, promise=None), made_evaluation())
    assert gain.word == "some gain"
    assert "(narrow)" in gain.text


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (SimpleNamespace(drafted=False, insecure=False), "the promise holds without it"),
        (SimpleNamespace(drafted=False, insecure=True), "the noise came from a seed"),
        (SimpleNamespace(drafted=True, insecure=False), "does not cover what the schema reveals"),
        (None, "The promise behind the table is not known"),
    ],
)
def test_a_promise_is_claimed_only_where_there_is_one(statement, text):
    evaluation = made_evaluation(membership=None, promised=Promised(statement))
    said = finding(evaluation, "membership").text
    assert text in said
    assert ("the promise holds" in said) == (text == "the promise holds without it")


def test_the_most_broken_rules_come_first():
    shares = (0.02, 0.3, 0.001, 0.1, 0.2)
    checks = [RuleCheck(f"rule {k}", "found", 0.0, part, 0.5) for k, part in enumerate(shares)]
    evaluation = made_evaluation(rules=RuleFacts(tuple(checks), None, None))
    text = evaluation.verdict.sentences[-1].text
    assert "rows that break “rule 1”, “rule 4”, “rule 3” and 1 more" in text
    assert "rule 2" not in text


def test_what_to_do_next():
    text = made_evaluation(utility=None, membership=None).verdict.sentences[-1].text
    assert text.index("Repair or report") < text.index("To improve") < text.index("control table")
    fine = same_tables(utility=utility(synthetic=0.9)).verdict.sentences[-1].text
    assert fine.startswith("Use the table for what the workload covers")
    copies = same_tables(rows=RowChecks(0.9, 0.01, 0.02, 0.9, 0.0, 0.0)).verdict.sentences[-1].text
    assert copies.startswith("Find out why so many synthetic rows equal true ones")


@pytest.mark.parametrize(
    ("shares", "word"),
    [((0.9, 0.01, 0.02), "copies"), ((0.12, 0.01, 0.02), "copies"), ((0.003, 0.0, 0.0), ""),
     ((0.2, 0.01, 0.15), ""), ((0.17, 0.736, 0.653), "")],
)  # fmt: skip
def test_rows_that_may_be_copies_are_named(shares, word):
    """Shares of rows that equal a true row, if columns were independent, and between halves."""
    rows = RowChecks(*shares, shares[0], 0.0, 0.0)
    evaluation = made_evaluation(rows=rows)
    assert finding(evaluation, "rows").word == word
    assert (evaluation.verdict.overall.word == "copies") == (word == "copies")
    same = RowChecks(1.0, 1.0, 1.0, 0.0, 1.0, 1.0, same=True)
    overall = made_evaluation(rows=same).verdict.overall
    assert (overall.grade, overall.word) == ("poor", "the same rows")


@pytest.mark.parametrize("rows", [1, 2, 8, 400])
def test_a_table_of_few_rows_is_not_said_to_serve(rows):
    """Fresh samples: of 400 rows of two values, chance explains a tenth of them at most."""
    rng = np.random.default_rng(rows)
    domain = Domain.from_sizes({"a": 2, "b": 3, "c": 2})
    both = (
        CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in domain.sizes])
        for _ in range(2)
    )
    evaluation = evaluate(*both)
    served = [what for what, grade in evaluation.verdict.uses.items() if grade == "good"]
    few = finding(evaluation, "columns").word == "too few rows"
    assert few == (rows < 400) == (served == [])
    assert ("single columns" in served) == (rows == 400)


@pytest.mark.parametrize(("rows", "few"), [(40, True), (400, False)])
def test_associations_that_would_not_be_seen_are_not_said_to_be_kept(rows, few):
    """Of 40 rows of three columns with two values, χ²/rows is 0.04, a clear V, within 5 standard
    deviations of chance (√2/rows each); of 400 rows it is not."""
    rng = np.random.default_rng(rows)
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    both = (CodedTable.from_codes(domain, list(rng.integers(0, 2, (3, rows)))) for _ in range(2))
    evaluation = evaluate(*both)
    assert finding(evaluation, "association").word == ("too few rows" if few else "kept")
    uses = evaluation.verdict.uses
    expected = "plain" if few else "good"
    assert {uses["pairs of columns"], uses["single rows"]} == {expected}


def test_rules_are_broken_beyond_the_true_rows():
    found = finding(made_evaluation(rules=RULES), "rules")
    assert (found.grade, found.word) == ("fair", "broken rules")
    assert "Most often broken: “city determines age” (7.00 %; true table 0 %)" in found.plain
