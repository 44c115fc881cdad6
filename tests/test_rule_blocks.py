"""Columns that rules tie together: as many rows on each side as were measured, for users."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.release.release import Release

ROWS, PARTS, SHARE = 12_000, 5, 0.07
SIGMAS = 5.0
"""Standard deviations: a right sampler fails one comparison in 2e6 (fixed seeds: once)."""


def labels(name, *values):
    return {"name": name, "type": "categorical", "values": [*values]}


SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "kind", "type": "integer", "min": 0, "max": 31},
        {"name": "day", "type": "integer", "min": 0, "max": 9},
        {"name": "place", "type": "integer", "min": 0, "max": 7},
        *(labels(f"part{k}", "none", "even", "odd") for k in range(PARTS)),
    ],
    "rules": [f"part{k} = none -> part{(k + 1) % PARTS} = none" for k in range(PARTS)],
}


def private():
    """Rows with all parts or with none, where each part depends most on the kind.

    A tree of the strongest dependences joins each part to the kind and no two parts, so that hardly
    any row begins without parts, and no move of one or two columns leads there.
    """
    rng = np.random.default_rng(1)
    none, kind = rng.random(ROWS) < SHARE, rng.integers(0, 32, ROWS)
    frame = {"kind": kind, "day": rng.integers(0, 10, ROWS) // (1 + none)}
    frame["place"] = (kind // 4 + rng.integers(0, 2, ROWS)) % 8
    for k in range(PARTS):
        frame[f"part{k}"] = np.where(none, "none", np.where(kind >> k & 1, "odd", "even"))
    return pd.DataFrame(frame)


def check(frame, release, rows=None):
    """Compare the rows without parts with the measured number, in standard deviations."""
    model = release.model()
    without = (frame[[f"part{k}" for k in range(PARTS)]] == "none").to_numpy()
    assert (without.all(axis=1) == without.any(axis=1)).all()
    measured = float(model.marginal((3,))[0]) / model.total * ROWS
    drawn = without[:, 0].sum() if rows is None else rows
    noise = model.estimates[3,].precision ** -0.5
    assert abs(drawn - measured) < SIGMAS * (ROWS * SHARE * (1 - SHARE) + noise**2) ** 0.5


@pytest.fixture(scope="module")
def model():
    synthesizer = Synthesizer(epsilon=10, delta=1e-5, insecure_seed=1)
    with pytest.warns(UserWarning, match="seed"):
        return synthesizer.fit(private(), schema=SCHEMA)


@pytest.mark.slow
def test_a_rare_side_has_as_many_rows_as_were_measured(model):
    check(model.sample(ROWS, seed=1), model.release_)


@pytest.mark.slow
def test_a_condition_takes_as_many_rows_as_were_measured(model):
    found = model.sample(seed=2, where="part0 = none")
    check(found, model.release_, len(found))
    assert (found["part4"] == "none").all()


@pytest.mark.slow
def test_the_command_line_draws_as_many_rows_as_were_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    private().to_csv("t.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    budget = ["--delta", "1e-5", "--beyond-limits", "--epsilon"]
    assert main(["ledger", "create", "--ledger", "book.db", *budget, "20"]) == 0
    command = ["synthesize", "t.csv", "--schema", "s.json", "--ledger", "book.db"]
    command += [*budget, "10", "--seed", "1", "--rows", str(ROWS)]
    assert main([*command, "--out", "o.csv", "--release", "r.zip"]) == 0
    check(pd.read_csv("o.csv", keep_default_na=False), Release.load("r.zip"))
