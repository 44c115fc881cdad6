"""Every way by which noise reaches a release, drawn with the operating system's entropy.

``paths()`` draws; what it draws, and its measures, are those of ``recorded_noise``. Nothing here
needs pytest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from adaptive_qs.domain import Domain
from adaptive_qs.loop.expected import ProjectedEstimates
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO, GaussianEvent, Purpose, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.residual import ReferenceModel, uniform_reference
from adaptive_qs.strategy.integer import on_grid
from adaptive_qs.strategy.mechanism import StrategyMeasurement
from adaptive_qs.strategy.solution import DenseFactor, IdentityFactor, Strategy
from adaptive_qs.table.coded import CodedTable, MarginalCounter

from ..doors import (
    Selector,
    measure_one,
    measure_residual,
    release_counts,
    release_together,
    select,
)
from . import oracles
from .learning_paths import discovered, magnitudes, trees
from .recorded_noise import MEASUREMENTS, Discoveries, Noise, Recorder, Selections, faults

__all__ = ["faults", "paths"]


def counting(sigma, name="counts"):
    return GaussianEvent(Purpose.STRATEGY, (name,), 1, sigma**2)


def paths() -> dict[str, Callable[[int], Noise | Selections | Discoveries]]:
    """Each path by name: a function that makes at least so many draws."""
    deviations = ["4/5", "7/2", "10001/2", "70000", str(2**32 + 1)]
    return {
        **{f"counts, sigma {text}": partial(_counts, Fraction(text)) for text in deviations},
        "counts, released together": _together,
        "residual, scaled": partial(_residual, None),
        "residual, plain": partial(_residual, (2**10, 2**10 + 1)),
        "strategy, rounded matrix": _rounded_strategy,
        "strategy, cells": _cells_strategy,
        "bins, magnitudes": magnitudes,
        "bins, trees": trees,
        "values, discovered": discovered,
        "selection, scores": _score_selection,
        "selection, marginals": _marginal_selection,
    }


def _counter(sizes: tuple[int, ...]) -> MarginalCounter:
    """A thousand rows at random."""
    random = np.random.default_rng(0)
    domain = Domain.from_sizes({f"a{i}": n for i, n in enumerate(sizes)})
    columns = [random.integers(0, n, 1000) for n in sizes]
    return MarginalCounter(CodedTable.from_codes(domain, columns))


def _side(count: int) -> int:
    """Length of a square of which MEASUREMENTS hold so many cells."""
    return math.isqrt(-(-count // MEASUREMENTS) - 1) + 1


def _counts(sigma: Fraction, count: int) -> Noise:
    mechanisms = Recorder()
    values = np.arange(_side(count) ** 2)
    errors = [
        release_counts(mechanisms, counting(sigma), values) - values for _ in range(MEASUREMENTS)
    ]
    return mechanisms.noise(errors, oracles.gaussian_std(sigma**2) ** 2)


def _together(count: int) -> Noise:
    mechanisms, sigma = Recorder(), 25
    values = np.arange(_side(count) ** 2)
    pairs = [(counting(sigma, f"c{k}"), values) for k in range(MEASUREMENTS)]
    errors = [noisy - values for noisy in release_together(mechanisms, *pairs)]
    return mechanisms.noise(errors, sigma**2)


def _residual(sizes: tuple[int, int] | None, count: int) -> Noise:
    """Released in centered form, which has (n - 1)/n of the variance for each axis."""
    sizes = sizes or (_side(count), _side(count) + 1)
    counter, mechanisms, variance = _counter(sizes), Recorder(), 30.25
    truth = counter.count((0, 1)).astype(float)
    for axis in (0, 1):
        truth -= truth.mean(axis=axis, keepdims=True)
    errors = [
        measure_residual(counter, mechanisms, (0, 1), variance) - truth for _ in range(MEASUREMENTS)
    ]
    return mechanisms.noise(errors, variance * math.prod((n - 1) / n for n in sizes))


def _measured(counter, measurement, matrices: list[np.ndarray], units: int) -> Noise:
    """Noise of integer answers by the Kronecker product of two matrices."""
    first, second = matrices
    truth = first @ counter.count((0, 1)) @ second.T
    squared = math.prod((m.astype(float) ** 2).sum(axis=0).max() for m in matrices)
    mechanisms = Recorder()
    errors = [
        measure_one(counter, mechanisms, measurement, units) - truth for _ in range(MEASUREMENTS)
    ]
    return mechanisms.noise(errors, squared * UNITS_PER_RHO / (2 * units))


def _rounded_strategy(count: int) -> Noise:
    """Noise of σ ≈ 2³⁰ on coefficients of 15 bits, added as it is."""
    rows, random = _side(count), np.random.default_rng(1)
    factors = tuple(DenseFactor(random.normal(size=(rows, n)), (n,)) for n in (7, 5))
    strategy = on_grid(Strategy(factors), 30)
    matrices = [factor.integers for factor in strategy.factors]
    measurement = StrategyMeasurement((0, 1), strategy, 1.0)
    return _measured(_counter((7, 5)), measurement, matrices, UNITS_PER_RHO // 2)


def _cells_strategy(count: int) -> Noise:
    """Noise of σ = √0.5, so that answers are multiplied by a power of two before it is added."""
    n = _side(count)
    strategy = Strategy((IdentityFactor(n), IdentityFactor(n)))
    measurement = StrategyMeasurement((0, 1), strategy, 1.0)
    matrices = [np.eye(n, dtype=np.int64)] * 2
    return _measured(_counter((n, n)), measurement, matrices, UNITS_PER_RHO)


def _score_selection(count: int) -> Selections:
    scores, sensitivity, epsilon = np.array([0, 5, 9, 10, -3]), 4, 1.7
    mechanisms = Mechanisms(Budget(10**12), SystemEntropy())
    event = SelectionEvent(Purpose.SELECTION, (), epsilon)
    chosen = [select(mechanisms, event, scores, sensitivity) for _ in range(count)]
    return Selections(np.array(chosen), _softmax(epsilon * scores / (2 * sensitivity)))


def _marginal_selection(count: int) -> Selections:
    """Scores w (‖μ - μ̂‖₁ - expected error), of sensitivity max w, against a uniform estimate."""
    sizes, total = (2, 3, 4), 940.0
    counter, cliques = _counter(sizes), [(0, 1), (0, 2), (1, 2), (0, 1, 2)]
    model = ReferenceModel(counter.domain, uniform_reference(counter.domain))
    model.update((), np.array(total), 1.0)
    weights, expected = np.array([1.0, 0.5, 2.0, 1.5]), np.array([40.0, 20.0, 50.0, 100.0])
    counts = [counter.count(clique) for clique in cliques]
    errors = np.array([np.abs(c - total / c.size).sum() for c in counts])
    scores = weights * (errors - expected)
    epsilon = 4.0 / np.ptp(scores)
    mechanisms = Mechanisms(Budget(10**12), SystemEntropy())
    selector = Selector(counter, cliques, weights.tolist())
    estimates = ProjectedEstimates(counter.domain, cliques)
    estimates.refresh(model, np.ones(len(cliques), dtype=np.bool_))
    every = np.ones(len(cliques), dtype=bool)
    selector.refresh(estimates, None, every)
    chosen = [
        cliques.index(selector.select(mechanisms, expected, epsilon, every)) for _ in range(count)
    ]
    return Selections(np.array(chosen), _softmax(epsilon * scores / (2 * weights.max())))


def _softmax(exponents: np.ndarray) -> np.ndarray:
    weights = np.exp(exponents - exponents.max())
    return weights / weights.sum()
