"""A test whether drawn rows have the measured marginals, and their repair.

Each cell of each measured marginal is compared with the counts of the rows, in standard errors:
the noise of the measurement and the chance of drawing rows both count. All of it follows from
released values and costs nothing.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Array, Rows, count_rows, outermost_cliques
from adaptive_qs.domain import Clique
from adaptive_qs.generate.rows import SynthesisSettings, choose_fit_rows
from adaptive_qs.generate.targets import make_target, single_target
from adaptive_qs.generate.zeros import Zeros, allowed_cells, clear_forbidden
from adaptive_qs.residual import ReferenceModel, is_measured, measured_variance

# What chance allows. A cell is measured as m = T + e, with Gaussian noise e of variance s² on the
# true count T. Tables have no negative counts, so rows follow a projection of m. The projection of
# a whole marginal onto non-negative tables of its total subtracts one number from all cells and
# sets those below 0 to 0; that number is at most max e, so no cell moves by more than the largest
# noise does, but all move to the same side. Neither this shift nor the denoising of a column is an
# error of drawing. So a count is compared with the interval from the measured to the projected
# value, and a gap is how far it lies outside, in standard errors √(s² + d²).
#
# d² is the variance of drawing. Rows are drawn and then refined, which brings them closer: a
# Poisson count λ bounds both. It exceeds its mean by x with a chance of at most exp(−x²/2(λ + x))
# and falls short of it with exp(−x²/2λ) (Chernoff), so with d² the larger one of the count and the
# value that it is compared with, a gap of z has a chance of at most 2·exp(−z²/2), as for Gaussian
# noise. A model that was fitted by fewer rows than the table has d² of that number of rows.
#
# Chances are added up (Bonferroni): half of ``CHANCE`` over the cells of single columns, half over
# those of all other marginals, and of the pages of a table the k-th gets 1/k(k + 1) of it. A column
# or marginal as a whole is tested by the sum of the squared gaps of its cells (chi-square; Laurent
# and Massart 2000, Lemma 1).
#
# Rows that are further off are repaired. First values are exchanged between similar rows, which
# changes few other marginals. What is still off is repaired with weights that bring the marginals
# in question to the nearest end of their intervals (raking): rows are dropped or repeated. The
# distribution of the other attributes given these marginals stays as it is.


CHANCE = 1e-3
"""Probability that any cell of a table that follows the measured marginals is reported."""
CLEAR = 4.0, 3.0, 2.0, 2.0
"""Standard errors from which a cell has too many rows for an exchange of values, in each round."""
COMPARED = 2_000
"""Rows among which the most similar is chosen for an exchange of values."""
MOST_EXCHANGED = 0.25
"""Part of the rows after which exchanges end, since raking takes less time."""
KEPT_CELLS = 2**20
"""Most cells of marginals for which expected counts are kept from page to page."""


@dataclass(frozen=True)
class Gap:
    """A cell of a marginal in which drawn rows are further off than chance allows.

    Attributes:
        clique: of the marginal, at the measured levels.
        cell: position of the worst cell on each of its axes.
        measured: the released count (rows).
        drawn: the count of a table with as many rows as the release.
        errors: their difference, in standard errors.
    """

    clique: Clique
    cell: tuple[int, ...]
    measured: float
    drawn: float
    errors: float


class _Known(NamedTuple):
    """What released values say of a marginal: arrays shaped like it (rows).

    Cells that are not ``allowed`` have no rows. The measured counts, their projection, and the ends
    of the intervals for counts are known.
    """

    allowed: NDArray[np.bool_] | None
    measured: Array
    projected: Array
    low: Array
    high: Array


class Check:
    """The marginals that drawn rows are compared with.

    Args:
        model: the released estimates.
        measured: cliques that were measured.
        zeros: cells without rows.
        selected: attributes by which rows are chosen. Only marginals that contain all of them
            describe the other attributes of such rows.
        given: attributes whose values are given; the others are compared given these.
        settings: how rows are made.
    """

    def __init__(
        self,
        model: ReferenceModel,
        measured: Iterable[Clique],
        zeros: Zeros = (),
        selected: Iterable[int] = (),
        given: Iterable[int] = (),
        settings: SynthesisSettings | None = None,
    ) -> None:
        domain, several = model.domain, outermost_cliques(model.domain, measured)
        cliques = dict.fromkeys([*((i,) for i in range(len(domain))), *several])
        chosen = set(selected)
        self.domain = domain
        self._model, self._zeros, self._fixed = model, zeros, {*chosen, *given}
        self._cliques = [
            clique
            for clique in cliques
            if is_measured(model.estimates, clique, domain)
            and chosen.issubset(clique)
            and not self._fixed.issuperset(domain.columns(clique))
        ]
        combined = tuple(dict.fromkeys(domain.columns(c) for c in several if len(c) > 1))
        self._fit_rows = choose_fit_rows(domain, combined, settings or SynthesisSettings())
        self._known: dict[Clique, _Known] = {}
        self._room = KEPT_CELLS

    def repaired(self, rows: Rows, page: int, seed: int) -> tuple[Rows, list[Gap]]:
        """Repair counts that deviate more than chance allows; return the rows and what remains.

        The rows are codes of a page of a table, numbered from 1. Each keeps its selected and given
        attributes. The seed decides which rows are exchanged, dropped and repeated.
        """
        gaps, weights = self.gaps(rows, page), np.ones(len(rows))
        rng = np.random.default_rng((seed, page, 1))
        for clear in CLEAR:
            if not gaps:
                break
            exchanged = self._exchanged(rows, gaps, clear, rng)
            left = self.gaps(exchanged, page)
            if _sum_errors(left) < _sum_errors(gaps):
                rows, gaps = exchanged, left
        found = rows
        fixed = rows[:, sorted(self._fixed)]
        for clear in (*CLEAR, 0.0, 0.0, 0.0, 0.0):
            if not gaps:
                break
            for gap in gaps:
                errors, _, drawn, nearest = self._compare(rows, gap.clique, weights)
                off = (errors > clear) & (drawn > 0)
                ratios = np.divide(nearest, drawn, out=np.ones_like(drawn), where=off)
                weights *= ratios.ravel()[self._cells(rows, gap.clique)]
            np.clip(weights, 0.0, 2.0, out=weights)  # few rows do not stand for many
            better = rows[_pick_alike(fixed, weights, np.random.default_rng((seed, page)))]
            left = self.gaps(better, page)
            if _sum_errors(left) < _sum_errors(gaps):
                found, gaps = better, left
        return found, gaps

    def _exchanged(
        self, rows: Rows, gaps: Iterable[Gap], clear: float, rng: np.random.Generator
    ) -> Rows:
        """Return rows with exchanged values, which bring the marginals of the gaps nearer.

        A row of a cell with ``clear`` standard errors too many exchanges its value with a row of
        another cell. So single columns stay as they are. Given and selected columns and columns
        with zeros do not change.
        """
        rows, kept = rows.copy(), self._fixed.union(*(zero.clique for zero in self._zeros))
        left = MOST_EXCHANGED * len(rows)
        for clique in (gap.clique for gap in gaps if len(gap.clique) > 1):
            for axis, column in enumerate(self.domain.columns(clique)):
                if column in kept or left <= 0:
                    continue
                errors, _, drawn, nearest = self._compare(rows, clique)
                more = np.rint((drawn - nearest) * len(rows) / max(drawn.sum(), 1e-300))
                over = np.where(errors > clear, np.maximum(more, 0), 0).astype(int)
                both = (np.moveaxis(part, axis, -1) for part in (over, np.maximum(-more, 0)))
                over, under = (part.reshape(-1, part.shape[-1]).astype(int) for part in both)
                left -= over.sum()
                own = self._cells(rows, (clique[axis],))
                others = self._cells(rows, clique[:axis] + clique[axis + 1 :])
                for group in np.flatnonzero(over.any(axis=1)):
                    inside = others == group
                    _exchange(rows, column, own, inside, over[group], under[group], rng)
        return rows

    def gaps(self, rows: Rows, page: int = 1) -> list[Gap]:
        """Return the worst cell of each marginal that is further off than chance allows.

        Single columns come first, then others, the worst of them first.
        """
        found, rows = [], np.asfortranarray(rows)
        chance = CHANCE / 2 / (page * (page + 1))
        for single in (True, False):
            cliques = [c for c in self._cliques if (len(c) == 1) == single]
            cells = sum(map(self.domain.size, cliques))
            for clique in cliques:
                gaps, measured, drawn, _ = self._compare(rows, clique)
                cell = np.unravel_index(int(gaps.argmax()), gaps.shape)
                tail = math.log(len(cliques) / chance)
                least = gaps.size + 2 * math.sqrt(gaps.size * tail) + 2 * tail
                far = gaps[cell] > math.sqrt(2 * math.log(2 * cells / chance))
                if far or np.square(gaps).sum() > least:
                    numbers = (float(array[cell]) for array in (measured, drawn, gaps))
                    found.append(Gap(clique, tuple(map(int, cell)), *numbers))
        return sorted(found, key=lambda gap: (len(gap.clique) > 1, -gap.errors))

    def _compare(
        self, rows: Rows, clique: Clique, copies: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return gaps, measured and (weighted) drawn counts, and the nearest that chance allows."""
        model, columns = self._model, self.domain.columns(clique)
        known = self._known.get(clique) or self._find(clique)
        own = tuple(axis for axis, i in enumerate(columns) if i not in self._fixed)
        counts = self._count(rows, clique, copies)
        totals = known.projected.sum(axis=own, keepdims=True)
        numbers = counts.sum(axis=own, keepdims=True)
        weights = totals / np.maximum(numbers, 1)
        drawn = counts * weights
        # Each row of a model that was fitted by fewer rows stands for several.
        weights = weights * max(1.0, len(rows) / self._fit_rows)
        count = np.maximum(np.maximum(drawn, known.high), weights)
        most = np.maximum(np.maximum(totals, weights), 1e-300)
        others = 1 - np.minimum(count / most, 1)
        variance = measured_variance(model, clique) + weights * np.maximum(count * others, weights)
        fixed = tuple(level for level, i in zip(clique, columns) if i in self._fixed)
        if fixed:
            noise = np.expand_dims(measured_variance(model, fixed), own)
            variance = variance + np.square(drawn / np.maximum(totals, 1e-300)) * noise
        nearest = np.clip(drawn, np.maximum(known.low, 0.0), known.high)
        tested = (numbers > 0) if known.allowed is None else (numbers > 0) & known.allowed
        gaps = np.where(tested, np.abs(drawn - nearest) / np.sqrt(variance), 0.0)
        return gaps, known.measured, drawn, nearest

    def _find(self, clique: Clique) -> _Known:
        """Return what is known of a marginal, which is kept for other pages if there is room."""
        model, domain, columns = self._model, self.domain, self.domain.columns(clique)
        allowed = allowed_cells(self._zeros, domain, columns)
        if columns != clique and allowed is not None:
            allowed = domain.summed(allowed.astype(int), columns, clique) > 0
        measured, projected = model.marginal(clique), make_target(model, clique, allowed).counts
        likely = projected
        if len(clique) == 1:
            likely = clear_forbidden(single_target(model, clique[0]), self._zeros, domain).counts
        low, high = np.minimum(measured, projected), np.maximum(measured, projected)
        low, high = np.minimum(low, likely), np.maximum(high, likely)
        known = _Known(allowed, measured, projected, low, high)
        self._room -= measured.size
        if self._room >= 0:
            self._known[clique] = known
        return known

    def _count(self, rows: Rows, clique: Clique, copies: Array | None) -> Array:
        domain, columns = self.domain, self.domain.columns(clique)
        if copies is None and domain.size(columns) <= len(rows):
            return domain.summed(count_rows(rows, domain, columns), columns, clique)
        counts = np.bincount(self._cells(rows, clique), copies, domain.size(clique))
        return counts.reshape(domain.shape(clique)).astype(np.float64)

    def _cells(self, rows: Rows, clique: Clique) -> NDArray[np.int64]:
        cells: Any = np.zeros(len(rows), np.int64)
        for position, size in zip(clique, self.domain.shape(clique)):
            (column,) = self.domain.columns((position,))
            codes = rows[:, column]
            cells *= size
            cells += codes if position == column else self.domain.groups(column, position).of[codes]
        return np.asarray(cells)


