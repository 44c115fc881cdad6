"""What an error means: how far a fresh sample or independent columns would be from the truth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, comb, gammaln, xlog1py, xlogy

from adaptive_qs.evaluation.checks import Word
from adaptive_qs.evaluation.tables import Numbers
from adaptive_qs.pages.words import share, significant

CLOSE, USABLE = 0.15, 0.5
"""Limits of "close" and "usable", as parts of the way from the error of a fresh sample to that of
independent columns."""
CLOSE_SINGLE, USABLE_SINGLE = 0.02, 0.10
"""The same limits as L1 error beyond a fresh sample, if independent columns are no farther off."""
FEW, SPARSE = 5, 0.5
"""Number of true rows below which a cell has few, and share of the rows in such cells above which
there is no scale."""
STEP_ERROR = 0.05
"""Assumed relative error of the estimate for a fresh sample. From well-filled to nearly empty cells
it is below 3 % for tables of equal size, and at most 5 % for a synthetic table of ten times the
rows."""
LEAST_ROOM = 0.25
"""Part of a fresh sample's error by which independent columns must be further off to differ
clearly: five times the error of the estimate."""
GONE = 0.9
"""Part of the way from which on an error is that of independent columns."""
DEVIATIONS, DOUBTFUL = 5, 3
"""Standard deviations that exclude chance, and that make it unlikely. By Cantelli's inequality
chance exceeds the first with probability 1/26 whatever the distribution, and 3e-7 for a normal
one."""


@dataclass(frozen=True)
class RelativeError:
    """An error compared with a fresh sample's and that of independent columns.

    Attributes:
        error, fresh, independent: the three errors.
        tolerance: how much further than expected chance and the estimate may take a fresh sample.
        limits: largest values of "close" and "usable" beyond a fresh sample, if there is no scale.
        known: whether there is anything to judge it by.
        joint: whether independence says something.
        doubtful: whether some part is as far off as independent columns.
    """

    error: float
    fresh: float
    independent: float
    tolerance: float
    limits: tuple[float, float] = (CLOSE_SINGLE, USABLE_SINGLE)
    known: bool = True
    joint: bool = True
    doubtful: bool = False

    @property
    def room(self) -> float | None:
        """The difference of the two other errors; None if they cannot be distinguished."""
        room, least = self.independent - self.fresh, LEAST_ROOM * self.fresh
        chance = self.tolerance - STEP_ERROR * self.fresh
        return room if self.known and room > max(least, 2 * chance) else None

    @property
    def beyond(self) -> float:
        """How much further than a fresh sample it is, as a part of the room if there is one."""
        return (self.error - self.fresh) / (self.room or 1.0)

    @property
    def far(self) -> bool:
        """Whether it is no closer than independent columns, and chance does not explain it."""
        worse = self.joint and self.error >= self.independent
        return worse and self.error - self.fresh > self.tolerance

    def exceeds(self, grade: int) -> bool:
        """Return whether it is beyond the limit of "close" (0) or "usable" (1)."""
        limit = ((CLOSE, USABLE) if self.room else self.limits)[grade]
        return self.beyond > max(limit, self.tolerance / (self.room or 1.0))

    def __str__(self) -> str:
        if self.far or (self.room and self.beyond >= 1):
            return ". The table is no closer than independent columns."
        text = "."
        if self.beyond <= 0:
            text = ". The table is as close as a fresh sample."
        elif self.room:
            text = f". The error lies {share(self.beyond, 2)} of the way between the two."
        elif self.joint:
            text = ". The two are too close to each other to place the table between them."
        close = CLOSE if self.room else self.limits[0]
        if self.exceeds(0) or self.beyond <= close:
            return text
        usual, raised = f"{close:.2g}", f"{significant(self.tolerance)} above a fresh sample"
        if self.room:
            usual = share(CLOSE, 2)
            raised = f"{share(self.tolerance / self.room, 2)} of the way"
        return (
            f"{text} Chance alone can make such a difference with so few rows per cell, so the "
            f"limit for “close” is raised from {usual} to {raised}."
        )


CLOSENESS = (
    Word("far", "poor", lambda p: p.far or p.exceeds(1)),
    Word("usable", "fair", lambda p: p.doubtful or p.exceeds(0)),
    Word("close", "good"),
)
"""The words for a relative error."""


def like_independent(error: float, fresh: float, independent: float, tolerance: float) -> bool:
    """Return whether an error is that of independent columns, and both exceed the tolerance."""
    room, excess = independent - fresh, error - fresh
    return min(room, excess) > tolerance and excess >= GONE * room


@dataclass(frozen=True)
class CliqueError:
    """The error in one marginal.

    Attributes:
        attributes: names of its attributes.
        l1: Σ|a/N_a − b/N_b| over its cells, between 0 and 2.
        rmse: root mean squared error of its cells, in shares of the rows.
        cells: their number.
        weight: of the marginal in the workload.
    """

    attributes: tuple[str, ...]
    l1: float
    rmse: float
    cells: int
    weight: float


@dataclass(frozen=True)
class Scale:
    """Two errors to compare with, for one marginal; L1 distances between 0 and 2.

    Attributes:
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        sparse: share of the true rows in cells with fewer than ``FEW`` of them.
        chance: how much further than expected a fresh sample may be (``DEVIATIONS`` of them).
    """

    fresh: float
    independent: float
    sparse: float
    chance: float

    def is_gone(self, l1: float) -> bool:
        """Return whether an error is clearly that of independent columns."""
        tolerance = max(CLOSE_SINGLE, self.chance + STEP_ERROR * self.fresh)
        return self.sparse <= SPARSE and like_independent(
            l1, self.fresh, self.independent, tolerance
        )


@dataclass(frozen=True)
class WorkloadScale:
    """The scale of a workload; means over its marginals are weighted as the workload is.

    Attributes:
        per_clique: by the names of the attributes; not every marginal if they are large.
        l1, fresh, independent: mean errors of these marginals.
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
        """Whether marginals were counted, most rows lie in filled cells, and errors can tell."""
        return bool(self.per_clique) and self.sparse <= SPARSE and not self.vacuous

    @property
    def vacuous(self) -> bool:
        """Whether chance may take a fresh sample as far off as any table can be."""
        return self.fresh + self.tolerance >= 2  # the largest L1 distance

    @property
    def tolerance(self) -> float:
        """How much further than expected a fresh sample may be, and the estimate be wrong."""
        return self.chance + STEP_ERROR * self.fresh

    @property
    def joint(self) -> bool:
        """Whether independent columns are further off than a fresh sample and its estimate."""
        return self.known and self.independent - self.fresh > STEP_ERROR * self.fresh

    @property
    def place(self) -> RelativeError:
        """The relative error of the mean."""
        doubtful = len(self.per_clique) > 1 and bool(self.gone)
        errors = (self.l1, self.fresh, self.independent, self.tolerance)
        return RelativeError(*errors, known=self.known, joint=self.joint, doubtful=doubtful)


