"""What an error means: how far a fresh sample or independent columns would be from the truth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation.chance import (
    chance_l1,
    fresh_sample_l1,
    independent_l1,
    sparse_share,
)
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.limits import (
    CLEAR_V,
    CLOSE,
    CLOSE_SINGLE,
    DEVIATIONS,
    DOUBTFUL,
    FURTHEST,
    GONE,
    KEPT_V,
    LEAST_EFFECT,
    LEAST_OFF,
    LEAST_OFF_PART,
    LEAST_ROOM,
    LOST_PART,
    SPARSE,
    STEP_ERROR,
    USABLE,
    USABLE_SINGLE,
)
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.tables import Margins, in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.table.coded import MarginalCounter

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Where marginals and queries stand between the two.

MOST_CELLS, MOST_MARGINALS = 2**25, 10_000
"""Cells of all marginals that are counted for the scale, and their number; of more, an even
sample is taken."""
LARGEST = 2**22
"""Marginals with more cells are left out of the scale."""


@dataclass(frozen=True)
class Place:
    """Where an error stands; errors are parts of the way from a fresh sample to independence.

    Attributes:
        known: whether there is anything to judge it by.
        beyond: how much further than a fresh sample it is.
        allowed: how much further chance may take a fresh sample.
        close, usable: up to which it is so.
        scaled: whether the two can be told apart; otherwise, errors are as they were measured.
        joint: whether independence says something.
        worse, far: whether it is no closer than independent columns, and clearly so.
        doubtful: whether it is so in some part.
    """

    known: bool
    beyond: float
    allowed: float
    close: float = CLOSE
    usable: float = USABLE
    scaled: bool = True
    joint: bool = True
    worse: bool = False
    far: bool = False
    doubtful: bool = False


def like_independent(error: float, fresh: float, independent: float, doubt: float) -> bool:
    """Whether an error is that of independent columns, and both are further than the doubt."""
    room, excess = independent - fresh, error - fresh
    return min(room, excess) > doubt and excess >= GONE * room


@dataclass(frozen=True)
class Scale:
    """Two errors to compare with, for one marginal; L1 distances between 0 and 2.

    Attributes:
        fresh: expected of another sample of as many rows from the same population.
        independent: expected of as many rows with the true single columns, drawn independently.
        sparse: share of the true rows in cells with fewer than ``FEW`` of them.
        chance: how much further than expected ``DEVIATIONS`` of them take a fresh sample.
    """

    fresh: float
    independent: float
    sparse: float
    chance: float

    def is_gone(self, l1: float) -> bool:
        """Whether an error is that of independent columns, where these are further off than chance
        takes a fresh sample."""
        doubt = max(CLOSE_SINGLE, self.chance + STEP_ERROR * self.fresh)
        return self.sparse <= SPARSE and like_independent(l1, self.fresh, self.independent, doubt)


@dataclass(frozen=True)
class WorkloadScale:
    """The scale of a workload; means over its marginals are weighted as the workload is.

    Attributes:
        per_clique: by the names of the attributes; not every marginal where they are large.
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
        """Whether some marginals were counted, most rows lie in cells with enough of them, and
        there are errors that chance does not explain."""
        return bool(self.per_clique) and self.sparse <= SPARSE and not self.vacuous

    @property
    def vacuous(self) -> bool:
        """Whether chance may take a fresh sample as far off as any table can be."""
        return self.fresh + self.doubt >= FURTHEST

    @property
    def doubt(self) -> float:
        """How much further than expected a fresh sample may be, and the estimate be wrong."""
        return self.chance + STEP_ERROR * self.fresh

    @property
    def joint(self) -> bool:
        """Whether independence says something: its error is above that of a fresh sample by more
        than the estimate is wrong, which it is never for single columns."""
        return self.known and self.independent - self.fresh > STEP_ERROR * self.fresh

    @property
    def position(self) -> float | None:
        """How far from a fresh sample (0) to independent columns (1).

        None where the two cannot be told apart, or there is no scale.
        """
        room = self.independent - self.fresh
        if not self.known or room <= max(LEAST_ROOM * self.fresh, 2 * self.chance):
            return None
        return (self.l1 - self.fresh) / room

    @property
    def place(self) -> Place:
        """Where the mean error stands."""
        excess, doubt = self.l1 - self.fresh, self.doubt
        worse = self.joint and self.l1 >= self.independent and excess > doubt
        scaled = self.position is not None
        room = self.independent - self.fresh if scaled else 1.0
        limits = (CLOSE, USABLE) if scaled else (CLOSE_SINGLE, USABLE_SINGLE)
        doubtful = len(self.per_clique) > 1 and bool(self.gone)
        measured = (excess / room, doubt / room, *limits)
        return Place(self.known, *measured, scaled, self.joint, worse, worse, doubtful)


