"""What an error means: thresholds, and how far chance or independence alone would be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, comb, gammaln, xlog1py, xlogy

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.evaluation.tables import Margins, in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.table.count import counter_of

# How far a fresh sample would be from the true table, told from the true table alone.

Numbers = NDArray[np.float64]

EXACT = 128
"""Cells with more rows are thinned in the mean only: the error is below 1/(8·128) of their part."""
STEP_ERROR = 0.05
"""Relative error of the estimate that is allowed for: over cells from well-filled to nearly empty
it is below 3 % for tables of equal size, and 5 % too large at most for a synthetic table of ten
times the rows."""
WELL_FILLED = 1 - 2 / math.pi
"""Variance of the absolute value of a normal deviate."""


def fresh_sample_l1(counts: NDArray[np.integer], rows: int) -> float:
    """Expected L1 distance between the true table and another sample of its population.

    What was never seen cannot be counted, so the true table is split instead. The mean distance of
    two disjoint parts, over all ways to draw them, is an unbiased estimate for two samples of the
    parts' sizes, rare and unseen values included; it is computed exactly for parts in the ratio of
    the tables (halves where the synthetic table is longer) that take all rows, a half and a
    quarter. On from there the distance falls by (1/n + 1/m)^s, 0 ≤ s ≤ 1/2: s is 0 where every
    cell holds a row at most, 1/2 where all are well filled, and is extrapolated from the three.

    Args:
        counts: rows of every cell of the true table.
        rows: of the other sample.

    Returns:
        The distance of shares, from 0 to 2.
    """
    occupied = np.asarray(counts).ravel()
    cells, times = np.unique(occupied[occupied > 0], return_counts=True)
    true_rows = int(cells @ times)
    if true_rows < 2:
        return 2.0 if rows else 0.0
    part = max(0.5, true_rows / (true_rows + rows))
    # fixed sizes of the parts instead of binomial ones: (N − c)/(N − 1) of the variance
    weights = times * np.sqrt((true_rows - cells) / (true_rows - 1))
    full, half, quarter = (
        float(weights @ _apart(cells, keep, part)) / (part * (1 - part) * true_rows * keep)
        for keep in (1.0, 0.5, 0.25)
    )
    if full <= 0 or half <= 0 or quarter <= 0:
        return 0.0
    last, before = math.log2(half / full), math.log2(quarter / half)
    slope = min(0.5, max(0.0, last + max(0.0, last - before)))
    nearer = (1 / true_rows + 1 / rows) * true_rows * part * (1 - part)
    return min(2.0, full * nearer**slope)


def chance_l1(true_rows: int, rows: int, sparse: float, deviations: float = 3) -> float:
    """How much further than expected a fresh sample may be by chance.

    The difference of the shares of a cell has variance p (1/n + 1/m) at most. Its absolute value
    has 1 − 2/π of that where the cell is well filled, and up to all of it where it holds few rows;
    different cells vary against each other rather than together.

    Args:
        true_rows: n.
        rows: m.
        sparse: share of the rows in cells with few of them.
        deviations: standard deviations that it may be.
    """
    part = WELL_FILLED + (1 - WELL_FILLED) * sparse
    return deviations * math.sqrt(part * (1 / true_rows + 1 / rows))


def _apart(cells: NDArray[np.integer], keep: float, part: float) -> Numbers:
    """Mean of |X − c·part| for X of the c rows of a cell that fall into the part, by cell.

    Every row of the table is kept with probability ``keep`` beforehand.
    """
    if keep == 1:
        return _deviation(cells, part)
    small = cells[cells <= EXACT]
    thinned = _thinning(keep)[small] @ _deviation(np.arange(EXACT + 1), part)
    mean = cells[cells > EXACT] * keep
    both = _deviation(np.floor(mean), part) + _deviation(np.ceil(mean), part)
    return np.concatenate([thinned, both / 2])


@cache
def _thinning(keep: float) -> Numbers:
    """P(k of n rows are kept), shape (n, k), for n and k up to ``EXACT``."""
    number, kept = np.ogrid[: EXACT + 1, : EXACT + 1]
    chances: Numbers = comb(number, kept) * keep**kept * (1 - keep) ** np.abs(number - kept)
    return chances


def _deviation(number: NDArray, part: float) -> Numbers:
    """Mean absolute deviation of a binomial number: 2 ν C(n, ν) p^ν (1 − p)^(n−ν+1), ν = ⌊np⌋ + 1.

    De Moivre's formula; Diaconis and Zabell 1991, "Closed form summation for classical
    distributions", Statistical Science 6.
    """
    n = np.asarray(number, dtype=np.float64)
    v = np.minimum(np.floor(n * part) + 1, n)
    ways = gammaln(n + 1) - gammaln(v + 1) - gammaln(n - v + 1)
    mean: Numbers = 2 * v * np.exp(ways + v * math.log(part) + (n - v + 1) * math.log1p(-part))
    return mean


# Where the verdict's words change, all in one place; every one is printed in the report.

Grade = Literal["good", "fair", "poor", "plain"]

CLOSE, USABLE = 0.15, 0.5
"""Of the way from the error of a fresh sample to that of independent columns: up to the first
"close", up to the second "usable", beyond it "far"."""
CLOSE_ALONE, USABLE_ALONE = 0.02, 0.10
"""The same for L1 errors beyond a fresh sample where independence says nothing: workloads of
single columns."""
FEW, SPARSE = 5, 0.5
"""A cell holds few true rows below the first; where more than the second part of the rows lies in
such cells, chance decides most of every error and there is no scale."""
LOST_COLUMN = 0.05
"""Total variation of a single column, beyond that of a fresh sample, from which it is named."""
LARGE_SHIFT = 0.5
"""Standard deviations by which the mean of an ordered column must move to be named (a medium effect
after Cohen 1988), beyond three of what chance moves it: √(1/n + 1/m)."""
CLEAR_V = 0.2
"""Cramér's V of the true table from which an association is clear."""
KEPT_V = 0.1
"""Difference of V up to which a clear association is kept."""
MOST_LOST = 0.25
"""Part of the clear associations beyond which losing them is poor."""
LEAST_EFFECT = 0.1
"""Cohen's w from which an association below ``CLEAR_V`` is weak, what he calls a small effect;
below it is none."""
WEAK_LOST = 0.1
"""Part of the weak associations beyond which losing them, or as many more that only the synthetic
table has, is more than close."""
LEAST_OFF, LEAST_OFF_PART = 10, 0.005
"""Rows, and part of the rows, that must lie off the most frequent value of both columns: what rests
on fewer is neither clear nor only in the synthetic table, however large its V."""
LOST_PART = 0.5
"""An association is lost where less than this part of its V is left."""
DEVIATIONS = 5
"""Standard deviations by which squares of V must differ; by Cantelli's inequality chance does that
with probability 1/26 whatever the distribution, and 3e-7 where it is normal."""
GONE = 0.9
"""Of the way from the error of a fresh sample to that of independent columns, from which a marginal
or a part of the queries is as far off as if its columns were independent."""
UNSEEN = 0.05
"""Synthetic rows with two values that no true row has together, beyond those of new true rows, from
which it is said."""
DOUBTFUL = 3
"""Standard deviations of a fresh sample's squared error beyond which queries that are no closer
than those of independent columns are not close, if these are further off than a fresh sample at
all; beyond ``DEVIATIONS`` they are far, if these are clearly so."""
COPY_FACTOR, COPIED = 2, 0.05
"""Rows may be copied where the share of synthetic rows that equal a true row which occurs once is
larger than the first times what is expected, by the second. A fresh row equals one with
probability 2 f₂/N (Good and Turing; f₂ rows occur twice), and rows that occur twice alone bring one
half of the true table to f₂/N matches in the other: hence 2."""
SMALL_LOSS, LARGE_LOSS = 0.1, 0.3
"""Parts of a model's gain over chance that are lost: up to the first small, beyond the second
large."""
TELLTALE = 0.75
"""Area under the curve from which a classifier tells the tables apart with ease."""
BROKEN = 0.01
"""Share of synthetic rows, beyond that of the true ones, from which a broken rule is named."""

