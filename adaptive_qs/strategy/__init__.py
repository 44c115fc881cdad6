"""Planning: the measurements that answer a workload with the least error."""

from typing import Any

from adaptive_qs.arguments import Registry

_CHOOSE = "adaptive_qs.strategy.choose"
MECHANISMS: Registry[Any] = Registry(
    {
        "auto": f"{_CHOOSE}:plan_auto",
        "querysmasher": f"{_CHOOSE}:plan_querysmasher",
        "residualplanner": f"{_CHOOSE}:plan_residualplanner",
        "wff": f"{_CHOOSE}:plan_fourier",
        "hdmm": f"{_CHOOSE}:plan_hdmm",
        "identity": f"{_CHOOSE}:plan_identity",
    }
)
"""Planner of each mechanism that ``--mechanism`` can name."""
