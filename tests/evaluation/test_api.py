"""`adaptive_qs.evaluate` takes what `plan`, `answer` and `fit` take."""

import gzip
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import adaptive_qs
from adaptive_qs import CodedTable, Domain, QueryWorkload, Schema, Synthesizer, Workload
from adaptive_qs.data.encode import encode_table
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.attack.game import Promise
from adaptive_qs.workload.building import all_ways_queries

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["cook", "nurse", "judge"]},
        {"name": "age", "type": "integer", "min": 0, "max": 9, "missing": ["?"]},
        {"name": "flag", "type": "boolean"},
    ],
}
PARSED = Schema.parse(SCHEMA)
DOMAIN = PARSED.domain()


def frame(seed, rows=400):
    rng = np.random.default_rng(seed)
    job = rng.choice(["cook", "nurse", "judge"], rows, p=[0.5, 0.3, 0.2])
    age = rng.integers(0, 10, rows) // (1 + (job == "cook"))
    return pd.DataFrame({"job": job, "age": age, "flag": age > rng.integers(0, 10, rows)})


TRUE, MADE, HELD = frame(1), frame(2), frame(3)
EXPECTED = adaptive_qs.evaluate(TRUE, MADE, SCHEMA, workers=1)


def as_kind(kind, table, folder, name):
    match kind:
        case "polars":
            return pl.from_pandas(table)
        case "pyarrow":
            return pa.Table.from_pandas(table)
        case "codes":
            return encode_table(table, PARSED)
        case "csv":
            table.to_csv(folder / f"{name}.csv", index=False)
            return folder / f"{name}.csv"
        case "gzip":
            path = folder / f"{name}.csv.gz"
            path.write_bytes(gzip.compress(table.to_csv(index=False).encode()))
            return str(path)
        case "parquet":
            table.to_parquet(folder / f"{name}.parquet")
            return folder / f"{name}.parquet"
    return table


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "codes", "csv", "gzip", "parquet"])
def test_tables_of_every_kind_are_compared(kind, tmp_path):
    tables = [as_kind(kind, t, tmp_path, n) for t, n in ((TRUE, "t"), (MADE, "m"), (HELD, "c"))]
    found = adaptive_qs.evaluate(*tables[:2], schema=SCHEMA, control=tables[2], workers=1)
    assert found.workload == EXPECTED.workload
    assert found.rows == EXPECTED.rows
    assert found.membership.members == len(TRUE) // 2


@pytest.mark.parametrize("kind", ["schema", "dict", "path", "text", "coded", "release"])
def test_schemas_of_every_kind_are_taken(kind, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SCHEMA))
    given = {"schema": PARSED, "dict": SCHEMA, "path": path, "text": str(path)}.get(kind)
    if kind == "coded":
        domain = Domain.from_sizes({"a": 3, "b": 2})
        coded = CodedTable.from_codes(domain, [np.arange(60) % 3, np.arange(60) % 2])
        assert adaptive_qs.evaluate(coded, coded).workload.mean_l1 == 0
    elif kind == "release":
        model = Synthesizer(rho=1, workers=1).fit(TRUE, schema=SCHEMA)
        found = adaptive_qs.evaluate(TRUE, MADE, release=model.release_)
        assert found.workload == EXPECTED.workload
        model.save(tmp_path / "r.zip")
        found = adaptive_qs.evaluate(TRUE, MADE, release=tmp_path / "r.zip")
        assert found.workload == EXPECTED.workload
    else:
        assert adaptive_qs.evaluate(TRUE, MADE, given).workload == EXPECTED.workload


RANGES = {"version": 1, "parts": [{"attributes": [["age"]], "queries": "range", "weight": 2}]}
MARGINALS = {"version": 1, "parts": [{"ways": [1]}]}


@pytest.mark.parametrize(
    "workload",
    [1, [1], np.int64(1), Workload.all_ways(DOMAIN, 1), MARGINALS, all_ways_queries(DOMAIN, 1)],
    ids=["number", "list", "numpy", "Workload", "content", "QueryWorkload"],
)
def test_workloads_of_every_kind_are_taken(workload, tmp_path):
    found = adaptive_qs.evaluate(TRUE, MADE, SCHEMA, workload)
    assert found.queries is None
    assert [clique.attributes for clique in found.workload.per_clique] == [
        ("job",),
        ("age",),
        ("flag",),
    ]


