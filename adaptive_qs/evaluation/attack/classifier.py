"""Attack by a classifier that tells synthetic from reference rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Attribute
from adaptive_qs.evaluation.attack.tables import Stack
from adaptive_qs.evaluation.utility.features import gradient_boosting
from adaptive_qs.evaluation.utility.threads import run_tasks

MAX_ROWS = 10_000
"""Rows of either kind that it learns from."""


def classifier_scores(
    stack: Stack, attributes: tuple[Attribute, ...], seed: int
) -> NDArray[np.float64]:
    """How surely a boosted classifier takes each target for a synthetic row.

    It learns from equally many synthetic and reference rows. The odds that it finds estimate the
    ratio of their densities, as DOMIAS asks for (van Breugel et al. 2023).

    Args:
        stack: the rows.
        attributes: of the tables.
        seed: of the model.

    Returns:
        Shape (targets,).
    """
    synthetic, reference, targets = stack.part(np.column_stack(stack.columns).astype(np.float64))
    rows = min(len(synthetic), len(reference), MAX_ROWS)
    features = np.concatenate([synthetic[:rows], reference[:rows]])

    def learn() -> NDArray[np.float64]:
        model = gradient_boosting(attributes, seed)
        model.fit(features, np.repeat([1, 0], rows))
        scores: NDArray[np.float64] = model.decision_function(targets)
        return scores

    return run_tasks([learn], 1)[0]
