"""Comparing a synthetic table with the true one; findings as text, as JSON and as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.checks import (
    SERVES,
    Check,
    Comparison,
    Drawn,
    Facts,
    Figure,
    Finding,
    Table,
    Verdict,
    all_checks,
    plain,
)
from adaptive_qs.evaluation.marginals import workload_scale
from adaptive_qs.evaluation.models import ModelSettings
from adaptive_qs.evaluation.promise import find_promise, why_no_promise
from adaptive_qs.evaluation.queries import ComparedSource, check_queries, resolve_compared
from adaptive_qs.evaluation.rules import Rule, declared_rules, parse_rule
from adaptive_qs.evaluation.scale import WorkloadScale
from adaptive_qs.evaluation.tables import OWNER_ONLY, TablePair, check_control, read_compared
from adaptive_qs.machine import ROWS_SHARE, PhaseProgress, memory_bytes, plan_workers
from adaptive_qs.pages.charts import BarChart, HeatMap
from adaptive_qs.pages.words import counted, render, short
from adaptive_qs.privacy.unit import DEFAULT_WEIGH, check_weigh
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.page import budget_parts
from adaptive_qs.release.statement import Statement, versions
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.schema import Schema

FEW_ROWS = 1_000
"""Tables of fewer rows differ much by chance."""
UNEQUAL = 2.0
"""Ratio of the numbers of rows from which differences of association are hard to compare."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A synthetic table compared with the true one; owner only.

    The facts of each check are an attribute of its name, such as ``evaluation.workload.mean_l1``
    (None if they were not requested).

    Attributes:
        comparison: the tables, and what was requested.
        facts: of each check, by its name.
        notes: what makes the measures uncertain.
    """

    comparison: Comparison
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name != "facts" and name in self.facts:
            return self.facts[name]
        raise AttributeError(f"an evaluation has no {name!r}")

    def __repr__(self) -> str:
        return (
            f"<Evaluation, owner only: mean L1 error {self.workload.mean_l1:.4g} and largest "
            f"{self.workload.max_l1:.4g} over {len(self.workload.per_clique):,} marginals>"
        )

    @property
    def pair(self) -> TablePair:
        """The tables."""
        return self.comparison.pair

    @cached_property
    def checks(self) -> list[Check]:
        """All checks, in their order."""
        return all_checks()

    @cached_property
    def scale(self) -> WorkloadScale:
        """The errors that a fresh sample and independent columns have in the workload."""
        return workload_scale(self.comparison, self.workload.per_clique)

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """What the facts mean, by the names of the checks that found something."""
        judged = {check.name: check.judge(self.facts[check.name], self) for check in self.checks}
        return {name: finding for name, finding in judged.items() if finding is not None}

    @cached_property
    def verdict(self) -> Verdict:
        """What all findings mean together."""
        return Verdict(self.findings, self.checks)

    @property
    def uses(self) -> tuple[str, ...]:
        """The kinds of use of a synthetic table."""
        return tuple(dict.fromkeys(use for check in self.checks for use in check.uses))

    @property
    def limitations(self) -> tuple[str, ...]:
        """What was left out of the measures, and what makes them uncertain."""
        found = (note for finding in self.findings.values() for note in finding.notes)
        return (*found, *self.notes)

    def as_json(self) -> dict[str, Any]:
        """Return everything but the rows; numbers that are not finite are None."""
        distance, asked = self.workload, self.queries
        measured = distance if asked is None else asked.whole
        cells = sum(clique.cells for clique in distance.per_clique)
        content: dict[str, Any] = {
            "notice": OWNER_ONLY,
            "verdict": self.verdict.brief,
            "uses": {use: SERVES[grade] for use, grade in self.verdict.uses.items()},
            "rows_compared": dict(zip(("true", "synthetic"), self.comparison.rows)),
            "workload_error": {
                "mean_l1": distance.mean_l1,
                "max_l1": distance.max_l1,
                "rmse": measured.rmse,
                "rmse_of": "cells" if asked is None else "queries",
                "queries": cells if asked is None else asked.whole.queries,
            },
        }
        for check in self.checks:
            content |= check.as_json(self.facts[check.name])
        return {**_plain(content), "limitations": list(self.limitations)}


def _plain(value: Any) -> Any:
    """Return values as JSON has them: None for numbers that are not finite."""
    if hasattr(value, "as_json"):
        value = value.as_json()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def evaluate(
    true: Any,
    synthetic: Any,
    schema: Any = None,
    workload: ComparedSource = None,
    *,
    rules: str | Rule | Iterable[str | Rule] = (),
    weigh: str | None = None,
    target: str | None = None,
    repeats: int = 5,
    control: Any = None,
    release: str | Path | Bundle | None = None,
    seed: int = 0,
    workers: int | None = None,
    max_memory: int | str | None = None,
    progress: PhaseProgress | None = None,
) -> Evaluation:
    """Compare a synthetic table with the true one; the result is for the owner only.

    It is computed from private rows without noise. It spends no budget because it must not be
    published.

    Args:
        true: the private table: a pandas, polars or pyarrow table, the path of a CSV or Parquet
            file, or a :class:`CodedTable`.
        synthetic: the synthetic table, likewise.
        schema: of both: a :class:`Schema`, the path of a schema file or release, or parsed JSON;
            by default that of ``release``. Coded tables need none.
        workload: what matters: a number of ways, several numbers, a workload file or its parsed
            content, a :class:`Workload` or a :class:`QueryWorkload`; by default all 2-way
            marginals.
        rules: that the owner knows to hold, such as "start <= end".
        weigh: what counts alike, a name of ``adaptive_qs.privacy.unit.WEIGH``; by default as in
            the release behind the table, if its statement is known, and rows otherwise. With
            "persons" the true table has one row of each person, selected at random.
        target: the column that models learn to predict; no models are trained without one.
        repeats: splits that models are trained and tested on.
        control: rows of the same population that the synthetic table was not made from, given as
            the tables are, for the membership attacks; models are tested on them.
        release: the release behind the synthetic table, or its path: its promise is the bound of
            the attacks, and the table is compared with what was measured. By default the statement
            next to the file of a synthetic table.
        seed: of splits, models and attacks; it protects nothing.
        workers: threads, by default one for every core; results do not depend on it.
        max_memory: ceiling of the process's memory while a release is read.
        progress: called with a phase ("read", "evaluate", "queries", "pairs", "models", "attack",
            "verdict"), steps done and steps in all.

    Raises:
        InputError: a parameter, the schema, the workload, a rule, a table or the target is wrong,
            or the release was made with another schema.
        DataError: the control rows were not held out, or are too few.
        ResourceExceeded: queries on a set of attributes take too much memory.
    """
    threads = plan_workers(workers)
    settings = ModelSettings(target=target, seed=seed, repeats=repeats)
    if not (release is None or isinstance(release, str | Path | Bundle)):
        raise InputError("release is no release: give a path, or release_ of a synthesizer")
    if schema is None:
        schema = release.schema if isinstance(release, Bundle) else release
    described = resolve_schema(schema, true, max_memory)
    marginals, queries = resolve_compared(workload, described.domain())
    if queries is not None:
        check_queries(queries)
    several = [rules] if isinstance(rules, str) or not isinstance(rules, Iterable) else rules
    declared = declared_rules(described)
    declared += [parse_rule(rule, described) if isinstance(rule, str) else rule for rule in several]
    file = synthetic if isinstance(synthetic, str | Path) else None
    promised = find_promise(release, file, described, max_memory)
    if weigh is None:
        weigh = DEFAULT_WEIGH if promised.statement is None else promised.statement.protects.weigh
    check_weigh(weigh, described.person)
    if weigh != DEFAULT_WEIGH:
        true, control = (
            None if table is None else _one_row_each(table, described, max_memory)
            for table in (true, control)
        )
    pair = TablePair.of(true, synthetic, described, progress)
    held_out = None
    if control is not None:
        rows = read_compared(control, described, "control", progress)
        held_out = rows, check_control(pair.true, rows, settings.seed)
    comparison = Comparison(
        pair, described, marginals, promised, settings, queries, declared, held_out, threads,
        progress,
    )  # fmt: skip
    notes = tuple(table_notes(pair))
    if weigh != DEFAULT_WEIGH:
        notes += ("persons have equal weights: one true row of each person was compared, selected "
                  "at random",)  # fmt: skip
    facts = {check.name: check.measure(comparison) for check in all_checks()}
    return Evaluation(comparison, facts, notes)


def _one_row_each(table: Any, schema: Schema, max_memory: int | str | None) -> Any:
    """Return one row of each person: a sample of rows with weight 1/k each.

    Raises:
        InputError: the table lacks the person column.
        ResourceExceeded: there are more persons than fit the memory.
    """
    from adaptive_qs.table.persons import ContributionBound  # few tables are of persons

    return ContributionBound.from_source(
        table, schema, 1, int(memory_bytes(max_memory) * ROWS_SHARE)
    )


def table_notes(pair: TablePair) -> Iterator[str]:
    """Yield what makes the measures of two tables uncertain."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    for table, margins in zip(("true", "synthetic"), pair.margins):
        constant = [
            name for name, margin in zip(pair.domain.names, margins)
            if np.count_nonzero(margin) == 1
        ]  # fmt: skip
        if constant:
            yield (
                f"one value only in the {table} table, so associated with nothing: "
                + ", ".join(constant)
            )
    if min(rows) < FEW_ROWS:
        yield f"a table has fewer than {FEW_ROWS:,} rows: much of every difference is chance"
    if max(rows) > UNEQUAL * min(rows):
        yield (
            "one table has more than twice the rows of the other: compare associations, repeated "
            "rows and maxima with care"
        )


