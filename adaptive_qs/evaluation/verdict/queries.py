"""How far the workload's own queries are off."""

from __future__ import annotations

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict.closeness import way_of
from adaptive_qs.evaluation.verdict.scale import LEAST_ROOM
from adaptive_qs.evaluation.verdict.sentence import Sentence
from adaptive_qs.pages.numbers import counted, share, significant


def queries_sentence(evaluation: Evaluation) -> Sentence | None:
    """Their root mean squared error beside that of a fresh sample and of independent columns.

    There is no grade: how far chance takes the error of a fresh sample from what is expected of it
    depends on how the queries overlap. None where the workload asks for marginals.
    """
    asked = evaluation.queries
    if asked is None:
        return None
    rows = evaluation.pair.true.num_rows
    number = counted(asked.queries, "query", "queries")
    text = (
        f"The workload's {number} {'is' if asked.queries == 1 else 'are'} off by "
        f"{share(asked.rmse)} of the rows ({significant(asked.rmse * rows)} of {rows:,}; root mean "
        f"square{', weighted' if asked.weighted else ''}), a fresh sample by about "
        f"{share(asked.fresh)}"
    )
    if asked.joint:
        text += f", independent columns by {share(asked.independent)}"
    room = asked.independent - asked.fresh
    if room > LEAST_ROOM * asked.fresh:
        text += f": the table is {way_of((asked.rmse - asked.fresh) / room)}"
    elif asked.rmse <= asked.fresh:
        text += f": the table is {way_of(0)}"
    return Sentence("plain", "queries", f"{text}.", ((number, "queries"),))
