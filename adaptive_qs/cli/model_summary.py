"""What `evaluate` prints of models and of attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_qs.cli.figures import emit_figures
from adaptive_qs.cli.output import counted, emit_rows

if TYPE_CHECKING:
    from adaptive_qs.evaluation.attack.game import Membership
    from adaptive_qs.evaluation.utility.scores import Spread, Utility


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