DEFINITIONS = (
    f"Marginals are close up to {CLOSE:.0%} of the way from the error of a fresh sample to that of "
    f"independent columns, usable up to {USABLE:.0%}, and far beyond that. For workloads of single "
    "columns, and where independent columns can hardly be told from a fresh sample, the limits are "
    f"errors of {CLOSE_ALONE} and {USABLE_ALONE} above a fresh sample. What is no closer "
    "than independent columns, and further than chance takes a fresh sample, is far in any case.",
    "These limits, and that of single columns, are never below what chance may add: three standard "
    "deviations, which are between 1.8 and 3 times √(1/n + 1/m) for tables of n and m rows, and "
    f"{STEP_ERROR:.0%} of the error of a fresh sample, which is an estimate. There is no scale "
    f"where more than {SPARSE:.0%} of the true rows lie in cells with fewer than {FEW} of them.",
    f"A single column is named from a total variation of {LOST_COLUMN:.0%} of the rows above that "
    "of a fresh sample.",
    f"A moved mean is named from {LARGE_SHIFT} standard deviations of the true column.",
    f"An association is clear from a Cramér's V of {CLEAR_V} in the true table, kept if V differs "
    f"by at most {KEPT_V}, lost if less than {LOST_PART:.0%} of it is left, and only in the "
    f"synthetic table if V is at least {CLEAR_V} there and less than {LOST_PART:.0%} of that in "
    f"the true one; always by more than {DEVIATIONS} standard deviations. What rests on fewer than "
    f"{LEAST_OFF} rows, or {LEAST_OFF_PART:.1%} of them, off the most frequent value of either "
    f"column counts nowhere. Losing more than {MOST_LOST:.0%} of the clear ones is poor.",
    f"An association is weak if V is below {CLEAR_V}, Cohen's w (V times the root of the smaller "
    f"number of values less one) at least {LEAST_EFFECT}, and V so large that its loss could be "
    "told from chance. Associations are not close where one column lost all of its own, where more "
    f"than {WEAK_LOST:.0%} of the weak ones are lost, or where the synthetic table has more than "
    f"{WEAK_LOST:.0%} of all of them in new weak ones.",
    f"A marginal is as far off as independent columns from {GONE:.0%} of the way on, if these are "
    f"further off than a fresh sample by {CLOSE_ALONE} and by what chance may add, here "
    f"{DEVIATIONS} standard deviations. Where a marginal is, the marginals are not close.",
    f"Queries of several columns have the limits of marginals, up to {CLOSE:.0%} and {USABLE:.0%} "
    f"of the way, never below what chance may add: {DEVIATIONS} standard deviations of the squared "
    "error of a fresh sample. They are not close where a part of them is as far off as independent "
    f"columns, or where all together are, by more than {DOUBTFUL} standard deviations.",
    f"Rows with unseen pairs are named where they are {UNSEEN:.0%} of the rows more than new true "
    f"rows would have, and {DEVIATIONS} standard deviations more.",
    "The first word is never kinder than the worst of the findings on marginals, queries, single "
    "columns, associations and unseen pairs, nor than an attack that gains more than the promise "
    "allows; it is “close” only where the marginals have a scale.",
    f"Rows may be copied where the share of synthetic rows that equal a true row which occurs once "
    f"is {COPIED:.0%} of the rows above {COPY_FACTOR} times what is expected.",
    f"A model's loss is the part of its gain over chance that training on synthetic rows takes "
    f"away: small up to {SMALL_LOSS:.0%}, large beyond {LARGE_LOSS:.0%}.",
    f"Rules are named where at least {BROKEN:.0%} more of the synthetic rows break them.",
)