def workload_scale(
    evaluation: Evaluation, workers: int = 1, progress: StepProgress | None = None
) -> WorkloadScale:
    """The scale of the workload that was evaluated."""
    pair, cliques = evaluation.pair, evaluation.workload.per_clique
    n, m = pair.true.num_rows, pair.synthetic.num_rows
    small = [c for c in cliques if c.cells <= LARGEST]
    steps = sum(c.cells for c in small) / MOST_CELLS, len(small) / MOST_MARGINALS
    chosen = small[:: max(1, math.ceil(max(steps)))]
    counter = MarginalCounter(pair.true, workers=workers)
    counter.prepare(pair.domain.clique(error.attributes) for error in chosen)
    shares = [counts / n for counts in pair.margins[0]]

    def scale_of(error: CliqueError) -> Scale:
        clique = pair.domain.clique(error.attributes)
        counts = counter.count(clique)
        independent = independent_l1(counts, [shares[i] for i in clique], m)
        sparse = sparse_share(counts)
        chance = chance_l1(n, m, sparse, DEVIATIONS)  # there are many marginals
        return Scale(fresh_sample_l1(counts, m), independent, sparse, chance)

    scales = [*in_batches(lambda batch: [*map(scale_of, batch)], chosen, workers, progress)]
    known = {error.attributes: scale for error, scale in zip(chosen, scales)}
    return scale_over(cliques, known, (n, m))


def scale_over(
    errors: Sequence[CliqueError],
    known: Mapping[tuple[str, ...], Scale],
    rows: tuple[int, int],
) -> WorkloadScale:
    """The scale of some marginals together.

    Args:
        errors: of these marginals.
        known: scales by the names of the attributes; not of every marginal where they are large.
        rows: of the true and of the synthetic table.
    """
    chosen = [error for error in errors if error.attributes in known]
    scales = [known[error.attributes] for error in chosen]
    weights = [error.weight for error in chosen]

    def mean(values: Iterable[float]) -> float:
        return float(np.average([*values], weights=weights)) if chosen else math.nan

    sparse = mean(s.sparse for s in scales)
    gone = [(s.fresh - c.l1, c.attributes) for c, s in zip(chosen, scales) if s.is_gone(c.l1)]
    return WorkloadScale(
        {c.attributes: scale for c, scale in zip(chosen, scales)},
        mean(c.l1 for c in chosen),
        mean(s.fresh for s in scales),
        mean(s.independent for s in scales),
        len(chosen) == len(errors),
        sparse,
        chance_l1(*rows, sparse),
        tuple(attributes for _, attributes in sorted(gone)),
    )


def gone_parts(asked: QueryError) -> list[PartError]:
    """Parts of the queries that are as far off as those of independent columns."""

    def is_gone(part: PartError) -> bool:
        doubt = max(LEAST_ROOM * part.fresh, part.chance(DEVIATIONS))
        return part.ways > 1 and like_independent(part.rmse, part.fresh, part.independent, doubt)

    return [part for part in asked.parts if is_gone(part)]


