"""The loop: its budget, and what a neighbouring table can and cannot change."""

from __future__ import annotations

import ast
import inspect
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from itertools import chain

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from adaptive_qs.audit.replay import AuditReport, Diverged, Run, compare
from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.generate.targets import single_target
from adaptive_qs.loop.budget import LoopBudget, LoopSettings
from adaptive_qs.loop.candidates import FALL, measurable_cliques
from adaptive_qs.loop.estimates import Estimates
from adaptive_qs.loop.expected import DEPENDENCE, CellSizeHistogram
from adaptive_qs.loop.loop import choose_rounds, measure_residuals, run_loop
from adaptive_qs.loop.planner import initial_share, one_way_precisions
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import GaussianEvent, SelectionEvent, Transcript
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, SystemEntropy
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload

from ..audit import recompute
from .helpers import Recorder, Replay, counter_of, domain_of, every_row, skewed_rows

DOMAIN = domain_of(3, 4, 2, 1, 5)
WORKLOADS = {
    "2-way": Workload.all_ways(DOMAIN, 2),
    "3-way": Workload.all_ways(DOMAIN, 3),
    "mixed weights": Workload(DOMAIN, {(0, 1, 4): 0.25, (1, 2): 3.0, (0, 3): 1.0, (2,): 7.0}),
    "one attribute": Workload(DOMAIN, {(1,): 1.0}),
    "one single-valued attribute": Workload(DOMAIN, {(3,): 1.0}),
}
ROWS = skewed_rows(DOMAIN, 400, 0)
UNIFORM = LoopSettings(reference="uniform")


def run(rows, workload, mechanisms, rho, settings=None, workers=1, **more):
    table = mechanisms.table(counter_of(workload.domain, rows))
    return run_loop(table, workload, mechanisms, rho, settings, workers, **more)


def estimates_of(model):
    return {tau: (e.values.tolist(), e.precision) for tau, e in model.estimates.items()}


def assert_same_release(first, second):
    assert first.rounds == second.rounds
    assert first.initial_rho == second.initial_rho
    assert estimates_of(first.model) == estimates_of(second.model)
    for a, b in zip(first.model.reference, second.model.reference, strict=True):
        np.testing.assert_array_equal(a, b)
    everything = tuple(range(len(first.model.domain)))
    np.testing.assert_array_equal(
        first.model.marginal(everything), second.model.marginal(everything)
    )


def filter_left(rho, events):
    """What exact accounting has left, from the events alone."""
    records = Transcript(events=events).model_dump(mode="json")["events"]
    return recompute.filter_left(rho, records)


def spent(budget):
    """ρ recomputed from the events alone."""
    total = Fraction(0)
    for event in budget.events:
        if isinstance(event, GaussianEvent):
            total += Fraction(event.squared_sensitivity) / (2 * Fraction(event.noise_variance))
        else:
            assert isinstance(event, SelectionEvent)
            total += Fraction(event.epsilon) ** 2 / 8
    return total


@pytest.mark.parametrize("settings", [None, UNIFORM], ids=["product", "uniform"])
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("rho", [1e-6, 0.015, 1.0, 64.0])
def test_the_budget_is_spent_and_never_exceeded(name, rho, settings):
    mechanisms = Recorder(rho, filtered=True)
    run(ROWS, WORKLOADS[name], mechanisms, rho, settings)
    assert 0 <= filter_left(rho, mechanisms.budget.events) <= 1e-5 * rho
    share = 0.95 if settings and settings.selecting_share > 0.1 else 0.985
    assert share * rho <= spent(mechanisms.budget) <= Fraction(rho)


@pytest.mark.parametrize("rho", [0.015, 1000.0])
def test_a_budget_of_zcdp_is_spent_as_far_as_exact_accounting_would_allow(rho):
    mechanisms = Recorder(rho)
    run(ROWS, WORKLOADS["3-way"], mechanisms, rho)
    assert 0.99 * rho <= spent(mechanisms.budget) <= Fraction(rho)


