"""Gibbs chains whose state is a table, and the fit of their model to noisy marginals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Rows, add_counts, count_rows
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.generate.loglinear import CarriedAttributes, LogLinearModel
from adaptive_qs.generate.shape import Shapes, drifts, finest_groups
from adaptive_qs.generate.structure import (
    CoarseDomain,
    ModeShares,
    SharedSteps,
    carried_zeros,
    find_carried,
    find_components,
    followed,
)
from adaptive_qs.generate.targets import Target
from adaptive_qs.generate.tree import (
    Node,
    TreeMoves,
    dependence_tree,
    fill_from_tree,
    pair_marginals,
    write_tree,
)
from adaptive_qs.generate.zeros import (
    PairMoves,
    Zeros,
    build_masks,
    independent_target,
    select_inside,
    settle,
)
from adaptive_qs.machine import StepProgress, over_items

if TYPE_CHECKING:
    from adaptive_qs.generate.blocks import BlockMoves

Array = NDArray[np.float32]

AVERAGED = 8
"""Number of states whose marginals are averaged for a subset of the rows."""
MOVES_APART = 8
"""Number of moves of resampled rows before they are used."""
Chances = Mapping[int, NDArray[np.float64]]
"""By attribute, the probability to keep a row with each of its values: shape (n_i,)."""


@dataclass
class Chains:
    """Gibbs chains whose state is a table.

    Attributes:
        model: the distribution; its weights can change between moves.
        proposals: moves of whole branches of attributes.
        rows: the state, shape (rows, attributes).
        coarse: converts states to rows of codes.
        pairs: moves of pairs of attributes that have to change together.
        blocks: moves of larger sets of such attributes.
        shared: the steps by which weights of blocks move.
        shares: of the modes of blocks, which each step restores; None if rows are only a part of
            the table, such as those that meet a condition.
    """

    model: LogLinearModel
    proposals: TreeMoves
    rows: Rows
    rng: np.random.Generator
    coarse: CoarseDomain
    pairs: PairMoves | None = None
    blocks: BlockMoves | None = None
    shared: SharedSteps | None = None
    shares: ModeShares | None = None

    def move(self, thorough: bool = False) -> None:
        """Move every row, in place; redraw the pairs and blocks of all only if ``thorough``."""
        for change in (self.proposals, self.proposals.replace_wide, self.model.sweep):
            change(self.rows, int(self.rng.integers(2**63)))
        if self.pairs is not None:
            self.pairs(self.rows, int(self.rng.integers(2**63)), thorough)
        if self.blocks is not None:
            self.blocks(self.rows, int(self.rng.integers(2**63)), thorough)
        self.model.carried.fill(self.rows)

    def restore(self) -> None:
        """Restore the shares of modes, in place."""
        if self.shares is not None:
            self.shares.restore(self.rows, self.rng)

    def advance(self, times: int = 1) -> Rows:
        """Return the next states as rows of codes, one below the other, in a new array."""
        states = np.empty((times, *self.rows.shape), dtype=self.rows.dtype)
        for state in states:
            self.move()
            self.restore()
            state[:] = self.coarse.draw_codes(self.rows, self.rng)
        return states.reshape(-1, self.rows.shape[1])

    def add_marginals(self, means: Sequence[Array], cliques: Sequence[Clique]) -> None:
        """Add the marginals of a state, averaged over ``AVERAGED`` later states, in place."""
        domain = self.model.domain
        sums = [np.zeros(domain.shape(clique)) for clique in cliques]
        for _ in range(AVERAGED):
            self.move()
            rows = np.asfortranarray(self.rows)
            for total, clique in zip(sums, cliques):
                add_counts(total, rows, domain, clique)
        for mean, total, clique in zip(means, sums, cliques):
            averaged = (total / AVERAGED).astype(np.float32)
            mean += self.coarse.marginal_of_codes(averaged, clique)

    def keep(self, num_rows: int) -> Chains:
        """Return chains of the same distribution with another number of rows.

        Rows are repeated if there are too few; all move ``MOVES_APART`` times.
        """
        order = self.rng.permutation(len(self.rows))
        chains = self._with(self.model, self.rows[np.resize(order, num_rows)])
        for _ in range(MOVES_APART):
            chains.move(thorough=True)
        return chains

    def within(self, chances: Chances, num_rows: int) -> tuple[Chains, float]:
        """Return chains of a random subset of ``num_rows``, and the share of these among all rows.

        A sequential Monte Carlo sampler (Del Moral, Doucet and Jasra 2006), one attribute after the
        other: rows are weighted by the probability that their value is kept, resampled, get a kept
        value, and move as the rows of the subset so far do. A rare value takes no longer than a
        frequent one; the mean weights multiply to the share. ``chances`` has, by attribute, the
        probability to keep a row with each value: shape (n_i,). Codes of these attributes were kept
        apart when the model was fitted.
        """
        chains, share = self, 1.0
        taken: dict[int, NDArray[np.float64]] = {}
        for attribute, chance in chances.items():
            rows, mean = chains.model.given(chains.rows, attribute, chance, num_rows, self.rng)
            share *= mean
            if not share:
                break
            taken[attribute] = chance
            chains = self._with(self.model.within(taken), rows)
            chains.move(thorough=True)
        return chains, share

    def with_rows(self, rows: Rows) -> Chains:
        """Return chains of the same model with other rows."""
        return self._with(self.model, rows)

    def _with(self, model: LogLinearModel, rows: Rows) -> Chains:
        pairs = self.pairs and self.pairs.towards(model)
        blocks = self.blocks and self.blocks.towards(model)
        proposals = self.proposals.towards(model)
        found = replace(self, proposals=proposals, pairs=pairs, blocks=blocks, shares=None)
        return replace(found, model=model, rows=rows)


# Fit a log-linear model to noisy marginals with Gibbs chains whose state is a table.
#
# Each step sweeps the rows once, proposes one branch of the dependence tree to each, and then
# moves every weight by
#
#     w_γ ← w_γ · ((target + d) / (count + d))^η,    d = κ + t · noise_std,
#
# so weights react to differences above the noise and hardly to those below it; the number of
# steps and d together act as the regularisation. The chain never restarts: rows follow the
# weights. The mean of the marginals over the last sweeps is the model's estimate, far less noisy
# than the rows of a single state. The first half of the steps needs fewer rows.
#
# All weights move together. If many targets overlap, they can overshoot: what one sweep has too
# many of, the next has too few of. Then steps are shortened, and there are more of them.


@dataclass(frozen=True)
class FitSettings:
    """How the weights follow the targets.

    Attributes:
        sweeps: number of steps if none is shortened. Each step sweeps the rows once.
        averaged: number of steps at the end whose marginals are averaged, likewise.
        step: the exponent η of the first step. It falls as 1 / (1 + decay · progress).
        decay: how fast ``step`` falls; progress goes from 0 to 1.
        damping_rows: κ, the number of rows added to both sides of each ratio.
        damping_noise: t, how many standard deviations of the noise are added to both sides.
        early_rows: most rows that are swept in the first half.
    """

    sweeps: int = 64
    averaged: int = 28
    step: float = 0.125
    decay: float = 4.0
    damping_rows: float = 2.0
    damping_noise: float = 8.0
    early_rows: int = 12_500

    def __post_init__(self) -> None:
        if not 1 <= self.averaged <= self.sweeps:
            raise ValueError("averaged sweeps must lie between 1 and the number of sweeps")


SHORTEST = 0.75
"""Smallest length of a step, as a part of that in the settings; trends that swing shorten by it."""
CLEAR_MISFIT = 2.0
"""Mean squared misfit of a coarser target, or of all trends and a trend, from which on it is
followed, in variances."""
CHECKED_EVERY = 4
"""Steps from one look at a coarser target without a clear misfit to the next."""
FASTER = 4.0
"""Length of a step that divides groups as the single column does, compared with other steps."""


def compute_ratio(
    clique: Clique,
    desired: NDArray[np.float64],
    counted: NDArray[np.float64],
    exponent: float,
    shared: SharedSteps | None,
) -> NDArray[np.float64]:
    """Return (desired / counted) ** exponent for a clique; attributes of a block share a step."""
    if shared is None:
        return (desired / counted) ** exponent
    return np.exp(exponent * shared.log_ratio(clique, desired, counted))


@dataclass
class WeightUpdater:
    """Moves the weights of a model towards targets, by steps that do not overshoot.

    ``pace`` is the length of the next step, as a part of that in the settings. Weights of
    ``coarser`` cliques move only while their misfit is clear: the cells inside are targets, too.
    """

    model: LogLinearModel
    targets: InitVar[Sequence[Target]]
    settings: FitSettings
    workers: int
    shared: SharedSteps | None = None
    coarser: Collection[Clique] = ()
    pace: float = field(default=1.0, init=False)

    def __post_init__(self, targets: Sequence[Target]) -> None:
        self._alike: dict[Clique, list[Target]] = {}
        for target in targets:
            self._alike.setdefault(self.model.carrier(target.clique), []).append(target)
        self._inside = finest_groups(self.model.domain, self.model.shapes)
        self._offs = np.zeros(len(self._alike))  # misfits of trends in the last step
        self._trends, self._trend_pace = 0.0, 1.0  # mean square of these, and length of steps
        self._waiting = dict[Clique, int]()  # steps until a coarser target is looked at again
        self._misfits = {t.clique: np.zeros(t.counts.shape, dtype=np.float32) for t in targets}

    def step(self, rows: Rows, exponent: float, share: float) -> None:
        """Move all weights, and shorten the next step if this one goes back on the last.

        Two steps oppose each other if their misfits, over the standard deviations of a cell's
        count, are correlated by less than −η over all targets: noise alone, at the targets, has
        −η/2 if all rows are drawn anew, and more if not.
        """
        eta = self.pace * exponent
        every, shapes = list(self._alike), self.model.shapes
        moved: list[list[tuple[int, NDArray[np.float64]]]] = [[] for _ in every]
        products, squares = np.zeros((2, len(every)))
        trends = np.zeros(len(every))

        def follow(k: int) -> None:
            settings, domain = self.settings, self.model.domain
            codes: dict[Clique, NDArray[np.float64]] = {}
            ratios = {}
            for target in self._alike[every[k]]:
                if self._waiting.get(target.clique, 0) > 0:
                    self._waiting[target.clique] -= 1
                    continue
                damping = settings.damping_rows + settings.damping_noise * target.noise_std
                columns = domain.columns(target.clique)
                if columns not in codes:
                    codes[columns] = count_rows(rows, domain, columns)
                counts = domain.summed(codes[columns], columns, target.clique)
                desired, counted = share * (target.counts + damping), counts + share * damping
                desired = followed(target, desired, counted)
                if target.clique in self.coarser:
                    variance = (share * target.noise_std) ** 2 + np.maximum(counts, 1.0)
                    if ((desired - counted) ** 2 / variance).mean() < CLEAR_MISFIT:
                        self._waiting[target.clique] = CHECKED_EVERY - 1
                        continue
                ratios[target.clique] = compute_ratio(
                    target.clique, desired, counted, eta, self.shared
                )
                if target.trend is not None:
                    off, trends[k] = target.trend.misfit(counts, share)
                    if min(self._trends, trends[k] ** 2) > CLEAR_MISFIT:
                        step = self._trend_pace * off
                        ratios[target.clique] *= target.trend.ratio(counts, eta, step)
                moved[k] += drifts(
                    ratios[target.clique], codes[columns], target.clique, domain, shapes
                )
                if len(columns) == 1 and columns[0] in self._inside:
                    ratios[target.clique] *= self._ratio_inside(target, counts, eta)
                last, misfit = self._misfits[target.clique], desired - counted
                products[k] += (last * misfit / counted).sum()
                squares[k] += (last * last / counted).sum()
                last[...] = misfit
            self.model.scale_all(ratios)

        over_items(self.workers, follow, range(len(every)))
        if self._trends > CLEAR_MISFIT and trends @ self._offs < -(self._offs @ self._offs):
            self._trend_pace *= SHORTEST  # together they are now further off, on the other side
        self._offs, self._trends = trends, trends @ trends / max(np.sum(trends != 0), 1)
        for i, drift in chain.from_iterable(moved):
            self.model.scale((i,), 1 / drift)
        if products.sum() < -eta * squares.sum():
            self.pace = max(self.pace * 0.85, SHORTEST)

    def _ratio_inside(
        self, target: Target, counts: NDArray[np.float64], eta: float
    ) -> NDArray[np.float64]:
        """Return the factor of a shaped column's weights that divides groups as it is divided."""
        groups, rows = self._inside[target.clique[0]], self.settings.damping_rows
        held = groups.sums(counts, 0) / np.maximum(groups.sums(target.counts, 0), 1e-9)
        desired = target.counts * groups.repeated(held, 0)
        return ((desired + rows) / (counts + rows)) ** (FASTER * eta)


