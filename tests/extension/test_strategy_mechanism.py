"""A strategy mechanism is one callable and one line of its registry."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import answer, plan
from adaptive_qs.errors import InputError
from adaptive_qs.strategy import MECHANISMS
from adaptive_qs.strategy.choose import MechanismChoice, PlanRequest
from adaptive_qs.strategy.mechanism import TableMechanism, any_mechanism_bound, used_attributes
from adaptive_qs.strategy.solution import DenseFactor, Strategy

ROWS = pd.DataFrame({"a": [0, 1, 2, 2] * 100, "b": [0, 1] * 200})
SCHEMA = {"a": 3, "b": 2}


def plan_halves(request: PlanRequest) -> MechanismChoice:
    """Every cell twice: the identity, stacked on itself."""
    clique = used_attributes(request.workload)
    factors = (
        DenseFactor(np.vstack([np.eye(n)] * 2), (n,)) for n in request.workload.domain.shape(clique)
    )
    bound = any_mechanism_bound(request.decomposition)
    found = TableMechanism(request.workload, clique, Strategy(tuple(factors)), bound)
    return MechanismChoice("halves", found, 1, 0)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "halves", plan_halves)


def test_answers_come_from_it():
    made = answer(
        ROWS, SCHEMA, 2, rho=1e4, mechanism="halves", workers=1, beyond_limits=True, insecure_seed=1
    )
    assert made.plan.choice.name == "halves"
    assert made.to_pandas()["estimate"].sum() == pytest.approx(400, abs=1)
    # measured twice at half the precision: as good as the identity
    expected = plan(SCHEMA, 2, rho=1e4, mechanism="identity").rmse
    assert made.plan.rmse == pytest.approx(expected, rel=1e-6)


def test_errors_list_it():
    with pytest.raises(InputError, match=r"mechanism is 'thirds'. Use one of auto.*halves"):
        plan(SCHEMA, 2, mechanism="thirds")
