"""Findings as text for a terminal, and as the owner's report: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from adaptive_qs.evaluation.checks import Drawn, Facts, Figure, Finding, Table, all_checks, plain
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.promise import why_no_promise
from adaptive_qs.evaluation.tables import OWNER_ONLY
from adaptive_qs.pages.charts import BarChart, HeatMap
from adaptive_qs.pages.words import counted, render, short
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.page import budget_parts
from adaptive_qs.release.statement import Statement, versions

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
        whole: name of the page about both tables, if this is one of two related ones.
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
        links=((whole, "The verdict on both tables"),) if whole else (),
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
        definitions=definitions(),
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


def definitions() -> list[str]:
    """Return what the words of the verdict mean, for readers."""
    graded = [check for check in all_checks() if check.rules]
    counts = ", ".join(check.about for check in graded if check.about)
    overall = (
        f"Overall: the verdict is at most as good as the worst finding on {counts}, and an attack "
        "that gains more than the promise allows. If these are close and the marginals cannot be "
        "judged, there is no grade."
    )
    terms = [text for check in graded for text in check.definitions]
    return [overall, *(check.definition() for check in graded), *terms]