# Text for a terminal.


class TextTable(NamedTuple):
    """A table of a terminal: its headings and its cells."""

    heads: list[str]
    rows: list[list[str]]


class TextPart(NamedTuple):
    """A part of the output for a terminal: a title, names and values, and tables."""

    title: str
    rows: list[tuple[str, str]]
    tables: list[TextTable]


def text_parts(findings: Iterable[tuple[str, Finding]]) -> Iterator[TextPart]:
    """Yield the figures of findings for a terminal.

    Args:
        findings: each with the title of its check.
    """
    for title, finding in findings:
        rows = [
            (name, plain(text)) for f in finding.figures if isinstance(f, Facts)
            for name, text in f.rows
        ]  # fmt: skip
        printed = [f for f in finding.figures if isinstance(f, Table) and f.printed and f.rows]
        if rows or printed:
            yield TextPart(title, rows, [_text_table(table) for table in printed])


def _text_table(table: Table) -> TextTable:
    shown = [
        k for k, column in enumerate(table.columns)
        if column.head or any(row[k] for row in table.rows)
    ]  # fmt: skip
    heads = [table.columns[k].head for k in shown]
    rows = [[plain(cells[k]) for k in shown] for cells in table.texts(table.printed)]
    return TextTable(heads, rows)


def titled_findings(evaluation: Evaluation) -> list[tuple[str, Finding]]:
    """Return the findings of an evaluation with the titles of their checks."""
    found = evaluation.findings
    return [(check.title, found[check.name]) for check in evaluation.checks if check.name in found]


