"""Marginals of a release, measured and fitted: in Python, and as `marginals` writes them."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import ResourceExceeded, SchemaError
from adaptive_qs.release import release as module
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.files import STAMP_KEY

ROWS = 4_000
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["=x", "y", "z"]},
        {"name": "b,c", "type": "integer", "min": 0, "max": 5},
        {"name": "count", "type": "integer", "min": 0, "max": 3},
        {"name": "d", "type": "boolean"},
    ],
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    a = rng.integers(3, size=ROWS)
    b = (2 * a + rng.integers(3, size=ROWS)) % 6
    c = np.where(rng.random(ROWS) < 0.7, b % 4, rng.integers(4, size=ROWS))
    return pd.DataFrame(
        {"a": np.array(["=x", "y", "z"])[a], "b,c": b, "count": c, "d": rng.random(ROWS) < 0.2}
    )


def fitted(frame, **settings):
    settings = {"insecure_seed": 5, "workers": 1, "beyond_limits": True, **settings}
    with pytest.warns(UserWarning, match="insecure_seed"):
        model = Synthesizer(**settings).fit(frame, schema=SCHEMA)
    return model.release_


@pytest.fixture(scope="module")
def release(frame):
    return fitted(frame, rho=0.02)


@pytest.fixture
def bundle(release, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    release.save("r.zip")
    return release


def truth(frame, *names):
    """Rows of each cell, counted by pandas."""
    values = {"a": ["=x", "y", "z"], "b,c": range(6), "count": range(4), "d": [False, True]}
    index = pd.MultiIndex.from_product([values[n] for n in names])
    counts = frame.value_counts(list(names)).reindex(index, fill_value=0)
    return counts.to_numpy().reshape([len(values[n]) for n in names])


PAIRS = [("a", "b,c"), ("a", "count"), ("b,c", "count"), ("a", "d")]


def test_with_an_ample_budget_both_are_the_truth(frame):
    """At rho 200 a cell of a pair has a standard deviation below half a row."""
    ample = fitted(frame, rho=200.0)
    for names, found in zip(PAIRS, ample.marginals(PAIRS)):
        assert found.columns == names
        assert found.basis == "measured"
        assert found.standard_error < 0.5
        # 24 cells at most: beyond 6 standard deviations once in 10^7 runs.
        assert np.abs(found.counts - truth(frame, *names)).max() < 6 * found.standard_error
    for names, found in zip(PAIRS, ample.fitted_marginals(PAIRS)):
        assert found.basis == "model"
        assert found.standard_error is None
        assert np.abs(found.counts - truth(frame, *names)).sum() < 0.01 * ROWS


def test_the_error_of_measured_counts_is_what_they_say(frame):
    """A mean of squares of n normal deviates has a relative standard deviation of sqrt(2 / n); here
    are 20 runs of 6 cells, with fixed seeds, and 5 of these deviations are 0.65."""
    deviates = []
    for seed in range(20):
        (found,) = fitted(frame, rho=0.02, insecure_seed=seed, workload=1).marginals([["b,c"]])
        deviates.append((found.counts - truth(frame, "b,c")) / found.standard_error)
    assert np.mean(np.square(deviates)) == pytest.approx(1, abs=5 * math.sqrt(2 / 120))


def test_what_was_not_measured_has_no_error(frame):
    poor = fitted(frame, rho=0.02, workload=1)
    whole, part = poor.marginals([["a"], ["a", "count"]])
    assert (whole.basis, part.basis) == ("measured", "partly measured")
    assert whole.standard_error > 0
    assert part.standard_error is None
    independent = np.outer(whole.counts, poor.marginals([["count"]])[0].counts)
    total = poor.model().total
    assert part.counts == pytest.approx(independent / total, rel=0.1, abs=0.02 * total)


@pytest.mark.parametrize("exact_cells", [2**20, 0], ids=["cell by cell", "chains"])
def test_fitted_counts_are_of_one_table_and_nearer_to_the_truth(
    release, frame, exact_cells, monkeypatch
):
    quick = partial(module.SynthesisSettings, exact_cells=exact_cells, fit_rows=10_000)
    monkeypatch.setattr(module, "SynthesisSettings", quick)
    asked = [*PAIRS, ("b,c", "count", "d"), ("d",)]  # beyond what is watched as well
    found = release.fitted_marginals(asked)
    total = release.model().total
    for marginal in found:
        assert marginal.counts.min() >= 0
        assert marginal.counts.sum() == pytest.approx(total)
    triple, single = found[-2].counts, found[-1].counts
    assert triple.sum(axis=(0, 1)) == pytest.approx(single, rel=0.05)
    assert found[2].counts == pytest.approx(triple.sum(axis=2), abs=0.02 * total)

    def error(marginals):
        pairs = zip(PAIRS, marginals)
        return sum(np.abs(m.counts - truth(frame, *names)).sum() for names, m in pairs)

    noisier = fitted(frame, rho=0.005)
    assert error(noisier.fitted_marginals(PAIRS)) < error(noisier.marginals(PAIRS))


def test_fitted_counts_depend_on_the_seed_alone(release):
    once, twice, other = (
        release.fitted_marginals(PAIRS, seed, workers) for seed, workers in ((0, 1), (0, 2), (0, 1))
    )
    for first, second, third in zip(once, twice, other):
        np.testing.assert_array_equal(first.counts, second.counts)
        np.testing.assert_array_equal(first.counts, third.counts)
    before = release.sample(500, seed=1)
    release.fitted_marginals([("a", "b,c", "count", "d")])
    after = release.sample(500, seed=1)
    assert all(np.array_equal(x, y) for x, y in zip(before.columns, after.columns))


def test_what_cannot_be_had_is_refused(release, monkeypatch):
    for ask in (release.marginals, release.fitted_marginals):
        with pytest.raises(SchemaError, match="did you mean"):
            ask([["a"], ["coun"]])
        with pytest.raises(SchemaError, match="twice"):
            ask([["a", "a"]])
    monkeypatch.setattr(module, "MOST_CELLS", 17)
    with pytest.raises(ResourceExceeded, match="18 cells, and 17 is the most"):
        release.marginals([["a", "b,c"]])


def test_the_command_writes_what_python_gives(bundle, capsys):
    command = ["marginals", "r.zip", "--columns", "b,c", "--json"]
    assert main([*command, "--out", "b.csv"]) == 0
    said = json.loads(capsys.readouterr().out)
    (wanted,) = bundle.marginals([["b,c"]])
    written = pd.read_csv("b.csv")
    assert list(written.columns) == ["b,c", "count", "standard_error"]
    assert written["count"].to_numpy() == pytest.approx(wanted.counts)
    assert set(written.standard_error) == {said["standard_error"]} == {wanted.standard_error}
    assert (said["basis"], said["columns"], said["cells"]) == ("measured", ["b,c"], 6)
    assert main([*command[:3], "count,a", "--fitted", "--out", "f.parquet"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "fitted model: closer on average" in printed
    assert "standard error" not in printed
    table = pq.read_table("f.parquet")
    assert table.column_names == ["a", "count", "fitted_count"]
    (wanted,) = bundle.fitted_marginals([["a", "count"]])
    assert table["fitted_count"].to_numpy() == pytest.approx(wanted.counts.ravel())
    assert table["a"][0].as_py() == "=x"
    assert table.schema.metadata[STAMP_KEY].decode() == bundle.manifest.stamp
    manifest = json.loads(Path("f.parquet.manifest.json").read_text())
    assert manifest["marginal"] == {"columns": ["a", "count"], "basis": "model", "seed": 0}
    assert manifest["stamp"].startswith("NOT PRIVATE")
    assert main([*command[:3], "count", "--out", "c.csv", "--formulas", "escape"]) == 0
    assert list(pd.read_csv("c.csv").columns) == ["count", "(count)", "standard_error"]
    assert main([*command[:3], "a", "--out", "e.csv", "--formulas", "escape"]) == 0
    assert pd.read_csv("e.csv").a.tolist() == ["'=x", "y", "z"]


def test_the_command_replaces_nothing_and_takes_a_release_only(bundle, capsys):
    command = ["marginals", "r.zip", "--columns", "a", "--out"]
    assert main([*command, "o.csv"]) == 0
    capsys.readouterr()
    for arguments, said in (
        ([*command, "o.csv"], "already exists"),
        ([*command, "r.zip"], "r.zip"),
        (["marginals", "r.zip", "--columns", "a,q", "--out", "p.csv"], "'q' is not in the schema"),
        (["marginals", "r.zip", "--columns", ",", "--out", "p.csv"], "',' is not in the schema"),
        (["marginals", "o.csv", "--columns", "a", "--out", "p.csv"], "o.csv is not a release"),
    ):
        assert main(arguments) == 2
        assert said in capsys.readouterr().err
    assert not Path("p.csv").exists()
    assert Release.load("r.zip").digests() == bundle.digests()
