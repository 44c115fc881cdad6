"""Error of the queries of a workload, of any family, and what it is to be compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.evaluation.tables import MAX_DENSE_CELLS, JointCodes, in_batches
from adaptive_qs.jsonfile import read_json
from adaptive_qs.machine import StepProgress
from adaptive_qs.workload.axes import Circular, FirstCells, Range
from adaptive_qs.workload.families import family_names, family_of
from adaptive_qs.workload.file import WorkloadFile, WorkloadSpec, resolve_workload
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.workload import QueryPart, QueryWorkload, Workload


@dataclass(frozen=True)
class PartError:
    """Root mean squared errors of some queries, in shares of the rows; owner only.

    Each is √(Σ weight · squared error / queries).

    Attributes:
        families: of the queries, such as ("prefix", "marginal").
        ways: attributes in each set.
        sets: of attributes.
        queries: their number, over all sets.
        weighted: whether some query counts more or less than once.
        rmse: of the synthetic table. It is the error that ``plan`` forecasts, divided by the rows.
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        deviation: standard deviation of the squared error of a fresh sample, or more.
    """

    families: tuple[str, ...]
    ways: int
    sets: int
    queries: int
    weighted: bool
    rmse: float
    fresh: float
    independent: float
    deviation: float = 0.0

    def chance(self, deviations: float) -> float:
        """How much further than ``fresh`` so many standard deviations take a fresh sample."""
        return math.sqrt(self.fresh**2 + deviations * self.deviation) - self.fresh

    @property
    def title(self) -> str:
        """Such as "prefix and marginal of 2 columns"."""
        columns = "single columns" if self.ways == 1 else f"{self.ways} columns"
        return f"{' and '.join(self.families)} of {columns}"


@dataclass(frozen=True)
class QueryError:
    """Of the answers from the synthetic table; owner only.

    Attributes:
        parts: one for each part of the workload and number of attributes, in its order.
    """

    parts: tuple[PartError, ...]

    @property
    def queries(self) -> int:
        """Queries of all parts."""
        return sum(part.queries for part in self.parts)

    @property
    def weighted(self) -> bool:
        """Whether some query counts more or less than once."""
        return any(part.weighted for part in self.parts)

    @property
    def joint(self) -> bool:
        """Whether some query is of several columns, so that independence says something."""
        return any(part.ways > 1 for part in self.parts)

    @property
    def rmse(self) -> float:
        """Of all queries."""
        return self._mean("rmse")

    @property
    def fresh(self) -> float:
        """The same expected of a fresh sample."""
        return self._mean("fresh")

    @property
    def independent(self) -> float:
        """The same expected of independent columns."""
        return self._mean("independent")

    def chance(self, deviations: float) -> float:
        """How much further than ``fresh`` so many standard deviations take a fresh sample.

        Parts may err together, so their deviations add up.
        """
        all_parts = math.fsum(part.queries * part.deviation for part in self.parts) / self.queries
        return math.sqrt(self.fresh**2 + deviations * all_parts) - self.fresh

    def _mean(self, name: str) -> float:
        squares = (part.queries * getattr(part, name) ** 2 for part in self.parts)
        return math.sqrt(math.fsum(squares) / self.queries)


# Sums of squared answers of queries of any family, without listing the answers.

Array = NDArray[np.float64]
MOST_GRAM, MOST_STEPS = 2_048, 2**28
"""Rows of a Gram matrix, and multiplications, beyond which the variance of squares is bounded."""


def squared_error(queries: tuple[Queries, ...], difference: Array) -> float:
    """Σ (Qd)² for a product of queries.

    Args:
        queries: one for each axis of the difference, or one for them all.
        difference: d, over the cells of a set of attributes.
    """
    for factor in queries:
        difference = np.moveaxis(_same_length(factor, difference), 0, -1)
    return float((difference**2).sum())


def _same_length(queries: Queries, table: Array) -> Array:
    """Values along the first axis whose squares have the sum of those of the answers.

    Ranges and arcs are n² and more. With the sums P_0 .. P_n of the first cells, the squares of
    P_b − P_a over all a < b add up to (n + 1) Σ (P − mean P)². The Gram matrix of arcs is
    circulant, so its square root is applied by Fourier transforms.
    """
    trailing = (1,) * (table.ndim - 1)
    if isinstance(queries, Range):
        sums = np.concatenate([np.zeros((1, *table.shape[1:])), np.cumsum(table, axis=0)])
        ranges: Array = math.sqrt(len(sums)) * (sums - sums.mean(axis=0))
        return ranges
    if isinstance(queries, Circular):
        spectrum = np.sqrt(np.maximum(np.fft.rfft(queries.circulant()).real, 0.0))
        transformed = np.fft.rfft(table, axis=0) * spectrum.reshape(-1, *trailing)
        arcs: Array = np.fft.irfft(transformed, queries.size, axis=0)
        return arcs
    if isinstance(queries, FirstCells):
        return _same_length(queries.queries, table[: queries.queries.size])
    return queries.answer(table)


def length_of(queries: Queries) -> int:
    """Length of the first axis that :func:`_same_length` gives."""
    if isinstance(queries, Range):
        return queries.size + 1
    if isinstance(queries, FirstCells):
        return length_of(queries.queries)
    return queries.size if isinstance(queries, Circular) else queries.num_queries


def row_squares(queries: tuple[Queries, ...], shares: Array) -> float:
    """Σ_x p_x Σ_q Q[q, x]²: what one row of a table with these shares adds to the squares, on
    average.

    Args:
        queries: as for :func:`squared_error`.
        shares: p, over the cells of a set of attributes.
    """
    for factor in queries:
        norms = factor.column_norms().reshape(factor.shape)
        shares = np.tensordot(norms, shares, axes=norms.ndim)
    return float(shares)


def deviation_of_squares(queries: tuple[Queries, ...], shares: Array) -> float:
    """Standard deviation of Σ (Qd)², where d is normal with the covariance Σ of one sampled row.

    It is √(2 tr(GΣGΣ)) with G = QᵀQ and Σ = diag(p) − ppᵀ, and the trace is
    pᵀ(G∘G)p − 2 Σ_x p_x (Gp)_x² + (pᵀGp)². Where G is large it is bounded by √2 tr(GΣ), which it is
    where a single direction makes all of the error.

    Args:
        queries: as for :func:`squared_error`.
        shares: p, over the cells of a set of attributes.
    """
    rows = [math.prod(factor.shape) for factor in queries]
    if max(rows) > MOST_GRAM or shares.size * sum(rows) > MOST_STEPS:
        trace = row_squares(queries, shares) - squared_error(queries, shares)
        return math.sqrt(2) * max(0.0, trace)
    grams = [factor.gram() for factor in queries]
    p = shares.reshape(rows)
    once, twice = _applied(grams, p), _applied([gram**2 for gram in grams], p)
    trace = (p * twice).sum() - 2 * (p * once**2).sum() + (p * once).sum() ** 2
    return math.sqrt(2 * max(0.0, float(trace)))


def _applied(matrices: Sequence[Array], table: Array) -> Array:
    """A Kronecker product of square matrices times a table with an axis for each of them."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table


