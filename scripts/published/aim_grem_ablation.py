"""Repeat Fuentes et al., Table 2: lazy+CRP, lazy+IID and full+IID on Adult and Loans.

Every strategy measures the same public sequence of 3-way marginals (drawn without replacement by
a seeded generator) and keeps the answers of all 3-way marginals current after each measurement:

    CRP    Conditional ResidualPlanner noise on the marginal's residuals, negligible ones omitted
    IID    isotropic noise on the marginal, decomposed into all its residuals
    lazy   the answers above a changed residual move by its change (Proposition 4.2)
    full   every answer is the sum over all its residuals, formed afresh (Algorithm 3)

Lazy and full differ in nothing but which residuals they add to which answers: both hold the
answers in memory as float32 and add with the same function. Half of ρ goes to one-way marginals,
half to the sequence in equal parts. Within a trial the strategies start from the same one-way
measurements, which makes their errors comparable. Noise is exact and from the operating system.

The sequence holds every 3-way marginal once. On Adult all rounds are timed. On Loans full+IID
would take hours, so only the first rounds are timed; the rest is measured without updating answers
in between, and the error is that of the answers at the end, which do not depend on when they were
updated. The error of full+IID is that of lazy+IID. A shorter sequence would not do for the error:
while most of the workload is unmeasured, CRP, which plans for the marginal at hand alone, loses
to IID, which measures two-way residuals again and again that other marginals share.

The columns are recoded to the values that occur, and dropped where fewer than two or more than 100
do, as in the paper (Appendix G.1). That reads the domain off the data: right for a benchmark on
public tables, not a private release.

    python -m scripts.published.aim_grem_ablation DATA_FOLDER --dataset adult loans
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Clique, Domain, subsets
from adaptive_qs.loop.estimates import Estimates, measurement_cost
from adaptive_qs.loop.planner import ConditionalPlanner
from adaptive_qs.privacy.accounting import compute_rho
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.counts import Identity, LinearQuery, Measurement
from adaptive_qs.privacy.events import Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import SystemEntropy
from adaptive_qs.residual import ReferenceModel, decompose, uniform_reference
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from scripts.results import RESULTS, write_results

EPSILON, DELTA = 1.0, 1e-9
SAFETY = 1e-9
FILES = {"adult": "adult/adult.csv", "loans": "loans/loans.zip"}
STRATEGIES = ("lazy+CRP", "lazy+IID", "full+IID")
PUBLISHED = {
    "adult": {
        "seconds": dict(zip(STRATEGIES, (8.10, 16.58, 149.64))),
        "error": dict(zip(STRATEGIES, (9.532, 10.166, 10.166))),
    },
    "loans": {
        "seconds": dict(zip(STRATEGIES, (37.87, 489.46, 3506.93))),
        "error": dict(zip(STRATEGIES, (622.507, 641.795, 641.795))),
    },
}

Changes = dict[Clique, NDArray[np.float64]]
"""What moved: for each residual remeasured, its new estimate minus its old one (rows)."""
Answers = dict[Clique, NDArray[np.float32]]
Measure = Callable[[MarginalCounter, Mechanisms, Clique, float], Changes]
"""Spends rho on one marginal and updates the model's estimates of its residuals."""
Refresh = Callable[[ReferenceModel, Changes], None]
"""Makes the answers current again."""


def read_table(path: Path) -> CodedTable:
    """The table without missing rows and without columns of 1 or of over 100 values, recoded."""
    frame = pd.read_csv(path).dropna()
    columns = {}
    for name in frame.columns:
        values, codes = np.unique(frame[name].to_numpy(), return_inverse=True)
        if 2 <= values.size <= 100:
            columns[name] = (codes, values.size)
    domain = Domain.from_sizes({name: int(size) for name, (_, size) in columns.items()})
    return CodedTable.from_codes(domain, [codes for codes, _ in columns.values()])


def measure_residual(
    counter: MarginalCounter, mechanisms: Mechanisms, residual: Clique, variance: float
) -> NDArray[np.float64]:
    """One noisy residual in centered form."""
    estimates = Estimates.uniform(counter.domain, {}, replaced=False)
    return estimates.measured(mechanisms.table(counter), mechanisms, {residual: variance})[residual]


