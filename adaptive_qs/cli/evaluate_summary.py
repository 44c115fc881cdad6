"""What `evaluate` prints for people: the worst first in every part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_qs.cli.output import Row, counted, emit_columns, emit_rows
from adaptive_qs.cli.summary import peak_memory_mb

if TYPE_CHECKING:
    from adaptive_qs.evaluation.attack.game import Membership, Promise
    from adaptive_qs.evaluation.evaluation import Evaluation
    from adaptive_qs.evaluation.utility.scores import Utility

WORST_SHOWN = 10
LEAST_DIFFERENCE = 0.01
"""Associations that differ by less are not named."""


def show(
    evaluation: Evaluation,
    promise: Promise | None,
    seconds: Mapping[str, float],
    report: Path | None,
) -> None:
    """Print an evaluation.

    Args:
        evaluation: of the tables.
        promise: of the release, where known.
        seconds: per phase.
        report: the page that was written, if one was.
    """
    _marginals(evaluation)
    _associations(evaluation)
    _ordered(evaluation)
    _rows(evaluation)
    _rules(evaluation)
    if evaluation.utility is not None:
        _utility(evaluation.utility)
    if evaluation.membership is not None:
        _membership(evaluation.membership)
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
            ("RMSE", f"{distance.rmse:.3g} of the rows, over all cells"),
        ],
    )
    worst = sorted(distance.per_clique, key=lambda clique: -clique.l1)[:WORST_SHOWN]
    _table(
        ["worst marginals", "cells", "error"],
        [(" x ".join(c.attributes), f"{c.cells:,}", f"{c.l1:.4f}") for c in worst],
    )
    _table(
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


def _associations(evaluation: Evaluation) -> None:
    from adaptive_qs.evaluation.association import largest_pairs, mean_and_largest

    association = evaluation.association
    if len(association.names) < 2:
        return
    summaries = [
        ("Cramér's V", mean_and_largest(association.cramers_v_difference)),
        ("mutual information", mean_and_largest(association.mutual_information_difference)),
    ]
    emit_rows(
        "Associations of two columns, from 0 to 1: how far they differ",
        [
            (name, f"{mean:.4f} on average, {largest:.4f} at most")
            for name, (mean, largest) in summaries
        ],
    )
    (true, synthetic), difference = association.cramers_v, association.cramers_v_difference
    pairs = largest_pairs(difference, LEAST_DIFFERENCE, WORST_SHOWN)
    if pairs:
        _table(
            ["Cramér's V differs most", "true", "synthetic", "difference"],
            [
                (
                    f"{association.names[i]} x {association.names[j]}",
                    f"{true[i, j]:.3f}",
                    f"{synthetic[i, j]:.3f}",
                    f"{difference[i, j]:+.3f}",
                )
                for i, j in pairs
            ],
        )


def _ordered(evaluation: Evaluation) -> None:
    worst = sorted(evaluation.ordered, key=lambda error: -error.range_max)[:WORST_SHOWN]
    if worst:
        _table(
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


def _rows(evaluation: Evaluation) -> None:
    rows = evaluation.rows
    lines: list[Row] = [
        (
            "exact matches",
            f"{_percent(rows.exact_matches)} of the synthetic rows are true rows; "
            f"{_percent(rows.expected_if_independent)} if columns were independent, "
            f"{_percent(rows.expected_if_redrawn)} of one half of the true rows in the other",
        ),
        (
            "unique matches",
            f"{_percent(rows.unique_matches)} equal a true row that occurs once",
        ),
        (
            "repeated",
            f"{_percent(rows.repeated)} of the synthetic rows, "
            f"{_percent(rows.true_repeated)} of the true rows",
        ),
    ]
    if (unseen := evaluation.unseen) is not None:
        lines.append(
            (
                "unseen pairs",
                f"{_percent(unseen.share)} of the synthetic rows have two values that no true row "
                f"has together; about {_percent(unseen.expected_if_redrawn)} of new true ones",
            )
        )
    emit_rows("Whole rows, in the codes of the schema", lines)
    if evaluation.unseen is not None and evaluation.unseen.worst:
        _table(
            ["most unseen pairs", "synthetic rows"],
            [
                (" x ".join(pair.attributes), _percent(pair.share))
                for pair in evaluation.unseen.worst[:WORST_SHOWN]
            ],
        )


def _rules(evaluation: Evaluation) -> None:
    if evaluation.rules:
        worst = sorted(evaluation.rules, key=lambda r: (r.source, -r.broken_synthetic))
        _table(
            ["rules", "", "broken: true", "synthetic", "if independent"],
            [
                (
                    check.rule,
                    check.source,
                    _percent(check.broken_true),
                    _percent(check.broken_synthetic),
                    _percent(check.expected_if_independent),
                )
                for check in worst
            ],
        )


def _utility(utility: Utility) -> None:
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
                    f"{real.mean:.3f} ± {real.std:.3f}",
                    f"{made.mean:.3f} ± {made.std:.3f}",
                    f"{chance.mean:.3f}",
                )
            )
    _table(["model", "measure", "trained on true", "on synthetic", "chance"], lines)
    if utility.limitations:
        emit_rows("Models: know that", [("-", text) for text in utility.limitations])


def _membership(membership: Membership) -> None:
    bound = "not known" if membership.bound is None else f"{membership.bound:.4f}"
    emit_rows(
        "Membership attacks: advantage, 0 is a blind guess and 1 certain",
        [
            (
                "rows",
                f"{membership.members:,} of the true table, {membership.non_members:,} of the "
                "control table",
            ),
            ("bound", f"{bound}: no attack on a release with this promise has a larger one"),
        ],
    )
    _table(
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


def _percent(share: float) -> str:
    """Three digits, and never 0 for what is not."""
    return f"{100 * share:.3g} %" if share else "0 %"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with numbers aligned to the right; the first column holds names."""
    words = [k == 0 or not all(_is_number(row[k]) for row in rows) for k in range(len(names))]
    widths = [max(len(row[k]) for row in (names, *rows)) for k in range(len(names))]

    def aligned(row: Sequence[str]) -> list[str]:
        return [
            cell if word else cell.rjust(width) for cell, word, width in zip(row, words, widths)
        ]

    emit_columns(aligned(names), [aligned(row) for row in rows])


def _is_number(text: str) -> bool:
    return text.lstrip("+-")[:1].isdigit()
