"""The owner's report: one self-contained HTML file that shows an evaluation, verdict first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.groups import GroupError, GroupErrors
from adaptive_qs.evaluation.limits import DEFINITIONS
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.evaluation.related import RelatedEvaluation, RelatedVerdict
from adaptive_qs.evaluation.results import AttackScore, Membership, Utility, kept_part
from adaptive_qs.evaluation.tables import OWNER_ONLY, TablePair
from adaptive_qs.evaluation.verdict import (
    ColumnPair,
    Findings,
    next_sentence,
    verdict,
    why_no_promise,
)
from adaptive_qs.pages.charts import (
    Bar,
    BarChart,
    Cell,
    HeatMap,
    Line,
    Mark,
    diverging_cell,
    sequential_cell,
)
from adaptive_qs.pages.words import decimals, render, significant
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.page import Group, budget_parts
from adaptive_qs.release.page import column_chart as chart_of_column
from adaptive_qs.release.statement import Statement, versions
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.related import TableName
from adaptive_qs.table.schema import Schema


def column_chart(column: ColumnPair, schema: Schema) -> BarChart:
    """Shares of both tables; values are put together by their larger share."""
    true, made = column.shares

    def bar(group: Group) -> Bar:
        codes = list(group.codes)
        values = (float(true[codes].sum()), float(made[codes].sum()))
        return Bar(group.label, values, ends=group.ends)

    weights = np.maximum(true, made).tolist()
    return chart_of_column(schema.column(column.name), weights, bar)


# Heat maps: association of both tables, and errors of pairs.

Matrix = NDArray[np.float64]
MOST_COLUMNS = 24
"""Rows and columns of a heat map."""
LEAST_TOP = 0.2
"""The darkest colour of a map of differences stands for at least this, so that noise is pale."""


def most_different(difference: Matrix, most: int = MOST_COLUMNS) -> list[int]:
    """The attributes with the largest values beside another one, in the schema's order."""
    absolute = np.nan_to_num(np.abs(difference))
    np.fill_diagonal(absolute, 0)
    worst = absolute.max(axis=1) if len(absolute) else absolute
    return sorted(np.argsort(-worst, kind="stable")[:most].tolist())


def pair_errors(domain: Domain, cliques: Sequence[CliqueError]) -> Matrix:
    """For each two attributes the mean L1 error of the marginals that hold both; NaN if none."""
    total, number = np.zeros((2, len(domain), len(domain)))
    for clique in cliques:
        for i, j in combinations(domain.clique(clique.attributes), 2):
            total[i, j] += clique.l1
            number[i, j] += 1
    total, number = total + total.T, number + number.T
    return np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)


def _heat(
    caption: str,
    matrix: Matrix,
    names: Sequence[str],
    chosen: Sequence[int],
    top: float,
    signed: bool = False,
) -> HeatMap:
    cell_of = diverging_cell if signed else sequential_cell
    rows = [
        tuple(Cell("") if i == j else cell_of(float(matrix[i, j]), top) for j in chosen)
        for i in chosen
    ]
    return HeatMap(caption, tuple(names[i] for i in chosen), tuple(rows))


# Models and the attack as marks on a line.


def score_rows(utility: Utility) -> list[dict[str, Any]]:
    """Every model by every measure: trained on true and on synthetic rows, a guess, the part of the
    gain over chance that is left, and the same as a picture."""
    rows = []
    for model in utility.models:
        for measure, real in model.real.items():
            made, chance = model.synthetic[measure], model.chance.get(measure)
            label = (
                f"{measure} of {model.model}: true {significant(real.mean)}, "
                f"synthetic {significant(made.mean)}"
            )
            marks = [
                Mark(kind, found.mean, found.mean - found.std, found.mean + found.std)
                for kind, found in (("a", real), ("b", made))
            ]
            if chance is not None:
                label += f", chance {significant(chance.mean)}"
                marks.insert(0, Mark("chance", chance.mean))
            row = {"model": model.model, "measure": measure, "real": real, "synthetic": made}
            row |= {"chance": chance, "line": Line(0.0, 1.0, tuple(marks), label)}
            row["kept"] = kept_part(real.mean, made.mean, chance.mean if chance else None)
            rows.append(row)
    return rows


