"""Plan and answer for callers of Python: what goes in, what is checked when, what is spent."""

from __future__ import annotations

import copy
import json
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adaptive_qs
from adaptive_qs.answering import api
from adaptive_qs.answering import plan as resources
from adaptive_qs.answering.api import answer, plan
from adaptive_qs.answering.plan import answers_limits
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError, InputError, ResourceExceeded, SchemaError, WorkloadError
from adaptive_qs.privacy.events import UNITS_PER_RHO
from adaptive_qs.release.bundle import manifest_path, read_sidecar
from adaptive_qs.run.states import LOST
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.files import NOT_PRIVATE, PRIVATE, STAMP_KEY
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.workload import QueryWorkload

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["a", "b", "c"]},
        {"name": "age", "type": "integer", "min": 0, "max": 39, "bins": 4},
        {"name": "flag", "type": "boolean", "missing": [""]},
    ],
}
ROWS = 500
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "job": RNG.choice(["a", "b", "c"], ROWS),
        "age": RNG.integers(0, 40, ROWS),
        "flag": pd.array(RNG.choice([True, False, None], ROWS), dtype="boolean"),
    }
)
CONTENT = {
    "version": 1,
    "parts": [
        {"ways": [1], "queries": "hybrid"},
        {"attributes": [["job", "age"]], "queries": {"job": "marginal", "age": "range"}},
        {"attributes": [["age", "job"]], "queries": "affine", "weight": 2.0},
    ],
}


def truth(query):
    """The rows of FRAME that a sentence describes, by pandas."""
    if "(codes)" in query:
        code = FRAME.job.map({"a": 0, "b": 1, "c": 2}) + FRAME.age // 10
        return int((code <= int(query.split("<=")[1].split()[0])).sum())
    keep = pd.Series(True, FRAME.index)
    for clause in query.split(" and "):
        name, relation, value = clause.split(" ", 2)
        column = FRAME[name]
        if relation == "=" and name == "flag":
            wanted = {"true": True, "false": False}.get(value)
            keep &= (column == wanted).fillna(False) if wanted is not None else column.isna()
        elif relation == "=" and name == "job":
            keep &= column == value
        elif relation == "=":
            first, last = value.split("..")
            keep &= column.between(int(first), int(last))
        elif relation == "<=":
            keep &= column <= int(value)
        else:
            keep &= column.between(*json.loads(value))
    return int(keep.sum())


@pytest.mark.parametrize("mechanism", ["auto", "identity", "residualplanner"])
def test_answers_are_those_of_the_words_within_their_errors(mechanism):
    """Over some 80 answers, one is beyond 5.5 standard errors with probability 3e-6."""
    asked = answer(FRAME, SCHEMA, CONTENT, cost=50, mechanism=mechanism, insecure_seed=1)
    found = asked.to_pandas()
    expected = found["query"].map(truth)
    assert len(found) == len(asked) == asked.plan.queries
    assert (abs(found.estimate - expected) <= 5.5 * found.standard_error).all()
    assert (found.estimate != expected).mean() > 0.9
    weights = np.where(found["query"].str.contains("codes"), 2, 1)
    rmse = np.sqrt((weights * found.standard_error**2).sum() / len(found))
    assert rmse == pytest.approx(asked.plan.rmse, rel=1e-9)
    assert found.standard_error.max() ** 2 <= asked.plan.max_variance[0] * (1 + 1e-9)


def test_the_whole_budget_is_spent_and_no_more_and_only_while_reading():
    asked = answer(FRAME, SCHEMA, 2, epsilon=1)
    assert (asked.ledger, asked.rho_spent) == ((), 0)
    batches = asked.batches()
    assert asked.ledger == ()
    list(batches)
    assert sum(event.rho for event in asked.ledger) == Fraction(
        asked.plan.target.units, UNITS_PER_RHO
    )
    assert asked.rho_spent <= asked.plan.target.rho
    assert set(asked.seconds) == {"plan", "read", "answer", "total"}


def test_answers_are_read_once():
    asked = answer(FRAME, SCHEMA, 1, epsilon=1)
    first = list(asked)
    spent = asked.ledger
    assert sum(batch.num_rows for batch in first) == len(asked) == 10
    for again in (asked.to_pandas, asked.to_arrow, lambda: list(asked)):
        with pytest.raises(InputError, match="read before"):
            again()
    assert asked.ledger == spent


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "pyarrow", "codes"])
def test_tables_of_every_kind_give_the_same_answers(kind, tmp_path):
    path = tmp_path / "t"
    if kind == "csv":
        FRAME.to_csv(path, index=False)
    elif kind == "parquet":
        FRAME.to_parquet(path)
    source = {
        "polars": lambda: pl.from_pandas(FRAME),
        "pyarrow": lambda: pa.Table.from_pandas(FRAME),
        "codes": lambda: read_table(FRAME, Schema.parse(SCHEMA)),
    }.get(kind, lambda: path)()
    found = answer(source, SCHEMA, cost=1, insecure_seed=3).to_arrow()
    assert found.equals(answer(FRAME, SCHEMA, cost=1, insecure_seed=3).to_arrow())


