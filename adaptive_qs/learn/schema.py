"""From a schema with private columns to one that can be coded, and the cost of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from adaptive_qs.arguments import DEFAULT_SHARE, learning_share
from adaptive_qs.errors import InputError, WorkloadError
from adaptive_qs.privacy.counts import PrivateTexts
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, PartitionEvent, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.selection import least_threshold
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.category import CategoricalColumn
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.matrices import Custom
from adaptive_qs.workload.workload import QueryWorkload

if TYPE_CHECKING:  # a schema that leaves nothing open does not read the modules of learning
    from adaptive_qs.learn.gather import Counts, Gathered, Texts

HEAPS_SHARE = Fraction(1, 100)
"""Largest part of ρ for the frequent values of a column, if nothing else is learnt."""
BINS_WEIGHT = 4
"""Ratio of the parts of ρ for bins or values and for the frequent values of a column."""


def discovery_share(schema: Schema) -> Fraction:
    """Return the part of δ for discovering values; ε hardly depends on the other half."""
    return Fraction(any(c.discovers for c in schema.columns), 2)


def preprocessing_cost(schema: Schema, budget: Cost, share: float = DEFAULT_SHARE) -> Cost:
    """Return the largest cost of learning the open columns of a schema.

    Args:
        schema: with or without private columns.
        budget: of the whole run: ρ, computed from ε with the rest of δ, and the part of δ for
            discovery.
        share: part of ρ, above 0 and below 1.

    Raises:
        InputError: the share is out of range, or values are to be discovered with a δ of 0.
    """
    part = Fraction(learning_share(share))
    if not schema.open_columns:
        return Cost()
    if not schema.private_columns:
        part = min(part, HEAPS_SHARE * len(schema.open_columns))
    cost = Cost(int(budget.rho_units * part), budget.delta_units)
    column_costs(schema, cost)
    return cost


@dataclass(frozen=True)
class ColumnCosts:
    """The costs of open columns, by name: of their bins or values, and of their frequent values."""

    values: dict[str, Cost]
    heaps: dict[str, Cost]


def column_costs(schema: Schema, cost: Cost) -> ColumnCosts:
    """Divide the cost of learning among the open columns.

    Bins and values have equal shares of ρ, ``BINS_WEIGHT`` times those of frequent values. Columns
    with private values have equal shares of δ.

    Raises:
        InputError: a share would be empty.
    """
    columns = [c for c in schema.columns if c.is_unlearnt]
    heaped = [c.name for c in schema.columns if c.counts_heaps]
    discovered = [c.name for c in columns if c.discovers]
    weight = BINS_WEIGHT if heaped else 1
    shares = weight * len(columns) + len(heaped)
    if shares and cost.rho_units < 8 * shares:
        number = len(schema.open_columns)
        raise InputError(
            f"rho {float(cost.rho):.3g} is too little to learn {number} columns. Raise it."
        )
    if discovered and cost.delta_units < len(discovered):
        raise InputError(
            f"learning the values of {discovered[0]!r} needs a share of delta. Use a delta above "
            "0, or declare the values."
        )
    unit = cost.rho_units // shares if shares else 0
    each = cost.delta_units // len(discovered) if discovered else 0
    return ColumnCosts(
        {c.name: Cost(weight * unit, each if c.discovers else 0) for c in columns},
        {name: Cost(unit) for name in heaped},
    )


def check_learnable(workload: QueryWorkload, schema: Schema) -> None:
    """Raise WorkloadError if a custom matrix covers a column whose codes are still to be learnt."""
    names = workload.domain.names
    learnt = {names.index(name) for name in schema.private_columns}
    for part in workload.parts:
        for index, clique in enumerate(part.cliques.tolist()):
            if learnt.intersection(clique) and any(
                isinstance(queries, Custom) for queries in part.queries(index)
            ):
                named = " x ".join(names[i] for i in clique)
                raise WorkloadError(
                    f"a custom matrix covers {named}, of which bins or values are still to be "
                    "learnt: declare them"
                )


def learn_schema(schema: Schema, gathered: Gathered, mechanisms: Mechanisms, cost: Cost) -> Schema:
    """Return the schema with learnt bins, values and frequent values; a closed one as it is.

    The result depends on the schema, the cost and the outputs of the mechanisms only: a resumed run
    gets the same schema.

    Raises:
        InputError: the cost is too small to divide; nothing is charged.
        BudgetExceeded: the ledger behind ``mechanisms`` holds less than ``cost``.
    """
    if not schema.open_columns:
        return schema
    from adaptive_qs.learn.heaps import learn_heaps
    from adaptive_qs.learn.ranges import learn_ranges

    costs = column_costs(schema, cost)
    ranges: Any = [c for c in schema.columns if c.is_unlearnt and not c.discovers]
    texts: Any = [c for c in schema.columns if c.discovers]
    learnt: dict[str, ColumnBase] = {
        **learn_ranges(ranges, gathered.numbers, mechanisms, costs.values),
        **{
            c.name: _learn_values(c, *gathered.texts[c.name], mechanisms, costs.values[c.name])
            for c in texts
        },
    }
    known = {c.name: learnt.get(c.name, c) for c in schema.columns}
    heaped: Any = [c for c in known.values() if c.counts_heaps]
    known.update(learn_heaps(heaped, gathered.numbers, mechanisms, costs.heaps))
    return schema.with_columns(known.values())


def _learn_values(
    column: CategoricalColumn,
    texts: Texts,
    counts: Counts,
    mechanisms: Mechanisms,
    cost: Cost,
) -> CategoricalColumn:
    """Return the column with its discovered values; see :mod:`adaptive_qs.privacy.selection`."""
    variance = Fraction(UNITS_PER_RHO, 2 * cost.rho_units)
    least = least_threshold(variance, cost.delta)
    event = PartitionEvent(Purpose.VALUES, (column.name,), variance, least, cost.delta)
    private = PrivateTexts(texts, counts, mechanisms.ledger)
    return column.resolved(mechanisms.discover_values(event, private, column.num_values))
