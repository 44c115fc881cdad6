"""Strategies for arcs of a long circle of cells, beside cells that are off the circle."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.solution import LongFactor
from adaptive_qs.strategy.waves import Ends, Numbers, WaveFactor, make_wave
from adaptive_qs.workload.axes import Circular, FirstCells
from adaptive_qs.workload.matrices import Queries

# Arcs of the first k of n cells. The Gram matrix, with or without the mean over all n, does not
# change when the circle is turned or other cells change places; nor does the privacy cost. The
# problem is convex, so some optimum does not change either: on vectors that are zero off the circle
# and sum to zero it has the Fourier basis as eigenvectors, V = F diag(h) F*, and of the others only
# one is asked for, u: 1 on the circle and 0 off it, or mean-free, b = n − k on the circle and −k
# off it. It is measured by one more row, √η u/|u|. With c_f = (F*GF)_ff and g = tr(G uuᵀ)/|u|²
#
#     min Σ c_f/h_f + g/η   for   Σ h_f/k + η u_1²/|u|² ≤ 1,   η u_n²/|u|² ≤ 1,
#
# by h_f ∝ √c_f and η from the first condition (Cauchy-Schwarz), or at most what the second leaves.

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ArcFactor(LongFactor):
    """A periodic kernel on the first cells, and one row that counts them, or them and the others.

    Attributes:
        circle: on the first k cells; its rows sum to zero.
        beside: cells off the circle, b.
        weight: w of the last row, of the same type.
        centered: whether that is w·b on the circle and −w·k off it, so that all rows sum to zero;
            else it is w and 0, and nothing is known of the cells off the circle.
    """

    circle: WaveFactor
    beside: int
    weight: int | float
    centered: bool

    @property
    def size(self) -> int:
        """n = k + b."""
        return self.circle.size + self.beside

    @property
    def is_integral(self) -> bool:
        """As the kernel."""
        return self.circle.is_integral

    @cached_property
    def digest(self) -> str:
        """Of the kernel, and the numbers beside it."""
        beside = repr((self.circle.digest, self.beside, self.weight, self.centered))
        return hashlib.sha256(beside.encode()).hexdigest()

    def in_integers(self, bits: int) -> ArcFactor:
        """A kernel of so many bits, and the last row as heavy beside it as it was, or less."""
        circle = self.circle.in_integers(bits)
        scale = math.sqrt(circle.squared_norm / self.circle.squared_norm)
        weight = math.floor(self.weight * scale)
        if not weight:
            raise ResourceExceeded(
                f"a measurement over {self.size:,} ordered values is too large for exact integers: "
                "ask for fewer ways or declare coarser bins"
            )
        return replace(self, circle=circle, weight=weight)

    @property
    def _row(self) -> tuple[int | float, int | float]:
        """The coefficients of the last row on and off the circle."""
        if self.centered:
            return self.weight * self.beside, -self.weight * self.circle.size
        return self.weight, 0

    @cached_property
    def squared_norm(self) -> int | float:
        """Of a cell on the circle or off it."""
        inside, outside = self._row
        return max(self.circle.squared_norm + inside**2, outside**2)

    @property
    def largest(self) -> int:
        """Of the kernel or the last row."""
        return max(self.circle.largest, *(abs(int(entry)) for entry in self._row))

    def answers(self, table: Numbers) -> Numbers:
        """Shape (n, ...) -> (k + 1, ...)."""
        k, (inside, outside) = self.circle.size, self._row
        last = inside * table[:k].sum(axis=0) + outside * table[k:].sum(axis=0)
        return np.concatenate([self.circle.answers(table[:k]), last[None]])

    def estimate(self, answers: Array) -> Array:
        """Shape (k + 1, ...) -> (n, ...)."""
        k, (inside, outside) = self.circle.size, self._step
        on = self.circle.estimate(answers[:k]) + inside * answers[k]
        off = np.broadcast_to(outside * answers[k], (self.beside, *answers.shape[1:]))
        return np.concatenate([on, off])

    @property
    def _step(self) -> tuple[float, float]:
        """What the answer of the last row is multiplied with for a cell on and off the circle."""
        k, b = self.circle.size, self.beside
        if self.centered:
            return 1 / (self.weight * k * (k + b)), -1 / (self.weight * b * (k + b))
        return 1 / (self.weight * k), 0.0

    def restored(self, columns: Array) -> Array:
        """The circle, and what is known of the others: their sum, or nothing."""
        circle = replace(self.circle, kernel=self.circle.kernel.astype(np.float64))
        same = replace(self, circle=circle, weight=float(self.weight))
        return same.estimate(same.answers(columns))

    def variances(self, queries: Queries) -> Array:
        """By the lengths of the arcs, or by the covariance of the circle's cells."""
        by_length = self.arc_variances(queries)
        if by_length is not None:
            return by_length[queries.sums().astype(np.int64)]
        return queries.squares(self.covariance)

    def total(self, queries: Queries) -> float:
        """Of arcs there are as many of every length."""
        by_length = self.arc_variances(queries)
        if by_length is None:
            return float(self.variances(queries).sum())
        return float(self.circle.size * by_length[1:].sum())

    def largest_variance(self, queries: Queries) -> tuple[float, bool]:
        """Exact."""
        by_length = self.arc_variances(queries)
        found = self.variances(queries) if by_length is None else by_length
        return float(found.max()), True

    def arc_variances(self, queries: Queries) -> Array | None:
        """Variance of an arc of 0 .. k cells of the circle; None for other queries."""
        if not _are_arcs(queries, self.circle.size):
            return None
        k, (inside, _) = self.circle.size, self._step
        own = self.circle.arc_variances(Circular(k))
        assert own is not None
        lengths = np.arange(k + 1) * inside
        return self.squared_norm * (own / self.circle.squared_norm + lengths**2)

    def spread(self, block: Array) -> Array:
        """V⁺ times columns, shape (n, k)."""
        k, step = self.circle.size, np.repeat(self._step, [self.circle.size, self.beside])
        found = np.outer(step, step @ block)
        found[:k] += self.circle.spread(block[:k]) / self.circle.squared_norm
        return np.asarray(found * self.squared_norm, dtype=np.float64)