def place_of_queries(asked: QueryError) -> Place:
    """Where the error of all queries together stands.

    What is no closer than independent columns is far where these are clearly further off than a
    fresh sample, and usable at best where they hardly are. Without a scale between the two, any
    error is close.
    """
    room, excess = asked.independent - asked.fresh, asked.rmse - asked.fresh
    chance, least = asked.chance(DEVIATIONS), LEAST_ROOM * asked.fresh
    deviations = DOUBTFUL if room > STEP_ERROR * asked.fresh else DEVIATIONS
    worse = asked.joint and excess >= room and excess > max(asked.chance(deviations), least)
    doubtful = worse or bool(gone_parts(asked))
    if not worse and room > max(least, 2 * chance):
        return Place(
            asked.joint, excess / room, chance / room, joint=asked.joint, doubtful=doubtful
        )
    far = worse and min(excess - chance, room - least) > 0
    limits = (math.inf, math.inf)
    return Place(asked.joint, excess, 0.0, *limits, False, asked.joint, worse, far, doubtful)


# How far chance takes the Cramér's V of two columns.

LEAST_ROWS = 4
"""With fewer the variance of χ² is not defined."""


class Chance:
    """How far chance takes the Cramér's V of each two columns of one table.

    Matrices are of shape (columns, columns).

    Attributes:
        spread: pairs of which enough rows lie off the most frequent value of both columns.
    """

    def __init__(self, margins: Margins, influence: Numbers) -> None:
        self._influence = influence  # of independent columns: 4 (r − 1)(c − 1)/N on average
        occupied = [counts[counts > 0] for counts in margins]
        self._rows = rows = max(int(margins[0].sum()), 2)
        off = np.array([counts.sum() - counts.max() for counts in occupied])
        spread = off >= max(LEAST_OFF, LEAST_OFF_PART * rows)
        self.spread = np.outer(spread, spread)
        values = np.array([len(counts) for counts in occupied], dtype=np.float64)
        self._freedom = np.outer(values - 1, values - 1)
        corrected = values - 1 - (values - 1) ** 2 / (rows - 1)
        self._least = np.minimum.outer(corrected, corrected)
        self._variance = np.maximum(chi_square_variance(occupied), 0.0) / rows**2

    def deviation(self, v: Numbers | None = None) -> Numbers:
        """Standard deviations of V² = φ²/k, k as Bergsma corrects it.

        The variance is that of independent columns and that which the strength of the association
        has: what was found by the delta method, and as for a correlation 4 φ²/N at least. A few
        rows in a cell that hardly should be occupied make it many times as large.

        Args:
            v: Cramér's V of every pair; None where columns are independent.
        """
        defined = self._least > 0
        least = np.where(defined, self._least, 1.0)
        more = (0.0 if v is None else self._influence) - 4 * self._freedom / self._rows
        strength = np.maximum(more, 0.0 if v is None else 4 * v**2 * least) / self._rows
        deviation = np.sqrt(self._variance + strength) / least
        return np.where(defined, deviation, np.inf)

    def present(self, v: Numbers, other: Chance) -> Mask:
        """Pairs that are associated, and so strongly that another table could not lose it unseen.

        Their Cohen's w = V √k, the distance from independence whatever the number of values (Cohen
        1988, "Statistical Power Analysis for the Behavioral Sciences", chapter 7), is not small.

        Args:
            v: Cramér's V of every pair.
            other: chance in the other table.
        """
        effect = v * np.sqrt(np.maximum(self._least, 0.0))
        unseen = np.hypot(self.deviation(v), other.deviation())
        found = self.spread & (effect >= LEAST_EFFECT) & (v**2 > DEVIATIONS * unseen)
        return np.asarray(found)


def chi_square_variance(margins: Sequence[NDArray[np.integer]]) -> Numbers:
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


# What became of the associations of the true table, as far as chance does not explain it.

MOST_CHANGES = 10
"""Changes that are named."""
LEAST_CHANGE = 0.01
"""Associations that differ by less are not named."""


@dataclass(frozen=True)
class AssociationChange:
    """Two columns, with their Cramér's V in the true and in the synthetic table."""

    names: tuple[str, str]
    true: float
    synthetic: float

    @property
    def difference(self) -> float:
        """Synthetic less true."""
        return self.synthetic - self.true


Changes = tuple[AssociationChange, ...]


