"""The ledger rounds each charge up; however small the budget, the loop must end inside it."""

import numpy as np
import pytest

from adaptive_qs.adaptive.loop import run_loop
from adaptive_qs.data.counts import MarginalCounter
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Domain
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.workload.workload import Workload


@pytest.mark.parametrize("rho", [1e-10, 1e-7])
def test_many_attributes_do_not_overdraw_a_tiny_budget(rho):
    domain = Domain.from_sizes({f"a{i}": 2 for i in range(100)})
    rng = np.random.default_rng(0)
    table = CodedTable.from_codes(domain, [rng.integers(0, 2, 50) for _ in domain.sizes])
    budget = Budget(rho)
    mechanisms = Mechanisms(budget, InsecureSeed(0))
    run_loop(MarginalCounter(table), Workload.all_ways(domain, 2), mechanisms, rho)
    assert 0.999 * rho < budget.spent.rho <= rho


@pytest.mark.parametrize("rho", [1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e12])
@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_budget_is_spent_without_a_refusal(rho, seed):
    domain = Domain.from_sizes({"a": 3, "b": 4, "c": 2, "d": 5, "e": 2})
    rng = np.random.default_rng(seed)
    table = CodedTable.from_codes(domain, [rng.integers(0, n, 200) for n in domain.sizes])
    budget = Budget(rho)
    mechanisms = Mechanisms(budget, InsecureSeed(seed))
    run_loop(MarginalCounter(table), Workload.all_ways(domain, 3), mechanisms, rho)
    assert 0.999 * rho < budget.spent.rho <= rho