def scale_over(
    errors: Sequence[CliqueError], known: Mapping[tuple[str, ...], Scale], rows: tuple[int, int]
) -> WorkloadScale:
    """Return the scale of some marginals together.

    Scales are known by the names of the attributes; not of every marginal if they are large.
    """
    both = [(error, known[error.attributes]) for error in errors if error.attributes in known]
    figures = [(error.l1, s.fresh, s.independent, s.sparse) for error, s in both]
    means = [math.nan] * 4
    if both:
        weights = [error.weight for error, _ in both]
        means = [float(np.average(column, weights=weights)) for column in zip(*figures)]
    gone = [(s.fresh - e.l1, e.attributes) for e, s in both if s.is_gone(e.l1)]
    l1, fresh, independent, sparse = means
    scales = {error.attributes: scale for error, scale in both}
    ordered = tuple(attributes for _, attributes in sorted(gone))
    every, chance = len(both) == len(errors), chance_l1(*rows, sparse)
    return WorkloadScale(scales, l1, fresh, independent, every, sparse, chance, ordered)


# The two errors, in closed form.

EXACT = 128
"""Number of rows above which a cell is thinned in the mean only: the error is below 1/(8·128) of
its part."""
WELL_FILLED = 1 - 2 / math.pi
"""Variance of the absolute value of a normal deviate."""