@dataclass(frozen=True, eq=False)
class AssociationChanges:
    """What became of the associations of two attributes; the strongest first.

    Attributes:
        clear: their number in the true table; each is kept, weaker, stronger or lost.
        kept, weaker, stronger: how many hardly changed, are weaker but not lost, are stronger.
        lost: those of which little is left.
        made_up: clear ones that only the synthetic table has.
        weak: their number in the true table.
        weak_lost, weak_made_up: the same of weak ones.
        unconnected: attributes that are associated with others in the true table only.
        rare: pairs that are left out because too few rows of the true table make them.
        difference: of V, synthetic minus true, of shape (columns, columns); 0 where too few rows
            make V in the table in which it is larger.
        largest: the pairs with the largest differences.
        unlisted: pairs that differ by as much as can be named, but for too few rows.
        blind: whether a table has so few rows that chance may explain even a clear association,
            in most pairs.
    """

    clear: int
    kept: int
    weaker: int
    stronger: int
    lost: Changes
    made_up: Changes
    weak: int
    weak_lost: Changes
    weak_made_up: Changes
    unconnected: tuple[str, ...]
    rare: int
    difference: Numbers
    largest: Changes
    unlisted: int
    blind: bool


def association_changes(evaluation: Evaluation) -> AssociationChanges:
    """What became of the associations, by Cramér's V.

    An association is clear, weak, lost or made up only where chance does not explain it: V² must
    exceed 0, or that of the other table, by ``DEVIATIONS`` standard deviations. It must rest on
    some rows, too: those off the most frequent value of both columns. Weak ones must be strong
    enough that their loss could be seen.
    """
    names = evaluation.association.names
    true, made = evaluation.association.cramers_v
    ours, theirs = map(Chance, evaluation.pair.margins, evaluation.association.influence)
    deviation = np.hypot(ours.deviation(true), theirs.deviation(made))

    def half_gone(more: Numbers, less: Numbers) -> Mask:
        clearly = more**2 - less**2 > DEVIATIONS * deviation
        return clearly & (less < LOST_PART * more)

    def ordered(pairs: Mask, by: Numbers) -> Changes:
        first, second = np.nonzero(np.triu(pairs, 1))
        order = np.argsort(-by[first, second], kind="stable")
        return tuple(
            AssociationChange((names[i], names[j]), float(true[i, j]), float(made[i, j]))
            for i, j in zip(first[order], second[order])
        )

    hidden = DEVIATIONS * np.maximum(ours.deviation(), theirs.deviation()) >= CLEAR_V**2
    strong = np.triu((true >= CLEAR_V) & (true**2 > DEVIATIONS * ours.deviation()), 1)
    clear = strong & ours.spread
    lost, new = half_gone(true, made), half_gone(made, true)
    kept = np.abs(made - true) <= KEPT_V
    present, showing = ours.present(true, theirs), theirs.present(made, ours)
    faint = np.triu(present & (true < CLEAR_V), 1)
    spread = np.where(true >= made, ours.spread, theirs.spread)
    difference = np.where(spread, made - true, 0.0)
    size, unlisted = np.abs(difference), ~spread & (np.abs(made - true) >= LEAST_CHANGE)
    others = ~np.eye(len(names), dtype=np.bool_)
    left = present & ~lost | showing
    cut_off = (present & others).any(axis=1) & ~(left & others).any(axis=1)
    return AssociationChanges(
        clear=int(clear.sum()),
        kept=int((clear & kept).sum()),
        weaker=int((clear & ~kept & ~lost & (made < true)).sum()),
        stronger=int((clear & ~kept & (made > true)).sum()),
        lost=ordered(clear & lost, true),
        made_up=ordered((made >= CLEAR_V) & theirs.spread & new, made),
        weak=int(faint.sum()),
        weak_lost=ordered(faint & lost, true),
        weak_made_up=ordered(showing & (made < CLEAR_V) & new, made),
        unconnected=tuple(names[i] for i in np.flatnonzero(cut_off)),
        rare=int((strong & ~clear).sum()),
        difference=difference,
        largest=ordered(size >= LEAST_CHANGE, size)[:MOST_CHANGES],
        unlisted=int(np.triu(unlisted, 1).sum()),
        blind=bool(others.any() and hidden[others].mean() > 0.5),
    )
