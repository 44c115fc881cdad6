"""What the attacks find, against the bound."""

from __future__ import annotations

from adaptive_qs.evaluation.attack.game import Membership
from adaptive_qs.evaluation.verdict.sentence import Sentence
from adaptive_qs.pages.numbers import decimals, significant
from adaptive_qs.release.statement import Statement


def attack_sentence(membership: Membership | None, statement: Statement | None) -> Sentence:
    """What the attack finds that is surest of its gain.

    The intervals hold together, so the largest lower end decides: another attack may have a larger
    estimate and tell less.

    Args:
        membership: the attacks; None if none was tried.
        statement: of the release behind the table, if known.
    """
    if membership is None or not membership.scores:
        reason = why_no_promise(statement)
        text = "No control table was given, so no attack was tried"
        text += f". {reason}." if reason else "; the promise holds without it."
        return Sentence("plain", "not tried", text)
    top = max(membership.scores, key=lambda score: score.lower)
    best = max(membership.scores, key=lambda score: score.advantage)
    which = "strongest attack" if top == best else "attack that is surest of its gain"
    interval = f"between {decimals(top.lower)} and {decimals(top.upper)}"
    text = f"The {which} ({top.attack}) gains {decimals(top.advantage)}, {interval}"
    bound = membership.bound
    if bound is not None and top.lower > bound:
        text += f": more than the {significant(bound)} that the promise allows on average over"
        text += " releases. Do not release before that is explained."
        return Sentence("poor", "alarm", text)
    if bound is not None:
        text += f"; the promise allows at most {significant(bound)} on average over releases"
    if top.lower > 0:
        text += ". It tells members from others better than chance."
        return Sentence("fair", "some gain", text)
    return Sentence("good", "no gain", text + ". No attack is told from chance.")


def why_no_promise(statement: Statement | None) -> str | None:
    """Why nothing can be said of a promise, as a sentence without its full stop; else None."""
    if statement is None:
        return "The promise behind the table is not known"
    if statement.insecure:
        return "Nothing is promised: the noise came from a seed, and can be predicted"
    if statement.drafted:
        return "The promise does not cover what the schema tells, which was taken from the data"
    return None