# The queries of a workload, and their error.


class Squares(NamedTuple):
    """Weighted sums of squared errors of queries in shares of the rows: of the synthetic table,
    expected of a fresh sample and of independent columns, and the deviation of the second."""

    error: float
    fresh: float
    independent: float
    deviation: float


ComparedSource = WorkloadSpec | QueryWorkload
"""What a caller may give as the workload of a comparison: marginals or queries."""


def resolve_compared(
    source: ComparedSource, domain: Domain
) -> tuple[Workload, QueryWorkload | None]:
    """The marginals of a workload's sets of attributes, and its queries.

    Marginals have the sum of the weights of the parts that name them. The queries are None where
    nothing is asked for but the cells of marginals.

    Args:
        source: a number of ways, several, a workload file or its parsed content, a workload of
            marginals or of queries; None for all 2-way marginals.
        domain: of the tables.

    Raises:
        WorkloadError: the file is missing, is no workload file, or does not fit the domain.
        ResourceExceeded: too many sets of attributes, or too many coefficients.
    """
    if isinstance(source, str | Path):
        content = read_json(source, WorkloadError)
        return _compared(WorkloadFile.parse(content, str(source)), domain, str(source))
    if isinstance(source, Mapping):
        return _compared(WorkloadFile.parse(source), domain)
    if not isinstance(source, QueryWorkload):
        return resolve_workload(source, domain), None
    if source.domain != domain:
        raise WorkloadError("the workload is over other attributes: build it on this schema")
    families = {family_of(q) for p in source.parts for q in p.joint or p.axis.values()}
    return _marginals_of(source), None if families == {"marginal"} else source


