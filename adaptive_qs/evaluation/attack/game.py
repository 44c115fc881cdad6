"""The membership game: who was in the table that the synthetic one was made from?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """What the release promised.

    Attributes:
        rho: zCDP of the release.
        epsilon: implied at delta.
        delta: of it.
        source: where it was read, such as the name of a manifest, or "given".
    """

    rho: float | None
    epsilon: float | None
    delta: float | None
    source: str


@dataclass(frozen=True)
class AttackScore:
    """One attack.

    Attributes:
        attack: what it does, in a few words.
        advantage: true positive rate less false positive rate at a threshold chosen on other
            rows.
        lower: of the interval of the advantage.
        upper: of the interval of the advantage.
        auc: area under the curve of the attack's score.
    """

    attack: str
    advantage: float
    lower: float
    upper: float
    auc: float


@dataclass(frozen=True)
class Membership:
    """The attacks on a released table against rows that were held out; owner only.

    Attributes:
        scores: of each attack; the strongest first.
        members: rows of the true table that were attacked.
        non_members: rows of the control table that were attacked.
        confidence: of every interval, all intervals together.
        bound: no attack has a larger advantage in the mean over releases; None where no promise is
            known.
        promise: that the bound follows from.
        limitations: what a reader has to know, such as a control table that overlaps.
    """

    scores: tuple[AttackScore, ...]
    members: int
    non_members: int
    confidence: float
    bound: float | None
    promise: Promise | None
    limitations: tuple[str, ...]
