"""A lower bound of ε from one run on a table of usual size, by canaries: rows included by a coin.

A thousand canaries are drawn at random from all rows that the schema allows. Each is put into the
table if its coin says so. An adversary knows all other rows, the canaries and the program. From the
release it guesses the coins of which it is most certain. If the run is (ε, δ)-DP, the number of
right guesses has a known bound (Steinke, Nasr, Jagielski 2023). A number above it refutes ε.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy import stats

from adaptive_qs.audit.tables import to_rows
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.privacy import mechanisms
from adaptive_qs.privacy.counts import LevelCounter
from adaptive_qs.privacy.noise import discrete_gaussian
from adaptive_qs.release.release import Release
from adaptive_qs.residual import centered
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.files import sample_dataset
from adaptive_qs.table.schema import Schema

CANARIES = 1_000
GUESSED = (0.05, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed, fixed before the run; the best bound counts."""
CONFIDENCE = 0.999
WEAK = 12
"""By how much noise is too small in a run that the audit has to refute."""


@dataclass(frozen=True)
class Verdict:
    """How well the coins were guessed.

    Attributes:
        claimed: ε as stated.
        delta: δ as stated.
        guesses: number of guesses and how many were right, by share guessed.
        epsilon: lower bound of ε, with ``CONFIDENCE``.
    """

    claimed: float
    delta: float
    guesses: Mapping[str, tuple[int, int]]
    epsilon: float

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds what is claimed."""
        return self.epsilon > self.claimed


@contextmanager
def weaker_noise() -> Iterator[None]:
    """Draw noise whose standard deviation is too small by the factor ``WEAK``."""

    def weaker(variance, count, entropy):
        return discrete_gaussian(Fraction(variance) / WEAK**2, count, entropy)

    with mock.patch.object(mechanisms, "discrete_gaussian", weaker):
        yield


def one_run(epsilon: float, seed: int, ways: int = 2, canaries: int = CANARIES) -> Verdict:
    """Publish the shipped table with canaries by `Synthesizer.fit`, and guess their coins.

    Args:
        epsilon: of the run, with the default δ.
        seed: decides canaries and coins; noise comes from the system.
        ways: marginals that matter.
        canaries: their number.
    """
    rng = np.random.default_rng(seed)
    sample = sample_dataset()
    schema = Schema.load(sample.schema)
    known = pd.read_csv(sample.data, dtype=str, keep_default_na=False)[[*schema.names]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        codes = rng.integers(0, schema.domain().sizes, (canaries, len(schema.names)))
        own = pd.DataFrame(to_rows(codes, schema, folder, rng), columns=known.columns)
        coins = rng.integers(0, 2, canaries).astype(bool)
        table = pd.concat([known, own[coins]]).sample(frac=1, random_state=seed)
        path, bundle = folder / "private.csv", folder / "release.zip"
        table.to_csv(path, index=False)
        model = Synthesizer(epsilon=epsilon, workload=ways).fit(path, schema=schema)
        model.save(bundle)
        release = Release.load(bundle)
        known.to_csv(path, index=False)
        base = read_table(path, schema)
    guessed = estimated_coins(release, MarginalCounter(base), codes)
    return judge(guessed, coins, release.manifest.epsilon, release.manifest.delta)


def estimated_coins(release: Release, base: MarginalCounter, codes: np.ndarray) -> np.ndarray:
    """The best linear estimate of each coin from the measured residuals, those of base known.

    A residual τ is that of the known rows, plus one column of the centering matrix for each canary
    that is there, plus noise of variance 1/λ, centered. So the canaries' inner products with it,
    times λ, are G b with noise of covariance G, where b are the coins and G are the inner products
    of the canaries' columns. A coin has the variance 1/4.
    """
    model = release.model()
    domain = model.domain
    counter = LevelCounter(base, domain)
    inner, gram = np.zeros(len(codes)), np.zeros((len(codes), len(codes)))
    for residual, estimate in model.estimates.items():
        exact = centered(counter.count(residual).astype(float), domain, residual)
        at = places(domain, residual, codes)
        inner += estimate.precision * (estimate.values - exact)[tuple(at)]
        product = np.full_like(gram, estimate.precision)
        for groups, place in zip(domain.parents(residual), at):
            product *= groups.centered(np.eye(groups.of.size), 0)[np.ix_(place, place)]
        gram += product
    return np.linalg.solve(gram + 4 * np.eye(len(codes)), inner - gram.sum(axis=1) / 2)


def places(domain: Domain, residual: Clique, codes: np.ndarray) -> list[np.ndarray]:
    """The code or group of each canary along each attribute of a residual."""
    size = len(domain)
    return [
        codes[:, i]
        if i < size
        else np.array(domain.groupings[i - size].groups)[
            codes[:, domain.groupings[i - size].attribute]
        ]
        for i in residual
    ]


def judge(estimates: np.ndarray, coins: np.ndarray, claimed: float, delta: float) -> Verdict:
    """Guess the coins of which the estimates are most certain, and bound ε by the right ones."""
    order = np.argsort(-abs(estimates), kind="stable")
    right = (estimates > 0) == coins
    guesses, bound = {}, 0.0
    for share in GUESSED:
        number = max(1, round(share * coins.size))
        correct = int(right[order[:number]].sum())
        guesses[f"{share:.0%}"] = (number, correct)
        level = (1 - CONFIDENCE) / len(GUESSED)
        bound = max(bound, lower_epsilon(coins.size, number, correct, delta, level))
    return Verdict(claimed, delta, guesses, bound)


def lower_epsilon(canaries: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """The smallest ε at which this many right guesses have a probability of at least ``level``."""
    low, high = 0.0, 1.0
    if p_value(canaries, guesses, correct, 0.0, delta) >= level:
        return 0.0
    while p_value(canaries, guesses, correct, high, delta) < level:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        if p_value(canaries, guesses, correct, middle, delta) < level:
            low = middle
        else:
            high = middle
    return low


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest probability of ``correct`` or more right guesses under (ε, δ)-DP.

    P[B ≥ v] + 2mδ · max over i of P[v − i ≤ B < v]/i, where B is binomial with r trials of
    probability e^ε/(1 + e^ε) (Steinke, Nasr, Jagielski 2023).
    """
    right = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(correct - 1, guesses, right))
    steps = np.arange(1, correct + 1)
    below = np.cumsum(stats.binom.pmf(correct - steps, guesses, right))
    slope = float((below / steps).max()) if correct else 0.0
    return min(1.0, tail + 2 * canaries * delta * slope)
