"""Which associations of two columns are lost."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.fates import Associations, Fate
from adaptive_qs.evaluation.verdict.sentence import FEW_NAMED, Sentence, are, named
from adaptive_qs.pages.names import combination, quoted
from adaptive_qs.pages.numbers import counted, decimals

Links = tuple[tuple[str, str], ...]
Part = tuple[str, Links]


def dependence_sentence(found: Associations) -> Sentence:
    """What became of the associations: clear ones, columns that lost all of theirs, weak ones."""
    parts = [_clear(found), _alone(found), _weak(found), _made_up(found)]
    text = " ".join(text for text, _ in parts if text)
    links = tuple(link for _, links in parts for link in links)
    if len(found.lost) > limit.MOST_LOST * found.clear:
        return Sentence("poor", "losses", text, links)
    if found.lost or found.alone or len(found.weak_lost) > limit.WEAK_LOST * found.weak:
        return Sentence("fair", "some lost", text, links)
    many = limit.WEAK_LOST * (found.clear + found.weak)
    if found.made_up or len(found.weak_made_up) > many:
        return Sentence("fair", "some new", text, links)
    return Sentence("good", "kept", text, links)


def _clear(found: Associations) -> Part:
    if not found.clear:
        return "No two columns of the true table depend clearly on each other.", ()
    start = (
        f"Of {counted(found.clear, 'clear association')} between two columns, {found.kept:,} kept "
        f"{'its' if found.kept == 1 else 'their'} strength, {found.weaker:,} became weaker, "
        f"{found.stronger:,} stronger"
    )
    if not found.lost:
        return f"{start} and none is lost.", ()
    names, links = named([combination(f.names) for f in found.lost], "lost")
    return f"{start} and {len(found.lost):,} {are(len(found.lost))} lost: {names}.", links


def _alone(found: Associations) -> Part:
    if not found.alone:
        return "", ()
    names, links = named([quoted(name) for name in found.alone], "cut-off")
    verb = "comes" if len(found.alone) == 1 else "come"
    return f"{names} {verb} out independent of all other columns.", links


def _weak(found: Associations) -> Part:
    number = len(found.weak_lost)
    if not number:
        return "", ()
    names, links = named(_sized(found.weak_lost), "weak-lost", FEW_NAMED)
    start = f"Of {counted(found.weak, 'weak association')}, {number:,} {are(number)} lost"
    return f"{start}: {names}.", links


def _made_up(found: Associations) -> Part:
    """Such relations come from noise, or from marginals that do not say it all."""
    names, links = named([combination(f.names) for f in found.made_up], "made-up")
    new = [names] if names else []
    number = len(found.weak_made_up)
    if number:
        largest = _sized(found.weak_made_up[:1])[0]
        phrase = counted(number, "weak association")
        links += ((phrase, "weak-made-up"),)
        new.append(f"{phrase}, {'the largest ' if number > 1 else ''}{largest}")
    if not new:
        return "", ()
    reason = " Such relations arise where two columns were not measured together." if number else ""
    return f"Only in the synthetic table: {', and '.join(new)}.{reason}", links


def _sized(fates: Sequence[Fate]) -> list[str]:
    """The columns with Cramér's V in the true table, and in the synthetic one."""
    return [
        f"{combination(f.names)} (V {decimals(f.true)}, now {decimals(f.synthetic)})" for f in fates
    ]
