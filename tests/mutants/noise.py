"""Bugs in what is drawn."""

import os
from fractions import Fraction
from unittest import mock

import numpy as np

from adaptive_qs.privacy import mechanisms, noise
from adaptive_qs.privacy.noise import InsecureSeed, SystemEntropy

from . import checks
from .mutant import mutant, replaced

RANDOM = np.random.default_rng(0)
SHARED = np.random.Philox(int.from_bytes(os.urandom(8)))


@replaced(
    mechanisms,
    "discrete_gaussian",
    "noise too small by the square root of two",
    checks.noise,
    checks.neighbour_game,
)
def too_small(original, variance, count, entropy):
    return original(Fraction(variance) / 2, count, entropy)


@replaced(mechanisms, "discrete_gaussian", "noise too small by a twentieth", checks.trade_off)
def slightly_small(original, variance, count, entropy):
    return original(Fraction(variance) * Fraction(19, 20) ** 2, count, entropy)


@mutant("a filter narrower than the error of floating point", checks.sampler_tree)
def narrow_filter():
    with mock.patch.object(noise, "FILTER_SLACK", 2.0**-70):
        yield


@mutant("a sampler whose constants are single floats", checks.sampler_tree)
def single_floats():
    widths = noise._WIDTHS.astype(np.float32).astype(float)
    with mock.patch.object(noise, "_WIDTHS", widths):
        yield


@replaced(mechanisms, "discrete_gaussian", "the same noise for every measurement", checks.noise)
def reused(original, variance, count, entropy):
    return original(variance, count, InsecureSeed(0))


@replaced(mechanisms, "discrete_gaussian", "floating-point noise, rounded", checks.noise)
def rounded(_, variance, count, entropy):
    return np.rint(RANDOM.normal(0, float(variance) ** 0.5, count)).astype(np.int64)


@replaced(mechanisms, "discrete_gaussian", "Laplace noise of the same variance", checks.noise)
def laplace(_, variance, count, entropy):
    return np.rint(RANDOM.laplace(0, float(variance / 2) ** 0.5, count)).astype(np.int64)


@replaced(SystemEntropy, "words", "noise from a fixed seed", checks.entropy)
def seeded(_, self, count):
    return np.random.Philox(0).random_raw(count)


@replaced(SystemEntropy, "words", "a generator that forked processes share", checks.entropy)
def shared(_, self, count):
    return SHARED.random_raw(count)


@replaced(
    mechanisms,
    "exponential_mechanism",
    "permute-and-flip charged as the exponential mechanism",
    checks.selection,
)
def permute_and_flip(_, scores, sensitivity, epsilon, entropy):
    scores = np.asarray(scores)
    rate = float(epsilon) / (2 * sensitivity)
    while True:
        rng = np.random.default_rng(int(entropy.words(1)[0]))
        for k in rng.permutation(len(scores)):
            if rng.random() < np.exp(rate * float(scores[k] - scores.max())):
                return int(k)


@replaced(
    mechanisms, "exponential_mechanism", "a selection twice as sharp as charged", checks.selection
)
def sharp(original, scores, sensitivity, epsilon, entropy):
    return original(scores, sensitivity, 2 * Fraction(epsilon), entropy)


@replaced(mechanisms.Mechanisms, "release", "noise only where there are rows", checks.replay)
def sparse(original, self, measurements):
    exact = [each.exact_answers(self.ledger) for each in measurements]
    return [np.where(e == 0, 0, o) for e, o in zip(exact, original(self, measurements))]


@replaced(mechanisms, "select_values", "values of a single row released", checks.discovery)
def no_threshold(original, values, noisy, threshold, at_most):
    return original(values, noisy, threshold // 2, at_most)
