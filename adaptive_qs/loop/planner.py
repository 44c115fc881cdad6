"""How precisely to measure each residual, given what is known."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from adaptive_qs.cliques import Array, CliqueIndex
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.loop.estimates import CELLS_ALONE, Strategies, measurement_cost
from adaptive_qs.loop.expected import DEPENDENCE, mean_error
from adaptive_qs.residual import axis_weight
from adaptive_qs.workload.workload import Workload

# Conditional ResidualPlanner: how precisely to measure each residual, given what is known.
# Problem (7)-(8) of Fuentes et al.: minimise Σ v_τ / (x_τ + a_τ) over x ≥ 0 with Σ p_τ x_τ ≤ c,
# where x_τ is the new precision, a_τ the precision already held, v_τ how strongly the variance of τ
# enters the error and p_τ what a unit of precision costs. The optimum is a water-filling,
#
#     x_τ = max(0, √(v_τ / (ν p_τ)) − a_τ),
#
# whose active set is found by one sort: exact in O(m log m), no iterative solver.


def allocate_precision(
    weight: ArrayLike, cost: ArrayLike, known: ArrayLike, budget: ArrayLike
) -> Array:
    """Return the precisions x that minimise Σ weight/(x + known) subject to Σ cost·x ≤ budget.

    Arrays have shape (..., m), without m the budget: leading axes are independent problems. The
    weights v and the known precisions a are not negative; the costs p are positive where v is; the
    budget c > 0 is 2ρ for zCDP. It is used up: x is zero where the weight is.
    """
    v, p, a = (np.asarray(array, dtype=np.float64) for array in (weight, cost, known))
    v, p, a = np.broadcast_arrays(v, p, a)
    c = np.asarray(budget, dtype=np.float64)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(v > 0, np.sqrt(v / p), 0.0)  # 1/√ν at which τ holds precision 1
        threshold = np.where(v > 0, a / level, np.inf)  # τ is active once 1/√ν exceeds this
    order = np.argsort(threshold, axis=-1, kind="stable")
    at = (*np.indices(order.shape, sparse=True)[:-1], order)
    held = np.cumsum(np.where(v > 0, p * a, 0.0)[at], axis=-1)
    slope = np.cumsum((p * level)[at], axis=-1)
    sorted_threshold = threshold[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        water = (c + held) / slope  # 1/√ν if exactly the first k residuals are active
    # The k-th set is right where water still covers its last member; that holds for a prefix.
    active = (water > sorted_threshold) & np.isfinite(sorted_threshold)
    count = np.maximum(active.sum(axis=-1, keepdims=True), 1)
    final = np.take_along_axis(water, count - 1, axis=-1)
    return np.where(v > 0, np.maximum(final * level - a, 0.0), 0.0)


Errors = Callable[[Array, NDArray[np.int64]], Array]
"""The L1 errors (rows) that some noise (rows) leaves of some candidates, as
:meth:`adaptive_qs.loop.expected.ErrorCurves.at`."""

JOINT_STEPS = 30
"""Most tangents of a joint plan."""
JOINT_TOLERANCE = 1e-3
"""A joint plan ends with a step that lowers its error by less than this part."""
SLOPE_STEP = 0.1
"""By what part of a variance the slope of an error is taken: errors are tabulated by octaves."""

NEGLIGIBLE_SHARE = 1e-3
"""Part of the budget below which a known residual is not measured again; less where a clique has
more than eight residuals, so that some residual always gets more than that."""


class TogetherPlan(NamedTuple):
    """A joint measurement of candidates.

    Attributes:
        precisions: x_τ of each residual of the closure (1 / rows²).
        errors: expected of each of the candidates (rows).
        gain: decrease of the weighted error (rows) for one more unit of the budget.
    """

    precisions: Array
    errors: Array
    gain: float


class ConditionalPlanner:
    """Planner of measurements of many candidate cliques together.

    The closure has every residual of a candidate, the empty one included. A residual has a cost
    p_τ: ρ of a measurement is p_τ · precision / 2.
    """

    def __init__(
        self,
        domain: Domain,
        closure: Sequence[Clique],
        candidates: Sequence[Clique],
        cost: Sequence[float],
    ) -> None:
        self.domain = domain
        self._row = {clique: row for row, clique in enumerate(candidates)}
        self._cost = np.asarray(cost, dtype=np.float64)
        self._groups: list[_Group] = []
        self._place = np.empty((len(candidates), 2), dtype=np.int64)
        index = CliqueIndex(domain.positions, closure)
        depths: dict[tuple[int, ...], list[int]] = {}
        for row, clique in enumerate(candidates):
            depths.setdefault(tuple(len(domain.chain(i)) for i in clique), []).append(row)
        for depth, alike in depths.items():
            rows = np.array(alike)
            self._place[rows] = np.stack([np.full(rows.size, len(self._groups)),
                                          np.arange(rows.size)], axis=1)  # fmt: skip
            listed = [candidates[row] for row in alike]
            members = np.array(listed, dtype=np.int64).reshape(len(rows), len(depth))
            self._groups.append(_Group(rows, *below_all(domain, members, depth, index)))

    @property
    def most_residuals(self) -> int:
        """How many residuals a candidate has at most."""
        return max(group.residuals.shape[1] for group in self._groups)

    def expected_stds(self, precision: Array, budgets: Array, rows: NDArray[np.int64]) -> Array:
        """Return the noise in a cell (rows) of candidates after their best measurement.

        The precision λ_τ is held for each residual of the closure (1 / rows²), a budget is Σ p_τ
        x_τ, 2ρ. Of the shape (budgets, rows); infinite without a budget for what was never
        measured.
        """
        expected = np.empty((budgets.size, rows.size))
        for number in np.unique(self._place[rows, 0]).tolist():
            group, at = self._groups[number], np.flatnonzero(self._place[rows, 0] == number)
            inside = self._place[rows[at], 1]
            residuals, weight = group.residuals[inside], group.weight[inside]
            known, cost = precision[residuals], self._cost[residuals]
            share = np.broadcast_to(budgets[:, None], (budgets.size, at.size))
            new = allocate_precision(weight, cost, known, share)
            with np.errstate(divide="ignore", invalid="ignore"):
                variance = np.where(weight > 0, weight / (known + new), 0.0).sum(axis=-1)
            expected[:, at] = np.sqrt(variance)
        return expected

    def plan_together(
        self,
        errors: Errors,
        precision: Array,
        budget: float,
        priorities: Array,
        rows: NDArray[np.int64] | None = None,
    ) -> TogetherPlan:
        """Measure candidates together: residuals that several of them share are measured once.

        Minimises Σ w_γ E_γ(σ_γ²), the weighted error expected of the candidates, where a variance
        is Σ v_τ / (x_τ + a_τ) over the residuals inside. The error of a projected marginal is about
        concave in its variance. So each step replaces it by its tangent, whose minimum is a
        water-filling that is nowhere worse (Hunter and Lange 2004); a marginal that is beyond
        measuring loses its weight on the way.
        ``errors`` are L1 errors (rows) that some noise (standard deviation of a cell) leaves of
        candidates, ``precision`` is λ_τ held for each residual (1 / rows²), ``budget`` Σ p_τ x_τ,
        ``priorities`` w_γ, and ``rows`` the ascending positions of candidates, by default of all.
        """
        rows = np.arange(len(self._row)) if rows is None else rows
        inside = self._variance_weights[rows]
        columns = np.unique(inside.indices)
        inside = inside[:, columns]
        known, cost, priorities = precision[columns], self._cost[columns], priorities[rows]
        weight = inside.T @ (priorities * self._cells[rows])  # where all have the same noise
        best, least, found, gain = np.zeros(columns.size), np.zeros(0), math.inf, 0.0
        for _ in range(JOINT_STEPS):
            if not weight.any():
                break
            new = allocate_precision(weight, cost, known, np.float64(budget))
            with np.errstate(divide="ignore"):
                variance = inside @ (1 / (known + new))
            expected = errors(np.sqrt(variance), rows)
            total = float(priorities @ expected)
            if total >= found * (1 - JOINT_TOLERANCE):
                break
            best, least, found = new, expected, total
            beyond = errors(np.sqrt(variance * (1 + SLOPE_STEP)), rows)
            slope = np.maximum((beyond - expected) / (SLOPE_STEP * variance), 0.0)
            weight = inside.T @ (priorities * slope)
            fall = np.divide(new, (known + new) ** 2, out=np.zeros(new.size), where=new > 0)
            gain = float(weight @ fall) / budget
        precisions = np.zeros(precision.size)
        precisions[columns] = best
        return TogetherPlan(precisions, least, gain)

    def noise_held(self, precision: Array) -> Array:
        """Return the noise in a cell (standard deviation, rows) from the known residuals.

        The other residuals are taken to be exactly as estimated. The precision λ_τ (1 / rows²) is
        held for each residual of the closure.
        """
        variance = np.divide(1.0, precision, out=np.zeros(precision.size), where=precision > 0)
        return np.asarray(np.sqrt(self._variance_weights @ variance))

    @cached_property
    def _cells(self) -> Array:
        return np.array([float(self.domain.size(clique)) for clique in self._row])

    @cached_property
    def _variance_weights(self) -> csr_matrix:
        """Return v_τ of each residual in the variance of each candidate, shape (c, residuals)."""
        rows = [np.repeat(group.rows, group.residuals.shape[1]) for group in self._groups]
        residuals = [group.residuals.ravel() for group in self._groups]
        weights = [group.weight.ravel() for group in self._groups]
        places = np.concatenate(rows), np.concatenate(residuals)
        shape = (len(self._row), self._cost.size)
        return csr_matrix((np.concatenate(weights), places), shape=shape)

    def allocate(self, clique: Clique, precision: Array, budget: float) -> dict[Clique, float]:
        """Return a new precision for each residual of a candidate worth measuring (1 / rows²).

        Residuals that would get a negligible part of the budget and are already known are left
        out (Fuentes et al., Appendix D.2) and their share goes to the others.
        """
        number, at = self._place[self._row[clique]].tolist()
        group = self._groups[number]
        residuals, weight = group.residuals[at], group.weight[at]
        known, cost = precision[residuals], self._cost[residuals]
        new = allocate_precision(weight, cost, known, np.float64(budget))
        least = NEGLIGIBLE_SHARE * budget * min(1.0, 8 / new.size)
        kept = (new > 0) & ((cost * new > least) | (known == 0))
        new = np.where(kept, new, 0.0)
        new *= budget / (cost * new).sum()
        return {tau: float(x) for tau, x in zip(self.domain.below(clique), new) if x > 0}


class _Group(NamedTuple):
    """Candidates with equally many attributes, of equally many levels: (candidates, residuals)."""

    rows: NDArray[np.int64]
    residuals: NDArray[np.int64]
    weight: Array


def below_all(
    domain: Domain, members: NDArray[np.int64], depth: Sequence[int], index: CliqueIndex
) -> tuple[NDArray[np.int64], Array]:
    """Return the positions of the residuals of many cliques, and their variance weights.

    The cliques have the shape (cliques, degree); ``depth`` is how many levels each of their
    attributes has at theirs and coarser ones. The arrays have the shape (cliques, residuals), in
    the order of :meth:`Domain.below`.
    """
    chains = [
        np.array([domain.chain(i) for i in members[:, axis].tolist()]).reshape(len(members), deep)
        for axis, deep in enumerate(depth)
    ]
    weight_of = _AxisWeights(domain)
    positions, weights = [], []
    for axes in subsets(tuple(range(len(depth)))):
        single = len(axes) == 1
        for steps in product(*([-1] if single else range(depth[axis]) for axis in axes)):
            step = dict(zip(axes, steps))
            weight = np.ones(len(members))
            chosen = []
            for axis in range(len(depth)):
                if axis not in step:
                    weight = weight * weight_of(members[:, axis], None)
                elif single:
                    weight = weight * weight_of(members[:, axis], -1)
                    codes = [domain.columns((i,)) for i in members[:, axis].tolist()]
                    chosen.append(np.array(codes).reshape(-1))
                else:
                    weight = weight * weight_of(members[:, axis], step[axis])
                    chosen.append(chains[axis][:, step[axis]])
            residuals = np.stack(chosen, axis=1) if chosen else np.empty((len(members), 0), int)
            positions.append(index.positions(residuals))
            weights.append(weight)
    return np.stack(positions, axis=1), np.stack(weights, axis=1)


class _AxisWeights:
    """:func:`axis_weight` of many attributes at a time, each found once."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._tables: dict[int | None, Array] = {}

    def __call__(self, positions: NDArray[np.int64], step: int | None) -> Array:
        """Return factors of attributes at these positions of cliques, shape (cliques,).

        The residual is coarser by ``step`` levels: None if the attribute is not in it, −1 if it is
        the only one in it.
        """
        if step not in self._tables:
            every = range(self._domain.positions)
            self._tables[step] = np.array([self._weight(i, step) for i in every])
        return self._tables[step][positions]

    def _weight(self, position: int, step: int | None) -> float:
        domain = self._domain
        if step is None:
            return axis_weight(domain, position, None, False)
        if step < 0:
            return axis_weight(domain, position, domain.columns((position,))[0], True)
        chain = domain.chain(position)
        return axis_weight(domain, position, chain[step], False) if step < len(chain) else np.nan


