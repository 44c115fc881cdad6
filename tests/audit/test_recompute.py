"""Releases recomputed by code that shares nothing with the package."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.audit.audit import Batch, Synthesis
from adaptive_qs.audit.replay import Recorder, squared_distance
from adaptive_qs.audit.tables import neighbour_pairs, stand_in, write_rows
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import Transcript
from adaptive_qs.privacy.noise import InsecureSeed, discrete_gaussian
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.schema import Schema

from . import recompute, recompute_ledger
from .paid import recomputed_runs
from .schemas import heaped, learnt, schemas, workloads


def synthesized(schema, rho, folder, seed=0, ways=2):
    """A release bundle of generated rows."""
    rng = np.random.default_rng(seed)
    columns = [np.minimum(rng.geometric(0.4, 200) - 1, n - 1) for n in schema.domain().sizes]
    table = CodedTable.from_codes(schema.domain(), columns)
    job = Synthesis.of(schema, ways, rho)
    job.publish(
        table, Recorder(Budget(rho, filtered=True), InsecureSeed(seed)), folder, sampled=False
    )
    return folder / "release.zip"


@settings(max_examples=25)
@given(schemas(), st.sampled_from([1e-9, 0.01, 0.3, 5.0]), st.integers(0, 2**20))
def test_releases_are_paid_for(tmp_path_factory, schema, rho, seed):
    path = synthesized(schema, rho, tmp_path_factory.mktemp("release"), seed)
    assert recompute.problems(path) == []
    sizes = dict(zip(schema.names, schema.domain().sizes))
    assert recompute.Released(path).sizes == sizes


def test_releases_with_strategies_are_paid_for(tmp_path):
    schema = Schema.parse({"a": 9, "b": 4, "c": 3})
    parts = [{"ways": [2]}, {"attributes": [["a", "b"]], "queries": "prefix"}]
    path = synthesized(schema, 0.02, tmp_path, ways={"version": 1, "parts": parts})
    assert recompute.problems(path) == []
    release = recompute.Released(path)
    assert set(release.strategies) == {"a", "b"}
    singles = [e for e in release.transcript["events"] if e["columns"] in (["a"], ["b"])]
    for queries in release.strategies.values():  # as if other queries had been measured
        queries[:] = [[3 * x for x in row] for row in queries]
    assert len(recompute.sensitivity_problems(release)) == len(singles)
    assert recompute.course_problems(release)
    assert len(recompute.precision_problems(release)) == 2


@settings(max_examples=15)
@given(
    schemas(kinds=st.one_of(learnt(), heaped())),
    st.sampled_from([0.01, 5.0]),
    st.integers(0, 2**20),
)
def test_releases_that_learn_are_paid_for(tmp_path_factory, schema, rho, seed):
    folder, rng = tmp_path_factory.mktemp("release"), np.random.default_rng(seed)
    pair = next(neighbour_pairs(stand_in(schema), folder, rng))
    job = Synthesis.of(schema, 2, rho)
    cost = job.target.budget
    ledger = Budget(cost.rho, cost.delta, job.target.filtered)
    rows = write_rows(pair.here, schema.names, folder)
    job.publish(rows, Recorder(ledger, InsecureSeed(seed)), folder, sampled=False)
    assert recompute.problems(folder / "release.zip") == []
    assert ledger.filtered == (rho < 1)
    released = recompute.Released(folder / "release.zip")
    assert (
        released.learnt
        or released.counted
        or all(column.type == "categorical" for column in schema.columns)
    )


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_releases_of_persons_are_paid_for(tmp_path, neighbours):
    columns = [
        {"name": "a", "type": "integer", "min": 0, "max": 3},
        {"name": "b", "type": "categorical", "private_values": 3, "catch_all": "(other)"},
    ]
    schema = Schema.parse({"version": 1, "person": "who", "columns": columns})
    job = Synthesis.of(schema, 2, 3.0, rows_per_person=3, neighbours=neighbours)
    cost = job.target.budget
    ledger = Budget(cost.rho, cost.delta, job.target.filtered, job.target.unit)
    rows = [[f"{k % 4}", "xyz"[k % 3], f"p{k % 50}"] for k in range(400)]
    path = write_rows(rows, (*schema.names, "who"), tmp_path)
    job.publish(path, Recorder(ledger, InsecureSeed(1)), tmp_path, sampled=False)
    assert recompute.problems(tmp_path / "release.zip") == []
    release = recompute.Released(tmp_path / "release.zip")
    events = release.transcript["events"]
    release.group *= 3  # no power of two, by which values are made finer
    assert len(recompute.sensitivity_problems(release)) == sum(
        event["mechanism"] != "exponential" for event in events
    )


def test_the_chance_that_one_row_s_value_passes():
    """Of two thirds of a million draws, within five standard deviations."""
    draws = 1 + discrete_gaussian(4, 600_000, InsecureSeed(0))
    for threshold in (2, 4, 7):
        chance = recompute.passing_chance(Fraction(4), threshold)
        spread = 5 * (chance * (1 - chance) / draws.size) ** 0.5
        assert abs((draws >= threshold).mean() - chance) < spread


def batch_calls(batch, table):
    recorder = Recorder(Budget(batch.target.budget.rho), InsecureSeed(0))
    batch.publish(table, recorder, None, sampled=False)
    return recorder.calls


@settings(max_examples=25)
@given(st.data(), schemas(), st.sampled_from([1e-6, 0.01, 2.0]))
@pytest.mark.slow
def test_answers_are_paid_for(data, schema, rho):
    """The charges add up to the budget, and no row of the domain moves a release further."""
    workload, mechanism = data.draw(workloads(schema))
    domain = schema.domain()
    batch = Batch.of(schema, workload, rho, mechanism)
    nothing = CodedTable.from_codes(domain, [np.zeros(0, np.int64)] * len(domain))
    empty = batch_calls(batch, nothing)
    transcript = json.loads(Transcript(events=[call.event for call in empty]).model_dump_json())
    assert recompute.total_cost(transcript) == batch.target.budget.rho <= Fraction(rho)

    rows = list(product(*(range(size) for size in domain.sizes)))
    chosen = np.random.default_rng(0).permutation(len(rows))[:24]
    for row in (rows[k] for k in chosen):
        one = CodedTable.from_codes(domain, np.array([row]).T)
        for before, after in zip(empty, batch_calls(batch, one)):
            assert squared_distance(before.inputs, after.inputs) <= before.event.squared_sensitivity


TAMPERED = {
    "a charge is missing": lambda parts: parts["ledger"]["events"].pop(),
    "a selection is missing": lambda parts: parts["ledger"]["events"].remove(
        next(e for e in parts["ledger"]["events"] if e["mechanism"] == "exponential")
    ),
    "a selection is too cheap": lambda parts: next(
        e for e in parts["ledger"]["events"] if e["mechanism"] == "exponential"
    ).update(epsilon="1/1000"),
    "a sensitivity is too small": lambda parts: parts["ledger"]["events"][-1].update(
        squared_sensitivity="1/1"
    ),
    "less noise than recorded": lambda parts: parts["ledger"]["events"][-1].update(
        noise_variance="1/1000"
    ),
    "a budget is too small": lambda parts: parts["manifest"].update(rho=0.29),
    "an estimate is too good": lambda parts: parts["record"]["residuals"][0].update(
        precision=parts["record"]["residuals"][0]["precision"] * 1.001
    ),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_what_was_not_paid_for_is_found(case, tmp_path, monkeypatch):
    path = synthesized(Schema.parse({"a": 3, "b": 4, "c": 5}), 0.3, tmp_path, ways=3)
    assert recompute.problems(path) == []

    class Tampered(recompute.Released):
        def __init__(self, path):
            super().__init__(path)
            parts = {
                "manifest": self.manifest, "ledger": self.transcript, "record": self.record
            }  # fmt: skip
            TAMPERED[case](parts)

    monkeypatch.setattr(recompute, "Released", Tampered)
    assert recompute.problems(path)


def test_runs_of_all_kinds_on_one_ledger_are_paid_for(tmp_path):
    figures = recomputed_runs(2, tmp_path)
    assert figures["problems"] == []
    assert len(figures["runs"]) == 4
    assert figures["ledger entries"] > 1 + 3 * 4
    assert figures["largest share of a budget"] <= 1


def batch_manifest():
    """As little of it as the recomputation reads."""
    counts = {
        "mechanism": "discrete gaussian",
        "purpose": "strategy",
        "columns": ["counts"],
        "squared_sensitivity": "1/1",
        "noise_variance": "3/1",
    }
    values = {
        "mechanism": "partition selection",
        "rows": 1,
        "purpose": "values",
        "columns": ["city"],
        "noise_variance": "4/1",
        "threshold": 20,
        "delta": "1/1000000000",
    }
    units = [recompute.units(counts), recompute.units(values)]
    return {
        "protects": {"rows": 1, "neighbours": "add-remove"},
        "rho": 1.0, "rho_spent": 0.6250000001, "delta": 1e-8, "delta_spent": 1.1e-9, "mu": None,
        "facts": [
            {"rho_units": 3 * units[0].rho, "delta_units": 0},
            {"rho_units": units[1].rho, "delta_units": units[1].delta},
        ],
        "charges": [{"times": 3, "charge": counts}, {"times": 1, "charge": values}],
    }  # fmt: skip


BATCHES = {
    "a charge is made once less": lambda m: m["charges"][0].update(times=2),
    "a charge is made half a time": lambda m: m["charges"][0].update(times=3.0),
    "a charge is missing": lambda m: m["charges"].pop(),
    "a fact misses one unit": lambda m: m["facts"][0].update(
        rho_units=m["facts"][0]["rho_units"] - 1
    ),
    "a fact misses one unit of delta": lambda m: m["facts"][1].update(
        delta_units=m["facts"][1]["delta_units"] - 1
    ),
    "less spent than charged": lambda m: m.update(rho_spent=0.6249999999),
    "less of delta spent than charged": lambda m: m.update(delta_spent=0.9e-9),
    "a smaller budget": lambda m: m.update(rho=0.625),
    "a smaller delta": lambda m: m.update(delta=1e-9),
    "a mu that ignores discovery": lambda m: m.update(mu=1.2),
    "a threshold too low": lambda m: m["charges"][1]["charge"].update(threshold=5),
}


@pytest.mark.parametrize("case", [None, *BATCHES])
def test_answers_that_state_another_cost_are_found(case, tmp_path):
    manifest = batch_manifest()
    if case:
        BATCHES[case](manifest)
    path = tmp_path / "a.parquet.manifest.json"
    path.write_text(json.dumps(manifest))
    assert bool(recompute.answers_problems(path)) == bool(case)


@pytest.mark.parametrize("module", [recompute, recompute_ledger])
def test_the_recomputation_is_independent(module):
    with open(module.__file__, encoding="utf-8") as file:
        assert "adaptive_qs" not in file.read()
