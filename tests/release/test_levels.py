"""A release that was measured over groups of codes: what it says, and that it comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.release.page import release_page, workload_marginals
from adaptive_qs.release.release import Release
from adaptive_qs.residual import is_measured
from adaptive_qs.synthesizer import Synthesizer

from ..audit.recompute import problems
from .examples import edited

SIZES = {"a": 16, "b": 20, "c": 70, "d": 18}
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": name, "type": "integer", "min": 0, "max": n - 1} for name, n in SIZES.items()
    ],
}
SETTINGS = {"workload": 2, "insecure_seed": 1, "delta": 1e-9, "beyond_limits": True}


@pytest.fixture(autouse=True, scope="module")
def quick_tables():
    """Fit tables with few rows: these tests are not about their quality."""
    with pytest.MonkeyPatch.context() as patch:
        few = partial(SynthesisSettings, fit_rows=500)
        patch.setattr("adaptive_qs.release.release.SynthesisSettings", few)
        yield


@pytest.fixture(scope="module")
def release(quick_tables):
    rng = np.random.default_rng(0)
    level = rng.beta(0.6, 1.2, 400)
    noisy = {name: np.clip(level + rng.normal(0, 0.2, 400), 0, 0.999) * n for name, n in
             SIZES.items()}  # fmt: skip
    frame = pd.DataFrame({name: values.astype(int) for name, values in noisy.items()})
    return Synthesizer(epsilon=5.0, **SETTINGS).fit(frame, schema=SCHEMA).release_


@pytest.fixture(scope="module")
def path(release, tmp_path_factory):
    target = tmp_path_factory.mktemp("levels") / "r.zip"
    release.save(target)
    return target


def test_it_says_at_which_levels_each_combination_was_measured(release):
    chosen = [(past.clique, past.groups) for past in release.rounds if len(past.clique) > 1]
    said = [(found.columns, found.groups) for found in release.manifest.resolutions]
    assert said == list(dict.fromkeys(chosen))
    coarse = [c for c in said if any(n < SIZES[name] for name, n in zip(*c))]
    assert coarse
    assert {n for _, groups in coarse for n in groups} <= {8, 32, *SIZES.values()}
    assert release.manifest.unconnected == ()


def test_it_comes_back_as_it_was(release, path):
    again = Release.load(path)
    assert again.groupings == release.groupings
    assert again.digests() == release.digests()
    for clique in [(0, 1, 2, 3), *release.estimates]:
        np.testing.assert_array_equal(
            again.model().marginal(clique), release.model().marginal(clique)
        )
    for first, second in zip(release.sample(seed=3).columns, again.sample(seed=3).columns):
        np.testing.assert_array_equal(first, second)


def test_every_residual_at_levels_was_paid_for(path):
    assert problems(path) == []


DAMAGED = {
    "a group of nothing": lambda record: record["levels"][0].update(groups=[0, 2] * 8),
    "too few codes": lambda record: record["levels"][0].update(groups=[0, 1]),
    "another column": lambda record: record["levels"][0].update(column="b"),
    "a huge group": lambda record: record["levels"][0].update(groups=[2**40] * 16),
    "a negative group": lambda record: record["levels"][0].update(groups=[-1] * 16),
    "no such column": lambda record: record["levels"][0].update(column="nobody"),
    "no levels": lambda record: record.update(levels=[]),
    "not nested": lambda record: next(
        level for level in record["levels"] if max(level["groups"]) > 8
    ).update(groups=[k % 32 for k in range(70)]),
    "a round at another level": lambda record: record["rounds"][0].update(groups=[5, 5]),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_levels_that_were_tampered_with_are_refused(path, tmp_path, what):
    edited(path, tmp_path / "bad.zip", "record.json", DAMAGED[what])
    with pytest.raises(InputError, match="damaged"):
        Release.load(tmp_path / "bad.zip")


def test_marginals_over_codes_say_what_is_known_of_them(release):
    """A pair over groups alone is partly measured; all levels below codes make it measured."""
    (pair,) = release.marginals([("c", "d")])
    whole = is_measured(release.estimates, (2, 3), release.domain)
    assert (pair.basis == "measured") == whole
    domain = release.domain
    estimates = dict(release.estimates)
    for tau in domain.below((0, 1)):
        known = release.estimates[()]
        estimates.setdefault(tau, replace(known, values=np.zeros(domain.shape(tau))))
    full = replace(release, estimates=estimates, manifest=release.manifest)
    (measured,) = full.marginals([("a", "b")])
    assert measured.basis == "measured"
    assert measured.standard_errors.shape == (16, 20)
    assert measured.standard_error == pytest.approx(
        np.sqrt(np.mean(np.square(measured.standard_errors)))
    )
    table = measured.table(full.schema, "keep").to_pandas()
    np.testing.assert_array_equal(table["standard_error"], measured.standard_errors.ravel())


def test_the_page_shows_groups_as_groups(release):
    model = release.model()
    total = model.total
    found = {m.names: m for m in workload_marginals(release, model, total)}
    coarse = [m for m in found.values() if m.groups and not m.measured]
    assert coarse
    for marginal in coarse:
        assert marginal.cells[0] < marginal.cells[1]
        assert marginal.l1 > 0
    page = release_page(release)
    shown = coarse[0]
    assert f"of {shown.cells[1]:,}" in page
    assert shown.resolution in page


# The doors: what a schema declares, and the switch.

TOWNS = [f"t{k}" for k in range(40)]
HIERARCHY = {
    "version": 1,
    "columns": [
        {"name": "town", "type": "categorical", "values": TOWNS,
         "groups": {f"g{k}": TOWNS[k::5] for k in range(5)}},
        {"name": "shop", "type": "categorical", "values": [f"s{k}" for k in range(64)]},
        {"name": "chain", "type": "categorical", "values": ["c0", "c1", "c2"]},
        {"name": "age", "type": "integer", "min": 0, "max": 79},
    ],
    "rules": [
        {"rule": "shop determines chain", "table": [[f"s{k}", f"c{k % 3}"] for k in range(64)]}
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def shops():
    rng = np.random.default_rng(1)
    shop, region = rng.integers(64, size=400), rng.integers(5, size=400)
    age = np.clip(15 * region + rng.integers(20, size=400), 0, 79)
    town = region + 5 * rng.integers(8, size=400)
    return pd.DataFrame({
        "town": [f"t{k}" for k in town], "shop": [f"s{k}" for k in shop],
        "chain": [f"c{k % 3}" for k in shop], "age": age,
    })  # fmt: skip


def test_declared_groups_are_levels_and_every_residual_over_them_is_paid_for(shops, tmp_path):
    model = Synthesizer(epsilon=2.0, **SETTINGS).fit(shops, schema=HIERARCHY)
    release = model.release_
    kept = {(g.attribute, g.groups) for g in release.groupings}
    assert (0, tuple(k % 5 for k in range(40))) in kept
    assert (1, tuple(k % 3 for k in range(64))) in kept
    over = {f"{one}" for one in release.manifest.resolutions}
    assert any("town in 5 groups" in words for words in over)
    model.save(tmp_path / "r.zip")
    assert problems(tmp_path / "r.zip") == []
    assert Release.load(tmp_path / "r.zip").digests() == release.digests()


def test_levels_can_be_switched_off(shops, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shops.to_csv("t.csv", index=False)
    Path("s.json").write_text(json.dumps(HIERARCHY))
    run = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "2", "--insecure-seed", "1"]
    for levels in ("off", "auto"):
        assert main([*run, "--levels", levels, "--release", f"{levels}.zip"]) == 0
        bundle = Release.load(f"{levels}.zip")
        assert bundle.manifest.settings["levels"] == levels
        assert bool(bundle.groupings) == (levels == "auto")
        whole = all(one.groups == one.codes for one in bundle.manifest.resolutions)
        assert whole == (levels == "off")
    assert "with grouped codes" in capsys.readouterr().out
    assert Synthesizer.load("off.zip").levels == "off"
