"""From a residual model and the measured cliques to coded rows: fit, draw, refine.

A log-linear model is fitted to the noisy marginals by Gibbs chains, whose state is a table of a
fixed number of rows. The chains then go on, and each of their states is a page of the synthetic
table, so that a table of any length takes one sweep per row and the memory of a few pages. In each
page single values move until the marginals of all pages so far agree with their targets; what
one page leaves is a target of the next.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import (
    Rows,
    build_adjacency,
    count_rows,
    downward_closure,
    find_cell,
    maximal_cliques,
    outermost_cliques,
)
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.chains import (
    Array,
    Chains,
    FitSettings,
    begin_chains,
    fit_weights,
    shrink_to_measured,
)
from adaptive_qs.generate.exact import ExactChains, can_fit, fit_exactly
from adaptive_qs.generate.shape import find_shapes, hold_singles
from adaptive_qs.generate.structure import CoarseDomain, cliques_of_fit, find_components
from adaptive_qs.generate.targets import (
    coarser_targets,
    denoise_model,
    filled_pairs,
    find_misfit,
    make_fit_targets,
    single_targets,
)
from adaptive_qs.generate.zeros import Guard, Zeros, allowed_cells, clear_forbidden, ruled_model
from adaptive_qs.machine import PhaseProgress, StepProgress, njit, over_items
from adaptive_qs.residual import ReferenceModel

PAGE_CODES = 2**22
"""Number of codes in a page, if the table has enough rows."""
LEAST_COMPLETED = 160
"""Fewest measured pairs from which others are completed, since a tenth of them tests the model."""
LEAST_DRAWN = 64
"""Fewer rows are a random part of this many. The counts nearest to the targets of one row would be
one of the most frequent cells."""


@dataclass(frozen=True)
class SynthesisSettings:
    """Limits of the fit and the refinement.

    Attributes:
        fit_rows: rows of the chains, unless these would take more than ``most_steps``.
        least_rows: fewest rows of the chains, whatever steps these take.
        most_steps: most inner steps of all sweeps together.
        refine_passes: proposals for each value in the refinement.
        watched_cells: most cells of all marginals that the refinement watches.
        watched_counts: most increments (one for each row and marginal) of counting these.
        exact_cells: most cells of a domain that is fitted cell by cell, without chains.
    """

    fit: FitSettings = field(default_factory=FitSettings)
    fit_rows: int = 50_000
    least_rows: int = 1_000
    most_steps: int = 10**11
    refine_passes: int = 3
    watched_cells: int = 2**26
    watched_counts: int = 100_000_000
    exact_cells: int = 2**18


def synthesize_rows(
    residuals: ReferenceModel,
    measured: Iterable[Clique],
    workload: Sequence[Clique] | Mapping[Clique, float],
    num_rows: int,
    seed: int,
    settings: SynthesisSettings | None = None,
    workers: int = 1,
    progress: PhaseProgress | None = None,
    zeros: Zeros = (),
) -> Iterator[Rows]:
    """Yield pages of codes, shape (rows, attributes), whose marginals match the noisy ones.

    Arguments are those of :func:`fit_model`; ``progress`` also gets the phase.
    """
    settings = settings or SynthesisSettings()
    fitting = progress and partial(progress, "fit")
    drawing = progress and partial(progress, "draw")
    fitted = fit_model(
        residuals, measured, workload, num_rows, seed, settings, workers, fitting, zeros=zeros
    )  # fmt: skip
    means = [fitted.means[c] for c in fitted.watched]
    watch = MarginalTracker(residuals.domain, fitted.watched, means, zeros)
    passes = settings.refine_passes
    yield from draw_pages(fitted.chains, watch, num_rows, passes, workers, drawing)


@dataclass(frozen=True)
class Fitted:
    """A model that was fitted to released marginals.

    Attributes:
        chains: rows that follow it, and later states of them.
        means: its marginals (rows, as many as the chains have), by clique.
        watched: the cliques among them that a table is brought to.
    """

    chains: Chains | ExactChains
    means: Mapping[Clique, Array]
    watched: tuple[Clique, ...]

    def marginal(self, clique: Clique) -> NDArray[np.float64]:
        """Return the marginal of a clique inside one of ``means``, as shares of the rows."""
        holding = [c for c in self.means if set(c).issuperset(clique)]
        if not holding:
            raise KeyError("this marginal was not requested when the model was fitted")
        source = min(holding, key=lambda c: (self.means[c].size, c))
        beyond = tuple(axis for axis, i in enumerate(source) if i not in clique)
        counts = self.means[source].astype(np.float64).sum(axis=beyond)
        return counts / counts.sum()


def fit_model(
    residuals: ReferenceModel,
    measured: Iterable[Clique],
    workload: Sequence[Clique] | Mapping[Clique, float],
    num_rows: int,
    seed: int,
    settings: SynthesisSettings,
    workers: int = 1,
    progress: StepProgress | None = None,
    requested: Iterable[Clique] = (),
    zeros: Zeros = (),
    kept: Iterable[int] = (),
) -> Fitted:
    """Fit a log-linear model to noisy marginals: cell by cell in a small domain, else by chains.

    Args:
        residuals: the noisy estimates.
        measured: cliques that were measured.
        workload: cliques in which the table should be best, with weights if these differ.
        num_rows: rows to draw, at least 1.
        seed: the same seed and inputs give the same model, for any number of workers.
        settings: limits on time and memory.
        workers: threads.
        progress: called after each step of the fit.
        requested: other cliques whose marginals are computed; the rows do not depend on them.
        zeros: cells without probability.
        kept: attributes whose codes are kept apart, even if no marginal distinguishes them.
    """
    domain, rng = residuals.domain, np.random.default_rng(seed)
    joint = tuple(dict.fromkeys(c for c in measured if len(c) > 1))
    filled = filled_pairs(residuals, joint)
    weighed, refined = cliques_of_fit(domain, joint, workload)
    cliques = (*weighed, *filled, *refined)
    outer = outermost_cliques(domain, joint)
    combined = tuple(dict.fromkeys(map(domain.columns, cliques)))
    singles = [clear_forbidden(target, zeros, domain) for target in single_targets(residuals)]
    denoised = denoise_model(residuals, singles)
    cells = {c: allowed_cells(zeros, domain, c) for c in (*cliques, *joint)}
    every = make_fit_targets(denoised, cells, weighed)
    misfit = find_misfit(denoised, residuals.copula, [every[c] for c in joint])
    every |= {c: every[c].times(ratio, misfit) for c, ratio in filled.items()}
    every |= {c: replace(every[c], parts=parts) for c, parts in refined.items()}
    tied = {i for zero in zeros for i in zero.clique}
    shapes = find_shapes(domain, [every[c] for c in weighed], singles)
    apart = {*kept, *tied, *(shaped := domain.columns(tuple(shapes)))}
    unruled = (c for c in weighed if cells[c] is None)
    leveled, coarser = coarser_targets(denoised, unruled, singles)
    coarser = {c: target for c, target in coarser.items() if c not in every}
    every |= coarser
    coarse = CoarseDomain(leveled, [*every], [single.counts for single in singles], apart)
    size = choose_fit_rows(coarse.domain, combined, settings)
    known = [*map(domain.columns, outer), *filled]
    watched = watch_list(domain, [*workload], known, size, settings)
    listed = tuple(dict.fromkeys([*watched, *requested]))
    if can_fit(domain, outer, settings.exact_cells):
        model = ruled_model(denoised, zeros)
        fit = fit_exactly(model, outer, [t.counts for t in singles], progress, zeros)
        if fit.gap <= 3.0:  # with hardly any noise, or many rows in zeros, chains come nearer
            exact = ExactChains(fit, min(size, max(num_rows, LEAST_DRAWN)), rng)
            return Fitted(exact, dict(zip(listed, exact.marginals(listed))), watched)
    factor = size / max(residuals.total, 1.0)
    every = {c: coarse.target(target.scaled(factor)) for c, target in every.items()}
    targets = [every[c] for c in (*cliques, *coarser)]
    singles = [coarse.target(single.scaled(factor)) for single in singles]
    rows, held = np.empty((size, len(domain)), dtype=np.int32), coarse.shapes(shapes)
    chances = (targets, singles, coarse, zeros, rows, seed, settings.fit, rng, workers)
    chains, followed = begin_chains(*chances, shapes=held), [*map(coarse.clique, coarser)]
    targets += singles
    means = fit_weights(chains, targets, listed, settings.fit, workers, progress, followed)
    if len(pairs := [c for c in joint if len(c) == 2]) >= LEAST_COMPLETED:
        from adaptive_qs.generate.low_rank import completed_pairs  # few tables need it

        for completed in completed_pairs(denoised, pairs, listed):
            target = clear_forbidden(completed, zeros, domain)
            every[target.clique] = coarse.target(target.scaled(factor))
    shrink_to_measured(coarse.domain, means, listed, [*every.values(), *singles])
    hold_singles(means, listed, singles, shaped)
    codes = map(coarse.marginal_of_codes, means, listed)
    return Fitted(chains, dict(zip(listed, codes)), watched)


def choose_fit_rows(domain: Domain, cliques: Sequence[Clique], settings: SynthesisSettings) -> int:
    """Return the number of rows of the chains, within the limit on work.

    Sweeping one row takes n_i steps for each attribute, and again for each clique around it, with
    16 steps to find the clique's weights.
    """
    around = (16 * len(c) + sum(domain.shape(c)) for c in cliques)
    steps = sum(domain.sizes) + sum(around)
    affordable = settings.most_steps // (steps * settings.fit.sweeps)
    return max(min(settings.fit_rows, affordable), settings.least_rows)


def watch_list(
    domain: Domain,
    workload: Sequence[Clique],
    measured: Sequence[Clique],
    num_rows: int,
    settings: SynthesisSettings,
) -> tuple[Clique, ...]:
    """Return the workload's cliques, or projections of them within the limits.

    The projections have the highest number of attributes whose marginals fit the limits. If not
    even pairs fit, the measured cliques come first, then as many pairs as fit.
    """
    most = max(settings.watched_counts // num_rows, 1)
    closure = downward_closure(workload)
    for degree in range(max(len(c) for c in workload), 1, -1):
        projections = [c for c in closure if len(c) <= degree]
        watched = maximal_cliques([*measured, *projections])
        if len(watched) <= most and sum(map(domain.size, watched)) <= settings.watched_cells:
            return watched
    pairs = [c for c in closure if 1 <= len(c) <= 2]
    pairs.sort(key=lambda c: (c[-1] - c[0], c))  # neighbours first: every attribute gets its share
    chosen: list[Clique] = []
    cells = 0
    for clique in dict.fromkeys([*measured, *pairs]):
        cells += domain.size(clique)
        if len(chosen) == most or cells > settings.watched_cells:
            break
        chosen.append(clique)
    return tuple(chosen)


# Pages: the chains go on, and each of their states becomes a part of the table.


@dataclass
class Page:
    """Rows that are refined.

    Attributes:
        rows: states of some chains.
        proposals: later states of the same chains.
        share: share of the target marginals that the page should have.
        excess: counts above the targets, of all pages so far.
    """

    rows: Rows
    proposals: Sequence[Rows]
    share: float
    excess: Array
    rng: np.random.Generator


class MarginalTracker:
    """The marginals that a table is brought to; ``adjacency`` locates cells in their excess."""

    def __init__(
        self, domain: Domain, cliques: Sequence[Clique], means: Sequence[Array], zeros: Zeros = ()
    ) -> None:
        self._domain = domain
        self._guard = None
        if zeros:  # otherwise the code for them is not compiled
            guard = Guard.from_zeros(zeros, domain)
            blocks = [one.clique for one in find_components(zeros) if one.is_block]
            ends = np.cumsum([0, *map(len, blocks)])
            members = np.array([i for block in blocks for i in block], dtype=np.int64)
            self._guard = guard.adjacency[:5], guard.allowed, guard.pairs, (ends, members)
        self._targets = dict(zip(cliques, means))
        self.adjacency = build_adjacency(domain, cliques, copy_per_axis=False)

    def add(self, excess: Array, rows: Rows, share: float) -> None:
        """Add the counts of rows above ``share`` of the target marginals to an excess, in place."""
        by_column = np.asfortranarray(rows)
        for position, (clique, mean) in zip(self.adjacency.position, self._targets.items()):
            difference = count_rows(by_column, self._domain, clique) - share * mean
            excess[position : position + mean.size] += difference.ravel().astype(np.float32)

    def refine(self, page: Page) -> None:
        """Replace values of a page by proposed ones wherever Σ|excess| falls, in place."""
        self.add(page.excess, page.rows, page.share)
        for proposals in page.proposals:
            row_order = page.rng.permutation(len(page.rows))
            attribute_order = page.rng.permutation(page.rows.shape[1])
            _descend(
                page.rows, proposals, row_order, attribute_order, page.excess, self.adjacency[:5],
                self._guard,
            )  # fmt: skip


class States(Protocol):
    """Rows that follow a model, and later states of them."""

    rows: Rows
    rng: np.random.Generator

    def advance(self, times: int = 1) -> Rows:
        """Return the next states, one below the other, in a new array."""


def draw_pages(
    chains: States,
    watch: MarginalTracker,
    num_rows: int,
    passes: int,
    workers: int,
    progress: StepProgress | None = None,
    pick: Callable[[int, int], NDArray[np.intp]] | None = None,
) -> Iterator[Rows]:
    """Yield the states of the chains as pages of a table, each refined.

    A page has as many states as make ``PAGE_CODES``. Values of the next states are proposed, so
    that a page takes one sweep for any number of passes. While a page is refined, the chains move.

    ``watch`` has the marginals of ``len(chains.rows)`` rows. Each value has some ``passes``, one in
    tables of more than 2**19 rows. ``pick`` returns which rows a page takes, given their number and
    that of the rows of its states; by default random ones. Pages have about the same length.
    """
    if num_rows < LEAST_DRAWN and not pick:
        for rows in draw_pages(chains, watch, LEAST_DRAWN, passes, workers, progress):
            yield rows[chains.rng.permutation(LEAST_DRAWN)[:num_rows]]
        return
    stacked = -(-min(num_rows, PAGE_CODES // chains.rows.shape[1]) // len(chains.rows))
    stacked = max(stacked, 1)
    size = stacked * len(chains.rows)
    pages = -(-num_rows // size)
    ends = [num_rows * number // pages for number in range(pages + 1)]
    passes = passes if num_rows <= 2**19 else min(passes, 1)
    states = deque(chains.advance(stacked) for _ in range(passes + 1))
    excess = np.zeros(watch.adjacency.cells, dtype=np.float32)
    for number in range(pages):
        taken = ends[number + 1] - ends[number]
        chosen = pick(taken, size) if pick else chains.rng.permutation(size)[:taken]
        rng = np.random.default_rng(int(chains.rng.integers(2**63)))
        rows, proposals = states.popleft()[chosen], [state[chosen] for state in states]
        page = Page(rows, proposals, taken / len(chains.rows), excess, rng)
        tasks: list[Callable[[], None]] = [partial(watch.refine, page)]
        if number < pages - 1:
            tasks.append(lambda: states.append(chains.advance(stacked)))
        over_items(workers, lambda task: task(), tasks)
        yield page.rows
        if progress:
            progress(number + 1, pages)


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _forbids(guard, rows, r, i, value):  # type: ignore[no-untyped-def]
    (start, offset, other, stride, own_stride), allowed, _, _ = guard
    for e in range(start[i], start[i + 1]):
        cell = find_cell(rows, r, e, offset, other, stride)
        if not allowed[cell + np.uint64(value) * np.uint64(own_stride[e])]:
            return True
    return False


@njit(cache=True, nogil=True)
def _descend(rows, proposals, row_order, attribute_order, excess, a, guard):  # type: ignore[no-untyped-def]
    start, offset, other, stride, own_stride = a
    leave, enter = np.empty((2, start[-1]), dtype=np.uint64)
    if guard is not None:
        rank, state = np.full(rows.shape[1], -1), np.empty(rows.shape[1], dtype=rows.dtype)
        pair = np.empty(2, dtype=np.int64)
    for r in row_order:
        if guard is not None:
            _move_blocks(rows, r, proposals, excess, a, guard[3], leave, enter, rank, state)
        for i in attribute_order:
            old, new = rows[r, i], proposals[r, i]
            if old == new:
                continue
            if guard is not None:  # noqa: SIM102  (decided at compilation if it stands alone)
                if _forbids(guard, rows, r, i, new):
                    continue
            for e in range(start[i], start[i + 1]):
                cell = find_cell(rows, r, e, offset, other, stride)
                own, at = np.uint64(own_stride[e]), np.uint64(e - start[i])
                leave[at], enter[at] = cell + np.uint64(old) * own, cell + np.uint64(new) * own
            if _improve(excess, leave, enter, start[i + 1] - start[i]):
                rows[r, i] = new
        if guard is not None:
            _move_pairs(rows, r, proposals, excess, a, guard, leave, enter, rank, state, pair)


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _move_blocks(rows, r, proposals, excess, a, blocks, leave, enter, rank, state):  # type: ignore[no-untyped-def]
    start, members = blocks
    for b in range(start.size - 1):  # whole components, so that no zero is broken
        block, changed = members[start[b] : start[b + 1]], 0
        for i in block:
            state[i] = proposals[r, i]
            changed += rows[r, i] != state[i]
        if changed > 1:  # one alone is tried as others are
            number = _exchange(rows, r, block, state, rank, a, leave, enter)
            if not _improve(excess, leave, enter, number):
                for i in block:
                    rows[r, i] = state[i]


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _move_pairs(rows, r, proposals, excess, a, guard, leave, enter, rank, state, pair):  # type: ignore[no-untyped-def]
    first, second, joined, beyond, step, base, _, begin, values, _ = guard[2]
    for p in range(first.size):
        i, t = first[p], second[p]
        pair[0], pair[1] = i, t
        new = proposals[r, i]
        listed = base[p] + new * step[p]
        for k in range(joined.shape[1]):
            listed += rows[r, joined[p, k]] * beyond[p, k]
        if rows[r, i] == new or begin[listed] == begin[listed + 1]:
            continue
        state[i], state[t] = new, values[(begin[listed] + begin[listed + 1]) // 2]
        for q in range(begin[listed], begin[listed + 1]):
            if values[q] == proposals[r, t]:
                state[t] = values[q]
        number = _exchange(rows, r, pair, state, rank, a, leave, enter)
        if (
            _forbids(guard, rows, r, i, rows[r, i])
            or _forbids(guard, rows, r, t, rows[r, t])
            or not _improve(excess, leave, enter, number)
        ):
            rows[r, i], rows[r, t] = state[i], state[t]


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _improve(excess, leave, enter, number):  # type: ignore[no-untyped-def]
    """Move a row from some cells to others, in place, if Σ|excess| falls; return whether it did."""
    change = 0.0
    for e in range(np.uint64(number)):
        if leave[e] != enter[e]:
            x, y = excess[leave[e]], excess[enter[e]]
            change += abs(x - 1.0) - abs(x) + abs(y + 1.0) - abs(y)
    if not change < 0.0:
        return False
    for e in range(np.uint64(number)):
        excess[leave[e]] -= 1.0
        excess[enter[e]] += 1.0
    return True


@njit(cache=True, nogil=True, no_cpython_wrapper=True, forceinline=True)
def _exchange(rows, r, members, state, rank, adjacency, leave, enter):  # type: ignore[no-untyped-def]
    """Exchange the values of some attributes between a row and ``state``, in place.

    Write the cells of the row before and after, in all tables around attributes that change, and
    return their number. A table around several of them counts at the first. All of ``rank`` is -1,
    before and after.
    """
    start, offset, other, stride, own_stride = adjacency
    number = 0
    for position, i in enumerate(members):
        if rows[r, i] != state[i]:
            rank[i] = position
    for after in range(2):
        number, cells = 0, enter if after else leave
        for own in members:
            for e in range(start[own], start[own + 1] if rank[own] >= 0 else start[own]):
                cell, again = offset[e] + rows[r, own] * own_stride[e], False
                for k in range(other.shape[1]):
                    cell += rows[r, other[e, k]] * stride[e, k]
                    again = again or (stride[e, k] > 0 and -1 < rank[other[e, k]] < rank[own])
                if not again:
                    cells[number] = cell
                    number += 1
        for i in members:
            if not after:
                rows[r, i], state[i] = state[i], rows[r, i]
    for i in members:
        rank[i] = -1
    return number