def attack_lines(membership: Membership) -> list[tuple[AttackScore, Line]]:
    """Each attack's advantage with its interval, and the bound, on one axis."""
    bound = membership.bound
    values = [v for s in membership.scores for v in (s.lower, s.upper)] + [0.0]
    low, high = min(values), max(*values, bound or 0.0) or 1.0
    margin = 0.04 * (high - low)
    lines = []
    for score in membership.scores:
        marks = [Mark("chance", 0.0), Mark("b", score.advantage, score.lower, score.upper)]
        label = (
            f"advantage {decimals(score.advantage)}, interval {decimals(score.lower)} to "
            f"{decimals(score.upper)}"
        )
        if bound is not None:
            marks.insert(1, Mark("limit", bound))
            label += f", bound {significant(bound)}"
        lines.append((score, Line(low - margin, high + margin, tuple(marks), label)))
    return lines


def group_lines(found: GroupErrors | None) -> list[tuple[GroupError, Line | None]]:
    """Each group's error and that of a fresh sample of its size on one axis, all rows last."""
    if found is None:
        return []
    groups = (*found.groups, found.all)
    top = max(v for g in groups for v in (g.error, g.fresh, 0.0) if v is not None) or 1.0

    def line(group: GroupError) -> Line | None:
        if group.error is None or group.fresh is None:
            return None
        label = f"error {significant(group.error)}, fresh sample {significant(group.fresh)}"
        return Line(0.0, top, (Mark("chance", group.fresh), Mark("b", group.error)), label)

    return [(group, line(group)) for group in groups]


# Some rows of both tables, as people would see them.

ROWS_SAMPLED, COLUMNS_SAMPLED = 8, 12


class Samples(NamedTuple):
    """Names of columns, and some rows of each table as texts, under a title; and how many columns
    are left out."""

    names: tuple[str, ...]
    tables: tuple[tuple[str, list[list[str]]], ...]
    left_out: int


def sampled_rows(pair: TablePair, schema: Schema) -> Samples:
    """Rows drawn evenly, in their order; values where the cells are known, else labels of codes."""
    columns = schema.columns[:COLUMNS_SAMPLED]
    tables = []
    for table, (name, coded) in enumerate((("True", pair.true), ("Synthetic", pair.synthetic))):
        rng = np.random.default_rng(0)
        number = min(ROWS_SAMPLED, coded.num_rows)
        rows = np.sort(rng.choice(coded.num_rows, number, replace=False))
        texts = [_texts(pair, table, place, column, rows) for place, column in enumerate(columns)]
        tables.append((f"{name} rows", [list(row) for row in zip(*texts)]))
    return Samples(schema.names[: len(columns)], tuple(tables), len(schema.columns) - len(columns))


def _texts(
    pair: TablePair, table: int, place: int, column: ColumnBase, rows: NDArray[np.int64]
) -> list[str]:
    coded = (pair.true, pair.synthetic)[table]
    labels = column.labels_of_codes()
    texts = [labels[code] for code in coded.columns[place][rows]]
    if (amounts := pair.amounts[table].get(column.name)) is None:
        return texts
    known = amounts[rows]
    return [t if np.isnan(v) else column.amount_text(v, whole=True) for t, v in zip(texts, known)]


# The page.

Names = tuple[str, str]
"""Of the true and of the synthetic table, as they are shown."""

COLUMNS_SHOWN = 24
CLIQUES_SHOWN = 25
IMPORTANCES_SHOWN = 20
LONG_TABLE = 200
"""Rows of the long tables that are folded away."""