def measure_one_way(counter: MarginalCounter, mechanisms: Mechanisms, rho: float) -> ReferenceModel:
    """All one-way marginals with equal noise, as residuals (Fuentes et al., Algorithm 6).

    The draws of the total, one per attribute in the paper, are pooled into one.
    """
    domain = counter.domain
    model = ReferenceModel(domain, uniform_reference(domain))
    precision = 2 * rho / len(domain)
    precisions = {(): precision * sum(1 / n for n in domain.sizes)}
    precisions |= {(i,): precision for i in range(len(domain))}
    for residual, x in precisions.items():
        model.update(residual, measure_residual(counter, mechanisms, residual, 1 / x), x)
    return model


def conditional(model: ReferenceModel, sequence: list[Clique]) -> Measure:
    """CRP: precision where the marginal's error gains most, given what is known."""
    closure = downward_closure(sequence)
    costs = [measurement_cost(model.domain, residual) for residual in closure]
    planner = ConditionalPlanner(model.domain, closure, sequence, costs)
    position = {residual: k for k, residual in enumerate(closure)}
    known = np.array([model.precision(residual) for residual in closure])

    def measure(
        counter: MarginalCounter, mechanisms: Mechanisms, clique: Clique, rho: float
    ) -> Changes:
        changes = {}
        for residual, precision in planner.allocate(clique, known, 2 * rho).items():
            values = measure_residual(counter, mechanisms, residual, 1 / precision)
            changes[residual] = update(model, clique, residual, values, precision)
            known[position[residual]] += precision
        return changes

    return measure


def isotropic(model: ReferenceModel, _: list[Clique]) -> Measure:
    """IID: equal noise on every cell of the marginal, which is then decomposed."""

    def measure(
        counter: MarginalCounter, mechanisms: Mechanisms, clique: Clique, rho: float
    ) -> Changes:
        variance, domain = Fraction(1 / (2 * rho)), model.domain
        maps = [*map(Identity, domain.shape(clique))]
        query = LinearQuery(Purpose.STRATEGY, domain.clique_names(clique), maps)
        (counts,) = mechanisms.table(counter).marginals([clique])
        (noisy,) = mechanisms.measure([Measurement(query, counts, variance)])
        changes = {}
        for residual in subsets(clique):
            summed = domain.size(clique) / domain.size(residual)
            values, precision = decompose(noisy, clique, residual), 1 / (float(variance) * summed)
            changes[residual] = update(model, clique, residual, values, precision)
        return changes

    return measure


def update(
    model: ReferenceModel,
    clique: Clique,
    residual: Clique,
    values: NDArray[np.float64],
    precision: float,
) -> NDArray[np.float64]:
    """Average a measurement into the model; returns by how much the estimate moved (rows).

    The residual of a whole marginal is measured once and enters its answer only, which keeps it.
    """
    if residual == clique:
        return values
    old = model.estimates.get(residual)
    model.update(residual, values, precision)
    new = model.estimates[residual].values
    return new - old.values if old else new


def add(answer: NDArray[np.float32], clique: Clique, residual: Clique, values: NDArray) -> None:
    """Add to an answer what a centered residual explains of it, spread over the other axes."""
    shape = [n if i in residual else 1 for i, n in zip(clique, answer.shape)]
    answer += (values * (values.size / answer.size)).astype(np.float32).reshape(shape)


def full(answers: Answers) -> Refresh:
    """Forms every answer afresh: the sum over its residuals."""
    whole: Changes = {}

    def refresh(model: ReferenceModel, changes: Changes) -> None:
        whole.update((c, change) for c, change in changes.items() if c in answers)
        for clique, answer in answers.items():
            answer.fill(0)
            if clique in whole:
                add(answer, clique, clique, whole[clique])
            for residual in subsets(clique):
                if residual in model.estimates:
                    add(answer, clique, residual, model.estimates[residual].values)

    return refresh


