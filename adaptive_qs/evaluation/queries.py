"""Error of the queries of a workload, of any family, compared with two others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import islice
from typing import Any

import numpy as np

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.evaluation import checks, scale
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.scale import DEVIATIONS, LEAST_ROOM, STEP_ERROR, RelativeError
from adaptive_qs.evaluation.tables import MAX_DENSE_CELLS, JointCodes, Numbers, in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import count, counted, share, significant
from adaptive_qs.workload.axes import Circular, FirstCells, Range
from adaptive_qs.workload.families import find_family
from adaptive_qs.workload.file import WorkloadSpec, other_queries, resolve_workload
from adaptive_qs.workload.matrices import Queries
from adaptive_qs.workload.workload import QueryPart, QueryWorkload, Workload


@dataclass(frozen=True)
class PartError:
    """Root mean squared errors √(Σ weight · squared error / queries) of queries; owner only.

    Attributes:
        families: of the queries, such as ("prefix", "marginal").
        ways: attributes in each set.
        sets: number of sets of attributes.
        queries: their number, over all sets.
        weighted: whether some query counts more or less than once.
        rmse: of the synthetic table, in shares of the rows.
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

    @property
    def joint(self) -> bool:
        """Whether queries are of several columns, so that independence says something."""
        return self.ways > 1

    def chance(self, deviations: float) -> float:
        """Return how much further than expected standard deviations take a fresh sample."""
        return math.sqrt(self.fresh**2 + deviations * self.deviation) - self.fresh

    @property
    def is_gone(self) -> bool:
        """Whether the error is clearly that of independent columns."""
        tolerance = max(LEAST_ROOM * self.fresh, self.chance(DEVIATIONS))
        return self.joint and scale.like_independent(
            self.rmse, self.fresh, self.independent, tolerance
        )

    @property
    def title(self) -> str:
        """A title, such as "prefix and marginal of 2 columns"."""
        columns = "single columns" if self.ways == 1 else f"{self.ways} columns"
        return f"{' and '.join(self.families)} of {columns}"


@dataclass(frozen=True)
class QueryError:
    """The errors of all queries, one for each part of the workload; owner only."""

    parts: tuple[PartError, ...]

    @cached_property
    def whole(self) -> PartError:
        """All parts together: they may err together, so their deviations add up."""
        parts, queries = self.parts, sum(part.queries for part in self.parts)

        def mean(name: str, power: int = 1) -> float:
            return math.fsum(p.queries * getattr(p, name) ** power for p in parts) / queries

        return PartError(
            ("all",), max(p.ways for p in parts), sum(p.sets for p in parts), queries,
            any(p.weighted for p in parts), math.sqrt(mean("rmse", 2)),
            math.sqrt(mean("fresh", 2)), math.sqrt(mean("independent", 2)), mean("deviation"),
        )  # fmt: skip

    @property
    def gone(self) -> list[PartError]:
        """Parts that are as far off as independent columns."""
        return [part for part in self.parts if part.is_gone]


# Sums of squared answers of queries of any family, without listing the answers.

MOST_GRAM, MOST_STEPS = 2_048, 2**28
"""Rows of a Gram matrix, and multiplications, beyond which the variance of squares is bounded."""


def squared_error(queries: tuple[Queries, ...], difference: Numbers) -> float:
    """Return Σ (Qd)² for a product of queries, one for each axis of d or one for them all.

    The difference d is over the cells of a set of attributes.
    """
    for factor in queries:
        difference = np.moveaxis(_same_length(factor, difference), 0, -1)
    return float((difference**2).sum())


def _same_length(queries: Queries, table: Numbers) -> Numbers:
    """Return values along the first axis whose squares have the same sum as the answers'.

    Ranges and arcs are n² and more. With the sums P_0 .. P_n of the first cells, the squares of
    P_b − P_a over all a < b add up to (n + 1) Σ (P − mean P)². The Gram matrix of arcs is
    circulant, so its square root is applied by Fourier transforms.
    """
    if isinstance(queries, Range):
        sums = np.concatenate([np.zeros((1, *table.shape[1:])), np.cumsum(table, axis=0)])
        return math.sqrt(len(sums)) * (sums - sums.mean(axis=0))
    if isinstance(queries, Circular):
        spectrum = np.sqrt(np.maximum(np.fft.rfft(queries.circulant()).real, 0.0))
        transformed = np.fft.rfft(table, axis=0).T * spectrum
        return np.fft.irfft(transformed.T, queries.size, axis=0)
    if isinstance(queries, FirstCells):
        return _same_length(queries.queries, table[: queries.queries.size])
    return queries.answer(table)


def count_queries(queries: Queries) -> int:
    """Return the length of the first axis that :func:`_same_length` returns."""
    if isinstance(queries, Range):
        return queries.size + 1
    if isinstance(queries, FirstCells):
        return count_queries(queries.queries)
    return queries.size if isinstance(queries, Circular) else queries.num_queries