def test_coded_tables_need_no_schema():
    table = CodedTable.from_codes(Domain.from_sizes({"a": 3}), [np.arange(30) % 3])
    found = answer(table, cost=1e6, insecure_seed=0, beyond_limits=True).to_pandas()
    assert found["query"].tolist() == ["a = 0", "a = 1", "a = 2"]
    assert found.estimate.round().tolist() == [10, 10, 10]


def test_workloads_of_every_kind_are_the_same(tmp_path):
    content = {"version": 1, "parts": [{"ways": [2]}]}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(content))
    built = all_ways_queries(Schema.parse(SCHEMA).domain(), 2)
    assert isinstance(built, QueryWorkload)
    plans = [plan(SCHEMA, w) for w in (None, 2, [2], iter([2]), content, path, str(path), built)]
    assert {(p.queries, p.rmse, p.max_variance) for p in plans} == {
        (3 * 4 + 3 * 3 + 4 * 3, plans[0].rmse, plans[0].max_variance)
    }
    assert plan({"only": 5}).queries == 5


def test_a_plan_is_what_the_answers_keep():
    planned = plan(SCHEMA, CONTENT, epsilon=2, delta=1e-6, gap=1e-3)
    asked = answer(FRAME, SCHEMA, CONTENT, epsilon=2, delta=1e-6, gap=1e-3)
    assert asked.plan.target == planned.target
    assert asked.plan.rmse == pytest.approx(planned.rmse, rel=1e-6)
    assert planned.lower_bound_rmse <= planned.rmse <= asked.plan.rmse * (1 + 1e-12)
    assert plan(SCHEMA, CONTENT).target.cost == 1
    assert plan(SCHEMA, CONTENT, cost=4).rmse == pytest.approx(plan(SCHEMA, CONTENT).rmse / 2)


