"""The neighbour game: guess from what was released which of two neighbouring tables it came from.

The tester knows both tables and the code, and guesses by the likelihood ratio of the whole
transcript, the best test there is. Its threshold is ratio 1, fixed before any run. Of a mechanism
that is μ-Gaussian DP every test with error rates α and β has Φ⁻¹(1 − α) − Φ⁻¹(β) ≤ μ (Dong, Roth,
Su 2022, Definition 2.6); upper confidence bounds of both rates give a lower one of μ. The variance
that the tester assumes is the charged one. Where the true noise is smaller it errs less often.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import special, stats

from adaptive_qs.answering.measure import answer_sets
from adaptive_qs.audit.audit import Batch
from adaptive_qs.audit.replay import Recorder, Replayer
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import GaussianEvent
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

MU = 3.0
LOOP_RHO = MU**2 / 2
CONFIDENCE = 0.999
SCHEMA = Schema.parse({"a": 3, "b": 4, "c": 2})
ROWS = [(i % 3, i * i % 4, i % 5 % 2) for i in range(40)]
ONE_ROW = (2, 3, 1)


def counter(rows):
    columns = np.array(rows, dtype=np.int64).T
    return MarginalCounter(CodedTable.from_codes(SCHEMA.domain(), columns))


WORLDS = counter(ROWS), counter([*ROWS, ONE_ROW])


@dataclass(frozen=True)
class Verdict:
    """How the game went.

    Attributes:
        runs: for each of the two worlds.
        errors: wrong guesses in each world.
        mu: lower bound of μ, at ``CONFIDENCE``.
    """

    runs: int
    errors: tuple[int, int]
    mu: float


def verdict(ratios) -> Verdict:
    """The outcome of log ratios ln P(outcome | second world) / P(outcome | first), by world."""
    first, second = ratios
    errors = int((first >= 0).sum()), int((second < 0).sum())
    return Verdict(len(first), errors, lower_mu(errors, len(first)))


def lower_mu(errors, runs) -> float:
    """Lower confidence bound of μ from wrong guesses in each world (Clopper and Pearson)."""
    each = (1 - CONFIDENCE) / 2
    rates = [stats.beta.isf(each, wrong + 1, runs - wrong) for wrong in errors]
    return float(-sum(special.ndtri(rates)))


def log_ratio(calls, others) -> float:
    """ln P(outputs | inputs of ``others``) − ln P(outputs | inputs of ``calls``), both exactly."""
    total = 0.0
    for one, other in zip(calls, others, strict=True):
        if isinstance(one.event, GaussianEvent):
            here, there = (np.asarray(one.output - c.inputs, dtype=float) for c in (one, other))
            total += ((here**2).sum() - (there**2).sum()) / (2 * float(one.event.noise_variance))
        else:
            here, there = (log_chance(c, one.output) for c in (one, other))
            total += there - here
    return total


def log_chance(call, chosen) -> float:
    """ln of the exponential mechanism's probability of a candidate."""
    rate = float(Fraction(call.event.epsilon) / (2 * call.score_sensitivity))
    scores = rate * (call.inputs - call.inputs.max()).astype(float)
    return float(scores[chosen] - special.logsumexp(scores))


def play(run: Callable, rho: Fraction, runs: int, seed: int) -> Verdict:
    """Run the code in both worlds, and replay each run in the other world for its inputs there."""
    ratios = np.empty((2, runs))
    for world, sign in ((0, 1), (1, -1)):
        for k in range(runs):
            entropy = InsecureSeed(int.from_bytes(f"{seed} {world} {k}".encode()))
            recorder = Recorder(Budget(rho), entropy)
            run(WORLDS[world], recorder)
            replayer = Replayer(Budget(rho), entropy, recorder.calls)
            run(WORLDS[1 - world], replayer)
            ratios[world, k] = sign * log_ratio(recorder.calls, replayer.calls)
    return verdict(ratios)


def batch_game(runs: int, seed: int = 0) -> Verdict:
    """All 2-way marginals answered at privacy cost μ²."""
    batch = Batch.of(SCHEMA, 2, MU**2 / 2)

    def answer(table, mechanisms):
        list(answer_sets(batch.planned, mechanisms.table(table), mechanisms, batch.target.units))

    return play(answer, batch.target.budget.rho, runs, seed)


def loop_game(runs: int, seed: int = 0) -> Verdict:
    """The adaptive loop at ρ = μ²/2, selections and all."""
    return play(loop, Fraction(LOOP_RHO), runs, seed)


def loop(table, mechanisms):
    """Rounds of choices: one pair, since so large a budget would measure all of them at once."""
    rounds = LoopSettings(initial_share=0.5, opening=False)
    workload = Workload(SCHEMA.domain(), {(0, 1): 1.0})
    return run_loop(mechanisms.table(table), workload, mechanisms, LOOP_RHO, rounds)
