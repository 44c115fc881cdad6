"""An evaluation as plain JSON values, under fixed names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from adaptive_qs.evaluation.association import Association, mean_and_largest
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.pair import OWNER_ONLY


def evaluation_json(evaluation: Evaluation, verdict: Sequence[str]) -> dict[str, Any]:
    """Everything but the rows; numbers that are not finite are null.

    Args:
        evaluation: of the tables.
        verdict: on it, in a few sentences.
    """
    distance, asked = evaluation.workload, evaluation.queries
    content = {
        "notice": OWNER_ONLY,
        "verdict": list(verdict),
        "rows_compared": {
            "true": evaluation.pair.true.num_rows,
            "synthetic": evaluation.pair.synthetic.num_rows,
        },
        "workload_error": {
            "mean_l1": distance.mean_l1,
            "max_l1": distance.max_l1,
            "rmse": distance.rmse if asked is None else asked.rmse,
            "rmse_of": "cells" if asked is None else "queries",
            "queries": sum(c.cells for c in distance.per_clique)
            if asked is None
            else asked.queries,
        },
        "query_parts": [] if asked is None else [asdict(part) for part in asked.parts],
        "per_clique": [asdict(clique) for clique in distance.per_clique],
        "total_variation": [asdict(part) for part in evaluation.total_variation],
        "association": _association(evaluation.association),
        "ordered": [asdict(error) for error in evaluation.ordered],
        "rows": asdict(evaluation.rows),
        "rules": [asdict(check) for check in evaluation.rules],
        "unseen": None if evaluation.unseen is None else asdict(evaluation.unseen),
        "utility": None if evaluation.utility is None else asdict(evaluation.utility),
        "membership": None if evaluation.membership is None else asdict(evaluation.membership),
        "limitations": list(evaluation.limitations),
    }
    plain: dict[str, Any] = _finite(content)
    return plain


def _association(association: Association) -> dict[str, Any]:
    content: dict[str, Any] = {"names": list(association.names)}
    for name, matrices, difference in (
        ("cramers_v", association.cramers_v, association.cramers_v_difference),
        (
            "mutual_information",
            association.mutual_information,
            association.mutual_information_difference,
        ),
    ):
        mean, largest = mean_and_largest(difference)
        content[name] = {
            "mean_difference": mean,
            "max_difference": largest,
            "true": matrices[0].tolist(),
            "synthetic": matrices[1].tolist(),
        }
    return content


def _finite(value: Any) -> Any:
    """Tuples as lists, and NaN and infinities as None, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
