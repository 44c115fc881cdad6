"""Trade-off curves of the neighbour game: every kind of release, at several budgets.

A tester who knows both tables guesses from a release which of them was used, by the likelihood
ratio of everything that was released. Each threshold of that ratio has two error rates, α and β.
What is claimed bounds β from below for every α (Dong, Roth, Su 2022). Upper confidence bounds of
both rates (Clopper and Pearson), corrected for the number of thresholds and games, that lie below
the claimed curve show that less noise reached the release than was charged.

Draws are made in two ways. Whole runs go through `Synthesizer.fit` and `answer`: each is recorded
in one world and replayed in the other for its exact inputs there. They are too slow for small error
rates. So the steps of recorded runs are drawn again, many times each, by the same mechanisms and
from the same entropy, as sequences of steps that are fixed in advance.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

from adaptive_qs.audit.audit import Batch, Synthesis
from adaptive_qs.audit.replay import record
from adaptive_qs.audit.tables import write_rows
from adaptive_qs.privacy.accounting import compute_delta
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import GaussianEvent, PartitionEvent, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet

from ..doors import discover_values, release_counts, select
from .game import log_chance

MUS = (0.45, 1.0, 3.0)
THRESHOLDS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Log ratios at which the tester changes the guess, in units of μ; fixed before any draw."""
CONFIDENCE = 0.999
"""Of all bounds of an audit together."""
POWER = 0.9
"""Least part of the claimed μ that an audit has to show."""


# Games: a kind of release, and two tables that differ by a unit.