def fit_weights(
    chains: Chains,
    targets: Sequence[Target],
    watched: Sequence[Clique],
    settings: FitSettings,
    workers: int = 1,
    progress: StepProgress | None = None,
    coarser: Collection[Clique] = (),
) -> list[Array]:
    """Move the weights until the rows match the targets as closely as the noise warrants.

    The weights of the model are moved in place, together with the rows. Targets are marginals of as
    many rows: cliques of the model and single attributes. Return for each watched clique its mean
    marginal over the last sweeps (rows). Progress is reported after each step of the settings.
    """
    domain, every = chains.model.domain, chains.rows
    sums = [np.zeros(domain.shape(c)) for c in watched]
    follower = WeightUpdater(chains.model, targets, settings, workers, chains.shared, coarser)

    def accumulate(item: tuple[NDArray[np.float64], Clique]) -> None:
        total, clique = item
        add_counts(total, rows, domain, clique)

    chains.rows = every[: settings.early_rows]
    measured_from = settings.sweeps - settings.averaged
    done, averaged = 0.0, 0
    while done < settings.sweeps:
        if done >= min(settings.sweeps / 2, measured_from) and len(chains.rows) < len(every):
            every[:] = np.resize(chains.rows, every.shape)
            chains.rows = every
        chains.move()
        rows = np.asfortranarray(chains.rows)
        exponent = settings.step / (1 + settings.decay * done / settings.sweeps)
        before, done = done, round(done + follower.pace, 9)
        follower.step(rows, exponent, len(rows) / len(every))
        chains.restore()
        if before >= measured_from:
            over_items(workers, accumulate, list(zip(sums, watched)))
            averaged += 1
        if progress and int(done) > int(before):
            progress(int(done), settings.sweeps)
    return [(sums.pop(0) / averaged).astype(np.float32) for _ in watched]


