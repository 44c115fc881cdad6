"""Whether rows have pairs of values that true rows never have."""

from __future__ import annotations

import math

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.verdict import thresholds as limit
from adaptive_qs.evaluation.verdict.sentence import Sentence, named
from adaptive_qs.pages.names import combination
from adaptive_qs.pages.numbers import share


def unseen_sentence(evaluation: Evaluation) -> Sentence | None:
    """Rows with unseen pairs, where they are many more than new true rows would have; else None.

    Chance moves the difference of two shares of n and m rows by √(p(1 − p)(1/n + 1/m)).
    """
    found = evaluation.unseen
    if found is None:
        return None
    rows = evaluation.pair.true.num_rows, evaluation.pair.synthetic.num_rows
    p = (found.share + found.expected_if_redrawn) / 2
    deviation = math.sqrt(p * (1 - p) * sum(1 / n for n in rows))
    beyond = found.share - found.expected_if_redrawn
    if beyond < max(limit.UNSEEN, limit.DEVIATIONS * deviation):
        return None
    names, links = named([combination(pair.attributes) for pair in found.worst], "unseen")
    text = (
        f"{share(found.share)} of the synthetic rows have two values that no true row has "
        f"together, about {share(found.expected_if_redrawn)} of new true rows would: {names}."
    )
    return Sentence("fair", "unseen pairs", text, links)
