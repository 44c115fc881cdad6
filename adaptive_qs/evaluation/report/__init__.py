"""The owner's report: one self-contained HTML file that shows an evaluation, verdict first."""

from __future__ import annotations

from adaptive_qs.data.schema import Schema
from adaptive_qs.evaluation.pair import OWNER_ONLY
from adaptive_qs.evaluation.report.columns import column_chart
from adaptive_qs.evaluation.report.matrices import (
    association_maps,
    error_map,
    most_different,
    pair_errors,
)
from adaptive_qs.evaluation.report.models import attack_lines, score_rows
from adaptive_qs.evaluation.report.release import ReleaseView, release_view
from adaptive_qs.evaluation.verdict import verdict
from adaptive_qs.evaluation.verdict.attack import why_no_promise
from adaptive_qs.evaluation.verdict.findings import Findings
from adaptive_qs.evaluation.verdict.next_steps import next_sentence
from adaptive_qs.evaluation.verdict.thresholds import DEFINITIONS
from adaptive_qs.pages.rendering import render
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.environment import versions
from adaptive_qs.release.statement import Statement

COLUMNS_SHOWN = 24
CLIQUES_SHOWN = 25
IMPORTANCES_SHOWN = 20
LONG_TABLE = 200
"""Rows of the long tables that are folded away."""


def report_page(
    found: Findings,
    schema: Schema,
    names: tuple[str, str],
    release: Bundle | Statement | None,
) -> str:
    """One HTML file for the owner of the data alone; the same input gives the same text.

    Args:
        found: the evaluation of the two tables, and what its numbers mean.
        schema: of both, for the names of their values.
        names: of the true and of the synthetic table, as they are shown.
        release: what the synthetic table came from, or the statement beside it, if known.
    """
    evaluation, scale, columns, fates = found.evaluation, found.scale, found.columns, found.fates
    view = release_view(release)
    judged = verdict(found, view.statement if view else None)
    following = next_sentence(found, judged, view.alone if view else ())
    association = evaluation.association
    chosen = most_different(fates.told)
    domain = evaluation.pair.domain
    cliques = evaluation.workload.per_clique
    errors = pair_errors(domain, cliques)
    in_map = most_different(errors)
    joint = any(len(c.attributes) > 1 for c in cliques)
    widest = max(len(c.attributes) for c in cliques)
    caption = (
        "L1 error of every pair"
        if widest == 2
        else ("Mean L1 error of the workload's marginals that hold both columns")
    )
    return render(
        "report.html",
        ("adaptive_qs.evaluation", "adaptive_qs.release"),
        names=names,
        notice=OWNER_ONLY,
        evaluation=evaluation,
        schema=schema,
        sentences=[*judged.sentences, following],
        scale=scale,
        fates=fates,
        release=view,
        no_promise=why_no_promise(view.statement if view else None),
        columns=columns,
        cards=[(c, column_chart(c, schema)) for c in columns[:COLUMNS_SHOWN]],
        chosen=len(chosen),
        cramers_v=association_maps(association, association.cramers_v, "Cramér's V", chosen),
        information=association_maps(
            association, association.mutual_information, "Mutual information", chosen
        ),
        error_map=error_map(domain, errors, in_map, caption) if joint and len(in_map) > 1 else None,
        worst=sorted(cliques, key=lambda c: (-c.l1, c.attributes))[:LONG_TABLE],
        ordered=sorted(evaluation.ordered, key=lambda o: -o.range_max)[:LONG_TABLE],
        scores=score_rows(evaluation.utility) if evaluation.utility else [],
        attacks=attack_lines(evaluation.membership) if evaluation.membership else [],
        definitions=DEFINITIONS,
        versions=versions(),
        sections=_sections(view),
        most_cliques=CLIQUES_SHOWN,
        most_importances=IMPORTANCES_SHOWN,
        long_table=LONG_TABLE,
    )


def _sections(view: ReleaseView | None) -> list[tuple[str, str]]:
    return [
        ("verdict", "Verdict"),
        *([("budget", "Budget and rounds")] if view else []),
        ("columns", "Single columns, side by side"),
        ("association", "How columns depend on each other"),
        ("errors", "Where the errors are"),
        ("rows", "Rows and rules"),
        ("models", "What models lose"),
        ("attack", "Membership attack"),
        ("limitations", "Limitations"),
        ("reading", "How to read this report"),
    ]
