"""Sets of tables: every table compared with the true one, and the keys between them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_qs.evaluation import checks, marginals
from adaptive_qs.evaluation import evaluation as single_table
from adaptive_qs.evaluation.columns import ColumnPair, ColumnsCheck
from adaptive_qs.evaluation.evaluation import Evaluation, evaluation_page, find_promise, render_page
from adaptive_qs.evaluation.models import ModelSettings
from adaptive_qs.evaluation.rules import declared_rules
from adaptive_qs.evaluation.scale import CliqueError, scale_over
from adaptive_qs.evaluation.tables import OWNER_ONLY, TablePair
from adaptive_qs.machine import PhaseProgress, plan_workers
from adaptive_qs.pages.words import combination, count, counted, listed, share, significant
from adaptive_qs.table.joined import join_tables, name_tables
from adaptive_qs.table.tables import MeasuredTable, TableSet
from adaptive_qs.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class KeyFacts:
    """The key of a table in both sets; owner only.

    Attributes:
        child: name of the table.
        parent: name of the table that its key leads to.
        most: maximum number of its rows that count per row of the parent.
        rows: numbers of rows of the parent and of the table, true and synthetic.
        numbers: the number of children as a column of the parent, at most ``most``.
        given: the columns that come from ancestors, with their numbers of children.
    """

    child: str
    parent: str
    most: int
    rows: tuple[tuple[int, int], tuple[int, int]]
    numbers: ColumnPair
    given: frozenset[str]

    @property
    def means(self) -> tuple[float, float]:
        """Mean number of children, true and synthetic."""
        parents, children = self.rows
        return children[0] / parents[0], children[1] / parents[1]

    @property
    def l1(self) -> float:
        """L1 distance of the distributions of the number of children, from 0 (equal) to 2."""
        true, synthetic = self.numbers.shares
        return float(np.abs(true - synthetic).sum())

    def list_pairs(self, evaluation: Evaluation) -> tuple[CliqueError, ...]:
        """Return the errors of pairs of a column of an ancestor and an own one, the worst first."""
        pairs = (e for e in evaluation.workload.per_clique if self.given & {*e.attributes})
        return tuple(sorted(pairs, key=lambda error: -error.l1))

    def as_json(self) -> dict[str, Any]:
        """Return the parent and the numbers of children in both tables."""
        both = "true", "synthetic"
        shares = dict(zip(both, (each.tolist() for each in self.numbers.shares)))
        numbers = {"l1": self.l1, "mean": dict(zip(both, self.means)), "shares": shares}
        return {"parent": self.parent, "number_of_children": numbers}


class KeysCheck(checks.Check):
    """The numbers of children of the parent, and the pairs of columns across the key."""

    name, title, about = "key", "Rows per parent, and links to ancestors", "key"
    shown = "always"

    def measure(self, comparison: checks.Comparison) -> KeyFacts | None:
        """Return what was found of the key of the table; None for a root and a lone table."""
        return comparison.key

    def judge(self, facts: KeyFacts | None, evaluation: Evaluation) -> checks.Finding | None:
        """Grade the worse of the numbers of children and the pairs across the key."""
        if facts is None:
            return None
        found = self._judge_numbers(facts), self._judge_pairs(facts, evaluation)
        worst = max(found, key=lambda finding: [*checks.GRADES].index(finding.grade))
        text, figures = " ".join(each.said for each in found), found[0].figures + found[1].figures
        return replace(worst, said=text, figures=figures)

    def as_json(self, facts: KeyFacts | None) -> Mapping[str, Any]:
        """Return the field "key"; none for a table without a parent."""
        return {} if facts is None else {self.name: facts}

    def _judge_numbers(self, facts: KeyFacts) -> checks.Finding:
        column, (true, made) = facts.numbers, facts.means
        moved = share(column.variation, 2)
        text = (
            f"A row of {facts.parent} has {significant(true)} rows of {facts.child} on average, "
            f"and {significant(made)} in the synthetic tables. The number differs for {moved} of "
            f"the rows of {facts.parent} (other rows of the same population: "
            f"{share(column.fresh, 2)})."
        )
        lines = (
            ("rows per parent", f"{true:.3f} on average, {made:.3f} synthetic"),
            ("numbers", f"L1 distance of their distribution: {facts.l1:.4f}"),
        )
        table = checks.Table(
            f"Rows of {facts.parent} by the number of their rows of {facts.child}, "
            f"{facts.most:,} for more",
            (
                checks.number("rows", count),
                checks.number("true", share),
                checks.number("synthetic", share),
            ),
            [(k, *shares) for k, shares in enumerate(zip(*column.shares))],
        )
        word = ColumnsCheck().word_for([column])
        return checks.Finding(*word, text, figures=(checks.Facts(lines), table))

    def _judge_pairs(self, facts: KeyFacts, evaluation: Evaluation) -> checks.Finding:
        errors = facts.list_pairs(evaluation)
        scale = scale_over(errors, evaluation.scale.per_clique, evaluation.comparison.rows)
        mean = significant(float(np.mean([error.l1 for error in errors])))
        pairs = counted(len(errors), "pair")
        text = f"The {pairs} of a column of {facts.child} and one of an "
        text += (
            f"ancestor {'differs' if len(errors) == 1 else 'differ'} by {mean} on average, other "
        )
        text += f"rows of the population by about {significant(scale.fresh)}"
        text += marginals.describe_place(scale)
        worst = [f"{combination(e.attributes)} ({significant(e.l1)})" for e in errors[:3]]
        text += f" Worst: {listed(worst)}."
        if scale.gone:
            gone = checks.named([combination(attributes) for attributes in scale.gone])
            text += f" No closer than independent columns: {gone}."
        rows = [
            (*row, "like independent columns" if row[0] in scale.gone else "")
            for row in marginals.marginal_rows(errors, scale)
        ]
        caption = f"Pairs of a column of {facts.child} and one of an ancestor, the worst first"
        table = checks.Table(caption, (*marginals.MARGINAL_COLUMNS, checks.Column("")), rows)
        return checks.Finding(
            *marginals.MarginalsCheck().word_for(scale.place), text, figures=(table,)
        )


@dataclass(frozen=True, eq=False)
class SetEvaluation:
    """A synthetic set of tables compared with the true one; owner only.

    Attributes:
        schema: of both sets.
        tables: the comparison of each table, root first, with the numbers of its children and
            behind the columns of its ancestors: all pairs of columns with at least one own column.
    """

    schema: TableSet
    tables: Mapping[str, Evaluation]

    @cached_property
    def overall(self) -> checks.Finding:
        """The verdict: at most as good as the worst verdict on a table."""
        parts = [(name, part.verdict.overall) for name, part in self.tables.items()]
        return checks.overall_finding(parts, truth="the true tables")

    @cached_property
    def keys(self) -> dict[str, checks.Finding]:
        """The finding about the key of each table but the root."""
        found = {name: part.findings.get(KeysCheck.name) for name, part in self.tables.items()}
        return {name: finding for name, finding in found.items() if finding is not None}

    def as_json(self) -> dict[str, Any]:
        """Return everything but the rows, with the verdicts in a few sentences."""
        return {
            "notice": OWNER_ONLY,
            "verdict": [self.overall.said],
            "tables": {name: part.as_json() for name, part in self.tables.items()},
        }

    def pages(
        self, names: Mapping[str, tuple[str, str]], files: Mapping[str, str], whole: str
    ) -> dict[str, str]:
        """Return HTML files by name, for the owner of the data only.

        Args:
            names: true and synthetic name of each table.
            files: file name of the page about each table.
            whole: file name of the page about the set.
        """
        rows = {name: part.comparison.rows for name, part in self.tables.items()}
        compared = (
            f"{made:,} synthetic rows of {name} compared with {true:,} true rows"
            for name, (true, made) in rows.items()
        )
        overall = [(name, part.verdict.overall) for name, part in self.tables.items()]
        verdicts = [replace(each, said=f"{name}: {each.said}") for name, each in overall]
        title = KeysCheck.title.lower()
        page = render_page(
            ", ".join(made for _, made in names.values()), f"{', '.join(compared)}.",
            [self.overall, *self.keys.values(), *verdicts],
            [(f"{name}: {title}", finding) for name, finding in self.keys.items()],
            self.tables[self.schema.root].comparison.promised.statement, (),
            {files[name]: f"The whole report on {name}" for name in files},
        )  # fmt: skip
        pages = (evaluation_page(part, names[name], whole) for name, part in self.tables.items())
        return {whole: page, **dict(zip((files[name] for name in self.tables), pages))}


def evaluate_set(
    true: Any,
    synthetic: Any,
    schema: Any,
    *,
    seed: int = 0,
    workers: int | None = None,
    progress: PhaseProgress | None = None,
) -> SetEvaluation:
    """Compare a synthetic set of tables with the true one; the result is for the owner only.

    Rows of a parent with more children than count are compared as having the maximum, and all of
    their children are compared: figures show what was lost with those that did not count.

    Args:
        true: the private tables, as for :class:`~adaptive_qs.Synthesizer`.
        synthetic: the synthetic ones.
        schema: of both.
        seed: as for :func:`~adaptive_qs.evaluate`.
        workers: threads, by default one for every core; results do not depend on it.
        progress: called with a phase, steps done and steps in all.

    Raises:
        InputError: the schema or a table is wrong, or the keys of two tables do not fit each other.
    """
    described = TableSet.resolve(schema)
    given = [name_tables(tables, described) for tables in (true, synthetic)]
    memory = 2**62  # for keys: their owner decides what to compare
    sides = [join_tables(tables, described, memory, bounded=False) for tables in given]
    found: dict[str, Evaluation] = {}
    threads, settings = plan_workers(workers), ModelSettings(seed=seed)
    for measured in described.measured():
        name, schema = measured.name, measured.schema
        pair = TablePair.of(sides[0][name], sides[1][name], schema, progress)
        made = given[1][name]
        file = Path(str(made).replace("::", ".")) if isinstance(made, str | Path) else None
        found[name] = single_table.run_checks(checks.Comparison(
            pair, schema, _own_pairs(measured), find_promise(None, file, schema), settings,
            rules=declared_rules(schema), workers=threads, progress=progress,
            key=_key_facts(described, measured, pair, found),
        ))  # fmt: skip
    return SetEvaluation(described, found)


def _own_pairs(measured: MeasuredTable) -> Workload:
    domain = measured.schema.domain()
    pairs = Workload.all_ways(domain, min(2, len(domain)))
    return replace(
        pairs, weights={c: w for c, w in pairs.weights.items() if c[-1] >= measured.given}
    )


def _key_facts(
    schema: TableSet, measured: MeasuredTable, pair: TablePair, found: Mapping[str, Evaluation]
) -> KeyFacts | None:
    """Return the facts about a table's key, given the comparisons of the tables before it."""
    key = schema.by_child.get(measured.name)
    if key is None:
        return None
    parent = found[key.parent]
    numbers = next(column for column in parent.columns if column.name == key.number)
    given = frozenset(measured.schema.names[: measured.given])
    rows = parent.comparison.rows, (pair.true.num_rows, pair.synthetic.num_rows)
    return KeyFacts(measured.name, key.parent, key.most, rows, numbers, given)
