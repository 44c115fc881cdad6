"""What the budget went into, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.release.fact import Kind
from adaptive_qs.release.statement import Statement

_PARTS: dict[Kind, str] = {
    "values": "learning bins and values",
    "rows": "number of rows",
    "single columns": "single columns",
    "selections": "choosing combinations",
    "combinations": "measuring combinations",
    "answers": "answers",
    "other": "other",
}


@dataclass(frozen=True)
class BudgetPart:
    """A part of what was spent.

    Attributes:
        name: what for.
        learnt: what that tells of the rows, in words of the statement.
        rho: zCDP.
        part: of everything spent, 0 to 1.
        delta: of it.
    """

    name: str
    learnt: str
    rho: float
    part: float
    delta: float


def budget_parts(statement: Statement) -> list[BudgetPart]:
    """Every fact that was paid for, those about single columns of a kind put together."""
    parts = []
    for kind, name in _PARTS.items():
        facts = [f for f in statement.facts if f.kind == kind and f.basis == "paid for"]
        if not facts:
            continue
        units = sum(fact.rho_units for fact in facts)
        spent = sum(fact.rho_units for fact in statement.facts)
        learnt = facts[0].fact if len(facts) == 1 else f"{len(facts):,} facts"
        parts.append(
            BudgetPart(
                name,
                learnt,
                sum(fact.rho for fact in facts),
                units / spent if spent else 0.0,
                sum(fact.delta for fact in facts),
            )
        )
    return parts
