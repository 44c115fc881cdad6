"""Optimal strategies of a Gram matrix or of few queries, each with a bound that proves it."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from adaptive_qs.strategy import solution
from adaptive_qs.strategy.bounds import gram_bound
from adaptive_qs.strategy.solution import Array, DenseFactor, SolverSettings, Status, Strategy

# Reversals and swaps of axes that leave a Gram matrix unchanged, and the blocks they cut it into.
# If G is invariant under a group of cell permutations, so is an optimal dual vector y: average y
# over the group, the dual objective is concave. The permutations here are involutions that commute
# (a group ℤ₂ᵏ), so M = Y^½ G Y^½ splits exactly into one block per character of the group, each
# with at most one coordinate per orbit of cells. Every involution halves the eigenproblems.

Permutation = NDArray[np.int64]

SYMMETRY_TOLERANCE = 1e-12
"""Relative difference below which two Gram matrices are equal up to the rounding of their making:
it enters the allowance that is taken off lower bounds."""


@dataclass(frozen=True, eq=False)
class SymmetricBlocks:
    """An orthogonal change of coordinates that splits every invariant matrix."""

    orbit: NDArray[np.int64]  # shape (N,): the orbit of each cell
    sizes: Array  # shape (orbits,): cells in each orbit
    bases: tuple[csr_array, ...]  # Q_b (N, N_b), orthonormal columns, each on one orbit
    members: tuple[NDArray[np.int64], ...]  # for each block, shape (N_b,): the orbit of each column

    @property
    def largest(self) -> int:
        """Coordinates of the largest block."""
        return max(map(len, self.members))

    @property
    def work(self) -> int:
        """Summed cubes of the sizes of the blocks: multiply-adds of their eigenproblems."""
        return sum(len(members) ** 3 for members in self.members)


def symmetric_blocks(apply: Callable[[Array], Array], shape: tuple[int, ...]) -> SymmetricBlocks:
    """Return the blocks of a Gram matrix under the reversals and swaps of axes that it allows.

    ``apply`` is x ↦ G x for x of shape (N, k), over axes of the sizes ``shape``, N = Πshape.
    """
    identity = np.arange(math.prod(shape))
    group = [identity]
    rng = np.random.Generator(np.random.PCG64(0))  # probes of a public matrix, not privacy noise
    probe = rng.standard_normal((identity.size, 3))
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
    """Return reversals of every set of axes, then swaps of every two axes of equal size."""
    axes = range(len(shape))
    if len(shape) > 5:
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
    """Return one basis per character; the group lists products of generators in binary order."""
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


@dataclass(frozen=True, eq=False)
class Block:
    """A Gram matrix G over n coordinates, of rank r ≥ 1, or its rows F = Λ^½ basisᵀ, G = FᵀF."""

    values: Array  # eigenvalues Λ of G that are not zero, shape (r,)
    basis: Array  # their eigenvectors, shape (n, r)
    asymmetry: float  # relative size of what was averaged away to get the block
    gram: Array | None = None  # G, shape (n, n); None for few rows, where all work is in K = F Y Fᵀ

    def evaluate(self, y: Array) -> tuple[float, float, Array]:
        """Return s = tr M^½, a lower bound of s despite rounding, and diag V, shape (n,), at y > 0.

        By Weyl's inequality an eigenvalue moves by at most the norm of the error of its matrix: the
        backward error of the eigensolver and of forming M, and the asymmetry averaged away.
        """
        values, turned = self._root(y)
        error = (4 * EPSILON * y.size + self.asymmetry) * float(values[-1])
        certain = np.sqrt(np.maximum(values - error, 0.0)).sum()
        diagonal = (1 / np.sqrt(values)) @ (turned * turned)
        return float(np.sqrt(values).sum()), float(certain), diagonal

    def strategy(self, y: Array) -> tuple[Array, Array, float]:
        """Return B = M^¼ Y^{-½} up to a rotation, (r, n), its inverse (n, r), and their tr(G V⁺).

        Projected onto the range of G to remove rounding; the inverse is an r × r one.
        """
        values, turned = self._root(y)
        inner = (turned / values[:, None] ** 0.25) @ self.basis
        inverse = np.linalg.inv(inner)
        objective = float(self.values @ (inverse * inverse).sum(axis=1))
        return inner @ self.basis.T, self.basis @ inverse, objective

    def _root(self, y: Array) -> tuple[Array, Array]:
        """Return eigenvalues λ of M or K, (r,), and T, (r, n), with V = Tᵀ diag(λ)^{-½} T."""
        if self.gram is None:
            values, vectors = np.linalg.eigh((self._rows * y) @ self._rows.T)
            return _floored(values), vectors.T @ self._rows
        root = np.sqrt(y)
        values, vectors = np.linalg.eigh(root[:, None] * self.gram * root)
        rank = self.values.size
        values = _floored(values[-rank:])
        return values, (np.sqrt(values) * vectors[:, -rank:]).T / root

    @cached_property
    def _rows(self) -> Array:
        return np.sqrt(self.values)[:, None] * self.basis.T


def _floored(values: Array) -> Array:
    """Make eigenvalues positive that rounding may have made zero or negative."""
    return np.maximum(values, EPSILON * values[-1])


def gram_blocks(grams: Sequence[Array]) -> list[Block | None]:
    """Return the cheaper form of each block of a positive semidefinite matrix; None for a zero one.

    What is zero is judged against the largest eigenvalue of all blocks.
    """
    blocks = _blocks([np.linalg.eigh(gram) for gram in grams], sum(map(len, grams)))
    # Rank per coordinate below which the row form is cheaper: two products replace part of the
    # eigenproblem, whose constant is about ten times as large
    few_rows = 0.8
    return [
        replace(block, gram=gram) if block and block.values.size > few_rows * len(gram) else block
        for block, gram in zip(blocks, grams)
    ]


def row_blocks(rows: Sequence[Array]) -> list[Block | None]:
    """Return the row form of G = rowsᵀrows without dependent rows; None for a zero block."""
    parts = [np.linalg.svd(block, full_matrices=False)[1:] for block in rows]
    size = max(len(rows[0]), sum(part.shape[1] for part in rows))
    return _blocks([(singular, vectors.T) for singular, vectors in parts], size, 2)


def _blocks(pairs: Sequence[tuple[Array, Array]], size: int, power: int = 1) -> list[Block | None]:
    """Return row forms from roots of eigenvalues and eigenvectors, without rounding errors."""
    precision = 1e-13  # relative precision to which a Gram matrix or its rows are taken to be known
    zero = max(float(values.max()) for values, _ in pairs) * max(8 * EPSILON * size, precision)
    averaged = SYMMETRY_TOLERANCE if len(pairs) > 1 else 0.0  # one block is the whole matrix
    return [
        Block(values[kept] ** power, np.ascontiguousarray(vectors[:, kept]), averaged)
        if (kept := values > zero).any()
        else None
        for values, vectors in pairs
    ]


# The iteration behind every optimal strategy: one dual vector carries primal and dual.
# For y > 0 with Σy = 1 let M = Y^½ G Y^½, s = tr M^½ and V = Y^{-½} M^½ Y^{-½}. Then s² is a lower
# bound on min tr(G V⁺), V / max_i V_ii is feasible with objective s·max_i V_ii, and Σ y_i V_ii = s:
# at the optimum V_ii = s wherever y_i > 0. The multiplicative update y_i ← y_i (V_ii/s)^p is a
# fixed point iteration in log y, which Anderson acceleration speeds up (Walker and Ni 2011,
# "Anderson acceleration for fixed-point iterations").

Members = NDArray[np.int64]


def _maximise_dual(
    blocks: Sequence[Block], members: Sequence[Members], sizes: Array, settings: SolverSettings
) -> tuple[Array, float, int]:
    """Iterate until objective / lower bound − 1 ≤ settings.gap, or settings.max_iterations.

    Returns y for the best primal value s·max V_ii, shape (orbits,), the largest certain s² of all
    iterates, and the evaluations made.
    """
    cells = sizes.sum()
    x = np.zeros(sizes.size)
    best_y, best, bound = np.exp(x), np.inf, 0.0
    highest, kept = 0.0, (x, x)
    memory = 4  # earlier steps that Anderson acceleration combines
    # Power p of the update: diagonal problems converge in one step with 2 and diverge at 4; most
    # have slower modes, for which 3 took the fewest iterations of 1, 2, 3, 4 on range, prefix,
    # affine and random workloads
    largest_exponent = 3.0
    exponent, history = largest_exponent, deque[tuple[Array, Array]](maxlen=memory + 1)
    iterations = 0
    # Largest fall of s below its best, relative to the gap, before a shorter step: p = 1 never
    # lowers s, so an iterate that does has extrapolated too far
    slack = 10.0
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
        if trace < highest * (1 - slack * gap):  # overshot: a shorter plain step from the best
            history.clear()
            exponent = max(1.0, exponent / 1.5)
            x = kept[0] + _limited(exponent * kept[1])
            continue
        step = np.log(np.maximum(ratio, 1e-9))
        if trace > highest:
            highest, kept = trace, (x, step)
        history.append((x, exponent * step))
        proposal = _extrapolated(history, np.sqrt(sizes * y))
        exponent = min(largest_exponent, exponent * 1.1)
        x = x + _limited(proposal - x)
    return best_y, bound, iterations


def _extrapolated(history: Iterable[tuple[Array, Array]], weight: Array) -> Array:
    """Return x + f(x) at the last of some pairs (x, f), by Anderson acceleration."""
    points, steps = (np.array(part) for part in zip(*history))
    ahead = points[-1] + steps[-1]
    if len(points) == 1:
        return np.asarray(ahead)
    dx, df = np.diff(points, axis=0).T, np.diff(steps, axis=0).T
    mix, *_ = np.linalg.lstsq(weight[:, None] * df, weight * steps[-1], rcond=1e-8)
    return np.asarray(ahead - (dx + df) @ mix)


def _evaluate(
    blocks: Sequence[Block], members: Sequence[Members], sizes: Array, y: Array
) -> tuple[float, float, Array]:
    """Return s, a lower bound of s despite rounding, and V_ii for a cell of each orbit."""
    trace = certain = 0.0
    diagonal = np.zeros(sizes.size)
    for block, orbits in zip(blocks, members):
        of_block = block.evaluate(y[orbits])
        trace, certain = trace + of_block[0], certain + of_block[1]
        diagonal[orbits] += of_block[2]
    rounding = 4 * np.finfo(np.float64).eps * sizes.sum()
    return trace, certain * (1 - rounding), diagonal / sizes


def _normalise(x: Array, sizes: Array, cells: float) -> Array:
    y = np.exp(x - x.max())
    y /= sizes @ y
    # Floor of y relative to the uniform vector: changes s by less than its rounding allowance
    smallest = 1e-12
    y = np.maximum(y, smallest / cells)
    return y / (sizes @ y)


def _limited(step: Array) -> Array:
    most = 8.0  # most that log y may change in one step
    return np.clip(np.nan_to_num(step), -most, most)


# Optimal strategies, with bounds that prove it, for any Gram matrix that fits in memory.
# He et al., equation 4: minimise tr(G V⁺) over V ⪰ 0 with diag V ≤ 1 and range(V) ⊇ range(G).


def solve_dense(gram: Array, shape: tuple[int, ...], settings: SolverSettings) -> solution.Solution:
    """Return the optimal strategy for queries with the Gram matrix G = WᵀDW, of any rank but 0.

    G has shape (N, N), N = Πshape; symmetries under reversal and exchange of axes are used. The
    strategy is one dense factor, OPTIMAL within the gap, else STOPPED with the gap reached.

    Raises:
        ValueError: a matrix of another shape, not finite, not symmetric, or zero.
    """
    gram = np.asarray(gram, dtype=np.float64)
    cells = math.prod(shape)
    if gram.shape != (cells, cells):
        raise ValueError(f"a Gram matrix over shape {shape} has shape {gram.shape}")
    scale = float(np.abs(gram).max())
    if not math.isfinite(scale) or scale == 0:
        raise ValueError("the Gram matrix is zero or not finite: no strategy can be fitted to it")
    if not np.allclose(gram, gram.T, rtol=0, atol=1e-10 * scale):
        raise ValueError("the Gram matrix is not symmetric")
    symmetry = symmetric_blocks(lambda x: gram @ x, shape)
    halves = [basis.T @ (basis.T @ gram).T for basis in symmetry.bases]
    blocks = gram_blocks([(half + half.T) / 2 for half in halves])
    return _solve_blocks(blocks, symmetry, shape, settings)


def _solve_blocks(
    blocks: Sequence[Block | None],
    symmetry: SymmetricBlocks,
    shape: tuple[int, ...],
    settings: SolverSettings,
) -> solution.Solution:
    """Return the optimal strategy for a Gram matrix given by its blocks, None for a zero block."""
    pairs = [(block, m) for block, m in zip(blocks, symmetry.members) if block is not None]
    bases = [basis for block, basis in zip(blocks, symmetry.bases) if block is not None]
    y, bound, iterations = _maximise_dual(
        [block for block, _ in pairs], [m for _, m in pairs], symmetry.sizes, settings
    )
    found = [block.strategy(y[orbits]) for block, orbits in pairs]
    matrix = np.concatenate([(q @ part.T).T for q, (part, _, _) in zip(bases, found)])
    covariance = None
    if 2 * len(matrix) >= matrix.shape[1]:  # a smaller matrix has its inverse on demand
        inverse = np.concatenate([q @ part for q, (_, part, _) in zip(bases, found)], axis=1)
        covariance = inverse @ inverse.T
    objective = float((matrix * matrix).sum(axis=0).max()) * sum(error for _, _, error in found)
    reached = objective <= bound * (1 + settings.gap)
    return solution.Solution(
        Strategy((DenseFactor(matrix, shape, covariance),)), objective, bound,
        Status.OPTIMAL if reached else Status.STOPPED, iterations,
    )  # fmt: skip


# Optimal strategies for fewer queries than cells: all work is in matrices of their number.


def solve_rows(rows: Array, shape: tuple[int, ...], settings: SolverSettings) -> solution.Solution:
    """Return the optimal strategy for queries W, shape (m, Πshape), without forming G = WᵀW.

    Time and memory grow with m²N; the factor has as many rows as W has rank. Raise ValueError if W
    has another shape, is not finite or is zero.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != math.prod(shape):
        raise ValueError(f"{rows.shape} queries over shape {shape}")
    if not np.isfinite(rows).all():
        raise ValueError("queries must be finite")
    if not rows.any():
        raise ValueError("the queries are all zero: no strategy can be fitted to them")
    symmetry = symmetric_blocks(lambda x: rows.T @ (rows @ x), shape)
    blocks = row_blocks([(basis.T @ rows.T).T for basis in symmetry.bases])
    return _solve_blocks(blocks, symmetry, shape, settings)


