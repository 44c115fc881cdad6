"""The ablation's bookkeeping on a table small enough to check cell by cell."""

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from scripts.published.aim_grem_ablation import (
    STRATEGIES,
    Task,
    conditional,
    full,
    isotropic,
    lazy,
    measure_one_way,
    run_trials,
)

SIZES = (2, 3, 4, 5, 2)


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
    columns = [rng.binomial(n - 1, 0.3, 500) for n in SIZES]
    return Task.of(MarginalCounter(CodedTable.from_codes(domain, columns)), None, 1, seed=0)


def measured(task, noise, upkeep, seed=1):
    """Answers after the whole sequence; equal seeds give equal noise."""
    mechanisms = Mechanisms(Budget(task.rho), InsecureSeed(seed))
    model = measure_one_way(task.counter, mechanisms, task.rho / 2)
    answers = {c: np.zeros_like(a) for c, a in task.answers.items()}
    measure, refresh = noise(model, task.sequence), upkeep(answers)
    full(answers)(model, {})
    share = task.rho / 2 / len(task.sequence) * (1 - 1e-9)
    for clique in task.sequence:
        refresh(model, measure(task.counter, mechanisms, clique, share))
    return answers, mechanisms.ledger


@pytest.mark.parametrize("noise", [conditional, isotropic])
def test_lazy_answers_equal_those_formed_afresh_and_the_whole_budget_is_spent(task, noise):
    moved, ledger = measured(task, noise, lazy)
    afresh, _ = measured(task, noise, full)
    for clique in task.workload:
        # float32 sums of some hundred terms of at most a few thousand rows.
        np.testing.assert_allclose(moved[clique], afresh[clique], rtol=1e-4, atol=0.05)
    assert task.rho * (1 - 1e-6) <= ledger.spent.rho <= task.rho


def test_the_error_does_not_depend_on_how_many_rounds_were_timed(task):
    """At rho = 1e6 the answers are near the truth, whenever they were updated."""
    outcomes = {}
    for timed in (3, len(task.sequence)):
        exact = Task(task.counter, 1e6, task.workload, task.sequence, timed, 1, task.answers)
        outcomes[timed] = run_trials(exact, 1)
    assert list(outcomes[3]) == list(outcomes[len(task.sequence)]) == list(STRATEGIES)
    (unscored,) = outcomes[3].pop("full+IID")
    assert unscored.error is None
    assert all(run.error < 0.01 for found in outcomes.values() for (run,) in found.values())
