"""What is known of a run before it: unconnected columns and the noise of the number of rows."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.domain import Domain
from adaptive_qs.errors import GuardRailWarning, ResourceExceeded
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.expected import DEPENDENCE
from adaptive_qs.loop.forecast import (
    IMPLIED,
    MOST_CANDIDATES,
    NUMBERS,
    TIED,
    LoopForecast,
    assumed_dependence,
    total_std,
)
from adaptive_qs.privacy.accounting import compute_rho
from adaptive_qs.run.budget import Limits
from adaptive_qs.run.memory import plan_memory, run_seconds
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CODE_BYTES
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts.results import RESULTS

SIZES = {"a": 2, "b": 3, "wide": 60, "wider": 200}


def forecast_of(rho, ways=2, **sizes):
    return LoopForecast(Workload.all_ways(Domain.from_sizes(sizes), ways), rho)


def test_large_columns_take_more_rows_and_more_budget_takes_fewer():
    assert forecast_of(compute_rho(100.0, 1e-9), **SIZES).columns(5_000) == ()
    little, much = (forecast_of(compute_rho(epsilon, 1e-9), **SIZES) for epsilon in (0.1, 1.0))
    assert {"wide", "wider"} <= set(little.columns(500))
    assert len(much.columns(2_000)) < len(little.columns(2_000))
    marginals = [much.measured(rows).marginals for rows in (100, 2_000, 100_000)]
    assert marginals[0] < marginals[1] < marginals[2] == 6


def test_combinations_get_finer_with_the_budget_and_are_over_codes_without_levels():
    workload = Workload.all_ways(
        Domain.from_sizes({"age": 90, "city": 200, "job": 40, "sex": 2, "day": 7}), 2
    )
    coarse, fine = (
        LoopForecast(workload, compute_rho(epsilon, 1e-9)).measured(20_000)
        for epsilon in (1.0, 300.0)
    )
    assert 0 < coarse.full < coarse.marginals
    assert fine.full > coarse.full
    assert fine.marginals == 10
    off = LoopForecast(workload, compute_rho(1.0, 1e-9), LoopSettings(levels="off"))
    assert 0 < off.measured(20_000).marginals == off.measured(20_000).full


def test_dependence_is_that_of_the_rows_on_average_and_columns_explain_half_of_its_logarithm():
    workload = Workload.all_ways(Domain.from_sizes({f"c{i}": 4 for i in range(12)}), 2)
    choices = LoopForecast(workload, 1.0)._start(10_000).choices
    pairs = [row for row, clique in enumerate(choices.every.cliques) if len(clique) == 2]
    held = np.zeros((len(pairs), 12))
    for place, row in enumerate(pairs):
        held[place, list(choices.every.cliques[row])] = 1
    explained = []
    for seed in range(20):
        found = choices.assume_differences(np.random.default_rng(seed), DEPENDENCE)[pairs]
        assert found.max() <= 1.5
        assert 0.1 < found.mean() <= DEPENDENCE * 1.001
        log = np.log(found)
        rest = log - held @ np.linalg.lstsq(held, log, rcond=None)[0]
        explained.append(1 - rest.var() / log.var())
    assert 0.5 <= np.mean(explained) <= 0.85


def test_a_schema_ties_rules_numbered_names_and_bins_that_lie_alike():
    def number(name, least, step, bins=20):
        starts = [least + step * k for k in range(bins)]
        return {"name": name, "type": "integer", "min": least, "max": 9_999, "bin_starts": starts}

    columns = [
        number("km 5", 0, 7), number("km 40", 600, 9), number("net", 0, 100),
        number("gross", 150, 100), number("late", 500, 100), number("few 1", 0, 5, 3),
        number("few 2", 0, 5, 3), {"name": "day", "type": "categorical", "values": ["a", "b"]},
    ]  # fmt: skip
    rules = [{"rule": "day = a -> `few 1` < 5"}]
    schema = Schema.parse({"version": 1, "columns": columns, "rules": rules})
    assumed = assumed_dependence(schema)
    ties = [pair for pair, mean in assumed.items() if mean == TIED]
    named = {*map(schema.domain().clique_names, ties)}
    assert named == {("km 5", "km 40"), ("net", "gross"), ("few 1", "day")}
    assert {*assumed} - {*ties} == {*combinations(range(5), 2)} - {*ties}
    numbered = Schema.parse({"version": 1, "columns": columns[:2]})
    assert assumed_dependence(numbered) == {(0, 1): NUMBERS}  # where all are numbered

    workload = Workload.all_ways(schema.domain(), 2)
    forecast = LoopForecast(workload, compute_rho(1.0, 1e-6), schema=schema)
    choices = forecast._start(5_000).choices
    found = choices.assume_differences(np.random.default_rng(0), DEPENDENCE)
    of = {choices.domain.columns(c): d for c, d in zip(choices.every.cliques, found) if len(c) > 1}
    assert all(abs(np.log(of[pair] / TIED)) < 1 for pair in ties if pair != (5, 7))
    assert of[5, 7] <= 1  # of two codes, no pair differs by more
    unaware = LoopForecast(workload, compute_rho(1.0, 1e-6))
    assert forecast.measured(5_000).marginals > unaware.measured(5_000).marginals


def test_a_path_of_measured_pairs_shows_less_the_longer_it_is_and_the_strongest_pairs_count():
    choices = forecast_of(1.0, a=2, b=3, c=4, d=5, e=6)._start(1_000).choices
    joined = np.zeros((5, 5))
    joined[0, 1], joined[1, 2], joined[0, 2], joined[2, 3] = 0.4, 0.3, 0.1, 0.2
    missed = dict(zip(choices.every.cliques, choices.implied(joined)))
    assert missed[1, 3] == pytest.approx(1 - IMPLIED)
    assert missed[0, 3] == pytest.approx(1 - IMPLIED**2)  # by 1 and 2: the pair (0, 2) is weaker
    assert missed[3, 4] == missed[0,] == 1


def test_time_grows_with_what_is_measured_read_and_written_as_results_say():
    workload = forecast_of(1.0, **SIZES, more=300).workload
    few, many = run_seconds(workload, 1_000, 3), run_seconds(workload, 1_000, 6)
    assert few < many < run_seconds(workload, 10**7, 6)
    rows = json.loads((RESULTS / "forecast.json").read_text())["numbers"]
    assert min(rows[share] for share in ("precision", "recall", "timely", "inside")) >= 0.8


def test_what_groups_hide_is_that_of_ranks_that_depend_linearly():
    """Density 1 + xy on a grid of 840² cells of [−1, 1]², against the product.

    Groups of one axis hide 1/g of it. Those of both hide xv + yu of it, where u and v are what is
    inside groups: with signs that are independent of each other, between one part and the two."""
    x = (2 * np.arange(840) + 1) / 840 - 1
    excess = np.outer(x, x)
    for g in (8, 30):
        inside = x.reshape(g, -1).mean(axis=1)
        seen = np.outer(inside, inside)
        assert np.abs(seen).mean() == pytest.approx(np.abs(excess).mean(), rel=1e-9)
        hidden = np.abs(excess - seen.repeat(840 // g, 0).repeat(840 // g, 1)).mean()
        assert 1 / g <= hidden / np.abs(excess).mean() <= 2 / g
        one_axis = np.abs(excess - np.outer(inside.repeat(840 // g), x)).mean()
        assert one_axis / np.abs(excess).mean() == pytest.approx(1 / g, rel=0.01)


def test_there_is_none_without_combinations_or_with_too_many():
    assert not forecast_of(1.0, ways=1, **SIZES).possible
    assert not forecast_of(1.0, a=1, b=1, c=5).possible
    constant = forecast_of(1e-4, a=1, b=2, c=300)
    assert "a" not in constant.columns(10)
    wide = forecast_of(1.0, **{f"c{i}": 2 for i in range(150)})
    assert len(wide.workload.closure) > MOST_CANDIDATES
    assert not wide.possible
    assert wide.warnings(100) == ()


@pytest.mark.parametrize(("epsilon", "rows"), [(0.01, 300), (0.05, 300), (0.05, 30_000)])
def test_the_noise_of_the_number_of_rows_is_that_of_the_run(epsilon, rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(4, size=rows), "b": rng.integers(9, size=rows)})
    schema = {"a": 4, "b": 9}
    model = Synthesizer(epsilon=epsilon, insecure_seed=1)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        release = model.fit(frame, schema=schema).release_
    found = release.estimates[()].precision ** -0.5
    told = total_std(Workload.all_ways(Domain.from_sizes(schema), 2), model.rho_, rows)
    # The run takes the noisy total where the forecast has the public number, and rounds may
    # measure it again where there are enough rows.
    assert found <= 1.3 * told
    assert rows > 300 or found >= told / 1.3


@pytest.fixture
def wide(tmp_path, monkeypatch):
    """2,000 rows of two small columns that depend on each other and a large one that does not."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    small = rng.integers(2, size=2000)
    frame = pd.DataFrame({"a": small, "b": small, "c": rng.integers(300, size=2000)})
    frame.to_csv("t.csv", index=False)
    Path("s.json").write_text(json.dumps({"a": 2, "b": 2, "c": 300}))
    return frame


