"""`evaluate TRUE SYNTHETIC`: an owner-only comparison, the worst first in every part."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli.io import (
    Row,
    check_distinct,
    check_file,
    check_read_once,
    emit,
    emit_figures,
    emit_json,
    emit_rows,
    peak_memory_mb,
    percent,
    progress_bars,
    readable,
    shown,
    warn,
    with_sidecar,
)
from adaptive_qs.cli.options import TABLE_HELP, option, workload_spec
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted

if TYPE_CHECKING:
    from adaptive_qs.evaluation.evaluation import Evaluation
    from adaptive_qs.evaluation.results import Membership, Promise, Spread, Utility, UtilitySettings
    from adaptive_qs.evaluation.tables import TablePair
    from adaptive_qs.evaluation.verdict import Findings, Verdict
    from adaptive_qs.machine import PhaseClock
    from adaptive_qs.table.coded import CodedTable
    from adaptive_qs.table.schema import Schema


# What `evaluate` prints for people: the worst first in every part.

WORST_SHOWN = 10


def show(
    found: Findings,
    judged: Verdict,
    promise: Promise | None,
    seconds: Mapping[str, float],
    report: Path | None,
) -> None:
    """Print an evaluation, the verdict first.

    Args:
        found: the evaluation, and what its numbers mean.
        judged: the verdict on it.
        promise: of the release, where known.
        seconds: per phase.
        report: the page that was written, if one was.
    """
    evaluation = found.evaluation
    emit_rows(f"Verdict: {judged.overall.word}", _listed(judged.brief))
    _marginals(evaluation)
    _associations(found)
    _ordered(evaluation)
    _rows(evaluation)
    if evaluation.utility is not None:
        _utility(evaluation.utility)
    if evaluation.membership is not None:
        _membership(evaluation.membership)
    if evaluation.limitations:
        emit_rows("Limitations", _listed(evaluation.limitations))
    closing: list[Row] = [
        ("publish", "no: all of this is computed from private rows, without noise")
    ]
    if promise is not None:
        known = "" if promise.epsilon is None else f"epsilon {promise.epsilon:.6g}"
        known += "" if promise.delta is None else f", delta {promise.delta:g}"
        closing.append(("promise", f"{known} ({promise.source})"))
    if report is not None:
        closing.append(("report", str(report)))
    spent = ", ".join(f"{phase} {spent:.1f}" for phase, spent in seconds.items())
    closing.append(("seconds", spent))
    if (peak := peak_memory_mb()) is not None:
        closing.append(("memory", f"{peak:,.0f} MB at most"))
    emit_rows("Done.", closing)


def _listed(sentences: Iterable[str]) -> list[Row]:
    return [("-", text) for text in sentences]


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
        emit_figures(
            ["queries", "number", "RMSE", "in rows", "fresh sample", "independent columns"],
            [
                (
                    part.title,
                    f"{part.queries:,}",
                    f"{part.rmse:.3g}",
                    f"{part.rmse * rows:,.4g}",
                    f"{part.fresh:.3g}",
                    f"{part.independent:.3g}" if part.ways > 1 else "n/a",
                )
                for part in asked.parts
            ],
        )
    worst = sorted(distance.per_clique, key=lambda clique: -clique.l1)[:WORST_SHOWN]
    emit_figures(
        ["worst marginals", "cells", "error"],
        [(" x ".join(c.attributes), f"{c.cells:,}", f"{c.l1:.4f}") for c in worst],
    )
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
    from adaptive_qs.evaluation.pairs import mean_and_largest

    association, changes = found.evaluation.association, found.associations
    if len(association.names) < 2:
        return
    lines: list[Row] = []
    for name, difference in (
        ("Cramér's V", association.cramers_v_difference),
        ("mutual information", association.mutual_information_difference),
    ):
        mean, largest = mean_and_largest(difference)
        lines.append((name, f"{mean:.4f} on average, {largest:.4f} at most"))
    if changes.unlisted:
        pairs = counted(changes.unlisted, "pair")
        lines.append(("not listed", f"{pairs} whose V differs, but rests on too few rows"))
    emit_rows("Associations of two columns, from 0 to 1: how far they differ", lines)
    if changes.largest:
        emit_figures(
            ["Cramér's V differs most", "true", "synthetic", "difference"],
            [
                (
                    " x ".join(c.names),
                    f"{c.true:.3f}",
                    f"{c.synthetic:.3f}",
                    f"{c.synthetic - c.true:+.3f}",
                )
                for c in changes.largest
            ],
        )


def _ordered(evaluation: Evaluation) -> None:
    from adaptive_qs.evaluation.verdict import moved_means

    worst = sorted(evaluation.ordered, key=lambda error: -error.range_max)[:WORST_SHOWN]
    if worst:
        emit_figures(
            ["ordered columns", "prefix RMSE", "largest", "range RMSE", "largest", "mean shift"],
            [
                (
                    error.attribute,
                    f"{error.prefix_rmse:.4f}",
                    f"{error.prefix_max:.4f}",
                    f"{error.range_rmse:.4f}",
                    f"{error.range_max:.4f}",
                    f"{error.mean_shift:+.3f} sd",
                )
                for error in worst
            ],
        )
    if moved := moved_means(evaluation)[:WORST_SHOWN]:
        emit_figures(
            ["means that moved most", "largest range", "mean shift"],
            [(e.attribute, f"{e.range_max:.4f}", f"{e.mean_shift:+.3f} sd") for e in moved],
        )


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
        lines.append(
            (
                "unseen pairs",
                f"{percent(unseen.share)} of the synthetic rows have two values that no true row "
                f"has together; about {percent(unseen.expected_if_redrawn)} of new true ones",
            )
        )
    emit_rows("Whole rows, in the codes of the schema", lines)
    if unseen is not None and unseen.worst:
        emit_figures(
            ["most unseen pairs", "synthetic rows"],
            [(" x ".join(p.attributes), percent(p.share)) for p in unseen.worst[:WORST_SHOWN]],
        )
    if evaluation.rules:
        emit_figures(
            ["rules", "", "broken: true", "synthetic", "if independent"],
            [
                (
                    check.rule,
                    check.source,
                    percent(check.broken_true),
                    percent(check.broken_synthetic),
                    percent(check.expected_if_independent),
                )
                for check in sorted(evaluation.rules, key=lambda rule: -rule.broken_synthetic)
            ],
        )


def _utility(utility: Utility) -> None:
    """Print what models reach, trained on either table."""
    chosen = "proposed by the program" if utility.proposed else "as asked for"
    real, synthetic = utility.train_rows
    emit_rows(
        f"Models that predict {utility.target} ({chosen}, "
        f"{counted(utility.classes, 'class', 'classes')})",
        [
            (
                "trained on",
                f"{real:,} true or {synthetic:,} synthetic rows, tested on "
                f"{utility.test_rows:,} other true rows",
            ),
            (
                "propensity",
                f"AUC {utility.propensity.mean:.3f} of a classifier that tells true from synthetic "
                "rows; 0.5 if it cannot",
            ),
        ],
    )

    def score(found: Spread) -> str:  # one repeat has no standard deviation
        return f"{found.mean:.3f}" + f" ± {found.std:.3f}" * (found.repeats > 1)

    emit_figures(
        ["model", "measure", "trained on true", "on synthetic", "chance"],
        [
            (
                model.model,
                measure,
                score(true),
                score(model.synthetic[measure]),
                f"{model.chance[measure].mean:.3f}",
            )
            for model in utility.models
            for measure, true in model.real.items()
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
    emit_figures(
        ["attack", f"{membership.confidence:.0%} interval", "AUC", "advantage"],
        [
            (
                score.attack,
                f"{score.lower:+.3f} .. {score.upper:+.3f}",
                f"{score.auc:.3f}",
                f"{score.advantage:+.3f}",
            )
            for score in membership.scores
        ],
    )
    if membership.limitations:
        emit_rows("Attacks: know that", _listed(membership.limitations))


# `evaluate TRUE SYNTHETIC`: an owner-only comparison, and what it is given.

# The options that `evaluate` has to itself.

_MODELS, _ATTACK, _OUTPUT = "Models", "Membership attack", "Output"

WorkloadFile = Annotated[
    Path | None,
    option(
        "--workload", "FILE", "Workload file: the marginals or other queries that matter.", None
    ),
]
Rules = Annotated[
    list[str] | None,
    option(
        "--rule",
        "TEXT",
        'A rule to check, such as "start <= end" or "city determines country"; repeat it for more.',
        None,
    ),
]
Report = Annotated[
    Path | None,
    option(
        "--report",
        "FILE",
        "Also write one self-contained HTML page, for the owner only; trains models, too.",
        _OUTPUT,
    ),
]
Target = Annotated[
    str | None,
    option(
        "--target",
        "COLUMN",
        "Train models that predict this column on either table, and test them on true rows.",
        _MODELS,
        "with --report, a column that the program proposes",
    ),
]
NoModels = Annotated[
    bool, option("--no-models", None, "Leave the models out of the report.", _MODELS)
]
Repeats = Annotated[
    int, option("--repeats", "N", "Splits that models are trained and tested on.", _MODELS, "5")
]
Seed = Annotated[
    int,
    option("--seed", "N", "Seed of the splits, the models and the attacks.", _MODELS, "0"),
]
Control = Annotated[
    Path | None,
    option(
        "--control",
        "FILE",
        "Rows of the same kind that SYNTHETIC was not made from: attacks try to tell them from "
        "those of TRUE, and models are tested on them.",
        _ATTACK,
    ),
]
Release = Annotated[
    Path | None,
    option(
        "--release",
        "FILE",
        "Release bundle that SYNTHETIC comes from, for its privacy promise.",
        _ATTACK,
        "the statement that lies beside SYNTHETIC",
    ),
]


def evaluate(
    true: Annotated[Path, typer.Argument(metavar="TRUE", help=f"The private table: {TABLE_HELP}")],
    synthetic: Annotated[
        Path, typer.Argument(metavar="SYNTHETIC", help=f"The synthetic one: {TABLE_HELP}")
    ],
    schema: Path | None = None,
    workload: WorkloadFile = None,
    ways: str | None = None,
    rule: Rules = None,
    target: Target = None,
    no_models: NoModels = False,
    repeats: Repeats = 5,
    seed: Seed = 0,
    control: Control = None,
    release: Release = None,
    report: Report = None,
    force: bool = False,
    as_json: bool = False,
    max_memory: str | None = None,
    workers: int | None = None,
) -> None:
    """Compare a synthetic table with the true one; the result is for the owner only.

    A release bundle will do as --schema: it holds the schema with whatever was learnt.

    With a workload file of other queries than marginals, the RMSE is that of its queries.

    The error of a marginal is the sum over its cells of |a/Na - b/Nb|, from 0 (equal) to 2.
    """
    if schema is None:
        raise InputError("no --schema was given: name the schema of both tables")
    spec = workload_spec(workload, ways)
    check_read_once([true, synthetic, control])
    if report is not None:
        inputs = [true, *with_sidecar(synthetic), schema, workload, control, release]
        check_distinct([report], inputs)
        check_file(report, force)
    _check_control(control, true, synthetic)
    settings = _model_settings(target, no_models, repeats, seed, report)

    from adaptive_qs.evaluation.evaluation import compare, evaluation_json, find_promise
    from adaptive_qs.evaluation.queries import resolve_compared
    from adaptive_qs.evaluation.rules import parse_rule
    from adaptive_qs.evaluation.tables import OWNER_ONLY
    from adaptive_qs.evaluation.verdict import findings, verdict
    from adaptive_qs.machine import PhaseClock, plan_workers
    from adaptive_qs.table.schema import Schema

    threads = plan_workers(workers)
    released = _released(true, synthetic, release)
    described = Schema.load(schema, max_memory)
    marginals, queries = resolve_compared(spec, described.domain())
    rules = [parse_rule(text, described) for text in rule or ()]
    promised = find_promise(release, synthetic, described, max_memory)
    said = [released, promised.limitation if report or control else None]
    with progress_bars() as bars:
        clock = PhaseClock(bars)
        pair, held_out = _read_tables(true, synthetic, control, described, clock)
        result = compare(
            pair,
            described,
            marginals,
            rules,
            workers=threads,
            progress=clock,
            utility=settings,
            control=held_out,
            promise=promised.promise,
            seed=seed,
            queries=queries,
            limitations=[text for text in said if text is not None],
        )
        found = findings(result, threads, clock.steps("verdict"))
        if report is not None:
            from adaptive_qs.evaluation.report import report_page
            from adaptive_qs.table.files import atomic_writer

            clock.start("write")
            names = shown(Path(true.name)), shown(Path(synthetic.name))
            page = report_page(found, described, names, promised.release)
            with atomic_writer(report) as file:
                file.write(page.encode())
        seconds = clock.stop()
    judged = verdict(found, promised.statement)
    if as_json:
        emit_json(
            {
                **evaluation_json(result, judged.brief),
                "report": None if report is None else str(report),
                "seconds": {phase: round(spent, 3) for phase, spent in seconds.items()},
                "peak_memory_mb": peak_memory_mb(),
            }
        )
        return
    if not sys.stdout.isatty():  # who reads only stderr must see it, too
        warn(OWNER_ONLY)
    emit(OWNER_ONLY)
    show(found, judged, promised.promise, seconds, report)


def _check_control(control: Path | None, true: Path, synthetic: Path) -> None:
    """Refuse a control table that is one of the others, before anything is read."""
    for name, other in (("TRUE", true), ("SYNTHETIC", synthetic)):
        with suppress(OSError):  # a file that is missing is named where it is read
            if control is not None and control.samefile(other):
                raise InputError(
                    f"{control}: is also {name}: give rows that were held out as --control"
                )


def _model_settings(
    target: str | None, no_models: bool, repeats: int, seed: int, report: Path | None
) -> UtilitySettings | None:
    """What was asked of the models; None for no models."""
    from adaptive_qs.evaluation.results import UtilitySettings

    settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if no_models and target is not None:
        raise InputError("both --no-models and --target were given: give one of them")
    return None if no_models or (target is None and report is None) else settings


def _released(true: Path, synthetic: Path, release: Path | None) -> str | None:
    """That a privacy statement lies beside the true table, which is for released ones.

    Raises:
        InputError: and none is known of the synthetic one, so that they seem to be swapped.
    """
    from adaptive_qs.release.sidecar import manifest_path

    statement = manifest_path(true)
    if not exists(statement):
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


def _read_tables(
    true: Path, synthetic: Path, control: Path | None, schema: Schema, clock: PhaseClock
) -> tuple[TablePair, CodedTable | None]:
    """The two tables, and the control table if there is one."""
    from adaptive_qs.evaluation.tables import TablePair, read_compared

    clock.start("read")
    with readable(true) as first, readable(synthetic) as second:
        pair = TablePair.of(first, second, schema, clock)
    if control is None:
        return pair, None
    with readable(control) as third:
        return pair, read_compared(third, schema, "control", clock)
