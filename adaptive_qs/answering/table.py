"""Answers as Arrow record batches: the query in words, the estimate and its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtri

from adaptive_qs.answering.measure import SetAnswers
from adaptive_qs.arguments import as_number, shown
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.table.formulas import Formulas
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import escapes_of
from adaptive_qs.workload.protocol import Queries

# Queries in words, as Arrow arrays: no Python text is built for an answer to a product.

Texts = Callable[[int, int], pa.Array]
"""The texts of the queries from one position to another; each call goes on where the last ended."""

KEPT_TEXTS = 2**20
"""Texts of single families that are kept for the next attribute sets."""


class QueryTexts:
    """Words for the queries on the attributes of a schema.

    Args:
        schema: names the attributes and their codes.
        formulas: which values are escaped, for spreadsheet programs.
    """

    def __init__(self, schema: Schema, formulas: Formulas = "keep") -> None:
        self._schema = schema
        self._formulas = formulas
        self._codes: dict[int, tuple[str, ...]] = {}
        self._kept: dict[tuple[int, Queries], pa.Array] = {}

    def attributes(self, clique: Clique) -> str:
        """The set of attributes, such as "age x sex"."""
        return " x ".join(self._names(clique))

    def queries(self, clique: Clique, queries: tuple[Queries, ...]) -> Texts:
        """The queries on a set of attributes, such as "age <= 39 and sex = Female".

        Args:
            clique: the attributes.
            queries: a product of families, or one joint family.
        """
        joint = len(queries) != len(clique)
        if joint or (len(queries) == 1 and queries[0].num_queries > KEPT_TEXTS):
            return self._streamed(clique, queries[0])
        factors = [self._of_axis(attribute, family) for attribute, family in zip(clique, queries)]
        return _joined(factors)

    def _streamed(self, clique: Clique, queries: Queries) -> Texts:
        """Texts made one by one, of one family that is not worth keeping."""
        values = tuple(self._values(attribute) for attribute in clique)
        texts = queries.labels(self._names(clique), values)

        def text(start: int, stop: int) -> pa.Array:
            return pa.array(islice(texts, stop - start), pa.string(), size=stop - start)

        return text

    def _of_axis(self, attribute: int, queries: Queries) -> pa.Array:
        key = (attribute, queries)
        if key not in self._kept:
            if sum(map(len, self._kept.values())) + queries.num_queries > KEPT_TEXTS:
                self._kept.clear()
            labels = queries.labels(self._names((attribute,)), (self._values(attribute),))
            self._kept[key] = pa.array(labels, pa.string(), size=queries.num_queries)
        return self._kept[key]

    def _names(self, clique: Clique) -> tuple[str, ...]:
        return tuple(self._schema.names[attribute] for attribute in clique)

    def _values(self, attribute: int) -> tuple[str, ...]:
        if attribute not in self._codes:
            column = self._schema.columns[attribute]
            replaced = escapes_of(column, self._schema, self._formulas)
            self._codes[attribute] = tuple(replaced.get(x, x) for x in column.labels_of_codes())
        return self._codes[attribute]


def _joined(factors: list[pa.Array]) -> Texts:
    """Texts of a product, row-major: those of the last factor vary fastest."""
    shape = tuple(map(len, factors))
    if len(factors) == 1:
        return lambda start, stop: factors[0].slice(start, stop - start)

    def text(start: int, stop: int) -> pa.Array:
        positions = np.unravel_index(np.arange(start, stop), shape)
        parts = [factor.take(pa.array(of)) for factor, of in zip(factors, positions)]
        return pc.binary_join_element_wise(*parts, " and ")

    return text


# Answers as Arrow record batches: the query in words, the estimate and its interval.
#
# Rows come in one order: by part of the workload, attribute set, and query.

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
_Part = tuple[str, pa.Array, Array, Array]
"""Name, texts, estimates and variances of answers of one attribute set."""


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
    gathered: list[_Part] = []
    rows = 0
    for answers in sets:
        name = texts.attributes(answers.clique)
        _check_finite(name, answers)
        words = texts.queries(answers.clique, answers.queries)
        start, total = 0, len(answers.estimates)
        while start < total:
            stop = min(total, start + BATCH_ROWS - rows)
            estimates, variances = answers.estimates[start:stop], answers.variances[start:stop]
            gathered.append((name, words(start, stop), estimates, variances))
            rows += stop - start
            start = stop
            if rows == BATCH_ROWS:
                yield _batch(gathered, half_width)
                gathered, rows = [], 0
    if gathered:
        yield _batch(gathered, half_width)


def _batch(gathered: list[_Part], half_width: float) -> pa.RecordBatch:
    names, texts, estimates, variances = zip(*gathered)
    answers = np.concatenate(estimates)
    errors = np.sqrt(np.concatenate(variances))
    margin = half_width * errors
    place = {name: position for position, name in enumerate(dict.fromkeys(names))}
    lengths = [len(part) for part in estimates]
    codes = np.repeat([place[name] for name in names], lengths).astype(np.int32)
    columns = [
        pa.DictionaryArray.from_arrays(codes, pa.array(place, pa.string())),
        pa.concat_arrays(texts),
        *map(pa.array, (answers, errors, answers - margin, answers + margin)),
    ]
    return pa.record_batch(columns, schema=COLUMNS)


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
