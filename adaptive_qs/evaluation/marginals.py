"""How far the marginals of a synthetic table are from the true ones, and what its pairs of columns
say of each other: distances, prefixes and ranges, association, unseen pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import DataError
from adaptive_qs.evaluation.tables import JointCodes, TablePair, in_batches
from adaptive_qs.machine import StepProgress, njit, plan_workers
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
attributes. Of more, that many are drawn at random."""
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
        compared: how many were compared; fewer where there are very many, drawn at random.
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


# Every pair of attributes, counted once.

Matrix = NDArray[np.float64]


class PairSums(NamedTuple):
    """Sums over the occupied cells n_xy of one contingency table.

    Attributes:
        squares: Σ n_xy² / (n_x·n_y), which is χ²/N + 1.
        logs: Σ n_xy·log n_xy.
        occupied: cells that are.
        influence: N times the variance of χ²/N over samples, in the limit of many rows.
    """

    squares: float
    logs: float
    occupied: float
    influence: float


@dataclass(frozen=True, eq=False)
class PairCounts:
    """What was counted of all pairs of attributes, of the true and of the synthetic table.

    Attributes:
        joint: the tables.
        margins, sums: counts of every attribute's codes, and sums of every pair, of both tables.
        unseen: by pair, synthetic rows whose two values never occur together in the true table.
        row_unseen: which synthetic rows have such a pair: shape (synthetic rows,).
        row_unique: which true rows have two values that no other true row has together.
    """

    joint: JointCodes
    margins: tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]
    sums: tuple[dict[Clique, PairSums], dict[Clique, PairSums]]
    unseen: dict[Clique, int]
    row_unseen: NDArray[np.bool_]
    row_unique: NDArray[np.bool_]


def count_pairs(
    joint: JointCodes, workers: int = 1, progress: StepProgress | None = None
) -> PairCounts:
    """Count all pairs of attributes of both tables in one pass over the rows each."""
    split = joint.true_rows
    parts = (joint.codes[:, :split], joint.codes[:, split:])
    margins = tuple(tuple(np.bincount(codes, minlength=1) for codes in part) for part in parts)
    pairs: tuple[Clique, ...] = tuple(combinations(range(len(joint.sizes)), 2))
    row_unseen = np.zeros(joint.rows - split, dtype=np.bool_)
    row_unique = np.zeros(split, dtype=np.bool_)
    marked = (row_unique, np.zeros(0, dtype=np.bool_))  # of the synthetic rows, none

    def count(batch: Sequence[Clique]) -> list[tuple[PairSums, PairSums, int]]:
        scratch = np.zeros((2, 0), dtype=np.int64)
        found = []
        for i, j in batch:
            cells, bound = joint.cells((i, j))
            if bound > scratch.shape[1]:
                scratch = np.zeros((2, bound), dtype=np.int64)
            unseen = _count(cells, split, scratch, row_unseen)
            tables = zip((cells[:split], cells[split:]), parts, margins, scratch, marked)
            true, synthetic = (
                PairSums(*_sum(own, codes[i], codes[j], of[i], of[j], counts, unique))
                for own, codes, of, counts, unique in tables
            )
            found.append((true, synthetic, unseen))
        return found

    true, synthetic, unseen = (
        dict(zip(pairs, column))
        for column in list(zip(*in_batches(count, pairs, workers, progress))) or ((), (), ())
    )
    margins = (margins[0], margins[1])
    return PairCounts(joint, margins, (true, synthetic), unseen, row_unseen, row_unique)


@njit(cache=True, nogil=True)
def _count(cells, true_rows, counts, row_unseen):  # type: ignore[no-untyped-def]
    """Fill both rows of counts; the number of synthetic rows in cells without a true one."""
    for row in range(true_rows):
        counts[0, cells[row]] += 1
    unseen = 0
    for row in range(true_rows, cells.size):
        counts[1, cells[row]] += 1
        if counts[0, cells[row]] == 0:
            unseen += 1
            row_unseen[row - true_rows] = True
    return unseen


@njit(cache=True, nogil=True)
def _sum(cells, first, second, of_first, of_second, counts, unique):  # type: ignore[no-untyped-def]
    """The sums over occupied cells, whose counts are 0 afterwards; marks the only rows in a cell.

    By the delta method a row of cell xy moves χ²/N + 1 = Σ p r, r = p_xy/(p_x p_y), by
    h = 2 r − Σ_y p(y|x) r − Σ_x p(x|y) r, which is 0 on average, and the variance is Σ p h² / N.
    """
    squares, logs, occupied = 0.0, 0.0, 0
    ratio_first, ratio_second = np.zeros(of_first.size), np.zeros(of_second.size)
    found, times = np.empty(cells.size, np.int64), np.empty(cells.size)
    for row in range(cells.size):
        count = counts[cells[row]]
        if count == 0:
            continue
        counts[cells[row]] = 0
        expected = float(of_first[first[row]]) * float(of_second[second[row]])
        square = float(count) * float(count) / expected
        squares += square
        ratio_first[first[row]] += square
        ratio_second[second[row]] += square
        found[occupied], times[occupied] = row, count
        occupied += 1
        if count > 1:
            logs += count * np.log(float(count))
        elif unique.size:
            unique[row] = True
    influence = 0.0
    for k in range(occupied):
        i, j = first[found[k]], second[found[k]]
        ratio = times[k] / (float(of_first[i]) * float(of_second[j]))
        moved = 2 * ratio - ratio_first[i] / of_first[i] - ratio_second[j] / of_second[j]
        influence += times[k] * cells.size * moved * moved
    return squares, logs, occupied, influence


# Entropy of a column, corrected for the number of its rows.


