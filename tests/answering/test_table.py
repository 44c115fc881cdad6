"""Answers as batches and files: every row against the words and numbers of its query."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from adaptive_qs.answering import measure as table
from adaptive_qs.answering.measure import (
    COLUMNS,
    REPEATING,
    SetAnswers,
    answer_batches,
    interval_factor,
)
from adaptive_qs.errors import InputError
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import write_batches
from adaptive_qs.workload.axes import Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import count_queries
from adaptive_qs.workload.matrices import Custom

SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "age", "type": "integer", "min": 0, "max": 99, "bins": 5},
            {"name": 'the, "job"', "type": "categorical", "values": ["a,b", 'say "x"', "ö"]},
            {"name": "member", "type": "boolean", "missing": ["?"]},
        ],
    }
)
ASKED = [
    ((0,), (Range(5),)),
    ((0, 2), (Prefix(5), Marginal(3))),
    ((0, 1, 2), (Range(5), Marginal(3), Circular(3))),
    ((0, 1), (Affine(5, 3),)),
    ((2,), (Marginal(3),)),
    ((0, 1, 2), (Custom(np.eye(45)[:7], (5, 3, 3)),)),
]


def answers(number):
    clique, queries = ASKED[number % len(ASKED)]
    rng = np.random.default_rng(number)
    size = count_queries(queries)
    variances = np.broadcast_to(np.float64(2.25), (size,)) if number % 2 else rng.random(size)
    return SetAnswers(0, number, clique, queries, rng.normal(0, 1e3, size), variances)


def sentences(clique, queries):
    """One by one: what the batches build from labels of factors."""
    left = [(SCHEMA.names[i], SCHEMA.columns[i].labels_of_codes()) for i in clique]
    parts = []
    for factor in queries:
        mine, left = left[: len(factor.shape)], left[len(factor.shape) :]
        parts.append(list(factor.labels(*map(tuple, zip(*mine)))))
    return [" and ".join(labels) for labels in product(*parts)]


def expected(count):
    rows = []
    for number in range(count):
        of = answers(number)
        name = " x ".join(SCHEMA.names[i] for i in of.clique)
        for query, value, variance in zip(
            sentences(of.clique, of.queries), of.estimates, of.variances
        ):
            error = math.sqrt(variance)
            margin = statistics.NormalDist().inv_cdf(0.975) * error
            rows.append((name, query, value, error, value - margin, value + margin))
    return pd.DataFrame(rows, columns=COLUMNS.names)


def same(found, wanted, rtol):
    found, wanted = (f.astype({"attributes": object, "query": object}) for f in (found, wanted))
    pd.testing.assert_frame_equal(found, wanted, rtol=rtol, atol=0)


def frame(batches):
    return pa.Table.from_batches(list(batches)).unify_dictionaries().to_pandas()


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 2**17])
@pytest.mark.parametrize("kept", [0, 2**20])
def test_rows_come_by_set_and_query_in_batches_of_any_size(batch_rows, kept, monkeypatch):
    monkeypatch.setattr(table, "BATCH_ROWS", batch_rows)
    monkeypatch.setattr(table, "KEPT_TEXTS", kept)
    batches = list(answer_batches(map(answers, range(8)), SCHEMA))
    assert all(batch.schema == COLUMNS for batch in batches)
    assert {batch.num_rows for batch in batches[:-1]} <= {batch_rows}
    same(frame(batches), expected(8), rtol=1e-12)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.999])
def test_intervals_follow_the_confidence(confidence):
    found = frame(answer_batches([answers(0)], SCHEMA, confidence))
    factor = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    np.testing.assert_allclose(found.upper - found.estimate, factor * found.standard_error)
    np.testing.assert_allclose(found.estimate - found.lower, factor * found.standard_error)


@pytest.mark.parametrize("confidence", [0, 1, 1.5, -0.1, math.nan, "0.95", True, None])
def test_bad_confidences(confidence):
    with pytest.raises(InputError, match="confidence is"):
        interval_factor(confidence)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_csv_and_parquet_hold_the_same(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "BATCH_ROWS", 100)
    schema = COLUMNS.with_metadata({"kind": "test"})
    for name in (f"a{suffix}", "a.parquet"):
        batches = answer_batches(map(answers, range(8)), SCHEMA)
        assert write_batches(batches, schema, tmp_path / name, REPEATING) == len(expected(8))
    parquet = pq.read_table(tmp_path / "a.parquet")
    assert parquet.schema.metadata[b"kind"] == b"test"
    written = parquet.to_pandas()
    same(written, expected(8), rtol=1e-12)
    csv = pacsv.read_csv(tmp_path / f"a{suffix}").to_pandas()
    same(csv, written, rtol=0)


@pytest.mark.parametrize("column", ["estimates", "variances"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-12])
def test_answers_without_a_variance_are_never_written(column, value):
    of = answers(0)
    numbers = getattr(of, column).copy()
    numbers[-1] = value
    bad = answer_batches([answers(1), replace(of, **{column: numbers})], SCHEMA)
    if column == "estimates" and value < 0:
        assert sum(batch.num_rows for batch in bad) > 0
        return
    with pytest.raises(InputError, match="the answers on age have no finite variance") as caught:
        list(bad)
    assert "\n" not in str(caught.value)


def test_a_failure_leaves_no_file(tmp_path):
    def batches():
        yield from answer_batches([answers(0)], SCHEMA)
        raise RuntimeError

    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        with pytest.raises(RuntimeError):
            write_batches(batches(), COLUMNS, tmp_path / name, REPEATING)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_memory_does_not_grow_with_the_number_of_answers(name, tmp_path, monkeypatch):
    """300 sets of 450 answers and one of 90,000; a batch of 1,000 takes less than 0.2 MB."""
    monkeypatch.setattr(table, "BATCH_ROWS", 1_000)
    large = Schema.parse({"x": 30, "y": 100, "z": 30})
    allocated = []

    def sets():
        for number in range(301):
            queries = (Marginal(30), Marginal(100), Marginal(30)) if number == 150 else (Range(30),)
            clique = (0, 1, 2) if len(queries) == 3 else (0,)
            size = count_queries(queries)
            allocated.append(pa.total_allocated_bytes())
            yield SetAnswers(0, number, clique, queries, np.zeros(size), np.ones(size))

    before = pa.total_allocated_bytes()
    rows = write_batches(answer_batches(sets(), large), COLUMNS, tmp_path / name, REPEATING)
    assert rows == 300 * 465 + 90_000
    assert max(allocated) - before < 4 * 2**20
