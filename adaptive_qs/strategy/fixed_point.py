"""The iteration behind every optimal strategy, on the blocks that symmetries leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from adaptive_qs.strategy.solution import SolverSettings

# Reversals and swaps of axes that leave a Gram matrix unchanged, and the blocks they cut it into.
#
# If G is invariant under a group of cell permutations, so is an optimal dual vector y: average y
# over the group, the dual objective is concave. The permutations here are involutions that commute
# (a group ℤ₂ᵏ), so M = Y^½ G Y^½ splits exactly into one block per character of the group, each
# with at most one coordinate per orbit of cells. Every involution halves the eigenproblems.

Array = NDArray[np.float64]
Permutation = NDArray[np.int64]

SYMMETRY_TOLERANCE = 1e-12
"""Relative difference below which two Gram matrices are equal up to the rounding of their making:
it enters the allowance that is taken off lower bounds."""

_PROBES = 3
_MOST_AXES = 5


@dataclass(frozen=True, eq=False)
class SymmetricBlocks:
    """An orthogonal change of coordinates that splits every invariant matrix.

    Attributes:
        orbit: shape (N,): the orbit of each cell.
        sizes: shape (orbits,): cells in each orbit.
        bases: Q_b, sparse (N, N_b), orthonormal columns, each supported on one orbit; together
            they are an orthogonal N × N matrix.
        members: for each block, shape (N_b,): the orbit of each column.
    """

    orbit: NDArray[np.int64]
    sizes: Array
    bases: tuple[csr_array, ...]
    members: tuple[NDArray[np.int64], ...]

    @property
    def largest(self) -> int:
        """Coordinates of the largest block."""
        return max(map(len, self.members))


def symmetric_blocks(apply: Callable[[Array], Array], shape: tuple[int, ...]) -> SymmetricBlocks:
    """The blocks of a Gram matrix under the reversals and swaps of its axes that it allows.

    Args:
        apply: x ↦ G x for x of shape (N, k).
        shape: sizes of the axes, N = Πshape.
    """
    identity = np.arange(math.prod(shape))
    group = [identity]
    rng = np.random.Generator(np.random.PCG64(0))  # probes of a public matrix, not privacy noise
    probe = rng.standard_normal((identity.size, _PROBES))
    image = apply(probe)
    tolerance = SYMMETRY_TOLERANCE * float(np.abs(image).max(initial=0.0))
    for candidate in _involutions(shape):
        if any(np.array_equal(candidate, element) for element in group):
            continue
        if not all(np.array_equal(candidate[g], g[candidate]) for g in group):
            continue
        permuted = apply(probe[candidate])[candidate]
        if float(np.abs(permuted - image).max()) <= tolerance:
            group += [element[candidate] for element in group]
    return _split(group)


def _involutions(shape: tuple[int, ...]) -> list[Permutation]:
    """Reversals of every set of axes, then swaps of every two axes of equal size."""
    axes = range(len(shape))
    if len(shape) > _MOST_AXES:
        return []
    cells = np.arange(math.prod(shape)).reshape(shape)
    reversals = [
        np.flip(cells, some).ravel()
        for count in range(1, len(shape) + 1)
        for some in combinations(axes, count)
    ]
    swaps = [
        np.swapaxes(cells, i, j).ravel() for i, j in combinations(axes, 2) if shape[i] == shape[j]
    ]
    return reversals + swaps


def _split(group: list[Permutation]) -> SymmetricBlocks:
    """One basis per character; the group lists products of generators in binary order."""
    images = np.stack(group)  # (elements, N)
    order, cells = images.shape
    representative, orbit = np.unique(images.min(axis=0), return_inverse=True)
    sizes = np.bincount(orbit).astype(np.float64)
    bases, members = [], []
    for character in range(order):
        signs = np.array([(-1.0) ** (character & g).bit_count() for g in range(order)])
        fixed = images[:, representative] == representative
        alive = np.flatnonzero(signs @ fixed > 0)  # the character is trivial on the stabiliser
        if not alive.size:
            continue
        rows = images[:, representative[alive]]
        columns = np.broadcast_to(np.arange(alive.size), rows.shape)
        values = np.broadcast_to(signs[:, None], rows.shape)
        stabiliser = order / sizes[alive]
        values = values / (stabiliser * np.sqrt(sizes[alive]))
        entries = (values.ravel(), (rows.ravel(), columns.ravel()))
        bases.append(csr_array(coo_array(entries, shape=(cells, alive.size))))
        members.append(alive)
    return SymmetricBlocks(orbit, sizes, tuple(bases), tuple(members))


# The two ways to take the square root of Y^½ G Y^½ on one block of an invariant Gram matrix.

EPSILON = float(np.finfo(np.float64).eps)

PRECISION = 1e-13
"""Relative precision to which a Gram matrix or its rows are taken to be known."""

FEW_ROWS = 0.8
"""Below this rank per coordinate the row form is cheaper: two products replace part of the
eigenproblem, whose constant is about ten times theirs."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one dual vector says about one block.

    Attributes:
        trace: s = tr M^½.
        certain: a value that s exceeds whatever the rounding errors were.
        diagonal: shape (n,): diag V, V = Y^{-½} M^½ Y^{-½}.
    """

    trace: float
    certain: float
    diagonal: Array


@dataclass(frozen=True, eq=False)
class BlockStrategy:
    """An unnormalised strategy of one block.

    Attributes:
        matrix: B, shape (r, n).
        inverse: B⁺, shape (n, r).
        objective: tr(G V⁺), V = BᵀB, from ``inverse``.
    """

    matrix: Array
    inverse: Array
    objective: float


class Block(Protocol):
    """A Gram matrix G over n coordinates, of rank r ≥ 1."""

    @property
    def basis(self) -> Array:
        """Orthonormal columns that span the range of G, shape (n, r)."""

    def evaluate(self, y: Array) -> Evaluation:
        """Square root at y > 0, shape (n,)."""

    def strategy(self, y: Array) -> BlockStrategy:
        """B = M^¼ Y^{-½} up to a rotation, rows in the range of G."""


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """G itself, with the eigenvectors of its range.

    Attributes:
        gram: shape (n, n).
        values: eigenvalues of G that are not zero, shape (r,).
        basis: their eigenvectors, shape (n, r).
        asymmetry: relative size of what was averaged away to get the block.
    """

    gram: Array
    values: Array
    basis: Array
    asymmetry: float = 0.0

    def evaluate(self, y: Array) -> Evaluation:
        """From the r largest eigenpairs of M, shape (n, n)."""
        values, vectors = self._root(y)
        return Evaluation(
            *_traces(values, y.size, self.asymmetry), (vectors * vectors) @ np.sqrt(values) / y
        )

    def strategy(self, y: Array) -> BlockStrategy:
        """Λ^¼ Uᵀ Y^{-½}, projected onto the range of G to remove rounding."""
        values, vectors = self._root(y)
        rows = (values**0.25 * vectors).T / np.sqrt(y)
        return _with_inverse(rows, self.values, self.basis)

    def _root(self, y: Array) -> tuple[Array, Array]:
        root = np.sqrt(y)
        values, vectors = np.linalg.eigh(root[:, None] * self.gram * root)
        rank = self.values.size
        return _floored(values[-rank:]), vectors[:, -rank:]


@dataclass(frozen=True, eq=False)
class RowBlock:
    """G = FᵀF by few independent rows F = diag(values)^½ basisᵀ: all work is in K = F Y Fᵀ.

    Attributes:
        values: eigenvalues of G that are not zero, shape (r,).
        basis: their eigenvectors, shape (n, r).
        rows: F, shape (r, n).
        asymmetry: relative size of what was averaged away to get the block.
    """

    values: Array
    basis: Array
    rows: Array
    asymmetry: float = 0.0

    def evaluate(self, y: Array) -> Evaluation:
        """V = Fᵀ K^{-½} F, so no division by y."""
        values, turned = self._root(y)
        diagonal = np.einsum("kn,kn,k->n", turned, turned, 1 / np.sqrt(values))
        return Evaluation(*_traces(values, y.size, self.asymmetry), diagonal)

    def strategy(self, y: Array) -> BlockStrategy:
        """K^{-¼} F up to a rotation."""
        values, turned = self._root(y)
        return _with_inverse(turned / values[:, None] ** 0.25, self.values, self.basis)

    def _root(self, y: Array) -> tuple[Array, Array]:
        """Eigenvalues of K and F in the basis of its eigenvectors."""
        values, vectors = np.linalg.eigh((self.rows * y) @ self.rows.T)
        return _floored(values), vectors.T @ self.rows


def _floored(values: Array) -> Array:
    """Positive eigenvalues that rounding may have made zero or negative, made positive again."""
    return np.maximum(values, EPSILON * values[-1])


def gram_blocks(grams: Sequence[Array]) -> list[Block | None]:
    """The cheaper form of each block of one positive semidefinite matrix; None where it is zero.

    What is zero is judged against the largest eigenvalue of all blocks.
    """
    averaged = _asymmetry(len(grams))
    pairs = [np.linalg.eigh(gram) for gram in grams]
    largest = max(float(values[-1]) for values, _ in pairs)
    zero = largest * _rank_tolerance(sum(map(len, grams)))
    blocks: list[Block | None] = []
    for gram, (values, vectors) in zip(grams, pairs):
        values, vectors = values[values > zero], np.ascontiguousarray(vectors[:, values > zero])
        if not values.size:
            blocks.append(None)
        elif values.size <= FEW_ROWS * len(gram):
            blocks.append(RowBlock(values, vectors, np.sqrt(values)[:, None] * vectors.T, averaged))
        else:
            blocks.append(DenseBlock(gram, values, vectors, averaged))
    return blocks


def row_blocks(rows: Sequence[Array]) -> list[Block | None]:
    """The row form of G = rowsᵀrows, dependent rows removed; None for a block that is zero."""
    averaged = _asymmetry(len(rows))
    parts = [np.linalg.svd(block, full_matrices=False)[1:] for block in rows]
    largest = max(float(singular[0]) for singular, _ in parts)
    zero = largest * _rank_tolerance(max(len(rows[0]), sum(part.shape[1] for part in rows)))
    blocks: list[Block | None] = []
    for singular, vectors in parts:
        values, kept = singular[singular > zero], vectors[singular > zero]
        found = RowBlock(values**2, kept.T, values[:, None] * kept, averaged)
        blocks.append(found if values.size else None)
    return blocks


def _asymmetry(blocks: int) -> float:
    """A single block is the whole matrix: nothing was averaged."""
    return SYMMETRY_TOLERANCE if blocks > 1 else 0.0


def _rank_tolerance(size: int) -> float:
    """Relative size below which an eigenvalue or singular value is rounding."""
    return max(8 * EPSILON * size, PRECISION)


def _traces(values: Array, size: int, asymmetry: float) -> tuple[float, float]:
    """Σ√λ, and the same after every λ is lowered by all that rounding may have added to it.

    By Weyl's inequality an eigenvalue moves by at most the norm of the error of its matrix: the
    backward error of the eigensolver and of forming M, and the asymmetry that was averaged away.
    """
    error = (4 * EPSILON * size + asymmetry) * float(values[-1])
    trace = float(np.sqrt(values).sum())
    return trace, float(np.sqrt(np.maximum(values - error, 0.0)).sum())


def _with_inverse(rows: Array, values: Array, basis: Array) -> BlockStrategy:
    """Pseudo-inverse of rows within the range of G, an r × r inverse, and tr(G V⁺) from it."""
    inner = rows @ basis
    inverse = np.linalg.inv(inner)
    objective = float(values @ (inverse * inverse).sum(axis=1))
    return BlockStrategy(inner @ basis.T, basis @ inverse, objective)


# The iteration behind every optimal strategy: one dual vector carries primal and dual.
#
# For y > 0 with Σy = 1 let M = Y^½ G Y^½, s = tr M^½ and V = Y^{-½} M^½ Y^{-½}. Then s² is a lower
# bound on min tr(G V⁺), V / max_i V_ii is feasible with objective s·max_i V_ii, and Σ y_i V_ii = s:
# at the optimum V_ii = s wherever y_i > 0. The multiplicative update y_i ← y_i (V_ii/s)^p is a
# fixed point iteration in log y, which Anderson acceleration speeds up (Walker and Ni 2011,
# "Anderson acceleration for fixed-point iterations").

Members = NDArray[np.int64]

EXPONENT = 3.0
"""p: diagonal problems converge at once with 2 and diverge at 4; most have slower modes, for which
3 took the fewest iterations of 1, 2, 3, 4 on range, prefix, affine and random workloads."""

MEMORY = 4
"""Earlier steps that Anderson acceleration combines."""

SLACK = 10.0
"""Most that s may fall below its best, relative to the gap: p = 1 never lowers s, so an iterate
that does is an extrapolation gone too far."""

_SMALLEST = 1e-12
"""Floor of y relative to the uniform vector: changes s by less than its rounding allowance."""

_STEP = 8.0
"""Most that log y may change in one step."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """Best primal and dual values seen, each from its own iterate.

    Attributes:
        y: shape (orbits,): dual weight of each cell of an orbit, for the best primal value.
        objective: s·max V_ii there.
        lower_bound: largest certain s² of all iterates.
        iterations: evaluations made.
    """

    y: Array
    objective: float
    lower_bound: float
    iterations: int


@dataclass
class _Anderson:
    """Extrapolates x ← x + f(x) from the last few pairs (x, f)."""

    points: list[Array] = field(default_factory=list)
    steps: list[Array] = field(default_factory=list)

    def next(self, x: Array, step: Array, weight: Array) -> Array:
        self.points = [*self.points[-MEMORY:], x]
        self.steps = [*self.steps[-MEMORY:], step]
        if len(self.points) == 1:
            return x + step
        dx = np.diff(np.array(self.points), axis=0).T
        df = np.diff(np.array(self.steps), axis=0).T
        mix, *_ = np.linalg.lstsq(weight[:, None] * df, weight * step, rcond=1e-8)
        return x + step - (dx + df) @ mix

    def forget(self) -> None:
        self.points.clear()
        self.steps.clear()


def maximise_dual(
    blocks: Sequence[Block],
    members: Sequence[Members],
    sizes: Array,
    settings: SolverSettings,
    start: Array | None = None,
) -> Outcome:
    """Iterate until objective / lower bound − 1 ≤ settings.gap, or settings.max_iterations.

    Args:
        blocks: of an invariant Gram matrix.
        members: for each block, the orbit of each of its coordinates.
        sizes: cells in each orbit, shape (orbits,).
        settings: gap and iteration limit.
        start: y > 0 up to a scale, shape (orbits,); uniform if None.
    """
    cells = sizes.sum()
    x = np.zeros(sizes.size) if start is None else np.log(np.maximum(start, 1e-300))
    best_y, best, bound = np.exp(x), np.inf, 0.0
    highest, kept = 0.0, (x, x)
    exponent, anderson = EXPONENT, _Anderson()
    iterations = 0
    while iterations < max(settings.max_iterations, 1):
        iterations += 1
        y = _normalise(x, sizes, cells)
        x = np.log(y)
        trace, certain, diagonal = _evaluate(blocks, members, sizes, y)
        ratio = diagonal / trace
        if trace * diagonal.max() < best:
            best, best_y = float(trace * diagonal.max()), y
        bound = max(bound, float(certain) ** 2)
        gap = best / bound - 1
        if gap <= settings.gap:
            break
        if trace < highest * (1 - SLACK * gap):  # overshot: a shorter plain step from the best
            anderson.forget()
            exponent = max(1.0, exponent / 1.5)
            x = kept[0] + _limited(exponent * kept[1])
            continue
        step = np.log(np.maximum(ratio, 1e-9))
        if trace > highest:
            highest, kept = trace, (x, step)
        proposal = anderson.next(x, exponent * step, np.sqrt(sizes * y))
        exponent = min(EXPONENT, exponent * 1.1)
        x = x + _limited(proposal - x)
    return Outcome(best_y, best, bound, iterations)


def _evaluate(
    blocks: Sequence[Block], members: Sequence[Members], sizes: Array, y: Array
) -> tuple[float, float, Array]:
    """s, what s certainly exceeds, and V_ii for a cell of each orbit."""
    trace = certain = 0.0
    diagonal = np.zeros(sizes.size)
    for block, orbits in zip(blocks, members):
        part = block.evaluate(y[orbits])
        trace += part.trace
        certain += part.certain
        diagonal[orbits] += part.diagonal
    rounding = 4 * np.finfo(np.float64).eps * sizes.sum()
    return trace, certain * (1 - rounding), diagonal / sizes


def _normalise(x: Array, sizes: Array, cells: float) -> Array:
    """y = e^x scaled to total 1 over all cells, and not below the floor."""
    y = np.exp(x - x.max())
    y /= sizes @ y
    y = np.maximum(y, _SMALLEST / cells)
    return y / (sizes @ y)


def _limited(step: Array) -> Array:
    return np.clip(np.nan_to_num(step), -_STEP, _STEP)