# The optimum for one attribute, in closed form where queries are only identity and total (OPT_0).


def solve_axis(gram: Array, settings: SolverSettings) -> solution.Solution:
    """Return the optimum for queries on one attribute with Gram matrix G, shape (n, n)."""
    n, simple = len(gram), exchangeable(gram)
    if simple is None:
        return solve_dense(gram, gram.shape[:1], settings)
    a, b = simple
    if a == 0:  # the total and nothing else
        factor = DenseFactor(np.ones((1, n)), (n,), np.full((n, n), 1 / n**2))
    else:  # AᵀA is √G, whose diagonal is constant
        centered, mean = math.sqrt(a), math.sqrt(max(a + n * b, 0.0))
        average = np.full((n, n), 1 / n)
        centering = np.eye(n) - average
        matrix = math.sqrt(centered) * centering + math.sqrt(mean) * average
        inverse = centering / centered + (average / mean if mean > 0 else 0.0)
        factor = DenseFactor(matrix, (n,), inverse)
    error = float(np.vdot(gram, factor.covariance))
    return solution.Solution(Strategy((factor,)), error, gram_bound(gram), Status.OPTIMAL)


def exchangeable(gram: Array) -> tuple[float, float] | None:
    """Return (a, b) if G = aI + b11ᵀ up to rounding (identity and total queries), else None."""
    n = len(gram)
    diagonal = float(gram.diagonal().mean())
    b = float((gram.sum() - gram.trace()) / (n * (n - 1))) if n > 1 else 0.0
    a = diagonal - b
    model = np.full_like(gram, b)
    np.fill_diagonal(model, a + b)
    if np.abs(gram - model).max() > 1e-12 * diagonal:
        return None
    return (a if abs(a) > 1e-12 * diagonal else 0.0), b