def _sum_errors(gaps: Iterable[Gap]) -> float:
    return sum(gap.errors for gap in gaps)


def _exchange(
    rows: Rows,
    column: int,
    own: NDArray[np.int64],
    inside: NDArray[np.bool_],
    over: NDArray[np.int64],
    under: NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """Exchange values of a column between rows of a group and other rows, in place.

    Args:
        rows: the codes.
        column: whose values are exchanged.
        own: the level of the column in each row; it changes with the rows.
        inside: whether a row is in the group.
        over: for each level, the number of rows of the group that lose it.
        under: for each level, the number of rows of the group that get it.
        rng: chooses the rows, and ``COMPARED`` other rows with the level that is needed. The one
            that agrees with the row in most columns becomes its partner.
    """
    leaving = [
        rng.permutation(np.flatnonzero(inside & (own == level)))[:number]
        for level, number in enumerate(over)
    ]
    missing = np.repeat(np.arange(under.size), under)
    partners: dict[int, NDArray[np.intp]] = {}
    for row, level in zip(rng.permutation(np.concatenate(leaving)), rng.permutation(missing)):
        if level not in partners:
            partners[level] = rng.permutation(np.flatnonzero(~inside & (own == level)))[:COMPARED]
        if partners[level].size:
            place = (rows[partners[level]] == rows[row]).sum(axis=1).argmax()
            both = [row, partners[level][place]]
            rows[both, column], own[both] = rows[both[::-1], column], own[both[::-1]]
            partners[level] = np.delete(partners[level], place)


def _pick(weights: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return as many rows as there are weights, in proportion to these, in a random order.

    Each row comes within one as often as its weight says, and so do all of one weight together. All
    rows come once if no weight is positive.
    """
    order = rng.permutation(weights.size)
    if not weights.any():
        return order
    order = order[np.argsort(weights[order], kind="stable")]
    sums = np.cumsum(weights[order])
    sums *= weights.size / sums[-1]
    sums[-1] = weights.size
    copies = np.diff(np.floor(sums + rng.random()), prepend=0.0).astype(np.intp)
    return rng.permutation(np.repeat(order, copies))


def _pick_alike(fixed: Rows, weights: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return a row for each row that has the same fixed attributes; see :func:`_pick`."""
    if not fixed.shape[1]:
        return _pick(weights, rng)
    kinds = np.unique(fixed, axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(kinds, kind="stable")
    found = np.arange(len(weights))
    for alike in np.split(order, np.cumsum(np.bincount(kinds))[:-1]):
        own = weights[alike]
        if own.sum() > 0 and np.ptp(own) > 0:
            found[alike] = alike[_pick(own, rng)]
    return found


class CheckedPages:
    """Pages of a table that are checked and repaired when drawn; ``gaps`` has what remains."""

    def __init__(self, pages: Iterable[Rows], check: Check, seed: int) -> None:
        self.check = check
        self.gaps: dict[Clique, Gap] = {}
        self._pages, self._seed = pages, seed

    def __iter__(self) -> Iterator[Rows]:
        for number, page in enumerate(self._pages, 1):
            rows, gaps = self.check.repaired(page, number, self._seed)
            self._note(gaps)
            yield rows

    def check_written(self, rows: Rows, number: int) -> None:
        """Check a page of which some codes were replaced after it was drawn."""
        self._note(self.check.gaps(rows, number))

    def _note(self, gaps: Iterable[Gap]) -> None:
        for gap in gaps:
            worst = self.gaps.get(gap.clique, gap)
            self.gaps[gap.clique] = max(gap, worst, key=lambda each: each.errors)