# The page.

PAGE_ROWS, LONG_TABLE = 25, 200
"""Rows of a table that the page shows, and those that it has folded away."""


class Section(NamedTuple):
    """A part of the page: its id, its heading, its figures and notes."""

    anchor: str
    title: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()


def evaluation_page(evaluation: Evaluation, names: tuple[str, str], whole: str = "") -> str:
    """Return one HTML file for the owner of the data only; the same input gives the same text.

    Args:
        evaluation: of the tables.
        names: of the true and of the synthetic table, as they are shown.
        whole: name of the page about all tables, if the table is one of a set.
    """
    true, made = evaluation.comparison.rows
    columns = counted(len(evaluation.pair.domain), "column")
    intro = f"{made:,} synthetic rows compared with {true:,} true rows of {short(names[0], 120)}, "
    sections = [
        Section(check.name.replace("_", "-"), check.title, found.figures, found.notes)
        for check in evaluation.checks
        if (found := evaluation.findings.get(check.name)) is not None and found.figures
    ]
    tiles = [tile for found in evaluation.findings.values() for tile in found.tiles]
    return render_page(
        names[1], f"{intro}{columns}.", evaluation.verdict.sentences, tiles, sections,
        evaluation.comparison.promised.release, evaluation.notes,
        links=((whole, "The verdict on all tables"),) if whole else (),
    )  # fmt: skip


def render_page(
    name: str,
    intro: str,
    sentences: Sequence[Finding],
    tiles: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    release: Bundle | Statement | None,
    notes: Sequence[str],
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page of findings.

    Args:
        name: of the synthetic table.
        intro: what was compared.
        sentences: of the verdict.
        tiles: numbers for the top, with their meanings.
        sections: the figures.
        release: behind the table, or its statement, if known.
        notes: what makes all measures uncertain.
        links: names of other pages, and what they are.
    """
    bundle = release if isinstance(release, Bundle) else None
    statement = release.manifest if isinstance(release, Bundle) else release
    return render(
        "report.html",
        ("adaptive_qs.evaluation", "adaptive_qs.release.release"),
        name=name,
        intro=intro,
        sentences=sentences,
        tiles=tiles,
        sections=sections,
        notes=notes,
        links=links,
        statement=statement,
        budget=budget_parts(statement) if statement else None,
        rounds=bundle.rounds if bundle else None,
        unconnected=bundle.manifest.unconnected if bundle else (),
        columns=len(bundle.workload.domain) if bundle else 0,
        no_promise=why_no_promise(statement),
        versions=versions(),
        notice=OWNER_ONLY,
        kind=figure_kind,
        page_rows=PAGE_ROWS,
        long_table=LONG_TABLE,
    )


KINDS: Mapping[type, str] = {
    Facts: "facts", Table: "table", Drawn: "drawn", BarChart: "bars", HeatMap: "map",
}  # fmt: skip
"""Names of what the template draws."""


def figure_kind(figure: Any) -> str:
    """Return the name of the macro that draws a figure; "" for a plain cell."""
    return KINDS.get(type(figure), "")