def settle_weights(chains: Chains, singles: Sequence[Target], settings: FitSettings) -> None:
    """Move the weights of single attributes until the rows have their counts.

    Zeros move rows between codes, however well these were measured. After that the fit has to
    match only what was measured with noise.
    """
    domain, every = chains.model.domain, chains.rows
    chains.rows = every[: min(settings.early_rows, 2**11)]
    share = len(chains.rows) / len(every)

    for _ in range(24):
        chains.move(thorough=True)
        for target in singles:
            counts = count_rows(chains.rows, domain, target.clique)
            desired, counted = share * target.counts + 1, counts + 1
            ratio = compute_ratio(target.clique, desired, counted, 0.5, chains.shared)
            chains.model.scale(target.clique, ratio)
    chains.rows = every


def begin_chains(
    targets: Sequence[Target],
    singles: Sequence[Target],
    coarse: CoarseDomain,
    zeros: Zeros,
    rows: Rows,
    seed: int,
    settings: FitSettings,
    rng: np.random.Generator,
    workers: int,
    given: Clique = (),
    shapes: Shapes | None = None,
) -> Chains:
    """Return chains that start from the tree of dependences among the targets.

    Targets, ``shapes`` and ``singles`` are over the codes of ``coarse``. The codes of given
    attributes in ``rows`` stay, the others are filled in place. No zero contains a given attribute.
    """
    domain, counts = coarse.domain, [single.counts for single in singles]
    held = [target.clique for target in targets]
    combined = list(dict.fromkeys(map(domain.columns, held)))
    carried = find_carried(domain, combined, zeros, given)
    left, carriers = carried_zeros(zeros, carried), [carried.clique(c) for c in combined]
    apart = [
        z for z in left if len(z.clique) > 1 and not any(select_inside([z], c) for c in carriers)
    ]
    plain = [target for target in targets if not target.parts]
    linked = [replace(t, counts=followed(t, t.counts, np.ones_like(t.counts))) for t in plain]
    linked += (independent_target(zero, counts) for zero in apart)
    masks = build_masks(left, domain, [*carriers, *(zero.clique for zero in left)])
    tree = dependence_tree(domain, linked, counts, given, carried, shapes, masks)
    held += dict.fromkeys(zero.clique for zero in apart)
    model = LogLinearModel(domain, held, counts, workers, masks, given, carried, shapes)
    write_tree(model, tree, settings.damping_rows)
    fill_rows(rows, tree, counts, zeros, rng, seed, given, carried)
    blocks = [component for component in find_components(left) if component.is_block]
    others = [z for z in left if not any(set(b.clique).issuperset(z.clique) for b in blocks)]
    pairs = PairMoves(model, others, workers) if others else None
    redraws, components = None, find_components(zeros)
    if blocks:
        from adaptive_qs.generate.blocks import BlockMoves  # few tables need them

        joints = pair_marginals(domain, linked, counts, carried, allowed=masks)
        redraws = BlockMoves(model, blocks, joints, left, workers)
    proposals = TreeMoves(model, tree, counts, workers)
    shared = SharedSteps(components) if components else None
    shares = ModeShares(blocks, counts) if blocks and not given else None
    chains = Chains(model, proposals, rows, rng, coarse, pairs, redraws, shared, shares)
    if zeros:
        settle_weights(chains, singles, settings)
    return chains