def miller_entropy(counts: NDArray[np.int64]) -> float:
    """The plug-in entropy of counts, in nats, plus (K − 1) / (2N) of K occurring values.

    Miller (1955); without it the entropy of few rows is too small.
    """
    seen = counts[counts > 0]
    rows = int(seen.sum())
    plug_in = np.log(rows) - float((seen * np.log(seen)).sum()) / rows
    return float(plug_in + (len(seen) - 1) / (2 * rows))


# How strongly attributes depend on each other, in both tables.
#
# Cramér's V is bias-corrected (Bergsma 2013, "A bias-correction for Cramér's V and Tschuprow's T",
# J. Korean Stat. Soc. 42): N rows of independent attributes with r and c values have
# χ²/N = (r−1)(c−1)/(N−1) on average, not 0; that is taken off, and r and c are corrected alike.
#
# The plug-in mutual information of N rows has the same fault: it is about (r−1)(c−1)/(2N) too large
# where cells are well filled. So entropies are corrected as Miller (1955) did: (K−1)/(2N) is added
# to the entropy of K occurring values. What is left of the bias is small where N is large beside
# the occupied cells, and upwards where it is not: limitations name pairs with fewer than five rows
# for each occupied cell. It depends on the number of rows, so tables of very different length are
# compared less well.
#
# r, c and K count the values that occur, each table for itself.


@dataclass(frozen=True, eq=False)
class Association:
    """Association matrices of both tables; owner only.

    Every matrix has shape (attributes, attributes), is symmetric and has entries from 0
    (independent) to 1 (one determines the other); the diagonal is 1. An attribute with a single
    value has 0 beside all others.

    Attributes:
        names: of the attributes.
        cramers_v: of the true and of the synthetic table, bias-corrected.
        mutual_information: normalised by the smaller entropy, of the true and of the synthetic
            table.
        influence: N times the variance of φ² over samples, of the true and of the synthetic table.
    """

    names: tuple[str, ...]
    cramers_v: tuple[Matrix, Matrix]
    mutual_information: tuple[Matrix, Matrix]
    influence: tuple[Matrix, Matrix]


def mean_and_largest(difference: Matrix) -> tuple[float, float]:
    """Of the absolute differences of two association matrices, over all pairs of attributes."""
    upper = np.abs(difference[np.triu_indices(len(difference), 1)])
    return (float(upper.mean()), float(upper.max())) if upper.size else (0.0, 0.0)


def association_of(counts: PairCounts) -> Association:
    """The association matrices of two tables whose pairs have been counted."""
    rows = (counts.joint.true_rows, counts.joint.rows - counts.joint.true_rows)
    names = counts.joint.pair.domain.names
    matrices = np.empty((3, 2, len(names), len(names)))
    matrices[:] = np.eye(len(names))
    for table, (number, margins, sums) in enumerate(zip(rows, counts.margins, counts.sums)):
        values = [int(np.count_nonzero(margin)) for margin in margins]
        entropies = [miller_entropy(margin) for margin in margins]
        for (i, j), pair in sums.items():
            v = cramers_v(pair, number, values[i], values[j])
            information = _shared(pair, number, entropies[i], entropies[j])
            matrices[:, table, i, j] = matrices[:, table, j, i] = v, information, pair.influence
    return Association(names, *((true, synthetic) for true, synthetic in matrices))


def cramers_v(pair: PairSums, rows: int, r: int, c: int) -> float:
    """Bergsma's Ṽ = √(φ̃² / min(r̃−1, c̃−1)), 0 where an attribute has one value.

    Args:
        rows: N.
        r, c: values of the two attributes that occur.
    """
    if min(r, c) < 2:
        return 0.0
    phi = max(0.0, pair.squares - 1 - (r - 1) * (c - 1) / (rows - 1))
    least = min(k - 1 - (k - 1) ** 2 / (rows - 1) for k in (r, c))
    return float(min(1.0, np.sqrt(phi / least))) if least > 0 else 0.0


def _shared(pair: PairSums, rows: int, first: float, second: float) -> float:
    """Mutual information over the smaller entropy, from 0 to 1."""
    together = np.log(rows) - pair.logs / rows + (pair.occupied - 1) / (2 * rows)
    least = min(first, second)
    if least <= 0:
        return 0.0
    return float(np.clip((first + second - together) / least, 0.0, 1.0))


# Pairs of values that the synthetic table has and the true one never shows.

WORST = 20
"""Pairs of attributes that are named."""


@dataclass(frozen=True)
class UnseenPair:
    """The names of two attributes, and the share of the synthetic rows with two values of them that
    no true row has together."""

    attributes: tuple[str, str]
    share: float


@dataclass(frozen=True)
class UnseenPairs:
    """Combinations of two values that never occur in the true table; owner only.

    Some are impossible and some merely rare: true rows that were left out would have some, too.

    Attributes:
        share: synthetic rows with at least one such pair of values, in any two attributes.
        expected_if_redrawn: the same for true rows, each against all the others (Good and Turing's
            estimate of what was not seen).
        worst: the pairs of attributes with the largest shares above 0, at most ``WORST``.
    """

    share: float
    expected_if_redrawn: float
    worst: tuple[UnseenPair, ...]


def unseen_pairs(counts: PairCounts) -> UnseenPairs:
    """Unseen combinations of two tables whose pairs have been counted."""
    names, rows = counts.joint.pair.domain.names, len(counts.row_unseen)
    worst = sorted(counts.unseen.items(), key=lambda item: (-item[1], item[0]))[:WORST]
    pairs = tuple(UnseenPair((names[i], names[j]), n / rows) for (i, j), n in worst if n)
    shares = float(counts.row_unseen.mean()), float(counts.row_unique.mean())
    return UnseenPairs(*shares, pairs)
