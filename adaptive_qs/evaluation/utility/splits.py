"""Which rows are trained on and which are tested on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit

from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.utility.features import feature_matrix
from adaptive_qs.evaluation.utility.settings import UtilitySettings
from adaptive_qs.evaluation.utility.target import Codes, Target

TEST_SHARE = 0.3
"""Of the true rows, where no rows were held out."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that a model sees.

    Attributes:
        features: shape (rows, columns but the target).
        labels: shape (rows,): classes.
    """

    features: NDArray[np.float64]
    labels: Codes


@dataclass(frozen=True, eq=False)
class Split:
    """Samples of one repeat: two to train on, and true rows to test both."""

    real: Sample
    synthetic: Sample
    test: Sample


def draw_splits(
    true: CodedTable,
    synthetic: CodedTable,
    held_out: CodedTable | None,
    target: Target,
    settings: UtilitySettings,
) -> list[Split]:
    """One split for each repeat, of rows whose class is kept.

    30 % of the true rows, drawn with the shares of the classes kept, are tested on; the others
    are trained on, and equally many synthetic rows, with fewer of both where one runs short or
    max_rows is less. Held-out rows, if there are any, are tested on instead of the 30 %.

    Raises:
        DataError: too few rows of some table have a class.
    """
    usable = [
        np.flatnonzero(target.labels(table) >= 0)
        for table in (true, synthetic, *([] if held_out is None else [held_out]))
    ]
    labels = target.labels(true)[usable[0]]
    test_rows = round(TEST_SHARE * len(labels))
    train_rows = min(len(labels) - test_rows, len(usable[1]), settings.max_rows)
    test_rows = min(test_rows, settings.max_rows)
    if min(train_rows, test_rows, len(usable[-1])) < target.classes:
        raise DataError(
            f"too few rows to predict {true.domain.names[target.attribute]!r}: every table needs "
            "more rows than the target has classes; give larger ones or name another target"
        )
    rng = np.random.default_rng(settings.seed)
    shuffle = StratifiedShuffleSplit(
        settings.repeats, train_size=train_rows, test_size=test_rows, random_state=settings.seed
    )
    splits = []
    for train, test in shuffle.split(labels, labels):
        chosen = usable[0][test]
        if held_out is not None:
            chosen = rng.permutation(usable[2])[: settings.max_rows]
        splits.append(
            Split(
                _sample(true, target, usable[0][train]),
                _sample(synthetic, target, rng.permutation(usable[1])[:train_rows]),
                _sample(true if held_out is None else held_out, target, chosen),
            )
        )
    return splits


def _sample(table: CodedTable, target: Target, rows: Rows) -> Sample:
    others = tuple(i for i in range(len(table.domain)) if i != target.attribute)
    labels = target.class_of[table.columns[target.attribute][rows]]
    return Sample(feature_matrix(table, others, rows), labels)
