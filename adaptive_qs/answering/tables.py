"""Answers as Arrow record batches: the query in words, the estimate and its interval.

Rows come in one order: by part of the workload, attribute set, and query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtri

from adaptive_qs.answering.run import SetAnswers
from adaptive_qs.answering.texts import QueryTexts
from adaptive_qs.arguments import as_number, shown
from adaptive_qs.data.formulas import Formulas
from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import InputError

Array = NDArray[np.float64]

BATCH_ROWS = 2**16
"""Rows of a batch: small attribute sets are gathered, large ones divided."""

COLUMNS = pa.schema(
    [
        ("attributes", pa.dictionary(pa.int32(), pa.string())),
        ("query", pa.string()),
        ("estimate", pa.float64()),
        ("standard_error", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
    ]
)
"""What every batch has; estimates, errors and bounds are in rows."""
REPEATING = ("attributes", "standard_error")
"""Columns with few distinct values."""


def answer_batches(
    sets: Iterable[SetAnswers],
    schema: Schema,
    confidence: float = 0.95,
    formulas: Formulas = "keep",
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``BATCH_ROWS`` answers; memory is that of one batch.

    Args:
        sets: the answers, set by set.
        schema: names the attributes and their codes.
        confidence: probability with which each interval holds the true answer by itself.
        formulas: which values in the words of queries are escaped, for spreadsheet programs.

    Raises:
        InputError: the confidence is not between 0 and 1, or an answer is no number or has no
            variance because its strategy is too ill-conditioned.
    """
    half_width = interval_factor(confidence)
    texts = QueryTexts(schema, formulas)
    gathered = _Gathered(half_width)
    for answers in sets:
        name = texts.attributes(answers.clique)
        _check_finite(name, answers)
        words = texts.queries(answers.clique, answers.queries)
        start, total = 0, len(answers.estimates)
        while start < total:
            stop = min(total, start + BATCH_ROWS - gathered.rows)
            gathered.add(
                name,
                words(start, stop),
                answers.estimates[start:stop],
                answers.variances[start:stop],
            )
            start = stop
            if gathered.rows == BATCH_ROWS:
                yield gathered.batch()
    if gathered.rows:
        yield gathered.batch()


def interval_factor(confidence: Any) -> float:
    """Standard errors on either side of an estimate, from the normal distribution.

    Raises:
        InputError: the confidence is not a number between 0 and 1.
    """
    chance = as_number(confidence)
    if chance is None or not 0 < chance < 1:
        raise InputError(
            f"confidence is {shown(confidence)}: give a number between 0 and 1, as 0.95"
        )
    return float(ndtri((1 + chance) / 2))


def _check_finite(name: str, answers: SetAnswers) -> None:
    """Refuse answers that are not numbers: they would be written as NaN.

    Raises:
        InputError: there is one.
    """
    variances = answers.variances
    sound = np.isfinite(answers.estimates).all() and np.isfinite(variances).all()
    if not (sound and (variances >= 0).all()):
        raise InputError(
            f"the answers on {name} have no finite variance: its queries are too nearly dependent "
            "for this mechanism, or too different in size: scale them alike or use mechanism "
            "gaussian"
        )


class _Gathered:
    """Parts of the next batch."""

    def __init__(self, half_width: float) -> None:
        self._half_width = half_width
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self._names: list[str] = []
        self._lengths: list[int] = []
        self._texts: list[pa.Array] = []
        self._estimates: list[Array] = []
        self._variances: list[Array] = []

    def add(self, name: str, texts: pa.Array, estimates: Array, variances: Array) -> None:
        """Answers of one attribute set that come next."""
        self.rows += len(estimates)
        self._names.append(name)
        self._lengths.append(len(estimates))
        self._texts.append(texts)
        self._estimates.append(estimates)
        self._variances.append(variances)

    def batch(self) -> pa.RecordBatch:
        """All that was gathered."""
        estimates = np.concatenate(self._estimates)
        errors = np.sqrt(np.concatenate(self._variances))
        margin = self._half_width * errors
        distinct = list(dict.fromkeys(self._names))
        place = {name: position for position, name in enumerate(distinct)}
        codes = np.repeat([place[name] for name in self._names], self._lengths).astype(np.int32)
        columns = [
            pa.DictionaryArray.from_arrays(codes, pa.array(distinct, pa.string())),
            pa.concat_arrays(self._texts),
            *map(pa.array, (estimates, errors, estimates - margin, estimates + margin)),
        ]
        self._clear()
        return pa.record_batch(columns, schema=COLUMNS)