# How far chance alone takes the Cramér's V of two columns.

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
LEAST_ROWS = 4
"""With fewer the variance of χ² is not defined."""


class Chance:
    """What can be told of associations in one table; matrices are of shape (columns, columns).

    Attributes:
        told: pairs of which enough rows lie off the most frequent value of both columns.
    """

    def __init__(self, margins: Margins, influence: Matrix) -> None:
        self._influence = influence  # of independent columns: 4 (r − 1)(c − 1)/N on average
        occupied = [counts[counts > 0] for counts in margins]
        values = np.array([len(counts) for counts in occupied], dtype=np.float64)
        spread = np.array([_is_spread(counts) for counts in occupied], dtype=np.bool_)
        self.told = np.outer(spread, spread)
        self._rows = rows = max(int(margins[0].sum()), 2)
        self._freedom = np.outer(values - 1, values - 1)
        corrected = values - 1 - (values - 1) ** 2 / (rows - 1)
        self._least = np.minimum.outer(corrected, corrected)
        self._variance = np.maximum(chi_square_variance(occupied), 0.0) / rows**2

    def deviation(self, v: Matrix) -> Matrix:
        """Standard deviations of V² = φ²/k, k as Bergsma corrects it.

        The variance is that of independent columns and that which the strength of the association
        has: what was found by the delta method, and as for a correlation 4 φ²/N at least. A few
        rows in a cell that hardly should be occupied make it many times as large.

        Args:
            v: Cramér's V of every pair.
        """
        return self._deviation(v, self._influence)

    @property
    def independent(self) -> Matrix:
        """The same where columns are independent."""
        nothing = np.zeros_like(self._influence)
        return self._deviation(nothing, nothing)

    def _deviation(self, v: Matrix, influence: Matrix) -> Matrix:
        defined = self._least > 0
        least = np.where(defined, self._least, 1.0)
        more = influence - 4 * self._freedom / self._rows
        strength = np.maximum(more, 4 * v**2 * least) / self._rows
        deviation = np.sqrt(self._variance + strength) / least
        return np.where(defined, deviation, np.inf)

    def effect(self, v: Matrix) -> Matrix:
        """Cohen's w: V √k, the distance from independence whatever the number of values.

        Cohen 1988, "Statistical Power Analysis for the Behavioral Sciences", chapter 7.

        Args:
            v: Cramér's V of every pair.
        """
        return np.asarray(v * np.sqrt(np.maximum(self._least, 0.0)))

    def present(self, v: Matrix, other: Chance) -> Mask:
        """Pairs that are associated, and so strongly that another table could not lose it unseen.

        Args:
            v: Cramér's V of every pair.
            other: what can be told in the other table.
        """
        unseen = np.hypot(self.deviation(v), other.independent)
        found = self.told & (self.effect(v) >= LEAST_EFFECT)
        return np.asarray(found & (v**2 > DEVIATIONS * unseen))


