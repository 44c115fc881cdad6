"""The Python API: scikit-learn's conventions, kinds of tables, and what is checked when."""

import ast
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import adaptive_qs
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError, InputError, ResourceExceeded, SchemaError, WorkloadError
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.machine import PROCESS_BYTES
from adaptive_qs.privacy.budget import GuardRailWarning
from adaptive_qs.run.budget import Limits
from adaptive_qs.run.memory import SYNTHETIC_CODE_BYTES, check_table_rows, fit_bytes
from adaptive_qs.run.tables import tables_limits
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table import encode, formats
from adaptive_qs.table.coded import MAX_ROWS, CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

pytestmark = pytest.mark.usefixtures("quick_tables")

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["a", "b"], "missing": ["?"]},
        {"name": "age", "type": "integer", "min": 0, "max": 9, "missing": ["?"]},
        {"name": "flag", "type": "boolean"},
        {"name": "day", "type": "date", "min": "2020-01-01", "max": "2020-01-09"},
    ],
}
FRAME = pd.DataFrame(
    {
        "job": ["a", "b", None, "a"] * 50,
        "age": [1.0, None, 3.0, 9.0] * 50,
        "flag": [True, False] * 100,
        "day": pd.to_datetime(["2020-01-02", "2020-01-09"] * 100),
    }
)
KINDS = {
    "pandas": (FRAME, pd.DataFrame),
    "polars": (pl.from_pandas(FRAME), pl.DataFrame),
    "pyarrow": (pa.Table.from_pandas(FRAME), pa.Table),
}


@pytest.fixture(scope="module")
def fitted():
    return Synthesizer(rho=10, workers=1).fit(FRAME, schema=SCHEMA)


@pytest.mark.parametrize("kind", KINDS)
def test_sample_is_of_the_kind_that_was_fitted(kind):
    table, expected = KINDS[kind]
    made = Synthesizer(rho=1, workers=1).fit(table, schema=SCHEMA).sample(20, seed=1)
    assert isinstance(made, expected)
    assert len(made) == 20
    # what was sampled can be fitted in turn
    Synthesizer(rho=1, workers=1).fit(made, schema=SCHEMA)


def test_files_give_pandas_with_the_declared_types(tmp_path):
    path = tmp_path / "t.csv"
    FRAME.assign(job=FRAME.job.fillna("?"), age=FRAME.age.astype("Int64")).to_csv(
        path, index=False, na_rep="?"
    )
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    made = Synthesizer(rho=10, workers=1).fit(path, schema=tmp_path / "s.json").sample(seed=1)
    assert made.age.dtype == "Int64"
    assert made.age.isna().any()
    assert made.flag.dtype == bool
    assert made.day.dtype.kind == "M"
    assert set(made.job.dropna()) == {"a", "b"}


def test_coded_tables_bring_their_own_schema():
    domain = Domain.from_sizes({"a": 3, "b": 2})
    table = CodedTable.from_codes(domain, [np.arange(60) % 3, np.arange(60) % 2])
    made = Synthesizer(rho=5, workers=1).fit(table).sample(seed=1)
    assert isinstance(made, CodedTable)
    assert made.domain == domain
    with pytest.raises(DataError, match="other attributes"):
        Synthesizer(rho=5).fit(table, schema={"a": 3})
    with pytest.raises(DataError, match="no rows"):
        Synthesizer(rho=5).fit(CodedTable.from_codes(domain, [np.arange(0), np.arange(0)]))


def test_fitted_attributes_and_bundles(fitted, tmp_path):
    fitted.save(tmp_path / "r.zip")
    loaded = Synthesizer.load(tmp_path / "r.zip")
    pd.testing.assert_frame_equal(loaded.sample(seed=4), fitted.sample(seed=4))
    assert loaded.rho_spent_ == fitted.rho_spent_
    assert loaded.get_params()["rho"] == 10
    assert not hasattr(clone(loaded), "release_")
    assert fitted.rho_ == 10
    assert 0 < fitted.rho_spent_ <= 10
    assert fitted.delta_ == 1e-9
    assert fitted.epsilon_ > 10
    assert fitted.schema_ == Schema.parse(SCHEMA)
    assert fitted.rounds_ == fitted.release_.rounds
    assert {"read", "loop", "total"} <= set(fitted.seconds_)


