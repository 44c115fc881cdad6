"""Every marginal from the measured residuals and a product reference, and the noise it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain

# The estimate is one signed measure without interactions, relative to the reference q = ⊗q_i,
# beyond the measured ones:
#
#     μ̂_γ = Σ_{τ⊆γ} c_τ ⊗ (⊗_{k∈γ∖τ} q_k)
#     measured τ:    c_τ = z_τ − R_τ (μ̂_τ without c_τ)
#     unmeasured τ:  c_τ = 0
#
# where R_τ takes the residual of a marginal: it centers along every axis. So every measured
# residual is matched exactly and all marginals are consistent. With uniform q all c_τ are z_τ and
# this is GReM-MLE (Fuentes et al., Algorithm 3).
#
# With levels (:mod:`adaptive_qs.levels`), τ ⊆ γ means that τ has some of the attributes of γ, each
# at its level in γ or a coarser one; centering takes the means of groups of the next coarser level;
# and c_τ spreads within a group by the reference, as it does over all codes of an attribute outside
# τ.

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ResidualEstimate:
    """An estimate of one residual.

    Attributes:
        values: z_τ in centered form (rows), shaped like the marginal over τ, zero-sum per axis.
        precision: λ_τ = 1 / variance of the noise before centering (1 / rows²).
    """

    values: Array
    precision: float

    def merged(self, values: Array, precision: float) -> ResidualEstimate:
        """Average with an independent measurement by inverse variance (Fuentes et al., Alg. 4)."""
        total = self.precision + precision
        return ResidualEstimate((self.precision * self.values + precision * values) / total, total)


def uniform_reference(domain: Domain) -> tuple[Array, ...]:
    """Return the reference of the paper: every value of an attribute equally likely."""
    return tuple(np.full(n, 1.0 / n) for n in domain.sizes)


Fill = tuple[Clique, Array]
"""For the interaction of a pair: its levels, and joint shares less products of single ones."""


class ReferenceModel:
    """Current estimates of every marginal over a domain.

    Args:
        domain: the attributes, with their levels.
        reference: q_i, one strictly positive distribution per attribute.
        estimates: residual estimates to start from.
        column_noise: for attributes whose own residual is measured by a strategy, the covariance of
            its noise at precision 1, shape (n, n) and with trace n − 1. All other residuals have
            ⊗(I − 11ᵀ/n).

    Attributes:
        copula: by pair of attributes, joint shares of codes over products, for pairs in a fit of
            which no marginal was measured.

    Raises:
        ValueError: a reference is no strictly positive distribution of the right size.
    """

    def __init__(
        self,
        domain: Domain,
        reference: Sequence[Array],
        estimates: Mapping[Clique, ResidualEstimate] | None = None,
        column_noise: Mapping[int, Array] | None = None,
    ) -> None:
        if tuple(q.shape for q in reference) != tuple((n,) for n in domain.sizes):
            raise ValueError("the reference needs one distribution per attribute, of its size")
        if not all(q.min() > 0 and abs(q.sum() - 1) <= 1e-9 for q in reference):
            raise ValueError("each reference distribution must be strictly positive and sum to 1")
        self.domain = domain
        self.reference = tuple(reference)
        self.column_noise = dict(column_noise or {})
        self.copula: Mapping[Clique, Array] = {}
        self._uniform = not domain.groupings and all(np.ptp(q) == 0 for q in reference)
        codes = [domain.columns((i,))[0] for i in range(domain.positions)]
        self._shares = [
            reference[code] if i == code else domain.groups(code, i).sums(reference[code], 0)
            for i, code in enumerate(codes)
        ]
        self._estimates: dict[Clique, ResidualEstimate] = {}
        self._over: dict[Clique, list[Clique]] = {}
        self._around: list[list[Clique]] = [[] for _ in domain.sizes]
        # Components are cached until they change.
        self._own: dict[Clique, Array] = {}
        self._sums: dict[Clique, dict[Clique, Array | None]] = {}
        self.fill: Mapping[Clique, Fill] = {}
        for clique, estimate in (estimates or {}).items():
            self._add(clique, estimate)

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
        """Return λ_τ (1 / rows²), zero if τ was not measured."""
        estimate = self._estimates.get(residual)
        return estimate.precision if estimate else 0.0

    def shares(self, position: int) -> Array:
        """Return the reference share of each group of an attribute's level (read only)."""
        return self._shares[position]

    @cached_property
    def flat_shares(self) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
        """The references at all levels in one array, then one of a single group (read only).

        These are the number of groups of each, all shares, and where each begins.
        """
        reference = [*self._shares, np.ones(1)]
        sizes = np.array([q.size for q in reference])
        return sizes, np.concatenate(reference), np.concatenate([[0], np.cumsum(sizes)])

    def holds(self, clique: Clique) -> bool:
        """Return whether a residual of these attributes was measured, at any coarser levels."""
        over = self._over.get(self.domain.columns(clique), ())
        return clique in over or any(self.domain.is_below(residual, clique) for residual in over)

    def update(self, residual: Clique, values: Array, precision: float) -> None:
        """Average in a measurement of τ: centered values z_τ (rows), precision λ_τ (1 / rows²)."""
        estimate = ResidualEstimate(np.array(values, dtype=np.float64), precision)
        old = self._estimates.get(residual)
        if old is None:
            self._add(residual, estimate)
        else:
            self._estimates[residual] = old.merged(estimate.values, precision)
        columns = set(self.domain.columns(residual))
        near = min((self._around[i] for i in columns), key=len, default=self._over)
        for above in [c for c in near if columns.issubset(c)]:
            for measured in self._over[above]:
                if self.fill or self.domain.is_below(residual, measured):
                    self._own.pop(measured, None)
            self._sums.pop(above, None)

    def _add(self, residual: Clique, estimate: ResidualEstimate) -> None:
        self._estimates[residual] = estimate
        columns = self.domain.columns(residual)
        if columns not in self._over:
            self._over[columns] = []
            for attribute in columns:
                self._around[attribute].append(columns)
        self._over[columns].append(residual)

    def component(self, clique: Clique) -> Array | None:
        """Return the measured interaction of a clique's attributes (rows); None if none was.

        Without levels that is c_τ; with levels, the sum of the components at these levels and
        coarser ones. Shaped like the marginal, read only.
        """
        columns = self.domain.columns(clique)
        over = self._over.get(columns)
        if over is None:
            return self._filled(columns, clique)
        if len(clique) < 2:
            return self._single(clique)
        if over == [clique]:
            return self._own_component(clique)
        kept = self._sums.setdefault(columns, {}) if len(clique) == 2 else {}
        if clique not in kept:
            kept[clique] = self._sum([t for t in over if self.domain.is_below(t, clique)], clique)
        return kept[clique]

    def fill_with(self, fill: Mapping[Clique, Fill]) -> None:
        """Set the interactions of the pairs of attributes that no measurement covers."""
        self.fill = fill
        self._own = {tau: own for tau, own in self._own.items() if len(tau) < 3}

    def _filled(self, columns: Clique, clique: Clique) -> Array | None:
        if columns not in self.fill:
            return None
        levels, shares = self.fill[columns]
        coarse = tuple(k if k in self.domain.chain(i) else i for i, k in zip(levels, clique))
        return self._spread(self.domain.summed(self.total * shares, levels, coarse), coarse, clique)

    def _single(self, clique: Clique) -> Array:
        """Return the component of one attribute, which is measured at its codes, or of none."""
        columns = self.domain.columns(clique)
        return self.domain.summed(self._own_component(columns), columns, clique)

    def _sum(self, residuals: Sequence[Clique], clique: Clique) -> Array | None:
        total: Array | None = None
        for residual in residuals:
            spread = self._spread(self._own_component(residual), residual, clique)
            total = spread if total is None else total + spread
        return total

    def _spread(self, array: Array, residual: Clique, clique: Clique) -> Array:
        """Divide an array over groups among the groups of a clique by the reference."""
        array = self.domain.repeated(array, residual, clique)
        for axis, (coarse, fine) in enumerate(zip(residual, clique)):
            if coarse != fine:
                group = self.domain.repeated(self.shares(coarse), (coarse,), (fine,))
                along = [-1 if other == axis else 1 for other in range(len(clique))]
                array = array * (self.shares(fine) / group).reshape(along)
        return array

    def _own_component(self, residual: Clique) -> Array:
        """Return c_τ of a measured residual."""
        found = self._own.get(residual)
        if found is None:
            found = self._estimates[residual].values
            if not self._uniform and residual:
                rest = self._combine(residual, (), own=False)
                if rest is not None:
                    found = found - centered(rest, self.domain, residual)
            self._own[residual] = found
        return found

    def marginal(self, clique: Clique) -> Array:
        """Return μ̂_γ (rows), shaped like the marginal; cells can be negative."""
        array = self._combine(clique, ())
        return array if array is not None else np.zeros(self.domain.shape(clique))

    def _combine(self, front: Clique, tail: Clique, own: bool = True) -> Array | None:
        """Sum the spread components of all τ inside a clique that contain its tail.

        Without ``own`` the component of the whole clique does not count.
        """
        if not front:
            component = self._component(tail, own)
            return None if component is None else component.copy()
        *rest, last = front
        without = self._combine(tuple(rest), tail)
        within = self._combine(tuple(rest), (last, *tail), own)
        if without is None:
            return within
        spread = _outer(without, len(rest), self.shares(last))
        if within is not None:
            spread += within
        return spread

    def _component(self, clique: Clique, own: bool) -> Array | None:
        if own:
            return self.component(clique)
        over = self._over.get(self.domain.columns(clique), ())
        coarser = [t for t in over if t != clique and self.domain.is_below(t, clique)]
        return self._sum(coarser, clique)


