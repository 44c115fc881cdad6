"""Bugs in what is drawn."""

import os
from fractions import Fraction
from unittest import mock

import numpy as np

from adaptive_qs.privacy import mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, SystemEntropy, discrete_gaussian

from . import checks
from .mutant import mutant


@mutant("noise too small by the square root of two", checks.noise, checks.neighbour_game)
def too_small():
    def half(variance, count, entropy):
        return discrete_gaussian(Fraction(variance) / 2, count, entropy)

    with mock.patch.object(mechanisms, "discrete_gaussian", half):
        yield


@mutant("the same noise for every measurement", checks.noise)
def reused():
    def again(variance, count, entropy):
        return discrete_gaussian(variance, count, InsecureSeed(0))

    with mock.patch.object(mechanisms, "discrete_gaussian", again):
        yield


@mutant("floating-point noise, rounded", checks.noise)
def rounded():
    rng = np.random.default_rng(0)

    def continuous(variance, count, entropy):
        return np.rint(rng.normal(0, float(variance) ** 0.5, count)).astype(np.int64)

    with mock.patch.object(mechanisms, "discrete_gaussian", continuous):
        yield


@mutant("Laplace noise of the same variance", checks.noise)
def laplace():
    rng = np.random.default_rng(0)

    def other(variance, count, entropy):
        return np.rint(rng.laplace(0, float(variance / 2) ** 0.5, count)).astype(np.int64)

    with mock.patch.object(mechanisms, "discrete_gaussian", other):
        yield


@mutant("noise from a fixed seed", checks.entropy)
def seeded():
    def words(self, count):
        return np.random.Philox(0).random_raw(count)

    with mock.patch.object(SystemEntropy, "words", words):
        yield


@mutant("a generator that forked processes share", checks.entropy)
def shared():
    generator = np.random.Philox(int.from_bytes(os.urandom(8)))

    def words(self, count):
        return generator.random_raw(count)

    with mock.patch.object(SystemEntropy, "words", words):
        yield


@mutant("permute-and-flip charged as the exponential mechanism", checks.selection)
def permute_and_flip():
    def flip(scores, sensitivity, epsilon, entropy):
        scores = np.asarray(scores)
        rate = float(epsilon) / (2 * sensitivity)
        while True:
            seed = int(entropy.words(1)[0])
            rng = np.random.default_rng(seed)
            for k in rng.permutation(len(scores)):
                if rng.random() < np.exp(rate * float(scores[k] - scores.max())):
                    return int(k)

    with mock.patch.object(mechanisms, "exponential_mechanism", flip):
        yield


@mutant("a selection twice as sharp as charged", checks.selection)
def sharp():
    original = mechanisms.exponential_mechanism

    def twice(scores, sensitivity, epsilon, entropy):
        return original(scores, sensitivity, 2 * Fraction(epsilon), entropy)

    with mock.patch.object(mechanisms, "exponential_mechanism", twice):
        yield


@mutant("noise only where there are rows", checks.replay)
def sparse():
    original = mechanisms.Mechanisms.release_together

    def kept(self, requests):
        outputs = original(self, requests)
        return [np.where(r.values == 0, 0, o) for r, o in zip(requests, outputs)]

    with mock.patch.object(mechanisms.Mechanisms, "release_together", kept):
        yield


@mutant("values of a single row released", checks.discovery)
def no_threshold():
    original = mechanisms.released_values

    def released(values, noisy, threshold, at_most):
        return original(values, noisy, threshold // 2, at_most)

    with mock.patch.object(mechanisms, "released_values", released):
        yield
