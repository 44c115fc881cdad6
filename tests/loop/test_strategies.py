"""Single columns measured by strategies: what they cost, their noise, and their replays."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.audit.replay import AuditReport, Run, compare
from adaptive_qs.loop import estimates as measure
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.estimates import measurement_cost
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.loop.planner import one_way_plan
from adaptive_qs.residual import measured_variance
from adaptive_qs.strategy.integer import column_strategies
from adaptive_qs.workload.file import WorkloadFile

from .helpers import Recorder, Replay, counter_of, domain_of, skewed_rows
from .test_loop import assert_same_release

DOMAIN = domain_of(9, 4, 3)
FILE = WorkloadFile.parse(
    {"version": 1, "parts": [{"ways": [2]}, {"ways": [2], "queries": "range"}]}
)
STRATEGIES = column_strategies(FILE.query_workload(DOMAIN))
ROWS = skewed_rows(DOMAIN, 60, 2)


def test_columns_with_strategies_get_the_budget_that_they_would_get_for_their_cells():
    plain, shaped = (one_way_plan(FILE.workload(DOMAIN), 0.3, some) for some in ({}, STRATEGIES))
    assert plain.keys() == shaped.keys()
    assert plain[()] == shaped[()]
    for i in range(3):
        spent = shaped[i,] * measurement_cost(DOMAIN, (i,), STRATEGIES)
        assert spent == pytest.approx(plain[i,] * measurement_cost(DOMAIN, (i,)))


def looped(rows, mechanisms, rho=0.5):
    workload = FILE.workload(DOMAIN)
    settings = LoopSettings(opening=False, initial_share=0.1)
    counter = counter_of(DOMAIN, rows)
    return run_loop(
        mechanisms.table(counter), workload, mechanisms, rho, settings, strategies=STRATEGIES
    )


@pytest.mark.parametrize("neighbour", [[*ROWS, (8, 0, 2)], ROWS[1:]], ids=["added", "removed"])
def test_a_run_with_strategies_replays_on_a_neighbour(neighbour):
    recorded = Recorder(0.5)
    first = looped(ROWS, recorded)
    replayed = Replay(0.5, recorded.calls)
    assert_same_release(first, looped(neighbour, replayed))
    tally = AuditReport()
    compare(*(Run(tuple(r.calls), r.ledger.events, {}) for r in (recorded, replayed)), "", tally)
    assert tally.findings == []
    assert tally.moved
    singles = [e for e in recorded.budget.events if len(e.columns) == 1]
    assert len(singles) > len(STRATEGIES), "none was measured again"
    squared = {f"a{i}": s.squared_sensitivity for i, s in STRATEGIES.items()}
    assert all(e.squared_sensitivity % squared[e.columns[0]] == 0 for e in singles)


def test_measurements_of_a_column_are_averaged_by_their_precisions():
    result = looped(ROWS, Recorder(0.5))
    model = result.model
    for i, strategy in STRATEGIES.items():
        expected = np.diag(strategy.noise) / model.precision((i,))
        total = 1 / (model.precision(()) * DOMAIN.sizes[i] ** 2)
        np.testing.assert_allclose(measured_variance(model, (i,)), expected + total)


def test_what_was_drawn_for_another_strategy_is_not_taken_for_this_one():
    """Charges of a resumed run name columns only; what was measured is told apart beside them."""

    def definition(strategies):
        return measure._query(DOMAIN, (0,), strategies)[0].definition

    others = WorkloadFile.parse({"version": 1, "parts": [{"ways": [2], "queries": "prefix"}]})
    assert definition(STRATEGIES)
    assert definition(STRATEGIES) != definition(column_strategies(others.query_workload(DOMAIN)))
