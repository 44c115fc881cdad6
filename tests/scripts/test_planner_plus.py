"""Bases of attributes: what one axis is asked, and errors below those published."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from scripts.published.querysmasher_methods import plan_batch, plan_with_bases
from tests.strategy.problems import all_ways

PUBLISHED = {  # He et al., table 4: WFF, RP+, and our least for RP+, whose bases are not published
    "marginal": ([(1, Marginal), (2, Marginal)], 23.48, 23.48, 23.47),
    "prefix": ([(1, Prefix), (2, Prefix)], 39.70, 36.23, 33.69),
    "range": ([(1, Range), (2, Range)], 41.36, 48.95, 41.07),
    "circular": ([(1, Circular), (2, Circular)], 39.77, np.inf, 0),
    "affine": ([(1, Prefix), (2, Affine)], 45.23, 62.48, 50.0),
    "absdiff": ([(1, Prefix), (2, AbsDiff)], 64.11, 85.99, 70.0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_errors(name):
    """Ten values, 40 attributes. The least for RP+ is the certified optimum of products, or for
    joint queries a little below ours."""
    queries, fourier, planner_plus, at_least = PUBLISHED[name]
    workload = all_ways([10] * 40, *queries)
    wff, plus = (plan_batch(workload, "wff").rmse, plan_with_bases(workload).rmse)
    assert wff == pytest.approx(fourier, abs=0.005)
    assert at_least < plus <= planner_plus + 0.005
