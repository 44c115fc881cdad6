"""Which associations of two columns are lost."""

from __future__ import annotations

from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.fates import Associations
from adaptive_qs.evaluation.verdict.sentence import Sentence, named
from adaptive_qs.pages.names import combination
from adaptive_qs.pages.numbers import counted


def dependence_sentence(found: Associations) -> Sentence:
    """Which associations are lost, and which are new."""
    links: tuple[tuple[str, str], ...] = ()
    if not found.clear:
        parts = ["No two columns of the true table depend clearly on each other."]
    else:
        start = f"Of {counted(found.clear, 'clear association')} between two columns, "
        start += f"{found.kept:,} kept {'its' if found.kept == 1 else 'their'} strength and "
        if found.lost:
            names, links = named([combination(f.names) for f in found.lost], "lost")
            start += f"{len(found.lost):,} {'is' if len(found.lost) == 1 else 'are'} lost: {names}."
        else:
            start += "none is lost."
        parts = [start]
    if found.made_up:
        names, more = named([combination(f.names) for f in found.made_up], "made-up")
        links += more
        parts.append(f"Only in the synthetic table: {names}.")
    text = " ".join(parts)
    if len(found.lost) > limit.MOST_LOST * found.clear:
        return Sentence("poor", "losses", text, links)
    if found.lost or found.made_up:
        return Sentence("fair", "some lost" if found.lost else "some new", text, links)
    return Sentence("good", "kept", text)
