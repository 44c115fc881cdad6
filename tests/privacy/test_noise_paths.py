"""Noise as users get it: its law, its width and its independence, path by path.

Each path is tested once with fresh entropy: at most five figures with the false alarms that
``recorded_noise`` states, so that the whole file fails by chance less than once in 10⁸ runs.
"""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.noise import discrete_gaussian

from . import oracles
from .noise_paths import paths
from .recorded_noise import MEASUREMENTS, Discoveries, Noise, Selections, faults

DRAWS = 200_000
SELECTIONS = 60_000  # of both paths, which take 40 microseconds each


@pytest.mark.parametrize("name", paths())
def test_noise_has_its_declared_law(name):
    count = SELECTIONS if name.startswith("selection") else DRAWS
    figures = paths()[name](count).figures()
    assert figures["draws"] >= count
    assert faults(figures) == []


def honest(variance=Fraction(400)):
    drawn = discrete_gaussian(variance, DRAWS, InsecureSeed(1)).reshape(MEASUREMENTS, -1)
    return Noise(drawn, variance, drawn / oracles.gaussian_std(variance))


def test_honest_noise_has_no_faults():
    assert faults(honest().figures()) == []


def reused(noise):
    drawn = noise.drawn.copy()
    drawn[1] = drawn[0]
    return dataclasses.replace(noise, drawn=drawn)


def repeated(noise):
    return dataclasses.replace(noise, drawn=np.repeat(noise.drawn[:, ::2], 2, axis=1))


def declared_wider(noise):
    return dataclasses.replace(noise, variance=noise.variance * Fraction(103, 100))


def declared_double(noise):
    return dataclasses.replace(noise, variance=noise.variance * 2)


def returned_narrower(noise):
    return dataclasses.replace(noise, returned=noise.returned / 2**0.5)


def coarse(noise):
    return dataclasses.replace(noise, drawn=noise.drawn // 2 * 2)


def cut_off(noise):
    return dataclasses.replace(noise, drawn=np.clip(noise.drawn, -60, 60))


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (reused, "correlation"),
        (repeated, "correlation"),
        (declared_wider, "std_error"),
        (declared_double, "p_value"),
        (returned_narrower, "returned_std_error"),
        (coarse, "low_digits_p_value"),
        (cut_off, "p_value"),
    ],
)
def test_spoilt_noise_is_found_out(spoil, fault):
    assert fault in faults(spoil(honest()).figures())


def test_continuous_noise_that_was_rounded_is_found_out():
    drawn = np.rint(np.random.default_rng(2).normal(size=(MEASUREMENTS, DRAWS // MEASUREMENTS)))
    noise = Noise(drawn.astype(np.int64), Fraction(1), drawn / drawn.std())
    assert "p_value" in faults(noise.figures())


def test_a_selection_of_another_epsilon_is_found_out():
    probabilities = np.array([0.5, 0.3, 0.2])
    chosen = np.random.default_rng(3).choice(3, DRAWS, p=probabilities)
    assert faults(Selections(chosen, probabilities).figures()) == []
    sharper = probabilities**1.05
    assert faults(Selections(chosen, sharper / sharper.sum()).figures()) == ["p_value"]


def passing(sigma, threshold=0.0):
    """Values of counts -20 .. 20 around a threshold, with normal noise of this width."""
    counts = np.arange(DRAWS // MEASUREMENTS) % 41 - 20
    noise = np.random.default_rng(4).normal(size=(MEASUREMENTS, counts.size)) * sigma
    return counts + noise >= threshold, stats.norm.cdf(counts / 10)


def test_values_that_pass_another_threshold_are_found_out():
    assert faults(Discoveries(*passing(10)).figures()) == []
    assert "p_value" in faults(Discoveries(*passing(10 / 2**0.5)).figures())
    assert "p_value" in faults(Discoveries(*passing(10, threshold=-1)).figures())
    passed, probabilities = passing(10)
    passed[1] = passed[0]
    assert "correlation" in faults(Discoveries(passed, probabilities).figures())


@pytest.mark.parametrize("variance", [Fraction(16, 25), Fraction(10**8), Fraction(2**31)])
def test_cells_hold_the_exact_probabilities(variance):
    """The sum of the pmf and the midpoint rule agree where both are possible."""
    edges, probabilities = oracles.gaussian_cells(variance, 50)
    reach = int(12 * float(variance) ** 0.5) + 2
    below = np.r_[0.0, np.cumsum(oracles.gaussian_pmf(float(variance), reach))]
    exact = np.diff(np.r_[0.0, below[edges + reach], 1.0])
    assert abs(probabilities - exact).max() < 2.0**-33
