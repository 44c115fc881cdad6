"""A target column: the weights that serve it, and what every way to name it releases."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.cli.entry import main
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, SchemaError, WorkloadError
from adaptive_qs.release.release import Release
from adaptive_qs.run.options import SynthesizeOptions
from adaptive_qs.run.tables import check_tables
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.tables import TableSet
from adaptive_qs.workload.limit import Ceilings, limited
from adaptive_qs.workload.workload import MOST_WEIGHT, Workload

DOMAIN = Domain.from_sizes(dict(zip("abcdef", (2, 7, 3, 1, 3, 5))))
NAMES, SIZES = "abcdef", dict(zip("abcdef", (4, 4, 4, 4, 4, 2)))
SEEDED = {"rho": 0.05, "insecure_seed": 3, "workers": 1, "beyond_limits": True}

cliques = st.sets(st.integers(0, 5), min_size=1).map(lambda s: tuple(sorted(s)))
weighted = st.dictionaries(cliques, st.floats(0.01, 100), min_size=1, max_size=12)


@given(weighted)
def test_every_set_is_also_asked_for_together_with_the_target(weights):
    asked = Workload(DOMAIN, weights)
    if weights.keys() == {(1,)}:
        with pytest.raises(WorkloadError, match="nothing but the target 'b'"):
            asked.serving("b")
        return
    served = asked.serving("b")
    assert served.target == "b"
    raised = math.sqrt(len({i for c in weights for i in c} - {1}))
    wanted = {c: w for c, w in weights.items() if 1 not in c}
    for clique in {tuple(sorted({*c, 1})) for c in weights}:
        rest = tuple(i for i in clique if i != 1)
        wanted[clique] = raised * weights.get(clique, 0.0) + weights.get(rest, 0.0)
    assert served.weights == pytest.approx(wanted)
    with_it = math.fsum(w for c, w in served.weights.items() if 1 in c)
    assert with_it >= math.fsum(w for c, w in weights.items() if 1 not in c) * (1 - 1e-12)


def test_a_workload_serves_one_target_once():
    served = Workload.all_ways(DOMAIN, 2).serving("a")
    assert served.serving("a") is served
    with pytest.raises(WorkloadError, match="'b', that of the workload 'a'"):
        served.serving("b")


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [("d", WorkloadError, "has one value"), ("z", SchemaError, "not in the schema")],
)
def test_a_target_that_cannot_be_served_is_refused(name, kind, said):
    with pytest.raises(kind, match=said):
        Workload.all_ways(DOMAIN, 2).serving(name)


def test_weights_stay_in_their_range():
    heavy = Workload(DOMAIN, {(1, 2): MOST_WEIGHT, (0, 1, 2): MOST_WEIGHT})
    assert max(heavy.serving("a").weights.values()) == MOST_WEIGHT


@pytest.mark.parametrize("most", [6, 10**6])
def test_what_is_left_out_of_a_served_workload_is_counted_once(most):
    """All triples, of which few are listed: those that the target brings in are listed then."""
    served = Workload.all_ways(DOMAIN, 3, most).serving("f")
    kept, left = limited(served, Ceilings(4, 10**6))
    assert kept.target == "f"
    assert left is not None
    degrees = Counter(map(len, served.cliques))
    assert degrees[3] + sum(served.unlisted.values()) == math.comb(6, 3)
    listed = [c for c in Workload.all_ways(DOMAIN, 3, most).cliques if len(c) == 3]
    assert degrees[4] == sum(5 not in c for c in listed)


# Through the public doors: one run for each way to name a target, all with the same noise.


@pytest.fixture(scope="module")
def frame():
    """All columns depend on each other through one hidden value, f less than the others."""
    rng = np.random.default_rng(0)
    hidden = rng.integers(4, size=3_000)

    def column(name, size):
        copied = rng.random(3_000) < (0.3 if name == "f" else 0.6)
        return np.where(copied, hidden, rng.integers(4, size=3_000)) % size

    return pd.DataFrame({name: column(name, size) for name, size in SIZES.items()})


def fitted(frame, **settings):
    with pytest.warns(UserWarning, match="insecure_seed"):
        return Synthesizer(**{**SEEDED, **settings}).fit(frame, schema=SIZES)


def rounds_with(model, name):
    return sum(name in past.clique for past in model.rounds_ if len(past.clique) > 1)


@pytest.mark.slow
def test_the_loop_turns_to_the_combinations_with_the_target(frame):
    """Of six runs with the same noise each; the seeds are fixed, so this is no matter of chance."""
    wins = 0
    for seed in range(6):
        plain = fitted(frame, rho=0.005, insecure_seed=seed)
        served = fitted(frame, rho=0.005, insecure_seed=seed, target="f")
        assert served.release_.manifest.settings["target"] == "f"
        assert "target" not in plain.release_.manifest.settings
        wins += rounds_with(served, "f") - rounds_with(plain, "f")
    assert wins > 0


def test_every_way_to_name_a_target_gives_the_same_release(frame, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("t.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(SIZES))
    content = {"version": 1, "parts": [{"ways": [2]}], "target": "f"}
    (tmp_path / "w.json").write_text(json.dumps(content))
    wanted = fitted(frame, target="f").release_.digests()
    assert fitted(frame, workload=content).release_.digests() == wanted
    assert fitted(frame, workload=content, target="f").release_.digests() == wanted
    run = [
        "synthesize", "t.csv", "--schema", "s.json", "--rho", "0.05", "--insecure-seed", "3",
        "--beyond-limits", "--json", "--force", "--release", "r.zip",
    ]  # fmt: skip
    for named in (["--target", "f"], ["--workload", "w.json"]):
        assert main([*run, *named]) == 0
        said = json.loads(capsys.readouterr().out)["target"]
        release = Release.load("r.zip")
        assert release.digests() == wanted
        assert said["column"] == "f"
        assert said["combinations"] == 5 + 10
        assert said["measured"] <= 5 + 10
    assert main([*run[:-4], "--force", "--release", "r.zip", "--target", "f"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"f: {said['measured']} of 15 combinations with it measured" in printed


def test_a_loaded_release_is_fitted_again_to_the_same_target(frame, tmp_path):
    model = fitted(frame, target="f")
    model.save(tmp_path / "r.zip")
    loaded = Synthesizer.load(tmp_path / "r.zip")
    assert loaded.target == "f"
    with pytest.warns(UserWarning, match="insecure_seed"):
        again = loaded.set_params(**SEEDED, delta=None).fit(frame, schema=SIZES)
    assert again.release_.digests() == model.release_.digests()


def test_a_run_for_another_target_is_not_resumed():
    """A ledger recognises a run by these words."""
    asked = [
        SynthesizeOptions(rho=1.0, workers=1, workload=2, target=target)
        for target in (None, "e", "f", "f")
    ]
    schema = TableSet.parse(SIZES)
    words = [check_tables(schema, options).root.work.request_fields() for options in asked]
    assert words[0] != words[1] != words[2] == words[3]
    assert [each["target"] for each in words] == ["none", "e", "f", "f"]


def test_plan_says_whom_a_table_would_serve(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SIZES))
    (tmp_path / "w.json").write_text(
        json.dumps({"version": 1, "parts": [{"ways": [2]}], "target": "f"})
    )
    plan = ["plan", "--schema", "s.json", "--epsilon", "1"]
    found = []
    for named in ([], ["--target", "f"], ["--workload", "w.json"]):
        assert main([*plan, *named, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [each["scoring"]["target"] for each in found] == [None, "f", "f"]
    assert len({each["rmse"] for each in found}) == 1  # answers are not weighted by it
    assert main([*plan, "--target", "f"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "f: each set of attributes is also requested" in printed


def test_a_target_is_refused_before_anything_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SIZES))
    (tmp_path / "w.json").write_text(
        json.dumps({"version": 1, "parts": [{"ways": [2]}], "target": "z"})
    )
    (tmp_path / "t.csv").write_text("no such column\n1\n")
    run = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "1", "--out", "o.csv"]
    for named, said in (
        (["--target", "z"], "attribute 'z' is not in the schema"),
        (["--workload", "w.json"], "w.json: attribute 'z' is not in the schema"),
    ):
        assert main([*run, *named]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(InputError, match="target is 3"):
        Synthesizer(rho=1.0, target=3).fit(pd.DataFrame(), schema=SIZES)