def _compared(
    file: WorkloadFile, domain: Domain, path: str | None = None
) -> tuple[Workload, QueryWorkload | None]:
    label = "workload" if path is None else path
    if all(name == "marginal" for part in file.parts for name in family_names(part.queries)):
        return file.workload(domain, label), None
    queries = file.query_workload(domain, label)
    return _marginals_of(queries), queries


def _marginals_of(queries: QueryWorkload) -> Workload:
    weights: dict[Clique, float] = {}
    for part, index in _sets(queries):
        clique = _clique(part, index)
        weights[clique] = weights.get(clique, 0.0) + float(part.weights[index])
    return Workload(queries.domain, weights)


def query_error(
    joint: JointCodes,
    workload: QueryWorkload,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> QueryError:
    """The error of all queries of a workload.

    Each thread holds one set of attributes at a time, as the difference of its two marginals.

    Args:
        joint: both tables.
        workload: the queries, over their domain.
        workers: threads.
        progress: called with the sets of attributes done and in all.

    Raises:
        ResourceExceeded: a set has more cells, or asks for more values, than 2^22.
    """
    sets = _sets(workload)
    check_queries(workload)

    def compare(batch: Sequence[tuple[QueryPart, int]]) -> list[Squares]:
        return [_compare(joint, part, index) for part, index in batch]

    found = iter(in_batches(compare, sets, workers, progress))
    return QueryError(
        tuple(_part_error(part, list(islice(found, len(part)))) for part in workload.parts)
    )


def _part_error(part: QueryPart, found: Sequence[Squares]) -> PartError:
    weights = part.weights.tolist()
    rmse, fresh, independent, deviation = (
        math.fsum(weight * square for weight, square in zip(weights, squares)) / part.num_queries
        for squares in zip(*found)
    )
    asked = part.axis.values() if part.joint is None else part.joint
    return PartError(
        tuple(dict.fromkeys(family_of(queries) for queries in asked)),
        part.degree,
        len(part),
        part.num_queries,
        bool((part.weights != 1).any()),
        math.sqrt(rmse),
        math.sqrt(fresh),
        math.sqrt(independent),
        deviation,
    )


def check_queries(workload: QueryWorkload) -> None:
    """Refuse what would take too much memory.

    Raises:
        ResourceExceeded: a set has more cells, or asks for more values, than 2^22.
    """
    for part, index in _sets(workload):
        values = math.prod(max(math.prod(q.shape), length_of(q)) for q in part.queries(index))
        if values > MAX_DENSE_CELLS:
            named = " x ".join(workload.domain.clique_names(_clique(part, index)))
            raise ResourceExceeded(
                f"queries on {named} take {values:,} values, and {MAX_DENSE_CELLS:,} is the most "
                "that evaluate compares: ask for them on fewer attributes, or declare coarser bins"
            )


def _compare(joint: JointCodes, part: QueryPart, index: int) -> Squares:
    """Sums of squared errors of one set of attributes, in shares of the rows.

    Two samples of n and m rows of one population with shares p have the answers' differences
    Var = (1/n + 1/m) (Σ_x p_x Q[q, x]² − (Qp)_q²); the true table's own shares make the bracket
    (n − 1)/n as large on average. A table of m rows from the product π of the single columns is
    Q(p − π) away, and varies by 1/m of the same bracket of π. Errors of sets vary together at most,
    so that their standard deviations may be added up.
    """
    clique, queries = _clique(part, index), part.queries(index)
    n, m = joint.true_rows, joint.rows - joint.true_rows
    cells, bound = joint.cells(clique)
    true, synthetic = (
        np.bincount(part, minlength=bound).reshape(joint.pair.domain.shape(clique))
        for part in np.split(cells, [n])
    )
    # Whole multiples of 1/(n m): equal tables differ by 0 exactly.
    difference = (true * m - synthetic * n) / (float(n) * float(m))
    p = true / n
    singles = joint.pair.margins[0]
    product = reduce(np.multiply.outer, [singles[i] / n for i in clique])

    def spread(shares: Array) -> float:
        return max(0.0, row_squares(queries, shares) - squared_error(queries, shares))

    return Squares(
        squared_error(queries, difference),
        (1 / n + 1 / m) * spread(p) * n / max(n - 1, 1),
        squared_error(queries, p - product) + spread(product) / m,
        (1 / n + 1 / m) * deviation_of_squares(queries, p),
    )


def _sets(workload: QueryWorkload) -> list[tuple[QueryPart, int]]:
    return [(part, index) for part in workload.parts for index in range(len(part))]


def _clique(part: QueryPart, index: int) -> Clique:
    return tuple(part.cliques[index].tolist())