def fill_rows(
    rows: Rows,
    tree: Sequence[Node],
    counts: Sequence[NDArray[np.float64]],
    zeros: Zeros,
    rng: np.random.Generator,
    seed: int,
    given: Clique,
    carried: CarriedAttributes,
) -> None:
    """Draw rows from a tree, in place, outside of all zeros, which contain no given attribute."""
    kept = rows[:, given].copy()
    fill_from_tree(rows, tree, counts, rng)
    carried.fill(rows)
    settle(rows, zeros, counts, seed)
    rows[:, given] = kept


def shrink_to_measured(
    domain: Domain, means: Sequence[Array], watched: Sequence[Clique], targets: Sequence[Target]
) -> None:
    """Average the chains' mean marginals with the noisy ones by their precisions, in place.

    A cell's mean over the chains is taken to have the variance of a sample of as many rows, with at
    least half a row in each cell: over several sweeps this is on the safe side. Sums of marginals
    are not held, which would lose most of the gain. Cells of one group of codes, and of one cell of
    a combination inside a watched marginal, move together; small combinations come first.
    """
    holding: dict[Clique, list[int]] = {}
    for k, clique in enumerate(watched):
        for inside in subsets(clique):
            if len(inside) > 1 or inside == clique:
                holding.setdefault(inside, []).append(k)
    for target in sorted(targets, key=lambda target: len(target.clique)):
        columns = domain.columns(target.clique)
        for k in holding.get(columns, ()):
            mean = means[k]
            beyond = tuple(axis for axis, i in enumerate(watched[k]) if i not in columns)
            known = domain.summed(mean.sum(axis=beyond), columns, target.clique)
            variance = np.maximum(known, 0.5)
            change = variance / (variance + target.noise_std**2) * (target.counts - known)
            if watched[k] == target.clique:
                mean += change
                continue
            floored = mean + np.float32(1e-6)
            whole = domain.summed(floored.sum(axis=beyond), columns, target.clique)
            part = domain.repeated(change / whole, target.clique, columns)
            mean += floored * np.expand_dims(part, beyond)
