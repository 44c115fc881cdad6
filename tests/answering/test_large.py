"""Attributes with thousands of values, as callers of plan and answer meet them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import answer, plan
from adaptive_qs.answering import answers as answers_module
from adaptive_qs.answering import measure as answering_measure
from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.strategy import choose, fixed_basis
from adaptive_qs.strategy import mechanism as runs
from adaptive_qs.strategy.waves import ConvolutionFactor
from adaptive_qs.table.coded import CodedTable, code_dtype
from adaptive_qs.workload.axes import Prefix

from . import batches

Usage = namedtuple("Usage", "total used free")
LARGE = 10_000


def asked(*parts):
    return {"version": 1, "parts": [{"attributes": [of], "queries": kind} for of, kind in parts]}


def coded(sizes, *columns):
    arrays = [np.asarray(of, dtype=code_dtype(n)) for of, n in zip(columns, sizes.values())]
    return CodedTable(Domain.from_sizes(sizes), tuple(arrays))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2_000, 5_000) ** 2 % LARGE
    return coded({"code": LARGE, "kind": 5}, codes, rng.integers(0, 5, 5_000))


@pytest.mark.parametrize(
    ("parts", "gap"),
    [
        ([(["code"], "prefix")], 0.015),
        ([(["code"], "range")], 0.001),
        ([(["code", "kind"], "prefix")], 0.015),
        ([(["code", "kind"], "range"), (["code"], "range"), (["kind"], "range")], 0.06),
        ([(["code", "kind"], "hybrid"), (["code"], "hybrid"), (["kind"], "hybrid")], 0.015),
        ([(["code"], "circular")], 1e-9),
    ],
)
def test_ten_thousand_codes_are_planned_near_the_optimum(parts, gap):
    found = plan(
        {"code": LARGE, "kind": 5}, asked(*parts), epsilon=1.0, max_memory="1GB", workers=1
    )
    assert -1e-9 < found.gap < gap
    assert found.forecast.memory_bytes < 2**30


def test_error_bars_are_those_of_the_noise(table):
    """The noise that is left once the truth is subtracted, whitened by the strategy.

    M times the error of the estimated cells is the integer noise, less its part along the direction
    in which M sees the total: n − 1 independent values of variance Δ²/β. Their mean square has a
    standard deviation of √(2/n) = 1.4 %; five of them are 7 %. The stated variance of three
    prefixes is that of the total's share and of their rows of AM⁻¹, solved by its transpose.
    """
    found = answer(table, None, asked((["code"], "prefix")), epsilon=1.0, insecure_seed=3)
    total, residual = (found.plan.mechanism.measurement(k) for k in range(2))
    (factor,) = residual.strategy.factors
    frame = found.to_pandas()
    truth = np.bincount(table.columns[0], minlength=LARGE)
    error = np.diff(frame.estimate.to_numpy() - np.cumsum(truth), prepend=0.0)
    error -= error.mean()
    noise = factor._filter((factor.scales * error)[:, None], factor._transform)[:, 0]
    cost = found.target.cost * residual.share
    chi = float((noise**2).mean()) / (factor.squared_norm / cost)
    assert chi == pytest.approx(1, abs=5 * math.sqrt(2 / LARGE))
    unseen = factor._filter((1 / factor.scales)[:, None], factor._inverse_spectrum)[:, 0]
    for code in (0, 4_321, LARGE - 1):
        row = (np.arange(LARGE) <= code) - (code + 1) / LARGE
        weights = factor._filter((row / factor.scales)[:, None], factor._inverse_spectrum)[:, 0]
        weights -= unseen * (unseen @ weights) / (unseen @ unseen)
        variance = float(weights @ weights) * factor.squared_norm / cost
        variance += ((code + 1) / LARGE) ** 2 / (found.target.cost * total.share)
        assert frame.standard_error[code] ** 2 == pytest.approx(variance, rel=1e-6)


PAIR = (42, 3)
"""A long axis, once the limit is set so, and a short one."""
PREFIXES = {0: Prefix(42), 1: Prefix(3)}
SEVERAL = [[(0, 1)], [(0,), (1,)]]


@pytest.mark.parametrize(
    ("family", "sets", "name", "most_rows"),
    [
        (PREFIXES, SEVERAL, "querysmasher", 500),
        (PREFIXES, SEVERAL, "querysmasher", 2**31),
    ],
)
def test_a_long_axis_row_by_row(family, sets, name, most_rows, monkeypatch):
    """Each single row, and each answer as a map of what is released.

    With bits for 500 rows or for the most there can be. Rounding may be blamed for no bias: answers
    to exact releases are the queries' own, to the last digits of a float.
    """
    monkeypatch.setattr(fixed_basis, "LARGE_AXIS", 30)
    parts = [batches.part(family, *some, sizes=PAIR) for some in sets]
    asked = batches.workload(*parts, sizes=PAIR)
    units = PrivacyTarget.of_answers(cost=1.0).units
    found = choose.choose_mechanism(asked, name).mechanism
    bits = answering_measure.grid_bits(found, units, most_rows)
    found = batches.Batch(found.on_grid(bits), units)
    factors = [f for k in found.order for f in found.mechanism.measurement(k).strategy.factors]
    assert sum(isinstance(factor, ConvolutionFactor) for factor in factors) == len(sets)
    variances = 0.0
    queries = batches.query_matrix(asked)
    estimated = np.zeros(queries.shape)
    for number, (event, columns) in found.inputs.items():
        assert (columns * columns).sum(axis=0).max() == event.squared_sensitivity
        variances += float(event.noise_variance) * (found.map[number] ** 2).sum(axis=1)
        estimated += found.map[number] @ columns.astype(float)
    np.testing.assert_allclose(estimated, queries, atol=1e-6)
    np.testing.assert_allclose(found.variances, variances, rtol=1e-6)


def test_integers_take_less_than_a_percent_of_the_plan():
    """Prefixes in several sets, for any number of rows: squared error beside that of the plan."""
    asked_of = asked((["code", "kind"], "prefix"), (["code"], "prefix"), (["kind"], "prefix"))
    found = plan({"code": LARGE, "kind": 5}, asked_of, epsilon=1.0, max_memory="1GB", workers=1)
    units = found.target.units
    measured = found.mechanism.on_grid(answering_measure.grid_bits(found.mechanism, units, 2**31))
    assert 1 <= measured.total_error / found.mechanism.total_error < 1.01


@pytest.mark.parametrize(
    "parts",
    [[(["code"], "range")], [(["kind", "code"], "range")], [(["code", "kind"], "circular")]],
)
def test_very_many_queries_have_the_answers_of_few(parts, monkeypatch):
    """In runs of 50 or all at once, word by word."""
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 40, 300), rng.integers(0, 3, 300)
    small = coded({"code": 40, "kind": 3}, *columns)

    def frame():
        return answer(small, None, asked(*parts), cost=0.1, insecure_seed=2).to_pandas()

    whole = frame()
    monkeypatch.setattr(runs, "MOST_AT_ONCE", 50)
    monkeypatch.setattr(answering_measure, "KEPT_TEXTS", 50)
    monkeypatch.setattr(answering_measure, "BATCH_ROWS", 64)
    pd.testing.assert_frame_equal(frame(), whole, rtol=1e-9)


def test_answers_without_room_are_refused_unspent(table, tmp_path, monkeypatch):
    found = answer(table, None, asked((["code"], "range")), epsilon=1.0, max_memory="1GB")
    with pytest.raises(ResourceExceeded, match=r"50,005,000 answers take about .* read them in"):
        found.to_arrow()
    monkeypatch.setattr(answers_module.shutil, "disk_usage", lambda _: Usage(1, 1, 2**30))
    with pytest.raises(ResourceExceeded, match=r"has 1.0 GiB left: ask for prefixes"):
        found.write(tmp_path / "a.csv")
    assert not found.rho_spent
    assert not list(tmp_path.iterdir())


def test_a_hundred_thousand_values_and_pairs_with_them_are_forecast():
    domain = {"code": 100_000, "kind": 5, "other": 100_000}
    found = plan(domain, asked((["code", "kind"], "marginal")), cost=1, max_memory="1GB")
    assert found.gap < 1e-9
    assert 2**27 < found.forecast.memory_bytes < 2**30
    pair = asked((["code", "other"], "marginal"))
    table = coded(domain, *np.zeros((3, 9)))
    with pytest.raises(ResourceExceeded, match="answering needs about"):
        answer(table, None, pair, cost=1, max_memory="4GB")


def test_the_result_is_the_same_for_any_number_of_threads():
    domain = {"a": 30, "b": 41, "c": 2_000, "d": 3}
    workload = {"version": 1, "parts": [{"ways": [1, 2], "queries": "hybrid"}]}
    kinds = {"mechanism": "querysmasher", "cost": 1.0}
    found = [plan(domain, workload, workers=workers, **kinds) for workers in (1, 2, 8)]
    assert len({each.rmse for each in found}) == 1
    shares = [each.mechanism.shares.tobytes() for each in found]
    assert len(set(shares)) == 1


@pytest.mark.slow
def test_the_command_stays_below_its_ceiling(tmp_path):
    """In a process of its own, whose largest resident size counts."""
    ceiling = 620
    schema = {"version": 1, "columns": [
        {"name": "code", "type": "integer", "min": 0, "max": LARGE - 1},
        {"name": "kind", "type": "categorical", "values": list("abcde"), "ordered": True},
    ]}  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(schema))
    (tmp_path / "w.json").write_text(json.dumps(asked((["code", "kind"], "prefix"))))
    frame = pd.DataFrame({"code": np.arange(3_000) % LARGE, "kind": list("abc") * 1_000})
    frame.to_csv(tmp_path / "d.csv", index=False)
    command = ["answer", "d.csv", "--schema", "s.json", "--workload", "w.json", "--epsilon", "1"]
    made = subprocess.run(
        [sys.executable, "-m", "adaptive_qs", *command, "--out", "a.parquet",
         "--max-memory", f"{ceiling}MB", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(made.stdout)
    assert found["rows"] == 5 * LARGE
    assert found["peak_memory_mb"] < 1.2 * ceiling
