"""Words that several parts of a ledger share."""

from __future__ import annotations

from adaptive_qs.privacy.events import Cost

RESTORE = (
    "put back a copy of the ledger, then run adaptive-qs ledger restore, which counts as spent "
    "what was released since it was made"
)
"""What to do about a ledger that is damaged or behind."""


def cost_text(cost: Cost) -> str:
    """Such as "17 x 2^-60 rho, 0 x 2^-100 delta".

    The same in every version, since resumed runs compare the text.
    """
    return f"{cost.rho_units} x 2^-60 rho, {cost.delta_units} x 2^-100 delta"
