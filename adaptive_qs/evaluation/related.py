"""Comparing two related tables with the true ones: numbers of children, and links to parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from adaptive_qs.evaluation import limits as limit
from adaptive_qs.evaluation.evaluation import (
    Evaluation,
    evaluate,
    evaluation_json,
    find_promise,
)
from adaptive_qs.evaluation.limits import word_for
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.evaluation.scale import WorkloadScale, scale_over
from adaptive_qs.evaluation.sentences import SERVES, Sentence, leading, named
from adaptive_qs.evaluation.tables import OWNER_ONLY
from adaptive_qs.evaluation.verdict import (
    ColumnPair,
    Findings,
    Verdict,
    findings,
    overall_sentence,
    placed,
    verdict,
)
from adaptive_qs.machine import PhaseProgress, StepProgress
from adaptive_qs.pages.words import combination, counted, listed, share, significant
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

    @property
    def by_table(self) -> dict[TableName, Evaluation]:
        """The comparisons of both tables."""
        return {"parents": self.parents, "children": self.children}

    def as_json(self, judged: RelatedVerdict) -> dict[str, Any]:
        """Everything but the rows, with the verdicts in a few sentences."""
        true, synthetic = self.numbers
        scales = judged.across_scale.per_clique

        def compared(error: CliqueError) -> dict[str, Any]:
            scale = scales.get(error.attributes)
            known: dict[str, float | None] = {"fresh": None, "independent": None}
            if scale is not None:
                known = {"fresh": scale.fresh, "independent": scale.independent}
            return {"attributes": error.attributes, "l1": error.l1, **known}

        return {
            "notice": OWNER_ONLY,
            "verdict": judged.brief,
            "number_of_children": {
                "l1": self.l1_of_numbers,
                "mean": {"true": true.mean, "synthetic": synthetic.mean},
                "shares": {"true": true.shares, "synthetic": synthetic.shares},
            },
            "across": {
                "mean_l1": self.mean_l1_across,
                "per_pair": [compared(error) for error in self.across],
            },
            **{
                name: {
                    **evaluation_json(part, judged.tables[name].brief),
                    "uses": {what: SERVES[grade] for what, grade in judged.tables[name].uses},
                }
                for name, part in self.by_table.items()
            },
        }


def evaluate_related(
    true: tuple[Any, Any],
    synthetic: tuple[Any, Any],
    schema: Any,
    *,
    models: bool = False,
    repeats: int = 5,
    seed: int = 0,
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
        models, repeats, seed: as for :func:`~adaptive_qs.evaluation.evaluation.evaluate`, for each
            table.
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
            first, second, columns, wanted, models=models, repeats=repeats, seed=seed,
            workers=workers, progress=progress,
        )  # fmt: skip
        return replace(found, promised=promised)

    parents = compared("parents", described.counted, None)
    children = compared("children", described.joined, own)
    rows = children.pair.true.num_rows, children.pair.synthetic.num_rows
    numbers = Children.of(families[0], rows[0]), Children.of(families[1], rows[1])
    return RelatedEvaluation(described, parents, children, numbers)


# What the numbers mean for both tables together.

PAIRS_NAMED = 3
"""Pairs across both tables that the verdict names, the worst first."""


@dataclass(frozen=True, eq=False)
class RelatedVerdict:
    """What was found about both tables together.

    Attributes:
        overall: the worst of what follows in a word.
        numbers: whether parents have as many children.
        across: how close the pairs of a column of parents and one of children are.
        across_scale: what that is judged by.
        number: the number of children as a column of both parents' tables.
        tables: the verdict on each table.
        findings: what each is made from.
    """

    overall: Sentence
    numbers: Sentence
    across: Sentence
    across_scale: WorkloadScale
    number: ColumnPair
    tables: Mapping[TableName, Verdict]
    findings: Mapping[TableName, Findings]

    @property
    def sentences(self) -> list[Sentence]:
        """About the pair; each table has its own."""
        return [self.overall, self.numbers, self.across]

    @property
    def brief(self) -> list[str]:
        """The same as plain text."""
        return [sentence.plain for sentence in self.sentences]


def judge(
    found: RelatedEvaluation, workers: int = 1, progress: StepProgress | None = None
) -> RelatedVerdict:
    """The verdict on both tables, which is never better than that on one of them."""
    each = {name: findings(part, workers, progress) for name, part in found.by_table.items()}
    tables = {
        name: verdict(part, part.evaluation.promised.statement) for name, part in each.items()
    }
    pair = found.children.pair
    rows = pair.true.num_rows, pair.synthetic.num_rows
    scale = scale_over(found.across, each["children"].scale.per_clique, rows)
    number = next(c for c in each["parents"].columns if c.name == found.schema.count)
    numbers, across = _numbers_sentence(found, number), _across_sentence(found, scale)
    closeness: list[tuple[str, Sentence]]
    closeness = [(name, part.overall) for name, part in tables.items()]
    closeness += [("number of children", numbers), ("parents and children", across)]
    overall = overall_sentence(closeness, None, "the true pair of tables")
    return RelatedVerdict(overall, numbers, across, scale, number, tables, each)


def _numbers_sentence(found: RelatedEvaluation, number: ColumnPair) -> Sentence:
    """Whether parents have as many children as they should."""
    true, made = found.numbers
    values = next((v for v in found.parents.values if v.column.name == number.name), None)
    judged = SimpleNamespace(
        off=number.variation - number.fresh >= max(limit.LOST_COLUMN, number.doubt),
        moved=values is not None and values.off > 1,
        blind=number.fresh + number.doubt >= limit.BLIND,
    )
    text = (
        f"Parents have {significant(true.mean)} children on average, {significant(made.mean)} in "
        f"the synthetic tables; {leading(share(number.variation, 2), 'children')} of the parents "
        f"would have to have another number, {share(number.fresh, 2)} in a fresh sample."
    )
    return Sentence(*word_for("columns", judged), text)


def _across_sentence(found: RelatedEvaluation, scale: WorkloadScale) -> Sentence:
    """How close the pairs across both tables are, and which are the worst."""
    errors = found.across
    number = leading(counted(len(errors), "pair"), "across")
    text = f"The {number} of a column of parents and one of children "
    text += f"{'differs' if len(errors) == 1 else 'differ'} by "
    text += f"{significant(found.mean_l1_across)} on average"
    if scale.known:
        text += f". A fresh sample would differ by about {significant(scale.fresh)}"
        if scale.joint:
            text += f", independent columns by {significant(scale.independent)}"
        text += placed(scale.place)
    else:
        text += "; there is nothing to judge it by: chance decides most of such an error."
    worst = [f"{combination(e.attributes)} ({significant(e.l1)})" for e in errors[:PAIRS_NAMED]]
    text += f" Worst: {listed(worst, PAIRS_NAMED)}."
    if scale.gone:
        names = [combination(attributes) for attributes in scale.gone]
        text += f" As far off as independent columns: {named(names, 'across')}."
    return Sentence(*word_for("marginals", scale.place), text)
