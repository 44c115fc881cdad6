"""What was measured: noisy residuals, a reference that fills the rest, and how to measure more."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import MOST_FORMED, Array
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.generate.targets import (
    SMOOTH_CODES,
    effective_codes,
    marginal_std,
    positive_shares,
    project_to_simplex,
    single_target,
    single_targets,
)
from adaptive_qs.generate.tree import Forest, maximum_forest, mutual_information
from adaptive_qs.loop.expected import CellSizeHistogram
from adaptive_qs.privacy.counts import (
    Centering,
    Identity,
    IntegerMap,
    LinearQuery,
    Measurement,
    PrivateTable,
)
from adaptive_qs.privacy.events import Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.residual import (
    Fill,
    ReferenceModel,
    ResidualEstimate,
    centered,
    decompose,
    measured_variance,
    privacy_cost,
    uniform_reference,
)
from adaptive_qs.strategy.integer import ColumnStrategy, GridFactor, noise_by_attribute

# A residual is released in scaled form, Ξv + noise, or where n = Πn_i is too large for 64-bit
# integers as the marginal itself. A single column whose workload asks for more than its cells has a
# strategy: its σ² is that of independent noise in each cell with as much variance in all, so that
# precisions and averages are as of any other residual. Proofs: docs/proofs.md, sections 3 and 6.
#
# A row in another's place moves Ξv by a squared length of no more than 2Πn_i(n_i − 1) · n/(n − 1),
# n the least of the n_i; the marginal itself by 2. Where the noise is narrower than FINE_NOISE,
# values, sensitivity and noise are multiplied by a power of two, for nearly continuous noise.

MAX_SCALE = 2**20
"""Largest n = Πn_i for which Ξv is formed."""


def cell_scale(domain: Domain, residual: Clique) -> int:
    """Return n = Πn_i, by which the cells of the residual are multiplied in scaled form."""
    return math.prod(groups.largest for groups in domain.parents(residual))


def is_scaled(domain: Domain, residual: Clique) -> bool:
    """Return whether the residual is released in scaled form; public sizes and levels decide."""
    return cell_scale(domain, residual) <= MAX_SCALE


Strategies = Mapping[int, ColumnStrategy]
"""How single columns are measured, by attribute; the others by their cells."""
CELLS_ALONE: Strategies = {}


def measurement_cost(
    domain: Domain, residual: Clique, strategies: Strategies = CELLS_ALONE, replaced: bool = False
) -> float:
    """Return p_τ: a measurement of noise variance σ² costs ρ = p_τ / (2σ²) for one row.

    Where rows are ``replaced`` a run counts a row as costing a quarter of what another one in its
    place does (:meth:`~adaptive_qs.privacy.unit.Unit.for_rows`), and so p_τ is a quarter of that.
    """
    strategy = _find_strategy(residual, strategies)
    if strategy is not None:
        cost = strategy.cost
        further = Fraction(strategy.squared_diameter, strategy.squared_sensitivity)
    else:
        cost = privacy_cost(domain, residual) if is_scaled(domain, residual) else 1.0
        further = _diameter(domain, residual)
    return cost * float(further) / 4 if replaced and residual else cost


def _diameter(domain: Domain, residual: Clique) -> Fraction:
    """Return the most that replacing a row moves a residual, over what adding a row does (L2²)."""
    if not is_scaled(domain, residual):
        return Fraction(2)
    least = min((groups.largest for groups in domain.parents(residual)), default=1)
    return Fraction(2 * least, max(least - 1, 1))  # of one value only, nothing moves


@dataclass(frozen=True)
class Estimates:
    """z_τ and λ_τ of every measured residual, the reference q, and how residuals are measured.

    Attributes:
        model: estimates of every marginal (Recon, with the product reference).
        strategies: how single columns are measured, by attribute; the others by their cells.
        replaced: whether neighbours have a row in another's place.
        left: by single column, the part of the noise variance that smoothing of estimates leaves,
            if it is used. Their precision is higher then, and costs less.
        unsmoothed: the same without smoothing, which is released; it gets all measurements too.
    """

    model: ReferenceModel
    strategies: Strategies = field(default_factory=dict)
    replaced: bool = False
    left: Mapping[Clique, float] = field(default_factory=dict)
    unsmoothed: Estimates | None = None

    @classmethod
    def uniform(cls, domain: Domain, strategies: Strategies, replaced: bool) -> Estimates:
        """Return the estimates of which nothing is measured."""
        reference, noise = uniform_reference(domain), noise_by_attribute(strategies)
        return cls(ReferenceModel(domain, reference, column_noise=noise), strategies, replaced)

    def with_reference(self, reference: Sequence[Array], domain: Domain | None = None) -> Estimates:
        """Return the same measurements with another reference, over a domain with levels."""
        model, domain = self.model, domain or self.model.domain
        again = ReferenceModel(domain, reference, model.estimates, model.column_noise)
        return replace(self, model=again)

    @property
    def total(self) -> float:
        """Estimated number of rows, one at least."""
        return max(self.model.total, 1.0)

    def cost(self, residual: Clique) -> float:
        """Return p_τ; see :func:`measurement_cost`."""
        cost = measurement_cost(self.model.domain, residual, self.strategies, self.replaced)
        return cost * self.left.get(residual, 1.0)

    @cached_property
    def smooth_columns(self) -> tuple[int, ...]:
        """Attributes whose noise can be smoothed along their codes, by public sizes."""
        every = enumerate(self.model.domain.attributes)
        ordered = (i for i, one in every if one.ordered and one.size > SMOOTH_CODES)
        return tuple(i for i in ordered if i not in self.strategies)

    def effective_codes(self) -> list[float]:
        """Return how many codes of each column are worth as much error as its smoothed counts."""
        codes: list[float] = [*self.model.domain.sizes]
        known: dict[tuple[bytes, float, int], float] = {}  # of columns that are equal
        for i in self.smooth_columns:
            std = marginal_std(self.model, (i,))
            beyond, noisy = self.model.domain.attributes[i].beyond, self.model.marginal((i,))
            same = noisy.tobytes(), std, beyond
            if same not in known:
                known[same] = effective_codes(noisy, std, self.total, beyond)
            codes[i] = known[same]
        return codes

    def smoothed(self) -> Estimates:
        """Return the same with smoothed columns."""
        codes, model = self.effective_codes(), self.model
        left: dict[Clique, float] = {}
        left |= {(i,): (codes[i] / model.domain.sizes[i]) ** 2 for i in self.smooth_columns}
        found = {
            tau: ResidualEstimate(_smoothed(model, tau), model.precision(tau) / part)
            for tau, part in left.items()
        }
        estimates = {**model.estimates, **found}
        again = ReferenceModel(model.domain, model.reference, estimates, model.column_noise)
        return replace(self, model=again, left=left, unsmoothed=self)

    def noise_variance(self, residual: Clique, precision: float) -> float:
        """Return the noise variance (rows²) with which to measure for this precision."""
        return 1 / (precision * self.left.get(residual, 1.0))

    def add(self, residual: Clique, values: Array, noise_variance: float) -> None:
        """Average in a measurement (rows), and smooth the mean if columns are smoothed."""
        precision = 1 / (noise_variance * self.left.get(residual, 1.0))
        if self.unsmoothed is not None:
            self.unsmoothed.add(residual, values, noise_variance)
            if residual in self.left:  # the values whose average with those held is smooth
                held = self.model.estimates[residual]
                mean = _smoothed(self.unsmoothed.model, residual)
                values = mean + held.precision / precision * (mean - held.values)
        self.model.update(residual, values, precision)

    def moved(self, clique: Clique, before: Array) -> float:
        """Return by how much (L1, rows) a marginal differs from an earlier estimate of it."""
        return projected_distance(self.model.marginal(clique), before, self.model.total)

    def measured(
        self, table: PrivateTable, mechanisms: Mechanisms, noise_variances: Mapping[Clique, float]
    ) -> dict[Clique, Array]:
        """Measure residuals in centered form (rows), each shaped like the marginal over it.

        ``noise_variances`` has for each residual τ the variance σ² of the equivalent noise on the
        marginal's cells (rows²). All are charged :meth:`cost` / (2σ²) each, or none, then drawn.
        Return ζ_τ + N(0, σ² ⊗Π_i) for each τ, or + N(0, σ² C) with the C of its strategy: zero-sum
        along every axis.
        """
        domain = table.domain
        counts = table.marginals(noise_variances)
        measurements = []
        for (residual, variance), each in zip(noise_variances.items(), counts):
            query, scale = _query(domain, residual, self.strategies)
            measurements.append(Measurement(query, each, Fraction(variance) * scale).finely())
        return {
            residual: _estimate(domain, residual, noisy, _find_strategy(residual, self.strategies))
            for residual, noisy in zip(noise_variances, mechanisms.measure(measurements))
        }


def _smoothed(model: ReferenceModel, column: Clique) -> Array:
    """Return the residual of a column with smoothed counts (rows)."""
    return decompose(single_target(model, column[0], loose_ends=False).counts, column, column)


def _find_strategy(residual: Clique, strategies: Strategies) -> ColumnStrategy | None:
    return strategies.get(residual[0]) if len(residual) == 1 else None


def _query(
    domain: Domain, residual: Clique, strategies: Strategies
) -> tuple[LinearQuery, Fraction | int]:
    names, strategy = domain.clique_names(residual), _find_strategy(residual, strategies)
    if not residual:
        return LinearQuery(Purpose.ROWS, names), 1
    if strategy is not None:
        squared = strategy.squared_sensitivity
        diameter = Fraction(strategy.squared_diameter, squared)
        query = LinearQuery(Purpose.RESIDUAL, names, (strategy.factor,), diameter, strategy.digest)
        # Noise of variance v in the answers leaves v p/‖M‖² in the residual: docs/proofs.md, 3.
        return query, squared / Fraction(strategy.cost)
    scaled = is_scaled(domain, residual)
    maps: Sequence[IntegerMap] = [*map(Identity, domain.shape(residual))]
    if scaled:
        maps = [*map(Centering, domain.parents(residual))]
    definition = _definition(domain, residual)
    query = LinearQuery(Purpose.RESIDUAL, names, maps, _diameter(domain, residual), definition)
    return query, cell_scale(domain, residual) ** 2 if scaled else 1


def halves_query(
    domain: Domain, pair: Clique, signs: Mapping[int, NDArray[np.int64]]
) -> LinearQuery:
    """Return the query of the sum, over the rows, of the product of the signs of two codes."""
    maps = [GridFactor(signs[i][None], (False,), signs[i].shape) for i in pair]
    digest = "".join(each.digest for each in maps)
    return LinearQuery(Purpose.RESIDUAL, domain.clique_names(pair), maps, Fraction(4), digest)


def _estimate(
    domain: Domain, residual: Clique, answers: Array, strategy: ColumnStrategy | None
) -> Array:
    if strategy is not None:
        return strategy.estimate(answers)
    scale = cell_scale(domain, residual) if is_scaled(domain, residual) else 1
    return centered(answers / scale, domain, residual)


def _definition(domain: Domain, residual: Clique) -> str:
    """Return a digest of the groups that a residual is over, which its event does not contain."""
    if not domain.groupings or len(residual) < 2:
        return ""
    levels = [domain.groupings[i - len(domain)].groups for i in residual if i >= len(domain)]
    parents = [tuple(groups.of.tolist()) for groups in domain.parents(residual)]
    return hashlib.sha256(repr((residual, levels, parents)).encode()).hexdigest()


def product_reference(model: ReferenceModel) -> tuple[Array, ...]:
    """Return a strictly positive distribution per attribute from its noisy one-way marginal.

    The marginal is denoised and floored at half a row: post-processing.
    """
    return positive_shares(single_targets(model, loose_ends=False))


def projected_distance(first: Array, second: Array, total: float) -> float:
    """Return the L1 distance (rows) between two estimates, each projected onto the simplex."""
    total = max(total, 1.0)
    difference = project_to_simplex(first, total) - project_to_simplex(second, total)
    return float(np.abs(difference).sum())


# Along the strongest forest of measured pairs (Chow and Liu 1968) two columns depend on each other
# only through those between them, which is about what a fit to the measured pairs gives. With P the
# joint shares of a pair and p its single shares,
#
#     M_ij = (P_ij − p_i p_j) / √(p_i p_j)
#
# has no singular value above 1, and the pair at the ends of a path has the product of the M along
# it. Of each, only the part that stands clear of the noise counts.

MOST_GROUPS = 64
"""Most groups of codes of a column by which it is followed, if it has a level with so few."""
LEAST_NORM = 0.01
"""Norm of a product of M below which a path is not followed: at most so large a share of the rows
is elsewhere than in independent columns (L1)."""


class ImpliedPairs:
    """Estimates of pairs of columns of which nothing was measured, from paths of measured pairs."""

    def __init__(self, domain: Domain) -> None:
        self._domain, self._levels = domain, list[int]()
        for i in range(len(domain)):
            few = (k for k in domain.chain(i) if domain.shape((k,))[0] <= MOST_GROUPS)
            self._levels.append(next(few, domain.chain(i)[-1]))
        self._known: dict[Clique, dict[Clique, float]] = {}
        self._edges: dict[Clique, tuple[float, Array]] = {}
        self._followed: dict[Clique, dict[Clique, float]] = {}

    def refresh(self, model: ReferenceModel) -> list[Clique]:
        """Fill a model with the estimates; return pairs that changed, at their coarsest levels."""
        domain, measured = self._domain, dict[Clique, dict[Clique, float]]()
        for tau, held in model.estimates.items():
            if len(tau) == 2:
                measured.setdefault(domain.columns(tau), {})[tau] = held.precision
        for (a, b), precisions in measured.items():
            known = {(a,): model.precision((a,)), (b,): model.precision((b,)), **precisions}
            if self._known.get((a, b)) != known:
                self._known[a, b] = known
                self._edges[a, b] = self._edge(model, (a, b), [*precisions])
        weights = {pair: weight for pair, (weight, _) in self._edges.items() if weight > 0}
        forest = maximum_forest(range(len(domain)), weights)
        edges: list[Clique] = [(a, b) for a in forest for b in forest[a] if a < b]
        followed = {edge: self._known[edge] for edge in edges}
        fill = {pair: held for pair, held in model.fill.items() if pair not in measured}
        if followed != self._followed:
            self._followed, fill = followed, dict[Clique, Fill]()
            for a in forest:
                for b, product in self._follow(forest, a).items():
                    if a < b and (a, b) not in measured:
                        ends = self._levels[a], self._levels[b]
                        scale = np.outer(*(np.sqrt(model.shares(k)) for k in ends))
                        fill[a, b] = ends, product * scale
        before, nothing = model.fill, ((), np.zeros(0))
        model.fill_with(fill)
        every = before.keys() | fill.keys()
        pairs = {pair: (before.get(pair, nothing)[1], fill.get(pair, nothing)[1]) for pair in every}
        changed = [pair for pair, (old, new) in pairs.items() if not np.array_equal(old, new)]
        return [(domain.chain(a)[-1], domain.chain(b)[-1]) for a, b in changed]

    def _follow(self, forest: Forest, root: int) -> dict[int, Array]:
        """Return the product of M along the path to each column that is not too far."""
        products: dict[int, Array] = {}
        left: list[tuple[int, int, Array | None]] = [(root, i, None) for i in forest[root]]
        while left:
            i, j, before = left.pop()
            step = self._edges[min(i, j), max(i, j)][1]
            step = step if i < j else step.T
            if before is not None and len(before) * step.shape[1] > MOST_FORMED:
                continue
            product = step if before is None else before @ step
            if np.vdot(product, product) >= LEAST_NORM**2:
                products[j] = product
                left += [(j, k, product) for k in forest[j] if k != i]
        return products

    def _edge(
        self, model: ReferenceModel, pair: Clique, residuals: Sequence[Clique]
    ) -> tuple[float, Array]:
        """Return mutual information and M of a measured pair, without what may be noise.

        What the pair differs from independent columns by, and noise, add by squares.
        """
        domain, total = self._domain, max(model.total, 1.0)
        levels = self._levels[pair[0]], self._levels[pair[1]]
        if domain.size(levels) > MOST_FORMED:
            return 0.0, np.zeros((1, 1))
        finest = tuple(max(held, key=lambda k: domain.shape((k,))) for held in zip(*residuals))
        sizes = CellSizeHistogram.of(project_to_simplex(model.marginal(finest), total))
        std = math.sqrt(measured_variance(model, finest).mean())
        noise = float(sizes.errors(total, np.array([std]))[0]) / total
        joint = project_to_simplex(model.marginal(levels), total) / total
        alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        differs = float(np.abs(joint - alone).sum())
        clear = max(1 - (noise / differs) ** 2, 0.0) * (joint - alone) if differs else joint - alone
        return mutual_information(alone + clear), clear / np.sqrt(np.maximum(alone, 1e-24))
