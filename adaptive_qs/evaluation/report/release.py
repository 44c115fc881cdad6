"""What the owner's report shows of the release behind a table."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.release.alone import alone_columns
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.page.budget import BudgetPart, budget_parts
from adaptive_qs.release.page.combinations import RoundRow, round_rows
from adaptive_qs.release.statement import Statement


@dataclass(frozen=True)
class ReleaseView:
    """Budget and rounds.

    Attributes:
        statement: what was promised and spent.
        parts: of the budget.
        rounds: that measured combinations; None where only the statement is known.
        alone: columns of which no combination was measured.
    """

    statement: Statement
    parts: list[BudgetPart]
    rounds: list[RoundRow] | None
    alone: tuple[str, ...]


def release_view(release: Bundle | Statement | None) -> ReleaseView | None:
    """The view of a bundle, or of the statement beside a table; None without either."""
    if release is None:
        return None
    if not isinstance(release, Bundle):
        return ReleaseView(release, budget_parts(release), None, ())
    rounds = round_rows(release)
    return ReleaseView(
        release.manifest, budget_parts(release.manifest), rounds, alone_columns(release)
    )
