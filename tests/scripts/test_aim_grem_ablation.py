"""The ablation's bookkeeping on a table small enough to check cell by cell."""

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from scripts.published.aim_grem_ablation import STRATEGIES, Task, run_trials

SIZES = (2, 3, 4, 5, 2)


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(SIZES)})
    columns = [rng.binomial(n - 1, 0.3, 500) for n in SIZES]
    return Task.of(MarginalCounter(CodedTable.from_codes(domain, columns)), None, 1, seed=0)


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