def one_way_precisions(workload: Workload, rho: float, codes: Sequence[float] = ()) -> Array:
    """Return the precision (1 / rows²) of each attribute's marginal that costs ``rho`` in all.

    A variance σ_i² ∝ (w_i n_i)^(−2/3) minimises the summed L1 error Σ w_i n_i σ_i of noisy
    marginals that cost Σ 1/(2σ_i²), with w_i as for :attr:`Workload.column_weights`. n_i are
    ``codes``, the effective ones if columns are smoothed; by default, all.
    """
    weight = (workload.column_weights * (codes or workload.domain.sizes)) ** (2 / 3)
    return 2 * rho * weight / math.fsum(weight)


def assumed_shares(domain: Domain) -> tuple[Array, ...]:
    """Return shares by Zipf's law, before any count: codes as frequent as 1, 1/2, 1/3, ..."""
    zipf = (1 / np.arange(1.0, size + 1) for size in domain.sizes)
    return tuple(weights / weights.sum() for weights in zipf)


def initial_share(
    workload: Workload,
    candidates: Sequence[Clique],
    rho: float,
    total: float,
    codes: Sequence[float] = (),
) -> float:
    """Return the share of the budget for the one-way marginals, from public and released values.

    A combination is off by a/√s + b/√(1 − s) if single columns get the part s of the budget: a and
    b are the mean L1 errors (share of the rows) that the columns of a combination, as the workload
    weighs them, and what it adds to them, would have for all of the budget ``rho``, divided evenly
    among combinations. That is least where s / (1 − s) = (a/b)^(2/3). Only combinations are
    measured that are left with less than ``DEPENDENCE``, so b is at most half of it, the mean if
    they are left with anything up to it. The share is kept between 0.1 and 0.9. Rows in all
    (``total``) are noisy, ``codes`` as for :func:`one_way_precisions`.
    """
    several = [clique for clique in candidates if len(clique) > 1]
    if not several:
        return 0.9
    domain = workload.domain
    noise_std = 1 / np.sqrt(one_way_precisions(workload, rho, codes))
    single = math.sqrt(2 / math.pi) * noise_std * (codes or domain.sizes) / max(total, 1.0)
    columns = math.fsum(map(len, several)) / len(several)
    a = columns * float(np.average(single, weights=workload.column_weights))
    b = min(mean_error(assumed_shares(domain), total, several, rho), DEPENDENCE / 2)
    return float(np.clip(a ** (2 / 3) / (a ** (2 / 3) + b ** (2 / 3)), 0.1, 0.9))