def test_constructor_stores_and_fit_checks():
    bad = Synthesizer(epsilon=-1, workload="none.json", workers=0)
    assert bad.get_params()["epsilon"] == -1
    with pytest.raises(InputError, match="epsilon"):
        bad.fit(FRAME, schema=SCHEMA)
    workload = Workload.all_ways(Schema.parse(SCHEMA).domain(), 1)
    one = Synthesizer(epsilon=1, workload=workload, insecure_seed=3)
    two = clone(one).set_params(epsilon=2)
    assert (one.epsilon, two.epsilon, two.insecure_seed) == (1, 2, 3)
    assert two.workload == workload
    assert not hasattr(clone(two.fit(FRAME, schema=SCHEMA)), "release_")

    for call in (one.sample, lambda: one.save("r.zip")):
        with pytest.raises(NotFittedError):
            call()


def test_the_insecure_seed_repeats_the_noise_and_the_workers_do_not_matter():
    tables = [
        Synthesizer(rho=0.1, insecure_seed=seed, workers=workers)
        .fit(FRAME, schema=SCHEMA)
        .sample(seed=1)
        for seed, workers in [(1, 1), (1, 3), (2, 1)]
    ]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0].equals(tables[2])


@pytest.mark.parametrize("kind", KINDS)
def test_insecure_noise_warns_and_its_data_frames_carry_the_stamp(kind, recwarn):
    fit = partial(Synthesizer.fit, table=KINDS[kind][0], schema=SCHEMA)
    with pytest.warns(UserWarning, match="insecure_seed: .* NOT PRIVATE"):
        insecure = fit(Synthesizer(rho=1, workers=1, insecure_seed=1))
    private = fit(Synthesizer(rho=1, workers=1))
    assert not [warning for warning in recwarn if "insecure_seed" in str(warning.message)]
    for model in (insecure, private) if kind != "polars" else ():
        made = model.sample(20, seed=1)
        attached = made.attrs if kind == "pandas" else made.schema.metadata
        assert ("NOT PRIVATE" in str(attached)) == (model is insecure)


