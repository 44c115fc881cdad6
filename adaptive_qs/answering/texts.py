"""Queries in words, as Arrow arrays: no Python text is built for an answer to a product."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adaptive_qs.data.formulas import Formulas
from adaptive_qs.data.labels import column_labels
from adaptive_qs.data.schema import Schema
from adaptive_qs.data.writers import escapes_of
from adaptive_qs.domain import Clique
from adaptive_qs.workload.queries import Queries

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
            self._codes[attribute] = tuple(replaced.get(x, x) for x in column_labels(column))
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
