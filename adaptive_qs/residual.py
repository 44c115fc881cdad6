"""Every marginal from the measured residuals and a product reference, and the noise it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain, subsets

# The estimate is one signed measure with no interaction, relative to the reference q = ⊗q_i,
# beyond what was measured:
#
#     μ̂_γ = Σ_{τ⊆γ} c_τ ⊗ (⊗_{k∈γ∖τ} q_k)
#     measured τ:    c_τ = z_τ − Σ_{σ⊊τ} c_σ ⊗ (⊗_{k∈τ∖σ} Π_k q_k)
#     unmeasured τ:  c_τ = 0
#
# so every measured residual is matched exactly and all marginals are consistent. With uniform q
# the correction vanishes and this is GReM-MLE (Fuentes et al., Algorithm 3).

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ResidualEstimate:
    """What is known of one residual.

    Attributes:
        values: z_τ in centered form (rows), shaped like the marginal over τ, zero-sum per axis.
        precision: λ_τ = 1 / variance of the noise before centering (1 / rows²).
    """

    values: Array
    precision: float

    def merged(self, values: Array, precision: float) -> ResidualEstimate:
        """Inverse-variance average with an independent measurement (Fuentes et al., Alg. 4)."""
        total = self.precision + precision
        mixed = (self.precision * self.values + precision * values) / total
        return ResidualEstimate(mixed, total)


def uniform_reference(domain: Domain) -> tuple[Array, ...]:
    """The reference of the paper: every value of an attribute equally likely."""
    return tuple(np.full(n, 1.0 / n) for n in domain.sizes)


class ReferenceModel:
    """Current estimates of every marginal over a domain.

    Args:
        domain: the attributes.
        reference: q_i, one strictly positive distribution per attribute.
        estimates: residual estimates to start from.

    Raises:
        ValueError: a reference that is not a strictly positive distribution of the right size.
    """

    def __init__(
        self,
        domain: Domain,
        reference: Sequence[Array],
        estimates: Mapping[Clique, ResidualEstimate] | None = None,
    ) -> None:
        if tuple(q.shape for q in reference) != tuple((n,) for n in domain.sizes):
            raise ValueError("the reference needs one distribution per attribute, of its size")
        if not all(q.min() > 0 and abs(q.sum() - 1) <= 1e-9 for q in reference):
            raise ValueError("each reference distribution must be strictly positive and sum to 1")
        self.domain = domain
        self.reference = tuple(reference)
        self._excess = tuple(q - 1.0 / q.size for q in reference)
        self._uniform = all(not e.any() for e in self._excess)
        self._estimates: dict[Clique, ResidualEstimate] = {}
        self._components: dict[Clique, Array] = {}
        self._around: list[list[Clique]] = [[] for _ in domain.sizes]
        for clique, estimate in sorted((estimates or {}).items(), key=lambda item: len(item[0])):
            self._estimates[clique] = estimate
            self._add_component(clique, self._unexplained(clique, estimate.values))

    @property
    def estimates(self) -> Mapping[Clique, ResidualEstimate]:
        """The estimates of every measured residual (read only)."""
        return self._estimates

    @property
    def total(self) -> float:
        """Estimated number of rows."""
        estimate = self._estimates.get(())
        return float(estimate.values) if estimate else 0.0

    def precision(self, residual: Clique) -> float:
        """λ_τ, zero if τ was not measured (1 / rows²)."""
        estimate = self._estimates.get(residual)
        return estimate.precision if estimate else 0.0

    def update(self, residual: Clique, values: Array, precision: float) -> None:
        """Average in a new measurement of a residual and correct what depends on it.

        Args:
            residual: τ.
            values, precision: as in :class:`ResidualEstimate`.
        """
        values = np.asarray(values, float)
        old = self._estimates.get(residual)
        if old is None:
            estimate = ResidualEstimate(values, precision)
            change = self._unexplained(residual, values)
            self._add_component(residual, change.copy())
        else:
            estimate = old.merged(values, precision)
            change = estimate.values - old.values
            self._components[residual] += change
        self._estimates[residual] = estimate
        if not self._uniform:
            self._propagate(residual, change)

    def component(self, residual: Clique) -> Array | None:
        """c_τ (rows), shaped like the marginal over τ (read only); None if τ was not measured."""
        return self._components.get(residual)

    def _add_component(self, residual: Clique, component: Array) -> None:
        self._components[residual] = component
        for attribute in residual:
            self._around[attribute].append(residual)

    def _unexplained(self, residual: Clique, values: Array) -> Array:
        """z_τ − Σ_{σ⊊τ} c_σ ⊗ excess: what the components inside τ do not say already."""
        remainder = values.copy()
        if not self._uniform:
            for inner in subsets(residual):
                component = self._components.get(inner)
                if component is not None and inner != residual:
                    remainder -= self._extend(component, inner, residual)
        return remainder

    def _propagate(self, residual: Clique, change: Array) -> None:
        """Keep z_τ = c_τ + Σ_{σ⊊τ} c_σ ⊗ excess for measured τ ⊋ residual.

        c_τ moves by k_τ · change ⊗ excess with k_τ = −Σ_{π: residual⊆π⊊τ} k_π.
        """
        inside = set(residual)
        near = min((self._around[i] for i in residual), key=len, default=self._components)
        supersets = [t for t in near if len(t) > len(residual) and inside.issubset(t)]
        factor: dict[Clique, int] = {residual: 1}
        for clique in sorted(supersets, key=len):
            members = set(clique)
            k = -sum(f for below, f in factor.items() if members.issuperset(below))
            factor[clique] = k
            if k:
                self._components[clique] += k * self._extend(change, residual, clique)

    def _extend(self, array: Array, inner: Clique, outer: Clique) -> Array:
        """Outer product of an array over ``inner`` with the excess of every other attribute."""
        for axis, attribute in enumerate(outer):
            if attribute not in inner:
                array = _spread(array, axis, self._excess[attribute])
        return array

    def last_axis_form(self, clique: Clique) -> tuple[Array, Array, Array | None]:
        """The marginal over a clique as A ⊗ q_last + (⊗q) ⊗ c_last + C, without forming it.

        Everything but the returned C is smaller than the marginal by the size of an axis.

        Returns:
            A and ⊗q over the clique without its last attribute, along a first axis of 2; q_last
            and c_last, shape (2, n); and C over the whole clique, or None where no measured
            residual contains the last attribute and another one.
        """
        *rest, last = clique
        front = tuple(rest)
        product: Array = np.ones(())
        for axis, attribute in enumerate(front):
            product = _spread(product, axis, self.reference[attribute])
        q = self.reference[last]
        single = self._components.get((last,), np.zeros(q.size))
        others = self._combine(front, (last,), skipped=(last,))
        return np.stack([self.marginal(front), product]), np.stack([q, single]), others

    def marginal(self, clique: Clique) -> Array:
        """μ̂_γ in rows, shaped like the marginal; may hold negative cells."""
        array = self._combine(clique, ())
        return array if array is not None else np.zeros(self.domain.shape(clique))

    def _combine(self, front: Clique, tail: Clique, skipped: Clique | None = None) -> Array | None:
        """Σ over τ ≠ skipped with tail ⊆ τ ⊆ front ∪ tail of c_τ ⊗ q over the rest of front."""
        if not front:
            component = None if tail == skipped else self._components.get(tail)
            return None if component is None else component.copy()
        *rest, last = front
        without = self._combine(tuple(rest), tail, skipped)
        within = self._combine(tuple(rest), (last, *tail), skipped)
        if without is None:
            return within
        spread = _spread(without, len(rest), self.reference[last])
        if within is not None:
            spread += within
        return spread


def _spread(array: Array, axis: int, factor: Array) -> Array:
    """Outer product with a vector, along a new axis at this position."""
    shape = [1] * (array.ndim + 1)
    shape[axis] = -1
    return np.expand_dims(array, axis) * factor.reshape(shape)


def privacy_cost(domain: Domain, residual: Clique) -> float:
    """p_τ = Π (n_i − 1)/n_i: ρ = p_τ / (2σ²) for residual τ (Fuentes et al., Proposition 4.3)."""
    return math.prod((n - 1) / n for n in domain.shape(residual))


def variance_weight(domain: Domain, residual: Clique, clique: Clique) -> float:
    """Mean variance that unit variance on residual τ adds to a cell of marginal γ ⊇ τ.

    v_τ = Π_{i∈τ} (n_i − 1)/n_i · Π_{j∈γ∖τ} 1/n_j² (Fuentes et al., Proposition 4.4, whose
    total over cells is n_γ times this).
    """
    outside = (1 / n**2 for i, n in zip(clique, domain.shape(clique)) if i not in residual)
    return privacy_cost(domain, residual) * math.prod(outside)


def variance_weights(sizes: NDArray[np.integer]) -> Array:
    """:func:`variance_weight` of every subset of many cliques, in the order of :func:`subsets`.

    Args:
        sizes: n_i of their attributes, shape (cliques, degree).

    Returns:
        Shape (cliques, 2**degree).
    """
    inside, outside = (sizes - 1) / sizes, 1 / sizes.astype(np.float64) ** 2
    weights = []
    for axes in subsets(tuple(range(sizes.shape[1]))):
        cost, rest = np.ones(len(sizes)), np.ones(len(sizes))
        for axis in range(sizes.shape[1]):
            if axis in axes:
                cost = cost * inside[:, axis]
            else:
                rest = rest * outside[:, axis]
        weights.append(cost * rest)
    return np.stack(weights, axis=1)


def decompose(marginal: Array, clique: Clique, residual: Clique) -> Array:
    """The residual over ``residual`` of a marginal over ``clique``, in centered form.

    Along every axis of the residual the mean is removed, the others are summed out (Fuentes et
    al., Algorithm 1 and Table 1); O(|γ| n_γ).

    Args:
        marginal: counts, one axis per attribute of ``clique``.
        clique: γ.
        residual: τ ⊆ γ.

    Returns:
        One axis per attribute of ``residual``; sums to zero along each.
    """
    array = np.asarray(marginal, dtype=np.float64)
    for axis in range(len(clique) - 1, -1, -1):
        if clique[axis] in residual:
            array = array - array.mean(axis=axis, keepdims=True)
        else:
            array = array.sum(axis=axis)
    return array


# How large the noise in a marginal is, from released quantities alone.


def is_measured(
    estimates: Mapping[Clique, ResidualEstimate], clique: Clique, domain: Domain
) -> bool:
    """Whether all that a marginal can tell was measured: every residual in it.

    A residual with an attribute of one code is zero and needs no measurement.
    """
    several = tuple(i for i in clique if domain.sizes[i] > 1)
    return several in estimates and all(tau in estimates for tau in subsets(several))


def group_variance(model: ReferenceModel, attribute: int, codes: int) -> float:
    """Variance of the sum of so many cells of a one-way marginal (rows²).

    Residual noise σ² (I − 11ᵀ/n) adds σ² g (1 − g/n), the number of rows (g/n)² σ₀².
    """
    n = model.domain.sizes[attribute]
    part = codes / n
    return _variance(model, (attribute,)) * codes * (1 - part) + _variance(model, ()) * part**2


def measured_variance(model: ReferenceModel, clique: Clique) -> float:
    """Variance of every cell of a measured marginal (rows²): Fuentes et al., Proposition 4.4."""
    return math.fsum(
        variance_weight(model.domain, tau, clique) * _variance(model, tau)
        for tau in subsets(clique)
    )


def expected_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """Expected L1 distance, in shares of the rows, between a measured marginal and the truth.

    Only noise counts: n_γ √(2/π) standard errors. Signed estimates; a table has no negative
    cells and is a little closer.
    """
    std = math.sqrt(measured_variance(model, clique))
    return model.domain.size(clique) * math.sqrt(2 / math.pi) * std / total


def known_noise_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """The same of any marginal, for the part of it that was measured.

    A measured residual τ enters the estimate with weight
    Σ_{π: τ⊆π⊆γ} k_π (⊗_{π∖τ} excess) ⊗ (⊗_{γ∖π} q), as in :class:`ReferenceModel`, and so does
    its noise. That the reference follows the same noise changes this in the second order only.
    What the unmeasured residuals hold comes on top and is not known to anybody but the owner.
    """
    domain, sizes = model.domain, model.domain.sizes
    measured = [tau for tau in subsets(clique) if tau in model.estimates]
    variance: Array = np.zeros(domain.shape(clique))
    for tau in measured:
        factor: dict[Clique, int] = {tau: 1}
        weight = np.zeros([1 if i in tau else sizes[i] for i in clique])
        for pi in (p for p in measured if set(p) >= set(tau)):
            if pi != tau:
                factor[pi] = -sum(k for below, k in factor.items() if set(below) <= set(pi))
            outer = np.ones([1] * len(clique))  # (⊗_{π∖τ} excess) ⊗ (⊗_{γ∖π} q), 1 along τ
            for axis, i in enumerate(clique):
                if i not in tau:
                    q = model.reference[i]
                    along = [-1 if other == axis else 1 for other in range(len(clique))]
                    outer = outer * (q - 1 / q.size if i in pi else q).reshape(along)
            weight = weight + factor[pi] * outer
        variance += _variance(model, tau) * privacy_cost(domain, tau) * np.square(weight)
    return math.sqrt(2 / math.pi) * float(np.sqrt(variance).sum()) / total


def _variance(model: ReferenceModel, residual: Clique) -> float:
    precision = model.precision(residual)
    return 1 / precision if precision else 0.0