def row_squares(queries: tuple[Queries, ...], shares: Numbers) -> float:
    """Return Σ_x p_x Σ_q Q[q, x]², the mean square of the answers on a row with shares p."""
    for factor in queries:
        norms = factor.column_norms().reshape(factor.shape)
        shares = np.tensordot(norms, shares, axes=norms.ndim)
    return float(shares)


def deviation_of_squares(queries: tuple[Queries, ...], shares: Numbers) -> float:
    """Return the standard deviation of Σ (Qd)² for normal d with the covariance Σ of one row.

    It is √(2 tr(GΣGΣ)) with G = QᵀQ and Σ = diag(p) − ppᵀ, and the trace is
    pᵀ(G∘G)p − 2 Σ_x p_x (Gp)_x² + (pᵀGp)². If G is large it is bounded by √2 tr(GΣ), which it is
    if a single direction makes all of the error.
    """
    rows = [math.prod(factor.shape) for factor in queries]
    if max(rows) > MOST_GRAM or shares.size * sum(rows) > MOST_STEPS:
        trace = row_squares(queries, shares) - squared_error(queries, shares)
        return math.sqrt(2) * max(0.0, trace)
    grams = [factor.gram() for factor in queries]
    p = shares.reshape(rows)
    once, twice = _apply(grams, p), _apply([gram**2 for gram in grams], p)
    trace = (p * twice).sum() - 2 * (p * once**2).sum() + (p * once).sum() ** 2
    return math.sqrt(2 * max(0.0, float(trace)))


def _apply(matrices: Sequence[Numbers], table: Numbers) -> Numbers:
    """Multiply a table by a Kronecker product of square matrices, one for each axis."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table


# The queries of a workload, and their error.

ComparedSource = WorkloadSpec | QueryWorkload
"""What a caller may give as the workload of a comparison: marginals or queries."""


def resolve_compared(
    source: ComparedSource, domain: Domain
) -> tuple[Workload, QueryWorkload | None]:
    """Return the marginals of a workload's sets of attributes, and its queries.

    Marginals have the sum of the weights of the parts that name them. The queries are None if they
    are the cells of marginals. The source is a number of ways, several, a workload file or its
    parsed content, a workload of marginals or of queries, or None for all 2-way marginals.

    Raises:
        WorkloadError: the file is missing, is no workload file, or does not fit the domain.
        ResourceExceeded: there are too many sets, coefficients, or values of a set.
    """
    if isinstance(source, QueryWorkload):
        if source.domain != domain:
            raise WorkloadError("the workload is over other attributes: build it on this schema")
        families = {find_family(q) for p in source.parts for q in p.joint or p.axis.values()}
        queries = source
    else:
        make = other_queries(source)
        if make is None:
            return resolve_workload(source, domain), None
        queries, families = make(domain), set()
    weights: dict[Clique, float] = {}
    for part, index in _list_sets(queries):
        clique = _clique(part, index)
        weights[clique] = weights.get(clique, 0.0) + float(part.weights[index])
    marginals = Workload(queries.domain, weights)
    if families == {"marginal"}:
        return marginals, None
    check_queries(queries)
    return marginals, queries


def query_error(
    joint: JointCodes,
    workload: QueryWorkload,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> QueryError:
    """Return the error of all queries of a workload; raise as :func:`check_queries`.

    Each thread holds one set of attributes at a time, as the difference of its two marginals.
    """
    check_queries(workload)
    sets = _list_sets(workload)
    found = in_batches(
        lambda batch: [_compare(joint, *one) for one in batch], sets, workers, progress
    )
    errors = []
    for part in workload.parts:
        weights, squares = part.weights.tolist(), zip(*islice(found, len(part)))
        means = [
            math.fsum(weight * square for weight, square in zip(weights, kind)) / part.num_queries
            for kind in squares
        ]
        factors = part.axis.values() if part.joint is None else part.joint
        families = tuple(dict.fromkeys(find_family(queries) for queries in factors))
        weighted = bool((part.weights != 1).any())
        known = (families, part.degree, len(part), part.num_queries, weighted)
        rmse, fresh, independent = map(math.sqrt, means[:3])
        errors.append(PartError(*known, rmse, fresh, independent, means[3]))
    return QueryError(tuple(errors))


def check_queries(workload: QueryWorkload) -> None:
    """Raise ResourceExceeded for queries on a set of more than 2^22 cells or values."""
    for part, index in _list_sets(workload):
        values = math.prod(max(math.prod(q.shape), count_queries(q)) for q in part.queries(index))
        if values > MAX_DENSE_CELLS:
            names = " x ".join(workload.domain.clique_names(_clique(part, index)))
            raise ResourceExceeded(
                f"queries on {names} take {values:,} values, and {MAX_DENSE_CELLS:,} is the most "
                "that evaluate compares: ask for them on fewer attributes, or declare coarser bins"
            )


def _compare(joint: JointCodes, part: QueryPart, index: int) -> tuple[float, float, float, float]:
    """Return sums of squared errors of one set of attributes, in shares of the rows.

    They are: of the synthetic table, expected of a fresh sample and of independent columns,
    and the deviation of the second. Two samples of n and m rows of one population with shares p
    have the answers' differences Var = (1/n + 1/m) (Σ_x p_x Q[q, x]² − (Qp)_q²); the true table's
    own shares make the bracket (n − 1)/n as large on average. A table of m rows from the product π
    of the single columns is Q(p − π) away, and varies by 1/m of the same bracket of π. Errors of
    sets vary together at most, so that their standard deviations may be added up.
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

    def spread(shares: Numbers) -> float:
        return max(0.0, row_squares(queries, shares) - squared_error(queries, shares))

    return (
        squared_error(queries, difference),
        (1 / n + 1 / m) * spread(p) * n / max(n - 1, 1),
        squared_error(queries, p - product) + spread(product) / m,
        (1 / n + 1 / m) * deviation_of_squares(queries, p),
    )


