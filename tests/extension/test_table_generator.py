"""A table generator is one callable and one line of its registry; `--generator` names it."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.generate import GENERATORS
from adaptive_qs.generate.rows import synthesize_rows

from .fresh import imported_in_either_order

ROWS = pd.DataFrame({"a": [0, 0, 0, 2] * 60, "b": [0, 1] * 120})
SCHEMA = {"a": 3, "b": 2}


def independent(
    residuals, measured, workload, num_rows, seed, settings=None, workers=1, progress=None, zeros=()
):
    """Every column by itself from its noisy counts."""
    rng = np.random.default_rng(seed)
    columns = []
    for i, n in enumerate(residuals.domain.sizes):
        counts = np.maximum(residuals.marginal((i,)), 0)
        columns.append(rng.choice(n, num_rows, p=counts / counts.sum()))
    yield np.stack(columns, axis=1).astype(np.int32)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(GENERATORS, "independent", f"{__name__}:independent")


@pytest.fixture
def release(tmp_path):
    """A saved release of a run that names the toy."""
    fitted = Synthesizer(rho=5, workload=1, generator="independent", workers=1, insecure_seed=1)
    fitted.fit(ROWS, schema=SCHEMA).save(tmp_path / "toy.aqs")
    return tmp_path / "toy.aqs"


def test_tables_come_from_the_generator_that_the_release_names(release):
    assert Synthesizer.load(release).generator == "independent"
    made = Synthesizer.load(release).sample(4_000, seed=3)
    model = Synthesizer.load(release).release_.model()
    np.testing.assert_array_equal(made, next(independent(model, (), (), 4_000, 3)))
    pd.testing.assert_frame_equal(made, Synthesizer.load(release).sample(4_000, seed=3))


def test_the_commands_use_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ROWS.to_csv("t.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    size = ["--rows", "4000", "--seed", "3"]
    command = ["synthesize", "t.csv", "--schema", "s.json", "--rho", "5", "--ways", "1"]
    command += ["--release", "r.zip"]
    assert main([*command, "--generator", "independent", "--out", "o.csv", *size]) == 0
    assert main(["sample", "r.zip", "--out", "p.csv", *size]) == 0
    made = pd.read_csv("o.csv")
    model = Synthesizer.load("r.zip").release_.model()
    np.testing.assert_array_equal(made, next(independent(model, (), (), 4_000, 3)))
    pd.testing.assert_frame_equal(made, pd.read_csv("p.csv"))
    for out in ("o.csv", "p.csv"):
        content = json.loads((tmp_path / f"{out}.manifest.json").read_text())
        assert content["settings"]["generator"] == "independent"
    with zipfile.ZipFile("r.zip") as bundle:
        assert b"generator independent" in bundle.read("statement.md")


def test_a_generator_that_is_not_there_is_named(release):
    loaded = Synthesizer.load(release)
    known = ", ".join(GENERATORS)
    with pytest.raises(InputError, match=f"generator is 'best': give one of {known}"):
        Synthesizer(rho=1, generator="best").fit(ROWS, schema=SCHEMA)
    del GENERATORS["independent"]
    known = ", ".join(GENERATORS)
    with pytest.raises(InputError, match=f"generator is 'independent': give one of {known}$"):
        loaded.sample(10)


def test_a_generator_may_build_on_the_one_there_is(tmp_path):
    assert GENERATORS["loglinear"] is synthesize_rows
    source = "from adaptive_qs.generate.rows import Generator, SynthesisSettings, synthesize_rows\n"
    source += "class Toy:\n    pass\n"
    imported_in_either_order(tmp_path, source, "adaptive_qs.generate:GENERATORS")