SETTINGS = [{"initial_share": share} for share in (1e-3, 0.999, 1.0)]
SETTINGS += [{"selecting_share": share} for share in (0.01, 0.2)]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_no_setting_breaks_the_budget(settings):
    test_the_budget_is_spent_and_never_exceeded("3-way", 0.1, LoopSettings(**settings))


def test_a_ledger_that_holds_too_little_stops_the_loop():
    mechanisms = Mechanisms(Budget(0.05), InsecureSeed(0))
    with pytest.raises(BudgetExceeded):
        run(ROWS, WORKLOADS["2-way"], mechanisms, 0.1)


def test_rounds_tell_what_was_charged():
    mechanisms = Recorder(0.5)
    result = run(ROWS, WORKLOADS["3-way"], mechanisms, 0.5, LoopSettings(opening=False))
    events = iter(mechanisms.budget.events)
    initial = Fraction(0)
    for event in events:
        if isinstance(event, SelectionEvent):
            break
        initial += event.rho
    assert float(initial) == pytest.approx(result.initial_rho)
    events = chain([event], events)
    chosen = [bool(done.budget.selecting) for done in result.rounds]
    assert chosen == sorted(chosen, reverse=True)  # the last ones are measured together
    assert len(set(chosen)) == 2
    for done in result.rounds:
        choice, event = None, next(events)
        while isinstance(event, SelectionEvent):  # all but the last one chose nothing
            choice, event = event, next(events)
        if done.budget.selecting:
            assert float(choice.rho) == pytest.approx(done.budget.selecting)
        events, cost = chain([event], events), Fraction(0)
        for residual, variance in done.measured.items():
            assert set(residual) <= set(done.clique)
            event = next(events)
            size = DOMAIN.size(residual)
            squared = math.prod(n * (n - 1) for n in DOMAIN.shape(residual))
            finer = event.squared_sensitivity / squared
            assert math.log2(finer) % 2 == 0
            assert float(event.noise_variance) == pytest.approx(variance * size**2 * finer)
            cost += event.rho
        assert float(cost) == pytest.approx(done.budget.measuring)
    assert next(events, None) is None
    assert len(result.rounds) > 3


def test_choices_of_nothing_are_charged_and_leave_the_rest_to_what_depends():
    """Two of five columns are equal: all but one pair would be measured for nothing."""
    domain, rng = domain_of(20, 20, 20, 20, 20), np.random.default_rng(0)
    codes = rng.integers(0, 20, (20_000, 5))
    codes[:, 1] = codes[:, 0]
    mechanisms = Recorder(1e-4)
    table = mechanisms.table(counter_of(domain, codes))
    result = run_loop(table, Workload.all_ways(domain, 2), mechanisms, 1e-4)
    choices = [e for e in mechanisms.budget.events if isinstance(e, SelectionEvent)]
    chosen = [past.clique for past in result.rounds if past.budget.selecting]
    assert {*map(result.model.domain.columns, chosen)} == {(0, 1)}
    assert len(choices) > len(chosen)
    assert float(spent(mechanisms.budget)) == pytest.approx(1e-4, rel=0.01)


def test_estimates_hold_the_precision_of_everything_measured():
    result = run(ROWS, WORKLOADS["3-way"], Recorder(0.5), 0.5)
    for residual in WORKLOADS["3-way"].closure:
        late = sum(1 / r.measured[residual] for r in result.rounds if residual in r.measured)
        total = result.model.precision(residual)
        if len(residual) > 1:
            assert total == pytest.approx(late)
        else:
            assert total >= late * (1 - 1e-9)


def test_progress_rises_to_the_whole_budget():
    heard = []
    result = run(ROWS, WORKLOADS["2-way"], Recorder(0.1), 0.1, on_round=lambda *a: heard.append(a))
    assert tuple(done for done, _ in heard) == result.rounds
    parts = [part for _, part in heard]
    assert parts == sorted(parts)
    assert 0 < parts[0] < 1
    assert parts[-1] == pytest.approx(1.0)


