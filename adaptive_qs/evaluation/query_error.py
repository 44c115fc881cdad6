"""Error of the queries of a workload, of any family, without listing their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.evaluation.contingency import MAX_DENSE_CELLS, JointCodes, in_batches
from adaptive_qs.jsonfile import read_json
from adaptive_qs.progress import StepProgress
from adaptive_qs.workload.axis_queries import Circular, Range
from adaptive_qs.workload.family_spec import family_names
from adaptive_qs.workload.file import WorkloadFile
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload
from adaptive_qs.workload.workload import Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class QueryError:
    """Of the answers from the synthetic table; owner only.

    Attributes:
        rmse: √(Σ weight · squared error / queries), in shares of the rows. It is the error that
            ``plan`` forecasts, divided by the rows.
        queries: their number.
        weighted: whether some query counts more or less than once.
    """

    rmse: float
    queries: int
    weighted: bool


def load_compared(path: Path, domain: Domain) -> tuple[Workload, QueryWorkload | None]:
    """The marginals of a workload file's sets of attributes, and its queries.

    Marginals have the sum of the weights of the parts that name them. The queries are None where
    the file asks for nothing but the cells of marginals.

    Raises:
        WorkloadError: the file is missing, is no workload file, or does not fit the domain.
        ResourceExceeded: too many sets of attributes, or too many coefficients.
    """
    file = WorkloadFile.parse(read_json(path, WorkloadError), str(path))
    if all(name == "marginal" for part in file.parts for name in family_names(part.queries)):
        return file.workload(domain, str(path)), None
    queries = file.query_workload(domain, str(path), path.parent)
    weights: dict[Clique, float] = {}
    for part, index in _sets(queries):
        clique = _clique(part, index)
        weights[clique] = weights.get(clique, 0.0) + float(part.weights[index])
    return Workload(domain, weights), queries


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

    def squares(batch: Sequence[tuple[QueryPart, int]]) -> list[float]:
        found = []
        for part, index in batch:
            table = _difference(joint, _clique(part, index))
            found.append(float(part.weights[index]) * squared_error(part.queries(index), table))
        return found

    total = math.fsum(in_batches(squares, sets, workers, progress))
    return QueryError(
        rmse=math.sqrt(total / workload.num_queries),
        queries=workload.num_queries,
        weighted=any(bool((part.weights != 1).any()) for part in workload.parts),
    )


def check_queries(workload: QueryWorkload) -> None:
    """Refuse what would take too much memory.

    Raises:
        ResourceExceeded: a set has more cells, or asks for more values, than 2^22.
    """
    for part, index in _sets(workload):
        values = math.prod(max(math.prod(q.shape), _values(q)) for q in part.queries(index))
        if values > MAX_DENSE_CELLS:
            named = " x ".join(workload.domain.clique_names(_clique(part, index)))
            raise ResourceExceeded(
                f"queries on {named} take {values:,} values, and {MAX_DENSE_CELLS:,} is the most "
                "that evaluate compares: ask for them on fewer attributes, or declare coarser bins"
            )


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
    return queries.answer(table)


def _values(queries: Queries) -> int:
    """Length of the first axis that :func:`_same_length` gives."""
    if isinstance(queries, Range):
        return queries.size + 1
    return queries.size if isinstance(queries, Circular) else queries.num_queries


def _difference(joint: JointCodes, clique: Clique) -> Array:
    """a/N_a − b/N_b over the cells of a set of at most ``MAX_DENSE_CELLS`` of them."""
    shape = joint.pair.domain.shape(clique)
    cells, bound = joint.cells(clique)
    true, synthetic = np.split(cells, [joint.true_rows])
    # Whole multiples of 1/(N_a N_b): equal tables differ by 0 exactly.
    multiples = np.bincount(true, minlength=bound) * len(synthetic) - np.bincount(
        synthetic, minlength=bound
    ) * len(true)
    return (multiples / (float(len(true)) * float(len(synthetic)))).reshape(shape)


def _sets(workload: QueryWorkload) -> list[tuple[QueryPart, int]]:
    return [(part, index) for part in workload.parts for index in range(len(part))]


def _clique(part: QueryPart, index: int) -> Clique:
    return tuple(part.cliques[index].tolist())
