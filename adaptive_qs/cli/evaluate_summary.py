"""What `evaluate` prints for people: the worst first in every part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_qs.cli.output import Row, counted, emit_figures, emit_rows, percent
from adaptive_qs.cli.synthesize import peak_memory_mb

if TYPE_CHECKING:
    from adaptive_qs.evaluation.evaluation import Evaluation
    from adaptive_qs.evaluation.results import Membership, Promise, Spread, Utility
    from adaptive_qs.evaluation.verdict import Findings, Verdict

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