def fresh_sample_l1(counts: NDArray[np.integer], rows: int) -> float:
    """Return the expected L1 distance between the true table and another sample of its population.

    What was never seen cannot be counted, so the true table is split instead. The mean distance of
    two disjoint parts, over all ways to draw them, is an unbiased estimate for two samples of the
    parts' sizes, rare and unseen values included; it is computed exactly for parts in the ratio of
    the tables (halves if the synthetic table is longer) that take all rows, a half and a quarter.
    On from there the distance falls by (1/n + 1/m)^s, 0 ≤ s ≤ 1/2: s is 0 if every cell holds a row
    at most, 1/2 if all are well filled, and is extrapolated from the three. The distance is that of
    shares, from 0 to 2; ``counts`` are of the true table, ``rows`` of the other sample.
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
    """Return how much further than expected a fresh sample may be by chance.

    The difference of the shares of a cell in n true and m other rows has variance p (1/n + 1/m) at
    most. Its absolute value has 1 − 2/π of that if the cell is well filled, and up to all of it if
    it holds few rows, as the share ``sparse`` of the rows does; different cells vary against each
    other rather than together.
    """
    part = WELL_FILLED + (1 - WELL_FILLED) * sparse
    return deviations * math.sqrt(part * (1 / true_rows + 1 / rows))


def _apart(cells: NDArray[np.integer], keep: float, part: float) -> Numbers:
    """Return the mean of |X − c·part| for X of the c rows of a cell that fall into the part.

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
    """Return P(k of n rows are kept), shape (n, k), for n and k up to ``EXACT``."""
    number, kept = np.ogrid[: EXACT + 1, : EXACT + 1]
    return comb(number, kept) * keep**kept * (1 - keep) ** np.abs(number - kept)


def _deviation(number: NDArray, part: float) -> Numbers:
    """Return the mean absolute deviation of a binomial number.

    It is 2 ν C(n, ν) p^ν (1 − p)^(n−ν+1) with ν = ⌊np⌋ + 1: De Moivre's formula; Diaconis and
    Zabell 1991, "Closed form summation for classical distributions", Statistical Science 6.
    """
    n = np.asarray(number, dtype=np.float64)
    v = np.minimum(np.floor(n * part) + 1, n)
    ways = gammaln(n + 1) - gammaln(v + 1) - gammaln(n - v + 1)
    return 2 * v * np.exp(ways + v * math.log(part) + (n - v + 1) * math.log1p(-part))


def sparse_share(counts: NDArray[np.integer]) -> float:
    """Return the share of the rows in cells with fewer than ``FEW`` of them."""
    return float(counts[counts < FEW].sum() / counts.sum())


def independent_l1(
    counts: NDArray[np.integer], singles: Sequence[NDArray[np.float64]], rows: int
) -> float:
    """Return the expected L1 distance of a table with the true single columns, independent.

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
    for single, code in zip(singles, codes, strict=True):
        q = q * single[code]
    expected = counts[codes] * (rows / true_rows)
    whole = np.floor(expected)
    mean = rows * q
    up_to = bdtr(np.minimum(whole, rows), rows, q)
    k, last = np.minimum(whole, rows - 1), rows - 1
    ways = gammaln(last + 1) - gammaln(k + 1) - gammaln(last - k + 1)
    equal = np.exp(ways + xlogy(k, q) + xlog1py(last - k, -q))
    there = (1 - q) * np.where(whole > last, 0.0, equal)
    apart = mean - expected + 2 * ((expected - mean) * up_to + mean * there)
    return float(np.maximum(apart, 0).sum() / rows + max(0.0, 1 - q.sum()))
