"""Compare a synthetic table with the true one; show findings as text, as JSON and as a page."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cached_property
from os.path import exists  # Path.exists raises if a name is too long
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.accept import load_criteria
from adaptive_qs.evaluation.checks import Check, Comparison, Facts, Finding, Table, Verdict, plain
from adaptive_qs.evaluation.columns import FAR_SHIFT
from adaptive_qs.evaluation.disclosure import parse_disclosed
from adaptive_qs.evaluation.groups import parse_compared
from adaptive_qs.evaluation.marginals import workload_scale
from adaptive_qs.evaluation.models import ModelSettings
from adaptive_qs.evaluation.queries import ComparedSource, resolve_compared
from adaptive_qs.evaluation.rules import Rule, declared_rules, parse_rule
from adaptive_qs.evaluation.scale import DOUBTFUL, WorkloadScale
from adaptive_qs.evaluation.tables import OWNER_ONLY, TablePair
from adaptive_qs.generate.check import CheckedPages
from adaptive_qs.machine import ROWS_SHARE, PhaseProgress, memory_bytes, plan_workers
from adaptive_qs.pages.words import counted, render, short, significant
from adaptive_qs.privacy.unit import ROWS
from adaptive_qs.release.bundle import Bundle, manifest_path, read_sidecar
from adaptive_qs.release.drawing import Contradiction, contradictions
from adaptive_qs.release.statement import Manifest, Statement, versions
from adaptive_qs.run.options import EvaluateOptions, with_options
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.schema import Schema

# The promise of the release behind a synthetic table, and whether the table contradicts it.


@dataclass(frozen=True, eq=False)
class Promised:
    """The release behind a table, and its promise.

    If the schema was taken from the data, nothing is promised: the promise does not cover what the
    schema reveals.

    Attributes:
        release: the bundle, or the statement next to the table; None for neither.
        source: name of the release, or the reason why it is not known.
        sampling: how the table was drawn, as the statement next to it says.
    """

    release: Bundle | Statement | None = None
    source: str = "no release was given, and no statement is next to the synthetic table"
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def statement(self) -> Statement | None:
        """The statement of the release, if it is known."""
        return self.release.manifest if isinstance(self.release, Bundle) else self.release

    @property
    def limitation(self) -> str | None:
        """The reason why there is no promise, without a full stop."""
        if self.statement is None:
            return f"The privacy promise is not known: {self.source}"
        if self.statement.insecure:
            return f"Nothing is promised: {self.source} says NOT PRIVATE, its noise is known"
        if self.statement.drafted:
            return (
                "The promise does not cover what the schema reveals, which was taken from the "
                f"data as {self.source} says"
            )
        return None

    @property
    def promise(self) -> Statement | None:
        """The statement of the release, if it promises something."""
        return None if self.limitation is not None else self.statement


def find_promise(
    release: str | Path | Bundle | None,
    synthetic: Any,
    schema: Schema,
    max_memory: int | str | None = None,
) -> Promised:
    """Find the promise of a release, or else of the statement next to the synthetic table.

    Raises:
        InputError: the release cannot be read, or was made with another schema.
        ResourceExceeded: reading it would take more than ``max_memory``.
    """
    sidecar = manifest_path(synthetic) if isinstance(synthetic, str | Path) else None
    content: dict[str, Any] = {}
    if sidecar is not None and exists(sidecar):
        with suppress(InputError):  # which is damaged
            content = read_sidecar(sidecar, max_memory)
    found: Bundle | Statement
    if release is not None:
        from adaptive_qs.release.release import Release  # slow to import

        given = isinstance(release, Bundle)
        found = release if isinstance(release, Bundle) else Release.load(release, max_memory)
        source = "the release" if given else Path(str(release)).name
        if found.manifest.schema_fingerprint != schema.fingerprint:
            raise InputError(
                f"{source if given else release}: was made with another schema: name the release "
                "that the synthetic table comes from, and use it as --schema, too"
            )
    elif sidecar is None or not exists(sidecar):
        return Promised()
    else:
        source = sidecar.name
        if content.get("kind") == "dummy":
            return Promised(source=f"{source} is the statement of a dummy table")
        try:
            fields = {key: value for key, value in content.items() if key in Manifest.model_fields}
            found = Manifest.model_validate(fields)
        except ValidationError:
            return Promised(source=f"{source} is damaged or of another version")
        if found.schema_fingerprint != schema.fingerprint:
            return Promised(
                source=f"{source} belongs to a release with another schema, such as the same one "
                "with learnt values. Use --schema RELEASE"
            )
    sampling = content.get("sampling")
    return Promised(found, source, sampling if isinstance(sampling, dict) else {})


class ReleaseCheck(Check):
    """Whether the table has the counts that were measured, to within chance.

    A table that contradicts its release was drawn wrongly: its errors are more than noise.
    """

    name, title, about, shown = "release", "Agreement with the release", "release", "always"
    rules = (
        checks.Word("contradicted", "poor", lambda part: part >= 0.05),
        checks.Word("contradicted", "fair", lambda part: part > 0),
        checks.Word("agrees", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[Contradiction, ...] | None:
        """Return the cells that differ from the release by more than chance allows, if known.

        If the release is known and could draw all rows, the table is compared with it. Otherwise,
        the statement next to the table has the cells that were found when it was drawn.
        """
        from adaptive_qs.release.release import Release  # slow to import

        release, sampling = comparison.promised.release, comparison.promised.sampling
        if isinstance(release, Release) and not sampling.keys() & {"where", "root_rows"}:
            check = release.check()
            pages = CheckedPages((), check, seed=0)
            rows = np.column_stack(comparison.pair.synthetic.columns)
            pages.gaps = {gap.clique: gap for gap in check.gaps(rows)}
            return contradictions(pages, release.schema)
        if release is None or not sampling:
            return None
        try:
            cells = TypeAdapter(tuple[Contradiction, ...])
            return cells.validate_python(sampling.get("contradictions") or ())
        except ValidationError:
            return None

    def judge(self, facts: tuple[Contradiction, ...] | None, evaluation: Any) -> Finding | None:
        """Return how many rows the worst cell is off."""
        advice: tuple[str, ...] = ()
        release = evaluation.comparison.promised.release
        if isinstance(release, Bundle) and release.manifest.unconnected:
            names = checks.format_names(release.manifest.unconnected)
            advice = (f"No combination with {names} was measured: use coarser bins, fewer values "
                      "or more budget.",)  # fmt: skip
        if not facts:
            return Finding("good", "agrees", advice=advice)
        cells = checks.named([str(cell) for cell in facts], most=2)
        text = (
            f"The table contradicts its release by more than chance allows: {cells}. Do not use "
            "these counts."
        )
        step = "Draw the table with another seed, or check the rules of the schema."
        uses = {"single columns" if len(c.columns) == 1 else "pairs of columns" for c in facts}
        caps: dict[str, checks.Grade] = dict.fromkeys((*uses, "the requested counts"), "fair")
        columns = (
            checks.Column("cell"),
            *(checks.number(h, significant) for h in ("measured", "drawn", "standard errors")),
        )
        lines = [
            (" and ".join(f"{n} = {v}" for n, v in zip(c.columns, c.cell)), c.measured, c.drawn,
             c.standard_errors)
            for c in facts
        ]  # fmt: skip
        caption = "Cells in which the table is further from the release than chance allows, in rows"
        figures = (checks.Table(caption, columns, lines),)
        part = max(abs(c.drawn - c.measured) for c in facts) / evaluation.pair.true.num_rows
        found = self.word_for(part)
        return Finding(*found, text, figures=figures, advice=(step, *advice), caps=caps)

    def as_json(self, facts: tuple[Contradiction, ...] | None) -> Mapping[str, Any]:
        return {"contradictions": facts}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A synthetic table compared with the true one; owner only.

    The facts of each check are an attribute of its name, such as ``evaluation.workload.mean_l1``
    (None if they were not requested).

    Attributes:
        comparison: the tables, and the options of their comparison.
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
            f"{self.workload.max_l1:.4g} over {counted(len(self.workload.per_clique), 'marginal')}>"
        )

    @property
    def pair(self) -> TablePair:
        """The tables."""
        return self.comparison.pair

    @cached_property
    def checks(self) -> list[Check]:
        """All checks, in their order."""
        return checks.all_checks()

    @cached_property
    def scale(self) -> WorkloadScale:
        """The errors that a fresh sample and independent columns have in the workload."""
        return workload_scale(self.comparison, self.workload.per_clique)

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """What the facts mean, by the names of the checks that found something."""
        found = {c.name: f for c in self.checks if (f := c.judge(self.facts[c.name], self))}
        chance = DOUBTFUL * math.sqrt(sum(1 / rows for rows in self.comparison.rows))
        few = chance >= FAR_SHIFT  # chance alone can take means as many standard deviations off
        for name in {c.name for c in self.checks if few and c.of_numbers} & found.keys():
            if (finding := found[name]).grade in ("good", "fair"):
                said = f"{finding.said} Too few rows to give a grade."
                found[name] = replace(finding, grade="plain", word="too few rows", said=said)
        return found

    @cached_property
    def verdict(self) -> Verdict:
        """What all findings mean together."""
        return Verdict(self.findings, self.checks)

    @property
    def limitations(self) -> tuple[str, ...]:
        """What was not measured, and what makes the measures uncertain."""
        found = (note for finding in self.findings.values() for note in finding.notes)
        return (*found, *self.notes)

    def as_json(self) -> dict[str, Any]:
        """Return everything but the rows; numbers that are not finite are None."""
        distance, queries = self.workload, self.queries
        measured = distance if queries is None else queries.whole
        cells = sum(clique.cells for clique in distance.per_clique)
        content: dict[str, Any] = {
            "notice": OWNER_ONLY,
            "verdict": self.verdict.brief,
            "uses": {u: checks.GRADES[grade].suits for u, grade in self.verdict.uses.items()},
            "rows_compared": dict(zip(("true", "synthetic"), self.comparison.rows)),
            "workload_error": {
                "mean_l1": distance.mean_l1,
                "max_l1": distance.max_l1,
                "rmse": measured.rmse,
                "rmse_of": "cells" if queries is None else "queries",
                "queries": cells if queries is None else queries.whole.queries,
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


@with_options(EvaluateOptions)
def evaluate(
    true: Any,
    synthetic: Any,
    schema: Any = None,
    workload: ComparedSource = None,
    *,
    options: EvaluateOptions,
    progress: PhaseProgress | None = None,
) -> Evaluation:
    """Compare a synthetic table with the true one; the result is for the owner only.

    Args:
        true: the private table: a data frame, the path of a file, or a :class:`CodedTable`.
        synthetic: the synthetic table, likewise.
        schema: a :class:`Schema`, a path or parsed JSON; by default that of ``release``.
        workload: a number of ways, a workload, its file or its content; by default 2 ways.
        options: The options, each as a keyword.
        progress: called with a phase, steps done and steps in all.

    Raises:
        InputError: an argument is wrong, or the release was made with another schema.
        DataError: a table cannot be read, or does not fit the schema.
        ResourceExceeded: queries on a set of attributes take too much memory.
    """
    settings = ModelSettings(options.target, options.seed, options.repeats)
    threads, max_memory = plan_workers(options.workers), options.max_memory
    described = _resolve_schema(schema, options.release, true, max_memory)
    marginals, queries = resolve_compared(workload, described.domain())
    declared = _resolve_rules(options.rules or (), described)
    named = (*described.compare, options.compare)
    compared = [pair for each in named for pair in parse_compared(each)]
    limits = () if options.accept is None else load_criteria(options.accept, described)
    known = parse_disclosed(options.disclose, described.names)
    promised = find_promise(options.release, synthetic, described, max_memory)
    unit = ROWS if promised.statement is None else promised.statement.protects
    one_each = unit.person is not None and unit.rows == 1
    if one_each:
        true = _one_row_each(true, described, max_memory)
    pair = TablePair.of(true, synthetic, described, progress)
    how = marginals, promised, settings, queries, declared, compared, limits, known, threads
    found = run_checks(Comparison(pair, described, *how, progress), one_each)
    return replace(found, notes=(*found.notes, *filter(None, [promised.limitation])))


def run_checks(comparison: Comparison, one_each: bool = False) -> Evaluation:
    """Return the facts of all checks; ``one_each`` if one row of a person is compared."""
    facts = {check.name: check.measure(comparison) for check in checks.all_checks()}
    return Evaluation(comparison, facts, tuple(table_notes(comparison.pair, one_each)))


def _resolve_schema(schema: Any, release: Any, true: Any, max_memory: int | str | None) -> Schema:
    if not (release is None or isinstance(release, str | Path | Bundle)):
        raise InputError("release is not a release. Use a path, or release_ of a Synthesizer.")
    if schema is None:
        schema = release.schema if isinstance(release, Bundle) else release
    return resolve_schema(schema, true, max_memory)


def _resolve_rules(rules: str | Rule | Iterable[str | Rule], schema: Schema) -> list[Rule]:
    several = [rules] if isinstance(rules, str) or not isinstance(rules, Iterable) else rules
    parsed = [parse_rule(rule, schema) if isinstance(rule, str) else rule for rule in several]
    return [*declared_rules(schema), *parsed]


def _one_row_each(table: Any, schema: Schema, max_memory: int | str | None) -> Any:
    if table is None:
        return None
    from adaptive_qs.table.persons import ContributionBound  # few tables are of persons

    most_bytes = int(memory_bytes(max_memory) * ROWS_SHARE)
    return ContributionBound.from_source(table, schema, 1, most_bytes)


def table_notes(pair: TablePair, one_each: bool) -> Iterator[str]:
    """Yield what makes the measures uncertain; ``one_each`` if one row of a person is compared."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    for table, margins in zip(("true", "synthetic"), pair.margins):
        named = zip(pair.domain.names, margins)
        if constant := [name for name, margin in named if np.count_nonzero(margin) == 1]:
            names = ", ".join(constant)
            yield f"one value only in the {table} table, so associated with nothing: {names}"
    if min(rows) < 1_000:
        yield "a table has fewer than 1,000 rows: much of every difference is chance"
    if max(rows) > 2 * min(rows):
        yield (
            "one table has more than twice the rows of the other: compare associations, repeated "
            "rows and maxima with care"
        )
    if one_each:
        yield (
            "one row of each person counted: one true row of each was compared, selected at random"
        )


