"""Advantage of an attack, with an interval that holds for all attacks together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve

from adaptive_qs.evaluation.attack.game import AttackScore

Array = NDArray[np.float64]


def judge(
    attack: str, members: Array, non_members: Array, attacks: int, confidence: float
) -> AttackScore:
    """The advantage of a score at a threshold that was chosen on other targets.

    The first half of either kind chooses the threshold: where true positive rate less false
    positive rate is largest there; nobody is accused where no threshold does better than that.
    The other half is then a random sample of rows to which a fixed rule is applied, so its counts
    of accused rows are binomial (members are drawn without replacement, which makes theirs less
    dispersed). Exact Clopper-Pearson intervals of both rates, each with error probability
    (1 - confidence) / (2 attacks), hold for all rates of all attacks together with `confidence`
    by Bonferroni; the difference of the ends brackets every advantage whenever they do.

    Args:
        attack: its name.
        members: scores of members, in random order; higher speaks for membership.
        non_members: scores of non-members, likewise.
        attacks: how many are judged together.
        confidence: of all intervals together.
    """
    (m_choose, m_test), (n_choose, n_test) = _halves(members), _halves(non_members)
    threshold = best_threshold(m_choose, n_choose)
    level = 1 - (1 - confidence) / (2 * attacks)
    rates = []
    for scores in (m_test, n_test):
        accused = binomtest(int((scores >= threshold).sum()), len(scores))
        interval = accused.proportion_ci(level, method="exact")
        rates.append((accused.statistic, float(interval.low), float(interval.high)))
    (tpr, tpr_low, tpr_high), (fpr, fpr_low, fpr_high) = rates
    return AttackScore(
        attack=attack,
        advantage=float(tpr - fpr),
        lower=tpr_low - fpr_high,
        upper=tpr_high - fpr_low,
        auc=float(
            roc_auc_score(
                np.repeat([1, 0], [len(m_test), len(n_test)]), np.concatenate([m_test, n_test])
            )
        ),
    )


def best_threshold(members: Array, non_members: Array) -> float:
    """The score from which on rows are accused; infinite if no accusation is better than none."""
    truth = np.repeat([1, 0], [len(members), len(non_members)])
    fpr, tpr, thresholds = roc_curve(truth, np.concatenate([members, non_members]))
    return float(thresholds[np.argmax(tpr - fpr)])


def resolution(targets: int, attacks: int, confidence: float) -> float:
    """The least advantage that the interval tells from none, at rates around one half.

    Args:
        targets: of either kind; half of them are tested.
        attacks: how many are judged together.
        confidence: of all intervals together.
    """
    tested = targets - targets // 2
    level = 1 - (1 - confidence) / (2 * attacks)
    interval = binomtest(tested // 2, tested).proportion_ci(level, method="exact")
    return float(interval.high - interval.low)


def _halves(scores: Array) -> tuple[Array, Array]:
    half = len(scores) // 2
    return scores[:half], scores[half:]