RUN = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "1", "--release"]


def test_synthesize_tells_it_before_it_spends_and_what_to_do(wide, capsys):
    assert main([*RUN, "r.zip", "--public-rows", "2000"]) == 0
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == (
        "warning: With this budget and 2,000 rows, 1 of 3 columns will probably be independent of "
        "all others: c."
    )
    assert "1 of 3 columns is independent" in rest[0]


def test_it_is_told_before_the_first_draw(wide, capsys, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    monkeypatch.setattr("adaptive_qs.loop.loop.measure_residuals", stop)
    assert main([*RUN, "r.zip", "--public-rows", "2000"]) == 1
    assert "independent of all others" in capsys.readouterr().err


def test_it_says_the_same_of_every_table(wide, capsys):
    """The rows decide nothing: other rows, and another number of them."""
    said = []
    for frame in (wide, wide.iloc[:7], wide.assign(c=5)):
        frame.to_csv("t.csv", index=False)
        main([*RUN, "r.zip", "--force", "--public-rows", "2000"])
        said.append(capsys.readouterr().err.splitlines()[0])
    assert len(set(said)) == 1


def test_plan_says_where_nothing_but_single_columns_can_be_had(wide, capsys):
    Path("s.json").write_text(json.dumps({"a": 60, "b": 60, "c": 300}))
    plan = ["plan", "--schema", "s.json", "--epsilon", "0.1"]
    for rows, said in (("1000", True), ("100000000", False)):
        assert main([*plan, "--public-rows", rows]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert ("3 of 3 columns probably independent of all others" in printed) == said


def test_plan_tells_it_for_scripts_and_python_warns(wide, capsys):
    plan = ["plan", "--schema", "s.json", "--epsilon", "1", "--json"]
    assert main([*plan, "--public-rows", "7000"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert tables["unconnected"] == ["c"]
    assert tables["unconnected_doubled"] == []
    assert tables["total_std"] > 0
    assert tables["measured"] == {"marginals": 1, "full": 1, "least": 1, "most": 2}
    assert tables["seconds"] > 0
    assert main(plan) == 0
    assert json.loads(capsys.readouterr().out)["tables"]["unconnected"] is None
    assert main([*plan[:3], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] is None
    with pytest.warns(GuardRailWarning, match="With this budget and"):
        Synthesizer(epsilon=1.0, public_rows=2000).fit(wide, schema="s.json")


DOMAIN = Domain.from_sizes({"a": 500, "b": 400, "c": 300, "d": 2})
GB = 2**30


def plan(ways=2, max_memory=4 * GB, rows=50_000):
    return plan_memory(Workload.all_ways(DOMAIN, ways), rows, max_memory)


def test_the_planned_peak_stays_below_the_ceiling_and_more_memory_never_allows_less():
    plans = [plan(max_memory=size * GB) for size in (1, 2, 4, 8, 64)]
    for size, planned in zip((1, 2, 4, 8, 64), plans):
        assert planned.fixed_bytes < planned.total_bytes <= size * GB
    measured, watched = ([getattr(p, f"{k}_cells") for p in plans] for k in ("measured", "watched"))
    assert measured == sorted(measured)
    assert watched == sorted(watched)
    assert plan().measured_cells >= 500 * 400  # the largest marginal can always be measured
    # Never more than the candidates hold.
    cells = 500 * 400 + 500 * 300 + 400 * 300 + 2 * (500 + 400 + 300) + 500 + 400 + 300 + 2
    assert measured[-1] == cells


def test_a_workload_that_does_not_fit_is_refused_with_its_largest_marginal():
    with pytest.raises(ResourceExceeded) as error:
        plan(ways=3, max_memory=2 * GB)
    assert "a x b x c" in str(error.value)
    assert "60,000,000 cells" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("columns", [5, 40])
def test_with_what_a_refusal_asks_for_it_fits(columns):
    """Although the part set aside for rows grows with the ceiling."""
    domain = Domain.from_sizes({f"c{i}": 20 for i in range(columns)})
    workload = Workload.all_ways(domain, 2)

    def planned(ceiling):
        limits = Limits.of(domain, ceiling, 1, CODE_BYTES)
        return plan_memory(workload, limits.most_rows, ceiling)

    with pytest.raises(ResourceExceeded) as error:
        planned(2**20)
    least = int(re.search(r"needs ([\d,]+) MB", str(error.value))[1].replace(",", ""))
    planned(least * 2**20)
    with pytest.raises(ResourceExceeded):
        planned((least - 2) * 2**20)


def test_the_refusal_blames_the_workload_only_where_that_is_the_cause():
    with pytest.raises(
        ResourceExceeded, match=r"^The run needs 5,\d\d\d MB; .* Raise --max-memory\.$"
    ):
        plan(rows=150_000_000, max_memory=2 * GB)
