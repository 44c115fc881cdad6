"""Strategies over many ordered values by reflected convolutions: no matrix of all cells."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import njit
from adaptive_qs.strategy.solution import Array, Factor, circulant_arcs
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import BLOCK, Queries

# B = K S: cells are multiplied by positive weights S and then convolved with an even kernel t, as
# if the axis went on beyond its ends by a reflection:
#
#     K_ij = m (t(i − j) + σ t(i + j + c)),   t of period P.
#
# So K is symmetric, and diagonal in a basis of sines and cosines: its inverse has the same form,
# and K², whose kernel is t * t, as well. With an integer kernel and integer weights the answers to
# counts are exact, and so is the sensitivity: (K S)ᵀ(K S) has the diagonal S_j² (K²)_jj.
#
# Why this form: the unconstrained optimum V = G^½ of tr(G V⁺) for prefixes or ranges has these
# eigenvectors (the Gram matrix is the inverse of a second difference). Its diagonal has peaks at
# the ends, where the privacy cost would be spent; S = diag(V)^-½ levels it. That is within half a
# percent of the optimum, as the dual bounds show (strategy/bounds.py).
#
# On a residual space only mean-free tables are estimated, and what the mean adds to the columns
# would be spent in vain. So M = K S − r1ᵀ with an integer vector r near KS1/n − τu, where u is the
# unit vector orthogonal to K S x for all mean-free x: the total is seen in that direction only, by
# so small a τ that it costs nothing, and the least-squares estimate of the table loses its mean
# afterwards. With W = (S K² S)⁻¹ and w = W1 its covariance is W − wwᵀ/(1ᵀw) + qqᵀ: the inverse of
# V on mean-free vectors, and a q that is as small beside it as the rounding of r is beside τ.
# Centering the rows in integers instead, K S (nI − 11ᵀ), would take log2 n bits from K and S.

Numbers = NDArray[Any]

LARGE_AXIS = 1_536
"""Axes beyond this size get such strategies: a dense optimum takes minutes and many gigabytes."""
KERNEL_BITS, LEAST_KERNEL_BITS = 20, 6
"""Bits of the largest coefficient of an integer kernel."""
SCALE_BITS, LEAST_SCALE_BITS = 12, 3
"""Bits of the largest integer weight of a cell."""
LEAST_SPECTRUM = 1e-6
"""Smallest ratio of two eigenvalues of an integer kernel that can be divided by."""
TRANSFORM_BITS = 12
"""Convolving a and b by transforms of length P in floating point errs by less than
2^TRANSFORM_BITS ε ‖a‖ ‖b‖: three transforms, each in 2-norm by a few ε for each of its log P steps,
three times as many where P has large prime factors."""
LEVELLED = 6
"""Steps that level the diagonal on mean-free vectors."""
TOTAL_SEEN = 2.0**-9
"""τ beside the largest column norm Δ where the total is not meant to be measured: it adds 4·10⁻⁶ to
the cost, and rounding r with coefficients of b bits about 2^(14 − 2b) to the variances."""


class Ends(StrEnum):
    """How a kernel is reflected at the ends of an axis."""

    PERIODIC = "periodic"
    """Not at all: the last cell comes before the first. For ranges beside the total."""
    NEUMANN = "neumann"
    """Even at both ends. For prefixes beside the total."""
    MIXED = "mixed"
    """Even before the first cell and odd after the last. For prefixes with the total."""
    DIRICHLET = "dirichlet"
    """Odd at both ends. For ranges with the total."""


_REFLECTION: dict[Ends, tuple[int, int, int]] = {
    Ends.PERIODIC: (1, 0, 0),
    Ends.NEUMANN: (1, 1, 1),
    Ends.MIXED: (2, 1, 1),
    Ends.DIRICHLET: (1, -1, 2),
}
"""m, σ and c."""


def frequencies(ends: Ends, size: int) -> tuple[NDArray[np.int64], int]:
    """Positions of the eigenvalues of K among those of a transform of period P, and P.

    Those of a periodic kernel leave out frequency 0 and name each pair ±f once.
    """
    n = size
    if ends is Ends.PERIODIC:
        return np.arange(1, n // 2 + 1), n
    if ends is Ends.NEUMANN:
        return np.arange(n), 2 * n
    if ends is Ends.MIXED:
        return np.arange(1, 2 * n, 2), 4 * n + 2
    return np.arange(1, n + 1), 2 * n + 2


@dataclass(frozen=True, eq=False)
class ConvolutionFactor(Factor):
    """K S on one axis of very many cells, used as a factor with largest column norm 1.

    Attributes:
        ends: how the kernel is reflected.
        kernel: t(0), t(1), ..., t(P // 2), of floats or of 64-bit integers.
        scales: S, shape (n,), positive, of the same type; all 1 for a periodic kernel.
        offset: r, shape (n,), of the same type, for estimates of mean-free tables; None for a
            kernel that sums to zero by itself, as periodic ones do, and for tables with their mean.
    """

    ends: Ends
    kernel: Numbers
    scales: Numbers
    offset: Numbers | None = None

    is_matrix_free = True
    measured_entries = 0
    is_finite = True
    spans_residual = True

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.size,)

    @property
    def size(self) -> int:
        """Cells, n."""
        return len(self.scales)

    @property
    def balanced(self) -> bool:
        """Whether mean-free tables are estimated, of any table the part that is."""
        return self.ends is Ends.PERIODIC or self.offset is not None

    @property
    def is_integral(self) -> bool:
        """Whether it can be measured exactly."""
        return bool(np.issubdtype(self.kernel.dtype, np.integer))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that it is, in hexadecimal digits."""
        digest = hashlib.sha256(repr((str(self.ends), self.size, self.balanced)).encode())
        for numbers in (self.kernel, self.scales, *([] if self.offset is None else [self.offset])):
            digest.update(numbers.astype("<i8" if self.is_integral else "<f8").tobytes())
        return digest.hexdigest()

    # What is measured.

    @cached_property
    def squared_norm(self) -> int | float:
        """Δ², the largest squared column norm of M; exact for integers."""
        squares = self._diagonal(self._convolved(self._full)[:, 0])
        kind = object if self.is_integral else np.float64  # squares may not fit 64 bits
        scales = self.scales.astype(kind)
        norms = scales**2 * np.broadcast_to(squares, (self.size,)).astype(kind)
        if self.offset is not None:  # ‖M_j‖² = S_j² (K²)_jj − 2 S_j (K r)_j + ‖r‖²
            norms = norms - 2 * scales * self._smooth(self.offset).astype(kind)
            norms = norms + (self.offset.astype(kind) ** 2).sum()
        return norms.max()  # type: ignore[no-any-return]

    @cached_property
    def largest(self) -> int:
        """A bound on the coefficients of M; for integers only."""
        if not self.is_integral:
            return super().largest
        m, _, _ = _REFLECTION[self.ends]
        others = np.abs(self.kernel[1:]).max(initial=0)
        entry = m * (abs(self.kernel[0]) + others) * int(self.scales.max())
        return int(entry) + (0 if self.offset is None else int(np.abs(self.offset).max()))

    def answers(self, table: Numbers) -> Numbers:
        """M times a table, shape (n, ...) -> (n, ...); exact for integers below 2⁶²."""
        flat = table.reshape(self.size, -1)
        found = self._smooth(self.scales[:, None] * flat)
        if self.offset is not None:
            found = found - self.offset[:, None] * flat.sum(axis=0)
        return found.reshape(table.shape)

    def estimate(self, answers: Array) -> Array:
        """The least-squares table of (noisy) answers, without its mean if balanced.

        Shape (n, ...) -> (n, ...).
        """
        x = self._unsmoothed(answers.reshape(self.size, -1))
        if self.offset is not None:  # x = S⁻¹K⁻¹(y + r total)
            shifts = self._shifts
            x += np.outer(shifts, x.sum(axis=0)) / (1 - shifts.sum())
            x -= x.mean(axis=0)
        return np.asarray(x.reshape(answers.shape), dtype=np.float64)

    def restored(self, columns: Array) -> Array:
        """Estimates from exact answers to columns, in floating point: the columns themselves, or
        what is left without their means."""
        offset = None if self.offset is None else self.offset.astype(np.float64)
        exact = self.kernel.astype(np.float64), self.scales.astype(np.float64), offset
        same = ConvolutionFactor(self.ends, *exact)
        return same.estimate(same.answers(columns))

    # Variances of queries under unit noise on the answers of M/Δ.

    def variances(self, queries: Sequence[Queries | None]) -> Array:
        """Return the variance of every query's answer, shape (m,)."""
        match queries[0]:
            case None:
                return np.asarray(self.spread(np.ones((self.size, 1))).sum())
            case Marginal():
                return self._cells
            case Prefix():
                return self._prefixes[1:]
            case Range() | Circular() as arcs:
                blocks = arc_blocks(self, arcs, 0, self.size)
                return np.concatenate([block for _, block in blocks])
            case others:
                return self._variances_of_rows(others.coefficients)

    def _variances_of_rows(self, rows: Numbers) -> Array:
        found = []
        for first in range(0, len(rows), max(1, BLOCK // self.size)):
            block = rows[first : first + max(1, BLOCK // self.size)].astype(np.float64).T
            found.append(np.einsum("nq,nq->q", block, self.spread(block)))
        return np.maximum(np.concatenate(found), 0.0)

    def figures(
        self, queries: Sequence[Queries | None], squares: Callable[[], Array]
    ) -> tuple[float, float, bool]:
        """Return them without one number for each query where that is possible."""
        (of,) = queries
        if of is None:
            return super().figures(queries, squares)
        return self.total(of), *self._largest_variance(of)

    def largest_variance(self, queries: Sequence[Queries]) -> float:
        """Return the largest variance, or a bound on it."""
        return self._largest_variance(queries[0])[0]

    def total(self, queries: Queries) -> float:
        """Return the sum of all variances."""
        n, v = self.size, self._prefixes
        match queries:
            case Range():  # Σ_{a<b} Var(P_b − P_a) over n + 1 prefixes
                line = np.arange(n, 0, -1, dtype=np.float64)
                return float((n + 1) * v.sum() - line @ self.spread(line[:, None])[:, 0])
            case Circular() if self.balanced:  # twice that over n of them
                line = np.arange(n - 1, -1, -1, dtype=np.float64)
                return float(2 * (n * v[:n].sum() - line @ self.spread(line[:, None])[:, 0]))
        return float(self.variances([queries]).sum())

    def _largest_variance(self, queries: Queries) -> tuple[float, bool]:
        """Return the largest variance, and whether it is exact or a bound."""
        match queries:
            case Range() | Circular() if self.ends is Ends.PERIODIC:
                return float(self._prefixes.max()), True
            case Range() | Circular() if queries.num_queries > BLOCK:  # of two prefixes
                return float(4 * self._prefixes.max()), False
        return float(self.variances([queries]).max()), True

    def arc_variances(self, queries: Queries) -> Array | None:
        """Return the variances of arcs over all cells if the kernel is periodic."""
        periodic = self.ends is Ends.PERIODIC and not queries.is_partial
        return self._prefixes if periodic and queries.arc_lengths() is not None else None

    def run_variances(
        self, queries: Queries, first: int, stop: int, squares: Callable[[], Array]
    ) -> Array:
        """Return the variances of some runs; of ranges and circles without all others."""
        match queries:
            case Range() | Circular() if self.arc_variances(queries) is None:
                blocks = arc_blocks(self, queries, first, stop)
                return np.concatenate([block for _, block in blocks])
        return super().run_variances(queries, first, stop, squares)

    def in_integers(self, bits: int) -> ConvolutionFactor:
        """By :func:`integer_wave`."""
        return integer_wave(self, bits)

    # As matrices, for what has no other way: a few thousand cells at most.

    @property
    def matrix(self) -> Array:
        """M/Δ, shape (n, n)."""
        unit = np.eye(self.size, dtype=np.int64 if self.is_integral else np.float64)
        return self.answers(unit) / math.sqrt(self.squared_norm)

    @property
    def inverse(self) -> Array:
        """(M/Δ)⁺ as estimates take it, shape (n, n)."""
        return self.estimate(np.eye(len(self.matrix))) * math.sqrt(self.squared_norm)

    @property
    def covariance(self) -> Array:
        """V⁺, shape (n, n)."""
        return self.spread(np.eye(self.size))

    def spread(self, block: Array) -> Array:
        """V⁺ times columns, shape (n, k)."""
        by = self.scales[:, None]
        x = self._filter(block / by, self._inverse_spectrum**2) / by
        for sign, line in self._beside:
            x = x + np.outer(sign * line, line @ block)
        return np.asarray(x * float(self.squared_norm), dtype=np.float64)

    @cached_property
    def _cells(self) -> Array:
        """Diagonal of V⁺, shape (n,)."""
        found = (
            self._diagonal(scipy.fft.irfft(self._inverse_spectrum**2, self._period))
            / self.scales**2
        )
        for sign, line in self._beside:
            found = found + sign * line**2
        return np.maximum(found * float(self.squared_norm), 0.0)

    @cached_property
    def _prefixes(self) -> Array:
        """Variance of the sum of the first 0 .. n cells, shape (n + 1,)."""
        n = self.size
        if self.ends is Ends.PERIODIC:
            found = circulant_arcs(scipy.fft.irfft(self._inverse_spectrum**2, n))
        else:
            m, sigma, c = _REFLECTION[self.ends]
            tau = scipy.fft.irfft(self._inverse_spectrum, self._period)
            both = np.concatenate([tau[n - 1 : 0 : -1], tau[:n]])
            sums = _sums(both, tau[: 2 * n + c], m, sigma, c, self._reciprocal)
            found = np.concatenate([[0.0], sums])
            for sign, line in self._beside:
                found[1:] += sign * np.cumsum(line) ** 2
        return np.maximum(found * float(self.squared_norm), 0.0)

    @cached_property
    def _reciprocal(self) -> Array:
        return 1.0 / self.scales

    @cached_property
    def _beside(self) -> list[tuple[int, Array]]:
        """V⁺/Δ² is W plus these squares with their signs: −wwᵀ/(1ᵀw) and qqᵀ; none for others."""
        if self.offset is None:
            return []
        ones = self._reciprocal[:, None]
        lost = (self._filter(ones, self._inverse_spectrum**2) * ones)[:, 0]  # w
        root, shifts = math.sqrt(lost.sum()), self._shifts
        rounded = root * (shifts / (1 - shifts.sum()) + lost / lost.sum())
        return [(-1, lost / root), (1, rounded - rounded.mean())]

    @cached_property
    def _shifts(self) -> Array:
        """S⁻¹K⁻¹r, shape (n,)."""
        assert self.offset is not None
        return self._unsmoothed(self.offset.astype(np.float64)[:, None])[:, 0]

    def _unsmoothed(self, columns: Array) -> Array:
        """S⁻¹K⁻¹ times columns, shape (n, k)."""
        return self._filter(columns, self._inverse_spectrum) / self.scales[:, None]

    def with_offset(self) -> ConvolutionFactor:
        """For estimates of mean-free tables: with r = KS1/n − τu, rounded for integers."""
        across = self._filter(self._reciprocal[:, None], self._inverse_spectrum)[:, 0]  # K⁻¹S⁻¹1
        seen = TOTAL_SEEN * math.sqrt(self.squared_norm) / math.sqrt(across @ across)
        offset = self._smooth(self.scales) / self.size - seen * across
        if self.is_integral:
            offset = np.rint(offset).astype(np.int64)
        return replace(self, offset=offset)

    # Convolutions.

    @property
    def _period(self) -> int:
        return frequencies(self.ends, self.size)[1]

    @cached_property
    def _full(self) -> Numbers:
        """The kernel over its whole period, shape (P, 1)."""
        return _whole(self.kernel, self._period)[:, None]

    @cached_property
    def spectrum(self) -> Array:
        """Eigenvalues of K, in the order of :func:`frequencies`."""
        return np.asarray(self._transform[frequencies(self.ends, self.size)[0]], dtype=np.float64)

    @cached_property
    def _transform(self) -> Array:
        return np.asarray(
            scipy.fft.rfft(self._full[:, 0].astype(np.float64)).real, dtype=np.float64
        )

    @cached_property
    def _inverse_spectrum(self) -> Array:
        """1/κ at the frequencies that are measured, 0 at others, shape (P // 2 + 1,)."""
        inverse = np.zeros(self._period // 2 + 1)
        where = frequencies(self.ends, self.size)[0]
        inverse[where] = 1 / self._transform[where]
        return inverse

    def _smooth(self, block: Numbers) -> Numbers:
        """K times columns, shape (n, k) or (n,): exact for integers."""
        columns = block.reshape(self.size, -1)
        if not self.is_integral:
            return self._filter(columns, self._transform).reshape(block.shape)
        return self._convolved(self._extended(columns))[: self.size].reshape(block.shape)

    def _convolved(self, extended: Numbers) -> Numbers:
        """The kernel convolved with columns of one period."""
        if self.is_integral:
            return _convolve_exactly(self._full, extended)
        return scipy.fft.irfft(
            self._transform[:, None] * scipy.fft.rfft(extended, axis=0), self._period, axis=0
        )

    def _filter(self, columns: Array, response: Array) -> Array:
        """Columns times a matrix with the eigenvectors of K and other eigenvalues."""
        waves = scipy.fft.rfft(self._extended(np.asarray(columns, dtype=np.float64)), axis=0)
        waves *= response[:, None]
        return np.asarray(
            scipy.fft.irfft(waves, self._period, axis=0)[: self.size], dtype=np.float64
        )

    def _extended(self, x: Numbers) -> Numbers:
        """One period of columns, as the reflection continues them."""
        zero = np.zeros((1, x.shape[1]), dtype=x.dtype)
        match self.ends:
            case Ends.PERIODIC:
                return x
            case Ends.NEUMANN:
                return np.concatenate([x, x[::-1]])
            case Ends.MIXED:
                return np.concatenate([x, zero, -x[::-1], -x, zero, x[::-1]])
            case Ends.DIRICHLET:
                return np.concatenate([x, zero, -x[::-1], zero])

    def _diagonal(self, kernel: Numbers) -> Numbers:
        """Diagonal of the matrix of such a kernel, given over its period, shape (n,)."""
        m, sigma, c = _REFLECTION[self.ends]
        return m * (kernel[0] + sigma * kernel[2 * np.arange(self.size) + c if sigma else 0])


def arc_blocks(
    factor: ConvolutionFactor, queries: Queries, first: int, stop: int
) -> Iterator[tuple[range, Array]]:
    """Variances of the ranges or arcs that begin at cells ``first`` up to ``stop``, in order.

    Yields some starts at a time, and the variances of theirs.
    """
    n, v = factor.size, factor._prefixes
    circle = isinstance(queries, Circular)
    if factor.ends is Ends.PERIODIC:
        for a in range(first, stop):
            yield range(a, a + 1), v[1 : n + 1 if circle else n - a + 1]
        return
    whole = np.zeros(n + 1)
    whole[1:] = np.cumsum(factor.spread(np.ones((n, 1)))[:, 0])
    step = max(1, BLOCK // (4 * n))
    for begin in range(first, stop, step):
        starts = range(begin, min(begin + step, stop))
        before = np.arange(n)[:, None] < np.arange(starts.start, starts.stop)
        common = np.zeros((n + 1, len(starts)))
        np.cumsum(factor.spread(before.astype(np.float64)), axis=0, out=common[1:])
        found = []
        for k, a in enumerate(starts):
            apart = np.maximum(v + v[a] - 2 * common[:, k], 0.0)
            found.append(apart[a + 1 :])
            if circle:  # all, less what lies between the end and the start
                rest = v[n] + apart[1 : a + 1] + 2 * (whole[1 : a + 1] - whole[a])
                found.append(np.maximum(rest, 0.0))
        yield starts, np.concatenate(found)


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _sums(near, far, m, sigma, c, weights):  # type: ignore[no-untyped-def]
    """Squared norms of the running sums of the rows of diag(weights) K⁻¹, by runs of columns."""
    n = weights.size
    norms = np.zeros(n)
    run = np.empty(1024)
    for first in range(0, n, 1024):
        width = min(1024, n - first)
        run[:] = 0.0
        for b in range(n):
            w = weights[b] * m
            one = near[first - b + n - 1 : first - b + n - 1 + width]
            other = far[first + b + c : first + b + c + width]
            square = 0.0
            for i in range(width):
                run[i] += w * (one[i] + sigma * other[i])
                square += run[i] * run[i]
            norms[b] += square
    return norms


def _whole(half: Numbers, period: int) -> Numbers:
    """An even sequence over its period from its first half."""
    return np.concatenate([half, half[1 : (period + 1) // 2][::-1]])


def _convolve_exactly(kernel: Numbers, columns: Numbers) -> Numbers:
    """Circular convolution of integers along the first axis, exact where the result fits 64 bits.

    Parts of so few bits are convolved in floating point that the error stays below 1/8, and then
    rounded; their sums wrap around modulo 2⁶⁴, so only the result has to fit.
    """
    period = len(columns)
    # ‖a‖ ‖b‖ ≤ 2^(2 bits − 2) P, and ε = 2^-53.
    bits = 1 + (50 - TRANSFORM_BITS - math.ceil(math.log2(period))) // 2
    waves = [[scipy.fft.rfft(limb, axis=0) for limb in _limbs(x, bits)] for x in (kernel, columns)]
    result = np.zeros(columns.shape, dtype=np.int64)
    for i, one in enumerate(waves[0]):
        for j, other in enumerate(waves[1]):
            part = np.rint(scipy.fft.irfft(one * other, period, axis=0)).astype(np.int64)
            if bits * (i + j) < 64:
                result += part << np.int64(bits * (i + j))
    return result


def _limbs(x: Numbers, bits: int) -> list[Array]:
    """Σ 2^(bits k) limb_k, each at most half of 2^bits large."""
    limbs, rest, half = [], x.astype(np.int64), 1 << (bits - 1)
    while True:
        low = ((rest + half) & ((1 << bits) - 1)) - half
        limbs.append(low.astype(np.float64))
        rest = (rest - low) >> bits
        if not rest.any():
            return limbs


# How such strategies are made.


def make_wave(ends: Ends, size: int, spectrum: Array, balanced: bool = False) -> ConvolutionFactor:
    """K with these eigenvalues, and S that levels the diagonal of V.

    Args:
        ends: of the kernel.
        size: cells.
        spectrum: positive, in the order of :func:`frequencies`.
        balanced: for a residual space; a periodic kernel is for no other.
    """
    where, period = frequencies(ends, size)
    response = np.zeros(period // 2 + 1)
    response[where] = spectrum
    kernel = np.asarray(scipy.fft.irfft(response, period)[: period // 2 + 1], dtype=np.float64)
    factor = ConvolutionFactor(ends, kernel, np.ones(size))
    if ends is Ends.PERIODIC:
        return factor
    diagonal = factor._diagonal(factor._convolved(factor._full)[:, 0])
    scales = diagonal**-0.5
    for _ in range(LEVELLED if balanced else 0):
        twice = factor._smooth(factor._smooth(scales))
        line = scales * twice
        norms = scales**2 * diagonal - 2 * line / size + line.sum() / size**2
        scales = scales / np.sqrt(norms)
    factor = ConvolutionFactor(ends, kernel, scales)
    return factor.with_offset() if balanced else factor


def integer_wave(factor: ConvolutionFactor, bits: int) -> ConvolutionFactor:
    """The factor with integer kernel and weights whose coefficients have at most so many bits.

    Raises:
        ResourceExceeded: too few bits are left for its many cells.
    """
    kernel_bits, scale_bits = _divided(factor, bits)
    kernel = np.rint(factor.kernel / np.abs(factor.kernel).max() * 2.0**kernel_bits)
    if factor.ends is Ends.MIXED:  # t(2n + 1 − d) = −t(d)
        kernel[factor.size + 1 :] = -kernel[factor.size :: -1]
    if factor.ends is Ends.PERIODIC:
        kernel[0] -= _whole(kernel, factor.size).sum()
    scales = np.rint(factor.scales / factor.scales.max() * 2.0**scale_bits)
    found = ConvolutionFactor(factor.ends, kernel.astype(np.int64), scales.astype(np.int64))
    spectrum = np.abs(found.spectrum)
    if not spectrum.min() > LEAST_SPECTRUM * spectrum.max():
        _refuse(factor.size)
    return found if factor.offset is None else found.with_offset()


def _divided(factor: ConvolutionFactor, bits: int) -> tuple[int, int]:
    """Bits of the kernel and of the weights, whose rounding costs about as much in all as can be.

    Rounded weights leave the diagonal uneven by about 2^-bits. A rounded kernel adds noise of
    variance P/6 to its eigenvalues, of which the smallest are about 0.6 of its largest value: three
    standard deviations have to be less than that.
    """

    def loss(of: tuple[int, int]) -> float:
        noise = 0.46 * factor._period * 4.0 ** -of[0]
        return 2.0 ** -of[1] + (noise / (1 - 9 * noise) if noise < 0.1 else 100 * noise)

    m, sigma, _ = _REFLECTION[factor.ends]
    kernel = np.abs(factor.kernel)
    largest = m * (1 + abs(sigma) * kernel[1:].max() / kernel.max()) + _offset(factor)
    left = bits - math.log2(largest)
    most = min(KERNEL_BITS, _most_kernel_bits(factor))
    if factor.ends is Ends.PERIODIC:
        choices = [(math.floor(left), 0)]
    else:
        choices = [(math.floor(left) - s, s) for s in range(LEAST_SCALE_BITS, SCALE_BITS + 1)]
    choices = [(min(k, most), s) for k, s in choices if k >= LEAST_KERNEL_BITS]
    if not choices:
        _refuse(factor.size)
    return min(choices, key=loss)


def _most_kernel_bits(factor: ConvolutionFactor) -> int:
    """So that all sums on the way to the sensitivity fit 64 bits: ‖t‖₁ ‖r‖∞ bounds them."""
    if factor.offset is None:
        return KERNEL_BITS
    total = float(np.abs(factor._full).sum() / np.abs(factor.kernel).max()) + factor._period * 2e-3
    return math.floor((61 - SCALE_BITS - math.log2(total * (_offset(factor) + 2e-3))) / 2)


def _offset(factor: ConvolutionFactor) -> float:
    """The largest entry of r, beside the largest products of a coefficient of t and a weight."""
    if factor.offset is None:
        return 0.0
    return float(np.abs(factor.offset).max() / np.abs(factor.kernel).max() / factor.scales.max())


def _refuse(size: int) -> None:
    raise ResourceExceeded(
        f"a measurement over {size:,} ordered values is too large for exact integers: ask for "
        "fewer ways or declare coarser bins"
    )
