"""`evaluate TRUE SYNTHETIC`: an owner-only comparison, the worst first in every part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_qs.cli import related_tables
from adaptive_qs.cli.io import (
    Row,
    check_read_once,
    emit,
    emit_figures,
    emit_json,
    emit_rows,
    percent,
    progress_bars,
    readable,
    shown,
    taken_json,
    taken_rows,
    warn,
)
from adaptive_qs.cli.options import (
    TABLE_HELP,
    ForceOptions,
    JsonOptions,
    QueryOptions,
    SchemaOptions,
    WorkloadOptions,
    check_distinct,
    check_file,
    file_of,
    table_of,
    with_sidecar,
    workload_spec,
)
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import OUTPUT, MachineOptions, Option

if TYPE_CHECKING:
    from adaptive_qs.evaluation.evaluation import Evaluation
    from adaptive_qs.evaluation.groups import GroupErrors
    from adaptive_qs.evaluation.results import Membership, Spread, Utility
    from adaptive_qs.evaluation.verdict import Findings, Verdict
    from adaptive_qs.table.sql import Query


# What `evaluate` prints for people: the worst first in every part.

WORST_SHOWN = 10


def show(
    found: Findings, judged: Verdict, seconds: Mapping[str, float], report: Path | None
) -> None:
    """Print an evaluation, the verdict first.

    Args:
        found: the evaluation, and what its numbers mean.
        judged: the verdict on it.
        seconds: per phase.
        report: the page that was written, if one was.
    """
    evaluation = found.evaluation
    emit_rows(f"Verdict: {judged.overall.word}", _listed(judged.brief))
    _rows(evaluation)
    _values(evaluation)
    if evaluation.by is not None:
        _groups(evaluation.by)
    _marginals(evaluation)
    _associations(found)
    _ordered(evaluation)
    if evaluation.utility is not None:
        _utility(evaluation.utility)
    if evaluation.membership is not None:
        _membership(evaluation.membership)
    if evaluation.limitations:
        emit_rows("Limitations", _listed(evaluation.limitations))
    closing = [("publish", "no: all of this is computed from private rows, without noise")]
    if (promise := evaluation.promised.promise) is not None:
        known = "" if promise.epsilon is None else f"epsilon {promise.epsilon:.6g}"
        known += "" if promise.delta is None else f", delta {promise.delta:g}"
        closing.append(("promise", f"{known} ({promise.source})"))
    if report is not None:
        closing.append(("report", str(report)))
    closing.extend(taken_rows(seconds))
    emit_rows("Done.", closing)


def _listed(sentences: Iterable[str]) -> list[Row]:
    return [("-", text) for text in sentences]


def _figures(
    heads: Sequence[str], items: Iterable[Any], name: Callable[[Any], str], *forms: str
) -> None:
    """A table with a line for each item: its name, and its fields in these forms; if there are
    any."""
    if rows := [(name(item), *(form.format(item) for form in forms)) for item in items]:
        emit_figures(heads, rows)


def _marginals(evaluation: Evaluation) -> None:
    distance, asked = evaluation.workload, evaluation.queries
    rmse = f"{distance.rmse:.3g} of the rows, over all cells"
    if asked is not None:
        rmse = f"{asked.rmse:.3g} of the rows, over the "
        rmse += f"{counted(asked.queries, 'query', 'queries')} of the workload"
        rmse += ", weighted" if asked.weighted else ""
    emit_rows(
        f"L1 distance of {counted(len(distance.per_clique), 'marginal')}: 0 is equal, 2 has "
        "nothing in common",
        [
            ("mean", f"{distance.mean_l1:.4f}"),
            ("largest", f"{distance.max_l1:.4f}"),
            ("RMSE", rmse),
        ],
    )
    if asked is not None:
        rows = evaluation.pair.true.num_rows
        heads = ["queries", "number", "RMSE", "in rows", "fresh sample", "independent columns"]
        figures = [
            (p.title, f"{p.queries:,}", f"{p.rmse:.3g}", f"{p.rmse * rows:,.4g}", f"{p.fresh:.3g}",
             f"{p.independent:.3g}" if p.ways > 1 else "n/a")
            for p in asked.parts
        ]  # fmt: skip
        emit_figures(heads, figures)
    worst = sorted(distance.per_clique, key=lambda clique: -clique.l1)[:WORST_SHOWN]
    heads = ["worst marginals", "cells", "error"]
    _figures(heads, worst, lambda c: " x ".join(c.attributes), "{0.cells:,}", "{0.l1:.4f}")
    emit_figures(
        ["total variation", "marginals", "worst", "largest", "mean"],
        [
            (
                f"{part.ways}-way",
                f"{part.compared:,} of " * (part.compared < part.marginals) + f"{part.marginals:,}",
                " x ".join(part.worst),
                f"{part.max:.4f}",
                f"{part.mean:.4f}",
            )
            for part in evaluation.total_variation
        ],
    )


def _associations(found: Findings) -> None:
    from adaptive_qs.evaluation.marginals import mean_and_largest

    association, changes = found.evaluation.association, found.associations
    if len(association.names) < 2:
        return
    lines: list[Row] = []
    for name, (true, made) in (
        ("Cramér's V", association.cramers_v),
        ("mutual information", association.mutual_information),
    ):
        mean, largest = mean_and_largest(made - true)
        lines.append((name, f"{mean:.4f} on average, {largest:.4f} at most"))
    if changes.unlisted:
        pairs = counted(changes.unlisted, "pair")
        lines.append(("not listed", f"{pairs} whose V differs, but rests on too few rows"))
    emit_rows("Associations of two columns, from 0 to 1: how far they differ", lines)
    heads = ["Cramér's V differs most", "true", "synthetic", "difference"]
    forms = ("{0.true:.3f}", "{0.synthetic:.3f}", "{0.difference:+.3f}")
    _figures(heads, changes.largest, lambda c: " x ".join(c.names), *forms)


def _ordered(evaluation: Evaluation) -> None:
    from adaptive_qs.evaluation.verdict import moved_means

    heads = ["ordered columns", "prefix RMSE", "largest", "range RMSE", "largest", "mean shift"]
    forms = [f"{{0.{field}:.4f}}" for field in ("prefix_rmse", "prefix_max", "range_rmse")]
    ends = ("{0.range_max:.4f}", "{0.mean_shift:+.3f} sd")
    worst = sorted(evaluation.ordered, key=lambda error: -error.range_max)[:WORST_SHOWN]
    _figures(heads, worst, lambda error: error.attribute, *forms, *ends)
    heads = ["means that moved most", "largest range", "mean shift"]
    moved = moved_means(evaluation)[:WORST_SHOWN]
    _figures(heads, moved, lambda error: error.attribute, *ends)


def _rows(evaluation: Evaluation) -> None:
    rows, unseen = evaluation.rows, evaluation.unseen
    lines: list[Row] = [
        (
            "exact matches",
            f"{percent(rows.exact_matches)} of the synthetic rows are true rows; "
            f"{percent(rows.expected_if_independent)} if columns were independent, "
            f"{percent(rows.expected_if_redrawn)} of one half of the true rows in the other",
        ),
        ("unique matches", f"{percent(rows.unique_matches)} equal a true row that occurs once"),
        (
            "repeated",
            f"{percent(rows.repeated)} of the synthetic rows, "
            f"{percent(rows.true_repeated)} of the true rows",
        ),
    ]
    if unseen is not None:
        text = (
            f"{percent(unseen.share)} of the synthetic rows have two values that no true row "
            f"has together; about {percent(unseen.expected_if_redrawn)} of new true ones"
        )
        lines.append(("unseen pairs", text))
    emit_rows("Whole rows, in the codes of the schema", lines)
    if unseen is not None and unseen.worst:
        emit_figures(
            ["most unseen pairs", "synthetic rows"],
            [(" x ".join(p.attributes), percent(p.share)) for p in unseen.worst[:WORST_SHOWN]],
        )
    if evaluation.rules:
        worst = sorted(evaluation.rules, key=lambda rule: -rule.broken_synthetic)
        shares = [
            (r.broken_true, r.broken_synthetic, r.expected_if_independent, r.judged_synthetic)
            for r in worst
        ]
        emit_figures(
            ["rules", "", "broken: true", "synthetic", "if independent", "rows judged"],
            [(r.rule, r.source, *map(percent, parts)) for r, parts in zip(worst, shares)],
        )


def _values(evaluation: Evaluation) -> None:
    """Print means and quantiles in the units of the columns, and means by groups."""
    figures = []
    for found in evaluation.values[:WORST_SHOWN]:
        words = found.column.amount_text
        for name, table in (("true", found.true), ("synthetic", found.synthetic)):
            quantiles = [words(value, whole=True) for value in table.quantiles]
            label = found.column.name if name == "true" else ""
            figures.append((label, name, words(table.mean), *quantiles))
    if figures:
        heads = ["values", "", "mean", "5 %", "25 %", "median", "75 %", "95 %"]
        emit_figures(heads, figures)
    for means in evaluation.group_means:
        words = means.column.amount_text
        emit_figures(
            [f"mean {means.column.name} by {means.by}", "true rows", "true", "synthetic"],
            [
                (g.label, f"{g.rows[0]:,}", *("n/a" if m is None else words(m) for m in g.means))
                for g in means.groups[:WORST_SHOWN]
            ],
        )


def _groups(found: GroupErrors) -> None:
    """Print the errors within groups, each beside its chance level."""
    emit_figures(
        [f"groups of {found.by}", "true rows", "synthetic rows", "error", "fresh sample"],
        [
            (g.label, *(f"{n:,}" for n in g.rows),
             *("n/a" if e is None else f"{e:.4f}" for e in (g.error, g.fresh)))
            for g in (*found.groups, found.all)
        ],
    )  # fmt: skip


def _utility(utility: Utility) -> None:
    """Print what models reach, trained on either table."""
    chosen = "proposed by the program" if utility.proposed else "as asked for"
    real, synthetic = utility.train_rows
    rows = (
        f"{real:,} true or {synthetic:,} synthetic rows, tested on {utility.test_rows:,} other "
        "true rows"
    )
    propensity = (
        f"AUC {utility.propensity.mean:.3f} of a classifier of true and synthetic rows; 0.5 if "
        "it cannot tell them apart"
    )
    classes = counted(utility.classes, "class", "classes")
    emit_rows(
        f"Models that predict {utility.target} ({chosen}, {classes})",
        [("trained on", rows), ("propensity", propensity)],
    )

    def score(found: Spread) -> str:  # one repeat has no standard deviation
        return f"{found.mean:.3f}" + f" ± {found.std:.3f}" * (found.repeats > 1)

    emit_figures(
        ["model", "measure", "trained on true", "on synthetic", "chance"],
        [
            (m.model, k, score(true), score(m.synthetic[k]), f"{m.chance[k].mean:.3f}")
            for m in utility.models
            for k, true in m.real.items()
        ],
    )
    if utility.limitations:
        emit_rows("Models: know that", _listed(utility.limitations))


def _membership(membership: Membership) -> None:
    """Print what the attacks reach, beside what the promise allows."""
    bound = "not known: no promise was found beside the table, and no --release given"
    if membership.bound is not None:
        bound = (
            f"{membership.bound:.4f}: no attack on releases with this promise has a larger one "
            "on average"
        )
    rows = (
        f"{membership.members:,} of the true table, {membership.non_members:,} of the control table"
    )
    emit_rows(
        "Membership attacks: advantage, 0 is a blind guess and 1 certain",
        [("rows", rows), ("bound", bound)],
    )
    heads = ["attack", f"{membership.confidence:.0%} interval", "AUC", "advantage"]
    forms = ("{0.lower:+.3f} .. {0.upper:+.3f}", "{0.auc:.3f}", "{0.advantage:+.3f}")
    _figures(heads, membership.scores, lambda score: score.attack, *forms)
    if membership.limitations:
        emit_rows("Attacks: know that", _listed(membership.limitations))


MODELS, ATTACK = "Models", "Membership attack"


@dataclass(kw_only=True)
class Options(JsonOptions, ForceOptions, WorkloadOptions, MachineOptions, QueryOptions,
              SchemaOptions):  # fmt: skip
    """The options of `evaluate`."""

    related: Annotated[Path | None, Option(
        "Private table of the children of the rows of TRUE: compares related tables. TRUE and "
        "SYNTHETIC can be folders with both instead, whose files the schema names.", "FILE"
    )] = None  # fmt: skip
    related_synthetic: Annotated[Path | None, Option(
        "Synthetic table of the children of two related tables.", "FILE")] = None  # fmt: skip
    rule: Annotated[list[str] | None, Option(
        'Rule to check, such as "start <= end" or "city determines country". Repeat the option '
        "for more rules.", "TEXT")] = None  # fmt: skip
    by: Annotated[str | None, Option(
        "Also give the error within each group of this column, next to that of a sample of the "
        "group's size.", "COLUMN")] = None  # fmt: skip
    weigh: Annotated[str | None, Option(
        "What counts alike: rows, or persons, of whom one true row each is compared.", "KIND",
        default="as in the release behind SYNTHETIC, or rows")] = None  # fmt: skip
    target: Annotated[str | None, Option(
        "Train models that predict this column on either table, and test them on true rows.",
        "COLUMN", MODELS, "with --report, a column that the program proposes")] = None  # fmt: skip
    no_models: Annotated[bool, Option("Leave the models out of the report.", "", MODELS)] = False
    repeats: Annotated[int, Option(
        "Splits that models are trained and tested on.", "N", MODELS)] = 5  # fmt: skip
    seed: Annotated[int, Option("Seed of the splits, the models and the attacks.", "N", MODELS)] = 0
    control: Annotated[Path | None, Option(
        "Rows of the same kind that SYNTHETIC was not made from: attacks try to distinguish them "
        "from those of TRUE, and models are tested on them.", "FILE", ATTACK)] = None  # fmt: skip
    release: Annotated[Path | None, Option(
        "Release bundle of SYNTHETIC, for its privacy promise.", "FILE", ATTACK,
        "the statement next to SYNTHETIC")] = None  # fmt: skip
    report: Annotated[Path | None, Option(
        "Also write one self-contained HTML page, for the owner only. It trains models, too.",
        "FILE", OUTPUT)] = None  # fmt: skip


def evaluate(
    true: Annotated[
        Path | None,
        typer.Argument(metavar="[TRUE]", help=f"The private table: {TABLE_HELP}"),
    ] = None,
    synthetic: Annotated[
        Path | None,
        typer.Argument(metavar="SYNTHETIC", help=f"The synthetic one: {TABLE_HELP}"),
    ] = None,
    *,
    options: Options,
) -> None:
    """Compare a synthetic table with the true one; the result is for the owner only.

    --schema can be a release bundle, which holds the schema with everything that was learnt.

    With a workload file of queries other than marginals, the RMSE is that of its queries.

    The error of a marginal is the sum over its cells of |a/Na - b/Nb|, from 0 (equal) to 2.
    """
    both = options.related is not None or options.related_synthetic is not None
    if both or related_tables.describes_both(true, options.schema):
        related_tables.evaluate(true, synthetic, options)
        return
    schema, control, release, report = (
        options.schema, options.control, options.release, options.report,
    )  # fmt: skip
    private, synthetic = _tables(true, synthetic, options.sql, options.database)
    if schema is None:
        raise InputError("no --schema was given: name the schema of both tables")
    spec = workload_spec(options.workload, options.ways)
    check_read_once([private, synthetic, control])
    if report is not None:
        inputs = [file_of(private), *with_sidecar(synthetic), schema, control, release]
        check_distinct([report], [*inputs, options.workload])
        check_file(report, options.force)
    _check_control(control, private, synthetic)
    if options.no_models and options.target is not None:
        raise InputError("both --no-models and --target were given: give one of them")

    from adaptive_qs.evaluation.evaluation import evaluate as compare
    from adaptive_qs.evaluation.evaluation import evaluation_json
    from adaptive_qs.evaluation.sentences import SERVES
    from adaptive_qs.evaluation.tables import OWNER_ONLY
    from adaptive_qs.evaluation.verdict import findings, verdict
    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.table.schema import Schema

    threads = plan_workers(options.workers)
    released = _released(private, synthetic, release)
    described = Schema.load(schema, options.max_memory)
    with progress_bars() as bars, ExitStack() as opened:
        clock = PhaseClock(bars)
        clock.start("read")
        first, second = (opened.enter_context(readable(each)) for each in (private, synthetic))
        result = compare(
            first,
            second,
            described,
            spec,
            rules=options.rule or (),
            by=options.by,
            weigh=options.weigh,
            target=options.target,
            models=report is not None and not options.no_models,
            repeats=options.repeats,
            control=None if control is None else opened.enter_context(readable(control)),
            release=release,
            seed=options.seed,
            workers=threads,
            max_memory=options.max_memory,
            progress=clock,
        )
        promised = result.promised
        unknown = promised.limitation if report is not None and control is None else None
        said = [text for text in (released, unknown) if text is not None]
        result = replace(result, limitations=(*result.limitations, *said))
        found = findings(result, threads, clock.steps("verdict"))
        if report is not None:
            from adaptive_qs.evaluation.report import report_page
            from adaptive_qs.table.files import atomic_writer

            clock.start("write")
            names = shown(Path(file_of(private).name)), shown(Path(synthetic.name))
            page = report_page(found, described, names, promised.release)
            with atomic_writer(report, options.force) as file:
                file.write(page.encode())
        seconds = clock.stop()
    judged = verdict(found, promised.statement)
    if options.as_json:
        emit_json(
            {
                **evaluation_json(result, judged.brief),
                "uses": {what: SERVES[grade] for what, grade in judged.uses},
                "report": None if report is None else str(report),
                **taken_json(seconds),
            }
        )
        return
    if not sys.stdout.isatty():  # who reads only stderr must see it, too
        warn(OWNER_ONLY)
    emit(OWNER_ONLY)
    show(found, judged, seconds, report)


def _tables(
    true: Path | None, synthetic: Path | None, sql: str | None, database: Path | None
) -> tuple[Path | Query, Path]:
    """The private table and the synthetic one, which is the only argument beside a query."""
    if sql is not None and synthetic is None:
        true, synthetic = None, true
    private = table_of(true, sql, database, "TRUE")
    if private is None or synthetic is None:
        missing = "SYNTHETIC" if sql is not None or private is not None else "TRUE"
        raise InputError(f"no {missing} was given: name the private table, then the synthetic one")
    return private, synthetic


def _check_control(control: Path | None, true: Path | Query, synthetic: Path) -> None:
    """Refuse a control table that is one of the others, before anything is read."""
    for name, other in (("TRUE", true), ("SYNTHETIC", synthetic)):
        with suppress(OSError):  # a file that is missing is named where it is read
            if control is not None and isinstance(other, Path) and control.samefile(other):
                raise InputError(
                    f"{control}: is also {name}: give rows that were held out as --control"
                )


def _released(true: Path | Query, synthetic: Path, release: Path | None) -> str | None:
    """That a privacy statement lies beside the true table, which is for released ones.

    Raises:
        InputError: and none is known of the synthetic one, so that they seem to be swapped.
    """
    from adaptive_qs.release.bundle import manifest_path

    if not isinstance(true, Path) or not exists(statement := manifest_path(true)):
        return None
    if release is None and not exists(manifest_path(synthetic)):
        raise InputError(
            f"{true}: is a released table, {statement.name} lies beside it, and nothing says "
            f"so of {synthetic}: swap them, the private table comes first"
        )
    return (
        f"the table that was given as the true one is a released one: {statement.name} lies beside "
        "it, so that errors are those between two releases"
    )
