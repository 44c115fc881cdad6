"""The verdict's sentences follow from the numbers by the rules in ``limits``."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from adaptive_qs.evaluation.results import AttackScore, Membership, Promise
from adaptive_qs.evaluation.verdict import (
    WORDS,
    ColumnPair,
    Findings,
    Sentence,
    attack_sentence,
    column_pairs,
    columns_sentence,
    copies_sentence,
    dependence_sentence,
    findings,
    marginals_sentence,
    models_sentence,
    named,
    next_sentence,
    overall_sentence,
    queries_sentence,
    verdict,
)

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation import limits as thresholds
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.marginals import OrderedError, UnseenPair, UnseenPairs
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.rules import RowChecks, RuleCheck
from adaptive_qs.evaluation.scale import WorkloadScale, association_changes
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.pages.words import combination
from adaptive_qs.table.coded import CodedTable

from .made import made_evaluation, made_schema, membership, queries, tables, utility


def workload_scale(l1, fresh=0.1, independent=0.5, chance=0.0):
    return WorkloadScale({("a",): None}, l1, fresh, independent, True, chance=chance)


def scaled(l1, fresh=0.1, independent=0.5):
    evaluation = made_evaluation(l1=l1)
    return evaluation, workload_scale(evaluation.workload.mean_l1, fresh, independent)


def judged_of(evaluation):
    found = findings(evaluation)
    return found, verdict(found, None)


def same_tables(**changes):
    """An evaluation of the true table against itself, in which associations stay as they are."""
    true = tables(made_schema()).true
    changes = {"v": (0.5, 0.5), "pair": TablePair(true, true), **changes}
    return made_evaluation(made_schema(), **changes)


@pytest.mark.parametrize(
    ("l1", "word", "text"),
    [(0.05, "close", "as close as a fresh sample"), (0.15, "close", "of the way"),
     (0.25, "usable", "of the way"), (0.4, "far", "of the way"),
     (0.6, "far", "no closer than independent columns")],
)  # fmt: skip
def test_marginals_are_placed_between_a_fresh_sample_and_independence(l1, word, text):
    sentence = marginals_sentence(*scaled(l1))
    assert sentence.word == word
    assert text in sentence.text
    assert "6 marginals" in sentence.text


@pytest.mark.parametrize(("l1", "word"), [(0.1, "close"), (0.16, "usable"), (0.3, "far")])
def test_single_columns_are_placed_by_their_error_alone(l1, word):
    evaluation, scale = scaled(l1, fresh=0.1, independent=0.1)
    assert scale.position is None
    sentence = marginals_sentence(evaluation, scale)
    assert sentence.word == word
    assert "independent" not in sentence.text


@pytest.mark.parametrize("independent", [0.1, 0.11])
def test_what_is_closer_than_a_fresh_sample_is_said_to_be_without_a_scale_too(independent):
    evaluation, scale = scaled(0.05, fresh=0.1, independent=independent)
    assert scale.position is None
    sentence = marginals_sentence(evaluation, scale)
    assert sentence.text.endswith(": the table is as close as a fresh sample.")
    assert "too close to each other" in marginals_sentence(*scaled(0.105, 0.1, 0.11)).text


def test_lost_columns_and_associations_are_named():
    evaluation = made_evaluation(v=(0.5, 0.125))
    found = association_changes(evaluation)
    assert len(found.lost) == 6
    columns = column_pairs(evaluation.pair)
    assert [c.variation for c in columns] == sorted((c.variation for c in columns), reverse=True)
    sentence = dependence_sentence(found)
    assert sentence.grade == "poor"
    assert "age × city" in " ".join(combination(f.names) for f in found.lost)
    assert sentence.pieces[1] == ("3 more", "lost")
    assert [piece for piece in sentence.pieces if piece[1]] == [("3 more", "lost")]
    assert sentence.text.endswith("come out independent of all other columns.")


def off(name, variation, fresh):
    return ColumnPair(1, name, 3, variation, fresh, 0.0, (np.ones(3) / 3, np.ones(3) / 3))


def test_the_reason_stands_where_a_column_is_named():
    """The largest error need not be the one that a fresh sample explains least."""
    columns = [off("state", 0.074, 0.04), off("income", 0.063, 0.01), off("age", 0.02, 0.01)]
    sentence = columns_sentence(made_evaluation(), columns)
    text = sentence.text.replace("\u00a0", " ")
    assert sentence.grade == "poor"
    assert "“income” (6.3 %, a fresh sample 1.0 %)" in text
    assert "“state”, 7.4 %, but it would be 4.0 % in a fresh sample" in text
    assert "age" not in text
    assert columns_sentence(made_evaluation(), columns[2:]).word == "kept"


@pytest.mark.parametrize(
    ("shift", "rows", "word"),
    [(3.9, 5_000, "moved means"), (-0.6, 5_000, "moved means"), (0.4, 5_000, "kept"),
     (0.9, 20, "kept")],
)  # fmt: skip
def test_means_that_moved_further_than_chance_moves_them_are_named(shift, rows, word):
    """Of 20 rows each, three standard deviations of a difference of means are 0.95."""
    schema = made_schema()
    error = OrderedError("age", 0.1, 0.1, 0.1, 0.1, shift)
    evaluation = made_evaluation(schema, ordered=(error,), pair=tables(schema, rows))
    sentence = columns_sentence(evaluation, [])
    assert sentence.word == word
    assert ("“age”" in sentence.text) == (word != "kept")


GRADES = ("good", "fair", "poor", "plain")


@pytest.mark.parametrize("grades", list(itertools.product(GRADES, repeat=3)))
def test_the_first_word_is_that_of_the_worst_finding(grades):
    findings = [(f"part {k}", Sentence(g, f"word {k}", "")) for k, g in enumerate(grades)]
    sentence = overall_sentence(findings, Sentence("fair", "some gain", ""))
    wanted = next(g for g in ("poor", "fair", "plain", "good") if g in grades)
    assert (sentence.grade, sentence.word) == (wanted, WORDS[wanted])
    assert all(f"part {k}: word {k}" in sentence.text for k in range(3))
    alarm = overall_sentence(findings, Sentence("poor", "alarm", ""))
    assert (alarm.grade, alarm.word) == ("poor", "alarm")


def test_close_marginals_do_not_hide_lost_associations():
    evaluation, scale = made_evaluation(v=(0.5, 0.125)), workload_scale(0.1)
    found = verdict(Findings(evaluation, scale, (), association_changes(evaluation)), None)
    assert [s.word for s in found.sentences[:5]] == [
        *("far", "broken rules", "use", "close", "kept")
    ]
    assert found.associations.word == "losses"
    assert (found.marginals.grade, dict(found.uses)["the workload"]) == ("good", "fair")


@pytest.mark.parametrize(
    ("l1", "independent", "chance", "word"),
    [(0.18, 0.151, 0.04, "far"), (0.151, 0.151, 0.04, "far"), (0.14, 0.151, 0.03, "usable"),
     (0.155, 0.151, 0.06, "close"), (0.18, 0.103, 0.04, "usable")],
)  # fmt: skip
def test_no_closer_than_independence_is_far_though_there_is_no_scale(l1, independent, chance, word):
    """Unless chance takes a fresh sample as far."""
    scale = workload_scale(l1, 0.103, independent, chance)
    assert scale.position is None
    sentence = marginals_sentence(made_evaluation(l1=l1), scale)
    assert sentence.word == word
    assert ("independent columns by 0.151" in sentence.text) == (independent > 0.103)


def test_queries_are_placed_and_graded():
    sentence = queries_sentence(made_evaluation(queries=queries()))
    text = sentence.text.replace("\u00a0", " ")
    assert (sentence.grade, sentence.word) == ("fair", "usable")
    assert "400 queries are off by 0.546 % of the rows (27.3 of 5,000; root mean square" in text
    assert "weighted), a fresh sample by about 0.197 %, independent columns by 1.06 %" in text
    assert "41 % of the way" in text  # (0.546 − 0.197)/(1.057 − 0.197)
    near = PartError(("prefix",), 1, 2, 100, False, 0.001, 0.002, 0.001)
    sentence = queries_sentence(made_evaluation(queries=QueryError((near,))))
    assert (sentence.grade, sentence.word) == ("plain", "queries")
    close = sentence.text
    assert close.endswith(": the table is as close as a fresh sample.")
    assert "independent" not in close
    assert queries_sentence(made_evaluation()) is None


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
    sentence = queries_sentence(made_evaluation(queries=QueryError(tuple(parts))))
    assert sentence.grade == grade
    assert text in sentence.text.replace("\u00a0", " ")


@pytest.mark.parametrize(("error", "word"), [(0.0025, "close"), (0.012, "far")])
def test_a_verdict_on_queries_is_never_kinder_than_they_are(error, word):
    asked = QueryError((part(error),))
    found, judged = judged_of(same_tables(l1=0.0, ordered=(), rules=(), queries=asked))
    assert judged.overall.word == word
    assert f"queries: {word}" in judged.overall.text
    following = next_sentence(found, judged, ()).text
    assert ("Use the table for what" in following) == (word == "close")


@pytest.mark.parametrize(
    ("share", "expected", "rows", "named"),
    [(0.219, 0.054, 5_000, True), (0.09, 0.054, 5_000, False), (0.2, 0.1, 200, False),
     (0.054, 0.219, 5_000, False)],
)  # fmt: skip
def test_rows_with_unseen_pairs_are_named_beyond_those_of_new_true_rows(
    share, expected, rows, named
):
    """Five standard deviations of a difference of two shares near 0.15 are 0.18 of 200 rows."""
    schema = made_schema()
    unseen = UnseenPairs(share, expected, (UnseenPair(("age", "city"), share),))
    parts = {"unseen": unseen, "pair": tables(schema, rows), "rules": ()}
    _, judged = judged_of(made_evaluation(schema, v=(0.5, 0.5), **parts))
    assert (judged.rows is not None) == named
    assert ("rows: unseen pairs" in judged.overall.text) == named
    if named:
        assert judged.rows.grade == "fair"
        assert judged.brief[1] == judged.rows.plain
        text = judged.rows.plain
        assert "21.9 % of the synthetic rows" in text
        assert "about 5.40 % of new true rows would: age × city." in text


@pytest.mark.parametrize("asked", [False, True])
def test_the_verdict_in_short_is_what_was_asked_and_the_worst(asked):
    evaluation = made_evaluation(
        v=(0.5, 0.125), utility=utility(), queries=queries() if asked else None
    )
    _, judged = judged_of(evaluation)
    grades = (judged.columns.grade, judged.associations.grade, judged.models.grade)
    assert grades == ("good", "poor", "fair")
    first, second, third, fourth, fifth = judged.brief
    assert first == judged.overall.plain
    assert second == judged.rows.plain
    assert third.startswith("The table serves for single columns")
    assert "does not serve for pairs of columns" in third
    assert fourth.startswith("The workload's 400 queries" if asked else "The workload's 6 marg")
    assert fifth == judged.associations.plain
    good = same_tables(l1=0.0, utility=None, ordered=(), rules=())
    assert len(judged_of(good)[1].brief) == 3
    assert not any("\u00a0" in line for line in judged.brief)


def test_an_alarm_comes_before_what_else_is_bad():
    _, judged = judged_of(made_evaluation(membership=membership(0.5, 0.6)))
    assert judged.associations.grade == "poor"
    assert judged.brief[-1] == judged.attack.plain


def test_what_is_more_than_three_leads_to_the_list():
    names = [f"n{k}" for k in range(68)]
    sentence = Sentence("poor", "w", f"{named(names, 'list')} and on.")
    assert sentence.text == sentence.plain == "n0, n1, n2 and 65 more and on."
    assert sentence.pieces == [("n0, n1, n2 and ", ""), ("65 more", "list"), (" and on.", "")]
    assert Sentence("poor", "w", named(names[:3], "list")).pieces == [("n0, n1 and n2", "")]


def test_nothing_lost_is_said_too():
    evaluation = same_tables(v=(0.5, 0.45))
    assert columns_sentence(evaluation, column_pairs(evaluation.pair)).word == "kept"
    sentence = dependence_sentence(association_changes(evaluation))
    assert (sentence.grade, sentence.word) == ("good", "kept")
    assert "6 kept their strength, 0 became weaker, 0 stronger and none is lost" in sentence.text


def test_associations_that_only_the_synthetic_table_has_are_named():
    found = association_changes(made_evaluation(v=(0.05, 0.3)))
    assert (found.clear, len(found.made_up)) == (0, 6)
    sentence = dependence_sentence(found)
    assert (sentence.grade, sentence.word) == ("fair", "some new")
    assert "Only in the synthetic table: " in sentence.text


@pytest.mark.parametrize(
    ("synthetic", "grade"), [(0.89, "good"), (0.8, "fair"), (0.6, "poor"), (0.4, "poor")]
)
def test_models_are_judged_by_the_gain_they_keep(synthetic, grade):
    sentence = models_sentence(made_evaluation(utility=utility(synthetic=synthetic)))
    assert sentence.grade == grade
    assert "gain over chance" in sentence.text


def test_models_without_anything_to_learn():
    nothing = made_evaluation(utility=utility(real=0.5, synthetic=0.5))
    assert models_sentence(nothing).word == "no gain"
    assert models_sentence(made_evaluation(utility=None)).word == "not asked"
    apart = replace(utility(), propensity=utility().models[0].real["AUROC"])
    assert "easily" in models_sentence(made_evaluation(utility=apart)).text


@pytest.mark.parametrize(
    ("found", "grade", "text"),
    [
        (membership(), "good", "No attack can be distinguished from chance"),
        (membership(0.02, 0.1), "fair", "better than chance"),
        (membership(0.5, 0.6), "poor", "Do not release before"),
        (membership(0.5, 0.6, None), "fair", "better than chance"),
        (None, "plain", "no attack was tried"),
    ],
)
def test_the_attack_is_held_against_the_bound(found, grade, text):
    sentence = attack_sentence(found, None)
    assert sentence.grade == grade
    assert text in sentence.text


def test_the_attack_that_is_surest_of_its_gain_decides():
    """Its lower end is above the bound although another attack has the larger estimate."""
    wide = AttackScore("wide", 0.10, -0.02, 0.22, 0.6)
    narrow = AttackScore("narrow", 0.09, 0.06, 0.12, 0.6)
    promise = Promise(0.001, None, None, "given")
    game = Membership((wide, narrow), 1_000, 1_000, 0.95, 0.05, promise, ())
    sentence = attack_sentence(game, None)
    assert sentence.word == "alarm"
    assert "(narrow) gains 0.090, between 0.060 and 0.120" in sentence.text
    gain = attack_sentence(replace(game, bound=None, promise=None), None)
    assert gain.word == "some gain"
    assert "(narrow)" in gain.text


def told(drafted=False, insecure=False):
    """What a statement says that the verdict looks at."""
    return SimpleNamespace(drafted=drafted, insecure=insecure)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (told(), "the promise holds without it"),
        (told(insecure=True), "the noise came from a seed"),
        (told(drafted=True), "does not cover what the schema reveals"),
        (None, "The promise behind the table is not known"),
    ],
)
def test_a_promise_is_claimed_only_where_there_is_one(statement, text):
    sentence = attack_sentence(None, statement)
    assert text in sentence.text
    assert ("the promise holds" in sentence.text) == (text == "the promise holds without it")


def test_the_most_broken_rules_come_first():
    rules = [RuleCheck(f"rule {k}", "found", 0.0, share, 0.5) for k, share in enumerate(
        (0.02, 0.3, 0.001, 0.1, 0.2))]  # fmt: skip
    text = next_text(made_evaluation(rules=tuple(rules)))
    assert "rows that break “rule 1”, “rule 4”, “rule 3” and 1 more" in text
    assert "rule 2" not in text


def next_text(evaluation, alone=(), far=False, copied=False):
    found, judged = judged_of(evaluation)
    marginals = replace(judged.marginals, grade="poor" if far else "good")
    return next_sentence(found, replace(judged, marginals=marginals, copied=copied), alone).text


def test_what_to_do_next():
    text = next_text(made_evaluation(utility=None, membership=None), ["city"], far=True)
    assert "“city”" in text
    assert "more budget would bring most" in text
    fine = made_evaluation(v=(0.5, 0.5), rules=())
    assert "use the table" in next_text(fine).lower()
    assert "use the table" not in next_text(fine, copied=True).lower()


def test_a_target_that_was_sought_in_vain_is_not_asked_for_again():
    reason = "no column has between 2 and 20 values: name a target with --target"
    sought = made_evaluation(utility=None, limitations=(f"no models: {reason}",))
    sentence = models_sentence(sought)
    assert sentence.word == "not possible"
    assert reason in sentence.text
    assert "name a target to learn" not in next_text(sought)
    assert "name a target to learn" in next_text(made_evaluation(utility=None))


@pytest.mark.parametrize(
    ("shares", "word"),
    [((0.9, 0.01, 0.02), "copies"), ((0.12, 0.01, 0.02), "copies"), ((0.003, 0.0, 0.0), None),
     ((0.2, 0.01, 0.15), None), ((0.17, 0.736, 0.653), None)],
)  # fmt: skip
def test_rows_that_may_be_copies_are_named(shares, word):
    """Shares of rows that equal a true row, if columns were independent, and between halves."""
    rows = RowChecks(*shares, shares[0], 0.0, 0.0)
    sentence = copies_sentence(made_evaluation(rows=rows))
    assert (sentence and sentence.word) == word
    same = RowChecks(1.0, 1.0, 1.0, 0.0, 1.0, 1.0, same=True)
    sentence = copies_sentence(made_evaluation(rows=same))
    assert (sentence.grade, sentence.word) == ("poor", "the same rows")


def test_every_threshold_is_defined_for_readers():
    text = " ".join(thresholds.DEFINITIONS)
    for name in ("CLOSE", "USABLE", "SMALL_LOSS", "BROKEN", "WEAK_LOST", "GONE", "UNSEEN"):
        assert f"{getattr(thresholds, name):.0%}" in text
    for value in (thresholds.CLEAR_V, thresholds.KEPT_V, thresholds.CLOSE_SINGLE):
        assert str(value) in text
    assert f"at least {thresholds.LEAST_EFFECT}," in text
    assert f"more than {thresholds.DOUBTFUL} standard" in text


@pytest.mark.parametrize("rows", [1, 2, 8, 400])
def test_a_table_of_few_rows_is_not_said_to_serve(rows):
    """Fresh samples: of 400 rows of two values, chance explains a tenth of them at most."""
    rng = np.random.default_rng(rows)
    domain = Domain.from_sizes({"a": 2, "b": 3, "c": 2})
    both = (
        CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in domain.sizes])
        for _ in range(2)
    )
    judged = verdict(findings(evaluate(*both)), None)
    served = [what for what, grade in judged.uses if grade == "good"]
    assert (judged.columns.word == "too few rows") == (rows < 400) == (served == [])
    assert ("single columns" in served) == (rows == 400)


@pytest.mark.parametrize(("rows", "few"), [(40, True), (400, False)])
def test_associations_that_would_not_be_seen_are_not_said_to_be_kept(rows, few):
    """Of 40 rows of three columns with two values, χ²/rows is 0.04, a clear V, within 5 standard
    deviations of chance (√2/rows each); of 400 rows it is not."""
    rng = np.random.default_rng(rows)
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    both = (CodedTable.from_codes(domain, list(rng.integers(0, 2, (3, rows)))) for _ in range(2))
    judged = verdict(findings(evaluate(*both)), None)
    assert judged.associations.word == ("too few rows" if few else "kept")
    grades = dict(judged.uses)
    expected = "plain" if few else "good"
    assert {grades["pairs of columns"], grades["single rows"]} == {expected}