def chi_square_variance(margins: Sequence[NDArray[np.integer]]) -> Matrix:
    """Variance of χ² over all permutations of one column against another, exactly.

    Dawson 1954, "A simplified expression for the variance of the χ²-function on a contingency
    table", Biometrika 41. With few rows in a cell it is far from 2 (r − 1)(c − 1).

    Args:
        margins: counts of the values of every column, all above 0, of one sum N.

    Returns:
        Of each two columns, of shape (columns, columns); infinite where N is below ``LEAST_ROWS``.
    """
    rows = int(margins[0].sum())
    if rows < LEAST_ROWS:
        return np.full((len(margins), len(margins)), np.inf)
    values = np.array([len(counts) for counts in margins], dtype=np.float64)
    inverse = np.array([float((1 / counts).sum()) for counts in margins])
    spare = (rows - values) * (values - 1) / (rows - 1)
    rare = (rows * inverse - values**2) / (rows - 2)
    both = 2 * rows / (rows - 3) * np.outer(spare - rare, spare - rare)
    return np.asarray(both + rows**2 / (rows - 1) * np.outer(rare, rare))


def _is_spread(counts: NDArray[np.integer]) -> bool:
    """Whether enough rows lie off the most frequent value."""
    rows = int(counts.sum())
    return bool(rows - counts.max() >= max(LEAST_OFF, LEAST_OFF_PART * rows))


# How far a table of independent columns would be from the true table.


def independent_l1(
    counts: NDArray[np.integer], singles: Sequence[NDArray[np.float64]], rows: int
) -> float:
    """Expected L1 distance of a table with the true single columns, drawn independently.

    Its cells are binomial numbers Y of m rows with the product q of the single shares. With
    ν = ⌊x⌋, E|Y − x| = mq − x + 2 (x P(Y ≤ ν) − mq P(Y' ≤ ν − 1)), Y' of m − 1 rows, where
    P(Y' ≤ ν − 1) = P(Y ≤ ν) − (1 − q) P(Y' = ν); a cell without a true row adds its q.

    Args:
        counts: of the true table, one axis for each column.
        singles: shares of the codes of every column.
        rows: m, of the table of independent columns.
    """
    true_rows = int(counts.sum())
    codes = np.nonzero(counts)
    q = np.ones(len(codes[0]))
    for share, code in zip(singles, codes, strict=True):
        q = q * share[code]
    wanted = counts[codes] * (rows / true_rows)
    whole = np.floor(wanted)
    mean = rows * q
    up_to = bdtr(np.minimum(whole, rows), rows, q)
    there = (1 - q) * _chance(whole, rows - 1, q)
    apart = mean - wanted + 2 * ((wanted - mean) * up_to + mean * there)
    return float(np.maximum(apart, 0).sum() / rows + max(0.0, 1 - q.sum()))


