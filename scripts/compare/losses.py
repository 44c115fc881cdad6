"""Where this project's mechanisms are beaten, and by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.compare.cells import FINISHED
from scripts.compare.mechanisms import OURS, Kind
from scripts.compare.summary import Group


@dataclass(frozen=True)
class Loss:
    """One of ours with a larger median error than a rival in the same setting.

    Attributes:
        ours, rival: the two groups.
        measure: the error compared, a name of ``MEASURES``.
        percent: by how much the error of ours is larger than the rival's.
        overlap: whether the ranges over seeds overlap, so that more seeds could turn it.
    """

    ours: Group
    rival: Group
    measure: str
    percent: float
    overlap: bool


def table_losses(groups: Sequence[Group]) -> list[Loss]:
    """Tables of ours that are further from the truth than a peer's or than independence.

    The default is held against this project's other mechanisms, too.
    """
    return [
        loss
        for ours in groups
        if ours.kind == "ours"
        for loss in _beaten_by(ours, groups, _rivals(ours, "peer"), "table_l1")
    ]


def answer_losses(groups: Sequence[Group]) -> list[Loss]:
    """Adaptive answers that are further from the truth than those planned without data."""
    return [
        loss
        for ours in groups
        if ours.kind == "ours"
        for loss in _beaten_by(ours, groups, _rivals(ours, "answers"), "answer_l1")
    ]


def _rivals(ours: Group, kind: Kind) -> tuple[Kind, ...]:
    default = ours.mechanism == OURS[0]
    return (kind, "baseline", "ours") if default else (kind, "baseline")


def _beaten_by(
    ours: Group, groups: Sequence[Group], kinds: tuple[Kind, ...], measure: str
) -> Iterator[Loss]:
    mine = ours.spreads.get(measure)
    for rival in groups:
        theirs = rival.spreads.get(measure)
        if rival.kind not in kinds or mine is None or theirs is None or not _same(ours, rival):
            continue
        if mine.median > theirs.median:
            percent = 100 * (mine.median / theirs.median - 1)
            yield Loss(ours, rival, measure, percent, mine.low <= theirs.high)


def _same(a: Group, b: Group) -> bool:
    return (a.table, a.ways, a.epsilon, a.delta) == (b.table, b.ways, b.epsilon, b.delta)


def loss_row(loss: Loss) -> dict[str, Any]:
    """A loss as one flat line."""
    return {
        "table": loss.ours.table,
        "ways": loss.ours.ways,
        "epsilon": loss.ours.epsilon,
        "measure": loss.measure,
        "ours": loss.ours.mechanism,
        "error": loss.ours.spreads[loss.measure].median,
        "rival": loss.rival.mechanism,
        "rival_error": loss.rival.spreads[loss.measure].median,
        "percent": loss.percent,
        "ranges_overlap": loss.overlap,
        "seeds": loss.ours.outcomes[FINISHED],
        "rival_seeds": loss.rival.outcomes[FINISHED],
    }