def _outer(array: Array, axis: int, factor: Array) -> Array:
    shape = [1] * (array.ndim + 1)
    shape[axis] = -1
    return np.expand_dims(array, axis) * factor.reshape(shape)


def centered(array: Array, domain: Domain, residual: Clique) -> Array:
    """Return the residual of a marginal over its own attributes.

    Along every axis the mean is removed: of all codes, or of groups of the next coarser level.
    """
    for axis, groups in enumerate(domain.parents(residual)):
        array = groups.centered(array, axis)
    return array


def privacy_cost(domain: Domain, residual: Clique) -> float:
    """Return p_τ = Π (m_i − 1)/m_i: ρ = p_τ / (2σ²) for residual τ.

    m_i is the largest number of groups of attribute i's level in a group of the next coarser level;
    without levels, n_i (Fuentes et al., Proposition 4.3; docs/proofs.md, section 3).
    """
    return math.prod((m - 1) / m for m in (g.largest for g in domain.parents(residual)))


def variance_weight(domain: Domain, residual: Clique, clique: Clique) -> float:
    """Return the mean variance of a cell of marginal γ from unit variance on residual τ below γ.

    Without levels v_τ = Π_{i∈τ} (n_i − 1)/n_i · Π_{j∈γ∖τ} 1/n_j² (Fuentes et al., Proposition
    4.4, whose total over cells is n_γ times this). With levels, the weight of the number of rows is
    approximate; :func:`measured_variance` has it exactly.
    """
    held = dict(zip(domain.columns(residual), residual))
    return math.prod(
        axis_weight(domain, position, held.get(column), len(residual) == 1)
        for position, column in zip(clique, domain.columns(clique))
    )


