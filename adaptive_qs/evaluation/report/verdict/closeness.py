"""How close the marginals, single columns and associations of both tables are."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.report import thresholds as limit
from adaptive_qs.evaluation.report.columns import ColumnPair
from adaptive_qs.evaluation.report.fates import Associations
from adaptive_qs.evaluation.report.scale import WorkloadScale
from adaptive_qs.evaluation.report.thresholds import Grade
from adaptive_qs.evaluation.report.verdict.sentence import Sentence
from adaptive_qs.pages.names import combination, listed, quoted
from adaptive_qs.pages.numbers import count, counted, share, significant

GRADES: tuple[tuple[Grade, str], ...] = (("good", "close"), ("fair", "usable"), ("poor", "far"))


def marginals_sentence(evaluation: Evaluation, scale: WorkloadScale) -> Sentence:
    """How close the workload's marginals are, on which scale."""
    found = evaluation.workload
    rows = count(evaluation.pair.synthetic.num_rows)
    text = (
        f"The workload's {counted(len(found.per_clique), 'marginal')} differ by "
        f"{significant(found.mean_l1)} on average (L1: 0 is equal, 2 has nothing in common): "
        f"{share(found.mean_l1 / 2)} of the rows would have to move to another cell."
    )
    if not scale.per_clique:
        return Sentence("plain", "no scale", text + " They are too large for a comparison.")
    if not scale.all:
        text += (
            f" {len(scale.per_clique):,} of them, with mean error {significant(scale.l1)}, give "
            "the scale."
        )
    text += f" A fresh sample of {rows} rows would differ by about {significant(scale.fresh)}"
    if not scale.known:
        text += (
            f". {share(scale.sparse, 2)} of the true rows lie in cells with fewer than {limit.FEW} "
            "of them: chance decides most of such an error, so no grade is given. Fewer columns at "
            "once (--ways 2), coarser bins or more rows would tell more."
        )
        return Sentence("plain", "no scale", text)
    position = scale.position
    if position is None:
        text += "."
        room, good, fair = 1.0, limit.CLOSE_ALONE, limit.USABLE_ALONE
    else:
        room = scale.independent - scale.fresh
        text += (
            f", independent columns by {significant(scale.independent)}: the table is "
            f"{_way(position)}."
        )
        good, fair = limit.CLOSE, limit.USABLE
    beyond, doubt = (scale.l1 - scale.fresh) / room, scale.doubt / room
    if good < beyond <= doubt:
        told = significant(doubt) if position is None else f"{share(doubt, 2)} of the way"
        text += f" Chance may explain up to {told}."
    grade = GRADES[0 if beyond <= max(good, doubt) else 1 if beyond <= fair else 2]
    return Sentence(*grade, text)


def lost_columns(columns: Sequence[ColumnPair]) -> list[ColumnPair]:
    """Single columns that are far off, the worst first."""
    return [c for c in columns if c.variation - c.fresh >= max(limit.LOST_COLUMN, c.doubt)]


def dependence_sentence(found: Associations, columns: Sequence[ColumnPair]) -> Sentence:
    """Which columns and associations are lost."""
    off = lost_columns(columns)
    parts = []
    if off:
        names = listed([f"{quoted(c.name)} ({share(c.variation, 2)})" for c in off])
        parts.append(f"Single columns that are off: {names} of the rows in another cell.")
    else:
        parts.append("No single column is far off.")
    if found.clear:
        parts.append(
            f"Of {counted(found.clear, 'clear association')} between two columns, {found.kept:,} "
            f"kept their strength"
        )
        parts[-1] += (
            f" and {len(found.lost):,} {'is' if len(found.lost) == 1 else 'are'} lost: "
            f"{listed([combination(p) for p in found.lost])}."
            if found.lost
            else " and none is lost."
        )
    else:
        parts.append("No two columns of the true table depend clearly on each other.")
    if found.made_up:
        names = listed([combination(p) for p in found.made_up])
        parts.append(f"Only in the synthetic table: {names}.")
    if off or len(found.lost) > found.clear / 4:
        return Sentence("poor", "losses", " ".join(parts))
    if found.lost or found.made_up:
        word = "some lost" if found.lost else "some new"
        return Sentence("fair", word, " ".join(parts))
    return Sentence("good", "kept", " ".join(parts))


def _way(position: float) -> str:
    if position <= 0:
        return "as close as a fresh sample"
    if position >= 1:
        return "no closer than independent columns"
    return f"{share(position, 2)} of the way from the one to the other"