def report_page(
    found: Findings,
    schema: Schema,
    names: Names,
    release: Bundle | Statement | None,
    whole: str = "",
) -> str:
    """One HTML file for the owner of the data only; the same input gives the same text.

    Args:
        found: the evaluation of the two tables, and what its numbers mean.
        schema: of both, for the names of their values.
        names: of the true and of the synthetic table, as they are shown.
        release: what the synthetic table came from, or the statement beside it, if known.
        whole: name of the page about both tables, where this is one of two related ones.
    """
    evaluation, columns = found.evaluation, found.columns
    bundle = release if isinstance(release, Bundle) else None
    statement = release.manifest if isinstance(release, Bundle) else release
    unconnected = bundle.manifest.unconnected if bundle else ()
    judged = verdict(found, statement)
    domain, cliques = evaluation.pair.domain, evaluation.workload.per_clique
    chosen = most_different(found.associations.difference)

    def association_maps(matrices: tuple[Matrix, Matrix], measure: str) -> list[HeatMap]:
        true, made = matrices
        off = ~np.eye(len(true), dtype=bool)
        top = max(LEAST_TOP, float(np.nanmax(np.abs(made - true), where=off, initial=0)))
        return [
            _heat(f"{measure}, true table", true, domain.names, chosen, 1.0),
            _heat(f"{measure}, synthetic table", made, domain.names, chosen, 1.0),
            _heat(f"{measure}, synthetic less true", made - true, domain.names, chosen, top, True),
        ]

    errors, error_map = pair_errors(domain, cliques), None
    widest, in_map = max(len(c.attributes) for c in cliques), most_different(errors)
    if widest > 1 and len(in_map) > 1:
        shown = errors[np.ix_(in_map, in_map)]
        top = float(np.nanmax(shown)) if np.isfinite(shown).any() else 1.0
        caption = (
            "L1 error of every pair"
            if widest == 2
            else "Mean L1 error of the workload's marginals that hold both columns"
        )
        error_map = _heat(caption, errors, domain.names, in_map, top)
    return render(
        "report.html",
        ("adaptive_qs.evaluation", "adaptive_qs.release.release"),
        names=names,
        whole=whole,
        notice=OWNER_ONLY,
        evaluation=evaluation,
        schema=schema,
        sentences=[*judged.sentences, next_sentence(found, judged, unconnected)],
        scale=found.scale,
        changes=found.associations,
        statement=statement,
        budget=budget_parts(statement) if statement else None,
        rounds=bundle.rounds if bundle else None,
        unconnected=unconnected,
        no_promise=why_no_promise(statement),
        columns=columns,
        cards=[(c, column_chart(c, schema)) for c in columns[:COLUMNS_SHOWN]],
        chosen=len(chosen),
        cramers_v=association_maps(evaluation.association.cramers_v, "Cramér's V"),
        information=association_maps(
            evaluation.association.mutual_information, "Mutual information"
        ),
        error_map=error_map,
        worst=sorted(cliques, key=lambda c: (-c.l1, c.attributes))[:LONG_TABLE],
        ordered=sorted(evaluation.ordered, key=lambda o: -o.range_max)[:LONG_TABLE],
        scores=score_rows(evaluation.utility) if evaluation.utility else [],
        attacks=attack_lines(evaluation.membership) if evaluation.membership else [],
        definitions=DEFINITIONS,
        versions=versions(),
        samples=sampled_rows(evaluation.pair, schema),
        by_lines=group_lines(evaluation.by),
        most_cliques=CLIQUES_SHOWN,
        most_importances=IMPORTANCES_SHOWN,
        long_table=LONG_TABLE,
    )


# Two related tables: a page about both, which leads to one for each.


def related_pages(
    found: RelatedEvaluation,
    judged: RelatedVerdict,
    names: Mapping[TableName, Names],
    files: Mapping[TableName, str],
    whole: str,
) -> dict[str, str]:
    """HTML files by their names, for the owner of the data only.

    Args:
        found: the evaluation of both tables.
        judged: what its numbers mean.
        names: of the tables.
        files: names of the pages about each table.
        whole: name of the page about both.
    """
    schema, scale = found.schema, judged.across_scale
    pages = {
        files[name]: report_page(
            judged.findings[name], described, names[name], part.promised.release, whole
        )
        for (name, part), described in zip(
            found.by_table.items(), (schema.counted, schema.joined), strict=True
        )
    }
    statement = found.children.promised.statement
    page = render(
        "related.html",
        ("adaptive_qs.evaluation", "adaptive_qs.release.release"),
        names=names,
        files=files,
        notice=OWNER_ONLY,
        found=found,
        judged=judged,
        statement=statement,
        no_promise=why_no_promise(statement),
        number=judged.number,
        chart=column_chart(judged.number, schema.counted),
        across=[(error, scale.per_clique.get(error.attributes)) for error in found.across],
        scale=scale,
        versions=versions(),
        long_table=LONG_TABLE,
    )
    return {whole: page, **pages}
