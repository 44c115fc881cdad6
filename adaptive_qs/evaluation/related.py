"""Comparing two related tables with the true ones: numbers of children, and links to parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_qs.evaluation.evaluation import Evaluation, evaluate, evaluation_json
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.machine import PhaseProgress
from adaptive_qs.table.related import Family, FamilyRows, RelatedSchema, TableName
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

UNLIMITED = 2**62
"""Bytes for the keys of tables that are compared: the owner's."""


@dataclass(frozen=True, eq=False)
class Children:
    """How many children parents have in a table; owner only.

    Attributes:
        parents: rows.
        children: rows.
        shares: shape (most_children + 1,), of the parents that have each number of children; those
            with more count as having the most.
    """

    parents: int
    children: int
    shares: tuple[float, ...]

    @classmethod
    def of(cls, family: Family, children: int) -> Children:
        """Of two tables that fit each other."""
        most, parents = family.schema.most_children, len(family.counts)
        found = np.bincount(family.counts, minlength=most + 1) / parents
        return cls(parents, children, tuple(found.tolist()))

    @property
    def mean(self) -> float:
        """Children of a parent on average."""
        return self.children / self.parents


@dataclass(frozen=True, eq=False)
class RelatedEvaluation:
    """What the owner learns about synthetic parents and children; owner only.

    Attributes:
        schema: of both tables.
        parents: the comparison of parents with the number of their children.
        children: that of children behind the columns of their parents, in all pairs of columns of
            which one at least is the children's.
        numbers: of children in the true and in the synthetic tables.
    """

    schema: RelatedSchema
    parents: Evaluation
    children: Evaluation
    numbers: tuple[Children, Children]

    @property
    def across(self) -> tuple[CliqueError, ...]:
        """The errors of pairs of a column of parents, or the number of children, and one of
        children, the largest first."""
        own = set(self.schema.counted.names)
        errors = (e for e in self.children.workload.per_clique if own.intersection(e.attributes))
        return tuple(sorted(errors, key=lambda error: -error.l1))

    @property
    def mean_l1_across(self) -> float:
        """Mean L1 distance of the marginals of these pairs, from 0 (equal) to 2."""
        return float(np.mean([error.l1 for error in self.across]))

    @property
    def l1_of_numbers(self) -> float:
        """L1 distance of the distributions of the number of children, from 0 (equal) to 2."""
        true, synthetic = (np.array(each.shares) for each in self.numbers)
        return float(np.abs(true - synthetic).sum())

    def as_json(self, verdicts: Mapping[str, Any]) -> dict[str, Any]:
        """Everything but the rows, with the verdict on each table in a few sentences."""
        parts = {"parents": self.parents, "children": self.children}
        true, synthetic = self.numbers
        return {
            "number_of_children": {
                "l1": self.l1_of_numbers,
                "mean": {"true": true.mean, "synthetic": synthetic.mean},
                "shares": {"true": true.shares, "synthetic": synthetic.shares},
            },
            "across": {
                "mean_l1": self.mean_l1_across,
                "per_pair": [
                    {"attributes": error.attributes, "l1": error.l1} for error in self.across
                ],
            },
            **{name: evaluation_json(part, verdicts[name]) for name, part in parts.items()},
        }


def evaluate_related(
    true: tuple[Any, Any],
    synthetic: tuple[Any, Any],
    schema: Any,
    *,
    workers: int | None = None,
    progress: PhaseProgress | None = None,
) -> RelatedEvaluation:
    """Compare synthetic parents and children with the true ones; the result is for the owner only.

    Parents with more children than count are compared as having the most, and all of their children
    are: figures show what was lost with those that did not count.

    Args:
        true: the private parents and children, as for :class:`~adaptive_qs.RelatedSynthesizer`.
        synthetic: those that stand for them.
        schema: of both.
        workers: threads, by default one for every core; results do not depend on it.
        progress: called with a phase, steps done and steps in all.

    Raises:
        InputError: the schema or a table is wrong, or the keys of two tables do not fit each other.
    """
    described = RelatedSchema.of(schema)
    families = [Family.of(*tables, described, UNLIMITED) for tables in (true, synthetic)]
    width, domain = len(described.counted.columns), described.joined.domain()
    pairs = Workload.all_ways(domain, 2).weights
    own = Workload(domain, {c: w for c, w in pairs.items() if c[-1] >= width})

    def compared(table: TableName, columns: Schema, wanted: Workload | None) -> Evaluation:
        first, second = (FamilyRows(family, table) for family in families)
        return evaluate(first, second, columns, wanted, workers=workers, progress=progress)

    parents = compared("parents", described.counted, None)
    children = compared("children", described.joined, own)
    rows = children.pair.true.num_rows, children.pair.synthetic.num_rows
    numbers = Children.of(families[0], rows[0]), Children.of(families[1], rows[1])
    return RelatedEvaluation(described, parents, children, numbers)