BAD = {
    "neither": ({}, "No privacy budget is set"),
    "both": ({"epsilon": 1, "rho": 1}, "Both epsilon and rho"),
    "epsilon 0": ({"epsilon": 0}, "epsilon is 0"),
    "epsilon nan": ({"epsilon": float("nan")}, "epsilon is nan"),
    "epsilon inf": ({"epsilon": float("inf")}, "epsilon is inf"),
    "epsilon text": ({"epsilon": "1"}, "epsilon is '1'"),
    "epsilon tiny": ({"epsilon": 1e-12}, "everything is noise"),
    "rho huge": ({"rho": 1e30}, "above it, nothing is"),
    "delta 0": ({"epsilon": 1, "delta": 0}, "delta is 0"),
    "delta 1": ({"epsilon": 1, "delta": 1.0}, "delta is 1.0"),
    "delta nan": ({"epsilon": 1, "delta": float("nan")}, "delta is nan"),
    "delta 1e-300": ({"epsilon": 1, "delta": 1e-300}, "delta is 1e-300. Use a number of at least"),
    "rho 0": ({"rho": 0.0}, "rho is 0.0"),
    "rho inf": ({"rho": float("inf")}, "rho is inf"),
    "workers": ({"rho": 1, "workers": 0}, "workers is 0"),
    "seed": ({"rho": 1, "insecure_seed": -1}, "seed is -1"),
    "memory": ({"rho": 1, "max_memory": "much"}, "max-memory is 'much'"),
    "memory 0": ({"rho": 1, "max_memory": 0}, "max-memory is 0"),
    "ways 0": ({"rho": 1, "workload": 0}, "ways is 0"),
    "ways 5": ({"rho": 1, "workload": 5}, "ways is 5"),
    "no ways": ({"rho": 1, "workload": ()}, "workload is ()"),
    "no file": ({"rho": 1, "workload": "none.json"}, "none.json: no such file"),
    "bool": ({"rho": 1, "workload": [True]}, "workload is"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parameters_are_refused_before_anything_is_read(case, monkeypatch):
    parameters, hint = BAD[case]
    monkeypatch.setattr(encode, "read_rows", None)
    with pytest.raises(InputError) as caught:
        Synthesizer(**parameters).fit(FRAME, schema=SCHEMA)
    assert hint in str(caught.value)


def test_a_schema_is_needed_and_a_workload_over_it():
    with pytest.raises(SchemaError, match="no schema"):
        Synthesizer(rho=1).fit(FRAME)
    workload = Workload.all_ways(Domain.from_sizes({"a": 2}), 1)
    with pytest.raises(WorkloadError, match="other attributes"):
        Synthesizer(rho=1, workload=workload).fit(FRAME, schema=SCHEMA)


def test_memory_is_refused_before_anything_is_drawn_without_telling_how_many_rows(monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", None)
    with pytest.raises(ResourceExceeded):
        Synthesizer(rho=1, max_memory="1MB").fit(FRAME, schema=SCHEMA)
    domain = Domain.from_sizes({"a": 2})
    workload = Workload.all_ways(domain, 1)
    rows = tables_limits(domain, workload, "600MB", 1).most_rows + 1
    table = CodedTable.from_codes(domain, [np.zeros(rows, dtype=np.uint8)])
    with pytest.raises(ResourceExceeded, match="raise --max-memory") as caught:
        Synthesizer(rho=1, max_memory="600MB", workers=1, engine="memory").fit(table)
    assert f"{rows:,}" not in str(caught.value)
    assert tables_limits(domain, workload, 2**60, 1).most_rows == MAX_ROWS


@pytest.mark.parametrize("kind", ["csv", "parquet", *KINDS])
def test_a_table_with_too_many_rows_is_not_read_to_its_end(kind, monkeypatch, tmp_path):
    monkeypatch.setattr(formats, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(formats, "BATCH_ROWS", 500)
    rows = 12_345
    frame = pd.DataFrame({"a": [0] * (rows - 1) + [7]})  # the last one would be refused
    tables = {
        "csv": tmp_path / "t.csv",
        "parquet": tmp_path / "t.parquet",
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "pyarrow": pa.Table.from_pandas(frame),
    }
    frame.to_csv(tables["csv"], index=False)
    frame.to_parquet(tables["parquet"])
    schema = Schema.parse({"a": 2})
    plan = Limits(2**30, 1, 6_000, measured_cells=1_000, watched_cells=1_000)
    with pytest.raises(ResourceExceeded, match="more rows than the 6,000") as caught:
        read_table(tables[kind], schema, None, plan.check_rows)
    assert "345" not in str(caught.value)
    with pytest.raises(DataError, match="'a'"):
        read_table(tables[kind], schema, None, replace(plan, most_rows=rows).check_rows)


def test_the_plan_does_not_depend_on_the_private_rows():
    """One more row changes no parameter of the loop, only whether the run is refused."""
    settings = [
        Synthesizer(rho=1, max_memory="1GB", insecure_seed=1)
        .fit(FRAME.iloc[:rows], schema=SCHEMA)
        .release_.manifest.settings
        for rows in (1, 200)
    ]
    assert settings[0] == settings[1]


def test_a_huge_sample_is_refused_and_a_small_one_takes_the_process_and_the_fit(fitted):
    with pytest.raises(ResourceExceeded, match="request fewer"):
        fitted.sample(10**13)
    needed = PROCESS_BYTES + fit_bytes(10) + 10 * SYNTHETIC_CODE_BYTES
    assert fit_bytes(10) > SynthesisSettings().fit_rows * 10
    check_table_rows(1, 10, needed)
    check_table_rows(10**12, 10, needed, held=False)
    with pytest.raises(ResourceExceeded, match="there are: request fewer rows or raise"):
        check_table_rows(1, 10, needed - 1)
    with pytest.raises(ResourceExceeded, match="there are: raise --max-memory"):
        check_table_rows(1, 10, PROCESS_BYTES, held=False)
    with pytest.raises(ResourceExceeded, match="at most 1,099,511,627,776 rows"):
        check_table_rows(2**40 + 1, 10, needed, held=False)


EXTREMES = {
    "one row": ({"a": 3, "b": 2}, 1),
    "one attribute": ({"a": 3}, 50),
    "single-valued": ({"a": 3, "one": 1}, 50),
    "nothing but single-valued": ({"one": 1, "only": 1}, 50),
    "1,000 values": ({"a": 1000, "b": 4}, 50),
}


@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_tables_work(case):
    sizes, rows = EXTREMES[case]
    domain = Domain.from_sizes(sizes)
    table = CodedTable.from_codes(domain, [np.arange(rows) % n for n in domain.sizes])
    synthesizer = Synthesizer(epsilon=1, workers=1).fit(table)
    assert synthesizer.sample(10).num_rows == 10
    assert synthesizer.release_.num_rows >= 1
    assert synthesizer.rho_spent_ <= synthesizer.rho_


def test_public_names():
    for name in adaptive_qs.__all__:
        assert getattr(adaptive_qs, name).__doc__
    with pytest.raises(AttributeError):
        adaptive_qs.nothing  # noqa: B018
    assert adaptive_qs.__version__.count(".") == 2


def test_import_is_light_and_dir_shows_the_public_names_alone_before_and_after_their_use():
    code = (
        "import sys, rlcompleter, typing, adaptive_qs\n"
        "assert dir(adaptive_qs) == sorted(adaptive_qs.__all__)\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'sklearn', 'numba', 'scipy', 'pydantic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from adaptive_qs import *\n"
        "assert evaluate is adaptive_qs.evaluate and callable(plan)\n"
        "import adaptive_qs.cli\n"
        "assert dir(adaptive_qs) == sorted(adaptive_qs.__all__)\n"
        "complete = rlcompleter.Completer({'adaptive_qs': adaptive_qs}).complete\n"
        "found = [complete('adaptive_qs.', i) for i in range(len(adaptive_qs.__all__) + 1)]\n"
        "shown = {name.rstrip('()').removeprefix('adaptive_qs.') for name in found if name}\n"
        "assert shown == set(adaptive_qs.__all__), shown\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_see_the_names_that_are_there():
    tree = ast.parse(Path(adaptive_qs.__file__).with_suffix(".pyi").read_text())
    imported = {
        name.asname: (f"adaptive_qs.{statement.module}", name.name)
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    assert set(imported) == set(adaptive_qs.__all__)
    for name, (module, real) in imported.items():
        assert getattr(adaptive_qs, name) is getattr(import_module(module), real)


def test_a_table_in_the_place_of_its_schema_is_told_and_not_quoted(tmp_path):
    frame = pd.DataFrame({"secret": ["canary"] * 5})
    schema = {"secret": 2}
    for call in (
        lambda: Synthesizer(epsilon=1.0).fit(schema, schema=frame),
        lambda: adaptive_qs.answer(schema, frame, epsilon=1.0),
        lambda: adaptive_qs.plan(frame, epsilon=1.0),
        lambda: adaptive_qs.evaluate(schema, schema, frame),
    ):
        with pytest.raises(InputError) as refused:
            call()
        assert str(refused.value).startswith("the schema is a DataFrame: pass a Schema")
        assert "canary" not in str(refused.value)


def test_what_a_synthesizer_holds_is_shown_in_a_line():
    workload = Workload(Domain.from_sizes({"a": 2, "b": 3}), {(0, 1): 1.0})
    shown = repr(Synthesizer(epsilon=1.0, workload=workload))
    assert "<Workload: 1 marginals of 2 columns>" in shown
    assert repr(Schema.parse({"a": 2, "b": 3})) == "<Schema: 2 columns>"


def test_a_warning_that_is_an_error_comes_after_what_was_paid_for_is_there():
    model = Synthesizer(rho=1e-4, delta=1e-7, workers=1)
    table = pd.DataFrame({"a": [0, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "epsilon|rho|delta")
        with pytest.raises(GuardRailWarning):
            model.fit(table, schema={"a": 2})
    assert model.release_.manifest.rho_spent > 0


@pytest.mark.parametrize("name", ["resume", "unreviewed_schema", "beyond_limits"])
def test_consent_is_true_or_false(name):
    table, said = pd.DataFrame({"a": [0, 1] * 10}), f"{name.replace('_', '-')} is 'no'. Use True"
    with pytest.raises(InputError, match=said):
        adaptive_qs.answer(table, {"a": 2}, 1, rho=1, **{name: "no"})
    with pytest.raises(InputError, match=said):
        Synthesizer(rho=1, **{name: "no"}).fit(table, schema={"a": 2})


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    refused = "not a regular file. Use a file"
    with pytest.raises(InputError, match=refused):
        Synthesizer(rho=1).fit(path, schema={"a": 2})
    with pytest.raises(InputError, match=refused):
        adaptive_qs.answer(path, {"a": 2}, 1, rho=1)


@pytest.mark.parametrize("job", ["fit", "answer"])
def test_a_file_that_changes_between_its_two_readings_is_refused_whatever_its_time(job, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "3\n" * 40)
    before = path.stat()
    schema = {"version": 1, "columns": [
        {"name": "a", "type": "integer", "min": 0, "max": 9, "private_bins": 3},
    ]}  # fmt: skip

    def rewrite(phase, done, of):
        if phase == "learn":
            path.write_text("a\n" + "7\n" * 40)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    runs = {
        "fit": lambda: Synthesizer(rho=1, workers=1, progress=rewrite).fit(path, schema=schema),
        "answer": lambda: adaptive_qs.answer(path, schema, 1, rho=1, workers=1, progress=rewrite),
    }
    with pytest.raises(DataError, match="changed while it was read"):
        runs[job]()