def axis_weight(domain: Domain, position: int, level: int | None, single: bool) -> float:
    """Return one attribute's factor of :func:`variance_weight`."""
    return float(axis_variances(domain, position, level, single).mean())


def axis_variances(domain: Domain, position: int, level: int | None, single: bool) -> Array:
    """Return the variance of each group of a clique's level from unit variance on a residual's.

    A residual's part of a group is divided equally among the groups within it, level by level,
    since finer residuals describe everything beyond that. A ``single`` column, the only one of the
    residual, is measured at its codes, and a group has the sum over its codes. ``position`` is that
    of the attribute in the clique, ``level`` the attribute in the residual; None if it is not
    there. The shape is (groups,), or (1,) if all are equal.
    """
    if single and level is not None:
        inside = _codes_in(domain, position)
        return inside * (1 - inside / domain.sizes[level])
    variances: Array = np.ones(1)
    for finer, coarser in pairwise((*domain.chain(position), None)):
        assert finer is not None
        groups = domain.groups(finer, coarser)
        alike = groups.sizes[groups.of]
        if groups.sizes.size == 1:
            alike = alike[:1]
        elif finer != position:
            alike = alike[domain.groups(position, finer).of]
        if finer == level:
            return variances * (1 - 1 / alike)
        variances = variances / alike.astype(np.float64) ** 2
    return variances


