"""What a total still allows, and how a budget that is too large is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.privacy.events import Cost

NOTHING = 1e-6
"""Part of the total below which what is left is not worth a run."""
NAMED = 5
"""Open runs that a refusal names."""


def remaining_of(limit: Cost, held: Cost) -> Cost:
    """What a total still allows; nothing where what a lost ledger had counted exceeds it."""
    left = limit - held
    return Cost(max(left.rho_units, 0), max(left.delta_units, 0))


def check_remaining(
    path: Path, limit: Cost, held: Cost, cost: Cost, open_runs: Callable[[], Sequence[int]]
) -> None:
    """Refuse a budget that the total does not allow.

    Args:
        path: of the ledger.
        limit: the total.
        held: what counts against it.
        cost: the budget.
        open_runs: tells the numbers of runs that hold all that they reserved.

    Raises:
        BudgetExceeded: it does not.
    """
    remaining = remaining_of(limit, held)
    if cost.fits(remaining):
        return
    hint = ""
    if holding := open_runs():
        runs = ", ".join(map(str, holding[:NAMED])) + (" and others" if holding[NAMED:] else "")
        hint = (
            f"; run {runs} is open and holds its budget: --resume continues it, adaptive-qs ledger "
            "close frees what it did not spend"
        )
    if cost.rho_units > remaining.rho_units:
        left = float(remaining.rho)
        mend = f"give the run --rho {digits_below(left)} or less"
        if remaining.rho_units < NOTHING * limit.rho_units:
            mend = "the budget of this data set is used up"
        raise BudgetExceeded(
            f"{path}: a run of rho {float(cost.rho):.6g} exceeds the {digits_below(left)} that is "
            f"left of {float(limit.rho):.6g}: {mend}{hint}"
        )
    raise BudgetExceeded(
        f"{path}: the run needs a share {float(cost.delta):.3g} of delta for discovery and "
        f"{float(remaining.delta):.3g} is left of {float(limit.delta):.3g}: declare the values of "
        "the columns, or set a larger share when a ledger is created (--discovery-delta)" + hint
    )


def digits_below(value: float) -> str:
    """At most the value (0 or more), in six digits that can be typed."""
    if not value:
        return "0"
    exact = Decimal(value)
    unit = Decimal(1).scaleb(exact.adjusted() - 5)
    return f"{float(exact.quantize(unit, ROUND_FLOOR)):.6g}"
