"""Mechanisms that measure residuals, one solver each: QuerySmasher and those that it contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.progress import StepProgress
from adaptive_qs.strategy.certified import limits
from adaptive_qs.strategy.certified.solve import solve
from adaptive_qs.strategy.certified.solve_cache import SolveCache
from adaptive_qs.strategy.certified.superadditive import superadditive_bound
from adaptive_qs.strategy.matrix import CenteringFactor, Factor
from adaptive_qs.strategy.mechanisms.residual_mechanism import ResidualMechanism
from adaptive_qs.strategy.mechanisms.smasher import smash
from adaptive_qs.strategy.restricted.attribute_basis import attribute_bases
from adaptive_qs.strategy.restricted.eigen import solve_eigen
from adaptive_qs.strategy.restricted.fourier import solve_fourier
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.strategy.restricted.fourier_product import solve_fourier_product
from adaptive_qs.strategy.restricted.planner import solve_residual_planner, solve_with_basis
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Solution
from adaptive_qs.workload.decomposition import Decomposition
from adaptive_qs.workload.subworkload import Subworkload

Bases = Mapping[int, Factor]
"""A strategy for each attribute, spanning every mean-free vector of its axis."""


def query_smasher(
    decomposition: Decomposition,
    settings: SolverSettings,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """QuerySmasher (He et al.): certified optimal strategies."""
    cache = SolveCache()
    return smash(decomposition, lambda s: solve(s, settings, cache), jobs, progress)


def best_affordable(
    decomposition: Decomposition,
    settings: SolverSettings,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """QuerySmasher where the certified solver can, else the best restricted strategy.

    A subworkload too large for the certified solver gets the better of the Fourier strategy and
    of a product of one-way optima; its gap says how far it may be from the optimum.
    """
    cache = SolveCache()

    def solver(subworkload: Subworkload) -> Solution:
        try:
            return solve(subworkload, settings, cache)
        except ResourceExceeded:
            return restricted(subworkload, settings, cache)

    return smash(decomposition, solver, jobs, progress)


def restricted(subworkload: Subworkload, settings: SolverSettings, cache: SolveCache) -> Solution:
    """The best of the strategies that are cheap to find and can be measured within memory.

    A Fourier factor over several axes, or over one huge axis, is a dense matrix when it is
    measured: it is taken only where that fits. Products of one-axis factors nearly always do.

    Raises:
        ResourceExceeded: even the queries themselves do not fit.
    """
    limits.check_queries(subworkload, settings)
    found = [solve_residual_planner(subworkload), solve_fourier_product(subworkload, settings)]
    if limits.factor_fits(subworkload.cells, settings):
        found.append(solve_fourier(subworkload))
    if not limits.is_joint(subworkload):
        try:
            factors = tuple(
                _axis_optimum(subworkload, axis, settings, cache)
                for axis in range(len(subworkload.shape))
            )
            found.append(solve_with_basis(subworkload, factors))
        except ResourceExceeded:
            pass
    best = min(found, key=lambda solution: solution.objective)
    bounds = [solution.lower_bound for solution in found]
    return replace(
        best, lower_bound=max(superadditive_bound(subworkload, settings, cache), *bounds)
    )


def _axis_optimum(
    subworkload: Subworkload, axis: int, settings: SolverSettings, cache: SolveCache
) -> Factor:
    """The optimum for the queries of one axis, over all terms of a sum of products.

    Raises:
        ResourceExceeded: the axis is too large for the matrices that its error is found from.
    """
    size = subworkload.shape[axis]
    if not limits.factor_fits(size, settings):
        return CenteringFactor(size)
    limits.check_dense((size,), settings)
    terms = tuple(replace(term, factors=(term.factors[axis],)) for term in subworkload.terms)
    (factor,) = solve(Subworkload((size,), terms), settings, cache).strategy.factors
    return factor if _spans(factor) else CenteringFactor(size)


def residual_planner(
    decomposition: Decomposition, jobs: int = 1, progress: StepProgress | None = None
) -> ResidualMechanism:
    """ResidualPlanner: the same contrasts for all queries, optimal for marginals."""
    return smash(decomposition, solve_residual_planner, jobs, progress)


def fourier_factorization(
    decomposition: Decomposition, jobs: int = 1, progress: StepProgress | None = None
) -> ResidualMechanism:
    """Weighted Fourier Factorizations: noise on Fourier coefficients."""
    return smash(decomposition, solve_fourier, jobs, progress)


def eigen_design(
    decomposition: Decomposition,
    settings: SolverSettings,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """Eigen-design (Li and Miklau): weighted eigenvectors of each subworkload."""
    return smash(decomposition, lambda s: solve_eigen(s, settings), jobs, progress)


def residual_planner_plus(
    decomposition: Decomposition,
    settings: SolverSettings,
    bases: Bases | None = None,
    jobs: int = 1,
    progress: StepProgress | None = None,
) -> ResidualMechanism:
    """ResidualPlanner+: one strategy for each attribute, combined by products.

    Args:
        decomposition: the subworkloads.
        settings: for the one-way problems.
        bases: strategies of some attributes; the others get one chosen from all that is asked
            of them (:mod:`adaptive_qs.strategy.restricted.attribute_basis`).
        jobs: threads that solve.
        progress: told how many classes are solved, and of how many.

    Raises:
        InputError: a basis for an attribute that there is not, or of another size.
    """
    factors, kind = _chosen_bases(decomposition, settings, bases or {})
    split, members = _split_classes(decomposition, kind)
    chosen = {
        id(subworkload): tuple(factors[i] for i in attributes)
        for subworkload, attributes in zip(split.subworkloads, members)
    }
    return smash(split, lambda s: solve_with_basis(s, chosen[id(s)]), jobs, progress)


def _chosen_bases(
    decomposition: Decomposition, settings: SolverSettings, bases: Bases
) -> tuple[list[Factor], list[int]]:
    """A factor for each attribute, and a number for each that is equal where factors are."""
    sizes = decomposition.workload.domain.sizes
    for attribute, basis in bases.items():
        if not 0 <= attribute < len(sizes) or basis.shape != (sizes[attribute],):
            raise InputError(f"a basis of shape {basis.shape} does not fit attribute {attribute}")
    if len(bases) == len(sizes):
        return [bases[i] for i in range(len(sizes))], _numbers(bases)
    factors, numbers = attribute_bases(decomposition, settings)
    given = _numbers(bases)
    for position, attribute in enumerate(sorted(bases)):
        factors[attribute] = bases[attribute]
        numbers[attribute] = -1 - given[position]
    return factors, numbers


def _numbers(bases: Bases) -> list[int]:
    """For each basis, by attribute, the position of the first that is the same object."""
    first: dict[int, int] = {}
    return [first.setdefault(id(bases[i]), k) for k, i in enumerate(sorted(bases))]


def _spans(factor: Factor) -> bool:
    """Whether a factor determines every mean-free vector of its axis."""
    (size,) = factor.shape
    if isinstance(factor, CenteringFactor):
        return True
    if isinstance(factor, FourierFactor):  # its singular values, without its matrix
        values = np.sqrt(factor.weights)
        return int((values > values.max() * size * np.finfo(float).eps).sum()) >= size - 1
    return int(np.linalg.matrix_rank(factor.matrix)) >= size - 1


def _split_classes(
    decomposition: Decomposition, keys: list[int]
) -> tuple[Decomposition, list[tuple[int, ...]]]:
    """Classes whose residuals also have equal bases, and the attributes of one of each."""
    number: dict[tuple[int, tuple[int, ...]], int] = {}
    members: list[tuple[int, ...]] = []
    subworkloads: list[Subworkload] = []
    class_of = np.empty_like(decomposition.class_of)
    for position, residual in enumerate(decomposition.residuals):
        old = int(decomposition.class_of[position])
        key = (old, tuple(keys[i] for i in residual))
        if key not in number:
            number[key] = len(members)
            members.append(residual)
            subworkloads.append(replace(decomposition.subworkloads[old]))
        class_of[position] = number[key]
    split = replace(decomposition, subworkloads=tuple(subworkloads), class_of=class_of)
    return split, members