def lazy(answers: Answers) -> Refresh:
    """Moves the answers above a changed residual by its change."""
    above: dict[Clique, list[Clique]] = {}
    for clique in answers:
        for residual in subsets(clique):
            above.setdefault(residual, []).append(clique)

    def refresh(_: ReferenceModel, changes: Changes) -> None:
        for residual, change in changes.items():
            for clique in above[residual]:
                add(answers[clique], clique, residual, change)

    return refresh


@dataclass(frozen=True)
class Outcome:
    """One strategy in one trial: seconds, residuals measured in the timed rounds, error."""

    first_s: float
    measuring_s: float
    reconstructing_s: float
    residuals: int
    error: float | None

    @property
    def seconds(self) -> float:
        """Time of the timed rounds and of what comes before them (one-way, first answers)."""
        return self.first_s + self.measuring_s + self.reconstructing_s


@dataclass(frozen=True)
class Task:
    """What all strategies do on one table."""

    counter: MarginalCounter
    rho: float
    workload: list[Clique]
    sequence: list[Clique]
    timed: int
    scored_trials: int
    answers: Answers

    @classmethod
    def of(cls, counter: MarginalCounter, timed: int | None, scored_trials: int, seed: int) -> Task:
        """All 3-way marginals as workload, and a seeded shuffle of them to measure."""
        domain = counter.domain
        workload = list(combinations(range(len(domain)), 3))
        order = np.random.default_rng(seed).permutation(len(workload))
        sequence = [workload[k] for k in order]
        answers = {c: np.ones(domain.shape(c), dtype=np.float32) for c in workload}
        rho = compute_rho(EPSILON, DELTA) * (1 - SAFETY)
        timed = timed or len(sequence)
        return cls(counter, rho, workload, sequence, timed, scored_trials, answers)

    def error(self) -> float:
        """Mean over the workload of ‖μ − μ̂‖₁ / rows."""
        rows = int(self.counter.count(()))
        return fmean(
            float(np.abs(self.counter.count(c).astype(np.float32) - a).sum(dtype=np.float64)) / rows
            for c, a in self.answers.items()
        )


def run_strategy(
    task: Task, name: str, initial: ReferenceModel, initial_s: float, scored: bool
) -> Outcome:
    """Measure the sequence with half the budget, keep the answers current, score them."""
    model = ReferenceModel(task.counter.domain, initial.reference, initial.estimates)
    mechanisms = Mechanisms(Budget(task.rho / 2), SystemEntropy())
    share = task.rho / 2 / len(task.sequence) * (1 - SAFETY)
    updating, noise = name.split("+")
    began = perf_counter()
    measure = (conditional if noise == "CRP" else isotropic)(model, task.sequence)
    refresh = (lazy if updating == "lazy" else full)(task.answers)
    full(task.answers)(model, {})
    first_s = initial_s + perf_counter() - began
    measuring_s = reconstructing_s = 0.0
    residuals = 0
    for clique in task.sequence[: task.timed]:
        began = perf_counter()
        changes = measure(task.counter, mechanisms, clique, share)
        measured = perf_counter()
        refresh(model, changes)
        measuring_s += measured - began
        reconstructing_s += perf_counter() - measured
        residuals += len(changes)
    error = None
    untimed = task.sequence[task.timed :]
    if scored and (updating == "lazy" or not untimed):
        pending: Changes = {}
        for clique in untimed:
            changes = measure(task.counter, mechanisms, clique, share)
            add(task.answers[clique], clique, clique, changes.pop(clique))
            for residual, change in changes.items():
                pending[residual] = pending.get(residual, 0.0) + change
        refresh(model, pending)
        error = task.error()
    return Outcome(first_s, measuring_s, reconstructing_s, residuals, error)


