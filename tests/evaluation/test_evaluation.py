"""`adaptive_qs.evaluate` takes what `plan`, `answer` and `fit` take."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import adaptive_qs
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.evaluation import find_promise
from adaptive_qs.evaluation.tables import BATCH, TablePair, in_batches
from adaptive_qs.release.bundle import Bundle, manifest_path, with_manifest
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import all_ways_queries
from adaptive_qs.workload.workload import QueryWorkload, Workload

from .tables import table

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


TRUE, MADE = frame(1), frame(2)


def evaluated(*more, **options):
    return adaptive_qs.evaluate(TRUE, MADE, SCHEMA, *more, **options)


EXPECTED = evaluated(workers=1)


def compressed(data, path):
    with gzip.open(f"{path}.csv.gz", "wt") as file:
        data.to_csv(file, index=False)
    return f"{path}.csv.gz"


def csv(data, path):
    data.to_csv(path.with_suffix(".csv"), index=False)
    return path.with_suffix(".csv")


def parquet(data, path):
    data.to_parquet(path)
    return path.rename(path.with_suffix(".parquet"))


KINDS = {
    "pandas": lambda data, path: data,
    "polars": lambda data, path: pl.from_pandas(data),
    "pyarrow": lambda data, path: pa.Table.from_pandas(data),
    "codes": lambda data, path: read_table(data, PARSED),
    "csv": csv, "gzip": compressed, "parquet": parquet,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_kind_are_compared(kind, tmp_path):
    true, made = (KINDS[kind](t, tmp_path / n) for t, n in zip((TRUE, MADE), "tm"))
    found = adaptive_qs.evaluate(true, made, schema=SCHEMA, workers=1)
    assert (found.workload, found.rows) == (EXPECTED.workload, EXPECTED.rows)


def test_schemas_of_every_kind_are_taken(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SCHEMA))
    model = Synthesizer(rho=1, workers=1).fit(TRUE, schema=SCHEMA)
    model.save(tmp_path / "r.zip")
    releases = [{"release": release} for release in (model.release_, tmp_path / "r.zip")]
    for given in [*({"schema": s} for s in (PARSED, SCHEMA, path, str(path))), *releases]:
        assert adaptive_qs.evaluate(TRUE, MADE, **given).workload == EXPECTED.workload
    domain = Domain.from_sizes({"a": 3, "b": 2})
    coded = CodedTable.from_codes(domain, [np.arange(60) % 3, np.arange(60) % 2])
    assert adaptive_qs.evaluate(coded, coded).workload.mean_l1 == 0


RANGES = {"version": 1, "parts": [{"attributes": [["age"]], "queries": "range", "weight": 2}]}
MARGINALS = {"version": 1, "parts": [{"ways": [1]}]}


@pytest.mark.parametrize(
    "workload",
    [1, [1], np.int64(1), Workload.all_ways(DOMAIN, 1), MARGINALS, all_ways_queries(DOMAIN, 1)],
    ids=["number", "list", "numpy", "Workload", "content", "QueryWorkload"],
)
def test_workloads_of_every_kind_are_taken(workload):
    found = evaluated(workload)
    assert found.queries is None
    names = [clique.attributes for clique in found.workload.per_clique]
    assert names == [("job",), ("age",), ("flag",)]


def test_workloads_of_queries_are_taken_as_files_content_and_values(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(RANGES))
    asked = adaptive_qs.plan(SCHEMA, RANGES).workload
    assert isinstance(asked, QueryWorkload)
    errors = {evaluated(workload).queries.whole.rmse for workload in (path, RANGES, asked)}
    assert len(errors) == 1
    assert errors.pop() > 0


def test_a_release_gives_the_promise(tmp_path):
    model = Synthesizer(epsilon=1, workers=1).fit(TRUE, schema=SCHEMA)
    model.save(tmp_path / "r.zip")
    for release, name in ((model.release_, "the release"), (tmp_path / "r.zip", "r.zip")):
        found = evaluated(release=release)
        promised = found.comparison.promised
        assert (promised.promise.epsilon, promised.source) == (1.0, name)
    found = evaluated()
    assert any("privacy promise is not known" in text for text in found.limitations)
    columns = [*SCHEMA["columns"][:2], {"name": "flag", "type": "boolean", "ordered": True}]
    other = {"version": 1, "columns": columns}
    with pytest.raises(InputError, match=r"^the release: was made with another schema"):
        adaptive_qs.evaluate(TRUE, MADE, other, release=model.release_)


def test_models_and_rules_are_asked_for_by_name_and_threads_change_nothing():
    options = {"rules": "job determines flag", "target": "flag", "repeats": np.int64(1)}
    found = evaluated(**options)
    assert isinstance(found, adaptive_qs.Evaluation)
    assert found.utility.target == "flag"
    assert found.rules.checks[0].rule == "job determines flag"
    assert evaluated().utility is None
    for workers in (None, np.int64(2)):
        assert evaluated(workers=workers).workload == EXPECTED.workload


CANARY = "canary-7719"
TABLES = (TRUE, MADE, SCHEMA)
WRONG = TRUE.assign(job=CANARY)
REFUSED = {
    "no schema": ((TRUE, MADE), {}, "no schema was given"),
    "frame as schema": ((TRUE, MADE, TRUE), {}, "schema"),
    "true": ((WRONG, MADE, SCHEMA), {}, "^the true table: column 'job' has a value"),
    "synthetic": ((TRUE, WRONG, SCHEMA), {}, "^the synthetic table: column 'job'"),
    "fractions": ((TRUE, MADE.assign(age=0.5), SCHEMA), {}, "round its numbers"),
    "coded": ((read_table(TRUE, PARSED), MADE, {"a": 2}), {}, "^the true coded table has other"),
    "no table": ((TRUE, 7, SCHEMA), {}, "^the synthetic table is not an eager pandas"),
    "no file": (("none.csv", MADE, SCHEMA), {}, "^none.csv: "),
    "no rows": ((TRUE.iloc[:0], MADE, SCHEMA), {}, "^the true table has no rows"),
    "column": ((TRUE.drop(columns="age"), MADE, SCHEMA), {}, "^the true table: column 'age'"),
    "workload": ((*TABLES, 7), {}, "ways is 7"),
    "frame as workload": ((*TABLES, TRUE), {}, "workload is a DataFrame"),
    "rule": (TABLES, {"rules": ["age ? job"]}, "rule"),
    "target": (TABLES, {"target": "none"}, "none"),
    "repeats": (TABLES, {"repeats": "3"}, "repeats is '3'"),
    "seed": (TABLES, {"seed": True}, "seed is True"),
    "workers": (TABLES, {"workers": 0}, "workers is 0"),
    "release": (TABLES, {"release": 3}, "release is not a release"),
    "missing release": (TABLES, {"release": "none.zip"}, "^none.zip: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_in_one_line_without_a_cell(case):
    tables, options, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as caught:
        adaptive_qs.evaluate(*tables, **options)
    assert not any(text in str(caught.value) for text in ("\n", CANARY, "cook"))


# All parts together, as Python users call them, and as JSON.

SIZES = {"a": 4, "b": 3, "c": 6, "d": 2}
SIZED = Schema.parse(SIZES)
PAIR = TablePair(table(SIZED.domain(), 300, 1), table(SIZED.domain(), 200, 2))


def compared(workload=1, pair=PAIR, schema=SIZED, **options):
    return adaptive_qs.evaluate(pair.true, pair.synthetic, schema, workload, **options)


def test_every_marginal_is_counted_once():
    steps = []
    compared([2, 4], progress=lambda *step: steps.append(step))
    assert steps == [("pairs", 6, 6), ("evaluate", 7, 7)]


def test_other_columns_are_refused():
    other = Schema.parse({"a": 4, "b": 3})
    equal = compared(3, TablePair(PAIR.true, PAIR.true))
    assert (equal.workload.max_l1, equal.workload.rmse, equal.rows.exact_matches) == (0, 0, 1)
    with pytest.raises(DataError, match="other attributes"):
        compared(schema=other)
    with pytest.raises(InputError, match="other attributes"):
        compared(Workload.all_ways(other.domain(), 1))
    with pytest.raises(DataError, match="different attributes"):
        TablePair(PAIR.true, table(Domain.from_sizes({"a": 4}), 5, 1))
    with pytest.raises(DataError, match="no rows"):
        TablePair(PAIR.true, table(SIZED.domain(), 0, 1))


def test_the_json_form_has_plain_finite_values():
    found = compared()
    rows = replace(found.rows, exact_matches=math.nan, repeated=np.float64(math.inf))
    content = replace(found, facts={**found.facts, "rows": rows}).as_json()
    assert (content["verdict"], content["query_parts"]) == (found.verdict.brief, [])
    assert (content["rows"]["exact_matches"], content["rows"]["repeated"]) == (None, None)
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_work_ends_as_soon_as_its_progress_is_interrupted():
    class Stop(BaseException):
        pass

    done = []

    def stop(*_):
        raise Stop

    with pytest.raises(Stop):
        list(in_batches(lambda batch: [*map(done.append, batch)], range(BATCH * 400), 1, stop))
    assert len(done) < BATCH * 400


# Where the promise of a synthetic table is found, and what of it holds.

FRAME = pd.DataFrame({"a": ["x", "y", "y"] * 200, "b": [1, 2, 3] * 200})


def schema_of(topics=(), **column):
    a = {"name": "a", "type": "categorical", **column}
    b = {"name": "b", "type": "integer", "min": 0, "max": 4}
    return Schema.parse({"version": 1, "open": [*topics], "columns": [a, b]})


PROMISED_SCHEMA, OTHER = schema_of(values=["x", "y"]), schema_of(values=["x", "y", "z"])


def saved(folder, schema=PROMISED_SCHEMA, **options):
    """A small release."""
    model = Synthesizer(epsilon=1.0, delta=1e-6, workload=1, **options)
    model.fit(FRAME, schema=schema).save(folder / "r.zip")
    return folder / "r.zip"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("declared"))


def write_manifest(statement, table, **fields):
    with with_manifest(table) as write:
        write(statement, **fields)


def test_the_promise_of_a_bundle_and_of_the_statement_beside_a_table_is_what_was_spent(
    release, tmp_path
):
    manifest, path = Bundle.load(release).manifest, tmp_path / "o.csv"
    found = find_promise(release, path, PROMISED_SCHEMA)
    assert (found.promise, found.source) == (manifest, "r.zip")
    assert isinstance(found.release, Bundle)
    assert found.limitation is None
    write_manifest(manifest, path, sampling={"seed": 1, "rows": 5}, charges=[])
    found = find_promise(None, path, PROMISED_SCHEMA)
    assert found.release == manifest
    assert (found.promise.epsilon, found.source) == (1.0, "o.csv.manifest.json")
    manifest_path(path).write_text("no json")  # a bundle goes before it
    assert find_promise(release, path, PROMISED_SCHEMA).promise is not None
    assert find_promise(None, path, PROMISED_SCHEMA).promise is None


def test_what_is_no_release_or_of_another_schema_is_not_that_of_the_table(release, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"t\.csv is not a release"):
        find_promise(tmp_path / "t.csv", tmp_path / "o.csv", PROMISED_SCHEMA)
    path = tmp_path / "o.csv"
    with pytest.raises(InputError, match=r"r\.zip: was made with another schema") as caught:
        find_promise(release, path, OTHER)
    assert "\n" not in str(caught.value)
    write_manifest(Bundle.load(release).manifest, path, sampling={}, charges=[])
    found = find_promise(None, path, OTHER)
    assert (found.release, found.promise) == (None, None)
    assert "o.csv.manifest.json belongs to a release with another schema" in found.limitation


def test_nothing_is_promised_about_what_a_schema_taken_from_the_data_tells(tmp_path):
    schema = schema_of(["publish"], values=["x", "y"])
    with pytest.warns(UserWarning, match="taken from the data"):
        path = saved(tmp_path, schema, unreviewed_schema=True)
    found = find_promise(path, tmp_path / "o.csv", schema)
    assert found.promise is None
    assert found.limitation.endswith("which was taken from the data as r.zip says")
    assert isinstance(found.release, Bundle)


# Whether a table contradicts its release.


def test_a_table_that_contradicts_its_release_is_never_usable_silently():
    """The release is asked for its counts of every table that it could have drawn."""
    true = pd.concat([FRAME] * 20)  # 12,000 rows: chance moves 4,000 by 64, of which 5 are allowed
    true["b"] = np.arange(12_000) // 3 % 4
    model = Synthesizer(rho=2.0, workload=1, workers=1).fit(true, schema=PROMISED_SCHEMA)
    drawn = model.sample(12_000, seed=1)
    fine = adaptive_qs.evaluate(true, drawn, PROMISED_SCHEMA, 1, release=model.release_)
    assert (fine.release, fine.findings["release"].grade) == ((), "good")
    for rows, grade in ((540, "fair"), (4_000, "poor")):  # 4.5 % and a third
        moved = drawn.copy()
        moved.loc[moved.index[moved.a == "y"][:rows], "a"] = "x"
        found = adaptive_qs.evaluate(true, moved, PROMISED_SCHEMA, 1, release=model.release_)
        finding = found.findings["release"]
        assert (finding.grade, finding.word) == (grade, "contradicted")
        assert found.verdict.overall.word == ("usable" if grade == "fair" else "far")
        assert "release (contradicted)" in found.verdict.overall.said
        assert finding.said.replace("\u00a0", " ") in found.verdict.brief
        assert found.verdict.uses["single columns"] != "good"
        (cell, *_) = found.as_json()["contradictions"]
        assert list(cell["columns"]) == ["a"]
        assert abs(cell["drawn"] - cell["measured"]) == pytest.approx(rows, rel=0.2)


def test_the_statement_of_a_table_says_where_it_contradicts_its_release(release, tmp_path):
    path, manifest = tmp_path / "o.csv", Bundle.load(release).manifest
    FRAME.to_csv(path, index=False)
    cell = {"columns": ["a", "b"], "cell": ["x", "1"], "measured": 14.0, "drawn": 120.0,
            "standard_errors": 6.1}  # fmt: skip
    for found, grade in (([cell], "poor"), ([{**cell, "drawn": 20.0}], "fair"), (None, "good")):
        sampling = {"seed": 1, "rows": 600, **({"contradictions": found} if found else {})}
        write_manifest(manifest, path, sampling=sampling, charges=[])
        evaluation = adaptive_qs.evaluate(FRAME, path, PROMISED_SCHEMA, 1)
        assert evaluation.findings["release"].grade == grade
        path_of_statement = manifest_path(path)
        path_of_statement.unlink()
    write_manifest(manifest, path, sampling={"contradictions": "none"}, charges=[])
    assert adaptive_qs.evaluate(FRAME, path, PROMISED_SCHEMA, 1).release is None
