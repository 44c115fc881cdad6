"""What a total still allows, and how a budget that is too large is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        mend = f"give the run --rho {_digits_below(left):g} or less"
        if remaining.rho_units < NOTHING * limit.rho_units:
            mend = "the budget of this data set is used up"
        raise BudgetExceeded(
            f"{path}: a run of rho {float(cost.rho):.6g} exceeds the {left:.6g} that is left of "
            f"{float(limit.rho):.6g}: {mend}{hint}"
        )
    raise BudgetExceeded(
        f"{path}: the run needs a share {float(cost.delta):.3g} of delta for discovery and "
        f"{float(remaining.delta):.3g} is left of {float(limit.delta):.3g}: declare the values of "
        "the columns, or set a larger share when a ledger is created (--discovery-delta)" + hint
    )


def _digits_below(value: float) -> float:
    """At most the value, in six digits that can be typed."""
    rounded = float(f"{value:.6g}")
    return rounded if rounded <= value else float(f"{value * (1 - 1e-5):.6g}")
