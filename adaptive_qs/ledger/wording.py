"""How requests write costs: the same in every version, since resumed runs compare the text."""

from __future__ import annotations

from adaptive_qs.privacy.events import Cost


def cost_text(cost: Cost) -> str:
    """Such as "17 x 2^-60 rho, 0 x 2^-100 delta"."""
    return f"{cost.rho_units} x 2^-60 rho, {cost.delta_units} x 2^-100 delta"
