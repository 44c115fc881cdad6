"""Comparing two related tables with the true ones: numbers of children, and links to parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_qs.evaluation.checks import (
    Column,
    Drawn,
    Facts,
    Finding,
    Table,
    leading,
    named,
    number,
    overall_finding,
)
from adaptive_qs.evaluation.columns import BARS, ColumnsCheck, column_charts
from adaptive_qs.evaluation.evaluation import (
    Evaluation,
    Section,
    evaluate,
    evaluation_page,
    render_page,
)
from adaptive_qs.evaluation.marginals import (
    MARGINAL_COLUMNS,
    MarginalsCheck,
    marginal_rows,
)
from adaptive_qs.evaluation.promise import find_promise
from adaptive_qs.evaluation.scale import CliqueError, WorkloadScale, scale_over
from adaptive_qs.evaluation.tables import OWNER_ONLY
from adaptive_qs.machine import PhaseProgress
from adaptive_qs.pages.words import combination, count, counted, listed, share, significant
from adaptive_qs.table.related import Family, FamilyRows, RelatedSchema, TableName
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

UNLIMITED = 2**62
"""Bytes for the keys of tables that are compared: the owner's."""
PAIRS_NAMED = 3
"""Pairs across both tables that the verdict names, the worst first."""


@dataclass(frozen=True, eq=False)
class Children:
    """How many children parents have in a table; owner only.

    Attributes:
        parents: rows.
        children: rows.
        shares: shape (most_children + 1,), of the parents that have each number of children;
            parents with more count as having the maximum.
    """

    parents: int
    children: int
    shares: tuple[float, ...]

    @classmethod
    def from_family(cls, family: Family, children: int) -> Children:
        """Count the children of two tables that fit each other."""
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
        children: that of children with the columns of their parents, in all pairs of columns of
            which at least one is the children's.
        numbers: of children in the true and in the synthetic tables.
    """

    schema: RelatedSchema
    parents: Evaluation
    children: Evaluation
    numbers: tuple[Children, Children]

    @cached_property
    def across(self) -> tuple[CliqueError, ...]:
        """The errors of pairs of a column of parents (or the number of children) and one of
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

    @property
    def by_table(self) -> dict[TableName, Evaluation]:
        """The comparisons of both tables."""
        return {"parents": self.parents, "children": self.children}

    @cached_property
    def scale(self) -> WorkloadScale:
        """The errors that a fresh sample and independent columns have in pairs across tables."""
        rows = self.children.comparison.rows
        return scale_over(self.across, self.children.scale.per_clique, rows)

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """What was found about both tables together, by title."""
        return {"Number of children": self._numbers(), "Parents and children": self._across()}

    @cached_property
    def overall(self) -> Finding:
        """The verdict, which is at most as good as that on one of the tables."""
        parts: list[tuple[str, Finding]]
        parts = [(name, part.verdict.overall) for name, part in self.by_table.items()]
        parts += [(name.lower(), finding) for name, finding in self.findings.items()]
        return overall_finding(parts, truth="the true pair of tables")

    @property
    def sentences(self) -> list[Finding]:
        """The verdict on both tables; each table has its own."""
        return [self.overall, *self.findings.values()]

    def _numbers(self) -> Finding:
        true, made = self.numbers
        column = next(c for c in self.parents.columns if c.name == self.schema.count)
        text = (
            f"Parents have {significant(true.mean)} children on average, {significant(made.mean)} "
            f"in the synthetic tables. {leading(share(column.variation, 2), 'part-children')} of "
            "the parents would have to have another number, "
            f"{share(column.fresh, 2)} in a fresh sample."
        )
        lines = (
            ("children", f"{true.mean:.3f} of a parent on average, {made.mean:.3f} synthetic"),
            ("numbers", f"L1 distance of their distribution: {self.l1_of_numbers:.4f}"),
        )
        table = Table(
            "Parents by the number of their children",
            (number("children", count), number("true", share), number("synthetic", share)),
            [(k, *shares) for k, shares in enumerate(zip(true.shares, made.shares))],
        )
        most = f"Parents with more than {self.schema.most_children:,} children count as having that"
        charts = Drawn(most, lambda: column_charts([column], self.schema.counted), BARS)
        return Finding(
            *ColumnsCheck().word_for([column]), text, figures=(Facts(lines), table, charts)
        )

    def _across(self) -> Finding:
        errors, scale = self.across, self.scale
        amount = leading(counted(len(errors), "pair"), "across")
        text = f"The {amount} of a column of parents and one of children "
        text += f"{'differs' if len(errors) == 1 else 'differ'} by "
        text += f"{significant(self.mean_l1_across)} on average"
        if scale.known:
            text += f". A fresh sample would differ by about {significant(scale.fresh)}"
            if scale.joint:
                text += f", independent columns by {significant(scale.independent)}"
            text += str(scale.place)
        else:
            text += "; there is no scale for it: chance decides most of such an error."
        worst = [f"{combination(e.attributes)} ({significant(e.l1)})" for e in errors[:PAIRS_NAMED]]
        text += f" Worst: {listed(worst, PAIRS_NAMED)}."
        if scale.gone:
            names = [combination(attributes) for attributes in scale.gone]
            text += f" As far off as independent columns: {named(names, 'across')}."
        rows = [
            (*row, "like independent columns" if row[0] in scale.gone else "")
            for row in marginal_rows(errors, scale)
        ]
        columns = (*MARGINAL_COLUMNS, Column(""))
        caption = "Pairs of a column of parents and one of children, the worst first"
        tile = f"mean L1 error of {counted(len(errors), 'pair')} across both tables"
        return Finding(
            *MarginalsCheck().word_for(scale.place), text,
            figures=(Table(caption, columns, rows, "across"),),
            tiles=((significant(self.mean_l1_across), tile),),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return everything but the rows, with the verdicts in a few sentences."""
        true, synthetic = self.numbers

        pairs = [
            {"attributes": attributes, "l1": l1, "fresh": fresh, "independent": independent}
            for attributes, _, l1, fresh, independent in marginal_rows(self.across, self.scale)
        ]
        return {
            "notice": OWNER_ONLY,
            "verdict": [sentence.plain for sentence in self.sentences],
            "number_of_children": {
                "l1": self.l1_of_numbers,
                "mean": {"true": true.mean, "synthetic": synthetic.mean},
                "shares": {"true": true.shares, "synthetic": synthetic.shares},
            },
            "across": {"mean_l1": self.mean_l1_across, "per_pair": pairs},
            **{name: part.as_json() for name, part in self.by_table.items()},
        }

    def pages(
        self,
        names: Mapping[TableName, tuple[str, str]],
        files: Mapping[TableName, str],
        whole: str,
    ) -> dict[str, str]:
        """Return HTML files by their names, for the owner of the data only.

        Args:
            names: of the true and the synthetic tables.
            files: names of the pages about each table.
            whole: name of the page about both.
        """
        pages = {
            files[name]: evaluation_page(part, names[name], whole)
            for name, part in self.by_table.items()
        }
        sections = [
            Section("children" if title.startswith("Number") else "pairs", title, found.figures)
            for title, found in self.findings.items()
        ]
        tiles = [tile for finding in self.findings.values() for tile in finding.tiles]
        rows = {name: part.comparison.rows for name, part in self.by_table.items()}
        compared = (f"{made:,} synthetic {name} compared with {true:,} true {name}"
                    for name, (true, made) in rows.items())  # fmt: skip
        sentences = [
            *self.sentences,
            *(part.verdict.overall for part in self.by_table.values()),
        ]
        both = f"{names['parents'][1]} and {names['children'][1]}"
        page = render_page(
            both, f"{', '.join(compared)}.", sentences, tiles, sections,
            self.children.comparison.promised.release, (),
            [(files[name], f"The whole report on {name}") for name in files],
        )  # fmt: skip
        return {whole: page, **pages}


def evaluate_related(
    true: tuple[Any, Any],
    synthetic: tuple[Any, Any],
    schema: Any,
    *,
    seed: int = 0,
    workers: int | None = None,
    progress: PhaseProgress | None = None,
) -> RelatedEvaluation:
    """Compare synthetic parents and children with the true ones; the result is for the owner only.

    Parents with more children than count are compared as having the maximum, and all of their
    children are compared: figures show what was lost with those that did not count.

    Args:
        true: the private parents and children, as for :class:`~adaptive_qs.RelatedSynthesizer`.
        synthetic: the synthetic ones.
        schema: of both.
        seed: as for :func:`~adaptive_qs.evaluate`.
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
        made = families[1].tables[table]
        promised = find_promise(None, made if isinstance(made, str | Path) else None, columns)
        found = evaluate(
            first, second, columns, wanted, seed=seed, workers=workers, progress=progress
        )
        comparison = replace(found.comparison, promised=promised)
        facts = {**found.facts, "release": found.checks[0].measure(comparison)}
        return replace(found, comparison=comparison, facts=facts)

    parents = compared("parents", described.counted, None)
    children = compared("children", described.joined, own)
    rows = children.comparison.rows
    numbers = (
        Children.from_family(families[0], rows[0]), Children.from_family(families[1], rows[1])
    )  # fmt: skip
    return RelatedEvaluation(described, parents, children, numbers)
