"""The verdict's sentences follow from the numbers by the rules in ``thresholds``."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.report import thresholds, verdict
from adaptive_qs.evaluation.report.columns import column_pairs
from adaptive_qs.evaluation.report.scale import WorkloadScale, fresh_sample_l1, workload_scale

from .made import made_evaluation, made_schema, membership, tables, utility


def test_the_fresh_sample_is_that_of_two_samples():
    """Mean over 2,000 draws, within five standard errors and 2 % for the normal approximation."""
    rng = np.random.default_rng(1)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    first, second = (rng.multinomial(n, shares, 2_000) / n for n in (1_000, 400))
    found = np.abs(first - second).sum(axis=1)
    error = 5 * found.std() / np.sqrt(len(found))
    wanted = fresh_sample_l1(shares, 1_000, 400)
    assert found.mean() == pytest.approx(wanted, abs=error + 0.02 * wanted)


def test_independent_columns_are_the_product_of_the_true_ones():
    evaluation = made_evaluation()
    scale = workload_scale(evaluation)
    assert scale.all
    table = evaluation.pair.true
    a, b = (np.asarray(table.columns[i], dtype=int) for i in (1, 3))
    joint = stats.contingency.crosstab(a, b)[1] / table.num_rows
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert scale.per_clique["age", "income"].independent == pytest.approx(
        np.abs(joint - product).sum()
    )
    assert scale.l1 == pytest.approx(evaluation.workload.mean_l1)


def scaled(l1, fresh=0.1, independent=0.5):
    evaluation = made_evaluation(l1=l1)
    mean = evaluation.workload.mean_l1
    return evaluation, WorkloadScale({("a",): None}, mean, fresh, independent, True)


@pytest.mark.parametrize(
    ("l1", "word", "text"),
    [
        (0.05, "close", "as close as a fresh sample"),
        (0.15, "close", "of the way"),
        (0.25, "usable", "of the way"),
        (0.4, "far", "of the way"),
        (0.6, "far", "no closer than independent columns"),
    ],
)
def test_marginals_are_placed_between_a_fresh_sample_and_independence(l1, word, text):
    sentence = verdict.marginals_sentence(*scaled(l1))
    assert sentence.word == word
    assert text in sentence.text
    assert "6 marginals" in sentence.text


@pytest.mark.parametrize(("l1", "word"), [(0.1, "close"), (0.16, "usable"), (0.3, "far")])
def test_single_columns_are_placed_by_their_error_alone(l1, word):
    evaluation, scale = scaled(l1, fresh=0.1, independent=0.1)
    assert scale.position is None
    sentence = verdict.marginals_sentence(evaluation, scale)
    assert sentence.word == word
    assert "independent" not in sentence.text


def test_lost_columns_and_associations_are_named():
    evaluation = made_evaluation(v=(0.5, 0.125))
    assert len(verdict.associations(evaluation).lost) == 6
    columns = column_pairs(evaluation.pair)
    assert [c.variation for c in columns] == sorted((c.variation for c in columns), reverse=True)
    sentence = verdict.dependence_sentence(evaluation, columns)
    assert sentence.grade == "poor"
    assert "age × city" in sentence.text
    assert "and 1 more" in sentence.text


def test_nothing_lost_is_said_too():
    schema = made_schema()
    true = tables(schema).true
    evaluation = made_evaluation(schema, v=(0.5, 0.45), pair=TablePair(true, true))
    sentence = verdict.dependence_sentence(evaluation, column_pairs(evaluation.pair))
    assert (sentence.grade, sentence.word) == ("good", "kept")
    assert "6 kept their strength and none is lost" in sentence.text


def test_associations_that_noise_made_up_are_named():
    evaluation = made_evaluation(v=(0.05, 0.3))
    found = verdict.associations(evaluation)
    assert (found.clear, len(found.made_up)) == (0, 6)
    sentence = verdict.dependence_sentence(evaluation, [])
    assert sentence.grade == "fair"
    assert "Made up by noise" in sentence.text


@pytest.mark.parametrize(
    ("synthetic", "grade"), [(0.89, "good"), (0.8, "fair"), (0.6, "poor"), (0.4, "poor")]
)
def test_models_are_judged_by_the_gain_they_keep(synthetic, grade):
    sentence = verdict.models_sentence(utility(synthetic=synthetic))
    assert sentence.grade == grade
    assert "gain over chance" in sentence.text


def test_models_without_anything_to_learn():
    assert verdict.models_sentence(utility(real=0.5, synthetic=0.5)).word == "no gain"
    assert verdict.models_sentence(None).word == "not asked"
    apart = replace(utility(), propensity=utility().models[0].real["AUROC"])
    assert "with ease" in verdict.models_sentence(apart).text


@pytest.mark.parametrize(
    ("found", "grade", "text"),
    [
        (membership(), "good", "not told from chance"),
        (membership(0.02, 0.1), "fair", "better than chance"),
        (membership(0.5, 0.6), "poor", "Do not release before"),
        (membership(0.5, 0.6, None), "fair", "better than chance"),
        (None, "plain", "no attack was tried"),
    ],
)
def test_the_attack_is_held_against_the_bound(found, grade, text):
    sentence = verdict.attack_sentence(found)
    assert sentence.grade == grade
    assert text in sentence.text


def test_what_to_do_next():
    evaluation = made_evaluation(utility=None, membership=None)
    text = verdict.next_sentence(evaluation, True, ["city"]).text
    assert "“city”" in text
    assert "more budget would bring most" in text
    schema = made_schema()
    fine = made_evaluation(schema, v=(0.5, 0.5), rules=())
    assert "use the table" in verdict.next_sentence(fine, False, []).text.lower()


def test_every_threshold_is_defined_for_readers():
    told = " ".join(thresholds.DEFINITIONS)
    for value in (thresholds.CLOSE, thresholds.USABLE, thresholds.SMALL_LOSS, thresholds.BROKEN):
        assert f"{value:.0%}" in told
    for value in (thresholds.CLEAR_V, thresholds.KEPT_V, thresholds.CLOSE_ALONE):
        assert str(value) in told
