"""What to measure so that a workload's answers err least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_qs.registry import Registry

if TYPE_CHECKING:
    from adaptive_qs.strategy.choose import Planner

_CHOOSE = "adaptive_qs.strategy.choose"
MECHANISMS: Registry[Planner] = Registry(
    {
        "auto": f"{_CHOOSE}:plan_auto",
        "querysmasher": f"{_CHOOSE}:plan_querysmasher",
        "residualplanner": f"{_CHOOSE}:plan_residualplanner",
        "residualplanner+": f"{_CHOOSE}:plan_residualplanner_plus",
        "wff": f"{_CHOOSE}:plan_fourier",
        "hdmm": f"{_CHOOSE}:plan_hdmm",
        "eigen": f"{_CHOOSE}:plan_eigen",
        "identity": f"{_CHOOSE}:plan_identity",
        "gaussian": f"{_CHOOSE}:plan_gaussian",
    }
)
"""The mechanisms that ``--mechanism`` can name."""