def _list_sets(workload: QueryWorkload) -> list[tuple[QueryPart, int]]:
    return [(part, index) for part in workload.parts for index in range(len(part))]


def _clique(part: QueryPart, index: int) -> Clique:
    return tuple(part.cliques[index].tolist())


ROUNDING = 1e-9
"""Share of the rows by which equal answers may differ."""


def place_queries(found: QueryError) -> RelativeError:
    """Return the relative error of all queries together.

    Without a scale it is close up to 25 % above a fresh sample, and usable up to twice of it.
    """
    whole = found.whole
    limits = ROUNDING + LEAST_ROOM * whole.fresh, ROUNDING + whole.fresh
    tolerance = max(whole.chance(DEVIATIONS) + STEP_ERROR * whole.fresh, LEAST_ROOM * whole.fresh)
    joint = whole.joint and whole.independent - whole.fresh > STEP_ERROR * whole.fresh
    return RelativeError(
        whole.rmse, whole.fresh, whole.independent, tolerance, limits, whole.joint, joint,
        bool(found.gone),
    )  # fmt: skip


class QueriesCheck(Check):
    """How far the queries of the workload are off, if they are not the cells of marginals."""

    name, title, about = "queries", "Queries of the workload", "queries"
    uses, shown = ("the requested counts",), "always"
    rules = (Word("queries", "plain", lambda error: not error.known), *scale.CLOSENESS)

    def measure(self, comparison: Comparison) -> QueryError | None:
        if comparison.queries is None:
            return None
        steps = comparison.steps("queries")
        return query_error(comparison.joint, comparison.queries, comparison.workers, steps)

    def judge(self, facts: QueryError | None, evaluation: Any) -> Finding | None:
        """Place the error between a fresh sample and independent columns."""
        if facts is None:
            return None
        rows, place, whole = evaluation.pair.true.num_rows, place_queries(facts), facts.whole
        text = (
            f"The {counted(whole.queries, 'requested query', 'requested queries')} "
            f"{'is' if whole.queries == 1 else 'are'} off by {share(whole.rmse)} of the rows "
            f"({significant(whole.rmse * rows)} of {rows:,}; root mean square"
            f"{', weighted' * whole.weighted}), other rows of the same "
            f"population by about {share(whole.fresh)}"
        )
        if whole.joint:
            text += f", independent columns by {share(whole.independent)}"
        text += str(place)
        if gone := [part.title for part in facts.gone]:
            text += f" As far off as independent columns: {checks.named(gone)}."
        return Finding(*self.word_for(place), text, figures=_figures(facts, rows))

    def as_json(self, facts: QueryError | None) -> Mapping[str, Any]:
        return {"query_parts": [] if facts is None else facts.parts}


def _figures(facts: QueryError, rows: int) -> tuple[checks.Figure, ...]:
    whole, parts = facts.whole, facts.parts
    lines = [
        (e.title if e is not whole else "all", e.queries, e.sets, e.rmse, e.rmse * rows, e.fresh,
         e.independent if e.joint else None)
        for e in (*parts, *([whole] if len(parts) > 1 else ()))
    ]  # fmt: skip
    caption = "Root mean squared error of the requested queries"
    caption += f"{', weighted as the workload is,' if whole.weighted else ''} in shares of the rows"
    number = checks.number
    columns = (
        checks.Column("queries"), number("number", count), number("sets", count),
        number("RMSE", share), number("in rows", significant), number("fresh sample", share),
        number("independent columns", share),
    )  # fmt: skip
    return (checks.Table(caption, columns, lines, len(lines)),)
