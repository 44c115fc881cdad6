"""The ablation's bookkeeping on a table small enough to check cell by cell."""

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from scripts.published.aim_grem_ablation import (
    STRATEGIES,
    Conditional,
    Full,
    Isotropic,
    Lazy,
    Task,
    measure_one_way,
    read_table,
    run_trials,
)

SIZES = (2, 3, 4, 5, 2)


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
    columns = [rng.binomial(n - 1, 0.3, 500) for n in SIZES]
    return Task.of(MarginalCounter(CodedTable.from_codes(domain, columns)), None, 1, seed=0)


def measure(task, noise, upkeep, seed=1):
    """Answers after the whole sequence; equal seeds give equal noise."""
    mechanisms = Mechanisms(Budget(task.rho), InsecureSeed(seed))
    model = measure_one_way(task.counter, mechanisms, task.rho / 2)
    strategy = noise(model, task.sequence)
    answers = upkeep({c: np.zeros_like(a) for c, a in task.answers.items()})
    Full(answers.answers).refresh(model, {})
    share = task.rho / 2 / len(task.sequence) * (1 - 1e-9)
    for clique in task.sequence:
        answers.refresh(model, strategy.measure(model, task.counter, mechanisms, clique, share))
    return answers.answers, mechanisms.ledger


@pytest.mark.parametrize("noise", [Conditional, Isotropic])
def test_lazy_answers_equal_those_formed_afresh(task, noise):
    lazy, _ = measure(task, noise, Lazy)
    full, _ = measure(task, noise, Full)
    for clique in task.workload:
        # float32 sums of some hundred terms of at most a few thousand rows.
        np.testing.assert_allclose(lazy[clique], full[clique], rtol=1e-4, atol=0.05)


@pytest.mark.parametrize("noise", [Conditional, Isotropic])
def test_the_whole_budget_is_spent(task, noise):
    _, ledger = measure(task, noise, Lazy)
    assert task.rho * (1 - 1e-6) <= ledger.spent.rho <= task.rho


def test_every_three_way_marginal_is_measured_once(task):
    assert sorted(task.sequence) == task.workload
    assert task.sequence != task.workload


def test_the_error_does_not_depend_on_how_many_rounds_were_timed(task):
    """At rho = 1e6 the answers are near the truth, whenever they were updated."""
    outcomes = {}
    for timed in (3, len(task.sequence)):
        exact = Task(task.counter, 1e6, task.workload, task.sequence, timed, 1, task.answers)
        outcomes[timed] = run_trials(exact, 1)
    for timed, by_name in outcomes.items():
        assert list(by_name) == list(STRATEGIES)
        for name, (outcome,) in by_name.items():
            if name == "full+IID" and timed == 3:
                assert outcome.error is None
            else:
                assert outcome.error < 0.01


def test_columns_are_recoded_and_dropped_as_in_the_paper(tmp_path):
    frame = pd.DataFrame(
        {
            "kept": [5, 7, 5] * 40,
            "single": [3] * 120,
            "wide": range(120),
            "gaps": [1.0, None, 2.0] * 40,
        }
    )
    frame.to_csv(tmp_path / "table.csv", index=False)
    table = read_table(tmp_path / "table.csv")
    assert table.num_rows == 80
    assert table.domain.names == ("wide", "gaps")
    assert table.domain.sizes == (80, 2)