def _are_arcs(queries: Queries, cells: int) -> bool:
    """Whether the queries are all arcs of so many first cells."""
    return isinstance(queries, FirstCells) and queries.queries == Circular(cells)


def solve_arcs(queries: Queries, centered: bool) -> tuple[ArcFactor, float] | None:
    """The optimum for arcs of a circle beside other cells, and its error at privacy cost 1.

    Args:
        queries: None is returned for others.
        centered: for their part in the residual space of the axis, else for the queries themselves.
    """
    if not (isinstance(queries, FirstCells) and isinstance(queries.queries, Circular)):
        return None
    k, n = queries.queries.size, queries.size
    if k < 2 or n == k:
        return None
    spectrum = np.maximum(np.fft.rfft(queries.queries.circulant()).real, 0.0)
    ones = float(spectrum[0])  # 1ᵀG1/k
    inside, outside = (n - k, -k) if centered else (1, 0)
    length = k * inside**2 + (n - k) * outside**2
    mean = ones * k * inside**2 / length  # g
    share = inside**2 / length
    roots = np.sqrt(spectrum[1:])
    whole = 2 * roots.sum() - (roots[-1] if k % 2 == 0 else 0.0)  # Σ√c_f over all but f = 0
    level = 1 / (whole / k + math.sqrt(mean * share / k))
    eta = level * math.sqrt(mean / share / k)
    if eta * outside**2 > length:
        eta = length / outside**2
        level = (1 - eta * share) * k / whole
    circle = make_wave(Ends.PERIODIC, k, np.sqrt(roots * level), balanced=True)
    factor = ArcFactor(circle, n - k, math.sqrt(eta / length), centered)
    return factor, whole / level + mean / eta