RAREST = min(every_row(DOMAIN), key=lambda row: (ROWS.count(row), row))
NEIGHBOURS = {
    "a typical row is added": [*ROWS, max(set(ROWS), key=ROWS.count)],
    "the first codes are added": [*ROWS, (0, 0, 0, 0, 0)],
    "the last codes are added": [*ROWS, (2, 3, 1, 0, 4)],
    "a combination nobody has is added": [*ROWS, RAREST],
    "the first row is removed": ROWS[1:],
    "the last row is removed": ROWS[:-1],
}


def assert_replays(rows, neighbour, workload, rho, settings, seed=0):
    """On a neighbour, with outputs frozen, everything released is identical."""
    recorded = Recorder(rho, seed)
    first = run(rows, workload, recorded, rho, settings)
    replayed = Replay(rho, recorded.calls)
    second = run(neighbour, workload, replayed, rho, settings)
    assert_same_release(first, second)
    runs = [Run(tuple(r.calls), r.ledger.events, {}) for r in (recorded, replayed)]
    tally = AuditReport()
    compare(*runs, "the loop", tally)
    assert tally.findings == []
    assert tally.moved, "the neighbour was not seen at all"
    return first


@pytest.mark.parametrize("settings", [None, UNIFORM], ids=["product", "uniform"])
@pytest.mark.parametrize("kind", NEIGHBOURS)
@pytest.mark.parametrize("name", ["3-way", "mixed weights"])
def test_a_neighbour_changes_nothing_but_the_inputs_within_their_sensitivity(name, kind, settings):
    result = assert_replays(ROWS, NEIGHBOURS[kind], WORKLOADS[name], 0.5, settings)
    assert len(result.rounds) >= 3


@pytest.mark.parametrize(
    ("rows", "neighbour", "name", "rho"),
    [
        (ROWS, ROWS[1:], "3-way", 1e-5),
        (ROWS, ROWS[1:], "3-way", 50.0),
        ([(1, 1, 1, 0, 1)], [], "3-way", 1.0),
        ([], [(1, 1, 1, 0, 1)], "3-way", 1.0),
        (ROWS, ROWS[1:], "one attribute", 0.1),
        (ROWS, ROWS[1:], "one single-valued attribute", 0.1),
        (ROWS, ROWS[1:], "2-way", 0.1),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value)[:12],
)
def test_neighbours_replay_at_any_budget_to_the_last_row_and_on_degenerate_workloads(
    rows, neighbour, name, rho
):
    assert_replays(rows, neighbour, WORKLOADS[name], rho, None)


def test_residuals_too_large_to_scale_replay(monkeypatch):
    monkeypatch.setattr("adaptive_qs.loop.estimates.MAX_SCALE", 8)
    assert_replays(ROWS, ROWS[1:], WORKLOADS["3-way"], 0.5, None)


def test_replay_notices_a_schedule_that_depends_on_the_data(monkeypatch):
    """Power: a price that sees the private number of rows is caught."""
    seen = {}
    real_count, real_judge = MarginalCounter.count, LoopBudget.anneal

    def spying_count(self, clique):
        seen["odd"] = int(real_count(self, ())) % 2
        return real_count(self, clique)

    def judge(leaking):
        def judge(self, *round_):
            real_judge(self, *round_)
            self._price /= FALL**4 if leaking and seen["odd"] else 1

        return judge

    monkeypatch.setattr(MarginalCounter, "count", spying_count)
    monkeypatch.setattr(LoopBudget, "anneal", judge(leaking=False))
    assert_replays(ROWS, ROWS[1:], WORKLOADS["3-way"], 0.5, None)
    monkeypatch.setattr(LoopBudget, "anneal", judge(leaking=True))
    with pytest.raises(Diverged, match="another course"):
        assert_replays(ROWS, ROWS[1:], WORKLOADS["3-way"], 0.5, None)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(1,), (2,), (300,), (1, 1), (1, 2), (2, 1, 3), (40, 50)])