def decompose(marginal: Array, clique: Clique, residual: Clique) -> Array:
    """Return the residual τ ⊆ γ of a marginal over the clique γ, in centered form; no levels.

    Along every axis of τ the mean is removed, the others are summed out (Fuentes et al., Algorithm
    1 and Table 1); O(|γ| n_γ).
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
    """Return whether every residual in a marginal was measured.

    A residual with an attribute of one code is zero and needs no measurement.
    """
    several = tuple(i for i, n in zip(clique, domain.shape(clique)) if n > 1)
    return several in estimates and all(tau in estimates for tau in domain.below(several))


def group_variance(model: ReferenceModel, attribute: int, codes: Sequence[int]) -> float:
    """Return the variance of the sum of some cells of a one-way marginal (rows²).

    Residual noise σ² (I − 11ᵀ/n) adds σ² g (1 − g/n), noise of covariance σ² C the sum of C over
    the codes, and the number of rows (g/n)² σ₀².
    """
    part = len(codes) / model.domain.sizes[attribute]
    shape = model.column_noise.get(attribute)
    chosen = list(codes)
    own = len(codes) * (1 - part) if shape is None else float(shape[np.ix_(chosen, chosen)].sum())
    return _variance(model, (attribute,)) * own + _variance(model, ()) * part**2


def measured_variance(model: ReferenceModel, clique: Clique) -> Array:
    """Return the variance of the cells of a measured marginal (rows²; Fuentes et al., Prop. 4.4).

    An axis has length 1 if cells along it are equal: always, without levels.
    """
    domain = model.domain
    columns = domain.columns(clique)
    variance: Array = np.zeros([1] * len(clique))
    for tau in domain.below(clique):
        held = dict(zip(domain.columns(tau), tau))
        factors = [
            _strategy_variances(model, position)
            if tau == (column,) and column in model.column_noise
            else axis_variances(domain, position, held.get(column), len(tau) == 1)
            for position, column in zip(clique, columns)
        ]
        added = math.prod(np.ix_(*factors), start=np.ones([1] * len(factors)))
        if not tau:
            # Single columns divide the number of rows equally among codes, others among groups.
            more = [
                _codes_in(domain, position) / domain.sizes[column] / np.sqrt(factor) - 1
                for position, column, factor in zip(clique, columns, factors)
            ]
            added = added * (1 + sum(np.ix_(*more))) ** 2
        variance = variance + _variance(model, tau) * added
    return variance


def _strategy_variances(model: ReferenceModel, position: int) -> Array:
    """Return :func:`axis_variances` of a single column that was measured by a strategy."""
    (code,) = model.domain.columns((position,))
    noise = model.column_noise[code]
    if code != position:
        groups = model.domain.groups(code, position)
        noise = groups.sums(groups.sums(noise, 0), 1)
    return np.diagonal(noise)


def _codes_in(domain: Domain, position: int) -> Array:
    """Return the number of codes in each group of a level: (groups,), or (1,) at the codes."""
    (code,) = domain.columns((position,))
    return np.ones(1) if code == position else domain.groups(code, position).sizes.astype(float)


def expected_l1(model: ReferenceModel, clique: Clique, total: float) -> float:
    """Return the expected L1 distance of a measured marginal from the truth (shares of the rows).

    Only noise counts: n_γ √(2/π) standard errors of signed estimates; non-negative tables are a
    little closer.
    """
    std = float(np.sqrt(measured_variance(model, clique)).mean())
    return model.domain.size(clique) * math.sqrt(2 / math.pi) * std / total


def _variance(model: ReferenceModel, residual: Clique) -> float:
    precision = model.precision(residual)
    return 1 / precision if precision else 0.0
