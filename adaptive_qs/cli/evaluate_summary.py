"""What `evaluate` prints for people: the worst first in every part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_qs.cli.output import Row, counted, emit_figures, emit_rows, percent
from adaptive_qs.cli.synthesize import peak_memory_mb

if TYPE_CHECKING:
    from adaptive_qs.evaluation.evaluation import Evaluation
    from adaptive_qs.evaluation.pairs import Association
    from adaptive_qs.evaluation.results import Membership, Promise, Spread, Utility
    from adaptive_qs.evaluation.scale import AssociationChanges
    from adaptive_qs.evaluation.verdict import Findings, Verdict


# What `evaluate` prints of models and of attacks.


def show_utility(utility: Utility) -> None:
    """Print what models reach, trained on either table."""
    chosen = "proposed by the program" if utility.proposed else "as asked for"
    classes = counted(utility.classes, "class", "classes")
    propensity = utility.propensity
    emit_rows(
        f"Models that predict {utility.target} ({chosen}, {classes})",
        [
            (
                "trained on",
                f"{utility.train_rows[0]:,} true or {utility.train_rows[1]:,} synthetic rows, "
                f"tested on {utility.test_rows:,} other true rows",
            ),
            (
                "propensity",
                f"AUC {propensity.mean:.3f} of a classifier that tells true from synthetic rows; "
                "0.5 if it cannot",
            ),
        ],
    )
    lines = []
    for model in utility.models:
        for measure, real in model.real.items():
            made, chance = model.synthetic[measure], model.chance[measure]
            lines.append(
                (
                    model.model,
                    measure,
                    _score(real),
                    _score(made),
                    f"{chance.mean:.3f}",
                )
            )
    emit_figures(["model", "measure", "trained on true", "on synthetic", "chance"], lines)
    if utility.limitations:
        emit_rows("Models: know that", [("-", text) for text in utility.limitations])


def _score(score: Spread) -> str:
    """Mean and standard deviation; one repeat has none."""
    spread = f" ± {score.std:.3f}" if score.repeats > 1 else ""
    return f"{score.mean:.3f}{spread}"


def show_membership(membership: Membership) -> None:
    """Print what the attacks reach, beside what the promise allows."""
    bound = "not known: no promise was found beside the table, and no --release given"
    if membership.bound is not None:
        bound = (
            f"{membership.bound:.4f}: no attack on releases with this promise has a larger one "
            "on average"
        )
    emit_rows(
        "Membership attacks: advantage, 0 is a blind guess and 1 certain",
        [
            (
                "rows",
                f"{membership.members:,} of the true table, {membership.non_members:,} of the "
                "control table",
            ),
            ("bound", bound),
        ],
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
        emit_rows("Attacks: know that", [("-", text) for text in membership.limitations])


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
    emit_rows(f"Verdict: {judged.overall.word}", [("-", text) for text in judged.brief])
    _marginals(evaluation)
    _associations(evaluation.association, found.associations)
    _ordered(evaluation)
    _rows(evaluation)
    _rules(evaluation)
    if evaluation.utility is not None:
        show_utility(evaluation.utility)
    if evaluation.membership is not None:
        show_membership(evaluation.membership)
    if evaluation.limitations:
        emit_rows("Limitations", [("-", text) for text in evaluation.limitations])
    closing: list[Row] = [
        ("publish", "no: all of this is computed from private rows, without noise")
    ]
    if promise is not None:
        told = "" if promise.epsilon is None else f"epsilon {promise.epsilon:.6g}"
        told += "" if promise.delta is None else f", delta {promise.delta:g}"
        closing.append(("promise", f"{told} ({promise.source})"))
    if report is not None:
        closing.append(("report", str(report)))
    closing.append(
        ("seconds", ", ".join(f"{phase} {spent:.1f}" for phase, spent in seconds.items()))
    )
    if (peak := peak_memory_mb()) is not None:
        closing.append(("memory", f"{peak:,.0f} MB at most"))
    emit_rows("Done.", closing)


def _marginals(evaluation: Evaluation) -> None:
    distance = evaluation.workload
    number = counted(len(distance.per_clique), "marginal")
    emit_rows(
        f"L1 distance of {number}: 0 is equal, 2 has nothing in common",
        [
            ("mean", f"{distance.mean_l1:.4f}"),
            ("largest", f"{distance.max_l1:.4f}"),
            ("RMSE", _rmse(evaluation)),
        ],
    )
    if (asked := evaluation.queries) is not None:
        emit_figures(
            ["queries", "number", "RMSE", "in rows", "fresh sample", "independent columns"],
            [
                (
                    part.title,
                    f"{part.queries:,}",
                    f"{part.rmse:.3g}",
                    f"{part.rmse * evaluation.pair.true.num_rows:,.4g}",
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
                f"{part.marginals:,}"
                if part.compared == part.marginals
                else f"{part.compared:,} of {part.marginals:,}",
                " x ".join(part.worst),
                f"{part.max:.4f}",
                f"{part.mean:.4f}",
            )
            for part in evaluation.total_variation
        ],
    )


def _rmse(evaluation: Evaluation) -> str:
    """The error of the workload's queries, or of the cells where it asks for those."""
    asked = evaluation.queries
    if asked is None:
        return f"{evaluation.workload.rmse:.3g} of the rows, over all cells"
    weighted = ", weighted" if asked.weighted else ""
    queries = counted(asked.queries, "query", "queries")
    return f"{asked.rmse:.3g} of the rows, over the {queries} of the workload{weighted}"


