"""Error of the queries of a workload, of any family, and what it is to be compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.evaluation.contingency import MAX_DENSE_CELLS, JointCodes, in_batches
from adaptive_qs.evaluation.query_parts import PartError, QueryError
from adaptive_qs.evaluation.query_squares import (
    deviation_of_squares,
    length_of,
    row_squares,
    squared_error,
)
from adaptive_qs.jsonfile import read_json
from adaptive_qs.progress import StepProgress
from adaptive_qs.workload.families import AXIS_FAMILIES, PAIR_FAMILIES
from adaptive_qs.workload.family_spec import family_names
from adaptive_qs.workload.file import WorkloadFile, WorkloadSpec, resolve_workload
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload
from adaptive_qs.workload.random_queries import Random
from adaptive_qs.workload.workload import Workload

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


class Squares(NamedTuple):
    """Weighted sums of squared errors of queries, in shares of the rows.

    Attributes:
        error: of the synthetic table.
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        deviation: standard deviation of what a fresh sample's is.
    """

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
    families = {_family(q) for p in source.parts for q in p.joint or p.axis.values()}
    return _marginals_of(source), None if families == {"marginal"} else source


def _compared(
    file: WorkloadFile, domain: Domain, path: str | None = None
) -> tuple[Workload, QueryWorkload | None]:
    label = "workload" if path is None else path
    if all(name == "marginal" for part in file.parts for name in family_names(part.queries)):
        return file.workload(domain, label), None
    folder = None if path is None else Path(path).parent
    queries = file.query_workload(domain, label, folder)
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
    sums = (
        math.fsum(weight * square for weight, square in zip(part.weights.tolist(), squares))
        for squares in zip(*found)
    )
    *squares, deviation = (total / part.num_queries for total in sums)
    rmse, fresh, independent = map(math.sqrt, squares)
    asked = part.axis.values() if part.joint is None else part.joint
    return PartError(
        tuple(dict.fromkeys(_family(queries) for queries in asked)),
        part.degree,
        len(part),
        part.num_queries,
        bool((part.weights != 1).any()),
        rmse,
        fresh,
        independent,
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
    true, synthetic = _counts(joint, clique)
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


def _family(queries: Queries) -> str:
    """As a workload file calls it."""
    families: Mapping[str, type[Queries]] = {**AXIS_FAMILIES, **PAIR_FAMILIES}
    names = {kind: name for name, kind in families.items()}
    return names.get(type(queries), "random" if isinstance(queries, Random) else "custom")


def _counts(joint: JointCodes, clique: Clique) -> tuple[Counts, Counts]:
    """Both marginals of a set of at most ``MAX_DENSE_CELLS`` cells."""
    cells, bound = joint.cells(clique)
    true, synthetic = (
        np.bincount(part, minlength=bound).reshape(joint.pair.domain.shape(clique))
        for part in np.split(cells, [joint.true_rows])
    )
    return true, synthetic


def _sets(workload: QueryWorkload) -> list[tuple[QueryPart, int]]:
    return [(part, index) for part in workload.parts for index in range(len(part))]


def _clique(part: QueryPart, index: int) -> Clique:
    return tuple(part.cliques[index].tolist())
