"""The promise that every release comes with, in words: what it holds against, and what not."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from adaptive_qs.privacy.neighbours import zcdp_name

SAMPLING_SEEDS = (
    "a seed chooses one of the tables that the released numbers allow: it costs no privacy, "
    "protects nothing and may be published"
)


class ThreatModel(BaseModel):
    """Whom the promise trusts, what it holds against, and what it leaves out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protects_against: tuple[str, ...] = (
        "anybody who has this release, every other table made from it, and all rows but one",
        "any amount of computing, now or later",
    )
    trusted: tuple[str, ...] = (
        "the machine that ran the program, with its operating system and random numbers",
        "whoever wrote the schema, the workload and the settings not to have taken them from "
        "the rows",
    )
    excluded: tuple[str, ...] = (
        "running time, memory use, progress and messages of the program: they are for the owner",
        "that a run was refused, why, and how often it was tried",
        "several rows of one person: for k rows at once rho counts k² times",
        "other releases about the same people: their costs add up, and a ledger keeps the sum",
        "what holds of people in general, and so of one whose row is not in the table",
    )


def guarantee_of(
    rho: float, epsilon: float, delta: float, delta_spent: float, mu: float | None
) -> str:
    """What is promised, in the one sentence that every statement, page and manifest has.

    Args:
        rho: zCDP budget.
        epsilon, delta: that the budget implies.
        delta_spent: the part of δ that discovering values took.
        mu: of Gaussian DP, where the budget is stated by it.
    """
    means = f"({epsilon:.6g}, {delta:g})-differential privacy"
    if mu is not None:
        return f"mu-Gaussian DP with mu = {mu:.6g}, which is {means}; rho = {rho:.6g} zCDP"
    kind = zcdp_name(delta_spent).replace("zCDP", "rho-zCDP")
    return f"{kind} with rho = {rho:.6g}, which implies {means}"
