from functools import partial

import pytest

from adaptive_qs.generate.rows import SynthesisSettings

from .cost import cost


@pytest.mark.slow
def test_the_time_of_a_run_is_taken_apart(tmp_path, monkeypatch):
    """How large the parts are is the disk's affair: the assurance script reports it."""
    few_rows = partial(SynthesisSettings, fit_rows=500)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", few_rows)
    figures = cost(tmp_path, warm=False)
    parts = [figures[name] for name in ("noise", "hashing", "ledger")]
    assert figures["releases"] > 10
    assert min(parts) > 0
    assert sum(parts) < figures["total"]
    assert sum(parts) == pytest.approx(figures["share"] * figures["total"], rel=1e-9)
