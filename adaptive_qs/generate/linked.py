"""Rows given something: children given the columns of their parents, and rows given a condition.

A log-linear model of the other attributes, given those of the parents,

    p(children's x | given g) ∝ Π_i u_i(x_i) Π_γ w_γ(x_γ, g_γ),

is fitted to the noisy marginals by chains in which the given attributes of each row stay as they
are (:mod:`adaptive_qs.generate.chains`). No weights are spent on how parents' columns depend on
each other: the rows have that from the parents' own table. So every link is exact, and marginals
over columns of both tables are the model's.

A noisy marginal over given columns and others is aimed at as a conditional distribution: it is
scaled to the given rows, whose own marginal is known without noise.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Rows, count_rows, outermost_cliques
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.chains import (
    Array,
    Chains,
    Chances,
    begin_chains,
    fill_rows,
    fit_weights,
    shrink_to_measured,
)
from adaptive_qs.generate.exact import ExactChains
from adaptive_qs.generate.rows import (
    PAGE_CODES,
    Fitted,
    MarginalTracker,
    SynthesisSettings,
    choose_fit_rows,
    draw_pages,
    watch_list,
)
from adaptive_qs.generate.shape import find_shapes
from adaptive_qs.generate.structure import CoarseDomain
from adaptive_qs.generate.targets import (
    denoise_model,
    filled_pairs,
    find_misfit,
    make_fit_targets,
    single_targets,
)
from adaptive_qs.generate.zeros import Zeros, allowed_cells, clear_forbidden
from adaptive_qs.machine import PhaseProgress, StepProgress
from adaptive_qs.residual import ReferenceModel

MIXING = 24
"""Moves of rows that were drawn from the tree of dependences, before they are used."""
UNSEEN = 1e-6
"""Rows that have any given codes, where none was measured that has these."""


def linked_rows(
    residuals: ReferenceModel,
    measured: Iterable[Clique],
    workload: Sequence[Clique],
    given: Rows,
    seed: int,
    settings: SynthesisSettings | None = None,
    workers: int = 1,
    progress: PhaseProgress | None = None,
    zeros: Zeros = (),
    population: Rows | None = None,
) -> Iterator[Rows]:
    """Rows that have these first columns, in this order, and marginals that match the noisy ones.

    Arguments are as for :func:`~adaptive_qs.generate.rows.synthesize_rows`. ``given`` has codes of
    the first attributes, shape (rows, some), at least one row; ``population`` has these codes of
    the rows that were measured, if the given rows were chosen by what they are. No zero contains
    given attributes. Yield codes, shape (some, attributes), one page after the other.
    """
    settings = settings or SynthesisSettings()
    fitting = progress and partial(progress, "fit")
    like = given if population is None else population
    model = _fit(residuals, measured, workload, like, seed, settings, workers, fitting, zeros)
    size = max(PAGE_CODES // len(residuals.domain), 1)
    starts = range(0, len(given), size)
    for number, start in enumerate(starts):
        yield model.page(given[start : start + size], (seed, number), population is None)
        if progress:
            progress("draw", number + 1, len(starts))


@dataclass(frozen=True)
class _Linked:
    """A model of attributes given the first ones, and the marginals ``means`` that rows get."""

    domain: Domain
    given: Clique
    chains: Chains
    singles: Sequence[NDArray[np.float64]]
    means: Mapping[Clique, Array]
    zeros: Zeros
    passes: int
    workers: int

    def page(self, given: Rows, seed: tuple[int, int], alike: bool) -> Rows:
        """Draw rows with these given codes, which are ``alike`` if not chosen by what they are."""
        rng = np.random.default_rng(seed)
        rows = np.empty((len(given), len(self.domain)), dtype=np.int32)
        rows[:, self.given] = given
        key, tree = int(rng.integers(2**63)), self.chains.proposals.nodes
        carried = self.chains.model.carried
        fill_rows(rows, tree, self.singles, self.zeros, rng, key, self.given, carried)
        chains = self.chains.with_rows(rows)
        for _ in range(MIXING):
            chains.move(thorough=True)
        wanted: list[Array] = [np.zeros_like(mean) for mean in self.means.values()]
        if alike:
            for counts, (clique, mean) in zip(wanted, self.means.items()):
                counts += as_given(mean, clique, self.given, given, self.domain)
        else:
            chains.add_marginals(wanted, tuple(self.means))
        watch = MarginalTracker(self.domain, tuple(self.means), wanted, self.zeros)
        pages = draw_pages(chains, watch, len(given), self.passes, self.workers, pick=_in_order)
        return np.concatenate(list(pages))


def _in_order(count: int, _: int) -> NDArray[np.intp]:
    """All rows, where they are: as many states are taken as there are given rows."""
    return np.arange(count)


def _fit(
    residuals: ReferenceModel,
    measured: Iterable[Clique],
    workload: Sequence[Clique],
    rows: Rows,
    seed: int,
    settings: SynthesisSettings,
    workers: int,
    progress: StepProgress | None,
    zeros: Zeros,
) -> _Linked:
    domain, rng = residuals.domain, np.random.default_rng(seed)
    given = tuple(range(rows.shape[1]))
    outer = outermost_cliques(domain, measured)
    filled = filled_pairs(residuals, outer)
    cliques = [c for c in (*outer, *filled) if _is_wanted(c, given, domain)]
    combined = tuple(dict.fromkeys(map(domain.columns, cliques)))
    singles = [clear_forbidden(target, zeros, domain) for target in single_targets(residuals)]
    denoised, tied = denoise_model(residuals, singles), {i for zero in zeros for i in zero.clique}
    cells = {c: allowed_cells(zeros, domain, c) for c in cliques}
    plain = [*make_fit_targets(denoised, cells, [c for c in cliques if c not in filled]).values()]
    shaping = [target for target in plain if target.clique not in filled]
    shapes = find_shapes(domain, shaping, singles, given)
    misfit = find_misfit(denoised, residuals.copula, shaping)
    plain = [t.times(filled[t.clique], misfit) if t.clique in filled else t for t in plain]
    apart = {*given, *tied, *domain.columns(tuple(shapes))}
    coarse = CoarseDomain(domain, cliques, [single.counts for single in singles], apart)
    size = min(choose_fit_rows(coarse.domain, combined, settings), len(rows))
    listed = watch_list(domain, workload, combined, size, settings)
    watched = tuple(c for c in listed if _is_wanted(c, given, domain))

    start = np.empty((size, len(domain)), dtype=np.int32)
    start[:, given] = chosen = rows[rng.permutation(len(rows))[:size]]
    factor = size / max(residuals.total, 1.0)
    targets = []
    for target in plain:
        target = coarse.target(target.scaled(factor))
        counts = as_given(target.counts, target.clique, given, chosen, coarse.domain)
        targets.append(replace(target, counts=counts))
    singles = [coarse.target(single.scaled(factor)) for single in singles]
    held = coarse.shapes(shapes)
    chains = begin_chains(
        targets, singles, coarse, zeros, start, seed, settings.fit, rng, workers, given, held
    )
    own = [*targets, *(single for single in singles if single.clique[0] not in given)]
    fit = replace(settings.fit, early_rows=size)  # rows stay those of their given codes
    means = fit_weights(chains, own, watched, fit, workers, progress)
    shrink_to_measured(coarse.domain, means, watched, own)
    codes = [coarse.marginal_of_codes(mean, c) for mean, c in zip(means, watched)]
    counts_of = [single.counts for single in singles]
    passes = settings.refine_passes
    return _Linked(
        domain, given, chains, counts_of, dict(zip(watched, codes)), zeros, passes, workers
    )


def _is_wanted(clique: Clique, given: Clique, domain: Domain) -> bool:
    columns = domain.columns(clique)
    return len(columns) > 1 and not set(given).issuperset(columns)


def as_given(
    counts: NDArray[np.floating], clique: Clique, given: Clique, rows: Rows, domain: Domain
) -> NDArray[np.float64]:
    """Return a marginal with the same conditional distributions and the given codes of some rows.

    Args:
        counts: non-negative, shaped like the clique.
        clique: of any levels; some of its attributes may be given.
        given: the first attributes.
        rows: their codes, shape (rows, given).
        domain: of the clique.

    Returns:
        Counts of as many rows; where given codes were never seen, those of the others follow what
        they are regardless of the given ones.
    """
    columns = domain.columns(clique)
    own = tuple(axis for axis, i in enumerate(columns) if i not in given)
    counts = np.maximum(counts, 0.0, dtype=np.float64)  # means are off by rounding
    regardless = counts.sum(
        axis=tuple(axis for axis in range(len(clique)) if axis not in own), keepdims=True
    )
    shares = counts + UNSEEN * regardless / max(float(regardless.sum()), 1e-300)
    shares = shares / np.maximum(shares.sum(axis=own, keepdims=True), 1e-300)
    fixed = tuple(i for i in columns if i in given)
    if not fixed:
        return shares * len(rows)
    levels = tuple(level for level, i in zip(clique, columns) if i in given)
    known = domain.summed(count_rows(rows, domain, fixed), fixed, levels)
    return shares * np.expand_dims(known, own)


# Rows given a condition.
#
# The requested rows are a union of boxes: sets of values, one set for each attribute. Inside a box
# the model keeps its form (the weights of single values change), so that chains can go on in it.
# The shares of several boxes say how many rows belong into each.

LEAST_ROWS = 2**13
"""Fewest rows of the chains of all boxes together."""
LEAST_OF_BOX, MOST_OF_BOX = 2**9, 2**14
"""Fewest and most rows by which the share of a box is estimated."""
MOST_BOXES = 256
"""Largest number of boxes."""


class NoRowsError(ValueError):
    """A model has no rows in any box."""


class SideBySide:
    """Chains of several boxes, as parts of one table."""

    def __init__(self, parts: Sequence[Chains | ExactChains], rng: np.random.Generator) -> None:
        self.rng = rng
        self._parts = parts
        self.rows: Rows = np.concatenate([part.rows for part in parts])

    def advance(self, times: int = 1) -> Rows:
        """Return states of all parts, one below the other, in a new array."""
        states = [part.advance(times).reshape(times, *part.rows.shape) for part in self._parts]
        return np.concatenate(states, axis=1).reshape(-1, self.rows.shape[1])


@dataclass(frozen=True)
class SelectedRows:
    """Rows of a model that meet a condition.

    Attributes:
        states: such rows.
        watch: the marginals of a table of such rows.
        share: their share among all rows of the model.
    """

    states: SideBySide
    watch: MarginalTracker
    share: float

    def draw(
        self, num_rows: int, passes: int, workers: int, progress: StepProgress | None = None
    ) -> Iterator[Rows]:
        """Yield such rows; see :func:`draw_pages`."""
        return draw_pages(self.states, self.watch, num_rows, passes, workers, progress)


def select_boxes(
    domain: Domain, fitted: Fitted, boxes: Sequence[Chances], num_rows: int, zeros: Zeros = ()
) -> SelectedRows:
    """Select the rows of a model that are in some disjoint boxes.

    Args:
        domain: the attributes.
        fitted: the model; NoRowsError if it has no rows there.
        boxes: ``MOST_BOXES`` at most.
        num_rows: rows of a table, if known.
        zeros: cells without rows; the model has none there.
    """
    chains = fitted.chains
    found = int(np.clip(len(chains.rows) // len(boxes), LEAST_OF_BOX, MOST_OF_BOX))
    rows = min(max(num_rows, LEAST_ROWS), max(len(chains.rows), LEAST_ROWS))
    inside = [chains.within(_rarest_first(fitted, box), found) for box in boxes]
    shares = np.array([share for _, share in inside])
    if not shares.sum() > 0:
        raise NoRowsError
    counts = _apportion(shares, rows, chains.rng)
    parts = [part.keep(count) for (part, _), count in zip(inside, counts) if count]
    means = [np.zeros_like(fitted.means[c], dtype=np.float32) for c in fitted.watched]
    for part in parts:
        part.add_marginals(means, fitted.watched)
    watch = MarginalTracker(domain, fitted.watched, means, zeros)
    return SelectedRows(SideBySide(parts, chains.rng), watch, float(shares.sum()))


def _rarest_first(fitted: Fitted, box: Chances) -> Chances:
    rows = fitted.chains.rows
    share = {i: float(chance[rows[:, i]].mean()) for i, chance in box.items()}
    return {i: box[i] for i in sorted(box, key=lambda i: share[i])}


def _apportion(shares: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Return whole numbers in these proportions with a given sum, each within one of its own."""
    up_to = np.cumsum(shares) / np.sum(shares) * count
    up_to[-1] = count
    return np.diff(np.floor(up_to + rng.random()), prepend=0.0).astype(int).tolist()