@pytest.mark.parametrize("rho", [1e-4, 10.0])
def test_tiny_tables_work(sizes, rows, rho):
    domain = domain_of(*sizes)
    table = [(0,) * len(sizes), tuple(n - 1 for n in sizes)][:rows]
    workload = Workload.all_ways(domain, range(1, len(sizes) + 1))
    result = run(table, workload, Recorder(rho), rho)
    everything = result.model.marginal(tuple(range(len(sizes))))
    assert np.isfinite(everything).all()


@pytest.mark.parametrize("settings", [None, UNIFORM], ids=["product", "uniform"])
def test_the_same_seed_gives_the_same_release_for_any_number_of_workers(settings):
    results = [run(ROWS, WORKLOADS["3-way"], Recorder(0.5, 7), 0.5, settings, w) for w in (1, 2)]
    assert_same_release(*results)


def test_another_seed_and_system_entropy_give_another_release_each_time():
    system = (Mechanisms(Budget(0.5), SystemEntropy()) for _ in range(2))
    for pair in ((Recorder(0.5, seed) for seed in (1, 2)), system):
        first, second = (run(ROWS, WORKLOADS["2-way"], mechanisms, 0.5) for mechanisms in pair)
        assert estimates_of(first.model) != estimates_of(second.model)


def test_the_ceiling_on_measured_cells_is_respected():
    for ceiling in (20, 60, 100):
        result = run(
            ROWS, WORKLOADS["3-way"], Recorder(5.0), 5.0, LoopSettings(measured_cells=ceiling)
        )
        assert result.rounds
        several = {r.clique for r in result.rounds if len(r.clique) > 1}
        assert sum(map(DOMAIN.size, several)) <= ceiling


def test_candidates_are_the_subsets_in_which_every_attribute_varies():
    assert set(measurable_cliques(WORKLOADS["mixed weights"])) == {
        (0,), (1,), (2,), (4,), (0, 1), (0, 4), (1, 4), (1, 2), (0, 1, 4),
    }  # fmt: skip
    assert measurable_cliques(WORKLOADS["one single-valued attribute"]) == ()


def test_with_a_huge_budget_the_marginals_are_the_true_ones():
    """At ρ = 1e9 the noise of a cell is far below one row; the error is that of rounding."""
    workload = WORKLOADS["3-way"]
    result = run(ROWS, workload, Recorder(1e9), 1e9)
    counter = counter_of(DOMAIN, ROWS)
    measured = {r.clique for r in result.rounds}
    assert measured
    for clique in measured:
        np.testing.assert_allclose(result.model.marginal(clique), counter.count(clique), atol=0.05)


def test_more_budget_gives_less_error():
    """Mean over 5 seeds and all marginals; the ratio is near 5 and must exceed 2."""
    counter = counter_of(DOMAIN, ROWS)
    workload = WORKLOADS["2-way"]

    def error(rho):
        total = 0.0
        for seed in range(5):
            model = run(ROWS, workload, Recorder(rho, seed), rho).model
            total += sum(
                np.abs(model.marginal(c) - counter.count(c)).sum() for c in workload.cliques
            )
        return total

    assert error(0.01) > 2 * error(1.0)


BAD = [("reference", "tree"), *(("initial_share", bad) for bad in (0.0, 1.5, math.nan))]
BAD += [("selecting_share", bad) for bad in (0.0, 0.21, math.nan)]


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_settings_out_of_range_are_refused(name, bad):
    with pytest.raises(ValueError, match=name):
        replace(LoopSettings(), **{name: bad})


# The ledger rounds each charge up; however small the budget, the loop must end inside it.

TINY = [((2,) * 100, 50, 2, rho, 0) for rho in (1e-10, 1e-7)]
TINY += [
    ((3, 4, 2, 5, 2), 200, 3, rho, seed)
    for rho in (1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e12)
    for seed in range(4)
]