TextPart = tuple[str, list[tuple[str, str]], list[tuple[list[str], list[list[str]]]]]
"""A part of the output for a terminal: a title, names and values, and tables with headings."""


def text_parts(findings: Iterable[tuple[str, Finding]]) -> Iterator[TextPart]:
    """Yield the figures of findings for a terminal, each with the title of its check."""
    for title, finding in findings:
        facts = [row for f in finding.figures if isinstance(f, Facts) for row in f.rows]
        printed = [f for f in finding.figures if isinstance(f, Table) and f.printed and f.rows]
        if facts or printed:
            rows = [(name, plain(text)) for name, text in facts]
            yield title, rows, [_text_table(table) for table in printed]


def _text_table(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return a table without columns that have neither a heading nor a value."""
    shown = [k for k, c in enumerate(table.columns) if c.head or any(r[k] for r in table.rows)]
    cells = [[plain(texts[k]) for k in shown] for texts in table.texts(table.printed)]
    return [table.columns[k].head for k in shown], cells


def titled_findings(evaluation: Evaluation) -> list[tuple[str, Finding]]:
    """Return the findings with the titles of their checks, those to look at first in front."""
    found = evaluation.findings
    order = sorted(evaluation.checks, key=lambda check: not check.first)
    return [(check.title, found[check.name]) for check in order if check.name in found]


def evaluation_page(evaluation: Evaluation, names: tuple[str, str], whole: str = "") -> str:
    """Return one HTML file for the owner of the data only; the same input gives the same text.

    Args:
        evaluation: of the tables.
        names: of the true and of the synthetic table.
        whole: name of the page about a set of tables that these belong to.
    """
    true, made = evaluation.comparison.rows
    columns = counted(len(evaluation.comparison.schema.own_columns), "column")
    intro = f"{counted(made, 'synthetic row')} compared with {counted(true, 'true row')} of "
    intro += f"{short(names[0], 120)}, "
    return render_page(
        names[1], f"{intro}{columns}.", evaluation.verdict.sentences, titled_findings(evaluation),
        evaluation.comparison.promised.statement, evaluation.notes,
        {whole: "The verdict on all tables"} if whole else {},
    )  # fmt: skip


def render_page(
    name: str,
    intro: str,
    sentences: Sequence[Finding],
    findings: Sequence[tuple[str, Finding]],
    statement: Statement | None,
    notes: Sequence[str],
    links: Mapping[str, str],
) -> str:
    """Return the page of titled findings on the table ``name``.

    Links are titles of other pages by their names.
    """
    return render(
        "report.html",
        ("adaptive_qs.evaluation",),
        name=name,
        intro=intro,
        sentences=sentences,
        sections=[(title, found) for title, found in findings if found.figures],
        notes=notes,
        links=links,
        statement=statement,
        versions=versions(),
        notice=OWNER_ONLY,
        page_rows=25,  # of a table that are shown; up to long_table are folded
        long_table=200,
    )
