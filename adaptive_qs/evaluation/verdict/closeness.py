"""How close the marginals of both tables are."""

from __future__ import annotations

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.scale import WorkloadScale
from adaptive_qs.evaluation.verdict.sentence import FEW_NAMED, Sentence, are, named
from adaptive_qs.evaluation.verdict.thresholds import Grade
from adaptive_qs.pages.names import combination
from adaptive_qs.pages.numbers import counted, share, significant

GRADES: tuple[tuple[Grade, str], ...] = (("good", "close"), ("fair", "usable"), ("poor", "far"))


def marginals_sentence(evaluation: Evaluation, scale: WorkloadScale) -> Sentence:
    """How close the workload's marginals are, on which scale."""
    found = evaluation.workload
    number = counted(len(found.per_clique), "marginal")
    marginals = f"The workload's {number}"
    if evaluation.queries is not None:
        marginals = f"The {number} of the workload's columns"
    marginals += " differs" if len(found.per_clique) == 1 else " differ"
    measured = (
        f"{marginals} by {significant(found.mean_l1)} on average (L1: 0 is equal, 2 has "
        f"nothing in common): {share(found.mean_l1 / 2)} of the rows would have to move to "
        "another cell."
    )
    if not scale.per_clique:
        return Sentence("plain", "no scale", f"{measured} They are too large for a comparison.")
    of_them = "" if scale.all else f" {len(scale.per_clique):,} of them, with mean error "
    of_them += "" if scale.all else f"{significant(scale.l1)}, give the scale."
    grade, placed = _placed(
        scale, f"sample of {counted(evaluation.pair.synthetic.num_rows, 'row')}"
    )
    gone, links = _gone(scale)
    if gone:
        placed += f" {gone}"
        grade = GRADES[1] if grade[0] == "good" else grade
    brief = f"{marginals} by {significant(found.mean_l1)} on average."
    return Sentence(
        *grade,
        f"{measured}{of_them} A fresh {placed}",
        links,
        brief=f"{brief}{of_them} A fresh {placed}",
    )


def _gone(scale: WorkloadScale) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Which marginals are as far off as independent columns would be; "" where none is."""
    gone = scale.gone
    if not gone or len(scale.per_clique) == 1:
        return "", ()
    names, links = named([combination(attributes) for attributes in gone], "errors", FEW_NAMED)
    number = f"{counted(len(gone), 'marginal')} {are(len(gone))}"
    return f"{number} as far off as independent columns: {names}.", links


def _placed(scale: WorkloadScale, sample: str) -> tuple[tuple[Grade, str], str]:
    """The grade of marginals that were compared, and where they stand on the scale."""
    text = f"{sample} would differ by about {significant(scale.fresh)}"
    if not scale.known:
        text += (
            f". {share(scale.sparse, 2)} of the true rows lie in cells with fewer than {limit.FEW} "
            "of them: chance decides most of such an error, so no grade is given. Fewer columns at "
            "once, coarser bins or more rows would tell more."
        )
        return ("plain", "no scale"), text
    position = scale.position
    if scale.joint:
        text += f", independent columns by {significant(scale.independent)}"
    if scale.worse:
        return GRADES[2], f"{text}: the table is no closer than independent columns."
    if position is None:
        if scale.l1 <= scale.fresh:
            text += f": the table is {way_of(0)}."
        else:
            text += "; the two are too close for a scale between them." if scale.joint else "."
        room, good, fair = 1.0, limit.CLOSE_ALONE, limit.USABLE_ALONE
    else:
        room = scale.independent - scale.fresh
        text += f": the table is {way_of(position)}."
        good, fair = limit.CLOSE, limit.USABLE
    beyond, doubt = (scale.l1 - scale.fresh) / room, scale.doubt / room
    if position is not None:
        text += raised_limit(beyond, doubt)
    elif good < beyond <= doubt:
        text += (
            f" Chance may explain as much: the limit of close is {significant(doubt)} above a "
            f"fresh sample here, instead of {good}."
        )
    return GRADES[0 if beyond <= max(good, doubt) else 1 if beyond <= fair else 2], text


def raised_limit(beyond: float, doubt: float) -> str:
    """Which limit was used, where what is called close is so because of chance.

    Args:
        beyond: how far from a fresh sample (0) to independent columns (1).
        doubt: how far chance may take a fresh sample.
    """
    if not limit.CLOSE < beyond <= doubt:
        return ""
    return (
        f" Chance may explain as much: the limit of close is {share(doubt, 2)} of the way here, "
        f"instead of {share(limit.CLOSE, 2)}."
    )


def way_of(position: float) -> str:
    """A position between a fresh sample (0) and independent columns (1), in words."""
    if position <= 0:
        return "as close as a fresh sample"
    if position >= 1:
        return "no closer than independent columns"
    return f"{share(position, 2)} of the way from the one to the other"
