"""What tables 2 to 8 of He et al. ask, row by row, and the numbers published for each.

What the text leaves open is settled by the published numbers of queries, and by the published
errors of Weighted Fourier Factorizations, a closed form that these rows then repeat to the digits
printed:

    affine, absdiff (tables 3, 4, 8)   beside the pairs, "hybrid" queries on single attributes
    affine, absdiff (table 3)          on Adult and Loans two numeric attributes are asked products
                                       of prefixes, all other pairs the affine or absdiff queries;
                                       on CPS all pairs are asked the latter
    random (tables 4 and 8)            3 queries per cell, a cell in a query with probability 0.3
    weights (table 8)                  one weight, 1 to 5, for all queries of an attribute set
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.workload.families import AttributeSpec, QueryMaker, RandomQueries
from adaptive_qs.workload.file import all_ways_queries, make_part
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

PUBLISHED = Path(__file__).resolve().parent
SCHEMAS = {  # sizes of the categorical and of the numeric attributes: He et al., section 8.4
    "Adult": ((42, 16, 15, 9, 7, 6, 5, 2, 2), (100, 100, 100, 99, 85)),
    "CPS": ((7, 4, 2), (50, 100)),
    "Loans": ((51, 36, 15, 8, 6, 5, 4, 3), (101, 101, 101, 101)),
}
MIXED = {1: "range", 2: "affine", 3: "prefix"}
PAIR_FAMILIES = ("affine", "absdiff")
RANDOM_P = 0.3
WEIGHTS = (1, 5)
TIMING_TABLES = (6, 7)


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        table: 2 to 8.
        schema: a name of ``SCHEMAS``, or the size of every attribute.
        attributes: how many there are.
        workload: the name of the queries.
        published: what the paper gives, by column; None where it gives nothing.
    """

    table: int
    schema: str
    attributes: int
    workload: str
    published: dict[str, float | None]

    @property
    def drawn(self) -> bool:
        """Whether queries or weights are random, so that the paper's own draw is not known."""
        return self.workload == "random" or self.table == 8

    def domain(self) -> Domain:
        """The attributes; categorical ones are not ordered."""
        if self.schema not in SCHEMAS:
            size = int(self.schema)
            return Domain.from_sizes({f"a{i}": size for i in range(self.attributes)})
        categorical, numeric = SCHEMAS[self.schema]
        return Domain(
            tuple(
                Attribute(f"a{i}", size, ordered=i >= len(categorical))
                for i, size in enumerate(categorical + numeric)
            )
        )

    def queries(self, seed: int = 0) -> QueryWorkload:
        """The workload; ``seed`` decides what is random in it."""
        domain = self.domain()
        if self.workload == "mixed":
            parts = _all_ways(domain, MIXED)
        elif self.workload in PAIR_FAMILIES:
            parts = [*_all_ways(domain, {1: "hybrid"}), *self._pairs(domain)]
        elif self.workload == "random":
            family = RandomQueries(family="random", p=RANDOM_P, seed=seed)
            parts = _all_ways(domain, {1: family, 2: family})
        elif self.workload.startswith("hybrid"):
            ways = self.workload.removeprefix("hybrid ").removesuffix("-way")
            degrees = range(1, 4) if ways == "<=3" else [int(ways)]
            parts = _all_ways(domain, dict.fromkeys(degrees, "hybrid"))
        else:
            parts = _all_ways(domain, dict.fromkeys((1, 2), self.workload))
        if self.table == 8:
            rng = np.random.default_rng(seed)
            parts = [replace(part, weights=_weights(rng, len(part))) for part in parts]
        return QueryWorkload(domain, tuple(parts))

    def _pairs(self, domain: Domain) -> Iterator[QueryPart]:
        pairs = np.array(list(combinations(range(len(domain)), 2)), dtype=np.int32)
        numeric = np.array([a.ordered for a in domain.attributes])[pairs].all(axis=1)
        products = numeric if self.schema in ("Adult", "Loans") else np.zeros_like(numeric)
        maker = QueryMaker(domain)
        yield make_part(maker, pairs[~products], self.workload, 1.0)
        if products.any():
            yield make_part(maker, pairs[products], "prefix", 1.0)


def all_rows(tables: Iterable[int]) -> list[Row]:
    """The rows of these tables in the paper's order."""
    chosen = set(tables)
    rows = [
        _row(line, line["workload"], ("table", "schema", "attributes", "workload"))
        for line in read_published("querysmasher_rmse.csv")
    ]
    rows += [
        _row(line, {6: "prefix", 7: "mixed"}[int(line["table"])], ("table", "schema", "attributes"))
        for line in read_published("querysmasher_timing.csv")
    ]
    return sorted((row for row in rows if row.table in chosen), key=lambda row: row.table)


def read_published(name: str) -> list[dict[str, str]]:
    """A table of ``scripts/published``; lines that start with # tell its source."""
    with (PUBLISHED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _row(line: dict[str, str], workload: str, keys: tuple[str, ...]) -> Row:
    counts = ("queries", "views")
    numbers = {
        k: (int(v) if k in counts else float(v)) if v else None
        for k, v in line.items()
        if k not in keys
    }
    return Row(int(line["table"]), line["schema"], int(line["attributes"]), workload, numbers)


def _all_ways(domain: Domain, families: dict[int, AttributeSpec]) -> list[QueryPart]:
    found = (all_ways_queries(domain, k, family) for k, family in families.items())
    return [part for workload in found for part in workload.parts]


def _weights(rng: np.random.Generator, sets: int) -> np.ndarray:
    low, high = WEIGHTS
    return rng.integers(low, high, sets, endpoint=True).astype(np.float64)