def _associations(association: Association, changes: AssociationChanges) -> None:
    from adaptive_qs.evaluation.pairs import mean_and_largest

    if len(association.names) < 2:
        return
    summaries = [
        ("Cramér's V", mean_and_largest(association.cramers_v_difference)),
        ("mutual information", mean_and_largest(association.mutual_information_difference)),
    ]
    lines: list[Row] = [
        (name, f"{mean:.4f} on average, {largest:.4f} at most")
        for name, (mean, largest) in summaries
    ]
    if changes.unlisted:
        pairs = counted(changes.unlisted, "pair")
        lines.append(("not listed", f"{pairs} whose V differs, but rests on too few rows"))
    emit_rows("Associations of two columns, from 0 to 1: how far they differ", lines)
    if changes.largest:
        emit_figures(
            ["Cramér's V differs most", "true", "synthetic", "difference"],
            [
                (
                    " x ".join(change.names),
                    f"{change.true:.3f}",
                    f"{change.synthetic:.3f}",
                    f"{change.synthetic - change.true:+.3f}",
                )
                for change in changes.largest
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
            [
                (error.attribute, f"{error.range_max:.4f}", f"{error.mean_shift:+.3f} sd")
                for error in moved
            ],
        )


def _rows(evaluation: Evaluation) -> None:
    rows = evaluation.rows
    lines: list[Row] = [
        (
            "exact matches",
            f"{percent(rows.exact_matches)} of the synthetic rows are true rows; "
            f"{percent(rows.expected_if_independent)} if columns were independent, "
            f"{percent(rows.expected_if_redrawn)} of one half of the true rows in the other",
        ),
        (
            "unique matches",
            f"{percent(rows.unique_matches)} equal a true row that occurs once",
        ),
        (
            "repeated",
            f"{percent(rows.repeated)} of the synthetic rows, "
            f"{percent(rows.true_repeated)} of the true rows",
        ),
    ]
    if (unseen := evaluation.unseen) is not None:
        lines.append(
            (
                "unseen pairs",
                f"{percent(unseen.share)} of the synthetic rows have two values that no true row "
                f"has together; about {percent(unseen.expected_if_redrawn)} of new true ones",
            )
        )
    emit_rows("Whole rows, in the codes of the schema", lines)
    if evaluation.unseen is not None and evaluation.unseen.worst:
        emit_figures(
            ["most unseen pairs", "synthetic rows"],
            [
                (" x ".join(pair.attributes), percent(pair.share))
                for pair in evaluation.unseen.worst[:WORST_SHOWN]
            ],
        )


def _rules(evaluation: Evaluation) -> None:
    if evaluation.rules:
        worst = sorted(evaluation.rules, key=lambda rule: -rule.broken_synthetic)
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
                for check in worst
            ],
        )
