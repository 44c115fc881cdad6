"""How much of a run's budget learning bins and values gets, and which column how much of it."""

from __future__ import annotations

from fractions import Fraction

from adaptive_qs.arguments import as_number, shown
from adaptive_qs.data.private import PrivateCategoricalColumn, PrivateColumn
from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.events import Cost

DEFAULT_SHARE = 0.1
"""Part of a run's ρ."""
DELTA_SHARE = Fraction(1, 2)
"""Part of a run's δ where values are discovered; ε hardly depends on the rest of it."""
FEWEST_UNITS = 8
"""Units of ρ without which a column's share cannot be divided."""


def discovery_share(schema: Schema) -> Fraction:
    """The part of δ that discovering values takes; the rest is for converting ρ to ε."""
    discovers = any(isinstance(c, PrivateCategoricalColumn) for c in schema.columns)
    return DELTA_SHARE if discovers else Fraction(0)


def preprocessing_cost(schema: Schema, budget: Cost, share: float = DEFAULT_SHARE) -> Cost:
    """What learning the private columns of a schema may cost; nothing if it has none.

    Args:
        schema: with or without private columns.
        budget: of the whole run: ρ, computed from ε with the rest of δ, and the part of δ for
            discovery.
        share: part of ρ, above 0 and below 1.

    Raises:
        InputError: the share is out of range, or values are to be discovered with a δ of 0.
    """
    part = as_number(share)
    if part is None or not 0 < part < 1:
        raise InputError(
            f"learning share is {shown(share)}: give a part of the budget above 0 and below 1"
        )
    if not schema.private_columns:
        return Cost()
    cost = Cost(int(budget.rho_units * Fraction(part)), budget.delta_units)
    column_costs(schema, cost)
    return cost


def column_costs(schema: Schema, cost: Cost) -> dict[str, Cost]:
    """Equal shares of ρ for all private columns, and of δ for those with private values.

    Raises:
        InputError: a share would be empty.
    """
    columns = [c for c in schema.columns if isinstance(c, PrivateColumn)]
    discovered = [c.name for c in columns if isinstance(c, PrivateCategoricalColumn)]
    if columns and cost.rho_units < FEWEST_UNITS * len(columns):
        raise InputError(
            f"rho {float(cost.rho):.3g} is too little to learn {len(columns)} columns: give more"
        )
    if discovered and cost.delta_units < len(discovered):
        raise InputError(
            f"learning the values of {discovered[0]!r} needs a share of delta: give a delta above "
            "0, or declare the values"
        )
    return {
        c.name: Cost(
            cost.rho_units // len(columns),
            cost.delta_units // len(discovered) if c.name in discovered else 0,
        )
        for c in columns
    }
