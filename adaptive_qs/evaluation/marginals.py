"""How far a synthetic table is from the true one. Only this package sees the truth unprotected.

Everything here is for the owner of the data: it is computed from private rows without noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from random import Random

import numpy as np

from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.distances import Distances, marginal_distances, root_mean_square
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.machine import plan_workers
from adaptive_qs.progress import StepProgress
from adaptive_qs.workload.workload import Workload

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
    domain = workload.domain
    return WorkloadDistance(
        tuple(
            CliqueError(
                domain.clique_names(clique),
                found[clique].l1,
                root_mean_square(found[clique], domain.size(clique)),
                domain.size(clique),
                weight,
            )
            for clique, weight in workload.weights.items()
        )
    )


def total_variation(domain: Domain, ways: int, found: Distances) -> TotalVariation:
    """Total variation over the cliques of :func:`drawn_cliques`, whose distances were found."""
    cliques = drawn_cliques(domain, ways)
    errors = [found[clique].l1 / 2 for clique in cliques]
    worst = int(np.argmax(errors))
    return TotalVariation(
        ways,
        math.comb(len(domain), ways),
        len(cliques),
        math.fsum(errors) / len(errors),
        errors[worst],
        domain.clique_names(cliques[worst]),
    )


def drawn_cliques(domain: Domain, ways: int) -> Sequence[Clique]:
    """All sets of so many attributes, or ``MAX_COMPARED`` of them, drawn evenly and always alike.

    Args:
        domain: the attributes.
        ways: from 1 to their number.
    """
    number = math.comb(len(domain), ways)
    if number <= MAX_COMPARED:
        return list(combinations(range(len(domain)), ways))
    drawn = Random(DRAWING_SEED).sample(range(number), MAX_COMPARED)
    return [_combination(position, len(domain), ways) for position in sorted(drawn)]


def _combination(position: int, attributes: int, ways: int) -> Clique:
    """The set at a position among all of its size, in lexicographic order."""
    chosen = []
    candidate = 0
    for left in range(ways, 0, -1):
        while position >= (with_it := math.comb(attributes - candidate - 1, left - 1)):
            position -= with_it
            candidate += 1
        chosen.append(candidate)
        candidate += 1
    return tuple(chosen)
