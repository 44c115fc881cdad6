"""How far the workload's own queries are off."""

from __future__ import annotations

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.query_parts import PartError, QueryError
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.closeness import GRADES, raised_limit, way_of
from adaptive_qs.evaluation.verdict.fresh import STEP_ERROR
from adaptive_qs.evaluation.verdict.scale import LEAST_ROOM, like_independent
from adaptive_qs.evaluation.verdict.sentence import Sentence, are, named
from adaptive_qs.evaluation.verdict.thresholds import Grade
from adaptive_qs.pages.numbers import counted, share, significant


def queries_sentence(evaluation: Evaluation) -> Sentence | None:
    """Their root mean squared error beside that of a fresh sample and of independent columns.

    What is no closer than independent columns is far where these are clearly further off than a
    fresh sample, and usable at best where they hardly are. There is no grade where all queries are
    of single columns, for which independence says nothing.
    None where the workload asks for marginals.
    """
    asked = evaluation.queries
    if asked is None:
        return None
    rows = evaluation.pair.true.num_rows
    number = counted(asked.queries, "query", "queries")
    text = (
        f"The workload's {number} {are(asked.queries)} off by "
        f"{share(asked.rmse)} of the rows ({significant(asked.rmse * rows)} of {rows:,}; root mean "
        f"square{', weighted' if asked.weighted else ''}), a fresh sample by about "
        f"{share(asked.fresh)}"
    )
    if asked.joint:
        text += f", independent columns by {share(asked.independent)}"
    links: tuple[tuple[str, str], ...] = ((number, "queries"),)
    grade, placed = _placed(asked)
    text += placed
    gone = [part for part in asked.parts if is_gone(part)]
    if gone:
        names, more = named([part.title for part in gone], "queries")
        text += f" As far off as independent columns: {names}."
        links += more
        grade = max(grade, GRADES[1], key=GRADES.index)
    if not asked.joint:
        return Sentence("plain", "queries", text, links)
    return Sentence(*grade, text, links)


def is_gone(part: PartError) -> bool:
    """Whether queries are as far off as those of independent columns, and a fresh sample is not."""
    doubt = max(LEAST_ROOM * part.fresh, part.chance(limit.DEVIATIONS))
    return part.ways > 1 and like_independent(part.rmse, part.fresh, part.independent, doubt)


def _placed(asked: QueryError) -> tuple[tuple[Grade, str], str]:
    """The grade of the queries together, and the end of the sentence."""
    room, excess = asked.independent - asked.fresh, asked.rmse - asked.fresh
    chance, least = asked.chance(limit.DEVIATIONS), LEAST_ROOM * asked.fresh
    deviations = limit.DOUBTFUL if room > STEP_ERROR * asked.fresh else limit.DEVIATIONS
    if asked.joint and excess >= room and excess > max(asked.chance(deviations), least):
        return GRADES[2 if min(excess - chance, room - least) > 0 else 1], (
            f": the table is {way_of(1)}."
        )
    if room <= max(least, 2 * chance):
        if excess <= 0:
            return GRADES[0], f": the table is {way_of(0)}."
        between = "; the two are too close for a scale between them." if asked.joint else "."
        return GRADES[0], between
    doubt, beyond = chance / room, excess / room
    text = f": the table is {way_of(beyond)}.{raised_limit(beyond, doubt)}"
    good = max(limit.CLOSE, doubt)
    return GRADES[0 if beyond <= good else 1 if beyond <= limit.USABLE else 2], text