def one_way_plan(
    workload: Workload,
    rho: float,
    strategies: Strategies = CELLS_ALONE,
    replaced: bool = False,
    codes: Sequence[float] = (),
) -> dict[Clique, float]:
    """Return the precision (1 / rows²) of each single column; costs as :func:`measurement_cost`.

    A column with a strategy gets the ρ that it would get for its cells.
    """
    domain, precision = workload.domain, one_way_precisions(workload, rho, codes)
    total_precision = math.fsum(x / n for x, n in zip(precision, domain.sizes))
    cost = measurement_cost(domain, ()) * total_precision
    costs = (
        measurement_cost(domain, (i,), replaced=replaced)
        for i, n in enumerate(domain.sizes)
        if n > 1
    )
    several = (x for x, n in zip(precision, domain.sizes) if n > 1)
    cost += math.fsum(p * x for p, x in zip(costs, several))
    unit = 2 * rho / cost
    precisions: dict[Clique, float] = {(): unit * total_precision}
    precisions |= {(i,): unit * float(precision[i]) for i, n in enumerate(domain.sizes) if n > 1}
    for i in strategies:
        by_cells = measurement_cost(domain, (i,), replaced=replaced)
        precisions[i,] *= by_cells / measurement_cost(domain, (i,), strategies, replaced)
    return precisions
