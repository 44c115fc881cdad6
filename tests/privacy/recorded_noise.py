"""Draws of noise and selections as users have them, measured against their exact laws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy import stats

from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy

from . import oracles

MEASUREMENTS = 4
CELLS = 1000
RESIDUES = 16
LARGEST = {"std_error": 0.01, "returned_std_error": 0.01, "correlation": 7.5}
LEAST = {"p_value": 1e-10, "low_digits_p_value": 1e-10}
"""At 200,000 draws a standard deviation within 1 % is 6.3 of its standard errors (3e-10), and a
correlation of 7.5 standard errors has probability 6e-14."""


@dataclass(frozen=True)
class Noise:
    """Draws of one path.

    Attributes:
        drawn: (measurements, cells) integers added to the exact ones.
        variance: σ² that was declared for them.
        returned: (measurements, cells) error of what the caller gets, over its declared standard
            deviation.
    """

    drawn: np.ndarray
    variance: Fraction
    returned: np.ndarray

    def figures(self) -> dict[str, float]:
        """How far the draws are from independent ones of the discrete Gaussian.

        Returns:
            ``draws``, relative errors of standard deviations, p-values of chi-square tests of all
            values and of their low digits, and the largest correlation of two measurements, or of
            neighbours in one, in standard errors.
        """
        edges, probabilities = oracles.gaussian_cells(self.variance, CELLS)
        flat = self.drawn.ravel()
        observed = np.bincount(np.searchsorted(edges, flat, "right"), minlength=probabilities.size)
        sigma = oracles.gaussian_std(self.variance)
        found = {
            "draws": flat.size,
            "std_error": abs(float(np.std(flat / sigma)) - 1),
            "returned_std_error": abs(float(np.std(self.returned)) - 1),
            "p_value": float(stats.chisquare(observed, flat.size * probabilities).pvalue),
            "correlation": largest_correlation(self.drawn),
        }
        if sigma >= RESIDUES:  # there residues are uniform up to 2 exp(-2π²)
            residues = np.bincount(flat % RESIDUES, minlength=RESIDUES)
            found["low_digits_p_value"] = float(stats.chisquare(residues).pvalue)
        return found


@dataclass(frozen=True)
class Selections:
    """Draws of the exponential mechanism.

    Attributes:
        chosen: (draws,) positions.
        probabilities: (candidates,) of each position, exactly.
    """

    chosen: np.ndarray
    probabilities: np.ndarray

    def figures(self) -> dict[str, float]:
        """``draws``, chi-square of the frequencies, correlation of successive choices."""
        first, second = self.chosen[:-1], self.chosen[1:]
        observed = np.bincount(self.chosen, minlength=self.probabilities.size)
        expected = self.chosen.size * self.probabilities
        return {
            "draws": self.chosen.size,
            "p_value": float(stats.chisquare(observed, expected).pvalue),
            "correlation": abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(first.size),
        }


@dataclass(frozen=True)
class Discoveries:
    """Which values passed a threshold.

    Attributes:
        passed: (measurements, values) whether each was released.
        probabilities: (values,) of that, exactly.
    """

    passed: np.ndarray
    probabilities: np.ndarray

    def figures(self) -> dict[str, float]:
        """``draws``, chi-square of the values passed per probability, largest correlation.

        Values that share a probability are binomial, each with at least a hundred draws expected.
        """
        p, group = np.unique(self.probabilities, return_inverse=True)
        draws = np.bincount(group) * len(self.passed)
        observed = np.bincount(group, self.passed.sum(axis=0))
        statistic = ((observed - draws * p) ** 2 / (draws * p * (1 - p))).sum()
        return {
            "draws": self.passed.size,
            "p_value": float(stats.chi2.sf(statistic, p.size)),
            "correlation": largest_correlation(self.passed - self.probabilities),
        }


def largest_correlation(measurements: np.ndarray) -> float:
    """Of two measurements, or of neighbours in one, in standard errors; (measurements, draws)."""
    pairs = [*combinations(measurements, 2), *((row[:-1], row[1:]) for row in measurements)]
    return max(abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(a.size) for a, b in pairs)


def faults(figures: dict[str, float]) -> list[str]:
    """The figures beyond their limits."""
    too_large = [name for name, most in LARGEST.items() if figures.get(name, 0) > most]
    return too_large + [name for name, least in LEAST.items() if figures.get(name, 1) < least]


class Recorder(Mechanisms):
    """Mechanisms as users have them, which keep the noise they added."""

    def __init__(self) -> None:
        self.added: list[np.ndarray] = []
        self.variance = Fraction(0)
        super().__init__(Budget(10**12), SystemEntropy(), self._keep)

    def _keep(self, call) -> None:
        self.variance = Fraction(call.event.noise_variance)
        self.added.append(np.ravel(call.output - call.inputs))

    def noise(self, errors: list[np.ndarray], declared: float) -> Noise:
        """What was recorded, and what reached the caller with this declared variance."""
        returned = np.array([e.ravel() for e in errors]) / math.sqrt(declared)
        return Noise(np.array(self.added), self.variance, returned)