BAD = {
    "no budget": ({"epsilon": None}, InputError, "No privacy budget is set"),
    "two budgets": ({"cost": 1}, InputError, "epsilon and cost are set"),
    "epsilon": ({"epsilon": 0}, InputError, "epsilon is 0"),
    "delta": ({"delta": 1}, InputError, "delta is 1"),
    "mechanism": ({"mechanism": "best"}, InputError, "mechanism is 'best'"),
    "gap 0": ({"gap": 0}, InputError, "gap is 0"),
    "gap nan": ({"gap": float("nan")}, InputError, "gap is nan"),
    "gap text": ({"gap": "small"}, InputError, "gap is 'small'"),
    "workers": ({"workers": 0}, InputError, "workers is 0"),
    "memory": ({"max_memory": "lots"}, InputError, "max-memory is 'lots'"),
    "little memory": ({"max_memory": "100MB"}, ResourceExceeded, "MB"),
    "seed": ({"insecure_seed": -1}, InputError, "seed is -1"),
    "schema": ({"schema": None}, SchemaError, "no schema was given"),
    "ways": ({"workload": 4}, WorkloadError, "ways is 4"),
    "no ways": ({"workload": []}, WorkloadError, "workload is"),
    "flag for ways": ({"workload": True}, WorkloadError, "workload is True"),
    "number": ({"workload": 1.5}, WorkloadError, "workload is 1.5"),
    "family": (
        {"workload": {"version": 1, "parts": [{"ways": [1], "queries": "range"}]}},
        WorkloadError,
        "part 1: attribute 'job' is not ordered",
    ),
    "other attributes": (
        {"workload": all_ways_queries(Domain.from_sizes({"a": 2}), 1)},
        WorkloadError,
        "other attributes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parameters_are_refused_before_anything_is_read(case, monkeypatch):
    changed, kind, hint = BAD[case]
    monkeypatch.setattr("adaptive_qs.run.states.open_engine", None)
    arguments = {"schema": SCHEMA, "workload": 1, "epsilon": 1, **changed}
    with pytest.raises(kind, match=hint):
        answer(FRAME, **arguments)
    planned = {k: v for k, v in arguments.items() if k != "insecure_seed"}
    if case not in ("no budget", "seed", "little memory"):
        with pytest.raises(kind, match=hint):
            plan(**planned)


def test_tables_that_do_not_fit_are_refused_with_nothing_spent(monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", None)
    with pytest.raises(DataError, match="'job'"):
        answer(FRAME.assign(job="d"), SCHEMA, epsilon=1)
    with pytest.raises(DataError, match="no rows"):
        answer(FRAME.iloc[:0], SCHEMA, epsilon=1)
    monkeypatch.setattr(resources, "MAX_ROWS", ROWS - 1)
    with pytest.raises(ResourceExceeded, match="more than 499 rows") as caught:
        answer(FRAME, SCHEMA, epsilon=1)
    assert str(ROWS) not in str(caught.value)


def test_limits_are_public_and_rows_beyond_them_are_not_counted_aloud():
    domain = Domain.from_sizes({"a": 2, "b": 2})
    limits = answers_limits(domain, "1GB", 2)
    assert limits.most_rows == 2**28 // (2 * resources.CODE_BYTES)
    limits.check_rows(limits.most_rows)
    rows = limits.most_rows + 7
    with pytest.raises(ResourceExceeded, match="raise --max-memory") as caught:
        limits.check_rows(rows)
    assert f"{rows:,}" not in str(caught.value)
    assert limits.solver_bytes == (2**30 - resources.PROCESS_BYTES) // 2


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz"])
def test_files_say_whether_they_are_private(suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    read = pd.read_parquet if suffix == "parquet" else pd.read_csv
    for seed, stamp in ((1, NOT_PRIVATE), (None, PRIVATE)):
        asked = answer(FRAME, SCHEMA, CONTENT, cost=1, insecure_seed=seed)
        assert asked.write(path, confidence=0.9, force=True) == len(asked) == len(read(path))
        assert read_sidecar(manifest_path(path))["stamp"] == stamp
        if suffix == "parquet":
            assert pq.read_schema(path).metadata[STAMP_KEY].decode() == stamp


def test_batches_tables_and_frames_say_whether_they_are_private():
    for seed, stamp in ((1, NOT_PRIVATE), (None, PRIVATE)):
        batches = list(answer(FRAME, SCHEMA, CONTENT, cost=1, insecure_seed=seed))
        assert {batch.schema.metadata[STAMP_KEY].decode() for batch in batches} == {stamp}
        table = answer(FRAME, SCHEMA, CONTENT, cost=1, insecure_seed=seed).to_arrow()
        assert table.schema.metadata[STAMP_KEY].decode() == stamp
    insecure = answer(FRAME, SCHEMA, 1, cost=1, insecure_seed=1)
    assert insecure.to_pandas().attrs[STAMP_KEY.decode()] == NOT_PRIVATE
    assert answer(FRAME, SCHEMA, 1, cost=1).to_pandas().attrs == {}
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        answer(FRAME, SCHEMA, 1, cost=1, insecure_seed=1)


def test_a_path_that_cannot_be_written_spends_nothing(tmp_path):
    asked = answer(FRAME, SCHEMA, 1, epsilon=1)
    for path in (tmp_path / "a.txt", tmp_path / "none" / "a.csv", tmp_path):
        with pytest.raises(InputError):
            asked.write(path)
    with pytest.raises(InputError, match="confidence"):
        asked.write(tmp_path / "a.csv", confidence=95)
    assert asked.ledger == ()
    assert asked.write(tmp_path / "a.csv") == 10


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, KeyboardInterrupt])
def test_errors_say_what_was_spent(error, tmp_path, monkeypatch):
    real = api.answer_batches

    def failing(sets, *rest):
        yield from real((next(sets),), *rest)
        raise error

    def early(sets, *rest):
        raise error
        yield

    for stub, notes in ((failing, [LOST]), (early, [])):
        monkeypatch.setattr(api, "answer_batches", stub)
        for use in (lambda a: a.write(tmp_path / "a.csv"), lambda a: a.to_pandas(), list):
            asked = answer(FRAME, SCHEMA, 1, epsilon=1)
            with pytest.raises(error) as caught:
                use(asked)
            assert getattr(caught.value, "__notes__", []) == notes
            assert bool(asked.ledger) == bool(notes)
    assert not list(tmp_path.iterdir())


def test_progress_names_the_phases_and_results_have_public_names():
    seen = {}
    tell = lambda phase, *done: seen.update({phase: done})  # noqa: E731
    answers = answer(FRAME, SCHEMA, 1, epsilon=1, progress=tell)
    assert isinstance(answers, adaptive_qs.Answers)
    answers.to_arrow()
    assert list(seen) == ["plan", "read", "answer"]
    assert seen["answer"] == (10, 10)
    assert adaptive_qs.BatchPlan is type(plan(SCHEMA, 1))


@pytest.mark.parametrize("engine", ["auto", "stream"])
def test_a_copy_of_answers_that_are_not_read_spends_nothing_more(engine):
    answers = answer(FRAME, SCHEMA, 1, epsilon=1.0, engine=engine)
    copies = [copy.copy(answers) for _ in range(2)]
    assert len(copies[0].to_pandas())
    for other in (answers, copies[1]):
        with pytest.raises(InputError, match="budget is already open"):
            other.to_pandas()