def run_trials(task: Task, trials: int) -> dict[str, list[Outcome]]:
    """All strategies, ``trials`` times each, in turn (so that a slow spell hits all alike)."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in STRATEGIES}
    for trial in range(trials):
        began = perf_counter()
        mechanisms = Mechanisms(Budget(task.rho / 2), SystemEntropy())
        initial = measure_one_way(task.counter, mechanisms, task.rho / 2 * (1 - SAFETY))
        initial_s = perf_counter() - began
        for name in STRATEGIES:
            scored = trial < task.scored_trials
            outcome = run_strategy(task, name, initial, initial_s, scored)
            outcomes[name].append(outcome)
            print(f"trial {trial} {name}: {outcome.seconds:.2f} s, {outcome.error}", flush=True)
    return outcomes


def summarise(dataset: str, task: Task, outcomes: dict[str, list[Outcome]]) -> list[dict]:
    """One line per strategy: ours beside the published figures."""
    lines = []
    domain = task.counter.domain
    for name, runs in outcomes.items():
        errors = [r.error for r in runs if r.error is not None]
        rounds_s = fmean(r.measuring_s + r.reconstructing_s for r in runs)
        lines.append(
            {
                "dataset": dataset,
                "strategy": name,
                "attributes": len(domain),
                "workload_marginals": len(task.workload),
                "workload_cells": sum(map(domain.size, task.workload)),
                "rounds": len(task.sequence),
                "rounds_timed": task.timed,
                "trials": len(runs),
                "trials_scored": len(errors),
                "seconds": round(fmean(r.seconds for r in runs), 3),
                "first_seconds": round(fmean(r.first_s for r in runs), 3),
                "measuring_seconds": round(fmean(r.measuring_s for r in runs), 3),
                "reconstructing_seconds": round(fmean(r.reconstructing_s for r in runs), 3),
                "seconds_per_round": round(rounds_s / task.timed, 4),
                "residuals_per_round": round(fmean(r.residuals for r in runs) / task.timed, 3),
                "error": round(fmean(errors), 4) if errors else None,
                "error_std": round(stdev(errors), 4) if len(errors) > 1 else None,
                "published_seconds": PUBLISHED[dataset]["seconds"][name],
                "published_error": PUBLISHED[dataset]["error"][name],
            }
        )
    return lines


def order_as_published(lines: list[dict]) -> dict[str, bool]:
    """Whether time and error rank the strategies as the paper's table does."""
    by_name = {line["strategy"]: line for line in lines}

    def ascending(key: str, names: tuple[str, ...] = STRATEGIES) -> bool:
        return all(by_name[a][key] < by_name[b][key] for a, b in pairwise(names))

    return {
        "time": ascending("seconds"),
        "time_per_round": ascending("seconds_per_round"),
        "error": ascending("error", STRATEGIES[:2]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Repeat Fuentes et al., Table 2.")
    parser.add_argument("data", type=Path, help="folder that holds adult/ and loans/")
    parser.add_argument("--dataset", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="order of the 3-way marginals")
    parser.add_argument("--loans-timed", type=int, default=20, help="rounds timed on Loans")
    parser.add_argument("--loans-scored", type=int, default=1, help="trials scored on Loans")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to")
    arguments = parser.parse_args()
    for dataset in arguments.dataset:
        counter = MarginalCounter(read_table(arguments.data / FILES[dataset]))
        loans = dataset == "loans"
        task = Task.of(
            counter,
            arguments.loans_timed if loans else None,
            arguments.loans_scored if loans else arguments.trials,
            arguments.seed,
        )
        lines = summarise(dataset, task, run_trials(task, arguments.trials))
        config = {
            "epsilon": EPSILON,
            "delta": DELTA,
            "one_way_share": 0.5,
            "reference": "uniform",
            "sequence": "every 3-way marginal once, in seeded random order",
            "error": "mean over all 3-way marginals of the L1 distance divided by the rows",
            "answers": "float32 in memory, one thread",
            "noise": "exact, operating system entropy; one-way measurements shared in a trial",
            "trials": arguments.trials,
            "rounds": len(task.sequence),
            "rounds_timed": task.timed,
            "trials_scored": task.scored_trials,
        }
        order = order_as_published(lines)
        path = write_results(
            f"aim_grem_ablation_{dataset}",
            {"table": lines, "order_as_published": order},
            config,
            [arguments.seed],
            rows=lines,
            folder=arguments.results,
        )
        print(json.dumps(order), path.name)


if __name__ == "__main__":
    main()