@pytest.mark.parametrize(("sizes", "rows", "ways", "rho", "seed"), TINY)
@pytest.mark.one_in(3)
def test_a_tiny_budget_is_spent_without_a_refusal(sizes, rows, ways, rho, seed):
    domain = domain_of(*sizes)
    rng = np.random.default_rng(seed)
    table = CodedTable.from_codes(domain, [rng.integers(0, n, rows) for n in sizes])
    budget = Budget(rho, filtered=rho < 1)
    mechanisms = Mechanisms(budget, InsecureSeed(seed))
    run_loop(
        mechanisms.table(MarginalCounter(table)), Workload.all_ways(domain, ways), mechanisms, rho
    )
    assert 0.985 * rho < budget.spent.rho <= rho
    if budget.filtered:
        assert 0 <= filter_left(rho, budget.events) <= 1e-3 * rho


@pytest.mark.parametrize("seed", [39, 42, 54])
def test_a_choice_that_was_to_be_the_last_leaves_something_for_others(seed, monkeypatch):
    """Where most candidates would take all there is, and the one that is chosen does not."""
    rng, sizes = np.random.default_rng(seed), dict(zip("abcd", (200, 1, 200, 1)))
    skewed = {a: np.minimum((rng.random(70) ** 2 * n).astype(int), n - 1) for a, n in sizes.items()}
    columns = [{"name": a, "type": "integer", "min": 0, "max": n - 1} for a, n in sizes.items()]
    monkeypatch.setattr("adaptive_qs.run.tables.LoopSettings", partial(LoopSettings, "uniform"))
    made = Synthesizer(
        rho=1.4314340616216539, workload=2, beyond_limits=True, insecure_seed=seed, workers=1,
    ).fit(pd.DataFrame(skewed), schema={"version": 1, "columns": columns})  # fmt: skip
    release = made.release_
    assert 0.99 < release.manifest.spent_share(release.events) <= 1


# What the first measurements get, and what candidates are compared with.


@pytest.mark.parametrize(("rho", "total"), [(1e-5, 3_000), (0.02, 3_000), (0.02, 50_000), (1, 1e6)])
def test_the_share_of_single_columns_is_where_the_error_of_a_combination_is_least(rho, total):
    """Against a search over a/√s + b/√(1 − s), with a and b of every combination by itself."""
    domain = domain_of(3, 40, 7, 40, 100)
    workload = Workload.all_ways(domain, 3)
    candidates = [*workload.closure]
    several = [c for c in candidates if len(c) > 1]
    weight = np.array(domain.sizes) ** (2 / 3)
    single = np.sqrt(weight.sum() / (np.pi * rho * weight)) * domain.sizes / total
    zipf = [CellSizeHistogram.of(1 / np.arange(1, n + 1)) for n in domain.sizes]
    std, joint = np.array([np.sqrt(len(several) / (2 * rho))]), []
    for clique in several:
        sizes = reduce(CellSizeHistogram.times, [zipf[i] for i in clique])
        joint.append(sizes.errors(total, std)[0] / total)
    a = np.mean([sum(single[i] for i in clique) for clique in several])
    b = min(np.mean(joint), DEPENDENCE / 2)
    shares = np.linspace(0.1, 0.9, 8001)
    least = shares[np.argmin(a / np.sqrt(shares) + b / np.sqrt(1 - shares))]
    assert initial_share(workload, candidates, rho, total) == pytest.approx(least, abs=2e-4)


