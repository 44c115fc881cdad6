"""Attributes with thousands of values, as callers of plan and answer meet them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import answer, plan
from adaptive_qs.answering import api
from adaptive_qs.answering import measure as answering_measure
from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.table.coded import CodedTable, code_dtype

Usage = namedtuple("Usage", "total used free")
LARGE = 10_000


def asked(*parts):
    return {"version": 1, "parts": [{"attributes": [of], "queries": kind} for of, kind in parts]}


def coded(sizes, *columns):
    arrays = [np.asarray(of, dtype=code_dtype(n)) for of, n in zip(columns, sizes.values())]
    return CodedTable(Domain.from_sizes(sizes), tuple(arrays))


@pytest.mark.parametrize(
    "parts",
    [[(["code"], "range")], [(["kind", "code"], "range")], [(["code", "kind"], "circular")]],
)
def test_very_many_queries_have_the_answers_of_few(parts, monkeypatch):
    """In small batches with few texts kept or all at once, word by word."""
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 40, 300), rng.integers(0, 3, 300)
    small = coded({"code": 40, "kind": 3}, *columns)

    def frame():
        return answer(small, None, asked(*parts), cost=0.1, insecure_seed=2).to_pandas()

    whole = frame()
    monkeypatch.setattr(answering_measure, "KEPT_TEXTS", 50)
    monkeypatch.setattr(answering_measure, "BATCH_ROWS", 64)
    pd.testing.assert_frame_equal(frame(), whole, rtol=1e-9)


def test_orders_of_very_many_codes_take_a_plan_with_its_gap_or_are_refused():
    """Fourier queries up to the memory of a matrix of all codes, contrasts and a gap beyond it."""
    found = plan({"code": 3_000}, asked((["code"], "range")), cost=1)
    assert -1e-9 < found.gap < 1e-3
    found = plan({"code": LARGE, "kind": 5}, asked((["code"], "range")), cost=1, max_memory="1GB")
    assert found.gap > 10
    with pytest.raises(ResourceExceeded, match="matrix of all values by all values"):
        plan({"code": LARGE}, asked((["code"], "range")), cost=1, max_memory="1GB",
             mechanism="querysmasher")  # fmt: skip


def test_answers_without_room_are_refused_unspent(tmp_path, monkeypatch):
    pairs = coded({"a": 100, "b": 100}, [0], [0])
    found = answer(pairs, None, asked((["a", "b"], "range")), epsilon=1.0, max_memory="3GB")
    with pytest.raises(ResourceExceeded, match=r"25,502,500 answers take about .* read them in"):
        found.to_arrow()
    monkeypatch.setattr(api.shutil, "disk_usage", lambda _: Usage(1, 1, 2**30))
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