@dataclass(frozen=True)
class Game:
    """A run on one of two neighbouring tables.

    Attributes:
        publisher: spends the budget, through a public entry point.
        worlds: what makes each of the two tables in a folder.
    """

    publisher: Any
    worlds: tuple[Callable[[Path], Any], Callable[[Path], Any]]

    @property
    def target(self) -> PrivacyTarget:
        """The budget."""
        return self.publisher.target

    def run(self, world: int, known: Any = None) -> Any:
        """Record a run in a world, or replay one of the other world, with noise of the system."""
        cost = self.target.budget
        budget = Budget(cost.rho, cost.delta, self.target.filtered, self.target.unit)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source = self.worlds[world](folder)
            found = record(
                lambda m: self.publisher.publish(source, m, folder, False),
                budget,
                SystemEntropy(),
                known,
            )
        assert found.stopped_at is None, found.stopped_at
        assert found.failure is None, found.failure
        return found

    def courses(self, world: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """The draws of a run in a world, and of its replay in the other one."""
        recorded = self.run(world)
        return recorded.calls, self.run(1 - world, recorded).calls


Cells = Sequence[str]
Column = tuple[Mapping[str, Any], Cells]
"""A declaration, and the cells that rows can have."""


def _category(rng: np.random.Generator, low: int, high: int) -> Column:
    cells = [f"v{k}" for k in range(rng.integers(low, high + 1))]
    return {"type": "categorical", "values": cells}, cells


def _grouped(rng: np.random.Generator) -> Column:
    """Values in declared groups of different sizes."""
    cells = [f"v{k}" for k in range(rng.integers(12, 17))]
    cut = int(rng.integers(4, 9))
    groups = {"first": cells[:cut], "second": cells[cut:-1], "third": cells[-1:]}
    return {"type": "categorical", "values": cells, "groups": groups}, cells


def _integers(rng: np.random.Generator, low: int, high: int) -> Column:
    size = int(rng.integers(low, high + 1))
    return {"type": "integer", "min": 0, "max": size - 1}, [str(k) for k in range(size)]


def _binned(rng: np.random.Generator) -> Column:
    bins = int(rng.integers(3, 7))
    return {"type": "integer", "private_bins": bins, "min": 0}, [str(k) for k in range(60)]


def _discovered(rng: np.random.Generator) -> Column:
    cells = [f"v{k}" for k in range(rng.integers(3, 7))]
    return {"type": "categorical", "private_values": 9, "catch_all": "(other)"}, cells


def _heaped(rng: np.random.Generator) -> Column:
    column = {"type": "integer", "min": 0, "max": 89, "bins": int(rng.integers(3, 7))}
    return {**column, "private_heaps": 5}, [str(k) for k in range(0, 90, 5)]


def _schema(columns: Sequence[Column], person: str | None = None) -> Schema:
    named = [{"name": f"c{k}", **declared} for k, (declared, _) in enumerate(columns)]
    whose = {} if person is None else {"person": person}
    return Schema.parse({"version": 1, "columns": named, **whose})


def _rows(columns: Sequence[Column], number: int, rng: np.random.Generator) -> list[list[str]]:
    """Rows whose cells are the more frequent the earlier they are declared."""
    drawn = [rng.geometric(2 / len(cells), number) - 1 for _, cells in columns]
    picked = [np.asarray(cells)[d % len(cells)] for (_, cells), d in zip(columns, drawn)]
    return np.stack(picked, axis=1).tolist()


def _own(columns: Sequence[Column], unit: Unit, rng: np.random.Generator) -> list[list[list[str]]]:
    """Rows of the unit that differs, in each world: none and K equal ones, or K of either."""
    any_row = [[str(rng.choice(cells)) for _, cells in columns] for _ in range(2)]
    counts = [unit.rows * (unit.neighbours == "replace"), unit.rows]
    return [[row] * count for row, count in zip(any_row, counts)]


def _source(rows: Sequence[Sequence[str]], names: Sequence[str], file: bool) -> Callable:
    if file:
        return lambda folder: write_rows([*map(list, rows)], names, folder)
    return lambda _: pd.DataFrame(rows, columns=[*names])


def _game(
    rng: np.random.Generator,
    mu: float,
    columns: Sequence[Column],
    queries: Any,
    rows: int = 60,
    mechanism: str | None = None,
    unit: Unit = ROWS,
) -> Game:
    """A table with one unit more, or another one, published by `fit` or `answer`."""
    schema = _schema(columns, unit.person)
    common, own = _rows(columns, rows, rng), _own(columns, unit, rng)
    names = schema.names
    if unit.person is not None:
        names = (*names, unit.person)
        holders = rng.integers(rows, size=rows).tolist()
        common = [[*row, f"p{holder}"] for row, holder in zip(common, holders)]
        own = [[[*row, "the one who differs"] for row in some] for some in own]
    file = bool(rng.integers(2))
    worlds = [_source([*common, *some], names, file) for some in own]
    rho, options = (
        mu**2 / 2,
        {"rows_per_person": unit.rows if unit.person else None, "neighbours": unit.neighbours},
    )
    if mechanism is None:
        publisher: Any = Synthesis.of(schema, queries, rho, **options)
    else:
        publisher = Batch.of(schema, queries, rho, mechanism, **options)
    return Game(publisher, (worlds[0], worlds[1]))


def _set(rng: np.random.Generator, mu: float, most: int = 2) -> Game:
    """Three tables; one world has a row of the root more, with as many rows below it as count."""
    keys = {"homes": ["home"], "persons": ["person", "home"], "trips": ["person"]}
    columns = {name: [_category(rng, 2, 4), _category(rng, 2, 4)] for name in keys}
    schema = TableSet.parse(
        {
            "version": 1,
            "tables": {
                name: {
                    "version": 1,
                    "columns": [{"name": f"{name}{k}", **c} for k, (c, _) in enumerate(own)],
                }
                for name, own in columns.items()
            },
            "keys": [
                {"child": "persons", "column": "home", "parent": "homes", "most": most},
                {"child": "trips", "column": "person", "parent": "persons", "most": most},
            ],
        }
    )
    owned = {
        "homes": ([[f"{k}"] for k in range(40)], [["new"]]),
        "persons": (
            [[f"{k}", f"{rng.integers(40)}"] for k in range(40)],
            [[f"new{k}", "new"] for k in range(most)],
        ),
        "trips": (
            [[f"{rng.integers(40)}"] for _ in range(60)],
            [[f"new{k % most}"] for k in range(most**2)],
        ),
    }
    common, more = {}, {}
    for name, (own, born) in owned.items():
        drawn, (odd,) = _rows(columns[name], len(own), rng), _rows(columns[name], 1, rng)
        common[name] = [[*row, *key] for row, key in zip(drawn, own)]
        more[name] = [*common[name], *([*odd, *key] for key in born)]

    def world(tables: Mapping[str, Any]) -> Callable[[Path], Any]:
        frames = {
            name: pd.DataFrame(rows, columns=[*schema.tables[name].names, *keys[name]])
            for name, rows in tables.items()
        }
        return lambda _: frames

    return Game(Synthesis.of(schema, 2, mu**2 / 2), (world(common), world(more)))


RANGES = {"version": 1, "parts": [{"ways": [2]}, {"ways": [2], "queries": "range"}]}
PREFIXES = {"version": 1, "parts": [{"ways": [1, 2], "queries": "prefix"}]}


def _categories(rng: np.random.Generator, number: int = 3, low: int = 2, high: int = 4) -> list:
    return [_category(rng, low, high) for _ in range(number)]


KINDS: Mapping[str, Callable[[np.random.Generator, float], Game]] = {
    "one table": lambda rng, mu: _game(rng, mu, _categories(rng), 2, rows=4_000),
    "one table, choices": lambda rng, mu: _game(rng, mu, _categories(rng), 3, rows=40),
    "one table, levels": lambda rng, mu: _game(rng, mu, [_grouped(rng), _grouped(rng)], 2),
    "one table, strategies of columns": lambda rng, mu: _game(
        rng, mu, [_integers(rng, 6, 9), _integers(rng, 6, 9)], RANGES
    ),
    "one table, private bins": lambda rng, mu: _game(
        rng, mu, [_binned(rng), _category(rng, 2, 4)], 2
    ),
    "one table, private values": lambda rng, mu: _game(
        rng, mu, [_discovered(rng), _category(rng, 2, 4)], 2, rows=400
    ),
    "one table, frequent values": lambda rng, mu: _game(
        rng, mu, [_heaped(rng), _category(rng, 2, 4)], 2
    ),
    "persons of K = 3 rows": lambda rng, mu: _game(
        rng, mu, _categories(rng), 2, unit=Unit("who", 3)
    ),
    "persons of K = 2 rows, replaced": lambda rng, mu: _game(
        rng, mu, _categories(rng, 2, 9, 12), 2, unit=Unit("who", 2, "replace")
    ),
    "a set of tables": _set,
    "answers, residuals": lambda rng, mu: _game(
        rng, mu, [_integers(rng, 4, 7), _integers(rng, 4, 7)], PREFIXES, mechanism="querysmasher"
    ),
    "answers, whole tables": lambda rng, mu: _game(
        rng, mu, [_integers(rng, 4, 7), _integers(rng, 4, 7)], PREFIXES, mechanism="hdmm"
    ),
    "answers, private bins": lambda rng, mu: _game(
        rng, mu, [_binned(rng), _category(rng, 2, 4)], 2, mechanism="auto"
    ),
}  # fmt: skip
"""What can be released, each as a maker of random games."""


# What a run reveals, exactly and drawn.


def worst_game(kind: str, mu: float, pairs: int, rng: np.random.Generator) -> tuple[Game, float]:
    """The game of a random search that tells its worlds apart best.

    Returns:
        The game, and the μ of Gaussian noise that tells the worlds apart as well (by relative
        entropy) as a recorded run of it.
    """
    games = [KINDS[kind](rng, mu) for _ in range(pairs)]
    exact = [math.sqrt(2 * _relative_entropy(*game.courses(0))) for game in games]
    best = int(np.argmax(exact))
    return games[best], exact[best]


def _relative_entropy(calls: Sequence[Any], others: Sequence[Any]) -> float:
    return math.fsum(_step(one, other).relative_entropy for one, other in zip(calls, others))


@dataclass(frozen=True)
class _Noise:
    """Discrete Gaussian noise on counts that differ between the worlds by ``shift``."""

    call: Any
    shift: np.ndarray

    @property
    def relative_entropy(self) -> float:
        return float(self.shift @ self.shift) / (2 * float(self.call.event.noise_variance))

    def losses(self, draws: int, mechanisms: Mechanisms) -> np.ndarray:
        """Log ratios of draws in the world of the call: the other one's chance over its own."""
        moved = np.flatnonzero(self.shift)
        inputs = np.ravel(self.call.inputs)[moved]
        shift, variance = self.shift[moved], float(self.call.event.noise_variance)
        found = np.empty(draws)
        for start in range(0, draws, size := 1 + 2**21 // (1 + moved.size)):
            values = np.tile(inputs, (min(size, draws - start), 1))
            noise = (release_counts(mechanisms, self.call.event, values) - values).astype(float)
            found[start : start + size] = (2 * (noise @ shift) - shift @ shift) / (2 * variance)
        return found

    def along(self) -> float:
        """What the run drew along ``shift``, in standard deviations that were charged."""
        noise = np.ravel(self.call.output - self.call.inputs).astype(float)
        length = np.linalg.norm(self.shift)
        return float(noise @ self.shift / (length * math.sqrt(self.call.event.noise_variance)))

    def loss(self) -> float:
        """The log ratio of what the run itself drew."""
        noise = np.ravel(self.call.output - self.call.inputs).astype(float)
        shift = self.shift
        return (2 * (noise @ shift) - shift @ shift) / (2 * float(self.call.event.noise_variance))


@dataclass(frozen=True)
class _Choice:
    """A choice by the exponential mechanism; ``logs`` of the chances in both worlds."""

    call: Any
    logs: tuple[np.ndarray, np.ndarray]

    @property
    def relative_entropy(self) -> float:
        return float(np.exp(self.logs[0]) @ (self.logs[0] - self.logs[1]))

    def losses(self, draws: int, mechanisms: Mechanisms) -> np.ndarray:
        """As of noise."""
        call = self.call
        chosen = [
            select(mechanisms, call.event, call.inputs, call.score_sensitivity)
            for _ in range(draws)
        ]
        return (self.logs[1] - self.logs[0])[chosen]

    def loss(self) -> float:
        """As of noise."""
        return float((self.logs[1] - self.logs[0])[self.call.output])


@dataclass(frozen=True)
class _Discovery:
    """Which of some values have a noisy count that reaches a threshold.

    Attributes:
        call: in one world.
        chances: of passing, by value of either world: 0 where a world lacks the value.
    """

    call: Any
    chances: Mapping[str, tuple[float, float]]

    @property
    def relative_entropy(self) -> float:
        """Of the values that both worlds have; the others are what δ is for."""
        both = [pair for pair in self.chances.values() if all(pair)]
        return math.fsum(p * math.log(p / q) + special.xlogy(1 - p, (1 - p) / (1 - q))
                         for p, q in both if q < 1)  # fmt: skip

    def losses(self, draws: int, mechanisms: Mechanisms) -> np.ndarray:
        """As of noise."""
        call = self.call
        found = (
            discover_values(mechanisms, call.event, call.values, call.inputs, len(call.values))
            for _ in range(draws)
        )
        return np.array([self._loss(values) for values in found])

    def loss(self) -> float:
        """As of noise."""
        return self._loss(self.call.output)

    def _loss(self, passed: Sequence[str]) -> float:
        total, passed = 0.0, {*passed}
        with np.errstate(divide="ignore"):
            for value, chances in self.chances.items():
                here, there = (p if value in passed else 1 - p for p in chances)
                total += float(np.log(there) - np.log(here))
        return total


def _step(one: Any, other: Any) -> _Noise | _Choice | _Discovery:
    """A step of a run, with what it would have been in the other world."""
    match one.event:
        case GaussianEvent():
            return _Noise(one, np.ravel(other.inputs - one.inputs).astype(float))
        case SelectionEvent():
            places = range(one.inputs.size)
            logs = [np.array([log_chance(c, k) for k in places]) for c in (one, other)]
            return _Choice(one, (logs[0], logs[1]))
        case PartitionEvent():
            variance, threshold = one.event.noise_variance, one.event.threshold
            counts = [dict(zip(c.values, c.inputs.tolist())) for c in (one, other)]
            return _Discovery(
                one,
                {
                    value: tuple(
                        _passing(variance, threshold - c[value]) if value in c else 0.0
                        for c in counts
                    )
                    for value in {**counts[0], **counts[1]}
                },
            )
    raise AssertionError(f"no likelihood of {type(one.event).__name__}")


def _passing(variance: Fraction, threshold: int) -> float:
    """P[noise ≥ threshold] of the discrete Gaussian, by the sum of its probabilities."""
    reach = 2 + math.ceil(12 * math.sqrt(variance))
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * float(variance)))
    return float(weights[values >= threshold].sum() / weights.sum())