def test_workloads_of_queries_are_taken_as_files_content_and_values(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(RANGES))
    asked = adaptive_qs.plan(SCHEMA, RANGES).workload
    assert isinstance(asked, QueryWorkload)
    errors = {
        adaptive_qs.evaluate(TRUE, MADE, SCHEMA, w).queries.rmse for w in (path, RANGES, asked)
    }
    assert len(errors) == 1
    assert errors.pop() > 0


def test_a_release_gives_the_promise(tmp_path):
    model = Synthesizer(epsilon=1, workers=1).fit(TRUE, schema=SCHEMA)
    model.save(tmp_path / "r.zip")
    for release, name in ((model.release_, "the release"), (tmp_path / "r.zip", "r.zip")):
        found = adaptive_qs.evaluate(TRUE, MADE, SCHEMA, control=HELD, release=release)
        spent = model.rho_spent_
        assert found.membership.promise == Promise(spent, 1.0, 1e-9, name)
    found = adaptive_qs.evaluate(TRUE, MADE, SCHEMA, control=HELD)
    assert any("privacy promise is not known" in text for text in found.limitations)
    other = {
        "version": 1,
        "columns": [*SCHEMA["columns"][:2], {"name": "flag", "type": "boolean", "ordered": True}],
    }
    with pytest.raises(InputError, match=r"^the release: was made with another schema"):
        adaptive_qs.evaluate(TRUE, MADE, other, release=model.release_)


def test_models_and_rules_are_asked_for_by_name():
    found = adaptive_qs.evaluate(
        TRUE, MADE, SCHEMA, rules="job determines flag", target="flag", repeats=np.int64(1)
    )
    assert found.utility.target == "flag"
    assert found.rules[0].rule == "job determines flag"
    assert adaptive_qs.evaluate(TRUE, MADE, SCHEMA, models=True, repeats=1).utility.proposed


def test_the_number_of_threads_changes_nothing():
    for workers in (None, np.int64(2)):
        found = adaptive_qs.evaluate(TRUE, MADE, SCHEMA, workers=workers)
        assert found.workload == EXPECTED.workload


CANARY = "canary-7719"
REFUSED = {
    "no schema": ((TRUE, MADE), {}, "no schema was given"),
    "frame as schema": ((TRUE, MADE, TRUE), {}, "schema"),
    "true": (
        (TRUE.assign(job=CANARY), MADE, SCHEMA),
        {},
        "^the true table: column 'job' has a value",
    ),
    "synthetic": (
        (TRUE, MADE.assign(job=CANARY), SCHEMA),
        {},
        "^the synthetic table: column 'job'",
    ),
    "fractions": ((TRUE, MADE.assign(age=0.5), SCHEMA), {}, "round its numbers"),
    "control": (
        (TRUE, MADE, SCHEMA),
        {"control": HELD.assign(job=CANARY)},
        "^the control table: col",
    ),
    "coded": ((encode_table(TRUE, PARSED), MADE, {"a": 2}), {}, "^the true coded table has other"),
    "no table": ((TRUE, 7, SCHEMA), {}, "^the synthetic table is not an eager pandas"),
    "no file": (("none.csv", MADE, SCHEMA), {}, "^none.csv: "),
    "no rows": ((TRUE.iloc[:0], MADE, SCHEMA), {}, "^the true table: no rows"),
    "column": ((TRUE.drop(columns="age"), MADE, SCHEMA), {}, "^the true table: column 'age'"),
    "workload": ((TRUE, MADE, SCHEMA, 7), {}, "ways is 7"),
    "frame as workload": ((TRUE, MADE, SCHEMA, TRUE), {}, "workload is a DataFrame"),
    "rule": ((TRUE, MADE, SCHEMA), {"rules": ["age ? job"]}, "rule"),
    "target": ((TRUE, MADE, SCHEMA), {"target": "none"}, "none"),
    "repeats": ((TRUE, MADE, SCHEMA), {"models": True, "repeats": "3"}, "repeats is '3'"),
    "seed": ((TRUE, MADE, SCHEMA), {"seed": True}, "seed is True"),
    "workers": ((TRUE, MADE, SCHEMA), {"workers": 0}, "workers is 0"),
    "release": ((TRUE, MADE, SCHEMA), {"release": 3}, "release is no release"),
    "missing release": ((TRUE, MADE, SCHEMA), {"release": "none.zip"}, "^none.zip: "),
    "true as control": ((TRUE, MADE, SCHEMA), {"control": TRUE}, "held out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_in_one_line_without_a_cell(case):
    tables, options, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as caught:
        adaptive_qs.evaluate(*tables, **options)
    assert "\n" not in str(caught.value)
    assert CANARY not in str(caught.value)
    assert "cook" not in str(caught.value)