def test_columns_are_measured_by_what_the_workload_weighs():
    """Against a search: precisions of one cost that leave the least weighted error."""
    domain, heavy = domain_of(30, 4, 30, 100), 25.0
    pairs = [(0, 1), (0, 2), (1, 2), (1, 3)]
    weights = [heavy, 1, 1, 1]
    workload = Workload(domain, dict(zip(pairs, weights)))
    held = [sum(w for pair, w in zip(pairs, weights) if i in pair) for i in range(4)]
    counts = np.array(held) + np.mean(weights)
    found = one_way_precisions(workload, 0.01)

    def error(logs):
        precision = np.exp(logs)
        return (counts * domain.sizes / np.sqrt(0.02 * precision / precision.sum())).sum()

    best = np.exp(minimize(error, np.zeros(4), tol=1e-12).x)
    np.testing.assert_allclose(found / found.sum(), best / best.sum(), rtol=1e-3)
    assert found.sum() == pytest.approx(0.02)
    alike = one_way_precisions(Workload.all_ways(domain, 2), 0.01)
    assert found[1] > 1.5 * alike[1]


def smooth_rows(count, seed=0):
    """Rows of three columns of 40, 40 and 2 codes; the first has a smooth distribution."""
    rng = np.random.default_rng(seed)
    first = np.clip(rng.normal(20, 7, count), 0, 39).astype(int)
    second = rng.choice(40, count, p=rng.dirichlet(np.full(40, 0.3)))
    return list(zip(first.tolist(), second.tolist(), (first % 2).tolist()))


def test_a_smooth_column_gets_less_of_the_budget_than_one_that_is_not(monkeypatch):
    domain, rows, rho = domain_of(40, 40, 2), smooth_rows(5_000), 0.05
    settings = LoopSettings(opening=False)
    recorder, workload = Recorder(rho), Workload.all_ways(domain, 2)
    run(rows, workload, recorder, rho, settings)
    assert 0.99 * rho <= spent(recorder.budget) <= Fraction(rho)
    assert_replays(rows, rows[1:], workload, rho, settings)
    plan = one_way_precisions(workload, 1.0)
    assert plan[0] == plan[1]
    rho = 0.002  # so that noise hides what smoothing finds
    monkeypatch.setattr("adaptive_qs.loop.loop.choose_rounds", lambda *_: iter(()))
    columns = run(rows, workload, Recorder(rho), rho, settings).model  # rounds add to them
    smooth, rough = (columns.precision((i,)) for i in (0, 1))
    assert smooth < 0.8 * rough


def test_while_the_loop_chooses_a_smoothed_column_is_as_precise_as_what_is_left_of_its_noise():
    """The values are those of the smoothed mean of all measurements; a unit of ρ buys as much."""
    domain = domain_of(40, 3)
    mechanisms = Recorder(1.0)
    table = mechanisms.table(counter_of(domain, [row[::2] for row in smooth_rows(3_000)]))
    estimates = Estimates.uniform(domain, {}, False)
    measure_residuals(table, mechanisms, estimates, {(): 0.01, (0,): 1e-3, (1,): 1e-3})
    smoothed = estimates.smoothed()
    part = smoothed.left[0,]
    assert set(smoothed.left) == {(0,)}
    assert 0.005 < part < 0.5
    for cost in (0.0, 1e-3):
        if cost:
            variances = measure_residuals(table, mechanisms, smoothed, {(0,): cost / part})
            assert variances[0,] == pytest.approx(1 / cost)
        assert estimates.model.precision((0,)) == pytest.approx(1e-3 + cost)
        assert smoothed.model.precision((0,)) == pytest.approx((1e-3 + cost) / part)
        expected = single_target(estimates.model, 0, loose_ends=False).counts
        found = smoothed.model.estimates[0,].values
        np.testing.assert_allclose(found, expected - expected.mean(), atol=1e-8)
    assert smoothed.cost((0,)) == pytest.approx(part * estimates.cost((0,)))
    assert smoothed.cost((1,)) == estimates.cost((1,))


def test_the_loop_fits_on_a_screen():
    """As Algorithm 4: no more than 50 lines, and a dozen local names."""
    for function in (run_loop, choose_rounds):
        (node,) = ast.parse(inspect.getsource(function)).body
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        local = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        assert node.end_lineno <= 50
        assert len(local) <= 12
