"""A table generator is one callable and one line of its registry."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.errors import InputError
from adaptive_qs.generate.rows import GENERATORS

ROWS = pd.DataFrame({"a": [0, 0, 0, 2] * 60, "b": [0, 1] * 120})
SCHEMA = {"a": 3, "b": 2}


def independent(
    residuals, measured, workload, num_rows, seed, settings=None, workers=1, progress=None
):
    """Every column by itself from its noisy counts."""
    rng = np.random.default_rng(seed)
    columns = []
    for i, n in enumerate(residuals.domain.sizes):
        counts = np.maximum(residuals.marginal((i,)), 0)
        columns.append(rng.choice(n, num_rows, p=counts / counts.sum()))
    yield np.stack(columns, axis=1).astype(np.int32)


@pytest.fixture
def release(monkeypatch, tmp_path):
    """A saved release that names the toy."""
    monkeypatch.setitem(GENERATORS, "independent", independent)
    fitted = Synthesizer(rho=5, workers=1, insecure_seed=1).fit(ROWS, schema=SCHEMA)
    fitted.release_.manifest.settings["generator"] = "independent"
    fitted.save(tmp_path / "toy.aqs")
    return tmp_path / "toy.aqs"


def test_tables_come_from_the_generator_that_the_release_names(release):
    made = Synthesizer.load(release).sample(4_000, seed=3)
    assert made.shape == (4_000, 2)
    assert (made["a"] == 0).mean() == pytest.approx(0.75, abs=0.1)
    assert abs(np.corrcoef(made["a"], made["b"])[0, 1]) < 0.08  # five standard deviations
    pd.testing.assert_frame_equal(made, Synthesizer.load(release).sample(4_000, seed=3))


def test_a_generator_that_is_not_there_is_named(release):
    loaded = Synthesizer.load(release)
    del GENERATORS["independent"]
    with pytest.raises(InputError, match="generator is 'independent': give one of loglinear"):
        loaded.sample(10)
