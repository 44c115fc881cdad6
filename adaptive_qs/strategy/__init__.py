"""What to measure so that a workload's answers err least."""

from __future__ import annotations

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
"""The mechanisms that ``--mechanism`` can name, each with its
:data:`~adaptive_qs.strategy.choose.Planner`."""