# Curves.


@dataclass(frozen=True)
class Claim:
    """What is promised of a run: the least type II error for a type I error.

    Attributes:
        mu: Gaussian DP with this μ; with ``gaussian`` unset, zCDP with ρ = μ²/2.
        delta: what discoveries add to δ.
        gaussian: whether the promise is the curve of Gaussian DP.
    """

    mu: float
    delta: float
    gaussian: bool

    @classmethod
    def of(cls, target: PrivacyTarget) -> Claim:
        """The claim of a budget."""
        return cls(math.sqrt(2 * target.rho), float(target.budget.delta), target.gaussian)

    def least_error(self, alpha: float) -> float:
        """The smallest type II error that the claim allows at this type I error."""
        if self.gaussian:
            return float(special.ndtr(special.ndtri(1 - alpha) - self.mu)) - self.delta
        epsilon, delta = zcdp_curve(self.mu**2 / 2)
        left = 1 - np.minimum(1.0, delta + self.delta)
        lines = np.maximum(left - np.exp(epsilon) * alpha, np.exp(-epsilon) * (left - alpha))
        return max(0.0, float(lines.max()))


@cache
def zcdp_curve(rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Some ε and the δ that ρ-zCDP implies for each; a claim from fewer ε is a weaker one."""
    epsilon = np.linspace(0.01, rho + 8 * math.sqrt(2 * rho), 100)
    return epsilon, np.array([compute_delta(rho, float(e)) for e in epsilon])


@dataclass(frozen=True)
class Curve:
    """Error rates of the tester, by threshold.

    Attributes:
        draws: in each world.
        errors: (thresholds, 2) wrong guesses in each world.
        level: error probability of each bound.
    """

    draws: int
    errors: Sequence[tuple[int, int]]
    level: float

    @classmethod
    def of(cls, ratios: Sequence[np.ndarray], mu: float, games: int) -> Curve:
        """The curve of log ratios (second world over first) of draws in each world."""
        first, second = ratios
        errors = [(int((first >= s * mu).sum()), int((second < s * mu).sum())) for s in THRESHOLDS]
        level = (1 - CONFIDENCE) / (4 * len(THRESHOLDS) * games)
        return cls(len(first), errors, level)

    def _rates(self, upper: bool) -> Iterator[tuple[float, float]]:
        for pair in self.errors:
            yield tuple(
                float(stats.beta.isf(self.level, wrong + 1, max(self.draws - wrong, 1e-300)))
                if upper
                else float(stats.beta.ppf(self.level, max(wrong, 1e-300), self.draws - wrong + 1))
                for wrong in pair
            )  # type: ignore[misc]

    def bounds(self) -> tuple[float, float]:
        """Lower bound of μ by the threshold that shows most, and the largest upper bound."""
        lower, upper = (
            max(float(-special.ndtri(a) - special.ndtri(b)) for a, b in self._rates(side))
            for side in (True, False)
        )
        return lower, upper

    def estimate(self) -> float:
        """μ at the middle threshold."""
        a, b = np.array(self.errors[len(THRESHOLDS) // 2]) / self.draws
        return float(-special.ndtri(a) - special.ndtri(b))

    def breaks(self, claim: Claim) -> bool:
        """Whether both errors are surely smaller than the claim allows, at any threshold."""
        return any(b < claim.least_error(a) for a, b in self._rates(upper=True))


def audit_game(
    kind: str, mu: float, runs: int, draws: int, pairs: int, games: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Search for the worst pair of a kind, and measure its curve in whole runs and in steps.

    Args:
        kind: a name of ``KINDS``.
        mu: what the budget claims.
        runs: whole runs in each world.
        draws: of the steps of recorded runs, in each world; a fifth of it where some are choices.
        pairs: of the random search.
        games: that are audited together.
        rng: decides tables; noise comes from the system.
    """
    game, exact = worst_game(kind, mu, pairs, rng)
    claim = Claim.of(game.target)
    whole: list[list[float]] = [[], []]
    courses, along = [], []
    for world, sign in ((0, 1), (1, -1)):
        for _ in range(runs):
            one, other = game.courses(world)
            steps = [_step(a, b) for a, b in zip(one, other, strict=True)]
            whole[world].append(sign * math.fsum(step.loss() for step in steps))
            along += [s.along() for s in steps if isinstance(s, _Noise) and s.shift.any()]
            courses.append((one, other) if world == 0 else (other, one))
    chosen = [courses[k] for k in rng.permutation(len(courses))[:10]]
    events = [call.event for one, _ in chosen for call in one]
    choices = sum(isinstance(event, SelectionEvent) for event in events)
    discoveries = sum(isinstance(event, PartitionEvent) for event in events)
    number = draws // 5 if choices + discoveries else draws
    mechanisms = Mechanisms(Budget(10**15, 10**6), SystemEntropy())
    each = -(-number // len(chosen))
    ratios = [
        np.concatenate(
            [
                sign * sum(_step(a, b).losses(each, mechanisms) for a, b in zip(*pair[::sign]))
                for pair in chosen
            ]
        )
        for sign in (1, -1)
    ]
    of_runs = Curve.of([np.array(some) for some in whole], mu, games)
    of_steps = Curve.of(ratios, mu, games)
    lower, upper = of_steps.bounds()
    found = {
        "whole runs": {
            "draws": of_runs.draws,
            "errors": of_runs.errors,
            "breaks the claim": of_runs.breaks(claim),
            "noise": spread(along, (1 - CONFIDENCE) / games),
        },
        "steps": {
            "draws": of_steps.draws,
            "errors": of_steps.errors,
            "breaks the claim": of_steps.breaks(claim),
            "mu": round(of_steps.estimate(), 4),
            "bounds": [round(lower, 4), round(upper, 4)],
        },
    }
    return {
        "claimed mu": mu,
        "claim": ("Gaussian DP" if claim.gaussian else "zCDP")
        + (f" and delta {claim.delta:.3g}" if claim.delta else ""),
        "choices": choices / len(chosen),
        "mu of the worst pair": round(exact, 4),
        **found,
        "passed": not any(each["breaks the claim"] for each in found.values())
        and not found["whole runs"]["noise"]["too small"]
        and POWER * mu <= exact <= mu * (1 + 1e-9)
        and (of_steps.estimate() if number == draws else upper) >= POWER * mu,
    }


def spread(along: Sequence[float], level: float) -> dict[str, Any]:
    """How wide noise is along what the unit changes, as a share of what was charged.

    The squares of ``n`` standard normal values have a sum of the chi-squared law with ``n`` degrees
    of freedom; its lower tail of this level says that the noise is too small.
    """
    squares = float(np.square(along).sum())
    return {
        "values": len(along),
        "standard deviation": round(math.sqrt(squares / len(along)), 4),
        "too small": bool(squares < stats.chi2.ppf(level, len(along))),
    }


def audit_curves(
    runs: int,
    draws: int,
    pairs: int,
    seed: int,
    mus: Sequence[float] = MUS,
    kinds: Sequence[str] = tuple(KINDS),
) -> dict[str, dict[str, Any]]:
    """The curves of all kinds at all budgets; see :func:`audit_game`."""
    rng = np.random.default_rng(seed)
    games = len(kinds) * len(mus)
    return {
        f"{kind}, mu {mu:g}": audit_game(kind, mu, runs, draws, pairs, games, rng)
        for kind in kinds
        for mu in mus
    }
