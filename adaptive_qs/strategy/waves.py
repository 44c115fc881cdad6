"""Strategies over many ordered values by convolutions, without a matrix of all cells."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.machine import njit
from adaptive_qs.strategy.integer import Numbers, convolve_exactly
from adaptive_qs.strategy.solution import Array, Factor, circulant_arcs
from adaptive_qs.workload.axes import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.matrices import BLOCK, Queries

# B = K S: cells are multiplied by positive weights S and then convolved with an even kernel t. The
# cells lie on a circle, K_ij = t(i − j) with t of period n, or the line of cells goes on beyond its
# ends by a reflection, K_ij = t(i − j) + t(i + j + 1) with t of period 2n.
#
# So K is symmetric, and diagonal in a basis of sines and cosines: its inverse has the same form,
# and K², whose kernel is t * t, as well. With an integer kernel and integer weights the answers to
# counts are exact, and so is the sensitivity: (K S)ᵀ(K S) has the diagonal S_j² (K²)_jj.
#
# Why this form: the unconstrained optimum V = G^½ of tr(G V⁺), with the centered Gram matrix of
# ranges or prefixes, has these eigenvectors: of ranges on a circle, of prefixes by reflection. The
# diagonal of the latter has peaks at the ends, where the privacy cost would be spent, which
# S = diag(V)^-½ levels. The result is within 1.7 % of the singular value bound. Trees and wavelets
# with the best weight for each level leave 1.45 times the squared error and more.
#
# Only mean-free tables are estimated, and what the mean adds to the columns of a reflected factor
# would be spent in vain. So M = K S − r1ᵀ with an integer vector r near KS1/n − τu, where u is the
# unit vector orthogonal to K S x for all mean-free x: the total is seen in that direction only, by
# so small a τ that it costs nothing, and the least-squares estimate of the table loses its mean
# afterwards. With W = (S K² S)⁻¹ and w = W1 its covariance is W − wwᵀ/(1ᵀw) + qqᵀ: the inverse of
# V on mean-free vectors, and a q that is as small next to it as the rounding of r next to τ.
# Centering the rows in integers instead, K S (nI − 11ᵀ), would take log2 n bits from K and S.


LARGE_AXIS = 1_536
"""Cells of an axis above which it gets such a strategy: a dense optimum takes minutes and GiBs."""
KERNEL_BITS, LEAST_KERNEL_BITS = 20, 6
"""Most and fewest bits of the largest coefficient of an integer kernel."""
SCALE_BITS, LEAST_SCALE_BITS = 12, 3
"""Most and fewest bits of the largest integer weight of a cell."""
LEAST_SPECTRUM = 1e-6
"""Smallest ratio of two eigenvalues of an integer kernel by which estimates can divide."""
LEVELLED = 6
"""Number of steps that level the diagonal of V on mean-free vectors."""
TOTAL_SEEN = 2.0**-9
"""τ as a share of the largest column norm Δ: it adds 4·10⁻⁶ to the cost, and rounding r with
coefficients of b bits adds about 2^(14 − 2b) to the variances."""


def frequencies(size: int, reflected: bool) -> tuple[NDArray[np.int64], int]:
    """Return the positions of the eigenvalues of K among those of a transform, and its period P.

    On a circle frequency 0 is left out and each pair ±f occurs once.
    """
    if reflected:
        return np.arange(size), 2 * size
    return np.arange(1, size // 2 + 1), size


@dataclass(frozen=True, eq=False)
class ConvolutionFactor(Factor):
    """M = K S − r1ᵀ on one axis of very many cells; as a factor its largest column norm is 1.

    Attributes:
        kernel: t(0), t(1), ..., t(P // 2), of floats or of 64-bit integers.
        scales: S, shape (n,), positive, of the same type; all 1 on a circle.
        offset: r, shape (n,), of the same type; None on a circle, where the kernel sums to zero.
    """

    kernel: Numbers
    scales: Numbers
    offset: Numbers | None = None

    is_matrix_free = True
    measured_entries = 0
    spans_residual = True

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.size,)

    @property
    def size(self) -> int:
        """Number of cells, n."""
        return len(self.scales)

    @property
    def is_reflected(self) -> bool:
        """Whether the axis is reflected at its ends, in place of a circle."""
        return len(self.kernel) > self.size

    @property
    def is_integral(self) -> bool:
        """Whether M has integer coefficients, so that answers are exact."""
        return bool(np.issubdtype(self.kernel.dtype, np.integer))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of M's parameters, in hexadecimal digits."""
        digest = hashlib.sha256(repr((self.is_reflected, self.size)).encode())
        for numbers in (self.kernel, self.scales, *([] if self.offset is None else [self.offset])):
            digest.update(numbers.astype("<i8" if self.is_integral else "<f8").tobytes())
        return digest.hexdigest()

    # What is measured.

    @cached_property
    def squared_norm(self) -> int | float:
        """Δ², the largest squared column norm of M; exact for integers."""
        kind = object if self.is_integral else np.float64  # squares may not fit 64 bits
        scales = self.scales.astype(kind)
        norms = scales**2 * self._squares.astype(kind)
        if self.offset is not None:  # ‖M_j‖² = S_j² (K²)_jj − 2 S_j (K r)_j + ‖r‖²
            norms = norms - 2 * scales * self._smooth(self.offset).astype(kind)
            norms = norms + (self.offset.astype(kind) ** 2).sum()
        return norms.max()  # type: ignore[no-any-return]

    @cached_property
    def largest(self) -> int:
        """A bound on the coefficients of M; for integers only."""
        if not self.is_integral:
            return super().largest
        entry = abs(self.kernel[0]) + np.abs(self.kernel[1:]).max(initial=0)
        offset = 0 if self.offset is None else int(np.abs(self.offset).max())
        return int(entry * int(self.scales.max())) + offset

    def answers(self, table: Numbers) -> Numbers:
        """Return M times a table, shape (n, ...) -> (n, ...); exact for integers below 2⁶²."""
        flat = table.reshape(self.size, -1)
        found = self._smooth(self.scales[:, None] * flat)
        if self.offset is not None:
            found = found - self.offset[:, None] * flat.sum(axis=0)
        return found.reshape(table.shape)

    def estimate(self, answers: Array) -> Array:
        """Return the mean-free least-squares table of (noisy) answers, (n, ...) -> (n, ...)."""
        x = self._unsmoothed(answers.reshape(self.size, -1))
        if self.offset is not None:  # x = S⁻¹K⁻¹(y + r total)
            shifts = self._shifts
            x += np.outer(shifts, x.sum(axis=0)) / (1 - shifts.sum())
            x -= x.mean(axis=0)
        return np.asarray(x.reshape(answers.shape), dtype=np.float64)

    def in_integers(self, bits: int) -> ConvolutionFactor:
        """Return the factor with integers, by :func:`integer_wave`."""
        return integer_wave(self, bits)

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
            case Range() if self.is_reflected:
                return self._range_variances(0, self.size)
            case (Range() | Circular()) as arcs if not self.is_reflected:
                return self._prefixes[arcs.sums().astype(np.int64)]
            case others:
                return self._variances_of_rows(others.coefficients)

    def _variances_of_rows(self, rows: Numbers) -> Array:
        found, step = [], max(1, BLOCK // self.size)
        for first in range(0, len(rows), step):
            block = rows[first : first + step].astype(np.float64).T
            found.append(np.einsum("nq,nq->q", block, self.spread(block)))
        return np.maximum(np.concatenate(found), 0.0)

    def _range_variances(self, first: int, stop: int) -> Array:
        """Return the variances of the ranges that begin at cells ``first`` up to ``stop``."""
        n, v, found = self.size, self._prefixes, []
        step = max(1, BLOCK // (4 * n))
        for begin in range(first, stop, step):
            starts = np.arange(begin, min(begin + step, stop))
            common = np.zeros((n + 1, len(starts)))  # covariances of two prefixes
            before = np.arange(n)[:, None] < starts
            np.cumsum(self.spread(before.astype(np.float64)), axis=0, out=common[1:])
            found += [v[a + 1 :] + v[a] - 2 * common[a + 1 :, k] for k, a in enumerate(starts)]
        return np.maximum(np.concatenate(found), 0.0)

    def total(self, queries: Queries) -> float:
        """Return the sum of all variances."""
        n, v = self.size, self._prefixes
        match queries:
            case Range():  # Σ_{a<b} Var(P_b − P_a) over n + 1 prefixes
                line = np.arange(n, 0, -1, dtype=np.float64)
                return float((n + 1) * v.sum() - line @ self.spread(line[:, None])[:, 0])
            case Circular() if not self.is_reflected:  # an arc of every length at each cell
                return float(n * v.sum())
        return float(self.variances([queries]).sum())

    def largest_variance(self, queries: Sequence[Queries]) -> float:
        """Return the largest variance; of very many ranges a bound on it."""
        match queries[0]:
            case Range() | Circular() if not self.is_reflected:
                return float(self._prefixes.max())
            case Range() as ranges if ranges.num_queries > BLOCK:  # differences of two prefixes
                return float(4 * self._prefixes.max())
        return float(self.variances(queries).max())

    def arc_variances(self, queries: Queries) -> Array | None:
        """Return the variances of arcs over all cells if they lie on a circle."""
        is_arc = queries.arc_lengths() is not None and not queries.is_partial
        return self._prefixes if is_arc and not self.is_reflected else None

    def run_variances(
        self, queries: Queries, first: int, stop: int, squares: Callable[[], Array]
    ) -> Array:
        """Return the variances of some runs; of ranges without all others."""
        match queries:
            case Range() if self.is_reflected:
                return self._range_variances(first, stop)
        return super().run_variances(queries, first, stop, squares)

    # As matrices, for what has no other way: a few thousand cells at most.

    @property
    def matrix(self) -> Array:
        """M/Δ, shape (n, n)."""
        unit = np.eye(self.size, dtype=np.int64 if self.is_integral else np.float64)
        return self.answers(unit) / math.sqrt(self.squared_norm)

    @property
    def inverse(self) -> Array:
        """(M/Δ)⁺ as estimates take it, shape (n, n)."""
        return self.estimate(np.eye(self.size)) * math.sqrt(self.squared_norm)

    @property
    def covariance(self) -> Array:
        """V⁺, shape (n, n)."""
        return self.spread(np.eye(self.size))

    def spread(self, block: Array) -> Array:
        """Return V⁺ times columns, shape (n, k)."""
        by = self.scales[:, None]
        x = self._filter(block / by, self._inverse_spectrum**2) / by
        for sign, line in self._beside:
            x = x + np.outer(sign * line, line @ block)
        return np.asarray(x * float(self.squared_norm), dtype=np.float64)

    @cached_property
    def _cells(self) -> Array:
        """Diagonal of V⁺, shape (n,)."""
        kernel = scipy.fft.irfft(self._inverse_spectrum**2, self._period)
        found = self._diagonal(kernel) / self.scales**2
        for sign, line in self._beside:
            found = found + sign * line**2
        return np.maximum(found * float(self.squared_norm), 0.0)

    @cached_property
    def _prefixes(self) -> Array:
        """Variance of the sum of the first 0 .. n cells, shape (n + 1,)."""
        n = self.size
        if not self.is_reflected:
            found = circulant_arcs(scipy.fft.irfft(self._inverse_spectrum**2, n))
        else:
            tau = scipy.fft.irfft(self._inverse_spectrum, self._period)
            near = np.concatenate([tau[n - 1 : 0 : -1], tau[:n]])
            found = np.concatenate([[0.0], _sums(near, tau, self._reciprocal)])
            for sign, line in self._beside:
                found[1:] += sign * np.cumsum(line) ** 2
        return np.maximum(found * float(self.squared_norm), 0.0)

    @cached_property
    def _reciprocal(self) -> Array:
        return 1.0 / self.scales

    @cached_property
    def _beside(self) -> list[tuple[int, Array]]:
        """What V⁺/Δ² is besides W, as squares with signs: −wwᵀ/(1ᵀw) and qqᵀ; none on a circle."""
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
        """Return S⁻¹K⁻¹ times columns, shape (n, k)."""
        return self._filter(columns, self._inverse_spectrum) / self.scales[:, None]

    def with_offset(self) -> ConvolutionFactor:
        """Return the factor with r = KS1/n − τu, rounded for integers."""
        across = self._filter(self._reciprocal[:, None], self._inverse_spectrum)[:, 0]  # K⁻¹S⁻¹1
        seen = TOTAL_SEEN * math.sqrt(self.squared_norm) / math.sqrt(across @ across)
        offset = self._smooth(self.scales) / self.size - seen * across
        return replace(
            self, offset=np.rint(offset).astype(np.int64) if self.is_integral else offset
        )

    # Convolutions.

    @property
    def _period(self) -> int:
        return frequencies(self.size, self.is_reflected)[1]

    @cached_property
    def _full(self) -> Numbers:
        """The kernel over its whole period, shape (P, 1)."""
        return _whole(self.kernel, self._period)[:, None]

    @cached_property
    def spectrum(self) -> Array:
        """Eigenvalues of K, in the order of :func:`frequencies`."""
        where, _ = frequencies(self.size, self.is_reflected)
        return np.asarray(self._transform[where], dtype=np.float64)

    @cached_property
    def _transform(self) -> Array:
        waves = scipy.fft.rfft(self._full[:, 0].astype(np.float64))
        return np.asarray(waves.real, dtype=np.float64)

    @cached_property
    def _inverse_spectrum(self) -> Array:
        """1/κ at the frequencies that are measured, 0 at others, shape (P // 2 + 1,)."""
        inverse = np.zeros(self._period // 2 + 1)
        inverse[frequencies(self.size, self.is_reflected)[0]] = 1 / self.spectrum
        return inverse

    @property
    def _squares(self) -> Numbers:
        """Diagonal of K², shape (n,)."""
        full = self._full
        if self.is_integral:
            return self._diagonal(convolve_exactly(full, full)[:, 0])
        waves = self._transform * scipy.fft.rfft(full[:, 0])
        return self._diagonal(scipy.fft.irfft(waves, self._period))

    def _smooth(self, block: Numbers) -> Numbers:
        """Return K times columns, shape (n, k) or (n,): exact for integers."""
        columns = block.reshape(self.size, -1)
        if self.is_integral:
            found = convolve_exactly(self._full, self._extended(columns))[: self.size]
        else:
            found = self._filter(columns, self._transform)
        return found.reshape(block.shape)

    def _filter(self, columns: Array, response: Array) -> Array:
        """Return columns times a matrix with the eigenvectors of K and other eigenvalues."""
        waves = scipy.fft.rfft(self._extended(np.asarray(columns, dtype=np.float64)), axis=0)
        waves *= response[:, None]
        found = scipy.fft.irfft(waves, self._period, axis=0)[: self.size]
        return np.asarray(found, dtype=np.float64)

    def _extended(self, x: Numbers) -> Numbers:
        """Return one period of columns, as the reflection continues them."""
        return np.concatenate([x, x[::-1]]) if self.is_reflected else x

    def _diagonal(self, kernel: Numbers) -> Numbers:
        """Return the diagonal of the matrix of a kernel, given over its period, shape (n,)."""
        beyond = kernel[1::2] if self.is_reflected else np.zeros(self.size, kernel.dtype)
        return kernel[0] + beyond


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def _sums(near, far, weights):  # type: ignore[no-untyped-def]
    """Return the squared norms of the running sums of the rows of diag(weights) K⁻¹."""
    n = weights.size
    norms = np.zeros(n)
    run = np.empty(1024)
    for first in range(0, n, 1024):
        width = min(1024, n - first)
        run[:] = 0.0
        for b in range(n):
            w = weights[b]
            one = near[first - b + n - 1 : first - b + n - 1 + width]
            other = far[first + b + 1 : first + b + 1 + width]
            square = 0.0
            for i in range(width):
                run[i] += w * (one[i] + other[i])
                square += run[i] * run[i]
            norms[b] += square
    return norms


def _whole(half: Numbers, period: int) -> Numbers:
    """Return an even sequence over its period from its first half."""
    return np.concatenate([half, half[1 : (period + 1) // 2][::-1]])


# How such strategies are made.


def make_wave(size: int, spectrum: Array, reflected: bool) -> ConvolutionFactor:
    """Return the factor whose K has these eigenvalues and whose S levels the diagonal of V.

    Args:
        size: Cells, n.
        spectrum: Positive eigenvalues in the order of :func:`frequencies`.
        reflected: Whether the axis is reflected at its ends, in place of a circle.
    """
    where, period = frequencies(size, reflected)
    response = np.zeros(period // 2 + 1)
    response[where] = spectrum
    kernel = np.asarray(scipy.fft.irfft(response, period)[: period // 2 + 1], dtype=np.float64)
    factor = ConvolutionFactor(kernel, np.ones(size))
    if not reflected:
        return factor
    diagonal = factor._squares
    scales = diagonal**-0.5
    for _ in range(LEVELLED):
        line = scales * factor._smooth(factor._smooth(scales))
        norms = scales**2 * diagonal - 2 * line / size + line.sum() / size**2
        scales = scales / np.sqrt(norms)
    return ConvolutionFactor(kernel, scales).with_offset()


def integer_wave(factor: ConvolutionFactor, bits: int) -> ConvolutionFactor:
    """Return the factor with an integer kernel and weights, coefficients of at most ``bits`` bits.

    Raises:
        ResourceExceeded: Too few bits are left for its many cells.
    """
    kernel_bits, scale_bits = _divided(factor, bits)
    kernel = np.rint(factor.kernel / np.abs(factor.kernel).max() * 2.0**kernel_bits)
    if not factor.is_reflected:
        kernel[0] -= _whole(kernel, factor.size).sum()
    scales = np.rint(factor.scales / factor.scales.max() * 2.0**scale_bits)
    found = ConvolutionFactor(kernel.astype(np.int64), scales.astype(np.int64))
    spectrum = np.abs(found.spectrum)
    if not spectrum.min() > LEAST_SPECTRUM * spectrum.max():
        raise _too_large(factor.size)
    return found.with_offset() if factor.is_reflected else found


def _divided(factor: ConvolutionFactor, bits: int) -> tuple[int, int]:
    """Divide bits between the kernel and the weights so that rounding costs least in all.

    Rounded weights leave the diagonal uneven by about 2^-bits. A rounded kernel adds noise of
    variance P/6 to its eigenvalues, of which the smallest are about 0.6 of its largest value: three
    standard deviations have to be less than that. All sums on the way to the sensitivity have to
    fit 64 bits: ‖t‖₁ ‖r‖∞ bounds them.
    """

    def loss(choice: tuple[int, int]) -> float:
        noise = 0.46 * factor._period * 4.0 ** -choice[0]
        return 2.0 ** -choice[1] + (noise / (1 - 9 * noise) if noise < 0.1 else 100 * noise)

    kernel, most = np.abs(factor.kernel), KERNEL_BITS
    largest, scale_bits = 1.0, range(1)
    if factor.offset is not None:
        # The largest entry of r, by the largest product of a coefficient of t and a weight.
        offset = float(np.abs(factor.offset).max() / kernel.max() / factor.scales.max())
        largest += kernel[1:].max() / kernel.max() + offset
        total = float(np.abs(factor._full).sum() / kernel.max()) + factor._period * 2e-3
        room = 61 - SCALE_BITS - math.log2(total * (offset + 2e-3))
        most, scale_bits = min(most, math.floor(room / 2)), range(LEAST_SCALE_BITS, SCALE_BITS + 1)
    left = math.floor(bits - math.log2(largest))
    choices = [(min(left - s, most), s) for s in scale_bits if left - s >= LEAST_KERNEL_BITS]
    if not choices:
        raise _too_large(factor.size)
    return min(choices, key=loss)


def _too_large(size: int) -> ResourceExceeded:
    return ResourceExceeded(
        f"a measurement over {size:,} ordered values is too large for exact integers: ask for "
        "fewer ways or declare coarser bins"
    )
