"""Integer strategies, whose measurements are exact, and the strategies of single columns."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, svd

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import linear_algebra
from adaptive_qs.strategy.solution import Array, CenteringFactor, Factor, Strategy, kron
from adaptive_qs.workload.axes import Marginal
from adaptive_qs.workload.families import find_family
from adaptive_qs.workload.residuals import CenteredAxis, Subworkload, Term, decompose_workload
from adaptive_qs.workload.workload import QueryPart, QueryWorkload

Integers = NDArray[np.int64]

# A strategy matrix rounded to integers that keep what matters of it.
# Where all rows sum to zero along an axis the integers do so exactly: the estimate of a residual
# stays unbiased. Column norms that rounding pushed above the largest are trimmed back, since the
# largest is the sensitivity.
#
# Where the matrix spans less than its space (few queries), rows of small norm are added for the
# rest, so that the integers still determine its queries exactly. For more than ``MOST_COMPLETED``
# cells they are left out: estimates then are unbiased up to about 2^-bits √cells of the largest
# coefficient for every row of the table, which is why such a matrix gets more bits.


MOST_COMPLETED = 1024
"""Cells up to which a matrix that spans too little is completed."""
ZERO = 1e-9
"""Sum of a normalised row below which it is zero."""


def centered(
    matrix: Array, shape: tuple[int, ...], balanced: Sequence[bool] | None = None
) -> Array:
    """Return the rows without their means along every axis, or those balanced, (rows, Πshape)."""
    cells = matrix.reshape(-1, *shape)
    for axis, zero in enumerate(balanced or [True] * len(shape), start=1):
        if zero:
            cells = cells - cells.mean(axis=axis, keepdims=True)
    return cells.reshape(matrix.shape)


def round_matrix(
    matrix: Array, shape: tuple[int, ...], bits: int
) -> tuple[Integers, tuple[bool, ...]]:
    """Return about 2**bits times a matrix, and for each axis whether all rows sum to zero along it.

    It has shape (rows, Πshape) and largest column norm 1; its largest coefficients get ``bits``.
    """
    cells = matrix.reshape(-1, *shape)
    axes = range(1, cells.ndim)
    balanced = tuple(bool(abs(cells.sum(axis=axis)).max() < ZERO) for axis in axes)
    matrix = _completed(matrix, shape, balanced, 2.0 ** (-bits / 2))
    grid: Integers = np.rint(matrix * 2.0**bits).astype(np.int64).reshape(-1, *shape)
    for axis, zero in zip(axes, balanced):
        if zero:  # the first cell takes up what rounding left
            index = [slice(None)] * grid.ndim
            index[axis] = slice(0, 1)
            grid[tuple(index)] -= grid.sum(axis=axis, keepdims=True)
    integers = grid.reshape(len(matrix), -1)
    # Most bits of a matrix that is trimmed: its squared column norms stay in 64 bits
    most_trimmed_bits = 26
    if len(shape) == 1 and bits <= most_trimmed_bits:
        integers = _trim(integers, 4**bits, balanced[0])
    return integers[(integers != 0).any(axis=1)], balanced


def with_differences(
    integers: Integers, balanced: tuple[bool, ...], shape: tuple[int, ...], bits: int
) -> Integers:
    """Add rows, so that the integers determine every table that is balanced as they are.

    Differences of two cells along balanced axes and single cells along others, of small weight:
    for matrices that lose directions of small norm, or with few bits, when they are rounded.
    """
    extra: Integers = np.ones((1, 1), dtype=np.int64)
    for n, zero in zip(shape, balanced):
        unit = np.eye(n, dtype=np.int64)
        steps = sorted({1, math.isqrt(n)} if zero else ())
        rows = [unit - np.roll(unit, step, axis=1) for step in steps] or [unit]
        extra = np.kron(extra, np.concatenate(rows))
    return np.concatenate([integers, max(1, 2 ** (bits // 2) // 2) * extra])


def _trim(grid: Integers, limit: int, balanced: bool) -> Integers:
    """Move single units from columns of too large a norm, to others if rows balance."""
    norms = np.einsum("rc,rc->c", grid, grid)
    if norms.max() <= limit:
        return grid
    columns = np.ascontiguousarray(grid.T)  # whole columns are looked at, many thousand times
    for _ in range(16 * len(columns)):
        top = int(norms.argmax())
        excess = int(norms[top]) - limit
        if excess <= 0:
            break
        sign = np.sign(columns[top])
        gain = np.minimum(2 * abs(columns[top]) - 1, excess)
        low = int(norms.argmin())
        raised = 2 * sign * columns[low] + 1
        if balanced:
            gain = gain - np.maximum(norms[low] + raised - limit, 0)
        row = int(gain.argmax())
        if gain[row] <= 0:
            break
        unit = int(sign[row])
        norms[top] -= 2 * abs(columns[top, row]) - 1
        columns[top, row] -= unit
        if balanced:
            norms[low] += raised[row]
            columns[low, row] += unit
    return np.ascontiguousarray(columns.T)


def _completed(
    matrix: Array, shape: tuple[int, ...], balanced: tuple[bool, ...], weight: float
) -> Array:
    """Add orthonormal rows of small weight for what the matrix does not span."""
    dimension = _dimension(shape, balanced)
    if matrix.shape[1] > MOST_COMPLETED or _surely_spans(matrix, shape, balanced):
        return matrix
    with linear_algebra().limit(limits=1):
        _, singular, rows = svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    rank = int((singular > ZERO * singular[0]).sum())
    if rank >= dimension:
        return matrix
    _, _, basis = svd(centered(rows[rank:], shape, balanced), full_matrices=False)
    return np.vstack([matrix, weight * basis[: dimension - rank]])


def _surely_spans(matrix: Array, shape: tuple[int, ...], balanced: tuple[bool, ...]) -> bool:
    """Return whether no singular value can be zero, by one Cholesky factorisation.

    BᵀB + cP − τI is positive definite only if ‖Bx‖² ≥ τ‖x‖² for every table x that is balanced as
    the rows are; rounding stays far below τ, and τ far above ZERO². Where it fails nothing is said.
    """
    if len(matrix) < _dimension(shape, balanced):
        return False
    scale = float(np.vdot(matrix, matrix))
    spanned = 1e-11  # share of their sum above which squared singular values are surely not zero
    with linear_algebra().limit(limits=1):
        gram = matrix.T @ matrix + scale * _ignored(shape, balanced)
        gram[np.diag_indices_from(gram)] -= spanned * scale
        try:
            cho_factor(gram, overwrite_a=True)
        except LinAlgError:
            return False
    return True


def _dimension(shape: tuple[int, ...], balanced: tuple[bool, ...]) -> int:
    """Return the dimension of the tables that sum to zero along the balanced axes."""
    return math.prod(n - 1 if zero else n for n, zero in zip(shape, balanced))


def _ignored(shape: tuple[int, ...], balanced: tuple[bool, ...]) -> Array:
    """Return the projection onto tables that balanced rows map to 0, shape (Πshape, Πshape)."""
    kept = kron(np.eye(n) - (1 / n if zero else 0.0) for n, zero in zip(shape, balanced))
    return np.eye(len(kept)) - kept


# Strategies with integer coefficients, so that measurements can be exact.
# A factor B_k becomes M_k = round(2^s B_k); the sensitivity, inverse and covariance are of M_k,
# so nothing that is reported depends on the rounding having been fine enough.

MOST_BITS = 24
"""Most bits of the coefficients of one factor; fewer than 4 are refused."""

_TOO_LARGE = (
    "a measurement over {:,} cells is too large for exact integers: request fewer ways or declare "
    "coarser bins"
)


@dataclass(frozen=True, eq=False)
class GridFactor(Factor):
    """A factor with integer coefficients, used as M/‖M‖ (largest column norm 1)."""

    integers: Integers  # M, shape (rows, Πshape)
    balanced: tuple[bool, ...]  # for each axis, whether all rows sum to zero along it
    shape: tuple[int, ...]  # sizes of the axes covered

    @cached_property
    def digest(self) -> str:
        """SHA-256 of M and its shape, in hexadecimal digits: what is measured."""
        shape = repr((self.integers.shape, self.shape)).encode()
        return hashlib.sha256(shape + self.integers.astype("<i8").tobytes()).hexdigest()

    @cached_property
    def squared_norm(self) -> int:
        rows = self.integers
        if 2 * int(abs(rows).max()).bit_length() + len(rows).bit_length() > 62:
            rows = rows.astype(object)
        return int((rows * rows).sum(axis=0).max())

    @cached_property
    def matrix(self) -> Array:
        return self.integers / math.sqrt(self.squared_norm)

    @cached_property
    def covariance(self) -> Array:
        """V⁺ of M/‖M‖, shape (Πshape, Πshape)."""
        if not self.is_full:
            return self.inverse @ self.inverse.T
        # (V + P)⁻¹ − P with P the projection onto the tables that all rows ignore.
        ignored = _ignored(self.shape, self.balanced)
        inverse = cho_solve(cho_factor(self._gram()), np.eye(len(ignored)) - ignored)
        return np.asarray((inverse + inverse.T) / 2, dtype=np.float64)

    @cached_property
    def inverse(self) -> Array:
        if self.is_full:
            return self.covariance @ self.matrix.T
        return np.asarray(cho_solve(cho_factor(self._gram()), self.matrix).T, dtype=np.float64)

    @cached_property
    def is_determined(self) -> bool:
        """Whether the inverse exists with some digits to spare."""
        try:
            pivots = np.diagonal(cho_factor(self._gram())[0])
        except LinAlgError:
            return False
        # Smallest squared ratio of the pivots of a Gram matrix that can be inverted
        well_determined = 1e-13
        return bool((pivots.min() / pivots.max()) ** 2 > well_determined)

    @property
    def is_full(self) -> bool:
        """Whether M has rows enough to determine every table that is balanced as they are."""
        return len(self.integers) >= self.dimension

    @property
    def dimension(self) -> int:
        """Dimension of the space of these tables."""
        return _dimension(self.shape, self.balanced)

    @cached_property
    def largest(self) -> int:
        return int(abs(self.integers).max())

    @property
    def measured_entries(self) -> int:
        cells = math.prod(self.shape)
        return max(len(self.integers), cells if self.is_full else 0) * cells

    def answers(self, table: Integers) -> Integers:
        if int(abs(table).sum()) * self.largest < 2**53:  # exact in floating point, and faster
            return (self.integers.astype(np.float64) @ table).astype(np.int64)
        return self.integers @ table

    def estimate(self, answers: Array) -> Array:
        return np.tensordot(self.inverse, answers, axes=1) / math.sqrt(self.squared_norm)

    def _gram(self) -> Array:
        """Return the smaller Gram matrix of M/‖M‖, of full rank if M is determined."""
        b = self.matrix
        return b.T @ b + _ignored(self.shape, self.balanced) if self.is_full else b @ b.T


def on_grid(strategy: Strategy, grid_bits: int, of_residual: bool = False) -> Strategy:
    """Return the strategy with integer coefficients; centering and identity have these already.

    Answers to r rows stay below r · 2**grid_bits. ``of_residual`` makes all rows sum to zero along
    every axis, whatever rounding left: a residual must not be mixed with those it contains. Raise
    ResourceExceeded for more cells than the bits of the coefficients allow.
    """
    kept = [factor for factor in strategy.factors if factor.is_exact]
    fixed = sum(math.log2(factor.largest) for factor in kept)
    rounded = len(strategy.factors) - len(kept)
    bits = math.floor((grid_bits - fixed) / max(rounded, 1))
    while True:
        if bits < (4 if rounded else 0):
            raise ResourceExceeded(_TOO_LARGE.format(math.prod(strategy.shape)))
        factors = tuple(
            factor if factor.is_exact else _rounded(factor, bits, of_residual)
            for factor in strategy.factors
        )
        if sum(math.log2(factor.largest) for factor in factors) <= grid_bits:
            return Strategy(factors)
        bits -= 1


def table_estimate(factors: Sequence[Factor], answers: Array) -> Array:
    """Return the least-squares table M⁺a of (noisy) integer answers, one axis per attribute."""
    array = answers
    shape: tuple[int, ...] = ()
    for factor in factors:
        shape += factor.shape
        array = factor.estimate(array)
        array = np.moveaxis(array, 0, -1)
    return array.reshape(shape)


def _rounded(factor: Factor, bits: int, of_residual: bool) -> Factor:
    matrix, shape = factor.matrix, factor.shape
    if of_residual:
        matrix = centered(matrix, shape)
    found = GridFactor(*round_matrix(matrix, shape, min(bits, MOST_BITS)), shape)
    incomplete = matrix.shape[1] > MOST_COMPLETED and len(matrix) < found.dimension
    if incomplete and bits >= MOST_BITS:  # what is left of rounding is a bias: the finer the better
        found = GridFactor(*round_matrix(matrix, shape, bits), shape)
    elif not (found.is_full and found.is_determined):
        integers = with_differences(found.integers, found.balanced, shape, min(bits, MOST_BITS))
        found = GridFactor(integers, found.balanced, shape)
    if not found.is_determined:
        raise ResourceExceeded(_TOO_LARGE.format(matrix.shape[1]))
    return found


# The residual of a single column is what both kinds of its uses need: prefixes and ranges of it,
# and of every pair that it is in, have most of their error from there; and the cells of every
# marginal that holds it. Of a hundred codes, a strategy that is optimal for prefixes alone makes
# cells half as noisy again as they need be, and one for cells prefixes twice as noisy. So a column
# gets the strategy that is best for both together, each error relative to the least that it can be:
#
#     minimise tr(G V⁺) / L_G + tr(Π V⁺) / L_Π     with G the Gram matrix of the subworkload
#
# of its residual space (He et al., section 6.2) and L the separate optima, so that no constant
# says how much cells count. Sizes and the workload decide, no row.


MOST_CODES = 512
"""Most codes of a column that gets a strategy, whose matrix is a part of the release."""
LARGEST = 2**20
"""Largest coefficient of a strategy: answers to 2⁴⁰ rows stay below 2⁶²."""


@dataclass(frozen=True, eq=False)
class ColumnStrategy:
    """Integer queries that determine the residual of one column.

    Raise ValueError if M is too large, does not sum to zero, or leaves something open.
    """

    factor: GridFactor  # M, shape (queries, codes); every row sums to zero

    def __post_init__(self) -> None:
        rows = self.factor.integers
        known = rows.size and abs(rows).max() <= LARGEST and not rows.sum(axis=1).any()
        if not (known and self.factor.is_full and self.factor.is_determined):
            raise ValueError("the strategy does not determine the residual of its column")

    @classmethod
    def of_integers(cls, rows: Integers) -> Self:
        """Build the strategy with this M; errors are as for the class."""
        return cls(GridFactor(rows, (True,), rows.shape[1:]))

    @property
    def integers(self) -> Integers:
        """M."""
        return self.factor.integers

    @property
    def squared_sensitivity(self) -> int:
        """Largest squared column norm of M: the most that one row moves the answers."""
        return self.factor.squared_norm

    @cached_property
    def squared_diameter(self) -> int:
        """Largest squared distance of two columns of M, the most that replacing a row changes."""
        products = self.integers.T @ self.integers
        norms = products.diagonal()
        return int((norms[:, None] + norms - 2 * products).max())

    @cached_property
    def cost(self) -> float:
        """Privacy cost p: measured at an equivalent variance of σ² it costs ρ = p / (2σ²).

        The equivalent noise is independent noise in each cell that leaves as much variance in the
        residual: answers with noise of variance v leave v (MᵀM)⁺, of trace σ² (n − 1). For the
        cells themselves p is (n − 1)/n.
        """
        return float(np.trace(self.factor.covariance)) / (self.factor.shape[0] - 1)

    @cached_property
    def noise(self) -> Array:
        """Covariance of the estimated residual at an equivalent variance of 1, shape (n, n).

        It has the trace of I − 11ᵀ/n, the covariance of a residual from counted cells.
        """
        return self.factor.covariance / self.cost

    @property
    def cell_noise(self) -> float:
        """RMS standard error of the cells, relative to that of counting the cells at the same ρ."""
        n = self.factor.shape[0]
        return math.sqrt(self.cost * n / (n - 1))

    @property
    def digest(self) -> str:
        """SHA-256 of M, in hexadecimal digits."""
        return self.factor.digest

    def estimate(self, answers: Array) -> Array:
        """Return M⁺a, the unbiased residual in centered form from noisy answers."""
        return table_estimate((self.factor,), answers)


def column_strategies(workload: QueryWorkload) -> dict[int, ColumnStrategy]:
    """Return the strategy of each column that has a better one than counting its cells.

    Parts of cells alone need none. Raise ResourceExceeded for too many sets or too large queries.
    """
    parts = tuple(part for part in workload.parts if not _asks_for_cells(part))
    if not parts:
        return {}
    found = {}
    decomposition = decompose_workload(replace(workload, parts=parts))
    for residual, number in zip(decomposition.residuals, decomposition.class_of.tolist()):
        if len(residual) == 1 and 1 < workload.domain.sizes[residual[0]] <= MOST_CODES:
            with linear_algebra().limit(limits=1):  # the same integers for any number of threads
                strategy = _strategy_for(decomposition.subworkloads[number])
            if strategy is not None:
                found[residual[0]] = strategy
    return found


def _asks_for_cells(part: QueryPart) -> bool:
    requested = part.axis.values() if part.joint is None else part.joint
    return all(find_family(queries) == "marginal" for queries in requested)


def _strategy_for(requested: Subworkload) -> ColumnStrategy | None:
    """Return the best strategy for a subworkload and cells; None if it counts the cells."""
    from adaptive_qs.strategy.optimal import solve  # most workloads need no solver

    (size,) = requested.shape
    cells = Subworkload(requested.shape, (Term(1.0, (CenteredAxis(Marginal(size)),)),))
    terms: list[Term] = []
    for one in (requested, cells):
        least = solve(one).objective
        terms += [replace(term, scale=term.scale / least) for term in one.terms]
    best = solve(Subworkload(requested.shape, tuple(terms))).strategy
    # Bits of the coefficients: they change the error by a ten-thousandth and leave room for noise
    # of at most 2⁴⁶, for a budget that leaves cells with 2³⁰ rows of noise
    grid_bits = 16
    (factor,) = on_grid(best, grid_bits, of_residual=True).factors
    if isinstance(factor, CenteringFactor):
        return None
    assert isinstance(factor, GridFactor)
    return ColumnStrategy(factor)


def noise_by_attribute(strategies: Mapping[int, ColumnStrategy]) -> dict[int, Array]:
    """Return noise covariances by column, for :class:`~adaptive_qs.residual.ReferenceModel`."""
    return {attribute: strategy.noise for attribute, strategy in strategies.items()}
