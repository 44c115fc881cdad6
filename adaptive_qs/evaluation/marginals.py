"""How far the marginals of a synthetic table are from the true ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.tables import JointCodes, TablePair, in_batches
from adaptive_qs.machine import StepProgress, plan_workers
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload

# Distances between the marginals of two tables, many at a time.


class Distance(NamedTuple):
    """Σ|a/N_a − b/N_b| and Σ(a/N_a − b/N_b)² over the cells of one marginal."""

    l1: float
    squares: float


Distances = Mapping[Clique, Distance]


def marginal_distances(
    joint: JointCodes,
    cliques: Iterable[Clique],
    workers: int = 1,
    progress: StepProgress | None = None,
) -> Distances:
    """The distances of these marginals; each is counted once, however often it is named.

    Time is linear in the rows, and each thread holds one marginal of at most
    ``MAX_DENSE_CELLS`` cells. Equal tables have distance 0 exactly.

    Args:
        cliques: the marginals.
    """
    distinct = tuple(dict.fromkeys(cliques))

    def distances(batch: Sequence[Clique]) -> list[Distance]:
        scratch = np.zeros(0, dtype=np.int64)
        found = []
        for clique in batch:
            cells, bound = joint.cells(clique)
            if bound > len(scratch):
                scratch = np.zeros(bound, dtype=np.int64)
            found.append(Distance(*_difference(cells, joint.true_rows, scratch)))
        return found

    return dict(zip(distinct, in_batches(distances, distinct, workers, progress)))


@njit(cache=True, nogil=True)
def _difference(cells, true_rows, scratch):  # type: ignore[no-untyped-def]
    """Σ|d| and Σd², with d = a/N_a − b/N_b computed as whole multiples of 1/(N_a·N_b).

    The scratch array is 0 before and after; only occupied cells are touched.
    """
    synthetic_rows = cells.size - true_rows
    for row in range(true_rows):
        scratch[cells[row]] += synthetic_rows
    for row in range(true_rows, cells.size):
        scratch[cells[row]] -= true_rows
    unit = 1.0 / (float(true_rows) * float(synthetic_rows))
    total, squares = 0.0, 0.0
    for row in range(cells.size):
        cell = cells[row]
        if scratch[cell] != 0:
            difference = abs(scratch[cell]) * unit
            total += difference
            squares += difference * difference
            scratch[cell] = 0
    return total, squares


# The error of a workload, and total variation over all marginals; for the owner of the data only.

MAX_COMPARED = 6_000
"""Most marginals of one number of attributes whose total variation is computed: all pairs of 110
attributes. Of more, so many are drawn evenly."""
DRAWING_SEED = 20_250_101
"""Of that draw, so that it is the same for every synthetic table."""


@dataclass(frozen=True)
class CliqueError:
    """Error in one marginal.

    Attributes:
        attributes: names of its attributes.
        l1: Σ|a/N_a − b/N_b| over its cells, between 0 and 2.
        rmse: root mean squared error of its cells, in shares of the rows.
        cells: their number.
        weight: its weight in the workload.
    """

    attributes: tuple[str, ...]
    l1: float
    rmse: float
    cells: int
    weight: float


@dataclass(frozen=True)
class WorkloadDistance:
    """Error in every marginal of a workload; owner only.

    Attributes:
        per_clique: one entry for each marginal, in the workload's order.
    """

    per_clique: tuple[CliqueError, ...]

    @cached_property
    def mean_l1(self) -> float:
        """Mean of the errors, weighted as the workload is."""
        weights = np.array([clique.weight for clique in self.per_clique])
        return float(np.average([clique.l1 for clique in self.per_clique], weights=weights))

    @cached_property
    def max_l1(self) -> float:
        """The largest error."""
        return max(clique.l1 for clique in self.per_clique)

    @cached_property
    def rmse(self) -> float:
        """√(Σ weight · squared error / queries) over every cell of every marginal, in shares.

        It is the error that ``plan`` forecasts for marginal queries, divided by the rows.
        """
        queries = sum(clique.cells for clique in self.per_clique)
        squares = (clique.weight * clique.cells * clique.rmse**2 for clique in self.per_clique)
        return math.sqrt(math.fsum(squares) / queries)


@dataclass(frozen=True)
class TotalVariation:
    """Half the L1 distance over all marginals of so many attributes; owner only.

    Attributes:
        ways: attributes of each marginal.
        marginals: their number.
        compared: how many were compared; fewer where there are very many, drawn evenly.
        mean: over those compared.
        max: over those compared.
        worst: names of the attributes of the worst.
    """

    ways: int
    marginals: int
    compared: int
    mean: float
    max: float
    worst: tuple[str, ...]


def workload_error(
    true: CodedTable,
    synthetic: CodedTable,
    workload: Workload,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> WorkloadDistance:
    """Errors of the normalised marginals of a synthetic table, clique by clique.

    Args:
        true: the private rows.
        synthetic: rows over the same domain.
        workload: the marginals to compare.
        workers: threads; each holds one marginal at a time.
        progress: called with the marginals done and in all.

    Raises:
        DataError: the tables and the workload have different domains, or a table has no rows.
        InputError: workers is no positive integer.
    """
    threads = plan_workers(workers)
    pair = TablePair(true, synthetic)
    check_domain(pair, workload.domain)
    found = marginal_distances(JointCodes(pair), workload.cliques, threads, progress)
    return workload_distance(workload, found)


def check_domain(pair: TablePair, domain: Domain) -> None:
    """Refuse tables over another domain than this one.

    Raises:
        DataError: they are.
    """
    if pair.domain != domain:
        raise DataError("the tables have different attributes: encode both with one schema")


def workload_distance(workload: Workload, found: Distances) -> WorkloadDistance:
    """The errors of a workload, whose distances have been found already."""
    domain, errors = workload.domain, []
    for clique, weight in workload.weights.items():
        (l1, squares), cells = found[clique], domain.size(clique)
        names = domain.clique_names(clique)
        errors.append(CliqueError(names, l1, math.sqrt(squares / cells), cells, weight))
    return WorkloadDistance(tuple(errors))


def total_variation(domain: Domain, cliques: Sequence[Clique], found: Distances) -> TotalVariation:
    """Total variation over some cliques of one size, whose distances were found."""
    ways, errors = len(cliques[0]), [found[clique].l1 / 2 for clique in cliques]
    worst = int(np.argmax(errors))
    return TotalVariation(
        ways,
        math.comb(len(domain), ways),
        len(cliques),
        math.fsum(errors) / len(errors),
        errors[worst],
        domain.clique_names(cliques[worst]),
    )


def drawn_sets(
    attributes: int, ways: int, most: int | None = None, rng: np.random.Generator | None = None
) -> list[Clique]:
    """All sets of so many attributes, or an even sample of them.

    Args:
        attributes: their number.
        ways: from 1 to their number.
        most: sets that are given; by default ``MAX_COMPARED``.
        rng: that draws; by default always alike.
    """
    most = MAX_COMPARED if most is None else most
    if math.comb(attributes, ways) <= most:
        return list(combinations(range(attributes), ways))
    rng = np.random.default_rng(DRAWING_SEED) if rng is None else rng
    drawn: set[Clique] = set()
    while len(drawn) < most:
        some = sorted(set(rng.integers(attributes, size=ways).tolist()))
        if len(some) == ways:
            drawn.add(tuple(some))
    return sorted(drawn)


# Errors of prefix and range queries on ordered attributes.


@dataclass(frozen=True)
class OrderedError:
    """Errors of A <= a and of a <= A <= b, in shares of the rows; owner only.

    Missing and unknown values come after all others, as in the queries of a workload.

    Attributes:
        attribute: its name.
        prefix_rmse: root mean squared error over all prefixes.
        prefix_max: the largest error of a prefix: the Kolmogorov-Smirnov distance.
        range_rmse: root mean squared error over all ranges.
        range_max: the largest error of a range: the Kuiper distance.
        mean_shift: mean code of the synthetic table less that of the true one, in standard
            deviations of the true one; in codes where that is 0, and 0 where a table has no
            value. Missing and unknown values are left out.
    """

    attribute: str
    prefix_rmse: float
    prefix_max: float
    range_rmse: float
    range_max: float
    mean_shift: float


def ordered_errors(
    pair: TablePair, num_values: Mapping[str, int] | None = None
) -> tuple[OrderedError, ...]:
    """The errors of every ordered attribute.

    With G_0 = 0 and G_k the difference of the shares of the first k codes, the error of a range is
    G_j − G_i, i < j. So Σ over all n(n+1)/2 ranges of its square is (n+1)·ΣG² − (ΣG)², and the
    largest is max G − min G: linear in n.

    Args:
        num_values: by attribute, how many of its first codes are values and neither missing nor
            unknown; all where it is not named.
    """
    errors = []
    for i, attribute in enumerate(pair.domain.attributes):
        if not attribute.ordered:
            continue
        columns = (pair.true.columns[i], pair.synthetic.columns[i])
        codes, ranks = np.unique(np.concatenate(columns), return_inverse=True)
        true, synthetic = (
            np.bincount(part, minlength=len(codes)) for part in np.split(ranks, [len(columns[0])])
        )
        sums = np.cumsum(synthetic / pair.synthetic.num_rows - true / pair.true.num_rows)
        sums[-1] = 0.0  # G after every code that occurs, and for how many codes it stays so
        n, lengths = attribute.size, np.diff(codes.astype(np.float64), append=attribute.size)
        squares = float((lengths * np.square(sums)).sum())
        ranges = max(0.0, (n + 1) * squares - float((lengths * sums).sum()) ** 2)
        known = codes < (n if num_values is None else num_values[attribute.name])
        errors.append(
            OrderedError(
                attribute.name,
                math.sqrt(squares / n),
                float(np.abs(sums).max()),
                math.sqrt(ranges / (n * (n + 1) / 2)),
                float(max(0.0, sums.max()) - min(0.0, sums.min())),
                _mean_shift(codes[known], true[known], synthetic[known]),
            )
        )
    return tuple(errors)


def _mean_shift(codes: NDArray, true: NDArray, synthetic: NDArray) -> float:
    if not (true.sum() and synthetic.sum()):
        return 0.0
    mean = float(np.average(codes, weights=true))
    deviation = float(np.sqrt(np.average((codes - mean) ** 2, weights=true)))
    shift = float(np.average(codes, weights=synthetic)) - mean
    return shift / deviation if deviation else shift