def _chance(k: NDArray[np.float64], rows: int, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(Y = k) of binomial numbers; 0 for more than the rows."""
    k, beyond = np.minimum(k, rows), k > rows
    ways = gammaln(rows + 1) - gammaln(k + 1) - gammaln(rows - k + 1)
    chance: NDArray[np.float64] = np.exp(ways + xlogy(k, q) + xlog1py(rows - k, -q))
    return np.where(beyond, 0.0, chance)


# What an error means: beside that of a fresh sample, and beside that of independent columns.

MOST_CELLS = 2**25
"""Cells of all marginals that are counted for the scale; of more, every so-many-th is taken."""
MOST_MARGINALS = 10_000
"""The same for their number."""
LARGEST = 2**22
"""Marginals with more cells are left out of the scale."""
LEAST_ROOM = 0.25
"""Part of a fresh sample's error by which independent columns must be further off to be told from
it: five times the error of the estimate."""


def like_independent(error: float, fresh: float, independent: float, doubt: float) -> bool:
    """Whether an error is that of independent columns.

    Args:
        error: of the synthetic table.
        fresh: of a fresh sample.
        independent: of independent columns.
        doubt: how much further than a fresh sample both must be.
    """
    room, excess = independent - fresh, error - fresh
    return min(room, excess) > doubt and excess >= GONE * room


@dataclass(frozen=True)
class Scale:
    """Two errors to compare with, for one marginal; L1 distances between 0 and 2.

    Attributes:
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        sparse: share of the true rows in cells with fewer than ``FEW`` of them.
        chance: how much further than expected a fresh sample may be, by ``DEVIATIONS`` of them:
            there are many marginals.
    """

    fresh: float
    independent: float
    sparse: float
    chance: float = 0.0

    def is_gone(self, l1: float) -> bool:
        """Whether an error is that of independent columns, where these are further off than chance
        takes a fresh sample."""
        doubt = max(CLOSE_ALONE, self.chance + STEP_ERROR * self.fresh)
        return self.sparse <= SPARSE and like_independent(l1, self.fresh, self.independent, doubt)


@dataclass(frozen=True)
class WorkloadScale:
    """The scale of a workload.

    Attributes:
        per_clique: by the names of the attributes; not every marginal where they are large.
        l1: mean error of these marginals, weighted as the workload is.
        fresh: the same of a fresh sample.
        independent: the same of independent columns.
        all: whether every marginal is among them.
        sparse: mean share of the true rows in cells with few of them.
        chance: how much further than expected a fresh sample may be.
        gone: attributes of the marginals that are as far off as independent columns would be, the
            furthest beyond a fresh sample first.
    """

    per_clique: Mapping[tuple[str, ...], Scale]
    l1: float
    fresh: float
    independent: float
    all: bool
    sparse: float = 0.0
    chance: float = 0.0
    gone: tuple[tuple[str, ...], ...] = ()

    @property
    def known(self) -> bool:
        """Whether the marginals have a scale: some were counted, and most rows lie in cells with
        enough of them."""
        return bool(self.per_clique) and self.sparse <= SPARSE

    @property
    def doubt(self) -> float:
        """Error beyond that of a fresh sample which chance and the estimate explain."""
        return self.chance + STEP_ERROR * self.fresh

    @property
    def joint(self) -> bool:
        """Whether independence says something: its error is above that of a fresh sample by more
        than the estimate is wrong, which it is never for single columns."""
        return self.known and self.independent - self.fresh > STEP_ERROR * self.fresh

    @property
    def worse(self) -> bool:
        """Whether the table is no closer than independent columns, and no fresh sample either: by
        more than chance explains."""
        return self.joint and self.l1 >= self.independent and self.l1 - self.fresh > self.doubt

    @property
    def position(self) -> float | None:
        """How far from a fresh sample (0) to independent columns (1).

        None where the two cannot be told apart, or there is no scale.
        """
        room = self.independent - self.fresh
        if not self.known or room <= max(LEAST_ROOM * self.fresh, 2 * self.chance):
            return None
        return (self.l1 - self.fresh) / room


def workload_scale(
    evaluation: Evaluation, workers: int = 1, progress: StepProgress | None = None
) -> WorkloadScale:
    """The scale of the workload that was evaluated.

    Args:
        evaluation: of the tables.
        workers: threads; each holds one marginal.
        progress: called with the marginals done and in all.
    """
    pair, cliques = evaluation.pair, evaluation.workload.per_clique
    rows = pair.synthetic.num_rows
    small = [c for c in cliques if c.cells <= LARGEST]
    steps = sum(c.cells for c in small) / MOST_CELLS, len(small) / MOST_MARGINALS
    chosen = small[:: max(1, math.ceil(max(steps)))]
    counter = counter_of(pair.true)
    shares = [counts / pair.true.num_rows for counts in pair.margins[0]]

    def scales_of(batch: Sequence[CliqueError]) -> list[Scale]:
        cliques = [pair.domain.clique(c.attributes) for c in batch]
        return [clique_scale(counter.count(q), [shares[i] for i in q], rows) for q in cliques]

    scales = in_batches(scales_of, chosen, workers, progress)
    weights = np.array([c.weight for c in chosen]) if chosen else np.ones(1)

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=weights)) if values else math.nan

    sparse = mean([s.sparse for s in scales])
    return WorkloadScale(
        {c.attributes: scale for c, scale in zip(chosen, scales)},
        mean([c.l1 for c in chosen]),
        mean([s.fresh for s in scales]),
        mean([s.independent for s in scales]),
        len(chosen) == len(cliques),
        sparse,
        chance_l1(pair.true.num_rows, rows, sparse),
        _gone(chosen, scales),
    )


def _gone(cliques: Sequence[CliqueError], scales: Sequence[Scale]) -> tuple[tuple[str, ...], ...]:
    """Marginals that are as far off as independent columns would be."""
    gone = [(c.l1 - s.fresh, c) for c, s in zip(cliques, scales) if s.is_gone(c.l1)]
    ordered = sorted(gone, key=lambda item: (-item[0], item[1].attributes))
    return tuple(clique.attributes for _, clique in ordered)


def clique_scale(
    counts: NDArray[np.integer], singles: Sequence[NDArray[np.float64]], rows: int
) -> Scale:
    """The scale of one marginal.

    Args:
        counts: of the true table, one axis for each column.
        singles: shares of the codes of these columns.
        rows: of the synthetic table.
    """
    sparse = sparse_share(counts)
    return Scale(
        fresh_sample_l1(counts, rows),
        independent_l1(counts, singles, rows),
        sparse,
        chance_l1(int(counts.sum()), rows, sparse, DEVIATIONS),
    )


def sparse_share(counts: NDArray[np.integer]) -> float:
    """Share of the rows in cells with fewer than ``FEW`` of them."""
    return float(counts[counts < FEW].sum() / counts.sum())


# What became of the associations of the true table, as far as it can be told from chance.

MOST_CHANGES = 10
"""Changes that are named."""
LEAST_CHANGE = 0.01
"""Associations that differ by less are not named."""


@dataclass(frozen=True)
class Fate:
    """One association.

    Attributes:
        names: of its columns.
        true: Cramér's V in the true table.
        synthetic: in the synthetic one.
    """

    names: tuple[str, str]
    true: float
    synthetic: float


@dataclass(frozen=True, eq=False)
class Associations:
    """Associations of two attributes by their fate; the strongest first.

    Every clear one is kept, weaker, stronger or lost.

    Attributes:
        clear: their number in the true table.
        kept: how many of them hardly changed.
        weaker: how many are weaker, but not lost.
        stronger: how many are stronger.
        lost: those of which little is left.
        made_up: clear ones that only the synthetic table has.
        weak: their number in the true table.
        weak_lost: those of which little is left.
        weak_made_up: weak ones that only the synthetic table has.
        alone: attributes that are associated with others in the true table alone.
        rare: pairs that are left out because too few rows of the true table make them.
        told: differences of V, synthetic less true, of shape (columns, columns); 0 where too few
            rows make V in the table in which it is larger.
        changes: the pairs with the largest of them.
        untold: pairs that differ by as much as can be named, but for too few rows.
    """

    clear: int
    kept: int
    weaker: int
    stronger: int
    lost: tuple[Fate, ...]
    made_up: tuple[Fate, ...]
    weak: int
    weak_lost: tuple[Fate, ...]
    weak_made_up: tuple[Fate, ...]
    alone: tuple[str, ...]
    rare: int
    told: Matrix
    changes: tuple[Fate, ...]
    untold: int


def associations(evaluation: Evaluation) -> Associations:
    """What became of the associations, by Cramér's V.

    An association is clear, weak, lost or made up only where chance does not explain it: V² must
    exceed 0, or that of the other table, by ``DEVIATIONS`` standard deviations. It must rest on
    some rows, too: those off the most frequent value of both columns. Weak ones must be strong
    enough that their loss could be told.
    """
    names = evaluation.association.names
    true, made = evaluation.association.cramers_v
    ours, theirs = map(Chance, evaluation.pair.margins, evaluation.association.influence)
    spread = np.hypot(ours.deviation(true), theirs.deviation(made))

    def half_gone(more: Matrix, less: Matrix) -> Mask:
        telling = more**2 - less**2 > DEVIATIONS * spread
        return telling & (less < LOST_PART * more)

    def fates(pairs: Mask, by: Matrix) -> tuple[Fate, ...]:
        first, second = np.nonzero(np.triu(pairs, 1))
        order = np.argsort(-by[first, second], kind="stable")
        return tuple(fate(first[k], second[k]) for k in order)

    def fate(i: int, j: int) -> Fate:
        return Fate((names[i], names[j]), float(true[i, j]), float(made[i, j]))

    independent = DEVIATIONS * ours.independent
    strong = np.triu((true >= CLEAR_V) & (true**2 > independent), 1)
    clear = strong & ours.told
    lost, new = half_gone(true, made), half_gone(made, true)
    kept = np.abs(made - true) <= KEPT_V
    present, showing = ours.present(true, theirs), theirs.present(made, ours)
    faint = np.triu(present & (true < CLEAR_V), 1)
    is_told = np.where(true >= made, ours.told, theirs.told)
    told = np.where(is_told, made - true, 0.0)
    untold = np.triu(~is_told & (np.abs(made - true) >= LEAST_CHANGE), 1)
    return Associations(
        clear=int(clear.sum()),
        kept=int((clear & kept).sum()),
        weaker=int((clear & ~kept & ~lost & (made < true)).sum()),
        stronger=int((clear & ~kept & (made > true)).sum()),
        lost=fates(clear & lost, true),
        made_up=fates((made >= CLEAR_V) & theirs.told & new, made),
        weak=int(faint.sum()),
        weak_lost=fates(faint & lost, true),
        weak_made_up=fates(showing & (made < CLEAR_V) & new, made),
        alone=tuple(names[i] for i in _cut_off(present, lost, showing)),
        rare=int((strong & ~clear).sum()),
        told=told,
        changes=tuple(fate(i, j) for i, j in _largest(told)),
        untold=int(untold.sum()),
    )


def _cut_off(present: Mask, lost: Mask, showing: Mask) -> list[int]:
    """Attributes that lost all of their associations, and have no other ones instead."""
    others = ~np.eye(len(present), dtype=np.bool_)
    had, left = present & others, (present & ~lost | showing) & others
    return [int(i) for i in np.flatnonzero(had.any(axis=1) & ~left.any(axis=1))]


def _largest(difference: Matrix) -> list[tuple[int, int]]:
    """The pairs with the largest differences, by size."""
    first, second = np.triu_indices(len(difference), 1)
    sizes = np.abs(difference[first, second])
    order = np.argsort(-sizes, kind="stable")[:MOST_CHANGES]
    return [(int(first[k]), int(second[k])) for k in order if sizes[k] >= LEAST_CHANGE]
